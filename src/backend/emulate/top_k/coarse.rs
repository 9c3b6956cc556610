//! Radix selection on a coarse key with a fixed buffer: [`Selector::CoarseRadix`](crate::recipe::indexer::Selector)
//! says step by step what it does and loses.

use std::cmp::Reverse;

use crate::format::{Rounding, f16};

/// Bits of the ordered half.
const HALF_BITS: u32 = 16;

/// Selects `k` of `scores`; `key_bits` beyond a half's are all of them.
pub(super) fn select(scores: &[f32], k: usize, key_bits: u32, buffer: usize) -> Vec<u32> {
    let shift = HALF_BITS.saturating_sub(key_bits);
    let bins: Vec<u16> = scores.iter().map(|&score| key(score) >> shift).collect();
    let mut taken: Vec<u32> = if scores.len() <= k {
        (0..).zip(scores).map(|(key, _)| key).collect()
    } else {
        by_bins(scores, &bins, k, buffer)
    };
    best_first(&mut taken, scores);
    taken
}

fn by_bins(scores: &[f32], bins: &[u16], k: usize, buffer: usize) -> Vec<u32> {
    let cut = cut(bins, k);
    let (mut taken, mut tied) = (Vec::new(), Vec::new());
    for (key, &bin) in (0..).zip(bins) {
        if bin > cut {
            taken.push(key);
        } else if bin == cut && tied.len() < buffer {
            tied.push(key);
        }
    }
    best_first(&mut tied, scores);
    tied.truncate(k - taken.len());
    taken.append(&mut tied);
    taken
}

/// The bin of the k-th largest key, of more than k.
fn cut(bins: &[u16], k: usize) -> u16 {
    let mut counts = vec![0_usize; 1 << HALF_BITS];
    for &bin in bins {
        counts[usize::from(bin)] += 1;
    }
    let mut down_to = 0;
    let reaches = |bin: &u16| {
        down_to += counts[usize::from(*bin)];
        down_to >= k
    };
    (0..=u16::MAX).rev().find(reaches).unwrap_or(0)
}

fn best_first(keys: &mut [u32], scores: &[f32]) {
    keys.sort_by_key(|&key| (Reverse(exact_key(scores[key as usize])), key));
}

/// The score's half as an integer of the same order.
fn key(score: f32) -> u16 {
    let bits = f16::to_bits(f16::round_f32(score, Rounding::NearestEven));
    if bits & 0x8000 == 0 {
        bits | 0x8000
    } else {
        !bits
    }
}

/// The score's own bits as an integer of the same order.
fn exact_key(score: f32) -> u32 {
    let bits = score.to_bits();
    if bits & 0x8000_0000 == 0 {
        bits | 0x8000_0000
    } else {
        !bits
    }
}
