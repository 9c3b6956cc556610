//! The distance of a variant to another variant: truth says how good a kernel is, this says
//! whether the swap mattered.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    error::MeasureError,
    norm::{Pairs, relative_norm},
    sample::Sample,
    value::Value,
};

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

/// Measures `got` against the output of another variant.
///
/// # Errors
///
/// When the lengths differ or there is nothing to compare.
pub fn against<G: Sample>(got: &[G], other: &[G]) -> Result<AgainstMeasures, MeasureError> {
    MeasureError::check_length("the other variant's output", other.len(), got.len())?;
    let changed = got
        .iter()
        .zip(other)
        .filter(|(g, o)| !g.same_bits(**o))
        .count();
    let pairs = Pairs::new(got, other);
    let distances = match pairs.poison {
        Some(poison) => [poison; 2],
        None => {
            let [dd, gg, oo] = pairs.sums(|g, o| [(g - o) * (g - o), g * g, o * o]);
            [relative_norm(dd, oo), pairs.gap(gg, oo)]
        }
    };
    let [rel_l2, cosine_gap] = distances;
    Ok(AgainstMeasures {
        against_rel_l2: rel_l2.into(),
        against_cosine_gap: cosine_gap.into(),
        changed: (changed as f64 / got.len() as f64).into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_is_about_bits() {
        let measures = against(&[0.0_f32, 1.0, f32::NAN, 2.0], &[-0.0, 1.0, -f32::NAN, 2.5])
            .expect("same length");
        assert_eq!(measures.changed.0, 0.5);
        assert!(measures.against_rel_l2.0.is_nan());
    }

    #[test]
    fn identical_outputs_do_not_differ() {
        let output = [0.3_f32, -7.0, 1e-20];
        let measures = against(&output, &output).expect("same length");
        assert_eq!(
            measures,
            AgainstMeasures {
                against_rel_l2: Value(0.0),
                against_cosine_gap: Value(0.0),
                changed: Value(0.0)
            }
        );
    }

    #[test]
    fn lengths_must_agree() {
        assert!(against(&[1.0_f32], &[1.0, 2.0]).is_err());
        assert!(against::<f32>(&[], &[]).is_err());
    }
}
