//! Where the error comes from: every source by itself, and what they come to.
//!
//! Two budgets: of single sites, at stages `mixes`, `pre`, `post`, `comb` and `y_bf16` (`site.rs`), and of a chain, at
//! stage `streams` behind every layer (`strands.rs`). The sources are those of [`Source`]; what is made of them is
//! [`crate::measure::contributions`]. Rows, by the key's `source`:
//!
//! | source | measures |
//! |---|---|
//! | `weight`, `unit`, … | `rel_l2` of that source alone, `slope` its signed part, `share` of the predicted square |
//! | `weight*unit`, … | `cross`: the cross term of a pair over the measured square, where it is at least [`LEAST_CROSS`] |
//! | `total` | `rel_l2` measured, `slope` the sum of signed parts, `explained`: predicted over measured |

mod mixing;
pub(super) mod offsets;
mod site;
pub mod source;
mod strands;
#[cfg(test)]
mod tests;

pub use self::source::Source;
use self::{mixing::Mixing, site::StageBudget, strands::Strands};
use super::{
    Plan, Progress, Skip, SuiteError,
    case::{Case, References},
    chain::{self, Around, Order, candidate::Walker, link::Link, rows, sublayer::StandIn},
    feed::{Fed, feed},
    read::Read,
    record_key,
};
use crate::{
    checkpoint::{CheckpointError, Site},
    measure::{contributions::Products, value::Value},
    recipe::{MixRecipe, catalogue, splits::Launch},
    report::{Key, Measures, Record},
};

/// The smallest cross term, of the measured square, that has a row.
pub const LEAST_CROSS: f64 = 0.01;

/// Tokens whose states are in memory at once.
const SLICE: usize = 512;

/// What the suite found.
#[derive(Default)]
pub struct Outcome {
    /// The rows of sites, then those of chains, variant by variant.
    pub records: Vec<Record>,
    /// What was read and left out.
    pub read: Read,
}

/// Runs the suite: every site of the plan by itself and, where layers follow each other, the chain.
///
/// # Errors
/// Weights or inputs that cannot be read, a recipe that the backend cannot run.
pub fn run(
    plan: &Plan<'_>,
    around: &Around,
    progress: Progress<'_>,
) -> Result<Outcome, SuiteError> {
    let mut outcome = Outcome::default();
    let total = plan.layers.len() * plan.sites.len();
    let mut done = 0;
    feed(plan, |fed| {
        let place = match fed {
            Fed::Skipped(skip) => {
                let place = skip.what.clone();
                outcome.read.skipped.push(skip);
                place
            }
            Fed::Case(case) => {
                outcome.read.site(&case);

                outcome.records.extend(of_case(plan, &case)?);
                case.place()
            }
        };
        done += 1;
        progress(done, total, &place);
        Ok(())
    })?;
    if outcome.records.is_empty() {
        return Err(SuiteError::no_site(plan));
    }
    match why_no_chain(plan) {
        Some(why) => outcome.read.skipped.push(Skip {
            what: "the budget of a chain".to_owned(),
            why,
        }),
        None => {
            for recipe in plan.recipes {
                of_chain(plan, around, recipe, &mut outcome, progress)?;
            }
        }
    }
    Ok(outcome)
}

/// Why the plan's layers make no chain, if they do not.
fn why_no_chain(plan: &Plan<'_>) -> Option<String> {
    if plan.sites.len() != Site::ALL.len() {
        return Some("a chain goes through both sites of every layer".to_owned());
    }
    if plan.layers.windows(2).any(|pair| pair[1] != pair[0] + 1) {
        return Some("a chain goes from layer to layer, and there are gaps".to_owned());
    }
    let first = *plan.layers.first()?;
    match plan.checkpoint.norm(first, Site::Attn, plan.nonfinite) {
        Err(lacking @ CheckpointError::Lacking { .. }) => Some(lacking.to_string()),
        _ => None,
    }
}

