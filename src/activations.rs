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
//! | `correlated` | √0.45·A + √0.35·B + √0.2·N(0, 1), A ~ N(0, 1) common to passages of 61 tokens and B to phrases of 7: tokens of one passage have cosine 0.45, of one phrase 0.8 |
//! | `scaled:S` | S·N(0, 1), S from 1e-3 to 7e4 |
//! | `embedding` | the rows of `embed.weight` of tokens drawn uniformly from the vocabulary, one to a row, as stored; a chain's beginning and no other site's x |
//! | `file:PATH` | recorded: safetensors of BF16, F16 or F32, `layers.N.attn.x` and `layers.N.ffn.x` of [tokens, h, d], or one `x` for all sites that have none of their own; `layers.N.attn.f` and `layers.N.ffn.f` of [tokens, d], the sublayers' outputs, for a chain that takes them from there |
//!
//! An indexer starts from hidden states, [tokens, d]: drawn ones are the first stream of the rows above, before
//! `attn_norm` (`embedding` has none); recorded ones are `layers.N.indexer.hidden_states`, after it, and
//! `layers.N.indexer.q_residual` of [tokens, R], after `q_norm`, which may be left out.
//!
//! `correlated` is there because a text is not a row of independent tokens, which flatter a selection: a token's
//! neighbours resemble it, so that the keys around one that a query is after score nearly as high as it does, and the
//! cut falls among keys that an error can exchange.

mod error;
mod generated;
mod recorded;

use std::{fmt, ops::Range, path::PathBuf, str::FromStr};

use ndarray::{Array2, Axis};

use crate::{
    checkpoint::{Model, Site, StoredType},
    random::Purpose,
};
pub use error::ActivationsError;
use generated::Generated;
use recorded::Recorded;

/// The scales that `scaled:S` accepts.
const SCALES: std::ops::RangeInclusive<f32> = 1e-3..=7e4;

/// A choice of inputs, as named on the command line.
#[derive(Clone, Debug, PartialEq)]
pub enum Inputs {
    /// Independent standard normals.
    Normal,
    /// Normals with one BOS-like row.
    Outlier,
    /// Streams that are nearly the same.
    Copies,
    /// Normals that neighbouring tokens have in part in common.
    Correlated,
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
            Self::Correlated => f.write_str("correlated"),
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
            "correlated" => return Ok(Self::Correlated),
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

/// Inputs ready to be drawn or read.
#[derive(Debug)]
pub struct Activations {
    seed: u64,
    hidden: usize,
    hc: usize,
    source: Source,
}

/// What a layer's indexer can start from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexSource {
    /// How many tokens; generated ones never end.
    pub tokens: usize,
    /// Whether the hidden states have been through `attn_norm`, as recorded ones have.
    pub normed: bool,
    /// The format in which the hidden states are exact.
    pub hidden: StoredType,
    /// The format in which the low-rank query is exact, where it was recorded beside them.
    pub latent: Option<StoredType>,
}

#[derive(Debug)]
enum Source {
    Generated(Generated),
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
            generated => Source::Generated(Generated {
                inputs: generated.clone(),
                seed,
                hidden: model.hidden,
                hc: model.hc,
            }),
        };
        Ok(Self {
            seed,
            hidden: model.hidden,
            hc: model.hc,
            source,
        })
    }

    /// What tells a file of inputs from another of the same name, without reading all of it; nothing where inputs are
    /// generated.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn fingerprint(&self) -> Result<Option<String>, ActivationsError> {
        match &self.source {
            Source::Recorded(recorded) => recorded.fingerprint().map(Some),
            Source::Generated(_) | Source::Embedding => Ok(None),
        }
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
            Source::Generated(generated) => {
                let shape = (tokens.len(), self.hc * self.hidden);
                let mut x = spare
                    .filter(|spare| spare.dim() == shape && spare.is_standard_layout())
                    .unwrap_or_else(|| Array2::zeros(shape));
                generated.fill(layer, tokens.start, &mut x);
                Ok(Some(x))
            }
            Source::Recorded(recorded) => recorded.tokens(layer, site, tokens),
            Source::Embedding => Ok(None),
        }
    }

    /// The ids of the tokens in the rows `tokens`, each drawn from `vocabulary` of them.
    #[must_use]
    pub fn token_ids(&self, vocabulary: usize, tokens: Range<usize>) -> Vec<u64> {
        let id = |row| {
            let mut stream = generated::stream(self.seed, Purpose::Tokens, 0, row);
            stream.below(vocabulary) as u64
        };
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
            Source::Generated(generated) => {
                Err(ActivationsError::NotRecorded(generated.inputs.clone()))
            }
            Source::Embedding => Err(ActivationsError::NotRecorded(Inputs::Embedding)),
        }
    }

    /// What the indexer of a layer can start from; `None` where there is nothing: the file lacks its hidden states,
    /// or the inputs are `embedding`.
    ///
    /// # Errors
    ///
    /// If what was recorded is of another type or another model, or not of the same tokens.
    pub fn index_source(&self, layer: u32) -> Result<Option<IndexSource>, ActivationsError> {
        match &self.source {
            Source::Generated(_) => Ok(Some(IndexSource {
                tokens: usize::MAX,
                normed: false,
                hidden: StoredType::Bf16,
                latent: None,
            })),
            Source::Recorded(recorded) => recorded.index_source(layer),
            Source::Embedding => Ok(None),
        }
    }

    /// The hidden states `tokens` that a layer's indexer starts from, [tokens, d]: before `attn_norm`, or after it
    /// where [`IndexSource::normed`].
    ///
    /// # Errors
    ///
    /// As [`Activations::index_source`], if there are none, or not so many, or the file cannot be read.
    pub fn hidden_states(
        &self,
        layer: u32,
        tokens: Range<usize>,
    ) -> Result<Array2<f32>, ActivationsError> {
        match &self.source {
            Source::Generated(generated) => {
                let mut rows = Array2::zeros((tokens.len(), self.hidden));
                generated.fill(layer, tokens.start, &mut rows);
                Ok(rows)
            }
            Source::Recorded(recorded) => recorded.index_hidden(layer, tokens),
            Source::Embedding => Err(ActivationsError::NoEmbeddedHidden),
        }
    }

    /// The recorded low-rank queries of `tokens`, [tokens, R], after `q_norm`; `None` where they follow from the
    /// hidden states.
    ///
    /// # Errors
    ///
    /// As [`Activations::hidden_states`].
    pub fn index_latent(
        &self,
        layer: u32,
        tokens: Range<usize>,
    ) -> Result<Option<Array2<f32>>, ActivationsError> {
        match &self.source {
            Source::Recorded(recorded) => recorded.index_latent(layer, tokens),
            Source::Generated(_) | Source::Embedding => Ok(None),
        }
    }
}
