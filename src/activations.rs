//! The inputs x: what the residual streams hold when a site mixes them.
//!
//! A row is one token's h streams of d values, flattened stream-major: index = j·d + c. Generated
//! inputs are exact in bf16, the format the streams are stored in, and are keyed by (seed, layer,
//! token): fewer tokens are a prefix of more, and both sites of a layer see the same rows.
//!
//! | name | rows |
//! |---|---|
//! | `normal` | N(0, 1) |
//! | `outlier` | the same, but in row 0 three channels hold, in all streams, one value of 1e3–7e4 each (log-uniform, either sign; streams within 2 %), as a BOS token does in the published traces |
//! | `copies` | one N(0, 1) row for all streams, each of which differs from it by 0.01·N: about one bf16 ulp |
//! | `scaled:S` | S·N(0, 1), S from 1e-3 to 7e4 |
//! | `embedding` | the rows of `embed.weight` of tokens drawn uniformly from the vocabulary, one to a row, as stored; a chain's beginning and no other site's x |
//! | `file:PATH` | recorded: safetensors of BF16, F16 or F32, `layers.N.attn.x` and `layers.N.ffn.x` of [tokens, h, d], or one `x` for all sites that have none of their own; `layers.N.attn.f` and `layers.N.ffn.f` of [tokens, d], the sublayers' outputs, for a chain that takes them from there |

mod recorded;

use std::{fmt, ops::Range, path::PathBuf, str::FromStr};

use ndarray::{Array2, Axis};
use rayon::prelude::*;

use crate::{
    checkpoint::{CheckpointError, Model, Site, StoredType},
    format::{Rounding, bf16},
    random::{Key, Purpose, Stream},
};
use recorded::Recorded;

/// The scales that `scaled:S` accepts.
const SCALES: std::ops::RangeInclusive<f32> = 1e-3..=7e4;

/// The magnitudes of a BOS-like row's outliers.
const OUTLIERS: Range<f64> = 1e3..7e4;

/// How many channels of a BOS-like row are outliers.
const OUTLIER_CHANNELS: usize = 3;

/// How far the streams of `copies` differ, relative to the common row's rms.
const COPY_DISTANCE: f32 = 0.01;

/// A choice of inputs, as named on the command line.
#[derive(Clone, Debug, PartialEq)]
pub enum Inputs {
    /// Independent standard normals.
    Normal,
    /// Normals with one BOS-like row.
    Outlier,
    /// Streams that are nearly the same.
    Copies,
    /// Normals of another scale.
    Scaled(f32),
    /// Embeddings of the checkpoint.
    Embedding,
    /// Recorded activations.
    File(PathBuf),
}

impl fmt::Display for Inputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Normal => f.write_str("normal"),
            Self::Outlier => f.write_str("outlier"),
            Self::Copies => f.write_str("copies"),
            Self::Scaled(scale) => write!(f, "scaled:{scale}"),
            Self::Embedding => f.write_str("embedding"),
            Self::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

impl FromStr for Inputs {
    type Err = ActivationsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || ActivationsError::Unknown(text.to_owned());
        match text {
            "normal" => return Ok(Self::Normal),
            "outlier" => return Ok(Self::Outlier),
            "copies" => return Ok(Self::Copies),
            "embedding" => return Ok(Self::Embedding),
            _ => {}
        }
        match text.split_once(':') {
            Some(("scaled", scale)) => match scale.parse() {
                Ok(scale) if SCALES.contains(&scale) => Ok(Self::Scaled(scale)),
                _ => Err(ActivationsError::Scale(scale.to_owned())),
            },
            Some(("file", path)) if !path.is_empty() => Ok(Self::File(path.into())),
            _ => Err(unknown()),
        }
    }
}

