//! What other hyper-connection weights do to a site's mixes and gates.

use std::cmp::Ordering;

use ulpdrift_reference::{
    dot::dot,
    mix::{Split, SplitParams, mixes, rms_factor, split_sinkhorn},
    simd::Level,
    squares::squares,
};

use ndarray::{Array2, ArrayView2};

use super::Distance;
use crate::{
    activations::{Activations, Inputs},
    checkpoint::{Checkpoint, HcWeights, Model, NonFinite, Site},
    suite::{DEFAULT_TOKENS, SuiteError},
};

/// The tokens that are mixed, drawn as `--inputs normal` draws them.
pub const TOKENS: usize = DEFAULT_TOKENS;

/// What B's weights do at one site.
#[derive(Clone, Debug, PartialEq)]
pub struct MixEffect {
    /// `L17.ffn`.
    pub place: String,
    /// The projection times the RMS factor.
    pub mixes: Distance,
    /// The gates of the layer's input.
    pub pre: Distance,
    /// The gates of its output.
    pub post: Distance,
    /// What the streams are mixed by.
    pub comb: Distance,
}

impl MixEffect {
    /// The stage that moves most, and its relative distance; the first where none is further than another.
    #[must_use]
    pub fn worst(&self) -> (&'static str, f64) {
        let stages = [
            ("mixes", &self.mixes),
            ("pre", &self.pre),
            ("post", &self.post),
            ("comb", &self.comb),
        ];
        let distances = stages.map(|(name, distance)| (name, distance.rel_l2));
        // Without its sign a NaN is larger than any number.
        let further = |worst: (_, f64), one: (_, f64)| match one.1.abs().total_cmp(&worst.1.abs()) {
            Ordering::Greater => one,
            _ => worst,
        };
        distances.into_iter().fold(distances[0], further)
    }
}

/// The effect at every site of the layers that both have and that differ, the worst first.
///
/// # Errors
/// Weights that cannot be read.
pub fn effects(a: &Checkpoint, b: &Checkpoint) -> Result<Vec<MixEffect>, SuiteError> {
    let level = Level::detect();
    let activations = Activations::open(&Inputs::Normal, 0, a.model())?;
    let mut effects = Vec::new();
    for &layer in a.layers().iter().filter(|layer| b.layers().contains(layer)) {
        for site in Site::ALL {
            let ours = a.hc(layer, site, NonFinite::Allow)?;
            let theirs = b.hc(layer, site, NonFinite::Allow)?;
            if bits(&ours).eq(bits(&theirs)) {
                continue;
            }
            let Some(x) = activations.tokens(layer, site, 0..TOKENS)? else {
                continue;
            };
            let ours = Stages::of(level, x.view(), &ours, a.model());
            let theirs = Stages::of(level, x.view(), &theirs, a.model());
            effects.push(ours.effect(&theirs, site.of(layer)));
        }
    }
    effects.sort_by(|x, y| y.worst().1.abs().total_cmp(&x.worst().1.abs()));
    Ok(effects)
}

fn bits(weights: &HcWeights) -> impl Iterator<Item = u32> {
    let values = weights.function.iter().chain(&weights.scale);
    values.chain(&weights.base).map(|value| value.to_bits())
}

struct Stages {
    mixes: Array2<f64>,
    split: Split,
}

impl Stages {
    fn of(level: Level, x: ArrayView2<f32>, weights: &HcWeights, model: &Model) -> Self {
        let factor = rms_factor(squares(level, x).view(), x.ncols(), model.norm_eps);
        let dots = dot(level, x, weights.function.view());
        let mixes = mixes(dots.view(), factor.view());
        let params = SplitParams {
            hc: model.hc,
            scale: weights.scale.map(f64::from),
            base: weights.base.iter().copied().map(f64::from).collect(),
            iters: model.sinkhorn_iters,
            eps: model.hc_eps,
        };
        Self {
            split: split_sinkhorn(mixes.view(), &params),
            mixes,
        }
    }

    fn effect(&self, other: &Self, place: String) -> MixEffect {
        let between = |a: &Array2<f64>, b: &Array2<f64>| {
            Distance::between(a.iter().copied(), b.iter().copied())
        };
        MixEffect {
            place,
            mixes: between(&self.mixes, &other.mixes),
            pre: between(&self.split.pre, &other.split.pre),
            post: between(&self.split.post, &other.split.post),
            comb: between(&self.split.comb, &other.split.comb),
        }
    }
}
