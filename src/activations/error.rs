//! Why inputs cannot be had: one sentence each.

use std::path::PathBuf;

use super::Inputs;
use crate::checkpoint::CheckpointError;

/// Why inputs cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ActivationsError {
    /// Not a name of inputs.
    #[error(
        "there are no inputs {0:?}; choose normal, outlier, copies, correlated, embedding, scaled:S with \
         S from 1e-3 to 7e4, or file:PATH"
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
        "{path:?} holds no layers.N.attn.x, layers.N.ffn.x or x, and no layers.N.indexer.hidden_states, \
         among its {tensors} tensors; record the streams before hc_pre, or the indexer's inputs, under \
         these names"
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
        "{tensor:?} in {path:?} holds {found} tokens, {wanted} are asked for; lower {flag} or leave it \
         out"
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
        /// What asks for them.
        flag: &'static str,
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
    /// Hidden states are asked for where no layer but a chain's first has any.
    #[error(
        "an indexer's hidden states are not rows of embed.weight, but the inputs are embedding; choose \
         other --inputs, such as correlated"
    )]
    NoEmbeddedHidden,
    /// The file lacks an indexer's hidden states.
    #[error("{path:?} holds no {tensor:?}; record it, or choose other layers or --inputs")]
    NoHidden {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
    },
    /// An indexer's input of another model.
    #[error(
        "{tensor:?} in {path:?} has shape {found:?}, expected [tokens, {width}] for this checkpoint's \
         {what}; record the inputs of the same model"
    )]
    IndexShape {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its shape.
        found: Vec<usize>,
        /// The width expected.
        width: usize,
        /// What is so wide.
        what: &'static str,
    },
    /// An indexer's input that holds no number.
    #[error(
        "{tensor:?} in {path:?} holds {value} at token {token}, channel {channel}; an indexer's truth is no \
         number then, so record it again"
    )]
    NonFiniteIndex {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its row.
        token: usize,
        /// Its column.
        channel: usize,
        /// What is there.
        value: f32,
    },
    /// An indexer's inputs that are not of the same tokens.
    #[error(
        "{tensor:?} in {path:?} holds {found} tokens, but the layer's hidden_states {hidden}; record \
         both in the same pass"
    )]
    OtherTokens {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// How many tokens it holds.
        found: usize,
        /// How many the hidden states hold.
        hidden: usize,
    },
}