/// Why inputs cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ActivationsError {
    /// Not a name of inputs.
    #[error(
        "there are no inputs {0:?}; choose normal, outlier, copies, embedding, scaled:S with S from \
         1e-3 to 7e4, or file:PATH"
    )]
    Unknown(String),
    /// A scale out of range.
    #[error("scaled:{0} is not a number from 1e-3 to 7e4; choose one, such as scaled:100")]
    Scale(String),
    /// The file of recorded activations cannot be read.
    #[error(transparent)]
    File(#[from] CheckpointError),
    /// The file holds no activations.
    #[error(
        "{path:?} holds no layers.N.attn.x, layers.N.ffn.x or x among its {tensors} tensors; \
         record the streams before hc_pre under these names"
    )]
    NoTensor {
        /// The file.
        path: PathBuf,
        /// How many tensors it holds.
        tensors: usize,
    },
    /// Recorded activations of another model.
    #[error(
        "{tensor:?} in {path:?} has shape {found:?}, expected [tokens, {hc}, {hidden}] for this \
         checkpoint; record the inputs of the same model"
    )]
    WrongShape {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its shape.
        found: Vec<usize>,
        /// The model's streams.
        hc: usize,
        /// The model's hidden size.
        hidden: usize,
    },
    /// Recorded activations of a type that is none.
    #[error("{tensor:?} in {path:?} has dtype {found:?}, expected BF16, F16 or F32; convert it")]
    WrongType {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its dtype.
        found: String,
    },
    /// More tokens than were recorded.
    #[error(
        "{tensor:?} in {path:?} holds {found} tokens, {wanted} are asked for; lower --tokens or \
         leave it out"
    )]
    TooFewTokens {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// How many tokens it holds.
        found: usize,
        /// How many are asked for.
        wanted: usize,
    },
    /// Sublayer outputs are asked for where there is no file.
    #[error(
        "sublayer outputs are recorded ones, but the inputs are {0}; name a file that holds both with --inputs file:PATH"
    )]
    NotRecorded(Inputs),
    /// The file lacks a sublayer's output.
    #[error("{path:?} holds no {tensor:?}; record it, or choose another --sublayer")]
    NoOutput {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
    },
    /// A sublayer's output of another model.
    #[error(
        "{tensor:?} in {path:?} has shape {found:?}, expected [tokens, {hidden}] for this \
         checkpoint; record the outputs of the same model"
    )]
    OutputShape {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its shape.
        found: Vec<usize>,
        /// The model's hidden size.
        hidden: usize,
    },
    /// A recorded sublayer output that every chain would end with.
    #[error(
        "{tensor:?} in {path:?} holds {value} at token {token}, expected finite values; record it again, or lower --tokens to {token}"
    )]
    NonFiniteOutput {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The first token with such a value.
        token: usize,
        /// The value.
        value: f32,
    },
}

/// Inputs ready to be drawn or read.
#[derive(Debug)]
pub struct Activations {
    seed: u64,
    hidden: usize,
    hc: usize,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Generated(Inputs),
    Recorded(Recorded),
    /// The checkpoint's, which whoever begins there reads.
    Embedding,
}

impl Activations {
    /// Prepares inputs for a model; a file's header is read and checked here.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, holds no activations or those of another model.
    pub fn open(inputs: &Inputs, seed: u64, model: &Model) -> Result<Self, ActivationsError> {
        let source = match inputs {
            Inputs::File(path) => Source::Recorded(Recorded::open(path, model)?),
            Inputs::Embedding => Source::Embedding,
            generated => Source::Generated(generated.clone()),
        };
        Ok(Self {
            seed,
            hidden: model.hidden,
            hc: model.hc,
            source,
        })
    }

    /// How many tokens were recorded for a site: `None` if the site is absent. Generated inputs
    /// never end.
    #[must_use]
    pub fn available(&self, layer: u32, site: Site) -> Option<usize> {
        match &self.source {
            Source::Generated(_) => Some(usize::MAX),
            Source::Recorded(recorded) => recorded.available(layer, site),
            Source::Embedding => None,
        }
    }

    /// The format in which the site's x is exact: what it is stored in. `None` if absent.
    #[must_use]
    pub fn exact_in(&self, layer: u32, site: Site) -> Option<StoredType> {
        match &self.source {
            Source::Generated(_) => Some(StoredType::Bf16),
            Source::Recorded(recorded) => recorded.exact_in(layer, site),
            Source::Embedding => None,
        }
    }

    /// Whether both sites of a layer see the same rows, so that they need to be had only once.
    #[must_use]
    pub fn shared_by_sites(&self) -> bool {
        matches!(self.source, Source::Generated(_))
    }

    /// The rows `tokens` of a site's x, [tokens, h·d]; `None` if the file lacks the site.
    ///
    /// # Errors
    ///
    /// If fewer tokens were recorded, or the file cannot be read.
    pub fn tokens(
        &self,
        layer: u32,
        site: Site,
        tokens: Range<usize>,
    ) -> Result<Option<Array2<f32>>, ActivationsError> {
        self.tokens_into(layer, site, tokens, None)
    }

