//! One layer's keys: the context streamed through the truth and through what all recipes share.
//!
//! Every recipe's key begins with the same pooled window in fp32 (its roundings come behind), so that the projections,
//! which are nearly all the work, are run twice: in fp64 for the truth, and in fp32 as the kernels do.

use std::{ops::Range, sync::OnceLock};

use ndarray::{Array2, ArrayView2, Axis, s};
use ulpdrift_reference::indexer as reference;

use super::{Plan, Read, SuiteError};
use crate::{
    activations::IndexSource,
    backend::emulate::indexer::{
        FmaLinear, Fp8Weight, Geometry, Linear, Pool, QueryWeights, hidden,
    },
    checkpoint::{self, IndexerModel, IndexerWeights},
};

/// Tokens that are streamed at a time: a whole number of windows, and few enough that the C library keeps the memory of a
/// block for the next one (it returns what is larger than 32 MiB, and clearing it anew took a sixth of the time).
const BLOCK: usize = 512;

/// One layer's weights and the keys of the longest context.
pub struct Layer {
    /// Which layer.
    pub number: u32,
    /// Its weights.
    pub weights: IndexerWeights,
    /// The model's dimensions.
    pub model: IndexerModel,
    /// ε of all norms.
    pub norm_eps: f64,
    /// What turns q and k.
    pub rope: reference::Rope,
    /// Where the hidden states come from.
    pub source: IndexSource,
    /// The truth's keys [N, W].
    pub truth: Array2<f64>,
    /// The pooled keys [N, W] in fp32, before any recipe's own roundings.
    pub pooled: Array2<f32>,
    /// The same where windows do not reach back: made when a known bug or a diagnosis asks for it.
    apart: OnceLock<Array2<f32>>,
}

impl Layer {
    /// Reads the weights and streams the longest of `contexts`.
    pub fn read(plan: &Plan<'_>, number: u32, contexts: &[usize]) -> Result<Self, SuiteError> {
        let weights = plan.checkpoint.indexer(number, plan.nonfinite)?;
        let model = plan.checkpoint.model();
        let source = plan.activations.index_source(number)?;
        let (Some(indexer), Some(source)) = (model.indexer, source) else {
            let what = format!("layer {number} has no indexer or no hidden states");
            return Err(SuiteError::NothingToRun(what));
        };
        let longest = contexts.iter().max().copied().unwrap_or_default();
        let rope = turning(indexer.rope);
        let mut layer = Self {
            number,
            weights,
            model: indexer,
            norm_eps: model.norm_eps,
            rope,
            source,
            truth: Array2::zeros((0, indexer.width)),
            pooled: Array2::zeros((0, indexer.width)),
            apart: OnceLock::new(),
        };
        layer.stream(plan, longest.min(source.tokens))?;
        Ok(layer)
    }

    fn stream(&mut self, plan: &Plan<'_>, tokens: usize) -> Result<(), SuiteError> {
        let mut truth = Array2::zeros((tokens / self.model.ratio, self.model.width));
        let weights = self.reference();
        let mut stream = reference::KeyStream::new(plan.level, &weights, &self.rope);
        let pooled = self.pool(plan, tokens, true, |made, y| {
            truth.slice_mut(s![made, ..]).assign(&stream.push(y));
        })?;
        (self.truth, self.pooled) = (truth, pooled);
        Ok(())
    }

    /// The pooled keys [N, W] of windows that do not reach back over the tokens before their own.
    ///
    /// # Errors
    /// Hidden states that cannot be read.
    pub fn pooled_apart(&self, plan: &Plan<'_>) -> Result<&Array2<f32>, SuiteError> {
        if let Some(pooled) = self.apart.get() {
            return Ok(pooled);
        }
        let tokens = self.pooled.nrows() * self.model.ratio;
        let pooled = self.pool(plan, tokens, false, |_, _| {})?;
        Ok(self.apart.get_or_init(|| pooled))
    }

