//! The innermost block of [`crate::dot`]: up to `ROWS × 24` outputs over one chunk of k, per vector level.
//!
//! Each output is one ascending chain `s ← s + x[k]·w[k]`, started at +0. The vector lanes run across
//! outputs, never along k, so there is no lane reduction and nothing for the vector width to change.
//! The product of two f32 values has at most 48 significant bits and an exponent within −298..=256,
//! so it is exact in f64 and a fused multiply-add gives the bits of multiply, then add. The product of
//! an f64 and an f32 is not exact: it is rounded, then added, at every level.
#![allow(unsafe_code)]

use crate::simd::{Level, Task, run};

/// Tokens a block holds.
pub(crate) const ROWS: usize = 8;
/// Outputs of one packed column group: one 512-bit vector of f64.
pub(crate) const LANES: usize = 8;
/// Terms of one chain. Short chains keep the rounding error low: with K = 16384 a result has passed
/// through 128 + 128 additions instead of 16384.
pub(crate) const CHUNK: usize = 128;
/// Column groups the widest kernel takes at once: with eight rows, 24 accumulators of 32 registers.
pub(crate) const GROUPS: usize = 3;

/// One chunk of `ROWS` tokens, widened: `[ROWS][CHUNK]`.
pub(crate) type Rows = [f64; ROWS * CHUNK];
/// One chunk of `LANES` weight rows, widened and transposed: `[CHUNK][LANES]`.
/// Aligned, so that no vector of it lies across two cache lines.
#[derive(Clone)]
#[repr(align(64))]
pub(crate) struct Group(pub(crate) [f64; CHUNK * LANES]);
/// The running sums of `ROWS` tokens for one column group: `[ROWS][LANES]`.
pub(crate) type Sums = [f64; ROWS * LANES];

/// What a row of x may hold.
///
/// A level this processor lacks is replaced by the best one it has: the bits are the same.
pub(crate) trait Input: Copy + Sync {
    /// Widens one token's chunk.
    fn widen(level: Level, source: &[Self], target: &mut [f64]);

    /// Adds the chunk's chains of every group to the sums, over the first `depth` terms.
    fn add_chunk(level: Level, rows: &Rows, groups: &[Group], sums: &mut [Sums], depth: usize);
}

impl Input for f32 {
    fn widen(level: Level, source: &[Self], target: &mut [f64]) {
        #[cfg(target_arch = "x86_64")]
        if level.min(Level::detect()) == Level::Avx512 {
            // SAFETY: `detect` has found AVX-512 F on this processor.
            return unsafe { x86::widen_avx512(source, target) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = level;
        widen_each(source, target);
    }

    fn add_chunk(level: Level, rows: &Rows, groups: &[Group], sums: &mut [Sums], depth: usize) {
        check_block(groups, sums, depth);
        #[cfg(target_arch = "x86_64")]
        match level.min(Level::detect()) {
            // SAFETY: `detect` has found AVX-512 F on this processor, and `depth` was checked above.
            Level::Avx512 => return unsafe { x86::add_chunk_avx512(rows, groups, sums, depth) },
            // SAFETY: `detect` has found AVX2 and FMA on this processor, and `depth` was checked above.
            Level::Avx2 => return unsafe { x86::add_chunk_avx2(rows, groups, sums, depth) },
            Level::Portable => {}
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = level;
        add_chunk_plain::<2>(rows, groups, sums, depth);
    }
}

impl Input for f64 {
    fn widen(_: Level, source: &[Self], target: &mut [f64]) {
        target[..source.len()].copy_from_slice(source);
    }

    fn add_chunk(level: Level, rows: &Rows, groups: &[Group], sums: &mut [Sums], depth: usize) {
        check_block(groups, sums, depth);
        let block = Separate {
            rows,
            groups,
            sums,
            depth,
        };
        run(level, block);
    }
}

fn check_block(groups: &[Group], sums: &[Sums], depth: usize) {
    assert!(
        depth <= CHUNK && groups.len() == sums.len(),
        "a block's sums must match its weight groups"
    );
}

/// One chunk with separate products and sums.
struct Separate<'a> {
    rows: &'a Rows,
    groups: &'a [Group],
    sums: &'a mut [Sums],
    depth: usize,
}

impl Task for Separate<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        // Four tokens: as many chains as cover the latency of an addition, at AVX2 in half the registers.
        add_chunk_plain::<4>(self.rows, self.groups, self.sums, self.depth);
    }
}

