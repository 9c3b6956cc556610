//! How a recipe's result depends on the batch, the device and the number of ranges.
//!
//! The engines' split formula looks at the token count and at the SM count, so the same row gets
//! other bits in another batch or on another GPU. For every point of the sweep this suite gives the
//! ranges, the error of `mixes` against truth, and how many outputs of token 0 differ in their bits
//! from the sweep's first point.
//!
//! | rows of suite | what varies |
//! |---|---|
//! | `sweep` | tokens and SMs, under each recipe's own split rule |
//! | `splits` | the number of ranges, in place of the rule's count; the boundaries stay the recipe's |
//!
//! Rows do not depend on each other in the emulator. There, points that cut K alike therefore share one
//! computation over the longest batch among them, in slices, so that memory does not grow with the batch. A
//! device is handed every batch whole: what its kernels do may depend on it.

use std::ops::Range;

use ndarray::{Array2, Axis, s};
use ulpdrift_reference::{
    dot::dot,
    mix::{mixes, rms_factor},
    squares::squares,
};

use super::{Plan, SuiteError, case::Case, ledger::Ledger};
use crate::{
    checkpoint::Site,
    measure::error::Stage,
    recipe::{
        MixRecipe, Order,
        splits::{Launch, SplitCount},
    },
    report::{Found, Key, Measures, Read, Record, Skipped},
    suite::record_key,
};

/// Tokens per slice.
const SLICE: usize = 256;

/// What is varied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axes {
    /// Batches, in the order asked for; not looked at where ranges are counted.
    pub tokens: Vec<usize>,
    /// Devices, by their SM count.
    pub sms: Vec<usize>,
    /// Fixed split counts in place of the recipe's own rule; empty: the recipe's own.
    pub splits: Vec<usize>,
}

impl Axes {
    /// The name of the rows' suite.
    #[must_use]
    pub fn suite(&self) -> &'static str {
        if self.splits.is_empty() {
            "sweep"
        } else {
            "splits"
        }
    }

    /// The batches run at a site: those of the axis, or the run's own where ranges are counted.
    fn batches(&self, plan: &Plan<'_>, layer: u32, site: Site) -> Vec<usize> {
        if self.splits.is_empty() {
            self.tokens.clone()
        } else {
            vec![plan.tokens_at(layer, site)]
        }
    }
}

/// One point of the sweep.
#[derive(Clone, Debug)]
struct Point {
    recipe: MixRecipe,
    launch: Launch,
    ranges: Vec<Range<usize>>,
}

/// Runs the sweep: a case per site, whose rows are in the order of variant and point.
///
/// # Errors
/// Weights or inputs that cannot be read, a recipe the backend cannot run, or a ledger that stops it.
pub fn run(plan: &Plan<'_>, axes: &Axes, ledger: &mut dyn Ledger) -> Result<(), SuiteError> {
    let places = plan.wanted(ledger);
    let mut has_run = false;
    for (done, &(layer, site)) in places.iter().enumerate() {
        let place = site.of(layer);
        let found = run_site(plan, axes, layer, site)?;
        has_run |= !found.records.is_empty();
        ledger.keep(&place, found)?;
        ledger.step(done + 1, places.len(), &place)?;
    }
    match has_run || !plan.are_all(&places) {
        true => Ok(()),
        false => Err(SuiteError::no_site(plan)),
    }
}

fn run_site(plan: &Plan<'_>, axes: &Axes, layer: u32, site: Site) -> Result<Found, SuiteError> {
    let mut found = Found::default();
    let batches = axes.batches(plan, layer, site);
    let most = batches.iter().copied().max().unwrap_or_default();
    let Some(first) = Case::load(plan, layer, site, 0..most.min(SLICE))? else {
        found.read.skip(Skipped::site(plan, layer, site));
        return Ok(found);
    };
    first.note(&mut found.read);
    let truth = in_slices(plan, layer, site, most, |case| Ok(true_mixes(plan, case)))?;
    let rows = Rows {
        plan,
        suite: axes.suite(),
        case: &first,
        truth: &truth,
    };
    for recipe in plan.recipes {
        let points = points(recipe, axes, &batches, first.x.ncols(), &mut found.read);
        rows.add(&points, &mut found.records)?;
    }
    Ok(found)
}

fn points(
    recipe: &MixRecipe,
    axes: &Axes,
    batches: &[usize],
    k: usize,
    read: &mut Read,
) -> Vec<Point> {
    let mut points: Vec<Point> = Vec::new();
    for recipe in with_splits(recipe, &axes.splits) {
        for &sms in &axes.sms {
            for &tokens in batches {
                let launch = Launch { tokens, sms };
                let ranges = recipe.projection.order.ranges(k, launch);
                let point = Point {
                    recipe: recipe.clone(),
                    launch,
                    ranges,
                };
                let is_same =
                    |other: &&Point| other.launch == point.launch && other.ranges == point.ranges;
                match points.iter().find(is_same) {
                    Some(_) => read.skip(as_another(&point, k)),
                    None => points.push(point),
                }
            }
        }
    }
    points
}

