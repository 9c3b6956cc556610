//! How a recipe's result depends on the batch, the device and the number of ranges.
//!
//! The engines' split formula looks at the token count and at the SM count, so the same row gets
//! other bits in another batch or on another GPU. For every point of the sweep this suite gives the
//! ranges, the error of `mixes` against truth, and how many outputs of token 0 differ in their bits
//! from the sweep's first point.
//!
//! Rows do not depend on each other. Points that cut K alike therefore share one computation over
//! the longest batch among them, in slices, so that memory does not grow with the batch.

use std::ops::Range;

use ndarray::{Array2, Axis, s};
use sha2::{Digest, Sha256};
use ulpdrift_reference::{
    dot::dot,
    mix::{mixes, rms_factor},
};

use super::{Plan, Progress, SuiteError, case::Case};
use crate::{
    checkpoint::Site,
    measure::error::Stage,
    recipe::{
        MixRecipe, Order,
        splits::{Launch, SplitCount},
    },
    report::{Key, Measures, Record},
    suite::record_key,
};

/// Tokens per slice.
const SLICE: usize = 256;

/// What is varied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axes {
    /// Batches, in the order asked for.
    pub tokens: Vec<usize>,
    /// Devices, by their SM count.
    pub sms: Vec<usize>,
    /// Fixed split counts in place of the recipe's own rule; empty: the recipe's own.
    pub splits: Vec<usize>,
}

/// What the suite found.
pub struct Outcome {
    /// A record per site, variant and point.
    pub records: Vec<Record>,
    /// Digest of the weights used.
    pub digest: Sha256,
}

/// One point of the sweep.
#[derive(Clone, Debug)]
struct Point {
    recipe: MixRecipe,
    launch: Launch,
    ranges: Vec<Range<usize>>,
}

/// Runs the sweep.
///
/// # Errors
/// Weights or inputs that cannot be read, or a recipe the backend cannot run.
pub fn run(plan: &Plan<'_>, axes: &Axes, progress: Progress<'_>) -> Result<Outcome, SuiteError> {
    let mut outcome = Outcome {
        records: Vec::new(),
        digest: Sha256::new(),
    };
    let total = plan.layers.len() * plan.sites.len();
    let mut done = 0;
    for &layer in plan.layers {
        for &site in plan.sites {
            run_site(plan, axes, layer, site, &mut outcome)?;
            done += 1;
            progress(done, total, &format!("L{layer}.{site}"));
        }
    }
    if outcome.records.is_empty() {
        return Err(SuiteError::NothingToRun(format!(
            "{} has no x for any of the {total} sites asked for; check --layers and --sites",
            plan.inputs
        )));
    }
    Ok(outcome)
}

fn run_site(
    plan: &Plan<'_>,
    axes: &Axes,
    layer: u32,
    site: Site,
    outcome: &mut Outcome,
) -> Result<(), SuiteError> {
    let most = axes.tokens.iter().copied().max().unwrap_or_default();
    let Some(first) = Case::load(plan, layer, site, 0..most.min(SLICE))? else {
        return Ok(());
    };
    first
        .weights
        .digest_update(&mut outcome.digest, layer, site);
    let truth = in_slices(plan, layer, site, most, |case| Ok(true_mixes(plan, case)))?;
    for recipe in plan.recipes {
        let points = points(recipe, axes, first.x.ncols());
        let mut row0: Option<Vec<u32>> = None;
        let mut computed: Vec<(Vec<Range<usize>>, Array2<f32>)> = Vec::new();
        for point in &points {
            let got = match computed.iter().find(|(ranges, _)| *ranges == point.ranges) {
                Some((_, got)) => got.clone(),
                None => {
                    let got = compute(plan, layer, site, &points, point)?;
                    computed.push((point.ranges.clone(), got.clone()));
                    got
                }
            };
            let bits: Vec<u32> = got.row(0).iter().map(|value| value.to_bits()).collect();
            let changed = match &row0 {
                None => 0,
                Some(first) => first.iter().zip(&bits).filter(|(a, b)| a != b).count(),
            };
            row0.get_or_insert(bits);
            outcome
                .records
                .push(record(plan, &first, point, &got, &truth, changed)?);
        }
    }
    Ok(())
}

