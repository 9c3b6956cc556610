//! One measure of one row, before and after, and how bad the change is.

use std::cmp::Ordering;

use crate::report::{Better, Measures, field::Number};

/// What kind of change, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Nearer to the truth.
    Better,
    /// Neither better nor worse, or there on one side only.
    Other,
    /// Further from the truth.
    Worse,
    /// NaN, infinite or counted as a failure before, and no more.
    Recovered,
    /// NaN or infinite now, or more of what counts failures.
    Failed,
}

/// How bad a change is: its kind, then by how many times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weight {
    /// The kind.
    pub rank: Rank,
    /// How many times worse; below 1 where it is better. Never NaN.
    pub times: f64,
}

impl Eq for Weight {}

impl PartialOrd for Weight {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Weight {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_rank = self.rank.cmp(&other.rank);
        by_rank.then(self.times.total_cmp(&other.times))
    }
}

/// A measure that is not what it was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The measure.
    pub measure: &'static str,
    /// In the first report.
    pub a: Option<Number>,
    /// In the second.
    pub b: Option<Number>,
    /// How bad that is.
    pub weight: Weight,
}

/// Measures that count what no rounding does.
const FAILURES: [&str; 4] = ["nan_got", "inf_got", "class_mismatch", "certificates"];

/// What a row is about, the first of these that changed; where none did, the first measure that did.
const MAIN: [&str; 9] = [
    "rel_l2",
    "recall",
    "kept_at",
    "found",
    "gain",
    "share",
    "explained",
    "cross",
    "row0_changed",
];

/// Every measure that changed, in column order. NaN is NaN.
pub(super) fn between(a: &Measures, b: &Measures) -> Vec<Change> {
    let change = |&measure: &&'static str| {
        let (a, b) = (a.get(measure), b.get(measure));
        (!is_same(a, b)).then(|| Change {
            measure,
            a,
            b,
            weight: weight(measure, a, b),
        })
    };
    Measures::NAMES.iter().filter_map(change).collect()
}

fn is_same(a: Option<Number>, b: Option<Number>) -> bool {
    match (a.map(Number::as_f64), b.map(Number::as_f64)) {
        (Some(a), Some(b)) => a == b || (a.is_nan() && b.is_nan()),
        (a, b) => a.is_none() && b.is_none(),
    }
}

fn weight(measure: &str, a: Option<Number>, b: Option<Number>) -> Weight {
    let of = |rank, times| Weight { rank, times };
    let (Some(a), Some(b)) = (a, b) else {
        return of(Rank::Other, 1.0);
    };
    let (a, b) = (a.as_f64(), b.as_f64());
    let better = Measures::better(measure).unwrap_or(Better::Neither);
    let is_number =
        |value: f64| value.is_finite() || (value > 0.0 && better == Better::LargerToInfinity);
    let times = match better {
        Better::Neither => 1.0,
        Better::Smaller => over(b.abs(), a.abs()),
        Better::Larger | Better::LargerToInfinity => over(a, b.max(0.0)),
    };
    let rank = if !is_number(b) || (FAILURES.contains(&measure) && b > a) {
        Rank::Failed
    } else if !is_number(a) || FAILURES.contains(&measure) {
        Rank::Recovered
    } else if times > 1.0 {
        Rank::Worse
    } else if times < 1.0 {
        Rank::Better
    } else {
        Rank::Other
    };
    of(rank, times)
}

/// A quotient that is never NaN: what begins at nothing grows without limit.
fn over(size: f64, before: f64) -> f64 {
    let times = size / before;
    if times.is_nan() { 1.0 } else { times }
}

/// The change that stands for all of a row's.
pub(super) fn lead(changes: &[Change]) -> Change {
    let is_failure = |change: &&Change| change.weight.rank >= Rank::Recovered;
    let failure = changes
        .iter()
        .filter(is_failure)
        .max_by_key(|change| change.weight);
    let main = || {
        let mut names = MAIN.iter();
        names.find_map(|name| changes.iter().find(|change| change.measure == *name))
    };
    *failure.or_else(main).unwrap_or(&changes[0])
}
