//! The layer input of a site: by far the largest stage, and the cheapest to compute, so that no
//! variant's is ever kept. Each row is made from its gates and x where it is measured.

use std::ops::Range;

use ndarray::{Array2, ArrayView2, s};
use ulpdrift_reference::mix::collapse;

use super::projected::Projected;
use crate::{
    backend::Backend,
    format::{Format, Rounding, bf16},
    measure::{
        passes::{Block, Truth},
        stages::{self, Measured, Rows},
    },
    recipe::MixRecipe,
    suite::{Plan, case::Case},
};

/// Stages `y` and `y_bf16` of one variant.
#[derive(Clone, Copy)]
pub struct LayerInput {
    /// Before rounding.
    pub y: Measured,
    /// As deployed.
    pub y_bf16: Measured,
}

/// Measures the layer input of every variant of the plan.
pub fn measure(plan: &Plan<'_>, case: &Case, projected: &Projected) -> Vec<LayerInput> {
    let rows = LayerInputs {
        plan,
        case,
        projected,
        formats: [Format::F32, Format::Bf16].repeat(plan.recipes.len()),
    };
    let measured = stages::measure(plan.level, &rows);
    let (pairs, _) = measured.as_chunks::<2>();
    pairs
        .iter()
        .map(|&[y, y_bf16]| LayerInput { y, y_bf16 })
        .collect()
}

/// `y = Σ_j pre_j · x_j` of a recipe, fp32 [T, d].
pub fn fp32(
    backend: &dyn Backend,
    recipe: &MixRecipe,
    pre: ArrayView2<'_, f32>,
    x: ArrayView2<'_, f32>,
) -> Array2<f32> {
    backend.collapse(&recipe.epilogue, pre, x)
}

/// `y` as deployed.
pub fn rounded(y: &Array2<f32>) -> Array2<f32> {
    y.mapv(|value| bf16::round_f32(value, Rounding::NearestEven))
}

struct LayerInputs<'a> {
    plan: &'a Plan<'a>,
    case: &'a Case,
    projected: &'a Projected,
    formats: Vec<Format>,
}

/// The rows of a block as one variant has them.
struct Made {
    y: Array2<f32>,
    y_bf16: Array2<f32>,
}

impl LayerInputs<'_> {
    fn make(&self, recipe: &MixRecipe, pre: &Array2<f32>, tokens: &Range<usize>) -> Made {
        let rows = s![tokens.clone(), ..];
        let y = fp32(
            self.plan.backend,
            recipe,
            pre.slice(rows),
            self.case.x.slice(rows),
        );
        let y_bf16 = rounded(&y);
        Made { y, y_bf16 }
    }
}

impl Rows for LayerInputs<'_> {
    type Sample = f32;

    fn tokens(&self) -> usize {
        self.case.x.nrows()
    }

    fn width(&self) -> usize {
        self.case.x.ncols() / self.case.hc
    }

    fn formats(&self) -> &[Format] {
        &self.formats
    }

    fn visit(&self, tokens: Range<usize>, see: &mut dyn FnMut(usize, Block<'_, f32>)) {
        let rows = s![tokens.clone(), ..];
        let (level, x) = (self.plan.level, self.case.x.slice(rows));
        let reference = collapse(level, self.projected.truth.stages.pre.slice(rows), x);
        let other = self.make(self.plan.against, &self.projected.against.pre, &tokens);
        for (index, (recipe, outputs)) in self
            .plan
            .recipes
            .iter()
            .zip(&self.projected.candidates)
            .enumerate()
        {
            let exact = collapse(level, outputs.exact.pre.slice(rows), x);
            let truth = Truth::new(reference.as_slice().unwrap_or_default(), exact.as_slice());
            let own;
            let got = if recipe == self.plan.against {
                &other
            } else {
                own = self.make(recipe, &outputs.candidate.pre, &tokens);
                &own
            };
            for (stage, got, other) in [
                (2 * index, &got.y, &other.y),
                (2 * index + 1, &got.y_bf16, &other.y_bf16),
            ] {
                let block = Block {
                    got: got.as_slice().unwrap_or_default(),
                    truth: &truth,
                    other: other.as_slice(),
                };
                see(stage, block);
            }
        }
    }
}
