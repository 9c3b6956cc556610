//! One site with its weights and inputs, and what the fp64 reference makes of it.

use std::{ops::Range, sync::Arc};

use ndarray::{ArcArray1, ArcArray2, Array1, Array2, ArrayView2, Axis, CowArray, Ix2, s};
use ulpdrift_reference::{
    certify::{Certificate, Rows, certify},
    dot::dot,
    mix::{SplitParams, mixes, rms_factor, split_sinkhorn},
    simd::Level,
    squares::squares,
};

use super::{Plan, SuiteError};
use crate::{
    backend::{MixInputs, SplitInputs, emulate::rms_factor as rms_factor_fp32},
    checkpoint::{HcWeights, Site, StoredType},
    format::Format,
    recipe::{
        MixRecipe, NormPlacement, Projection,
        operands::{Operands, Streams},
        splits::Launch,
    },
    report::Read,
};

/// One hyper-connection site: layer, weights, inputs. Cheap to clone and to slice: the tensors are
/// shared.
#[derive(Clone)]
pub struct Case {
    /// Layer of the model.
    pub layer: u32,
    /// Which of the layer's two sites.
    pub site: Site,
    /// The flattened streams [T, hc·d], as stored.
    pub x: ArcArray2<f32>,
    /// A format that holds every value of x: what the streams are stored in.
    pub x_exact_in: Format,
    /// The site's parameters.
    pub weights: Arc<HcWeights>,
    /// Square sums of the rows of `hc_fn`.
    pub function_squares: ArcArray1<f64>,
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
        match plan.activations.tokens(layer, site, tokens)? {
            None => Ok(None),
            Some(x) => Self::with_inputs(plan, layer, site, x.into_shared()).map(Some),
        }
    }

    /// The case of one site whose inputs are at hand.
    ///
    /// # Errors
    /// Weights that cannot be read.
    pub fn with_inputs(
        plan: &Plan<'_>,
        layer: u32,
        site: Site,
        x: ArcArray2<f32>,
    ) -> Result<Self, SuiteError> {
        let model = plan.checkpoint.model();
        let stored = plan.activations.exact_in(layer, site);
        let weights = plan.checkpoint.hc(layer, site, plan.nonfinite)?;
        Ok(Self {
            layer,
            site,
            x,
            x_exact_in: stored.map_or(Format::F32, StoredType::format),
            function_squares: squares(plan.level, weights.function.view()).into_shared(),
            weights: Arc::new(weights),
            hc: model.hc,
            norm_eps: model.norm_eps,
            hc_eps: model.hc_eps,
            iters: model.sinkhorn_iters,
        })
    }

    /// The same site with some of its tokens.
    #[must_use]
    pub fn tokens(&self, tokens: Range<usize>) -> Self {
        Self {
            x: self.x.clone().slice_move(s![tokens, ..]),
            ..self.clone()
        }
    }

    /// Notes the weights of the site.
    pub fn note(&self, read: &mut Read) {
        self.weights
            .add_digests(&mut read.digests, self.layer, self.site);
        read.stored_as(self.weights.dtype.name());
    }

    /// x with what is known of it.
    #[must_use]
    pub fn streams(&self) -> Streams<'_> {
        Streams {
            values: self.x.view(),
            exact_in: self.x_exact_in,
        }
    }

    /// The projection's inputs; `launch` is the batch the split rules see.
    #[must_use]
    pub fn mix_inputs(&self, launch: Launch) -> MixInputs<'_> {
        MixInputs {
            x: self.x.view(),
            x_exact_in: self.x_exact_in,
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
        self.site.of(self.layer)
    }

    /// The constants of the fp64 split.
    #[must_use]
    pub fn split_params(&self) -> SplitParams {
        SplitParams {
            hc: self.hc,
            scale: self.weights.scale.map(f64::from),
            base: self.weights.base.iter().copied().map(f64::from).collect(),
            iters: self.iters,
            eps: self.hc_eps,
        }
    }
}

/// Every stage up to the layer input in fp64: the truth, or what a recipe's rounded operands make
/// of it. The layer input itself follows from `pre` and x, and is made where it is looked at.
#[derive(Clone)]
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
}

impl Stages64 {
    /// Everything that follows the mixes.
    #[must_use]
    pub fn from_mixes(case: &Case, dot: Array2<f64>, mixes: Array2<f64>) -> Self {
        let split = split_sinkhorn(mixes.view(), &case.split_params());
        Self {
            dot,
            mixes,
            pre: split.pre,
            post: split.post,
            comb: split.comb,
        }
    }

    /// Appends the tokens that follow.
    pub fn append(&mut self, later: &Self) {
        append(&mut self.dot, &later.dot);
        append(&mut self.mixes, &later.mixes);
        append(&mut self.pre, &later.pre);
        append(&mut self.post, &later.post);
        append(&mut self.comb, &later.comb);
    }
}

