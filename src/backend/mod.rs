//! Executes an operation under a recipe.
//!
//! One trait, a handful of operations. A backend names itself in every report, and the one that ran
//! is the one named: nothing here falls back in silence. [`emulate`] runs on any CPU, [`cuda`] on a GPU.
//! [`tiles`] is the matrix unit alone; [`hardware`] is what only a device can do.
//!
//! Invariant at stage `dot`: for the same inputs, recipe and arch every backend gives the same bits.

pub mod cuda;
pub mod emulate;
pub mod hardware;
pub mod tiles;

use std::ops::Range;

use ndarray::{Array1, Array2, ArrayView2, CowArray, Ix2, s};
use thiserror::Error;

use self::{cuda::error::CudaError, hardware::Hardware};
use crate::{
    format::Format,
    recipe::{
        Epilogue, MixRecipe, Recombine,
        indexer::{IndexRecipe, Operands, QueryOperands, Selector},
        splits::Launch,
    },
    tensor_core::{Arch, Family, Instruction, Rule, arch::NoSuchInstruction},
};

/// Why a backend could not run an operation.
#[derive(Debug, Error)]
pub enum BackendError {
    /// The emulated arch has no such instruction.
    #[error("recipe '{recipe}' cannot run on {arch}: {reason}; choose another --arch")]
    Unsupported {
        /// The recipe.
        recipe: String,
        /// The arch.
        arch: Arch,
        /// What it lacks.
        reason: String,
    },
    /// The device, its driver or its compiler.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// The emulator is asked for what only a device can do.
    #[error("{what} needs a device, and the emulator is none; use --backend cuda")]
    NoHardware {
        /// What was asked for.
        what: String,
    },
    /// There is no kernel of ours for the operation.
    #[error("{what} has no kernel for a device; use --backend emulate")]
    NoKernel {
        /// The operation.
        what: String,
    },
}

/// The rule of the matrix instruction that `recipe` runs on `arch`; `None` on the CUDA cores.
///
/// # Errors
/// The arch lacks the instruction.
pub fn matrix_rule(arch: Arch, recipe: &MixRecipe) -> Result<Option<Rule>, BackendError> {
    let unit = recipe.projection.unit;
    let Some(operand) = unit.operand() else {
        return Ok(None);
    };
    let instruction = Instruction {
        family: Family::MmaSync,
        operand,
        k: unit.k(),
    };
    instruction_rule(arch, &recipe.name, instruction).map(Some)
}

/// The rule of an instruction that `recipe` needs on `arch`.
///
/// # Errors
/// The arch lacks the instruction.
pub fn instruction_rule(
    arch: Arch,
    recipe: &str,
    instruction: Instruction,
) -> Result<Rule, BackendError> {
    let unsupported = |error: NoSuchInstruction| BackendError::Unsupported {
        recipe: recipe.to_owned(),
        arch,
        reason: error.to_string(),
    };
    arch.rule(instruction).map_err(unsupported)
}

/// What a report says about the backend that ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendInfo {
    /// `emulate` or `cuda`.
    pub name: &'static str,
    /// The arch whose arithmetic ran.
    pub arch: Arch,
    /// The device, if one ran.
    pub device: Option<DeviceInfo>,
}

/// What a report says about a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its marketing name.
    pub name: String,
    /// What the driver supports.
    pub driver: String,
    /// The compiler's version.
    pub nvrtc: String,
    /// Files of kernels that are the user's own.
    pub replaced: Vec<String>,
}

/// The layer input of a batch, fp32 and unrounded [T, d], as a backend gives it: what a processor
/// makes in less time than it takes to fetch is made a few rows at a time, a device makes all at once.
pub enum LayerInput<'a> {
    /// All rows.
    Whole(Array2<f32>),
    /// Any rows, any number of times.
    ByRows(Box<dyn Fn(Range<usize>) -> Array2<f32> + Sync + 'a>),
}

impl LayerInput<'_> {
    /// The rows of some tokens.
    #[must_use]
    pub fn rows(&self, tokens: Range<usize>) -> CowArray<'_, f32, Ix2> {
        match self {
            Self::Whole(rows) => rows.slice(s![tokens, ..]).into(),
            Self::ByRows(rows) => rows(tokens).into(),
        }
    }
}

/// The inputs of the mixing projection.
#[derive(Clone, Copy, Debug)]
pub struct MixInputs<'a> {
    /// The flattened streams [T, K], exactly as stored.
    pub x: ArrayView2<'a, f32>,
    /// A format that holds every value of x, as far as is known.
    pub x_exact_in: Format,
    /// `hc_fn` [N, K], exactly as stored.
    pub function: ArrayView2<'a, f32>,
    /// ε inside the root of the RMS.
    pub norm_eps: f64,
    /// The batch and device the split rules see. A caller may hand over a slice of a batch: rows do
    /// not depend on each other, so each gets the bits it has in the whole one.
    pub launch: Launch,
}

