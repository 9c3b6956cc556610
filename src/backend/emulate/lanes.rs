//! fp32 arithmetic over 16 tokens at a time.
//!
//! Every lane is one token, so the order of each token's sum is the scalar order written here, and a
//! vector level changes speed only: fused multiply-add, product and sum are IEEE operations at every
//! level (without FMA hardware the fused product is the C library's exact one).
#![allow(unsafe_code)]

use ndarray::ArrayView2;
use ulpdrift_reference::simd::Level;

use crate::recipe::Contraction;

/// Tokens in a tile.
pub const LANES: usize = 16;

/// One value per token of a tile.
pub type Lane = [f32; LANES];

/// The transposed tile `[k][token]` of the rows `first..first+LANES` of x; rows past the end are 0.
pub fn tile(x: ArrayView2<'_, f32>, first: usize) -> Vec<Lane> {
    let mut lanes = vec![[0.0; LANES]; x.ncols()];
    for (token, row) in x.rows().into_iter().skip(first).take(LANES).enumerate() {
        for (lane, &value) in lanes.iter_mut().zip(row) {
            lane[token] = value;
        }
    }
    lanes
}

/// Compiles one generic body per vector level and picks at run time. A level this processor lacks
/// runs as the fastest it has: the bits are the same.
macro_rules! per_level {
    ($(#[$doc:meta])* $vis:vis fn $name:ident = $body:ident
     $(<const $n:ident: usize>)? ($($arg:ident: $ty:ty),*)) => {
        $(#[$doc])*
        $vis fn $name $(<const $n: usize>)? (level: Level, $($arg: $ty),*) {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
                fn avx512 $(<const $n: usize>)? ($($arg: $ty),*) {
                    $body($($arg),*);
                }
                #[target_feature(enable = "avx2,fma")]
                fn avx2 $(<const $n: usize>)? ($($arg: $ty),*) {
                    $body($($arg),*);
                }
                match level.min(Level::detect()) {
                    // SAFETY: `detect` found these features on this processor.
                    Level::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    Level::Avx2 => return unsafe { avx2($($arg),*) },
                    Level::Portable => {}
                }
            }
            let _ = level;
            $body($($arg),*);
        }
    };
}

#[inline(always)]
fn fma_into(acc: &mut Lane, x: &Lane, factor: f32) {
    for lane in 0..LANES {
        acc[lane] = x[lane].mul_add(factor, acc[lane]);
    }
}

#[inline(always)]
fn chains_body<const N: usize>(x: &[Lane], weights: &[&[f32]; N], acc: &mut [Lane; N]) {
    let mut sums = *acc;
    for (k, lane) in x.iter().enumerate() {
        for (sum, weight) in sums.iter_mut().zip(weights) {
            fma_into(sum, lane, weight[k]);
        }
    }
    *acc = sums;
}

per_level! {
    /// One ascending FMA chain per output: `acc[n] = fma(x[k], weights[n][k], acc[n])`.
    pub fn chains = chains_body<const N: usize>(
        x: &[Lane], weights: &[&[f32]; N], acc: &mut [Lane; N]
    )
}

#[inline(always)]
fn strided_body(x: &[Lane], weight: &[f32], threads: &mut [Lane]) {
    let stride = threads.len();
    for (x, weight) in x.chunks(stride).zip(weight.chunks(stride)) {
        for ((sum, x), &weight) in threads.iter_mut().zip(x).zip(weight) {
            fma_into(sum, x, weight);
        }
    }
}

per_level! {
    /// Thread t continues its FMA chain with k = t, t + threads, …
    pub fn strided = strided_body(x: &[Lane], weight: &[f32], threads: &mut [Lane])
}

#[inline(always)]
fn strided_squares_body(x: &[Lane], threads: &mut [Lane]) {
    for x in x.chunks(threads.len()) {
        for (sum, x) in threads.iter_mut().zip(x) {
            square_into(sum, x);
        }
    }
}

per_level! {
    /// [`strided`] over x².
    pub fn strided_squares = strided_squares_body(x: &[Lane], threads: &mut [Lane])
}

#[inline(always)]
fn square_into(sum: &mut Lane, x: &Lane) {
    for lane in 0..LANES {
        sum[lane] = x[lane].mul_add(x[lane], sum[lane]);
    }
}

#[inline(always)]
fn tree_body(threads: &mut [Lane]) {
    let mut stride = threads.len() / 2;
    while stride > 0 {
        let (low, high) = threads.split_at_mut(stride);
        for (low, high) in low.iter_mut().zip(high.iter()) {
            add_into(low, high);
        }
        stride /= 2;
    }
}

per_level! {
    /// `v[i] += v[i + stride]` for strides threads/2, …, 2, 1: the sum of the block in `threads[0]`.
    pub fn tree = tree_body(threads: &mut [Lane])
}

#[inline(always)]
fn add_into(sum: &mut Lane, term: &Lane) {
    for lane in 0..LANES {
        sum[lane] += term[lane];
    }
}

#[inline(always)]
fn square_chain_body(x: &[Lane], sum: &mut Lane) {
    for x in x {
        square_into(sum, x);
    }
}

per_level! {
    /// One ascending FMA chain over x².
    pub fn square_chain = square_chain_body(x: &[Lane], sum: &mut Lane)
}

/// Lanes of a row in `DeepGEMM`'s squared sum, and the columns they share out per step.
const ROW_LANES: usize = 4;

#[inline(always)]
fn square_lanes_body(x: &[Lane], sum: &mut Lane) {
    let mut lanes = [[0.0f32; LANES]; ROW_LANES];
    let (steps, rest) = x.as_chunks::<{ 2 * ROW_LANES }>();
    // A ragged end is filled with zeros, whose squares change no lane.
    let mut last = [[0.0; LANES]; 2 * ROW_LANES];
    last[..rest.len()].copy_from_slice(rest);
    for step in steps.iter().chain((!rest.is_empty()).then_some(&last)) {
        for (c, lane) in lanes.iter_mut().enumerate() {
            add_two_squares(lane, &step[c], &step[c + ROW_LANES]);
        }
    }
    for token in 0..LANES {
        sum[token] = (lanes[0][token] + lanes[2][token]) + (lanes[1][token] + lanes[3][token]);
    }
}

#[inline(always)]
fn add_two_squares(sum: &mut Lane, first: &Lane, second: &Lane) {
    for token in 0..LANES {
        let square = second[token] * second[token];
        sum[token] += first[token].mul_add(first[token], square);
    }
}

per_level! {
    /// `DeepGEMM`'s squared sum of one range: four lanes, two columns a step, butterfly 2 then 1.
    pub fn square_lanes = square_lanes_body(x: &[Lane], sum: &mut Lane)
}

#[inline(always)]
fn square_interleaved_body(x: &[Lane], sum: &mut Lane) {
    let mut chains = [[0.0f32; LANES]; ROW_LANES];
    for group in x.chunks(ROW_LANES) {
        for (chain, x) in chains.iter_mut().zip(group) {
            square_into(chain, x);
        }
    }
    *sum = chains[0];
    for chain in &chains[1..] {
        add_into(sum, chain);
    }
}

per_level! {
    /// Four FMA chains over x² by k mod 4, added ascending.
    pub fn square_interleaved = square_interleaved_body(x: &[Lane], sum: &mut Lane)
}

#[inline(always)]
fn collapse_body(contraction: Contraction, pre: &[f32], x: &[f32], y: &mut [f32]) {
    let width = y.len();
    for (stream, &gate) in pre.iter().enumerate() {
        let x = &x[stream * width..(stream + 1) * width];
        match (stream, contraction) {
            (0, _) => y.iter_mut().zip(x).for_each(|(y, x)| *y = gate * x),
            (_, Contraction::Fma) => {
                y.iter_mut()
                    .zip(x)
                    .for_each(|(y, x)| *y = x.mul_add(gate, *y));
            }
            (_, Contraction::MulAdd) => y.iter_mut().zip(x).for_each(|(y, x)| *y += gate * x),
        }
    }
}

per_level! {
    /// `y[c] = Σ_j pre[j]·x[j·d + c]`, streams ascending, one token.
    pub fn collapse = collapse_body(
        contraction: Contraction, pre: &[f32], x: &[f32], y: &mut [f32]
    )
}
