//! What a structural result of the indexer is explained by: which one thing, done to the recipe's right logits, gives
//! what the candidate selected or scored.
//!
//! ```text
//! recall = share of the candidate's keys that are among the hypothesis' top k      mean over the queries
//! misfit = √ mean over queries of Σ (g − p)² / Σ p²                                 g the candidate's logits, p those of the hypothesis
//! ```
//!
//! over the keys in sight; a pair of which one is no number, or the two are not the same infinity, counts as off by the
//! larger of the number and the query's rms. A key counts if it scores at least what the k-th of the hypothesis does, so
//! that ties are no matter; the share is of the keys selected or of those that should be, whichever are more.
//!
//! **What is tried**, the simplest first: the recipe as it is; slots out of sight that hold 0; slots that nobody wrote;
//! keys missing at the end; keys shifted by up to 8; pages of 64 moved; keys that score 0; each step of [`steps`] left out
//! or done wrongly; another selector; a factor per query; every other recipe of the catalogue; a factor per key. What
//! can be read off the observation is made in `derived`, what has to be computed from the operands in [`steps`].
//!
//! **What is chosen.** With logits those whose misfit is within [`TIE`] times the best are equals, without them all are;
//! of equals the first whose recall lacks at most [`TIE`] times as much as the best's, and [`RECALL_TIE`]. It is named if
//! it is not the recipe as it is, its misfit is at most [`MISFIT`] and its recall at least [`RECALL`]; else the cause is
//! unknown, and what is said is the nearest of all. One more thing is asked of logits that are there: a candidate that rounds otherwise than it claims is nobody's
//! bug, so another recipe is not said to be one.
//!
//! Nothing here knows how the candidate was run: logits and selections of an engine do as well.

mod derived;
mod fit;
pub mod steps;
mod words;

#[cfg(test)]
mod tests;

use ndarray::{ArrayView2, CowArray, Ix2};

use self::fit::Fit;
use super::fault::Fault;
use crate::recipe::indexer::Selector;

/// Misfits and lacks of recall this many times as large are equals.
pub const TIE: f64 = 2.0;
/// What recall may lack beside that: the keys that rounding exchanges.
pub const RECALL_TIE: f64 = 1e-3;
/// The largest misfit of a hypothesis that is named: above that of any unit, below what formats differ by.
pub const MISFIT: f64 = 0.01;
/// The least recall of a hypothesis that is named.
pub const RECALL: f64 = 0.9;

/// What a candidate gave, and what its recipe gives.
pub struct Observed<'a> {
    /// Its logits [Q, N], if there are any.
    pub logits: Option<ArrayView2<'a, f32>>,
    /// The indices it selected, query by query, as they came.
    pub selected: Vec<&'a [i64]>,
    /// How many were asked for.
    pub k: usize,
    /// How many keys each query sees.
    pub visible: &'a [usize],
    /// The recipe's own logits [Q, N], of all keys, whether in sight or not.
    pub right: ArrayView2<'a, f32>,
}

/// What may have happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Cause {
    /// Nothing.
    Identity,
    /// Slots out of sight hold 0 and are selected from.
    Mask,
    /// So many slots hold no key in sight.
    Unwritten(usize),
    /// So many of the newest keys are missing.
    Truncated(usize),
    /// Slot i holds key i + this.
    Shifted(i64),
    /// The first page holds what the second should, and so on.
    Pages(Vec<(usize, usize)>),
    /// So many keys score 0 for every query.
    ZeroKeys(usize),
    /// A step was left out or done wrongly.
    Step(Fault),
    /// Another selector took the keys.
    Selector(Selector),
    /// The logits of each query are off by a factor.
    QueryScale,
    /// Another recipe of the catalogue.
    Recipe(String),
    /// The logits of each key are off by a factor.
    KeyScale,
}

impl Cause {
    /// Whether it is what a known bug does.
    #[must_use]
    pub fn is_that_of(&self, bug: Fault) -> bool {
        match (self, bug) {
            (Self::Mask, Fault::MaskFilledWithZero)
            | (Self::Unwritten(_), Fault::TieOverflow(_))
            | (Self::ZeroKeys(_), Fault::NanSwallowed { .. }) => true,
            (Self::Truncated(missing), Fault::StaleLength(lost)) => *missing == lost,
            (Self::Shifted(by), Fault::KeysShifted(shift)) => *by == shift,
            (Self::Pages(moved), Fault::PagesSwapped([one, other])) => {
                *moved == [(one, other), (other, one)]
            }
            (Self::Step(step), bug) => *step == bug,
            _ => false,
        }
    }
}

