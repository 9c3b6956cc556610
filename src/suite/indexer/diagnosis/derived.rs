//! Hypotheses that can be read off an observation.

use ndarray::{Array2, Axis};

use super::{Cause, Hypothesis, Observed, fit::in_sight};
use crate::{
    recipe::indexer::Selector,
    suite::indexer::fault::{FURTHEST, Fault, PAGE},
};

/// A page is out of place if it is off by more than this share of the mean square ...
const AWAY: f64 = 4e-4;
/// ... and where it came from is the page that fits it by so many times better.
const BETTER: f64 = 4.0;
/// The fewest values of a page that two pages are compared by.
const COMPARED: usize = PAGE;

/// From the recipe as it is to keys that score 0, the simplest first.
pub(super) fn simple<'a>(observed: &Observed<'a>) -> impl Iterator<Item = Hypothesis<'a>> {
    let identity = Hypothesis::new(Cause::Identity, observed.right);
    let count = observed.right.ncols();
    let nearest_first = (1..=FURTHEST as i64).flat_map(|by| [by, -by]);
    let shifted = nearest_first.map(move |by| {
        let fault = Fault::KeysShifted(by);
        let moved = moved(observed, |slot| fault.source(slot, count));
        Hypothesis::new(Cause::Shifted(by), moved)
    });
    [identity, mask(observed)]
        .into_iter()
        .chain(unwritten(observed))
        .chain(truncated(observed))
        .chain(shifted)
        .chain(pages(observed))
        .chain(zero_keys(observed))
}

/// Selectors that are not exact, on the right logits.
pub(super) fn selectors<'a>(observed: &Observed<'a>) -> impl Iterator<Item = Hypothesis<'a>> {
    let right = observed.right;
    [
        Selector::Bf16Ties,
        Selector::SGLANG_FAST,
        Selector::SGLANG_JIT,
        Selector::SGLANG_JIT_CLUSTER,
        Selector::FILTERED,
    ]
    .into_iter()
    .map(move |selector| Hypothesis {
        selector,
        ..Hypothesis::new(Cause::Selector(selector), right)
    })
}

/// 0 in every slot out of sight, and all slots are selected from.
fn mask<'a>(observed: &Observed<'a>) -> Hypothesis<'a> {
    let mut logits = observed.right.to_owned();
    for (mut row, &visible) in logits.rows_mut().into_iter().zip(observed.visible) {
        row.iter_mut().skip(visible).for_each(|logit| *logit = 0.0);
    }
    let slots = Some(logits.ncols());
    Hypothesis {
        slots,
        ..Hypothesis::new(Cause::Mask, logits)
    }
}

/// Slots without a key in sight, in the place of some that are.
fn unwritten<'a>(observed: &Observed<'a>) -> Option<Hypothesis<'a>> {
    let lacking = |query: usize| {
        let expected = observed.k.min(observed.visible[query]);
        expected.saturating_sub(in_sight(observed, query))
    };
    let slots: usize = (0..observed.visible.len()).map(lacking).sum();
    (slots > 0).then(|| Hypothesis::new(Cause::Unwritten(slots), observed.right))
}

/// Without the newest keys: as many as have no logit or, without logits, as nobody selected.
fn truncated<'a>(observed: &Observed<'a>) -> Option<Hypothesis<'a>> {
    let missing = |(query, &visible): (usize, &usize)| match observed.logits {
        Some(logits) => {
            let seen = logits.row(query);
            let absent = (0..visible).rev();
            // A query that sees fewer than are missing tells only that.
            let count = absent
                .take_while(|&key| seen[key] == f32::NEG_INFINITY)
                .count();
            (count < visible).then_some(count)
        }
        None => {
            let keys = observed.selected[query].iter();
            let last = keys.filter_map(|&key| usize::try_from(key).ok()).max()?;
            (visible > observed.k).then(|| visible.saturating_sub(last + 1))
        }
    };
    let queries = observed.visible.iter().enumerate();
    let missing = queries
        .filter_map(missing)
        .min()
        .filter(|&count| count > 0)?;
    let mut logits = observed.right.to_owned();
    for (mut row, &visible) in logits.rows_mut().into_iter().zip(observed.visible) {
        let tail = row.iter_mut().skip(visible.saturating_sub(missing));
        tail.for_each(|logit| *logit = f32::NEG_INFINITY);
    }
    Some(Hypothesis::new(Cause::Truncated(missing), logits))
}

/// The right logits with another key in every slot; 0 where there is none.
fn moved(observed: &Observed<'_>, source: impl Fn(usize) -> Option<usize>) -> Array2<f32> {
    let right = observed.right;
    let mut moved = Array2::zeros(right.dim());
    for (slot, mut logits) in moved.axis_iter_mut(Axis(1)).enumerate() {
        if let Some(source) = source(slot) {
            logits.assign(&right.column(source));
        }
    }
    moved
}

/// What stands in a slot: the logit or, without logits, whether it was selected.
struct Marks {
    got: Array2<f64>,
    right: Array2<f64>,
}

impl Marks {
    fn of(observed: &Observed<'_>) -> Self {
        if let Some(logits) = observed.logits {
            return Self {
                got: logits.mapv(f64::from),
                right: observed.right.mapv(f64::from),
            };
        }
        let (queries, keys) = observed.right.dim();
        let mut marks = Self {
            got: Array2::zeros((queries, keys)),
            right: Array2::zeros((queries, keys)),
        };
        for query in 0..queries {
            let row = observed.right.row(query).to_vec();
            // A page may have come from out of sight.
            for key in crate::ranking::Ranking::new(&row, observed.k).into_order() {
                marks.right[[query, key as usize]] = 1.0;
            }
            for &key in observed.selected[query] {
                let key = usize::try_from(key).ok().filter(|&key| key < keys);
                if let Some(key) = key {
                    marks.got[[query, key]] = 1.0;
                }
            }
        }
        marks
    }

