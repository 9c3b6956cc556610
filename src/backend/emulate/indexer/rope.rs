//! Rotary positions: pairs of neighbouring channels turned by an angle that grows with the position.
//!
//! ```text
//! angle = position · frequency_j          (a, b) → (a·cos − b·sin, a·sin + b·cos)
//! ```
//!
//! Angle, cos and sin in f64, cos and sin rounded once to fp32; each product is rounded, then the sum. Pair j is
//! channels 2j and 2j + 1 of the turned half. Frequencies are radians per position.

use rayon::prelude::*;

/// The channels of a row that rope turns; there are twice as many as frequencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeHalf {
    /// The last ones, as the model does.
    Last,
    /// The first ones: a bug that shipped.
    First,
}

/// cos and sin of every pair at one position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Turn {
    cos: f32,
    sin: f32,
}

/// The turns of one position.
pub(super) fn turns(position: usize, frequencies: &[f64]) -> impl Iterator<Item = Turn> + '_ {
    frequencies.iter().map(move |frequency| {
        let (sin, cos) = libm::sincos(position as f64 * frequency);
        Turn {
            cos: cos as f32,
            sin: sin as f32,
        }
    })
}

/// Turns one row.
pub(super) fn turn(row: &mut [f32], turns: &[Turn], half: RopeHalf) {
    let first = match half {
        RopeHalf::Last => row.len() - 2 * turns.len(),
        RopeHalf::First => 0,
    };
    let (pairs, _) = row[first..].as_chunks_mut::<2>();
    for (pair, Turn { cos, sin }) in pairs.iter_mut().zip(turns) {
        let [a, b] = *pair;
        *pair = [a * cos - b * sin, a * sin + b * cos];
    }
}

/// Turns the rows of `values`, `width` long: as many in a row share a position as there are rows per position.
///
/// # Panics
/// There are more than width/2 frequencies.
pub fn rotate(
    values: &mut [f32],
    width: usize,
    positions: &[usize],
    frequencies: &[f64],
    half: RopeHalf,
) {
    assert!(
        2 * frequencies.len() <= width,
        "rope turns {} of {width} channels",
        2 * frequencies.len()
    );
    let per_position = values.len() / positions.len().max(1);
    values
        .par_chunks_mut(per_position.max(1))
        .zip(positions)
        .for_each(|(rows, &position)| {
            let turns: Vec<Turn> = turns(position, frequencies).collect();
            for row in rows.chunks_mut(width) {
                turn(row, &turns, half);
            }
        });
}