    /// Streams hidden states through the projections and pools them; `see` is shown every block and the keys that it
    /// makes.
    fn pool(
        &self,
        plan: &Plan<'_>,
        tokens: usize,
        overlap: bool,
        mut see: impl FnMut(Range<usize>, ArrayView2<'_, f32>),
    ) -> Result<Array2<f32>, SuiteError> {
        let ratio = self.model.ratio;
        let mut pooled = Array2::zeros((tokens / ratio, self.model.width));
        let projection = FmaLinear::new(&[self.weights.wkv.view(), self.weights.wgate.view()]);
        let geometry = Geometry {
            overlap,
            ..Geometry::default()
        };
        let mut pool = Pool::new(self.weights.ape.view(), geometry);
        for start in (0..tokens).step_by(BLOCK) {
            let block = start..(start + BLOCK).min(tokens);
            let made = start / ratio..block.end / ratio;
            let y = plan.activations.hidden_states(self.number, block)?;
            see(made.clone(), y.view());
            let u = self.hidden(y);
            let projected = projection.project(plan.level, u.view());
            let (kv, gate) = projected.view().split_at(Axis(1), 2 * self.model.width);
            let keys = pool.push(kv, gate);
            pooled.slice_mut(s![made, ..]).assign(&keys);
        }
        Ok(pooled)
    }

    /// What every recipe's linears read, of rows y.
    pub fn hidden(&self, y: Array2<f32>) -> Array2<f32> {
        match self.source.normed {
            true => y,
            false => hidden(y, &self.weights.attn_norm, self.norm_eps),
        }
    }

    /// The weights as the truth reads them.
    pub fn reference(&self) -> reference::Weights<'_> {
        let weights = truthful(&self.weights, self.norm_eps);
        match self.source.normed {
            true => reference::Weights {
                attn_norm: None,
                ..weights
            },
            false => weights,
        }
    }

    /// The weights of the query path as the recipes read them.
    pub fn query_weights(&self) -> QueryWeights<'_> {
        QueryWeights {
            wq_a: linear(&self.weights.wq_a),
            q_norm: &self.weights.q_norm,
            norm_eps: self.norm_eps,
            wq_b: linear(&self.weights.wq_b),
            weights_proj: Linear {
                values: self.weights.weights_proj.view(),
                fp8: None,
            },
        }
    }

    /// Notes what was read.
    pub fn note(&self, read: &mut Read) {
        read.digests.extend(&self.weights.digests);
    }
}

/// An indexer's weights as the truth reads them, for hidden states before the layer's norm.
pub fn truthful(weights: &IndexerWeights, norm_eps: f64) -> reference::Weights<'_> {
    reference::Weights {
        attn_norm: Some(&weights.attn_norm),
        wq_a: weights.wq_a.values.view(),
        q_norm: &weights.q_norm,
        wq_b: weights.wq_b.values.view(),
        weights_proj: weights.weights_proj.view(),
        wkv: weights.wkv.view(),
        wgate: weights.wgate.view(),
        ape: weights.ape.view(),
        k_norm: &weights.k_norm,
        norm_eps,
    }
}

fn linear(stored: &checkpoint::Linear) -> Linear<'_> {
    Linear {
        values: stored.values.view(),
        fp8: stored.fp8.as_ref().map(|blocks| Fp8Weight {
            codes: blocks.codes.view(),
            scales: blocks.scales.view(),
            block: blocks.block,
        }),
    }
}

/// How the truth turns queries and keys.
pub fn turning(rope: checkpoint::Rope) -> reference::Rope {
    let yarn = rope.yarn.map(|yarn| reference::Yarn {
        factor: yarn.factor,
        original_positions: yarn.original_positions,
        beta_fast: yarn.beta_fast,
        beta_slow: yarn.beta_slow,
    });
    reference::Rope::new(rope.theta, rope.dims, yarn)
}