/// The outputs of the mixing projection.
#[derive(Clone, Debug)]
pub struct Mix {
    /// The projection's stored output [T, N], before the RMS factor.
    pub dot: Array2<f32>,
    /// The mixes [T, N].
    pub mixes: Array2<f32>,
    /// The fp32 RMS factor `[T]`.
    pub rms: Array1<f32>,
    /// Ranges K was cut into.
    pub splits: usize,
}

/// The parameters of the split: hc streams, 2·hc + hc² mixes.
#[derive(Clone, Copy, Debug)]
pub struct SplitInputs<'a> {
    /// The mixes [T, (2 + hc)·hc], packed pre, post, comb.
    pub mixes: ArrayView2<'a, f32>,
    /// One scale each for pre, post and comb.
    pub scale: [f32; 3],
    /// One offset per mix.
    pub base: &'a [f32],
    /// Streams.
    pub hc: usize,
    /// Column normalisations of Sinkhorn.
    pub iters: u32,
    /// Sinkhorn's ε, also added to pre.
    pub eps: f64,
}

/// The gates and the combination matrix.
#[derive(Clone, Debug)]
pub struct Split {
    /// Weights of the collapse [T, hc].
    pub pre: Array2<f32>,
    /// Weights of the sublayer's output [T, hc].
    pub post: Array2<f32>,
    /// Row-major combination matrix [T, hc·hc].
    pub comb: Array2<f32>,
}

/// The inputs of the recombination, all of the same tokens. A caller may hand over a slice of a batch:
/// rows do not depend on each other.
#[derive(Clone, Copy, Debug)]
pub struct RecombineInputs<'a> {
    /// The flattened streams [T, hc·d] that the layer input was made of, exactly as stored.
    pub x: ArrayView2<'a, f32>,
    /// A format that holds every value of x.
    pub x_exact_in: Format,
    /// The sublayer's output [T, d], exactly as stored.
    pub f: ArrayView2<'a, f32>,
    /// A format that holds every value of f.
    pub f_exact_in: Format,
    /// Weights of the sublayer's output [T, hc].
    pub post: ArrayView2<'a, f32>,
    /// Row-major combination matrix [T, hc·hc]; its rows are contracted.
    pub comb: ArrayView2<'a, f32>,
}

/// Something that executes recipes.
pub trait Backend: Sync {
    /// What it is.
    fn info(&self) -> BackendInfo;

    /// What it can do beyond executing recipes; nothing unless it is a device.
    fn hardware(&self) -> Option<&dyn Hardware> {
        None
    }

    /// `mixes = rms(x) · x·hc_fnᵀ` under `recipe`.
    ///
    /// # Errors
    /// The arch lacks the recipe's instruction.
    fn mix(&self, recipe: &MixRecipe, inputs: &MixInputs<'_>) -> Result<Mix, BackendError>;

    /// Gates and Sinkhorn.
    ///
    /// # Errors
    /// A device that fails.
    fn split_sinkhorn<'a>(
        &self,
        epilogue: &'a Epilogue,
        inputs: &SplitInputs<'a>,
    ) -> Result<Split, BackendError>;

    /// `y[t,c] = Σ_j pre[t,j]·x[t, j·d + c]`, fp32 and unrounded [T, d]. `x_exact_in` is a format that
    /// holds every value of x.
    ///
    /// # Errors
    /// A device that fails.
    fn collapse<'a>(
        &'a self,
        epilogue: &'a Epilogue,
        pre: ArrayView2<'a, f32>,
        x: ArrayView2<'a, f32>,
        x_exact_in: Format,
    ) -> Result<LayerInput<'a>, BackendError>;

    /// `X'[t, k·d + c] = post[t,k]·f[t,c] + Σ_j comb[t, j·hc + k]·x[t, j·d + c]`, fp32 and unrounded
    /// [T, hc·d].
    ///
    /// # Errors
    /// A device that fails.
    fn recombine(
        &self,
        recombine: &Recombine,
        inputs: &RecombineInputs<'_>,
    ) -> Result<Array2<f32>, BackendError>;

    /// The logits [Q, N] of all queries and keys, as `recipe` stores them; which keys a query may see is the
    /// caller's matter.
    ///
    /// # Errors
    /// The arch lacks the recipe's instruction, or a device that fails.
    fn index_logits(
        &self,
        recipe: &IndexRecipe,
        queries: &QueryOperands,
        keys: &Operands,
    ) -> Result<Array2<f32>, BackendError>;

    /// The `k` keys that `selector` takes of each row of `logits` [Q, N], of its first `visible` slots: all where there
    /// are no more than k.
    ///
    /// # Errors
    /// A device that fails.
    fn top_k(
        &self,
        selector: Selector,
        logits: ArrayView2<'_, f32>,
        visible: &[usize],
        k: usize,
    ) -> Result<Vec<Vec<u32>>, BackendError>;
}
