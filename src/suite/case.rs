//! One site with its weights and inputs, and what the fp64 reference makes of it.

use std::ops::Range;

use ndarray::{Array1, Array2, ArrayView2, Axis};
use ulpdrift_reference::{
    certify::{Certificate, certify},
    dot::dot,
    mix::{SplitParams, collapse, mixes, rms_factor, split_sinkhorn},
    simd::Level,
};

use super::{Plan, SuiteError};
use crate::{
    backend::{MixInputs, SplitInputs, emulate::rms_factor as rms_factor_fp32},
    checkpoint::{HcWeights, Site},
    recipe::{
        MixRecipe, NormPlacement, Projection,
        operands::{Operands, Product},
        splits::Launch,
    },
};

/// One hyper-connection site: layer, weights, inputs.
pub struct Case {
    /// Layer of the model.
    pub layer: u32,
    /// Which of the layer's two sites.
    pub site: Site,
    /// The flattened streams [T, hc·d], as stored.
    pub x: Array2<f32>,
    /// The site's parameters.
    pub weights: HcWeights,
    /// Streams.
    pub hc: usize,
    /// ε inside the root of the RMS.
    pub norm_eps: f64,
    /// Sinkhorn's ε.
    pub hc_eps: f64,
    /// Sinkhorn's column normalisations.
    pub iters: u32,
}

impl Case {
    /// The case of one site, or `None` where the inputs lack it.
    ///
    /// # Errors
    /// Weights or inputs that cannot be read.
    pub fn load(
        plan: &Plan<'_>,
        layer: u32,
        site: Site,
        tokens: Range<usize>,
    ) -> Result<Option<Self>, SuiteError> {
        let model = plan.checkpoint.model();
        let Some(x) = plan.activations.tokens(layer, site, tokens)? else {
            return Ok(None);
        };
        Ok(Some(Self {
            layer,
            site,
            x,
            weights: plan.checkpoint.hc(layer, site, plan.nonfinite)?,
            hc: model.hc,
            norm_eps: model.norm_eps,
            hc_eps: model.hc_eps,
            iters: model.sinkhorn_iters,
        }))
    }

    /// The projection's inputs; `launch` is the batch the split rules see.
    #[must_use]
    pub fn mix_inputs(&self, launch: Launch) -> MixInputs<'_> {
        MixInputs {
            x: self.x.view(),
            function: self.weights.function.view(),
            norm_eps: self.norm_eps,
            launch,
        }
    }

    /// The split's inputs for these mixes.
    #[must_use]
    pub fn split_inputs<'a>(&'a self, mixes: ArrayView2<'a, f32>) -> SplitInputs<'a> {
        SplitInputs {
            mixes,
            scale: self.weights.scale,
            base: &self.weights.base,
            hc: self.hc,
            iters: self.iters,
            eps: self.hc_eps,
        }
    }

    /// `L17.ffn`.
    #[must_use]
    pub fn place(&self) -> String {
        format!("L{}.{}", self.layer, self.site)
    }

    fn split_params(&self) -> SplitParams {
        SplitParams {
            hc: self.hc,
            scale: self.weights.scale.map(f64::from),
            base: self.weights.base.iter().copied().map(f64::from).collect(),
            iters: self.iters,
            eps: self.hc_eps,
        }
    }
}

/// Every stage in fp64: the truth, or what a recipe's rounded operands make of it.
pub struct Stages64 {
    /// Before the RMS factor [T, N].
    pub dot: Array2<f64>,
    /// [T, N].
    pub mixes: Array2<f64>,
    /// [T, hc].
    pub pre: Array2<f64>,
    /// [T, hc].
    pub post: Array2<f64>,
    /// [T, hc·hc].
    pub comb: Array2<f64>,
    /// [T, d], not rounded.
    pub y: Array2<f64>,
}

