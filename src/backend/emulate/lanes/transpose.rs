//! Rows into lanes.
//!
//! `lanes[k][t] = rows[t][k]` for 16 rows of any one length. The vector form takes 16 columns of 8 rows
//! at a time, so that the lines of rows a power of two apart, which share a set of the nearest cache,
//! do not push one another out before their 16 values are used.
#![allow(unsafe_code)]

use ulpdrift_reference::simd::Level;

use super::{LANES, Lane};

/// Transposes 16 rows.
///
/// # Panics
/// If a row has another length than `lanes`.
pub fn transpose(level: Level, rows: &[&[f32]; LANES], lanes: &mut [Lane]) {
    assert!(
        rows.iter().all(|row| row.len() == lanes.len()),
        "rows and lanes must have the same length"
    );
    let done = vectorised(level, rows, lanes);
    for (k, lane) in lanes.iter_mut().enumerate().skip(done) {
        for (value, row) in lane.iter_mut().zip(rows) {
            *value = row[k];
        }
    }
}

/// Transposes the columns that vectors can take and tells how many those are.
fn vectorised(level: Level, rows: &[&[f32]; LANES], lanes: &mut [Lane]) -> usize {
    #[cfg(target_arch = "x86_64")]
    if level.min(Level::detect()) >= Level::Avx2 {
        // SAFETY: `detect` found AVX2 on this processor, and `transpose` checked the lengths.
        return unsafe { x86::transpose_avx2(rows, lanes) };
    }
    let _ = (level, rows, lanes);
    0
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256, _mm_loadu_ps, _mm256_castpd_ps, _mm256_castps_pd, _mm256_castps128_ps256,
        _mm256_insertf128_ps, _mm256_storeu_ps, _mm256_unpackhi_pd, _mm256_unpackhi_ps,
        _mm256_unpacklo_pd, _mm256_unpacklo_ps,
    };

    use super::{LANES, Lane};

    /// Columns of one block: a cache line of every row.
    const COLUMNS: usize = 16;
    /// Columns and rows of one shuffle.
    const QUAD: usize = 4;

    /// Whole blocks of columns; returns how many columns those were.
    ///
    /// # Safety
    /// The processor must have AVX2, and every row must be as long as `lanes`.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn transpose_avx2(rows: &[&[f32]; LANES], lanes: &mut [Lane]) -> usize {
        let (blocks, _) = lanes.as_chunks_mut::<COLUMNS>();
        for (index, block) in blocks.iter_mut().enumerate() {
            for (half, rows) in rows.as_chunks::<8>().0.iter().enumerate() {
                for (quad, lanes) in block.as_chunks_mut::<QUAD>().0.iter_mut().enumerate() {
                    let column = index * COLUMNS + quad * QUAD;
                    // SAFETY: the block's columns end within `lanes`, hence within every row.
                    let columns = unsafe { quad_columns(rows, column) };
                    for (lane, column) in lanes.iter_mut().zip(columns) {
                        // SAFETY: a half is 8 of the lane's 16 values, `half` is 0 or 1.
                        unsafe { _mm256_storeu_ps(lane.as_mut_ptr().add(half * 8), column) };
                    }
                }
            }
        }
        blocks.len() * COLUMNS
    }

    /// Four columns of eight rows, a vector each.
    ///
    /// # Safety
    /// The processor must have AVX2, and every row must reach beyond `column + 3`.
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn quad_columns(rows: &[&[f32]; 8], column: usize) -> [__m256; QUAD] {
        // Rows r and r + 4 side by side, so that all shuffles stay within halves.
        let pair = |r: usize| {
            // SAFETY: the caller vouches for four values from `column` on.
            let [low, high] =
                [rows[r], rows[r + 4]].map(|row| unsafe { _mm_loadu_ps(row.as_ptr().add(column)) });
            _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(low), high)
        };
        let [a, b, c, d] = [pair(0), pair(1), pair(2), pair(3)];
        let (ab, cd) = (_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d));
        let (ab_high, cd_high) = (_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d));
        let low =
            |x, y| _mm256_castpd_ps(_mm256_unpacklo_pd(_mm256_castps_pd(x), _mm256_castps_pd(y)));
        let high =
            |x, y| _mm256_castpd_ps(_mm256_unpackhi_pd(_mm256_castps_pd(x), _mm256_castps_pd(y)));
        [
            low(ab, cd),
            high(ab, cd),
            low(ab_high, cd_high),
            high(ab_high, cd_high),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The oracle is the definition; every length up to three blocks, so that each ragged end occurs.
    #[test]
    fn every_value_lands_where_the_definition_puts_it() {
        for length in 0..=48 {
            let values: Vec<f32> = (0..LANES * length).map(|index| index as f32).collect();
            let rows = std::array::from_fn(|t| &values[t * length..][..length]);
            for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
                let mut lanes = vec![[f32::NAN; LANES]; length];
                transpose(level, &rows, &mut lanes);
                for (k, lane) in lanes.iter().enumerate() {
                    let expected: Lane = std::array::from_fn(|t| (t * length + k) as f32);
                    assert_eq!(lane, &expected, "column {k} of {length}, {level}");
                }
            }
        }
    }
}
