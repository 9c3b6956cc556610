//! The distance of a variant to another variant: truth says how good a kernel is, this says
//! whether the swap mattered.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::value::Value;

/// How far a variant's output is from another's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgainstMeasures {
    /// `‖g − o‖₂ / ‖o‖₂` with `o` the other variant's output.
    pub against_rel_l2: Value,
    /// The cosine gap of the two outputs.
    pub against_cosine_gap: Value,
    /// Share of elements whose bits differ, in [0, 1]; a NaN is the same as any other NaN, +0 and
    /// −0 are not the same.
    pub changed: Value,
}

#[cfg(test)]
mod tests {
    use super::{super::error::Stage, *};
    use crate::format::Format;

    fn against(got: &[f32], other: &[f32]) -> AgainstMeasures {
        let reference: Vec<f64> = got.iter().map(|&g| f64::from(g)).collect();
        let stage = Stage {
            got,
            reference: &reference,
            exact: None,
            other: Some(other),
            tokens: 1,
            format: Format::F32,
        };
        let measured = stage.measure().expect("same length");
        measured.against.expect("there is another variant")
    }

    #[test]
    fn changed_is_about_bits() {
        let measures = against(&[0.0, 1.0, f32::NAN, 2.0], &[-0.0, 1.0, -f32::NAN, 2.5]);
        assert_eq!(measures.changed.0, 0.5);
        assert!(measures.against_rel_l2.0.is_nan());
    }

    #[test]
    fn identical_outputs_do_not_differ() {
        let output = [0.3, -7.0, 1e-20];
        assert_eq!(
            against(&output, &output),
            AgainstMeasures {
                against_rel_l2: Value(0.0),
                against_cosine_gap: Value(0.0),
                changed: Value(0.0)
            }
        );
    }
}
