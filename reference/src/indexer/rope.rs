//! Rotary position embedding of adjacent pairs.
//!
//! Pair j, values 2j and 2j + 1 of the rotated ones, turns by the angle position·f_j:
//! `(a·cos − b·sin, a·sin + b·cos)`. Plain, `f_j = theta^(−2j/dims)`. YaRN divides by its factor the
//! frequencies that turn slowly and leaves the fast ones, with a linear ramp from pair `low` to pair `high`:
//! ```text
//! turns(β) = dims·ln( original / (2π·β) ) / (2·ln theta)    the pair that makes β turns in the original context
//! low, high = ⌊turns(beta_fast)⌋, ⌈turns(beta_slow)⌉        kept within 0 and dims − 1
//! ramp_j   = clamp( (j − low)/(high − low), 0, 1 )          0.001 for a difference of 0
//! f'_j     = f_j/factor·ramp_j + f_j·(1 − ramp_j)
//! ```
//! The amplitude stays 1. Angles are in radians; an angle of 2·10⁵ is known to about 3·10⁻¹¹, which is f64's
//! own spacing there.

use std::f64::consts::PI;

/// How YaRN stretches the context.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Yarn {
    /// How much longer the context gets (`factor`).
    pub factor: f64,
    /// Positions the model was first trained on (`original_max_position_embeddings`).
    pub original_positions: usize,
    /// Turns in the original context from which on a pair is left as it is (`beta_fast`).
    pub beta_fast: f64,
    /// Turns below which a pair is slowed by the whole factor (`beta_slow`).
    pub beta_slow: f64,
}

/// The frequencies of one rotary embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    frequencies: Vec<f64>,
}

impl Rope {
    /// The embedding of `dims` values, base `theta`.
    ///
    /// # Panics
    /// If dims is odd.
    #[must_use]
    pub fn new(theta: f64, dims: usize, yarn: Option<Yarn>) -> Self {
        assert!(dims.is_multiple_of(2), "rope turns pairs");
        let plain = |pair: usize| libm::pow(theta, -((2 * pair) as f64) / dims as f64);
        let frequencies = (0..dims / 2).map(|pair| match yarn {
            None => plain(pair),
            Some(yarn) => {
                let (frequency, ramp) = (plain(pair), yarn.ramp(theta, dims, pair));
                frequency / yarn.factor * ramp + frequency * (1.0 - ramp)
            }
        });
        Self {
            frequencies: frequencies.collect(),
        }
    }

    /// Radians per position of each pair.
    #[must_use]
    pub fn frequencies(&self) -> &[f64] {
        &self.frequencies
    }

    /// Cosine and sine of each pair's angle at `position`.
    pub fn cos_sin(&self, position: usize) -> impl Iterator<Item = (f64, f64)> {
        self.frequencies.iter().map(move |frequency| {
            let angle = position as f64 * frequency;
            (libm::cos(angle), libm::sin(angle))
        })
    }

    /// Rotates the last values of a row to `position`.
    ///
    /// # Panics
    /// If the row is shorter than what is to be rotated.
    pub fn rotate(&self, row: &mut [f64], position: usize) {
        let dims = 2 * self.frequencies.len();
        assert!(row.len() >= dims, "a row must hold the rotated values");
        let first = row.len() - dims;
        let (pairs, _) = row[first..].as_chunks_mut::<2>();
        for ([a, b], (cos, sin)) in pairs.iter_mut().zip(self.cos_sin(position)) {
            (*a, *b) = (*a * cos - *b * sin, *a * sin + *b * cos);
        }
    }
}

impl Yarn {
    /// How much of the factor a pair gets: 0 none, 1 all.
    fn ramp(&self, theta: f64, dims: usize, pair: usize) -> f64 {
        let turns = |beta: f64| {
            let ratio = self.original_positions as f64 / (beta * 2.0 * PI);
            dims as f64 * libm::log(ratio) / (2.0 * libm::log(theta))
        };
        let low = libm::floor(turns(self.beta_fast)).max(0.0);
        let high = libm::ceil(turns(self.beta_slow)).min(dims as f64 - 1.0);
        let width = if high == low { 0.001 } else { high - low };
        ((pair as f64 - low) / width).clamp(0.0, 1.0)
    }
}
