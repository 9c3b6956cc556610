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

use ndarray::{Array2, ArrayView2};
use ulpdrift_reference::mix::collapse;

use super::{
    STAGES, Stage, layer_input,
    projected::{Model, Outputs, Projected},
};
use crate::{
    backend::BackendError,
    recipe::{MixRecipe, NormPlacement},
    suite::{
        Plan,
        case::Case,
        fault::Variant,
        tensors::{NamedTensor, Stored, Tensors, Values},
    },
};

/// The tensors behind the rows of one site.
pub struct SiteTensors<'a> {
    pub(super) plan: &'a Plan<'a>,
    pub(super) case: Case,
    pub(super) projected: Projected,
}

impl Tensors for SiteTensors<'_> {
    fn place(&self) -> String {
        self.case.place()
    }

    fn named(&self) -> Vec<NamedTensor<'_>> {
        let place = self.place();
        let x = self.case.x.view();
        let mut tensors = vec![NamedTensor::fp32(
            format!("{place}.x"),
            Stored::holding(x),
            x,
        )];
        for stage in STAGES {
            let name = format!("{place}.{}", stage.name());
            if stage != Stage::YBf16 {
                let truth = &self.projected.truth.stages;
                let name = format!("{name}.reference");
                tensors.push(match stage.fp64(truth, NormPlacement::After) {
                    Some(values) => NamedTensor::fp64(name, values),
                    None => self.layer_input64(name, truth.pre.view()),
                });
            }
            for (variant, outputs) in self.projected.variants(self.plan) {
                tensors.extend(self.of_variant(&name, stage, variant, outputs));
            }
        }
        tensors
    }
}

impl SiteTensors<'_> {
    /// What a variant got at a stage, and its recipe-exact value.
    fn of_variant<'s>(
        &'s self,
        stage_name: &str,
        stage: Stage,
        variant: Variant<'s>,
        outputs: &'s Outputs,
    ) -> Vec<NamedTensor<'s>> {
        let recipe = variant.recipe;
        let name = format!("{stage_name}.{variant}");
        let stored = Stored::of(stage.format(recipe));
        let mut tensors = vec![match stage.got(&outputs.candidate) {
            Some(values) => NamedTensor::fp32(name.clone(), stored, values),
            None => NamedTensor::made(name.clone(), stored, self.layer_input_shape(), move || {
                Ok(Values::F32(
                    self.layer_input(recipe, outputs, stored)?.into(),
                ))
            }),
        }];
        if let (Some(Model { exact, .. }), true) = (&outputs.model, stage != Stage::YBf16) {
            let name = format!("{name}.exact");
            tensors.push(match stage.fp64(exact, recipe.projection.norm) {
                Some(values) => NamedTensor::fp64(name, values),
                None => self.layer_input64(name, exact.pre.view()),
            });
        }
        tensors
    }

    fn layer_input64<'s>(&'s self, name: String, pre: ArrayView2<'s, f64>) -> NamedTensor<'s> {
        NamedTensor::made(name, Stored::F64, self.layer_input_shape(), move || {
            let y = collapse(self.plan.level, pre, self.case.x.view());
            Ok(Values::F64(y.into()))
        })
    }

    fn layer_input_shape(&self) -> [usize; 2] {
        let (tokens, width) = self.case.x.dim();
        [tokens, width / self.case.hc]
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
}
