//! The declared directions of a perturbation.

use std::fmt;

use crate::random::{self, Purpose, Stream};

/// The perturbation's norm over that of the streams, token by token.
pub const SIZE: f64 = 1e-3;

/// A direction in which streams are perturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Every stream by itself.
    Independent,
    /// All streams alike: what their convex combinations keep.
    Common,
}

impl Direction {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Independent, Self::Common];

    /// A unit vector over `hc` streams of `width` values, drawn from N(0,1) and normalised.
    #[must_use]
    pub fn draw(self, seed: u64, layer: u32, token: usize, hc: usize, width: usize) -> Vec<f64> {
        let mut stream = Stream::new(random::Key {
            seed,
            purpose: Purpose::Perturbation,
            layer,
            token: token as u64,
        });
        let drawn = match self {
            Self::Independent => hc * width,
            Self::Common => width,
        };
        let mut values: Vec<f64> = (0..drawn).map(|_| stream.normal()).collect();
        if self == Self::Common {
            values = values.repeat(hc);
        }
        let norm = values.iter().map(|value| value * value).sum::<f64>().sqrt();
        values.iter_mut().for_each(|value| *value /= norm);
        values
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Independent => "independent",
            Self::Common => "common",
        })
    }
}
