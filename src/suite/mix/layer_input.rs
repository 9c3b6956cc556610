//! The layer input of a site: by far the largest stage, and the cheapest to compute, so that no
//! variant's is ever kept. Each row is made from its gates and x where it is measured.

use std::ops::Range;

use ndarray::{Array2, ArrayView2, CowArray, Ix2, s};
use ulpdrift_reference::mix::collapse;

use super::projected::Projected;
use crate::{
    backend::{self, BackendError},
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
///
/// # Errors
/// A device that fails.
pub fn measure(
    plan: &Plan<'_>,
    case: &Case,
    projected: &Projected,
) -> Result<Vec<LayerInput>, BackendError> {
    let other = fp32(plan, case, plan.against, &projected.against.pre)?;
    let own: Vec<_> = projected
        .variants(plan)
        .map(|(variant, outputs)| {
            (variant != plan.against.into())
                .then(|| fp32(plan, case, variant.recipe, &outputs.candidate.pre))
                .transpose()
        })
        .collect::<Result<_, _>>()?;
    let rows = LayerInputs {
        plan,
        case,
        projected,
        other,
        formats: [Format::F32, Format::Bf16].repeat(own.len()),
        own,
    };
    let measured = stages::measure(plan.level, &rows);
    let (pairs, _) = measured.as_chunks::<2>();
    Ok(pairs
        .iter()
        .map(|&[y, y_bf16]| LayerInput { y, y_bf16 })
        .collect())
}

/// `y = Σ_j pre_j · x_j` of a recipe, fp32 [T, d].
///
/// # Errors
/// A device that fails.
pub fn fp32<'a>(
    plan: &Plan<'a>,
    case: &'a Case,
    recipe: &'a MixRecipe,
    pre: &'a Array2<f32>,
) -> Result<backend::LayerInput<'a>, BackendError> {
    let x = case.x.view();
    plan.backend
        .collapse(&recipe.epilogue, pre.view(), x, case.x_exact_in)
}

/// `y` as deployed.
pub fn rounded(y: ArrayView2<'_, f32>) -> Array2<f32> {
    y.mapv(|value| bf16::round_f32(value, Rounding::NearestEven))
}

struct LayerInputs<'a> {
    plan: &'a Plan<'a>,
    case: &'a Case,
    projected: &'a Projected,
    /// Of the variant that all are compared with.
    other: backend::LayerInput<'a>,
    /// Of every variant but that one.
    own: Vec<Option<backend::LayerInput<'a>>>,
    formats: Vec<Format>,
}

/// The rows of a block as one variant has them.
struct Made<'a> {
    y: CowArray<'a, f32, Ix2>,
    y_bf16: Array2<f32>,
}

impl<'a> Made<'a> {
    fn of(input: &'a backend::LayerInput<'_>, tokens: Range<usize>) -> Self {
        let y = input.rows(tokens);
        let y_bf16 = rounded(y.view());
        Self { y, y_bf16 }
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
        let other = Made::of(&self.other, tokens.clone());
        let outputs = self
            .projected
            .variants(self.plan)
            .map(|(_, outputs)| outputs);
        for (index, (own, outputs)) in self.own.iter().zip(outputs).enumerate() {
            let model = outputs.model.as_ref();
            let exact = model.map(|model| collapse(level, model.exact.pre.slice(rows), x));
            let exact = exact.as_ref().and_then(|exact| exact.as_slice());
            let truth = Truth::new(reference.as_slice().unwrap_or_default(), exact);
            let own = own.as_ref().map(|own| Made::of(own, tokens.clone()));
            let got = own.as_ref().unwrap_or(&other);
            for (stage, got, other) in [
                (2 * index, got.y.as_slice(), other.y.as_slice()),
                (
                    2 * index + 1,
                    got.y_bf16.as_slice(),
                    other.y_bf16.as_slice(),
                ),
            ] {
                let block = Block {
                    got: got.unwrap_or_default(),
                    truth: &truth,
                    other,
                };
                see(stage, block);
            }
        }
    }
}