/// A cause, and what it predicts.
pub struct Hypothesis<'a> {
    /// The cause.
    pub cause: Cause,
    /// Logits [Q, N]; −∞ where there is no key.
    pub logits: CowArray<'a, f32, Ix2>,
    /// How many slots each query's selection looks at; none: the keys in sight.
    slots: Option<usize>,
    /// Who selects.
    selector: Selector,
}

impl<'a> Hypothesis<'a> {
    fn new(cause: Cause, logits: impl Into<CowArray<'a, f32, Ix2>>) -> Self {
        Self {
            cause,
            logits: logits.into(),
            slots: None,
            selector: Selector::Exact,
        }
    }
}

/// A cause and how well it fits.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    /// The cause.
    pub cause: Cause,
    /// See the module.
    pub recall: f64,
    /// See the module; absent without logits.
    pub misfit: Option<f64>,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The best hypothesis.
    pub best: Scored,
    /// The next best.
    pub next: Scored,
    /// Whether the best one explains what was seen.
    pub is_explained: bool,
    /// How many were tried.
    pub tried: usize,
}

/// Tries every hypothesis: `computed` and what follows from the observation.
#[must_use]
pub fn diagnose<'a>(observed: &Observed<'a>, computed: &'a [steps::Computed]) -> Finding {
    let (steps, recipes): (Vec<_>, Vec<_>) = computed
        .iter()
        .partition(|computed| matches!(computed.cause, Cause::Step(_)));
    // One at a time: a hypothesis is as large as the logits.
    let scored = derived::simple(observed)
        .chain(steps.into_iter().map(steps::Computed::hypothesis))
        .chain(derived::selectors(observed))
        .chain(derived::query_scale(observed))
        .chain(recipes.into_iter().map(steps::Computed::hypothesis))
        .chain(derived::key_scale(observed))
        .map(|hypothesis| {
            let Fit { recall, misfit } = fit::fit(observed, &hypothesis);
            Scored {
                cause: hypothesis.cause,
                recall,
                misfit,
            }
        });
    choose(scored.collect())
}

/// The simplest of the best, of hypotheses in order of simplicity; the first is the recipe as it is.
fn choose(mut scored: Vec<Scored>) -> Finding {
    let tried = scored.len();
    let misfit = |scored: &Scored| scored.misfit.unwrap_or_default();
    let least = scored.iter().map(misfit).fold(f64::INFINITY, f64::min);
    let is_close = |scored: &&Scored| misfit(scored) <= TIE * least;
    let close = || scored.iter().filter(is_close);
    let most = close().map(|scored| scored.recall).fold(0.0, f64::max);
    let lack = TIE * (1.0 - most) + RECALL_TIE;
    let explains = |scored: &Scored| {
        scored.cause != Cause::Identity && misfit(scored) <= MISFIT && scored.recall >= RECALL
    };
    let simplest = scored
        .iter()
        .position(|scored| is_close(&scored) && 1.0 - scored.recall <= lack)
        .filter(|&simplest| explains(&scored[simplest]));
    let best = scored.remove(simplest.unwrap_or_else(|| nearest(&scored)));
    let next = nearest(&scored);
    Finding {
        next: scored.get(next).unwrap_or(&best).clone(),
        best,
        is_explained: simplest.is_some(),
        tried,
    }
}

/// The hypothesis of the least misfit; of equal misfits that of the better selection, of equals the simplest.
fn nearest(scored: &[Scored]) -> usize {
    let misfit = |at: usize| scored[at].misfit.unwrap_or_default();
    let nearer = |one: usize, other: usize| {
        let by_misfit = misfit(one).total_cmp(&misfit(other));
        by_misfit.then(scored[other].recall.total_cmp(&scored[one].recall))
    };
    (0..scored.len())
        .reduce(|nearest, one| match nearer(one, nearest).is_lt() {
            true => one,
            false => nearest,
        })
        .unwrap_or_default()
}
