//! The tensors behind the rows of one site, named so that anyone can check a row.
//!
//! | name | what |
//! |---|---|
//! | `L3.attn.x` | the flattened streams as stored |
//! | `L3.attn.mixes.reference` | the truth, F64 |
//! | `L3.attn.mixes.tf32` | what the variant got, in the stage's own format |
//! | `L3.attn.mixes.tf32.exact` | its recipe-exact value, F64; a library's product has none |
//!
//! `dot.reference` is Σxw; a recipe that normalises first is measured at `dot` against
//! `mixes.reference`, since its projection is that of the normalised x.
//!
//! A tensor's values are had when they are asked for: the layer input of a variant is made then, and
//! gone when the next tensor is.

use ndarray::{Array2, ArrayView2, CowArray, Ix2};
use ulpdrift_reference::mix::collapse;

use super::{
    STAGES, Stage, layer_input,
    projected::{Model, Outputs, Projected},
};
use crate::{
    backend::BackendError,
    format::{Format, Rounding, bf16},
    recipe::{MixRecipe, NormPlacement},
    suite::{Plan, case::Case},
};

/// The tensors behind the rows of one site.
pub struct SiteTensors<'a> {
    pub(super) plan: &'a Plan<'a>,
    pub(super) case: Case,
    pub(super) projected: Projected,
}

/// A tensor to be written.
pub struct NamedTensor<'a> {
    /// Its full name.
    pub name: String,
    /// Rows and columns.
    pub shape: [usize; 2],
    /// The format it is written in.
    pub stored: Stored,
    content: Content<'a>,
}

/// The format a tensor is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// fp64.
    F64,
    /// fp32.
    F32,
    /// bfloat16, in which the values are exact.
    Bf16,
}

/// A tensor's values.
pub enum Values<'a> {
    /// fp32, or values that are exact in bfloat16.
    F32(CowArray<'a, f32, Ix2>),
    /// fp64.
    F64(CowArray<'a, f64, Ix2>),
}

/// Where a tensor's values come from.
#[derive(Clone, Copy)]
enum Content<'a> {
    F32(ArrayView2<'a, f32>),
    F64(ArrayView2<'a, f64>),
    LayerInput {
        site: &'a SiteTensors<'a>,
        recipe: &'a MixRecipe,
        outputs: &'a Outputs,
    },
    LayerInput64 {
        site: &'a SiteTensors<'a>,
        pre: ArrayView2<'a, f64>,
    },
}

impl NamedTensor<'_> {
    /// Its values, made now if nobody keeps them.
    ///
    /// # Errors
    /// A device that fails while it makes them.
    pub fn values(&self) -> Result<Values<'_>, BackendError> {
        Ok(match self.content {
            Content::F32(values) => Values::F32(values.into()),
            Content::F64(values) => Values::F64(values.into()),
            Content::LayerInput64 { site, pre } => {
                let y = collapse(site.plan.level, pre, site.case.x.view());
                Values::F64(y.into())
            }
            Content::LayerInput {
                site,
                recipe,
                outputs,
            } => Values::F32(site.layer_input(recipe, outputs, self.stored)?.into()),
        })
    }
}

impl<'a> SiteTensors<'a> {
    /// `L17.ffn`.
    #[must_use]
    pub fn place(&self) -> String {
        self.case.place()
    }

    /// Every tensor of the site.
    #[must_use]
    pub fn named(&'a self) -> Vec<NamedTensor<'a>> {
        let place = self.place();
        let x = self.case.x.view();
        let exact = x.iter().all(|&value| {
            bf16::round_f32(value, Rounding::NearestEven).to_bits() == value.to_bits()
        });
        let stored = if exact { Stored::Bf16 } else { Stored::F32 };
        let mut tensors = vec![self.tensor(format!("{place}.x"), stored, Content::F32(x))];
        for stage in STAGES {
            let name = format!("{place}.{}", stage.name());
            if stage != Stage::YBf16 {
                let truth = &self.projected.truth.stages;
                let content = match stage.fp64(truth, NormPlacement::After) {
                    Some(values) => Content::F64(values),
                    None => self.layer_input64(&truth.pre),
                };
                tensors.push(self.tensor(format!("{name}.reference"), Stored::F64, content));
            }
            for (recipe, outputs) in self.projected.variants(self.plan) {
                tensors.extend(self.of_variant(&name, stage, recipe, outputs));
            }
        }
        tensors
    }

    /// What a variant got at a stage, and its recipe-exact value.
    fn of_variant(
        &'a self,
        stage_name: &str,
        stage: Stage,
        recipe: &'a MixRecipe,
        outputs: &'a Outputs,
    ) -> Vec<NamedTensor<'a>> {
        let name = format!("{stage_name}.{}", recipe.name);
        let stored = match stage.format(recipe) {
            Format::Bf16 => Stored::Bf16,
            _ => Stored::F32,
        };
        let got = match stage.got(&outputs.candidate) {
            Some(values) => Content::F32(values),
            None => Content::LayerInput {
                site: self,
                recipe,
                outputs,
            },
        };
        let mut tensors = vec![self.tensor(name.clone(), stored, got)];
        if let (Some(Model { exact, .. }), true) = (&outputs.model, stage != Stage::YBf16) {
            let exact = match stage.fp64(exact, recipe.projection.norm) {
                Some(values) => Content::F64(values),
                None => self.layer_input64(&exact.pre),
            };
            tensors.push(self.tensor(format!("{name}.exact"), Stored::F64, exact));
        }
        tensors
    }

    fn layer_input64(&'a self, pre: &'a Array2<f64>) -> Content<'a> {
        Content::LayerInput64 {
            site: self,
            pre: pre.view(),
        }
    }

    fn layer_input(
        &self,
        recipe: &MixRecipe,
        outputs: &Outputs,
        stored: Stored,
    ) -> Result<Array2<f32>, BackendError> {
        let y = layer_input::fp32(self.plan, &self.case, recipe, &outputs.candidate.pre)?;
        let y = y.rows(0..self.case.x.nrows());
        Ok(if stored == Stored::Bf16 {
            layer_input::rounded(y.view())
        } else {
            y.into_owned()
        })
    }

    fn tensor(&self, name: String, stored: Stored, content: Content<'a>) -> NamedTensor<'a> {
        let (tokens, width) = self.case.x.dim();
        let shape = match content {
            Content::F32(values) => [values.nrows(), values.ncols()],
            Content::F64(values) => [values.nrows(), values.ncols()],
            Content::LayerInput { .. } | Content::LayerInput64 { .. } => {
                [tokens, width / self.case.hc]
            }
        };
        NamedTensor {
            name,
            shape,
            stored,
            content,
        }
    }
}
