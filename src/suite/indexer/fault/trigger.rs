//! The input that a known bug needs to show, where the run's own may not do.
//!
//! | bug | input |
//! |---|---|
//! | `mask-filled-with-zero` | queries that see at most k/2 keys, and every head weight −\|w\|, so that every logit is below 0 |
//! | `tie-overflow` | keys of zeros but for 100 (k/4 at most), and every head weight \|w\|: 100 positive logits among zeros |
//!
//! A NaN code (`nan-swallowed`) is not part of an input: the bug plants it in the candidate's keys alone.
//!
//! An input of its own changes truth and recipe alike, so that the recipe without the bug is as sound on it as on any other.

use ndarray::{Array2, ArrayView2, s};

use super::IndexFault;
use crate::random::{Key, Purpose, Stream};

/// Winners of the published case of `tie-overflow`.
const WINNERS: usize = 100;

/// What becomes of the signs of the head weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Signs {
    /// They stay.
    #[default]
    Own,
    /// −|w|.
    Negative,
    /// |w|.
    Positive,
}

/// An input made for a bug; by default the run's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trigger {
    /// The most keys that a query sees.
    pub few: Option<usize>,
    /// The head weights.
    pub signs: Signs,
    /// Keys that are not zero.
    pub winners: Option<usize>,
}

impl IndexFault {
    /// The input it needs where k keys are selected.
    #[must_use]
    pub fn trigger(self, k: usize) -> Trigger {
        match self {
            Self::MaskFilledWithZero => Trigger {
                few: Some((k / 2).max(1)),
                signs: Signs::Negative,
                winners: None,
            },
            Self::TieOverflow => Trigger {
                few: None,
                signs: Signs::Positive,
                winners: Some(WINNERS.min(k / 4).max(1)),
            },
            _ => Trigger::default(),
        }
    }
}

impl Signs {
    /// A head weight.
    #[must_use]
    pub fn apply(self, weight: f64) -> f64 {
        match self {
            Self::Own => weight,
            Self::Negative => -weight.abs(),
            Self::Positive => weight.abs(),
        }
    }
}

impl Trigger {
    /// The positions that ask, of `count`, ascending: they see ever more keys, of `ratio` tokens each.
    #[must_use]
    pub fn positions(few: usize, count: usize, ratio: usize, context: usize) -> Vec<usize> {
        let most = few.min(context / ratio).max(1);
        let mut seen: Vec<usize> = (1..=count).map(|j| (j * most / count).max(1)).collect();
        seen.dedup();
        seen.into_iter().map(|keys| keys * ratio - 1).collect()
    }

    /// The keys that are not zero, if some are: those of a seed and layer.
    #[must_use]
    pub fn kept(&self, seed: u64, layer: u32, keys: usize) -> Option<Vec<bool>> {
        let winners = self.winners?.min(keys);
        let mut stream = Stream::new(Key {
            seed,
            purpose: Purpose::Fault,
            layer,
            token: 1 << 32,
        });
        let mut kept = vec![false; keys];
        let mut count = 0;
        while count < winners {
            let key = &mut kept[stream.below(keys)];
            count += usize::from(!*key);
            *key = true;
        }
        Some(kept)
    }
}

/// The first keys of a layer, those zero that are not kept.
#[must_use]
pub fn zeroed<T: Copy + Default>(
    keys: ArrayView2<'_, T>,
    count: usize,
    kept: Option<&[bool]>,
) -> Array2<T> {
    let mut keys = keys.slice(s![..count, ..]).to_owned();
    if let Some(kept) = kept {
        let rows = keys.rows_mut().into_iter().zip(kept);
        for (mut row, _) in rows.filter(|(_, kept)| !**kept) {
            row.fill(T::default());
        }
    }
    keys
}
