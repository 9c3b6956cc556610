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
    Plan, SuiteError,
    case::{Case, References},
    chain::{self, Around, Order, candidate::Walker, link::Link, rows, sublayer::StandIn},
    feed::{Fed, feed},
    ledger::Ledger,
    record_key,
};
use crate::{
    checkpoint::{CheckpointError, Site},
    measure::{contributions::Products, value::Value},
    recipe::{MixRecipe, catalogue, splits::Launch},
    report::{Found, Key, Measures, Record, Skipped},
};

/// The smallest cross term, of the measured square, that has a row.
pub const LEAST_CROSS: f64 = 0.01;

/// Tokens whose states are in memory at once.
const SLICE: usize = 512;

/// The names of the suite's cases: every site of the plan, then the chain of every variant, or none.
pub fn places(plan: &Plan<'_>) -> Vec<String> {
    let sites = plan.places().map(|(layer, site)| site.of(layer));
    let chains = plan.recipes.iter().map(chain_place);
    match why_no_chain(plan) {
        Some(_) => sites.chain([NO_CHAIN.to_owned()]).collect(),
        None => sites.chain(chains).collect(),
    }
}

/// The case that says why there is no chain.
const NO_CHAIN: &str = "no chain";

fn chain_place(recipe: &MixRecipe) -> String {
    format!("chain of {}", recipe.name)
}

/// Runs the suite: every site of the plan by itself and, where layers follow each other, the chain of every variant.
///
/// # Errors
/// Weights or inputs that cannot be read, a recipe that the backend cannot run, a ledger that stops it.
pub fn run(plan: &Plan<'_>, around: &Around, ledger: &mut dyn Ledger) -> Result<(), SuiteError> {
    let places = plan.wanted(ledger);
    let (mut done, mut has_run) = (0, false);
    feed(plan, &places, |fed| {
        let (place, found) = match fed {
            Fed::Skipped(skipped) => skipped.alone(),
            Fed::Case(case) => {
                let mut found = Found::default();
                case.note(&mut found.read);
                found.records = of_case(plan, &case)?;
                has_run = true;
                (case.place(), found)
            }
        };
        ledger.keep(&place, found)?;
        done += 1;
        ledger.step(done, places.len(), &place)
    })?;
    if !has_run && plan.are_all(&places) {
        return Err(SuiteError::no_site(plan));
    }
    if let Some(why) = why_no_chain(plan) {
        return match ledger.wants(NO_CHAIN) {
            false => Ok(()),
            true => {
                let mut found = Found::default();
                found.read.skip(Skipped {
                    what: "the budget of a chain".to_owned(),
                    why,
                });
                ledger.keep(NO_CHAIN, found)
            }
        };
    }
    for recipe in plan.recipes {
        let place = chain_place(recipe);
        if ledger.wants(&place) {
            let found = of_chain(plan, around, recipe, ledger)?;
            ledger.keep(&place, found)?;
        }
    }
    Ok(())
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
    ledger: &mut dyn Ledger,
) -> Result<Found, SuiteError> {
    let mut found = Found::default();
    let start = chain::link::start(plan)?;
    start.add_digests(plan, &mut found.read.digests);
    let order = Order::of(plan.checkpoint.model().family);
    let fp32 = catalogue::fp32();
    let mut strands = Strands::new(plan, around, &start, order);
    let mut walker = Walker::new(plan, around, recipe.into(), &fp32, &start, order);
    let (total, tokens) = (plan.layers.len(), start.x.nrows());
    for (done, &layer) in plan.layers.iter().enumerate() {
        for site in Site::ALL {
            let stand_in = StandIn::load(plan, around.sublayer, (layer, site), tokens)?;
            let link = Link::load(plan, layer, site, stand_in)?;
            link.note(plan, &mut found.read);
            let passed = walker.pass(&link)?;
            if let Some(at) = passed.non_finite {
                found.read.skip(Skipped {
                    what: format!(
                        "the budget of {}'s chain from {} on",
                        recipe.name,
                        link.place()
                    ),
                    why: format!("{} of token {} is {} there", at.stage, at.token, at.value.0),
                });
                return Ok(found);
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
                found.records.extend(records(&key, &sources, &products));
            }
        }
        let place = format!("{}, layer {layer}", chain_place(recipe));
        ledger.step(done + 1, total, &place)?;
    }
    Ok(found)
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
