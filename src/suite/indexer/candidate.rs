//! One variant on one layer and context: its operands, its logits and the keys it selects.

use std::collections::BTreeMap;

use ndarray::{Array2, Axis, s};

use super::{Asked, Layer, Plan, SuiteError, fault::Fault};
use crate::{
    backend::emulate::indexer::{Geometry, IndexPath},
    measure::{
        certificate::{Certificate, Claim, Finding, certificates},
        interval::{Intervals, intervals},
    },
    recipe::indexer::{Fill, IndexRecipe, Operands, QueryOperands, Selector},
};

/// What a recipe makes of the hidden states, with a known bug or without.
pub struct Made {
    /// The recipe that ran: the one asked for, but for what a bug changes of it.
    pub recipe: IndexRecipe,
    /// q and the head weights.
    pub queries: QueryOperands,
    /// k of all keys of the context.
    pub keys: Operands,
    /// The logits [Q, N] as stored, of all keys, in sight or not.
    pub logits: Array2<f32>,
}

impl Made {
    /// Runs a recipe as far as the logits.
    ///
    /// # Errors
    /// The backend cannot run it.
    pub fn new(
        plan: &Plan<'_>,
        layer: &Layer,
        asked: &Asked,
        recipe: &IndexRecipe,
        fault: Option<Fault>,
    ) -> Result<Self, SuiteError> {
        let arch = plan.backend.info().arch;
        let mut recipe = recipe.clone();
        let geometry = fault.map_or_else(Geometry::default, Fault::geometry);
        if let Some(fault) = fault {
            fault.rotate(&mut recipe);
        }
        let path = path(layer, &recipe, geometry);
        let projected = asked.projected(plan, layer, &recipe)?;
        let q = path.queries(projected, &asked.positions);
        let mut queries = path.query_operands(q, projected.weights.view());
        let pooled = match geometry.overlap {
            true => &layer.pooled,
            false => layer.pooled_apart(plan)?,
        };
        let pooled = asked.keys_of(pooled.view());
        let mut keys = path.key_operands(path.keys(pooled, 0, &layer.weights.k_norm));
        if let Some(fault) = fault {
            fault.spoil_operands(recipe.unit, asked, &mut queries, &mut keys);
            fault.spoil_steps(&mut recipe, arch, &keys);
        }
        let logits = plan.backend.index_logits(&recipe, &queries, &keys)?;
        Ok(Self {
            recipe,
            queries,
            keys,
            logits,
        })
    }
}

/// A variant on one layer and context, and what is known of it.
pub struct Candidate {
    /// The recipe that ran.
    pub recipe: IndexRecipe,
    /// The bug that is built into it.
    pub fault: Option<Fault>,
    /// q and the head weights.
    pub queries: QueryOperands,
    /// k of all keys of the context.
    pub keys: Operands,
    /// The logits [Q, N] as stored; keys out of sight as the recipe fills them.
    pub logits: Array2<f32>,
    /// Recipe-exact logits [Q, N] and what they may come out as, of the recipe without a bug.
    pub intervals: Intervals,
    /// The keys selected, query by query, at every depth.
    pub selected: BTreeMap<usize, Vec<Vec<i64>>>,
}

impl Candidate {
    /// Runs a recipe.
    ///
    /// # Errors
    /// The backend cannot run it.
    pub fn run(
        plan: &Plan<'_>,
        layer: &Layer,
        asked: &Asked,
        recipe: &IndexRecipe,
        depths: &[usize],
    ) -> Result<Self, SuiteError> {
        let arch = plan.backend.info().arch;
        let made = Made::new(plan, layer, asked, recipe, None)?;
        let intervals = intervals(plan.level, arch, recipe, &made.queries, &made.keys)?;
        Self::selecting(plan, asked, made, None, intervals, depths)
    }

    /// Runs the recipe of `claimed`, which has run on the same queries, with a bug: what it is held against stays that
    /// of the recipe.
    ///
    /// # Errors
    /// The backend cannot run it.
    pub fn spoilt(
        plan: &Plan<'_>,
        layer: &Layer,
        asked: &Asked,
        claimed: &Self,
        fault: Fault,
        depths: &[usize],
    ) -> Result<Self, SuiteError> {
        let made = Made::new(plan, layer, asked, &claimed.recipe, Some(fault))?;
        let intervals = claimed.intervals.clone();
        Self::selecting(plan, asked, made, Some(fault), intervals, depths)
    }