/// Plain Rust, `TOKENS` at a time: as many accumulators as the registers hold.
#[inline(always)]
fn add_chunk_plain<const TOKENS: usize>(
    rows: &Rows,
    groups: &[Group],
    sums: &mut [Sums],
    depth: usize,
) {
    for (group, sums) in groups.iter().zip(sums) {
        for row in (0..ROWS).step_by(TOKENS) {
            add_tokens::<TOKENS>(rows, group, sums, row, depth);
        }
    }
}

#[inline(always)]
fn add_tokens<const TOKENS: usize>(
    rows: &Rows,
    group: &Group,
    sums: &mut Sums,
    row: usize,
    depth: usize,
) {
    let mut chains = [[0.0; LANES]; TOKENS];
    let mut tokens: [&[f64]; TOKENS] = [&[]; TOKENS];
    for (index, token) in tokens.iter_mut().enumerate() {
        *token = &rows[(row + index) * CHUNK..][..depth];
    }
    for (k, w) in group.0.as_chunks::<LANES>().0[..depth].iter().enumerate() {
        for (chain, token) in chains.iter_mut().zip(tokens) {
            for lane in 0..LANES {
                chain[lane] += token[k] * w[lane];
            }
        }
    }
    for (sum, chain) in sums[row * LANES..].iter_mut().zip(chains.as_flattened()) {
        *sum += chain;
    }
}