impl Stages64 {
    /// Everything that follows the mixes.
    #[must_use]
    pub fn from_mixes(case: &Case, dot: Array2<f64>, mixes: Array2<f64>) -> Self {
        let split = split_sinkhorn(mixes.view(), &case.split_params());
        let y = collapse(split.pre.view(), case.x.view());
        Self {
            dot,
            mixes,
            pre: split.pre,
            post: split.post,
            comb: split.comb,
            y,
        }
    }
}

/// The truth of a case, certified.
pub struct Truth {
    /// Every stage.
    pub stages: Stages64,
    /// The RMS factor `[T]`.
    pub rms: Array1<f64>,
    /// The reference's own certificate at stage `dot`.
    pub certificate: Certificate,
}

/// A recipe's rounded operands and what fp64 makes of them.
pub struct Exact<'a> {
    /// What the unit is fed.
    pub operands: Operands<'a>,
    /// Their products, summed in fp64 [T, N].
    pub dot: Array2<f64>,
}

impl Exact<'_> {
    /// The recipe-exact values of every stage.
    #[must_use]
    pub fn stages(&self, case: &Case, projection: &Projection, truth: &Truth) -> Stages64 {
        let mixes = match projection.norm {
            NormPlacement::After => mixes(self.dot.view(), truth.rms.view()),
            NormPlacement::Before => self.dot.clone(),
        };
        Stages64::from_mixes(case, self.dot.clone(), mixes)
    }
}

/// The truth of `case` and the recipe-exact projection of each recipe. One pass over x serves the
/// truth and every operand that x enters as it is.
#[must_use]
pub fn references<'a>(
    level: Level,
    case: &'a Case,
    launch: Launch,
    recipes: &[&MixRecipe],
) -> (Truth, Vec<Exact<'a>>) {
    let (x, function) = (case.x.view(), case.weights.function.view());
    let inputs = case.mix_inputs(launch);
    let operands: Vec<Operands<'a>> = recipes
        .iter()
        .map(|recipe| {
            let rms = match recipe.projection.norm {
                NormPlacement::Before => rms_factor_fp32(level, &recipe.projection, &inputs),
                // Not looked at.
                NormPlacement::After => Array1::default(0),
            };
            recipe.projection.operands(x, function, rms.view())
        })
        .collect();
    let shared = |product: &Product, operands: &Operands<'_>| operands.x[product.x].is_view();
    let mut stacked = vec![function];
    for (recipe, operands) in recipes.iter().zip(&operands) {
        for product in recipe.projection.products() {
            if shared(&product, operands) {
                stacked.push(operands.weights[product.weight].view());
            }
        }
    }
    let products = dot(level, x, stack(&stacked).view());
    let mut blocks = products.axis_chunks_iter(Axis(1), function.nrows());
    let truth_dot = blocks
        .next()
        .map(|block| block.to_owned())
        .unwrap_or_default();
    let dots: Vec<Array2<f64>> = recipes
        .iter()
        .zip(&operands)
        .map(|(recipe, operands)| {
            let mut sum = Array2::zeros(truth_dot.dim());
            for product in recipe.projection.products() {
                match shared(&product, operands).then(|| blocks.next()).flatten() {
                    Some(block) => sum += &block,
                    None => {
                        let weight = operands.weights[product.weight].view();
                        sum += &dot(level, operands.x[product.x].view(), weight);
                    }
                }
            }
            sum
        })
        .collect();
    let exact = operands
        .into_iter()
        .zip(dots)
        .map(|(operands, dot)| Exact { operands, dot })
        .collect();
    (truth(case, truth_dot), exact)
}

fn truth(case: &Case, dot: Array2<f64>) -> Truth {
    let certificate = certify(case.x.view(), case.weights.function.view(), dot.view());
    let rms = rms_factor(case.x.view(), case.norm_eps);
    let mixes = mixes(dot.view(), rms.view());
    Truth {
        stages: Stages64::from_mixes(case, dot, mixes),
        rms,
        certificate,
    }
}

fn stack(weights: &[ArrayView2<'_, f32>]) -> Array2<f32> {
    // All weights have the one K of the case, so that they can be stacked.
    ndarray::concatenate(Axis(0), weights).unwrap_or_default()
}
