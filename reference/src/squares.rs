//! The sum of a row's squares, where both the rms factor and the certificate need it.
//!
//! Squares of f32 values are exact in f64 and cannot overflow it. They are added in blocks of 128, each
//! in 16 lanes (k mod 16) that are then folded in halves; block sums are added in ascending order from
//! +0. The order is fixed, and lanes are wide enough for any vector width to keep its pipelines full.

/// Lanes of a block.
const LANES: usize = 16;
/// Terms of a block: eight per lane.
const BLOCK: usize = 128;

/// `Σ_k row[k]²`.
pub(crate) fn sum_of_squares(row: &[f32]) -> f64 {
    row.chunks(BLOCK)
        .fold(0.0, |total, block| total + block_sum(block))
}

fn block_sum(block: &[f32]) -> f64 {
    let mut lanes = [0.0; LANES];
    for terms in block.chunks(LANES) {
        for (lane, &term) in lanes.iter_mut().zip(terms) {
            *lane += f64::from(term) * f64::from(term);
        }
    }
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0]
}