/// A count that K is too short for cuts it as a smaller one does: the row would stand twice.
fn as_another(point: &Point, k: usize) -> Skipped {
    let asked = match point.recipe.projection.order {
        Order::Chains { splits, .. } => splits.count(k, point.launch),
        Order::ThreadStrided { .. } => 1,
    };
    Skipped {
        what: format!("{} with {asked} splits", point.recipe.name),
        why: format!(
            "K = {k} is cut into {} ranges then, as with another count asked for",
            point.ranges.len()
        ),
    }
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

/// What the points of one site are measured against.
struct Rows<'a> {
    plan: &'a Plan<'a>,
    suite: &'static str,
    /// The first slice of the longest batch.
    case: &'a Case,
    /// The true mixes of the longest batch.
    truth: &'a Array2<f64>,
}

/// Mixes that points with the same ranges share.
struct Computed {
    ranges: Vec<Range<usize>>,
    mixes: Array2<f32>,
}

impl Rows<'_> {
    /// A row per point of one recipe, each compared with the first.
    fn add(&self, points: &[Point], records: &mut Vec<Record>) -> Result<(), SuiteError> {
        let mut row0: Option<Vec<u32>> = None;
        let mut computed: Vec<Computed> = Vec::new();
        for point in points {
            let shares = |done: &Computed| !self.is_device() && done.ranges == point.ranges;
            let known = computed.iter().position(shares);
            let index = match known {
                Some(index) => index,
                None => {
                    computed.push(Computed {
                        ranges: point.ranges.clone(),
                        mixes: self.compute(points, point)?,
                    });
                    computed.len() - 1
                }
            };
            let mixes = &computed[index].mixes;
            let bits: Vec<u32> = mixes.row(0).iter().map(|value| value.to_bits()).collect();
            let first = row0.get_or_insert_with(|| bits.clone());
            let changed = first.iter().zip(&bits).filter(|(a, b)| a != b).count();
            records.push(self.record(point, mixes, changed)?);
        }
        Ok(())
    }

    fn is_device(&self) -> bool {
        self.plan.backend.hardware().is_some()
    }

    /// `mixes` of the point on a device; of the longest batch among the points that cut K as `point` does on the
    /// emulator.
    fn compute(&self, points: &[Point], point: &Point) -> Result<Array2<f32>, SuiteError> {
        let Case { layer, site, .. } = *self.case;
        let run = |case: &Case| -> Result<_, SuiteError> {
            let inputs = case.mix_inputs(point.launch);
            Ok(self.plan.backend.mix(&point.recipe, &inputs)?.mixes)
        };
        if self.is_device() {
            let case = Case::load(self.plan, layer, site, 0..point.launch.tokens)?;
            return run(&case.ok_or_else(|| SuiteError::no_site(self.plan))?);
        }
        let alike = points.iter().filter(|other| other.ranges == point.ranges);
        let tokens = alike
            .map(|other| other.launch.tokens)
            .max()
            .unwrap_or_default();
        in_slices(self.plan, layer, site, tokens, run)
    }

    fn record(
        &self,
        point: &Point,
        got: &Array2<f32>,
        changed: usize,
    ) -> Result<Record, SuiteError> {
        let tokens = point.launch.tokens;
        let got = got.slice(s![..tokens, ..]);
        let truth = self.truth.slice(s![..tokens, ..]);
        let stage = Stage {
            got: got.as_slice().unwrap_or_default(),
            reference: truth.as_slice().unwrap_or_default(),
            exact: None,
            other: None,
            tokens,
            format: super::mix::Stage::Mixes.format(&point.recipe),
        };
        let errors = stage.measure_at(self.plan.level)?;
        let key = Key {
            suite: self.suite.to_owned(),
            stage: Some("mixes".to_owned()),
            tokens: tokens as u64,
            sms: Some(u32::try_from(point.launch.sms).unwrap_or(u32::MAX)),
            ..record_key(
                self.plan,
                self.case,
                &point.recipe.name,
                Some(point.ranges.len()),
            )
        };
        let measures = Measures {
            row0_changed: Some(changed as u64),
            ..errors.into()
        };
        Ok(Record { key, measures })
    }
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
    let x = case.x.view();
    let dot = dot(plan.level, x, case.weights.function.view());
    let squares = squares(plan.level, x);
    let factor = rms_factor(squares.view(), x.ncols(), case.norm_eps);
    mixes(dot.view(), factor.view())
}

#[cfg(test)]
mod tests;
