//! The positions that ask, and what they should be told.
//!
//! Half of Q queries are the last positions of the context, where most keys compete; the others are spread evenly
//! along it, at (j + 1)/(n + 1) of its length. With as many queries as tokens every position asks.

use std::{ops::Range, sync::OnceLock};

use ndarray::{Array2, ArrayView2, Axis, concatenate};
use ulpdrift_reference::{certify::Certificate, indexer as reference};

use super::{
    Layer, Plan, SuiteError,
    fault::trigger::{Signs, Trigger, zeroed},
};
use crate::{
    backend::emulate::indexer::{Latent, Projected, project},
    recipe::indexer::{IndexRecipe, Linears},
};

/// Which of the queries a row is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuerySet {
    /// All.
    All,
    /// Those spread along the context.
    Along,
    /// The last positions.
    End,
}

impl QuerySet {
    /// All sets, the whole first.
    pub const ALL: [Self; 3] = [Self::All, Self::Along, Self::End];

    /// As rows have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Along => "along",
            Self::End => "end",
        }
    }
}

/// The queries of one context.
pub struct Asked {
    /// Tokens of context.
    pub context: usize,
    /// Positions, ascending: first those along the context, then those at its end.
    pub positions: Vec<usize>,
    /// How many are along it.
    along: usize,
    /// What the recipes' linears read [Q, d].
    pub u: Array2<f32>,
    /// Recorded latents [Q, R].
    pub latent: Option<Array2<f32>>,
    /// The truth's queries.
    pub truth: reference::Queries,
    /// The truth's logits [Q, N] of all keys of the context.
    pub logits: Array2<f64>,
    /// Signs of the products behind the visible ones.
    pub signs: reference::Signs,
    /// What the query path's linears give, in FP8 and in fp32: recipes share it.
    projected: [OnceLock<Projected>; 2],
    /// What becomes of the head weights.
    weighed: Signs,
    /// The keys that are not zero, where some are.
    kept: Option<Vec<bool>>,
}

impl Asked {
    /// Half of the queries at the context's end, the others along it; where a known bug needs queries of few keys, those.
    ///
    /// # Errors
    /// Inputs that cannot be read.
    pub fn new(
        plan: &Plan<'_>,
        layer: &Layer,
        context: usize,
        queries: usize,
        trigger: Trigger,
    ) -> Result<Self, SuiteError> {
        let (positions, along) = match trigger.few {
            None => positions(context, queries),
            Some(few) => {
                let ratio = layer.model.ratio;
                let positions = Trigger::positions(few, queries, ratio, context);
                let along = positions.len();
                (positions, along)
            }
        };
        Self::ask(plan, layer, context, trigger, (positions, along))
    }

    /// All queries at the context's end.
    ///
    /// # Errors
    /// Inputs that cannot be read.
    pub fn at_end(
        plan: &Plan<'_>,
        layer: &Layer,
        context: usize,
        queries: usize,
    ) -> Result<Self, SuiteError> {
        let positions = (context.saturating_sub(queries)..context).collect();
        Self::ask(plan, layer, context, Trigger::default(), (positions, 0))
    }

    /// Makes the queries and the truth, of positions and how many of them are along the context.
    fn ask(
        plan: &Plan<'_>,
        layer: &Layer,
        context: usize,
        trigger: Trigger,
        (positions, along): (Vec<usize>, usize),
    ) -> Result<Self, SuiteError> {
        let rows = |position: &usize| *position..position + 1;
        let hidden = |position| plan.activations.hidden_states(layer.number, rows(position));
        let y: Vec<Array2<f32>> = positions.iter().map(hidden).collect::<Result<_, _>>()?;
        let y = stacked(&y);
        let latent = |position| plan.activations.index_latent(layer.number, rows(position));
        let latent: Option<Vec<_>> = positions
            .iter()
            .map(|position| latent(position).transpose())
            .collect::<Option<Result<_, _>>>()
            .transpose()?;
        let latent = latent.map(|rows| stacked(&rows));

        let weights = layer.reference();
        let u = reference::hidden(y.view(), &weights);
        let qr = match &latent {
            Some(latent) => latent.mapv(f64::from),
            None => reference::latent(plan.level, u.view(), &weights),
        };
        let mut truth = reference::queries(
            plan.level,
            u.view(),
            qr.view(),
            &positions,
            &weights,
            &layer.rope,
        );
        truth
            .weights
            .mapv_inplace(|weight| trigger.signs.apply(weight));
        let keys = context / layer.model.ratio;
        let kept = trigger.kept(plan.seed, layer.number, keys);
        let keys = zeroed(layer.truth.view(), keys, kept.as_deref());
        let scores = reference::Scorer::new(plan.level, &truth).score(keys.view(), 0);
        Ok(Self {
            context,
            along,
            u: layer.hidden(y),
            latent,
            logits: scores.logits,
            signs: scores.signs,
            truth,
            positions,
            projected: [OnceLock::new(), OnceLock::new()],
            weighed: trigger.signs,
            kept,
        })
    }

