//! A precision variant as data: which operand is rounded to what, on which unit, in which order.
//!
//! [`MixRecipe`] describes the hyper-connection mixing kernel
//!
//! ```text
//! mixes[t,n] = rsqrt(mean_k x[t,k]² + ε) · Σ_k x[t,k]·hc_fn[n,k]      x [T, K], hc_fn [24, K], K = hc·d
//! ```
//!
//! and the split, Sinkhorn and collapse that follow it. Every switch seen in a production kernel is
//! a field; no variant has code of its own. [`Recombine`] describes what follows the sublayer. [`catalogue`] names the production paths, [`user`] reads
//! more of them from TOML, [`splits`] holds the rules that cut K, [`explain`] puts a recipe in words.
//! A new variant is a new entry in the catalogue. [`library`] holds the variants that have no recipe.

pub mod catalogue;
pub mod explain;
pub mod indexer;
pub mod library;
pub mod operands;
pub mod recombine;
pub mod splits;
pub mod user;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{format::Format, tensor_core::Operand};
pub use recombine::{Recombine, RecombineOrder, RecombineRecipe};
pub use splits::SplitRule;

/// How a value is rounded before it enters a multiply unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OperandRounding {
    /// Kept in fp32.
    F32,
    /// TF32, to nearest, ties to even: what the TMA engine does.
    Tf32Nearest,
    /// TF32, to nearest, ties away from zero: `cvt.rna`, CUTLASS, TileKernels.
    Tf32Away,
    /// TF32 by handing raw fp32 bits to the unit, which ignores the low 13.
    Tf32Truncate,
    /// bfloat16, to nearest, ties to even.
    Bf16,
    /// IEEE half, to nearest, ties to even.
    F16,
}

/// The multiply unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// One fused multiply-add per product on the CUDA cores.
    FmaF32,
    /// `mma` m16n8k8 on TF32 operands.
    MmaTf32K8,
    /// `mma` m16n8k16 on bfloat16 operands.
    MmaBf16K16,
    /// `mma` m16n8k16 on half operands.
    MmaF16K16,
}

impl Unit {
    /// The operand format of a matrix unit; `None` for the CUDA cores.
    #[must_use]
    pub fn operand(self) -> Option<Operand> {
        match self {
            Self::FmaF32 => None,
            Self::MmaTf32K8 => Some(Operand::Tf32),
            Self::MmaBf16K16 => Some(Operand::Bf16),
            Self::MmaF16K16 => Some(Operand::F16),
        }
    }

    /// Products per instruction along k.
    #[must_use]
    pub fn k(self) -> usize {
        match self {
            Self::FmaF32 => 1,
            Self::MmaTf32K8 => 8,
            Self::MmaBf16K16 | Self::MmaF16K16 => 16,
        }
    }
}

/// Where the RMS factor is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NormPlacement {
    /// The projection first, its output times the factor.
    After,
    /// x times the factor in fp32 first, then the projection.
    Before,
}

/// The order in which the products of one output are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Order {
    /// One ascending chain per contiguous range of k; the partial sums added ascending in fp32.
    #[serde(rename_all = "kebab-case")]
    Chains {
        /// How many ranges, and where they end.
        splits: SplitRule,
        /// How a partial sum is stored between the chain and the sum of the splits.
        #[serde(default)]
        partials: Storage,
    },
    /// Thread t takes k = t, t + threads, …; then a pairwise tree with strides threads/2, …, 2, 1.
    #[serde(rename_all = "kebab-case")]
    ThreadStrided {
        /// Threads of the block: a power of two.
        threads: usize,
    },
}

/// A format a result is stored in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Storage {
    /// fp32: no rounding.
    #[default]
    F32,
    /// bfloat16, to nearest, ties to even.
    Bf16,
}

impl Storage {
    /// The number format.
    #[must_use]
    pub fn format(self) -> Format {
        match self {
            Self::F32 => Format::F32,
            Self::Bf16 => Format::Bf16,
        }
    }
}

