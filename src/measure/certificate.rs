//! What no rounding can do to a selection: certificates against recipe-exact intervals.
//!
//! `lo[i] ≤ hi[i]` enclose every logit that the recipe's unit and order of operations can give for key i, whatever they
//! round. Four findings, any of which is a wrong kernel and not a rough one:
//!
//! | kind | found |
//! |---|---|
//! | [`Set`](Finding::Set) | the chosen indices are not min(k, visible) different, visible keys; −1 is an empty slot |
//! | [`Class`](Finding::Class) | a logit is NaN or an infinity where the interval allows none, or a number where it allows no number |
//! | [`Interval`](Finding::Interval) | a finite logit outside \[lo, hi\] |
//! | [`Order`](Finding::Order) | a visible key i was left out and a key j chosen with loᵢ > hiⱼ |
//!
//! **Classes.** NaN in lo or hi says that the value is NaN, and nothing else is allowed. From −Inf to +Inf everything is, NaN
//! included. +Inf is allowed if hi is +Inf, −Inf if lo is −Inf, and a finite logit unless lo and hi are the same infinity.
//!
//! **Why the fourth cannot fire** if every logit g is in its interval and the k largest g were taken: for a key i left out and a key j
//! chosen gᵢ ≤ gⱼ, so loᵢ ≤ gᵢ ≤ gⱼ ≤ hiⱼ, however ties are broken. A NaN has no interval and takes no part: it is left out where numbers
//! are, and if one is chosen no number is left out. A selector that does not take the k largest g (bf16 ties, a coarse radix)
//! can break it, and so it should.

#[cfg(test)]
mod tests;

use std::fmt;

/// What a candidate gave for one query, and what it may have been.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// The chosen indices as they came.
    pub selected: &'a [i64],
    /// How many were asked for.
    pub k: usize,
    /// The query sees keys 0 to `visible` − 1.
    pub visible: usize,
    /// The candidate's logits; those that are not visible are checked against their interval, too.
    pub logits: &'a [f32],
    /// Lower ends, one a logit.
    pub lo: &'a [f64],
    /// Upper ends.
    pub hi: &'a [f64],
}

/// One thing that no rounding explains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Certificate {
    /// The query's row.
    pub query: usize,
    /// What was found.
    pub finding: Finding,
}

/// What was found, by the case that stands for all of its kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Finding {
    /// No set of min(k, visible) visible keys.
    Set(SetFault),
    /// A logit of a class its interval does not allow: the first, and how many.
    Class(OffLogit),
    /// A finite logit outside its interval: the furthest, and how many.
    Interval(OffLogit),
    /// A chosen key that a key left out surely beats: the worst, and how many are chosen that any surely beats.
    Order(Inversion),
}

/// How the chosen indices fail to be a set of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetFault {
    /// Different visible keys among them.
    pub keys: usize,
    /// min(k, visible).
    pub expected: usize,
    /// Keys that are visible.
    pub visible: usize,
    /// The first index that is no visible key (−1 is not counted), and how many there are.
    pub outside: Option<(i64, usize)>,
    /// The first key that stands there again, and how many slots repeat one.
    pub repeated: Option<(i64, usize)>,
}

/// A logit that is not where the recipe can put it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OffLogit {
    /// The key.
    pub key: usize,
    /// The logit.
    pub got: f32,
    /// Its interval.
    pub lo: f64,
    /// Its interval's upper end.
    pub hi: f64,
    /// How many logits of the query are off in this way.
    pub count: usize,
}

/// A pair in the wrong order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Inversion {
    /// The visible key that was left out.
    pub left_out: usize,
    /// The least its logit can be.
    pub lo: f64,
    /// The key that was chosen.
    pub chosen: usize,
    /// The most its logit can be.
    pub hi: f64,
    /// How many chosen keys are surely below `left_out`.
    pub count: usize,
}

/// Every kind of finding in one query, at most one of each, in the order of the module's table.
///
/// Rows of different lengths are checked as far as all of them go.
#[must_use]
pub fn certificates(query: usize, claim: &Claim<'_>) -> Vec<Certificate> {
    let (chosen, fault) = chosen(claim);
    let (class, interval) = off_logits(claim);
    let findings = [
        fault.map(Finding::Set),
        class.map(Finding::Class),
        interval.map(Finding::Interval),
        inversion(claim, &chosen).map(Finding::Order),
    ];
    let findings = findings.into_iter().flatten();
    findings
        .map(|finding| Certificate { query, finding })
        .collect()
}