    /// What the query path's linears give under a recipe, the head weights as these queries have them.
    ///
    /// # Errors
    /// The arch lacks a unit that the linears need.
    pub fn projected(
        &self,
        plan: &Plan<'_>,
        layer: &Layer,
        recipe: &IndexRecipe,
    ) -> Result<&Projected, SuiteError> {
        let shared = match recipe.linears {
            Linears::Fp8 => &self.projected[0],
            Linears::Fp32 => &self.projected[1],
        };
        if let Some(projected) = shared.get() {
            return Ok(projected);
        }
        let arch = plan.backend.info().arch;
        let latent = match &self.latent {
            Some(latent) => Latent::Recorded(latent.view()),
            None => Latent::Projected,
        };
        let (weights, u) = (layer.query_weights(), self.u.view());
        let mut projected = project(plan.level, arch, recipe, &weights, u, latent)?;
        let weighed = |weight| self.weighed.apply(f64::from(weight)) as f32;
        projected.weights.mapv_inplace(weighed);
        Ok(shared.get_or_init(|| projected))
    }

    /// The keys of the context, as these queries see them, of all that a layer has.
    #[must_use]
    pub fn keys_of<T: Copy + Default>(&self, keys: ArrayView2<'_, T>) -> Array2<T> {
        zeroed(keys, self.keys(), self.kept.as_deref())
    }

    /// Keys of the context, N.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.logits.ncols()
    }

    /// How many keys each query sees.
    #[must_use]
    pub fn visible(&self) -> &[usize] {
        &self.truth.visible
    }

    /// The queries of a set.
    #[must_use]
    pub fn of(&self, set: QuerySet) -> Range<usize> {
        let all = self.positions.len();
        match set {
            QuerySet::All => 0..all,
            QuerySet::Along => 0..self.along,
            QuerySet::End => self.along..all,
        }
    }

    /// The truth, some of its dots recomputed exactly.
    pub fn certify(&self, plan: &Plan<'_>, layer: &Layer) -> Certificate {
        let keys = self.keys_of(layer.truth.view());
        reference::certify(plan.level, &self.truth, keys.view())
    }
}

fn stacked(rows: &[Array2<f32>]) -> Array2<f32> {
    let views: Vec<_> = rows.iter().map(|rows| rows.view()).collect();
    // Rows of one width, at least one of them.
    concatenate(Axis(0), &views).unwrap_or_default()
}

/// Positions and how many of them are along the context; none twice.
fn positions(context: usize, queries: usize) -> (Vec<usize>, usize) {
    let queries = queries.min(context);
    let last = queries.div_ceil(2);
    let end = context - last;
    let wanted = queries - last;
    let mut positions: Vec<usize> = (0..wanted).map(|j| (j + 1) * end / (wanted + 1)).collect();
    positions.dedup();
    if positions.len() < wanted {
        positions = (0..wanted).collect();
    }
    let along = positions.len();
    positions.extend(end..context);
    (positions, along)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_at_the_end_and_half_along() {
        assert_eq!(positions(8192, 4), (vec![2730, 5460, 8190, 8191], 2));
        assert_eq!(positions(8, 1), (vec![7], 0));
        assert_eq!(positions(4, 4), (vec![0, 1, 2, 3], 2));
        assert_eq!(positions(4, 100), (vec![0, 1, 2, 3], 2));
    }

    #[test]
    fn no_position_asks_twice_and_all_are_in_order() {
        for context in 1..60 {
            for queries in 1..70 {
                let (positions, along) = positions(context, queries);
                assert_eq!(positions.len(), queries.min(context));
                assert!(positions.is_sorted_by(|a, b| a < b), "{context} {queries}");
                assert!(positions.iter().all(|&position| position < context));
                assert!(along <= positions.len() / 2);
            }
        }
    }
}