    fn selecting(
        plan: &Plan<'_>,
        asked: &Asked,
        mut made: Made,
        fault: Option<Fault>,
        intervals: Intervals,
        depths: &[usize],
    ) -> Result<Self, SuiteError> {
        let mut visible = asked.visible().to_vec();
        if let Some(fault) = fault {
            fault.lose(&mut visible);
        }
        hide(&mut made.logits, made.recipe.fill, &visible);
        let select = |&k: &usize| {
            let mut selected = select(plan, &made.recipe, &made.logits, &visible, k)?;
            if let Some(fault) = fault {
                fault.spoil_selection(&mut selected, &made.logits, k);
            }
            Ok((k, selected))
        };
        let selected = depths
            .iter()
            .map(select)
            .collect::<Result<_, SuiteError>>()?;
        Ok(Self {
            recipe: made.recipe,
            fault,
            queries: made.queries,
            keys: made.keys,
            logits: made.logits,
            intervals,
            selected,
        })
    }
}

impl Candidate {
    /// What multiplies of planted windows [n, W], each of which stands for the key that `index` says.
    #[must_use]
    pub fn planted(
        &self,
        layer: &Layer,
        pooled: &Array2<f32>,
        index: impl Fn(usize) -> usize,
    ) -> Operands {
        let path = path(layer, &self.recipe, Geometry::default());
        let mut keys = Array2::zeros((0, pooled.ncols()));
        for (number, window) in pooled.axis_chunks_iter(Axis(0), 1).enumerate() {
            let key = path.keys(window.to_owned(), index(number), &layer.weights.k_norm);
            // Keys of one width.
            let _ = keys.append(Axis(0), key.view());
        }
        path.key_operands(keys)
    }

    /// The keys that a query selects at one of the depths.
    #[must_use]
    pub fn keys_at(&self, k: usize, query: usize) -> &[i64] {
        let selected = self.selected.get(&k);
        selected.map_or(&[], |queries| &queries[query])
    }

    /// What no rounding explains of the selections at k.
    #[must_use]
    pub fn certificates(&self, asked: &Asked, k: usize) -> Vec<Certificate> {
        let of_query = |(query, &visible): (usize, &usize)| {
            let claim = Claim {
                selected: self.keys_at(k, query),
                k,
                visible,
                logits: seen(&self.logits, query, visible),
                lo: seen(&self.intervals.lo, query, visible),
                hi: seen(&self.intervals.hi, query, visible),
            };
            let mut found = certificates(query, &claim);
            // Another rule of selection takes another set of the same logits, and is no bug of rounding.
            if self.recipe.select != Selector::Exact {
                found.retain(|found| !matches!(found.finding, Finding::Set(_) | Finding::Order(_)));
            }
            found
        };
        asked
            .visible()
            .iter()
            .enumerate()
            .flat_map(of_query)
            .collect()
    }
}

/// The visible part of a query's row.
fn seen<T>(rows: &Array2<T>, query: usize, visible: usize) -> &[T] {
    let row = rows.row(query).to_slice();
    row.map_or(&[], |row| &row[..visible.min(row.len())])
}

/// The k keys that each query selects. Where slots out of sight hold a number, they take part.
fn select(
    plan: &Plan<'_>,
    recipe: &IndexRecipe,
    logits: &Array2<f32>,
    visible: &[usize],
    k: usize,
) -> Result<Vec<Vec<i64>>, SuiteError> {
    let slots = match recipe.fill {
        Fill::NegativeInfinity => visible.to_vec(),
        Fill::Zero => vec![logits.ncols(); visible.len()],
    };
    let selected = plan
        .backend
        .top_k(recipe.select, logits.view(), &slots, k)?;
    let widened = |keys: Vec<u32>| keys.into_iter().map(i64::from).collect();
    Ok(selected.into_iter().map(widened).collect())
}

fn path<'a>(layer: &'a Layer, recipe: &'a IndexRecipe, geometry: Geometry) -> IndexPath<'a> {
    IndexPath {
        recipe,
        frequencies: layer.rope.frequencies(),
        norm_eps: layer.norm_eps,
        geometry,
    }
}

/// Fills the slots of keys that a query does not see.
pub fn hide(logits: &mut Array2<f32>, fill: Fill, visible: &[usize]) {
    let filling = match fill {
        Fill::NegativeInfinity => f32::NEG_INFINITY,
        Fill::Zero => 0.0,
    };
    for (mut row, &visible) in logits.rows_mut().into_iter().zip(visible) {
        row.slice_mut(s![visible..]).fill(filling);
    }
}