/// Appends rows of the same width.
pub fn append<T: Clone>(rows: &mut Array2<T>, later: &Array2<T>) {
    let appended = rows.append(Axis(0), later.view());
    debug_assert!(appended.is_ok(), "stages of one case share their widths");
}

/// The truth of a case, certified.
#[derive(Clone)]
pub struct Truth {
    /// Every stage.
    pub stages: Stages64,
    /// The RMS factor `[T]`.
    pub rms: Array1<f64>,
    /// The reference's own certificate at stage `dot`.
    pub certificate: Certificate,
}

impl Truth {
    /// Appends the tokens that follow.
    pub fn append(&mut self, later: &Self) {
        self.stages.append(&later.stages);
        let appended = self.rms.append(Axis(0), later.rms.view());
        debug_assert!(appended.is_ok(), "factors are one per token");
        self.certificate = self.certificate.merge(later.certificate);
    }
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

/// The fp64 projections of a case: the truth's, and those of every recipe that x enters as it is.
/// They share one pass over x.
pub struct References<'a> {
    level: Level,
    case: &'a Case,
    launch: Launch,
    /// The truth.
    pub truth: Truth,
    recipes: Vec<Prepared<'a>>,
}

/// What is kept of a recipe until its turn comes.
struct Prepared<'a> {
    weights: Vec<CowArray<'a, f32, Ix2>>,
    /// Whether x enters as it is.
    takes_x: bool,
    /// Its projection then.
    dot: Option<Array2<f64>>,
}

impl<'a> References<'a> {
    /// The references of `case` under `recipes`.
    #[must_use]
    pub fn new(level: Level, case: &'a Case, launch: Launch, recipes: &[&MixRecipe]) -> Self {
        let (x, function) = (case.x.view(), case.weights.function.view());
        let mut prepared: Vec<Prepared<'a>> = recipes
            .iter()
            .map(|recipe| Prepared {
                weights: recipe.projection.weight_operands(function),
                takes_x: recipe.projection.takes_as_it_is(case.streams()),
                dot: None,
            })
            .collect();
        let mut stacked = vec![function];
        for (recipe, prepared) in recipes.iter().zip(&prepared) {
            if prepared.takes_x {
                let products = recipe.projection.products().into_iter();
                stacked.extend(products.map(|product| prepared.weights[product.weight].view()));
            }
        }
        let products = dot(level, x, stack(&stacked).view());
        let mut blocks = products.axis_chunks_iter(Axis(1), function.nrows());
        let truth_dot = blocks.next().map(|block| block.to_owned());
        for (recipe, prepared) in recipes.iter().zip(&mut prepared) {
            let count = recipe.projection.products().len();
            prepared.dot = prepared.takes_x.then(|| sum(blocks.by_ref().take(count)));
        }
        Self {
            level,
            case,
            launch,
            truth: truth(level, case, truth_dot.unwrap_or_default()),
            recipes: prepared,
        }
    }

    /// The operands and the fp64 projection of recipe number `index`.
    #[must_use]
    pub fn exact(&self, index: usize, recipe: &MixRecipe) -> Exact<'a> {
        let projection = &recipe.projection;
        let prepared = &self.recipes[index];
        let inputs = self.case.mix_inputs(self.launch);
        let rms = match projection.norm {
            NormPlacement::Before => rms_factor_fp32(self.level, projection, &inputs),
            // Not looked at.
            NormPlacement::After => Array1::default(0),
        };
        let operands = Operands {
            x: projection.x_operands(self.case.streams(), rms.view()),
            weights: prepared.weights.clone(),
        };
        let dot = prepared.dot.clone().unwrap_or_else(|| {
            let products = projection.products();
            let dots: Vec<Array2<f64>> = products
                .iter()
                .map(|product| {
                    let weight = operands.weights[product.weight].view();
                    dot(self.level, operands.x[product.x].view(), weight)
                })
                .collect();
            sum(dots.iter().map(|dot| dot.view()))
        });
        Exact { operands, dot }
    }
}

fn sum<'a>(mut terms: impl Iterator<Item = ArrayView2<'a, f64>>) -> Array2<f64> {
    let first = terms.next().map(|first| first.to_owned());
    terms.fold(first.unwrap_or_default(), |sum, term| sum + term)
}

fn truth(level: Level, case: &Case, dot: Array2<f64>) -> Truth {
    let (x, function) = (case.x.view(), case.weights.function.view());
    let squares = squares(level, x);
    let streams = Rows {
        values: x,
        squares: squares.view(),
    };
    let weights = Rows {
        values: function,
        squares: case.function_squares.view(),
    };
    let certificate = certify(level, streams, weights, dot.view());
    let rms = rms_factor(squares.view(), x.ncols(), case.norm_eps);
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
