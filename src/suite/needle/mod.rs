//! A needle in a haystack, for a kernel: at which margin above the cut a planted key is lost.
//!
//! One key of the context is replaced by another whose score, in fp64, is where it was asked to be (`plant`): so many
//! gaps above the k-th of the other keys, or at a rank. Every variant makes its own key and logit of it and selects
//! anew. The planted key goes through all of a recipe but the projections: it stands for a pooled window.
//!
//! A row says how many of the queries at the context's end still find their needle, at one k, depth and margin.

mod plant;
#[cfg(test)]
mod tests;

use std::fmt;

use ndarray::{Array2, Axis, concatenate};
use rayon::prelude::*;

use self::plant::{Field, Needle};
use super::{
    Plan, SuiteError,
    indexer::{Asked, ByLayer, Candidate, IndexPlan, Layer, index_key, note_skip},
    ledger::Ledger,
};
use crate::{
    measure::value::Value,
    recipe::indexer::IndexRecipe,
    report::{Found, Key, Measures, Record, Skipped},
};

/// Where needles are planted.
#[derive(Clone, Debug, PartialEq)]
pub struct NeedlePlan {
    /// Percent of the context, 0 to 100.
    pub depths: Vec<u8>,
    /// How far above the cut.
    pub margins: Vec<Margin>,
}

/// Where the score of a needle is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Margin {
    /// So many mean gaps between neighbouring scores above the cut.
    Gaps(f64),
    /// Half-way between its neighbours at this rank, from 1.
    Rank(usize),
}

impl fmt::Display for Margin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gaps(gaps) => write!(f, "{gaps}"),
            Self::Rank(rank) => write!(f, "rank:{rank}"),
        }
    }
}

/// The name of a layer's case.
#[must_use]
pub fn place(layer: u32) -> String {
    format!("L{layer}.needle")
}

/// Runs the suite: a case per layer, whose rows are in the order of context, variant, k, depth and margin.
///
/// # Errors
/// Weights or inputs that cannot be read, a device that fails, a ledger that stops it.
pub fn run(
    plan: &Plan<'_>,
    own: &IndexPlan,
    needles: &NeedlePlan,
    ledger: &mut dyn Ledger,
) -> Result<(), SuiteError> {
    let suite = ByLayer {
        suite: "needle",
        place,
        plan,
        own,
        without_a_row: "no context has more keys than are selected; raise --context",
    };
    suite.run(ledger, |number, found| {
        run_layer(plan, own, needles, number, found)
    })
}

fn run_layer(
    plan: &Plan<'_>,
    own: &IndexPlan,
    needles: &NeedlePlan,
    number: u32,
    found: &mut Found,
) -> Result<(), SuiteError> {
    let layer = Layer::read(plan, number, &own.contexts)?;
    layer.note(&mut found.read);
    for &context in &own.contexts {
        let asked = Asked::at_end(plan, &layer, context, own.queries)?;
        run_context(plan, own, needles, &layer, &asked, found)?;
    }
    Ok(())
}

fn run_context(
    plan: &Plan<'_>,
    own: &IndexPlan,
    needles: &NeedlePlan,
    layer: &Layer,
    asked: &Asked,
    found: &mut Found,
) -> Result<(), SuiteError> {
    let field = Field { plan, layer, asked };
    let mut planted: Vec<Needle> = Vec::new();
    for &k in &own.top_k {
        let of_k = field.plant(k, needles);
        let missing = field.asked_for(k, needles) - of_k.len();
        if missing > 0 {
            found.read.skip(Skipped {
                what: format!("L{}.needle, context {}, k {k}", layer.number, asked.context),
                why: format!(
                    "{missing} needles of {}: no key scores what was asked for; ask for smaller margins or ranks that are there",
                    missing + of_k.len()
                ),
            });
        }
        planted.extend(of_k);
    }
    if planted.is_empty() {
        return Ok(());
    }
    let pooled: Vec<_> = planted.iter().map(|needle| needle.pooled.view()).collect();
    let pooled = concatenate(Axis(0), &pooled).unwrap_or_default();
    for recipe in &own.recipes {
        let hits = match Search::of(&field, recipe, &planted, &pooled) {
            Err(error) => {
                note_skip(&mut found.read, recipe, error)?;
                continue;
            }
            Ok(hits) => hits,
        };
        found
            .records
            .extend(records(&field, recipe, &planted, &hits));
    }
    Ok(())
}

/// One variant looking for every needle.
struct Search;

impl Search {
    /// Whether each needle is among the keys that its query selects.
    fn of(
        field: &Field<'_>,
        recipe: &IndexRecipe,
        planted: &[Needle],
        pooled: &Array2<f32>,
    ) -> Result<Vec<bool>, SuiteError> {
        let Field { plan, layer, asked } = *field;
        let candidate = Candidate::run(plan, layer, asked, recipe, &[])?;
        let keys = candidate.planted(layer, pooled, |needle| planted[needle].index);
        let logits = plan
            .backend
            .index_logits(recipe, &candidate.queries, &keys)?;
        planted
            .par_iter()
            .enumerate()
            .map(|(number, needle)| {
                let visible = asked.visible()[needle.query];
                let mut row = candidate.logits.row(needle.query).to_owned();
                row[needle.index] = logits[[needle.query, number]];
                let row = row.insert_axis(Axis(0));
                let selected =
                    plan.backend
                        .top_k(recipe.select, row.view(), &[visible], needle.k)?;
                Ok(selected[0].contains(&(needle.index as u32)))
            })
            .collect()
    }
}

/// A record per k, depth and margin, over the queries.
fn records(
    field: &Field<'_>,
    recipe: &IndexRecipe,
    planted: &[Needle],
    found: &[bool],
) -> Vec<Record> {
    let mut groups: Vec<(&Needle, u64, u64)> = Vec::new();
    for (needle, &is_found) in planted.iter().zip(found) {
        let is_same = |group: &&mut (&Needle, u64, u64)| group.0.place() == needle.place();
        match groups.iter_mut().find(is_same) {
            Some((_, queries, count)) => {
                *queries += 1;
                *count += u64::from(is_found);
            }
            None => groups.push((needle, 1, u64::from(is_found))),
        }
    }
    let record = |(needle, queries, count): (&Needle, u64, u64)| Record {
        key: Key {
            suite: "needle".to_owned(),
            k: u32::try_from(needle.k).ok(),
            tokens: queries,
            needle_depth: Some(needle.percent.to_string()),
            needle_margin: Some(needle.margin.to_string()),
            query_set: Some("end".to_owned()),
            ..index_key(field.plan, field.layer, field.asked, &recipe.name)
        },
        measures: Measures {
            found: Some(Value(count as f64 / queries as f64)),
            ..Measures::default()
        },
    };
    groups.into_iter().map(record).collect()
}
