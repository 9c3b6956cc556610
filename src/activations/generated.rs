//! Rows drawn by seed, layer and token.
//!
//! A row of `correlated` is that of `normal`, mixed with what it shares with its neighbours:
//!
//! ```text
//! x_t = √0.45·A[⌊t/61⌋] + √0.35·B[⌊t/7⌋] + √0.2·n_t        A, B, n ~ N(0, 1), independent by channel
//! ```
//!
//! Each value of A, B, n and each root is rounded to f32, products and the two sums (from the left) too, and the
//! result to bf16.

use ndarray::{Array2, Axis};
use rayon::prelude::*;

use super::Inputs;
use crate::{
    format::{Rounding, bf16},
    random::{Key, Purpose, Stream},
};

/// The magnitudes of a BOS-like row's outliers.
const OUTLIERS: std::ops::Range<f64> = 1e3..7e4;

/// How many channels of a BOS-like row are outliers.
const OUTLIER_CHANNELS: usize = 3;

/// How far the streams of `copies` differ, relative to the common row's rms.
const COPY_DISTANCE: f32 = 0.01;

/// Tokens of a passage and of a phrase of `correlated`. Coprime with each other and with the four tokens of a key, so
/// that keys lie in them in every way.
const PASSAGE: usize = 61;
const PHRASE: usize = 7;

/// Shares of the variance that a token has from its passage, from its phrase and from itself.
const PASSAGE_SHARE: f64 = 0.45;
const PHRASE_SHARE: f64 = 0.35;
const OWN_SHARE: f64 = 0.2;

/// Draws rows of one choice of inputs.
#[derive(Debug)]
pub(super) struct Generated {
    pub(super) inputs: Inputs,
    pub(super) seed: u64,
    pub(super) hidden: usize,
    pub(super) hc: usize,
}

/// Opens the stream of a token, or of a run of tokens.
pub(super) fn stream(seed: u64, purpose: Purpose, layer: u32, token: usize) -> Stream {
    Stream::new(Key {
        seed,
        purpose,
        layer,
        token: token as u64,
    })
}

/// What a worker remembers from one row to the next.
#[derive(Default)]
struct Common {
    /// The phrase and passage that `values` belong to.
    of: Option<[usize; 2]>,
    /// √0.45·A + √0.35·B.
    values: Vec<f32>,
    /// √0.45·A, and the passage that it belongs to.
    passage: (Option<usize>, Vec<f32>),
}

impl Generated {
    /// Draws the rows from token `first` on. A row shorter than h·d is the beginning of the whole one: one of d is
    /// its first stream.
    pub(super) fn fill(&self, layer: u32, first: usize, x: &mut Array2<f32>) {
        x.axis_iter_mut(Axis(0))
            .into_par_iter()
            .enumerate()
            .for_each_init(Common::default, |common, (row, mut values)| {
                // Rows of standard layout are contiguous.
                if let Some(values) = values.as_slice_mut() {
                    self.fill_row(layer, first + row, values, common);
                }
            });
    }

    fn stream(&self, purpose: Purpose, layer: u32, token: usize) -> Stream {
        stream(self.seed, purpose, layer, token)
    }

    fn fill_row(&self, layer: u32, token: usize, row: &mut [f32], common: &mut Common) {
        let mut own = self.stream(Purpose::Activations, layer, token);
        match self.inputs {
            Inputs::Copies => {
                let (first, others) = row.split_at_mut(self.hidden);
                own.fill_normal(first);
                for stream in others.chunks_mut(self.hidden) {
                    stream.copy_from_slice(first);
                }
                let mut distance = self.stream(Purpose::Copies, layer, token);
                in_pieces(row, |_, piece| separate(&mut distance, piece));
            }
            Inputs::Scaled(scale) => in_pieces(row, |_, piece| {
                own.fill_normal(piece);
                for value in piece {
                    *value *= scale;
                }
            }),
            Inputs::Correlated => {
                self.turn_to(layer, token, row.len(), common);
                let share = OWN_SHARE.sqrt() as f32;
                in_pieces(row, |at, piece| {
                    own.fill_normal(piece);
                    for (value, common) in piece.iter_mut().zip(&common.values[at..]) {
                        *value = common + share * *value;
                    }
                });
            }
            _ => in_pieces(row, |_, piece| own.fill_normal(piece)),
        }
        if self.inputs == Inputs::Outlier && token == 0 {
            self.plant_outliers(layer, row);
        }
    }

    /// Makes what a token has in common with its neighbours, unless it is that of the row before.
    fn turn_to(&self, layer: u32, token: usize, width: usize, common: &mut Common) {
        let [phrase, passage] = [token / PHRASE, token / PASSAGE];
        if common.of == Some([phrase, passage]) {
            return;
        }
        let draw = |purpose, segment, share: f64, values: &mut Vec<f32>| {
            values.resize(width, 0.0);
            self.stream(purpose, layer, segment).fill_normal(values);
            let share = share.sqrt() as f32;
            values.iter_mut().for_each(|value| *value *= share);
        };
        let (drawn, passages) = &mut common.passage;
        if *drawn != Some(passage) {
            draw(Purpose::Passages, passage, PASSAGE_SHARE, passages);
            *drawn = Some(passage);
        }
        draw(Purpose::Phrases, phrase, PHRASE_SHARE, &mut common.values);
        for (value, passage) in common.values.iter_mut().zip(passages) {
            *value += *passage;
        }
        common.of = Some([phrase, passage]);
    }

    /// Puts three channels of a BOS-like token far out, in all streams alike.
    fn plant_outliers(&self, layer: u32, row: &mut [f32]) {
        let mut stream = self.stream(Purpose::Outlier, layer, 0);
        let (low, high) = (
            libm::log(OUTLIERS.start * 1.02),
            libm::log(OUTLIERS.end / 1.02),
        );
        let mut channels = Vec::with_capacity(OUTLIER_CHANNELS);
        while channels.len() < OUTLIER_CHANNELS.min(self.hidden) {
            let channel = stream.below(self.hidden);
            if channels.contains(&channel) {
                continue;
            }
            channels.push(channel);
            let sign = if stream.below(2) == 0 { 1.0 } else { -1.0 };
            let magnitude = sign * libm::exp(stream.uniform(low, high));
            for copy in 0..self.hc {
                // Drawn for streams that a short row lacks as well: its channels are those of the whole row.
                let value = magnitude * stream.uniform(0.99, 1.01);
                if let Some(place) = row.get_mut(copy * self.hidden + channel) {
                    *place = stored(value as f32);
                }
            }
        }
    }
}

/// Values made at a time: they are rounded while they are in the nearest cache.
const PIECE: usize = 1024;

/// Makes a row piece by piece, each as it is stored; `make` is told where in the row a piece begins.
fn in_pieces(row: &mut [f32], mut make: impl FnMut(usize, &mut [f32])) {
    for (number, piece) in row.chunks_mut(PIECE).enumerate() {
        make(number * PIECE, piece);
        for value in piece {
            *value = stored(*value);
        }
    }
}

/// Moves values of a stream a little way from the common row.
fn separate(distance: &mut Stream, values: &mut [f32]) {
    let mut distances = [0.0_f32; PIECE];
    let distances = &mut distances[..values.len()];
    distance.fill_normal(distances);
    for (value, distance) in values.iter_mut().zip(distances) {
        *value += COPY_DISTANCE * *distance;
    }
}

/// A value as the streams hold it.
fn stored(value: f32) -> f32 {
    bf16::round_f32(value, Rounding::NearestEven)
}