/// Which visible keys were chosen, and what is wrong with them as a set.
fn chosen(claim: &Claim<'_>) -> (Vec<bool>, Option<SetFault>) {
    let mut chosen = vec![false; claim.visible];
    let mut fault = SetFault {
        keys: 0,
        expected: claim.k.min(claim.visible),
        visible: claim.visible,
        outside: None,
        repeated: None,
    };
    for &index in claim.selected.iter().filter(|&&index| index != -1) {
        let slot = usize::try_from(index)
            .ok()
            .and_then(|key| chosen.get_mut(key));
        match slot {
            None => note(&mut fault.outside, index),
            Some(true) => note(&mut fault.repeated, index),
            Some(slot) => {
                *slot = true;
                fault.keys += 1;
            }
        }
    }
    let sound = fault.outside.is_none() && fault.repeated.is_none() && fault.keys == fault.expected;
    (chosen, (!sound).then_some(fault))
}

fn note(found: &mut Option<(i64, usize)>, index: i64) {
    found.get_or_insert((index, 0)).1 += 1;
}

/// The first logit of a wrong class, and the one furthest outside its interval.
fn off_logits(claim: &Claim<'_>) -> (Option<OffLogit>, Option<OffLogit>) {
    let (mut class, mut interval): (Option<OffLogit>, Option<OffLogit>) = (None, None);
    let mut furthest = 0.0;
    let ends = claim.lo.iter().zip(claim.hi);
    for (key, (&got, (&lo, &hi))) in claim.logits.iter().zip(ends).enumerate() {
        let off = OffLogit {
            key,
            got,
            lo,
            hi,
            count: 0,
        };
        if !class_is_allowed(f64::from(got), lo, hi) {
            class.get_or_insert(off).count += 1;
        } else if got.is_finite() && !(f64::from(got) >= lo && f64::from(got) <= hi) {
            let found = interval.get_or_insert(off);
            let count = found.count + 1;
            let distance = (lo - f64::from(got)).max(f64::from(got) - hi);
            if distance > furthest {
                (furthest, *found) = (distance, off);
            }
            found.count = count;
        }
    }
    (class, interval)
}

/// Whether an interval allows a value of this class. A finite one between NaNs is not of it.
fn class_is_allowed(got: f64, lo: f64, hi: f64) -> bool {
    if lo.is_nan() || hi.is_nan() {
        got.is_nan()
    } else if got.is_nan() {
        lo == f64::NEG_INFINITY && hi == f64::INFINITY
    } else if got.is_infinite() {
        got == if got > 0.0 { hi } else { lo }
    } else {
        lo < f64::INFINITY && hi > f64::NEG_INFINITY
    }
}

/// The key left out with the largest lower end against the chosen key with the smallest upper end.
fn inversion(claim: &Claim<'_>, chosen: &[bool]) -> Option<Inversion> {
    let ends = || claim.lo.iter().zip(claim.hi).zip(chosen).enumerate();
    let mut left_out: Option<(usize, f64)> = None;
    let mut worst: Option<(usize, f64)> = None;
    for (key, ((&lo, &hi), &is_chosen)) in ends() {
        if lo.is_nan() || hi.is_nan() {
            continue;
        }
        if is_chosen {
            if worst.is_none_or(|(_, least)| hi < least) {
                worst = Some((key, hi));
            }
        } else if left_out.is_none_or(|(_, most)| lo > most) {
            left_out = Some((key, lo));
        }
    }
    let ((left_out, lo), (chosen, hi)) = (left_out?, worst?);
    let beaten = ends().filter(|(_, ((_, hi), is_chosen))| **is_chosen && **hi < lo);
    (lo > hi).then(|| Inversion {
        left_out,
        lo,
        chosen,
        hi,
        count: beaten.count(),
    })
}

/// One sentence without a full stop.
impl fmt::Display for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "query {}: ", self.query)?;
        match &self.finding {
            Finding::Set(fault) => fault.fmt(f),
            Finding::Class(off) => {
                let OffLogit {
                    key,
                    got,
                    lo,
                    hi,
                    count,
                } = off;
                write!(
                    f,
                    "the logit of key {key} is {got}, which the recipe cannot give there ({lo:e} to {hi:e}); {count} in all"
                )
            }
            Finding::Interval(off) => {
                let OffLogit {
                    key,
                    got,
                    lo,
                    hi,
                    count,
                } = off;
                write!(
                    f,
                    "the logit of key {key} is {got:e}, outside {lo:e} to {hi:e}; {count} in all"
                )
            }
            Finding::Order(pair) => write!(
                f,
                "key {} was chosen, whose logit is at most {:e}, and key {} left out, whose logit is at least {:e}; {} in all are chosen that this key beats",
                pair.chosen, pair.hi, pair.left_out, pair.lo, pair.count
            ),
        }
    }
}

impl fmt::Display for SetFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            keys,
            expected,
            visible,
            outside,
            repeated,
        } = self;
        if let Some((index, count)) = outside {
            write!(
                f,
                "index {index} was chosen, and {visible} keys are visible; {count} such indices in all"
            )
        } else if let Some((index, count)) = repeated {
            write!(
                f,
                "key {index} was chosen more than once; {count} repeated in all"
            )
        } else {
            write!(
                f,
                "{keys} keys were chosen, expected {expected} of {visible} visible ones"
            )
        }
    }
}
