//! What other weights of an indexer do to the keys that attention selects.

use std::collections::BTreeSet;

use ndarray::{Array2, s};
use ulpdrift_reference::{indexer as reference, simd::Level};

use super::Distance;
use crate::{
    activations::{Activations, Inputs},
    checkpoint::{Checkpoint, Digests, IndexerModel, IndexerWeights, NonFinite},
    ranking::Ranking,
    suite::{
        SuiteError,
        indexer::{truthful, turning},
    },
};

/// Positions that ask, the last of the context.
pub const QUERIES: usize = 16;

/// Keys that are there for each that is selected.
const KEYS_PER_PLACE: usize = 2;

/// Tokens streamed at a time.
const BLOCK: usize = 512;

/// What B's weights do at one layer.
#[derive(Clone, Debug, PartialEq)]
pub struct SelectionEffect {
    /// The layer.
    pub layer: u32,
    /// The logits that the queries see.
    pub logits: Distance,
    /// The share of A's keys that are B's as well, on average; NaN where a logit is.
    pub recall: f64,
    /// The least of any query.
    pub least_recall: f64,
}

/// What was looked at.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// Layers whose indexers both can be read and differ.
    pub differing: Vec<u32>,
    /// Of these the first, the middle and the last, the worst first.
    pub effects: Vec<SelectionEffect>,
    /// Why layers were left out, a sentence each.
    pub left_out: Vec<String>,
}

/// Tokens of context: twice as many keys as are selected.
#[must_use]
pub fn context(model: &IndexerModel) -> usize {
    KEYS_PER_PLACE * model.topk * model.ratio
}

/// The effect at the first, the middle and the last layer whose indexers differ.
///
/// # Errors
/// Weights that cannot be read.
pub fn effects(a: &Checkpoint, b: &Checkpoint) -> Result<Selection, SuiteError> {
    let mut selection = Selection::default();
    let Some(model) = a.model().indexer else {
        return Ok(selection);
    };
    let theirs = b.indexer_layers();
    for layer in a.indexer_layers() {
        if !theirs.contains(&layer) {
            continue;
        }
        // A layer is read twice, so that memory holds one.
        match (digests(a, layer), digests(b, layer)) {
            (Ok(ours), Ok(theirs)) if ours == theirs => {}
            (Ok(_), Ok(_)) => selection.differing.push(layer),
            (Err(error), _) | (_, Err(error)) => selection.left_out.push(error.to_string()),
        }
    }
    let found = &selection.differing;
    let chosen = match found.len() {
        0..=3 => found.clone(),
        count => vec![found[0], found[count / 2], found[count - 1]],
    };
    let asked = Asked::new(a, model)?;
    for layer in chosen {
        let ours = a.indexer(layer, NonFinite::Allow)?;
        let theirs = b.indexer(layer, NonFinite::Allow)?;
        if fits(&ours, &theirs) {
            selection.effects.push(asked.effect(layer, &ours, &theirs)?);
        } else {
            let why = format!("layer {layer}: the indexers are of other shapes");
            selection.left_out.push(why);
        }
    }
    selection
        .effects
        .sort_by(|x, y| worst_first(x.recall).total_cmp(&worst_first(y.recall)));
    Ok(selection)
}

/// What cannot be said comes before what is bad.
fn worst_first(recall: f64) -> f64 {
    if recall.is_nan() { -1.0 } else { recall }
}

fn digests(checkpoint: &Checkpoint, layer: u32) -> Result<Digests, SuiteError> {
    Ok(checkpoint.indexer(layer, NonFinite::Allow)?.digests)
}

fn fits(a: &IndexerWeights, b: &IndexerWeights) -> bool {
    (a.wq_b.values.dim(), a.weights_proj.dim(), a.ape.dim())
        == (b.wq_b.values.dim(), b.weights_proj.dim(), b.ape.dim())
}

/// What all layers are asked.
struct Asked {
    level: Level,
    activations: Activations,
    model: IndexerModel,
    norm_eps: f64,
    context: usize,
}

impl Asked {
    fn new(checkpoint: &Checkpoint, model: IndexerModel) -> Result<Self, SuiteError> {
        Ok(Self {
            level: Level::detect(),
            activations: Activations::open(&Inputs::Normal, 0, checkpoint.model())?,
            model,
            norm_eps: checkpoint.model().norm_eps,
            context: context(&model),
        })
    }

    fn effect(
        &self,
        layer: u32,
        a: &IndexerWeights,
        b: &IndexerWeights,
    ) -> Result<SelectionEffect, SuiteError> {
        let ours = self.logits(layer, a)?;
        let theirs = self.logits(layer, b)?;
        let logits = Distance::between(
            ours.iter().flatten().copied(),
            theirs.iter().flatten().copied(),
        );
        if logits.rel_l2.is_nan() {
            return Ok(SelectionEffect {
                layer,
                logits,
                recall: f64::NAN,
                least_recall: f64::NAN,
            });
        }
        let k = self.model.topk;
        let mut recalls = Vec::with_capacity(ours.len());
        for (ours, theirs) in ours.iter().zip(&theirs) {
            let ours = Ranking::new(ours, k);
            let theirs: BTreeSet<u32> = Ranking::new(theirs, k).top(k).iter().copied().collect();
            let kept = ours.top(k).iter().filter(|key| theirs.contains(key));
            recalls.push(kept.count() as f64 / ours.top(k).len().max(1) as f64);
        }
        Ok(SelectionEffect {
            layer,
            logits,
            recall: recalls.iter().sum::<f64>() / recalls.len().max(1) as f64,
            least_recall: recalls.into_iter().fold(1.0, f64::min),
        })
    }

    /// The logits of the keys that each query sees.
    fn logits(&self, layer: u32, weights: &IndexerWeights) -> Result<Vec<Vec<f64>>, SuiteError> {
        let rope = turning(self.model.rope);
        let weights = truthful(weights, self.norm_eps);
        let mut stream = reference::KeyStream::new(self.level, &weights, &rope);
        let mut keys = Array2::zeros((self.context / self.model.ratio, self.model.width));
        let mut made = 0;
        for start in (0..self.context).step_by(BLOCK) {
            let block = start..(start + BLOCK).min(self.context);
            let y = self.activations.hidden_states(layer, block)?;
            let new = stream.push(y.view());
            keys.slice_mut(s![made..made + new.nrows(), ..])
                .assign(&new);
            made += new.nrows();
        }
        let positions: Vec<usize> = (self.context.saturating_sub(QUERIES)..self.context).collect();
        let first = positions.first().copied().unwrap_or_default();
        let y = self.activations.hidden_states(layer, first..self.context)?;
        let u = reference::hidden(y.view(), &weights);
        let latent = reference::latent(self.level, u.view(), &weights);
        let queries = reference::queries(
            self.level,
            u.view(),
            latent.view(),
            &positions,
            &weights,
            &rope,
        );
        let scores = reference::Scorer::new(self.level, &queries).score(keys.view(), 0);
        let seen = scores.logits.rows().into_iter().zip(&queries.visible);
        Ok(seen
            .map(|(row, &visible)| row.iter().take(visible).copied().collect())
            .collect())
    }
}