    /// The mean square by which a page differs from what another should be, pooled over the queries that see it.
    fn apart(&self, page: usize, other: usize, visible: &[usize]) -> Option<f64> {
        let (mut sum, mut count) = (0.0, 0);
        for (query, &visible) in visible.iter().enumerate() {
            let seen = PAGE.min(visible.saturating_sub(page * PAGE));
            for offset in 0..seen {
                let got = self.got[[query, page * PAGE + offset]];
                let right = self.right[[query, other * PAGE + offset]];
                let off = got - right;
                if off.is_finite() {
                    sum += off * off;
                    count += 1;
                }
            }
        }
        (count >= COMPARED).then(|| sum / count as f64)
    }
}

/// Pages of the key cache that hold what others should, by the offsets in them that all queries agree on.
fn pages<'a>(observed: &Observed<'a>) -> Option<Hypothesis<'a>> {
    let pages = observed.right.ncols() / PAGE;
    let marks = Marks::of(observed);
    let finite = || marks.right.iter().filter(|mark| mark.is_finite());
    let power = finite().map(|mark| mark * mark).sum::<f64>() / finite().count().max(1) as f64;
    let apart = |page, other| marks.apart(page, other, observed.visible);
    let origin = |page: usize| {
        let own = apart(page, page).filter(|&own| own > AWAY * power)?;
        let others = (0..pages).filter(|&other| other != page);
        let (distance, other) = others
            .filter_map(|other| Some((apart(page, other)?, other)))
            .min_by(|one, other| one.0.total_cmp(&other.0))?;
        (distance * BETTER <= own).then_some((page, other))
    };
    let exchanged: Vec<(usize, usize)> = (0..pages).filter_map(origin).collect();
    if exchanged.is_empty() {
        return None;
    }
    let count = observed.right.ncols();
    let source = |slot: usize| {
        let found = exchanged.iter().find(|(page, _)| *page == slot / PAGE);
        let page = found.map_or(slot / PAGE, |(_, other)| *other);
        Some(page * PAGE + slot % PAGE).filter(|&source| source < count)
    };
    let moved = moved(observed, source);
    Some(Hypothesis::new(Cause::Pages(exchanged), moved))
}

/// Keys that score 0 for every query that sees them, and should not.
fn zero_keys<'a>(observed: &Observed<'a>) -> Option<Hypothesis<'a>> {
    let logits = observed.logits?;
    let is_zeroed = |key: &usize| {
        let seen = || (0..logits.nrows()).filter(|&query| *key < observed.visible[query]);
        seen().count() > 0
            && seen().all(|query| logits[[query, *key]] == 0.0)
            && seen().any(|query| observed.right[[query, *key]] != 0.0)
    };
    let keys: Vec<usize> = (0..logits.ncols()).filter(is_zeroed).collect();
    // Where most score 0 it is not some keys that are wrong.
    if keys.is_empty() || 2 * keys.len() > logits.ncols() {
        return None;
    }
    let mut predicted = observed.right.to_owned();
    for &key in &keys {
        predicted.column_mut(key).fill(0.0);
    }
    Some(Hypothesis::new(Cause::ZeroKeys(keys.len()), predicted))
}

/// Σ got·right / Σ right² over pairs of numbers, and how many there are.
fn factor(pairs: impl Iterator<Item = (f32, f32)>) -> (f64, usize) {
    let (mut cross, mut power, mut count) = (0.0, 0.0, 0);
    for (got, right) in pairs.filter(|(got, right)| got.is_finite() && right.is_finite()) {
        let (got, right) = (f64::from(got), f64::from(right));
        cross += got * right;
        power += right * right;
        count += 1;
    }
    match power > 0.0 {
        true => (cross / power, count),
        false => (1.0, count),
    }
}

/// Every query's logits times the factor that fits best.
pub(super) fn query_scale<'a>(observed: &Observed<'a>) -> Option<Hypothesis<'a>> {
    let logits = observed.logits?;
    let mut predicted = observed.right.to_owned();
    for (query, mut row) in predicted.rows_mut().into_iter().enumerate() {
        let pairs = logits.row(query).into_iter().zip(&row);
        let pairs = pairs.take(observed.visible[query]);
        let (factor, _) = factor(pairs.map(|(got, right)| (*got, *right)));
        row.mapv_inplace(|right| (f64::from(right) * factor) as f32);
    }
    Some(Hypothesis::new(Cause::QueryScale, predicted))
}

/// Every key's logits times the factor that fits best. A factor that only one query tells explains nothing.
pub(super) fn key_scale<'a>(observed: &Observed<'a>) -> Option<Hypothesis<'a>> {
    let logits = observed.logits?;
    let mut predicted = observed.right.to_owned();
    for (key, mut column) in predicted.axis_iter_mut(Axis(1)).enumerate() {
        let seen = (0..logits.nrows()).filter(|&query| key < observed.visible[query]);
        let (factor, count) = factor(seen.map(|query| (logits[[query, key]], column[query])));
        if count > 1 {
            column.mapv_inplace(|right| (f64::from(right) * factor) as f32);
        }
    }
    Some(Hypothesis::new(Cause::KeyScale, predicted))
}