    /// The streams that a chain begins with at `layer`: recorded ones as they are, of drawn ones the first stream,
    /// copied to all, as a model copies an embedding; `None` if the file lacks the site.
    ///
    /// # Errors
    ///
    /// As [`Activations::tokens`].
    pub fn first_streams(
        &self,
        layer: u32,
        tokens: Range<usize>,
    ) -> Result<Option<Array2<f32>>, ActivationsError> {
        let mut x = self.tokens(layer, Site::Attn, tokens)?;
        if let (Source::Generated(_), Some(x)) = (&self.source, &mut x) {
            for mut row in x.rows_mut() {
                let (first, mut others) = row.view_mut().split_at(Axis(0), self.hidden);
                for mut stream in others.axis_chunks_iter_mut(Axis(0), self.hidden) {
                    stream.assign(&first);
                }
            }
        }
        Ok(x)
    }

    /// As [`Activations::tokens`]; generated rows are put into `spare` if it has their shape, since
    /// fresh memory costs as much as the numbers.
    ///
    /// # Errors
    ///
    /// As [`Activations::tokens`].
    pub fn tokens_into(
        &self,
        layer: u32,
        site: Site,
        tokens: Range<usize>,
        spare: Option<Array2<f32>>,
    ) -> Result<Option<Array2<f32>>, ActivationsError> {
        match &self.source {
            Source::Generated(inputs) => {
                let shape = (tokens.len(), self.hc * self.hidden);
                let mut x = spare
                    .filter(|spare| spare.dim() == shape && spare.is_standard_layout())
                    .unwrap_or_else(|| Array2::zeros(shape));
                self.generate(inputs, layer, tokens, &mut x);
                Ok(Some(x))
            }
            Source::Recorded(recorded) => recorded.tokens(layer, site, tokens),
            Source::Embedding => Ok(None),
        }
    }

    /// The ids of the tokens in the rows `tokens`, each drawn from `vocabulary` of them.
    #[must_use]
    pub fn token_ids(&self, vocabulary: usize, tokens: Range<usize>) -> Vec<u64> {
        let id = |row| self.stream(Purpose::Tokens, 0, row).below(vocabulary) as u64;
        tokens.map(id).collect()
    }

    /// The recorded output of a site's sublayer for the first `tokens` tokens, [tokens, d].
    ///
    /// # Errors
    ///
    /// If nothing was recorded, or not this, not of this model, of fewer tokens, or not finite.
    pub fn output(
        &self,
        layer: u32,
        site: Site,
        tokens: usize,
    ) -> Result<Array2<f32>, ActivationsError> {
        match &self.source {
            Source::Recorded(recorded) => recorded.output(layer, site, tokens),
            Source::Generated(inputs) => Err(ActivationsError::NotRecorded(inputs.clone())),
            Source::Embedding => Err(ActivationsError::NotRecorded(Inputs::Embedding)),
        }
    }

    /// Draws every row of x anew.
    fn generate(&self, inputs: &Inputs, layer: u32, tokens: Range<usize>, x: &mut Array2<f32>) {
        x.axis_iter_mut(Axis(0))
            .into_par_iter()
            .enumerate()
            .for_each(|(row, mut values)| {
                // Rows of standard layout are contiguous.
                if let Some(values) = values.as_slice_mut() {
                    self.fill_row(inputs, layer, tokens.start + row, values);
                }
            });
    }

    fn stream(&self, purpose: Purpose, layer: u32, token: usize) -> Stream {
        Stream::new(Key {
            seed: self.seed,
            purpose,
            layer,
            token: token as u64,
        })
    }

    fn fill_row(&self, inputs: &Inputs, layer: u32, token: usize, row: &mut [f32]) {
        let mut common = self.stream(Purpose::Activations, layer, token);
        match inputs {
            Inputs::Copies => {
                let (first, others) = row.split_at_mut(self.hidden);
                common.fill_normal(first);
                for stream in others.chunks_mut(self.hidden) {
                    stream.copy_from_slice(first);
                }
                let mut distance = self.stream(Purpose::Copies, layer, token);
                in_pieces(row, |piece| separate(&mut distance, piece));
            }
            Inputs::Scaled(scale) => in_pieces(row, |piece| {
                common.fill_normal(piece);
                for value in piece {
                    *value *= scale;
                }
            }),
            _ => in_pieces(row, |piece| common.fill_normal(piece)),
        }
        if *inputs == Inputs::Outlier && token == 0 {
            self.plant_outliers(layer, row);
        }
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
                let value = magnitude * stream.uniform(0.99, 1.01);
                row[copy * self.hidden + channel] = stored(value as f32);
            }
        }
    }
}

/// Values made at a time: they are rounded while they are in the nearest cache.
const PIECE: usize = 1024;

/// Makes a row piece by piece, each as it is stored.
fn in_pieces(row: &mut [f32], mut make: impl FnMut(&mut [f32])) {
    for piece in row.chunks_mut(PIECE) {
        make(piece);
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
