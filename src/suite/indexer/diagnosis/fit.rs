//! How well a hypothesis fits what was seen.

use super::{Cause, Hypothesis, Observed};
use crate::{backend::emulate::top_k, recipe::indexer::Selector};

/// Recall and misfit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fit {
    pub(super) recall: f64,
    pub(super) misfit: Option<f64>,
}

pub(super) fn fit(observed: &Observed<'_>, hypothesis: &Hypothesis<'_>) -> Fit {
    let queries = observed.visible.len().max(1) as f64;
    let each = || 0..observed.visible.len();
    let recalls = each().map(|query| recall(observed, hypothesis, query));
    let misfit = observed.logits.is_some().then(|| {
        let squares: f64 = each()
            .map(|query| misfit(observed, hypothesis, query))
            .sum();
        (squares / queries).sqrt()
    });
    Fit {
        recall: recalls.sum::<f64>() / queries,
        misfit,
    }
}

/// The share of a query's keys that the hypothesis selects, too.
fn recall(observed: &Observed<'_>, hypothesis: &Hypothesis<'_>, query: usize) -> f64 {
    let row = hypothesis.logits.row(query).to_vec();
    let slots = hypothesis.slots.unwrap_or(observed.visible[query]);
    let slots = slots.min(row.len());
    let mut chosen = top_k::select(hypothesis.selector, &row, slots, observed.k);
    chosen.retain(|&key| row[key as usize] != f32::NEG_INFINITY);
    let mut is_right = vec![false; row.len()];
    for &key in &chosen {
        is_right[key as usize] = true;
    }
    if hypothesis.selector == Selector::Exact
        && let Some(&last) = chosen.last()
    {
        let cut = row[last as usize];
        for (is_right, &logit) in is_right.iter_mut().zip(&row).take(slots) {
            *is_right |= logit >= cut;
        }
    }
    let written = observed.selected[query]
        .iter()
        .filter(|&&index| index != -1);
    let mut right = 0;
    let mut wrong = 0;
    for &index in written {
        let key = usize::try_from(index).ok();
        let is_right = key.and_then(|key| is_right.get_mut(key));
        // A key that stands there twice is right once.
        match is_right.is_some_and(std::mem::take) {
            true => right += 1,
            false => wrong += 1,
        }
    }
    let all = match hypothesis.cause {
        Cause::Unwritten(_) => in_sight(observed, query).max(right),
        _ => (right + wrong).max(chosen.len()),
    };
    match all {
        0 => 1.0,
        all => right as f64 / all as f64,
    }
}

/// How many different keys in sight a query selected.
pub(super) fn in_sight(observed: &Observed<'_>, query: usize) -> usize {
    let visible = observed.visible[query];
    let mut seen = vec![false; visible];
    for &index in observed.selected[query] {
        let slot = usize::try_from(index).ok();
        if let Some(slot) = slot.and_then(|slot| seen.get_mut(slot)) {
            *slot = true;
        }
    }
    seen.into_iter().filter(|seen| *seen).count()
}

/// Σ (g − p)² / Σ p² of a query.
fn misfit(observed: &Observed<'_>, hypothesis: &Hypothesis<'_>, query: usize) -> f64 {
    let Some(logits) = observed.logits else {
        return 0.0;
    };
    let visible = observed.visible[query];
    let pairs = || {
        let predicted = hypothesis.logits.row(query);
        let got = logits.row(query);
        (0..visible).map(move |key| (f64::from(got[key]), f64::from(predicted[key])))
    };
    let square = |x: f64| if x.is_finite() { x * x } else { 0.0 };
    let power: f64 = pairs().map(|(_, predicted)| square(predicted)).sum();
    let mean = power / visible.max(1) as f64;
    let off = |(got, predicted): (f64, f64)| match (got.is_finite(), predicted.is_finite()) {
        (true, true) => square(got - predicted),
        _ if got == predicted || got.is_nan() && predicted.is_nan() => 0.0,
        _ => square(got).max(square(predicted)).max(mean),
    };
    let off: f64 = pairs().map(off).sum();
    match off > 0.0 {
        true => off / power,
        false => 0.0,
    }
}