fn points(recipe: &MixRecipe, axes: &Axes, k: usize) -> Vec<Point> {
    let mut points = Vec::new();
    for recipe in with_splits(recipe, &axes.splits) {
        for &sms in &axes.sms {
            for &tokens in &axes.tokens {
                let launch = Launch { tokens, sms };
                let ranges = recipe.projection.order.ranges(k, launch);
                points.push(Point {
                    recipe: recipe.clone(),
                    launch,
                    ranges,
                });
            }
        }
    }
    points
}

/// The recipe once per fixed count, or as it is. A thread-strided recipe has no ranges to vary.
fn with_splits(recipe: &MixRecipe, counts: &[usize]) -> Vec<MixRecipe> {
    let Order::Chains { splits, partials } = recipe.projection.order else {
        return vec![recipe.clone()];
    };
    if counts.is_empty() {
        return vec![recipe.clone()];
    }
    counts
        .iter()
        .map(|&count| {
            let mut varied = recipe.clone();
            let splits = crate::recipe::SplitRule {
                count: SplitCount::Fixed(count),
                ..splits
            };
            varied.projection.order = Order::Chains { splits, partials };
            varied
        })
        .collect()
}

/// `mixes` of the longest batch among the points that cut K as `point` does.
fn compute(
    plan: &Plan<'_>,
    layer: u32,
    site: Site,
    points: &[Point],
    point: &Point,
) -> Result<Array2<f32>, SuiteError> {
    let alike = points.iter().filter(|other| other.ranges == point.ranges);
    let tokens = alike
        .map(|other| other.launch.tokens)
        .max()
        .unwrap_or_default();
    in_slices(plan, layer, site, tokens, |case| {
        let mix = plan
            .backend
            .mix(&point.recipe, &case.mix_inputs(point.launch))?;
        Ok(mix.mixes)
    })
}

/// Stacks what `each` makes of the tokens, a slice at a time.
fn in_slices<T: Clone>(
    plan: &Plan<'_>,
    layer: u32,
    site: Site,
    tokens: usize,
    each: impl Fn(&Case) -> Result<Array2<T>, SuiteError>,
) -> Result<Array2<T>, SuiteError> {
    let mut parts = Vec::new();
    for start in (0..tokens).step_by(SLICE) {
        let slice = start..(start + SLICE).min(tokens);
        if let Some(case) = Case::load(plan, layer, site, slice)? {
            parts.push(each(&case)?);
        }
    }
    let views: Vec<_> = parts.iter().map(|part| part.view()).collect();
    ndarray::concatenate(Axis(0), &views)
        .map_err(|error| SuiteError::NothingToRun(format!("L{layer}.{site}: {error}")))
}

fn true_mixes(plan: &Plan<'_>, case: &Case) -> Array2<f64> {
    let dot = dot(plan.level, case.x.view(), case.weights.function.view());
    mixes(dot.view(), rms_factor(case.x.view(), case.norm_eps).view())
}

fn record(
    plan: &Plan<'_>,
    case: &Case,
    point: &Point,
    got: &Array2<f32>,
    truth: &Array2<f64>,
    changed: usize,
) -> Result<Record, SuiteError> {
    let tokens = point.launch.tokens;
    let (got, truth) = (got.slice(s![..tokens, ..]), truth.slice(s![..tokens, ..]));
    let stage = Stage {
        got: got.as_slice().unwrap_or_default(),
        reference: truth.as_slice().unwrap_or_default(),
        exact: None,
        tokens,
        format: super::mix::Stage::Mixes.format(&point.recipe),
    };
    let errors = stage.measure()?;
    let key = Key {
        suite: "sweep".to_owned(),
        stage: Some("mixes".to_owned()),
        tokens: tokens as u64,
        sms: Some(u32::try_from(point.launch.sms).unwrap_or(u32::MAX)),
        ..record_key(plan, case, &point.recipe.name, point.ranges.len())
    };
    let measures = Measures {
        row0_changed: Some(changed as u64),
        ..errors.into()
    };
    Ok(Record { key, measures })
}