/// The rows of one site.
fn of_case(plan: &Plan<'_>, case: &Case) -> Result<Vec<Record>, SuiteError> {
    let recipes: Vec<&MixRecipe> = plan.recipes.iter().collect();
    let tokens = case.x.nrows();
    let launch = Launch {
        tokens,
        sms: plan.sms,
    };
    let mut budgets: Vec<Vec<StageBudget>> = Vec::new();
    let mut splits = Vec::new();
    for start in (0..tokens).step_by(SLICE) {
        let part = case.tokens(start..(start + SLICE).min(tokens));
        let references = References::new(plan.level, &part, launch, &recipes);
        let mixing = Mixing {
            level: plan.level,
            backend: plan.backend,
            case: &part,
            launch,
        };
        for (index, recipe) in recipes.iter().enumerate() {
            let states = mixing.states(&references, index, recipe)?;
            let budget = site::budget(&mixing, recipe, &states)?;
            match budgets.get_mut(index) {
                None => {
                    budgets.push(budget);
                    splits.push(states.candidate.splits);
                }
                Some(whole) => {
                    for (whole, part) in whole.iter_mut().zip(&budget) {
                        whole.append(part);
                    }
                }
            }
        }
    }
    let rows = recipes.iter().zip(&budgets).zip(&splits);
    let rows = rows.flat_map(|((recipe, budget), splits)| {
        budget.iter().flat_map(|stage| {
            let key = Key {
                suite: "budget".to_owned(),
                stage: Some(stage.stage.to_owned()),
                ..record_key(plan, case, &recipe.name, *splits)
            };
            records(&key, &stage.sources, &stage.products)
        })
    });
    Ok(rows.collect())
}

/// The rows of one variant's chain.
fn of_chain(
    plan: &Plan<'_>,
    around: &Around,
    recipe: &MixRecipe,
    outcome: &mut Outcome,
    progress: Progress<'_>,
) -> Result<(), SuiteError> {
    let start = chain::link::start(plan)?;
    let order = Order::of(plan.checkpoint.model().family);
    let fp32 = catalogue::fp32();
    let mut strands = Strands::new(plan, around, &start, order);
    let mut walker = Walker::new(plan, around, recipe.into(), &fp32, &start, order);
    let (total, tokens) = (plan.layers.len(), start.x.nrows());
    for (done, &layer) in plan.layers.iter().enumerate() {
        for site in Site::ALL {
            let stand_in = StandIn::load(plan, around.sublayer, (layer, site), tokens)?;
            let link = Link::load(plan, layer, site, stand_in)?;
            if plan.recipes.first() == Some(recipe) {
                link.digest_update(plan, &mut outcome.read.digest);
            }
            let passed = walker.pass(&link)?;
            if let Some(at) = passed.non_finite {
                outcome.read.skipped.push(Skip {
                    what: format!(
                        "the budget of {}'s chain from {} on",
                        recipe.name,
                        link.place()
                    ),
                    why: format!("{} of token {} is {} there", at.stage, at.token, at.value.0),
                });
                return Ok(());
            }
            strands.pass(&link, recipe)?;
            if site == Site::Ffn {
                let (sources, products) = strands.budget(walker.x.view());
                let key = Key {
                    suite: "budget".to_owned(),
                    layer: Some(layer),
                    site: Some(site.to_string()),
                    depth: Some(link.depth()),
                    stage: Some("streams".to_owned()),
                    splits: passed.splits.and_then(|splits| u32::try_from(splits).ok()),
                    sms: passed.splits.and_then(|_| u32::try_from(plan.sms).ok()),
                    token_class: "all".to_owned(),
                    ..rows::key(plan, around, &walker)
                };
                outcome.records.extend(records(&key, &sources, &products));
            }
        }
        progress(
            done + 1,
            total,
            &format!("chain of {}, layer {layer}", recipe.name),
        );
    }
    Ok(())
}

/// A row per source, per pair that matters, and of the total.
fn records(key: &Key, sources: &[Source], products: &Products) -> Vec<Record> {
    let row = |source: String, measures: Measures| Record {
        key: Key {
            source: Some(source),
            ..key.clone()
        },
        measures,
    };
    let contributions = products.contributions();
    let mut rows: Vec<Record> = sources
        .iter()
        .zip(contributions)
        .map(|(source, own)| {
            let measures = Measures {
                rel_l2: Some(own.rel_l2),
                slope: Some(own.slope),
                share: own.share,
                ..Measures::default()
            };
            row(source.to_string(), measures)
        })
        .collect();
    for (a, first) in sources.iter().enumerate() {
        for (b, second) in sources.iter().enumerate().skip(a + 1) {
            let cross = products.cross(a, b);
            // NaN is shown.
            if cross.is_some_and(|Value(cross)| cross.is_nan() || cross.abs() >= LEAST_CROSS) {
                let measures = Measures {
                    cross,
                    ..Measures::default()
                };
                rows.push(row(format!("{first}*{second}"), measures));
            }
        }
    }
    let total = products.total();
    let measures = Measures {
        rel_l2: Some(total.rel_l2),
        slope: Some(total.slope),
        explained: total.explained,
        ..Measures::default()
    };
    rows.push(row("total".to_owned(), measures));
    rows
}