/// The order of the squared sum behind the RMS factor (fp32 throughout).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SquareSum {
    /// One FMA chain per range of the projection, the partial sums added ascending.
    Chains,
    /// DeepGEMM's lanes, per range: lane c adds fma(x₀, x₀, x₁·x₁) of columns 8g+c and 8g+c+4,
    /// g ascending; the lanes meet by xor 2, then xor 1; the ranges are added ascending.
    Lanes4,
    /// Four FMA chains by k mod 4 over the whole row, added ascending.
    Interleave4,
    /// Like [`Order::ThreadStrided`], with its threads.
    ThreadStrided,
}

/// How the sum of squares becomes a mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mean {
    /// Divided by K.
    #[default]
    Divide,
    /// Multiplied by fp32(1/K).
    Reciprocal,
}

/// How the reciprocal root is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Rsqrt {
    /// The correctly rounded reciprocal root (`__frsqrt_rn`).
    #[default]
    Rounded,
    /// 1 / sqrt(v), two roundings.
    SqrtThenDivide,
}

/// Whether a product and the sum it enters are one rounding or two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Contraction {
    /// Fused, as compilers do by default.
    #[default]
    Fma,
    /// Multiply, round, add, round.
    MulAdd,
}

/// How Sinkhorn divides by a row or column sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SinkhornDivision {
    /// A correctly rounded division per element.
    #[default]
    Divide,
    /// One reciprocal, then a product per element.
    Reciprocal,
}

/// Where Sinkhorn's ε enters a sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SinkhornEps {
    /// Added to the finished sum.
    #[default]
    AddAfterSum,
    /// The running sum starts at ε.
    StartSum,
    /// The sum is clamped from below at ε.
    Clamp,
}

/// How the logistic function is evaluated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Sigmoid {
    /// 1 / (1 + exp(−z)).
    #[default]
    Exp,
    /// 1 / (1 + exp2(−z·log₂e)).
    Exp2,
}

/// The projection: everything that decides the bits of stage `dot` before its output is rounded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Projection {
    /// The multiply unit.
    pub unit: Unit,
    /// Rounding of `hc_fn`.
    pub weight: OperandRounding,
    /// Rounding of x (of the normalised x under [`NormPlacement::Before`]). Absent: the weight's
    /// rule where the unit's operand format cannot hold x, none elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x: Option<OperandRounding>,
    /// How many rounded parts stand in for one weight (compensated splits); 1 elsewhere.
    #[serde(default = "one")]
    pub weight_parts: usize,
    /// How many rounded parts stand in for one x; 1 elsewhere.
    #[serde(default = "one")]
    pub x_parts: usize,
    /// Where the RMS factor is applied.
    #[serde(default = "after")]
    pub norm: NormPlacement,
    /// The order of the sum.
    pub order: Order,
    /// The order of the squared sum.
    pub square_sum: SquareSum,
    /// The mean of the squares.
    #[serde(default)]
    pub mean: Mean,
    /// The reciprocal root.
    #[serde(default)]
    pub rsqrt: Rsqrt,
}

fn one() -> usize {
    1
}

fn after() -> NormPlacement {
    NormPlacement::After
}

/// What follows the mixes: split, Sinkhorn and collapse, in fp32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct Epilogue {
    /// mixes·scale + base.
    pub affine: Contraction,
    /// The gates pre and post.
    pub sigmoid: Sigmoid,
    /// The normalisation of comb.
    pub division: SinkhornDivision,
    /// Where ε enters.
    pub eps: SinkhornEps,
    /// Whether the softmax leaves out the subtraction of the row maximum.
    pub skip_row_max: bool,
    /// Σ_j pre_j·x_j, streams ascending.
    pub collapse: Contraction,
}

/// One precision variant of the mixing kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct MixRecipe {
    /// What users call it.
    pub name: String,
    /// One line: what is rounded to what.
    pub summary: String,
    /// Which engine runs it.
    #[serde(default)]
    pub engine: String,
    /// The projection.
    pub projection: Projection,
    /// Format of the projection's output.
    #[serde(default)]
    pub output: Storage,
    /// Format of the output's product with the RMS factor.
    #[serde(default)]
    pub scaled: Storage,
    /// What follows.
    #[serde(default)]
    pub epilogue: Epilogue,
}