#[inline(always)]
fn widen_each(source: &[f32], target: &mut [f64]) {
    for (wide, &value) in target.iter_mut().zip(source) {
        *wide = f64::from(value);
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        _mm256_add_pd, _mm256_fmadd_pd, _mm256_loadu_pd, _mm256_set1_pd, _mm256_setzero_pd,
        _mm256_storeu_pd, _mm512_add_pd, _mm512_fmadd_pd, _mm512_loadu_pd, _mm512_set1_pd,
        _mm512_setzero_pd, _mm512_storeu_pd,
    };

    use super::{CHUNK, GROUPS, Group, LANES, ROWS, Rows, Sums};

    /// # Safety
    /// The processor must have AVX-512 F, and `depth` must be at most `CHUNK`.
    #[target_feature(enable = "avx512f,avx2,fma")]
    pub(super) unsafe fn add_chunk_avx512(
        rows: &Rows,
        groups: &[Group],
        sums: &mut [Sums],
        depth: usize,
    ) {
        for (groups, sums) in groups.chunks(GROUPS).zip(sums.chunks_mut(GROUPS)) {
            // SAFETY: the caller vouches for the processor and for `depth`.
            unsafe {
                match (groups, sums) {
                    ([a], [r]) => block_avx512([a], [r], rows, depth),
                    ([a, b], [r, s]) => block_avx512([a, b], [r, s], rows, depth),
                    ([a, b, c], [r, s, t]) => block_avx512([a, b, c], [r, s, t], rows, depth),
                    // `chunks` hands out one to GROUPS = 3 groups, and `add_chunk` checked that the sums match.
                    _ => {}
                }
            }
        }
    }

    /// Eight tokens × `N` groups, every accumulator in a register.
    ///
    /// # Safety
    /// The processor must have AVX-512 F, and `depth` must be at most `CHUNK`.
    #[target_feature(enable = "avx512f,avx2,fma")]
    #[inline]
    unsafe fn block_avx512<const N: usize>(
        groups: [&Group; N],
        sums: [&mut Sums; N],
        rows: &Rows,
        depth: usize,
    ) {
        let mut chains = [[_mm512_setzero_pd(); N]; ROWS];
        for k in 0..depth {
            // SAFETY: k < CHUNK, so k·LANES + LANES lies within the CHUNK·LANES values of a group,
            // and row·CHUNK + k within the ROWS·CHUNK values of the rows.
            unsafe {
                let weights = groups.map(|group| _mm512_loadu_pd(group.0.as_ptr().add(k * LANES)));
                for (row, chain) in chains.iter_mut().enumerate() {
                    let x = _mm512_set1_pd(*rows.get_unchecked(row * CHUNK + k));
                    for (sum, weight) in chain.iter_mut().zip(weights) {
                        *sum = _mm512_fmadd_pd(x, weight, *sum);
                    }
                }
            }
        }
        for (column, sums) in sums.into_iter().enumerate() {
            for (sum, chain) in sums.as_chunks_mut::<LANES>().0.iter_mut().zip(&chains) {
                // SAFETY: `sum` is LANES = 8 values of f64, the size of the vector.
                unsafe {
                    let total = _mm512_add_pd(_mm512_loadu_pd(sum.as_ptr()), chain[column]);
                    _mm512_storeu_pd(sum.as_mut_ptr(), total);
                }
            }
        }
    }

    /// # Safety
    /// The processor must have AVX2 and FMA, and `depth` must be at most `CHUNK`.
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn add_chunk_avx2(
        rows: &Rows,
        groups: &[Group],
        sums: &mut [Sums],
        depth: usize,
    ) {
        for (group, sums) in groups.iter().zip(sums) {
            for (first, sums) in sums
                .as_chunks_mut::<{ QUAD * LANES }>()
                .0
                .iter_mut()
                .enumerate()
            {
                // SAFETY: the caller vouches for the processor and for `depth`; `first` is 0 or 1.
                unsafe { block_avx2(rows, group, sums, first * QUAD, depth) };
            }
        }
    }

    /// Tokens of one AVX2 block: 4 × 2 accumulators cover the latency of FMA with 16 registers.
    const QUAD: usize = 4;

    /// Four tokens from `first` on × one group.
    ///
    /// # Safety
    /// The processor must have AVX2 and FMA, `depth` must be at most `CHUNK` and `first + QUAD` at most `ROWS`.
    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn block_avx2(
        rows: &Rows,
        group: &Group,
        sums: &mut [f64; QUAD * LANES],
        first: usize,
        depth: usize,
    ) {
        let mut chains = [[_mm256_setzero_pd(); 2]; QUAD];
        for k in 0..depth {
            // SAFETY: k < CHUNK, so k·LANES + LANES lies within the CHUNK·LANES values of the group,
            // and (first + row)·CHUNK + k within the ROWS·CHUNK values of the rows.
            unsafe {
                let weight = group.0.as_ptr().add(k * LANES);
                let weights = [_mm256_loadu_pd(weight), _mm256_loadu_pd(weight.add(4))];
                for (row, chain) in chains.iter_mut().enumerate() {
                    let x = _mm256_set1_pd(*rows.get_unchecked((first + row) * CHUNK + k));
                    for (sum, weight) in chain.iter_mut().zip(weights) {
                        *sum = _mm256_fmadd_pd(x, weight, *sum);
                    }
                }
            }
        }
        for (sum, chain) in sums
            .as_chunks_mut::<4>()
            .0
            .iter_mut()
            .zip(chains.as_flattened())
        {
            // SAFETY: `sum` is four values of f64, the size of the vector.
            unsafe {
                let total = _mm256_add_pd(_mm256_loadu_pd(sum.as_ptr()), *chain);
                _mm256_storeu_pd(sum.as_mut_ptr(), total);
            }
        }
    }

    /// The plain loop, compiled for 512-bit conversions: at N = 24 the baseline's would cost a third of the time.
    ///
    /// # Safety
    /// The processor must have AVX-512 F.
    #[target_feature(enable = "avx512f,avx2,fma")]
    pub(super) unsafe fn widen_avx512(source: &[f32], target: &mut [f64]) {
        super::widen_each(source, target);
    }
}
