//! The tensors behind the rows of one site, named so that anyone can check a row.
//!
//! | name | what |
//! |---|---|
//! | `L3.attn.x` | the flattened streams as stored |
//! | `L3.attn.mixes.reference` | the truth, F64 |
//! | `L3.attn.mixes.tf32` | what the variant got, in the stage's own format |
//! | `L3.attn.mixes.tf32.exact` | its recipe-exact value, F64 |
//!
//! `dot.reference` is Σxw; a recipe that normalises first is measured at `dot` against
//! `mixes.reference`, since its projection is that of the normalised x.

use ndarray::ArrayView2;

use super::{Measured, STAGES, SiteTensors, Stage};
use crate::{
    format::{Format, Rounding, bf16},
    recipe::NormPlacement,
};

/// A tensor to be written.
pub struct NamedTensor<'a> {
    /// Its full name.
    pub name: String,
    /// Its values.
    pub values: Values<'a>,
}

/// Values in the format they are written in.
#[derive(Clone, Copy)]
pub enum Values<'a> {
    /// fp32.
    F32(ArrayView2<'a, f32>),
    /// Values that are exact in bfloat16.
    Bf16(ArrayView2<'a, f32>),
    /// fp64.
    F64(ArrayView2<'a, f64>),
}

impl SiteTensors<'_> {
    /// Every tensor of the site.
    #[must_use]
    pub fn named(&self) -> Vec<NamedTensor<'_>> {
        let place = self.case.place();
        let x = self.case.x.view();
        let exact = x.iter().all(|&value| {
            bf16::round_f32(value, Rounding::NearestEven).to_bits() == value.to_bits()
        });
        let values = if exact {
            Values::Bf16(x)
        } else {
            Values::F32(x)
        };
        let mut tensors = vec![NamedTensor {
            name: format!("{place}.x"),
            values,
        }];
        for stage in STAGES {
            if stage != Stage::YBf16 {
                tensors.push(NamedTensor {
                    name: format!("{place}.{}.reference", stage.name()),
                    values: Values::F64(stage.fp64(&self.truth.stages, NormPlacement::After)),
                });
            }
            for measured in self.candidates {
                tensors.extend(measured.named(&place, stage));
            }
        }
        tensors
    }
}

impl Measured<'_> {
    fn named(&self, place: &str, stage: Stage) -> Vec<NamedTensor<'_>> {
        let name = format!("{place}.{}.{}", stage.name(), self.recipe.name);
        let got = stage.got(&self.candidate);
        let values = match stage.format(self.recipe) {
            Format::Bf16 => Values::Bf16(got),
            _ => Values::F32(got),
        };
        let exact = Values::F64(stage.fp64(&self.exact, self.recipe.projection.norm));
        let mut tensors = vec![NamedTensor {
            name: name.clone(),
            values,
        }];
        if stage != Stage::YBf16 {
            tensors.push(NamedTensor {
                name: format!("{name}.exact"),
                values: exact,
            });
        }
        tensors
    }
}
