//! A precision variant of the lightning indexer as data, from the hidden states to the selection.
//!
//! ```text
//! S[t,i] = kscale_i · Σ_h w[t,h] · relu(q[t,h,:]·k[i,:])        q [T, H, W], k [N, W], w [T, H], W = 128
//! ```
//!
//! [`IndexRecipe`] says what every engine decides for itself: which linears run in FP8, where a value is rounded on
//! its way, whether a Hadamard rotation comes before the quantiser, the formats of q and k and of their scales, the
//! unit that multiplies, what is rounded between the dot and the logit, the order of the heads, and how the keys are
//! selected. [`catalogue`] names the production paths, [`explain`] puts a recipe in words. What no recipe decides
//! (the order of the sums upstream, how exp and rsqrt are rounded) is written down once, in
//! [`backend::emulate::indexer`](crate::backend::emulate::indexer).

pub mod catalogue;
pub mod explain;
pub mod operands;
pub mod problem;
pub mod quantise;
pub mod reduce;
pub mod selector;
pub mod user;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Storage;
use crate::{
    format::Format,
    tensor_core::{
        Arch, Family, Instruction, Operand,
        block_scaled::{Kind, ScaledInstruction},
    },
};
pub use operands::{Operands, QueryOperands};
pub use reduce::{HeadOrder, Reduce, Reduction, Relu, ScalePosition};
pub use selector::Selector;

/// How the linears of the query path (`wq_a`, `indexer.wq_b`, `weights_proj`) run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Linears {
    /// As stored: the input quantised to e4m3 in blocks of 128 with ue8m0 scales, the arch's FP8 unit, a bf16 result.
    /// Weights that are not stored in FP8 multiply as they are, and the result is bf16 as well.
    Fp8,
    /// The dequantised weight in fp32, the input as it is, an fp32 result.
    Fp32,
}

/// Scale of a block of e4m3 codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ScaleFormat {
    /// amax/448 in fp32: no power of two.
    F32,
    /// The power of two at or above it.
    Ue8m0,
}

/// How a quantiser brings a value into its block's scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Scaling {
    /// x / scale, one rounding.
    Divide,
    /// x · (1 / scale), two roundings.
    Reciprocal,
}

/// What becomes of a value halfway between two e2m1 codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Ties {
    /// To the even code, as `cvt.rn` does.
    Even,
    /// Toward zero, as a quantiser made of comparisons does.
    TowardZero,
}

/// The least amax of a block of FP4 codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Floor {
    /// 6·2⁻¹²⁶: the scale is never below the least normal number.
    LeastNormal,
    /// 1e-4.
    TenThousandth,
}

impl Floor {
    /// The number, fp32.
    #[must_use]
    pub fn value(self) -> f32 {
        match self {
            Self::LeastNormal => 6.0 * f32::MIN_POSITIVE,
            Self::TenThousandth => 1e-4,
        }
    }
}

/// What multiplies: codes with their scales apart, or the values that they stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Held {
    /// Codes; the scales enter elsewhere.
    Codes,
    /// code · scale, rounded to bf16: quantisation as a round trip.
    Values,
}

/// The number format of q or k.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Quantiser {
    /// fp32: nothing.
    F32,
    /// TF32, nearest, ties to even.
    Tf32,
    /// bfloat16.
    Bf16,
    /// IEEE half.
    F16,
    /// OCP e4m3, amax at least 1e-4.
    #[serde(rename_all = "kebab-case")]
    E4m3 {
        /// The scale's format.
        scale: ScaleFormat,
        /// Values of a head that share one: 32, 64 or 128.
        block: usize,
        /// Division or reciprocal.
        scaling: Scaling,
        /// Codes or values.
        held: Held,
    },
    /// e2m1 with a ue8m0 scale per 32 values.
    #[serde(rename_all = "kebab-case")]
    Mxfp4 {
        /// The least amax.
        floor: Floor,
        /// Division or reciprocal.
        scaling: Scaling,
        /// Halfway cases.
        ties: Ties,
        /// Codes or values.
        held: Held,
    },
}

impl Quantiser {
    /// The format of what multiplies.
    #[must_use]
    pub fn format(self) -> Format {
        match self {
            Self::F32 => Format::F32,
            Self::Tf32 => Format::Tf32,
            Self::F16 => Format::F16,
            Self::E4m3 {
                held: Held::Codes, ..
            } => Format::E4m3,
            Self::Mxfp4 {
                held: Held::Codes, ..
            } => Format::E2m1,
            Self::Bf16 | Self::E4m3 { .. } | Self::Mxfp4 { .. } => Format::Bf16,
        }
    }

    /// Bytes of `width` values as they multiply, with the scales that stay apart.
    #[must_use]
    pub fn bytes(self, width: usize) -> usize {
        let values = match self.format() {
            Format::F32 | Format::Tf32 => 4 * width,
            Format::Bf16 | Format::F16 => 2 * width,
            Format::E2m1 => width / 2,
            _ => width,
        };
        let scales = match self {
            Self::E4m3 { block, scale, .. } if self.keeps_scales() => {
                let each = match scale {
                    ScaleFormat::F32 => 4,
                    ScaleFormat::Ue8m0 => 1,
                };
                width.div_ceil(block.max(1)) * each
            }
            Self::Mxfp4 { .. } if self.keeps_scales() => width.div_ceil(32),
            _ => 0,
        };
        values + scales
    }

    /// Whether scales stay apart from what multiplies.
    #[must_use]
    pub fn keeps_scales(self) -> bool {
        matches!(
            self,
            Self::E4m3 {
                held: Held::Codes,
                ..
            } | Self::Mxfp4 {
                held: Held::Codes,
                ..
            }
        )
    }
}

/// The way of a query from `wq_b` to the dot, all in fp32 but for what is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct QueryPath {
    /// Rounding behind rope.
    #[serde(default)]
    pub roped: Storage,
    /// Whether a Hadamard rotation follows.
    #[serde(default)]
    pub hadamard: bool,
    /// Rounding behind the rotation.
    #[serde(default)]
    pub rotated: Storage,
    /// The format that multiplies.
    pub format: Quantiser,
}

/// The way of a key from the pooled window to the dot, all in fp32 but for what is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct KeyPath {
    /// Rounding behind the pooling.
    #[serde(default)]
    pub pooled: Storage,
    /// Rounding behind the norm.
    #[serde(default)]
    pub normed: Storage,
    /// Rounding behind rope.
    #[serde(default)]
    pub roped: Storage,
    /// Whether a Hadamard rotation follows.
    #[serde(default)]
    pub hadamard: bool,
    /// Rounding behind the rotation.
    #[serde(default)]
    pub rotated: Storage,
    /// The format that multiplies.
    pub format: Quantiser,
}

/// Where W^-½·H^-½ and the query's scale enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Fold {
    /// w · f32(W^-½·H^-½), then · the query's scale.
    ConstantFirst,
    /// w · the query's scale, then · f32(W^-½), then · f32(H^-½).
    ScaleFirst,
    /// w · f32(H^-½), then · the query's scale; every dot · f32(W^-½), before it is stored.
    Split,
}

/// The head weights, a rounding per product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct HeadWeights {
    /// What is multiplied into them, in which order.
    pub fold: Fold,
    /// What they are stored in.
    #[serde(default)]
    pub stored: Storage,
}

/// The unit of the dot. Every dot is one chain over ascending k from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DotUnit {
    /// One fused multiply-add per product on the CUDA cores.
    FmaF32,
    /// `mma` m16n8k8 on TF32 operands.
    MmaTf32K8,
    /// `mma` m16n8k16 on bfloat16 operands.
    MmaBf16K16,
    /// `mma` m16n8k16 on half operands.
    MmaF16K16,
    /// The FP8 unit that the arch's kernels use, 32 products at a time: `mma.sync` on `sm_89` and `sm_120`, `wgmma` on
    /// `sm_90`, `tcgen05` on `sm_100`.
    Fp8K32,
    /// `mma` m16n8k64 on block-scaled e2m1 operands (kind `mxf4`): the scales are part of the product.
    Mxf4K64,
}

impl DotUnit {
    /// The operand format of a matrix unit without block scales.
    #[must_use]
    pub fn operand(self) -> Option<Operand> {
        match self {
            Self::FmaF32 | Self::Mxf4K64 => None,
            Self::MmaTf32K8 => Some(Operand::Tf32),
            Self::MmaBf16K16 => Some(Operand::Bf16),
            Self::MmaF16K16 => Some(Operand::F16),
            Self::Fp8K32 => Some(Operand::E4m3),
        }
    }

    /// Products per instruction along k.
    #[must_use]
    pub fn k(self) -> usize {
        match self {
            Self::FmaF32 => 1,
            Self::MmaTf32K8 => 8,
            Self::MmaBf16K16 | Self::MmaF16K16 => 16,
            Self::Fp8K32 => 32,
            Self::Mxf4K64 => 64,
        }
    }

    /// The instruction on `arch`; `None` on the CUDA cores and for block-scaled operands.
    #[must_use]
    pub fn instruction(self, arch: Arch) -> Option<Instruction> {
        if self == Self::Fp8K32 {
            return Some(fp8_instruction(arch));
        }
        let (operand, k) = (self.operand()?, self.k());
        let family = Family::MmaSync;
        Some(Instruction { family, operand, k })
    }

    /// The block-scaled instruction on `arch`; `None` where operands have no block scales.
    #[must_use]
    pub fn scaled_instruction(self, arch: Arch) -> Option<ScaledInstruction> {
        let family = match arch {
            Arch::Sm100 => Family::Tcgen05,
            _ => Family::MmaSync,
        };
        let kind = Kind::Mxf4;
        self.takes_scales()
            .then_some(ScaledInstruction { family, kind })
    }

    /// Whether the unit multiplies by the scales of its operands.
    #[must_use]
    pub fn takes_scales(self) -> bool {
        self == Self::Mxf4K64
    }

    /// Whether the unit multiplies values of `format` as they are.
    #[must_use]
    pub fn holds(self, format: Format) -> bool {
        use Format::{Bf16, E2m1, E4m3, F16, Tf32};
        match self {
            Self::FmaF32 => true,
            Self::MmaTf32K8 => matches!(format, Tf32 | Bf16 | F16 | E4m3 | E2m1),
            Self::MmaBf16K16 => matches!(format, Bf16 | E4m3 | E2m1),
            Self::MmaF16K16 => matches!(format, F16 | E4m3 | E2m1),
            Self::Fp8K32 => matches!(format, E4m3 | E2m1),
            Self::Mxf4K64 => format == E2m1,
        }
    }
}

/// The FP8 instruction that the kernels for `arch` use; an arch older than FP8 lacks it.
#[must_use]
pub fn fp8_instruction(arch: Arch) -> Instruction {
    let family = match arch {
        Arch::Sm90 => Family::Wgmma,
        Arch::Sm100 => Family::Tcgen05,
        Arch::Sm80 | Arch::Sm86 | Arch::Sm89 | Arch::Sm120 => Family::MmaSync,
    };
    Instruction {
        family,
        operand: Operand::E4m3,
        k: 32,
    }
}

/// What a logit is stored in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LogitFormat {
    /// fp32: no rounding.
    #[default]
    F32,
    /// bfloat16, nearest, ties to even.
    Bf16,
    /// IEEE half, nearest, ties to even; beyond 65,504 infinite.
    F16,
}

impl LogitFormat {
    /// The number format.
    #[must_use]
    pub fn format(self) -> Format {
        match self {
            Self::F32 => Format::F32,
            Self::Bf16 => Format::Bf16,
            Self::F16 => Format::F16,
        }
    }
}

/// What stands in the slots of keys that a query may not see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Fill {
    /// −∞: such a key is not selected.
    #[default]
    NegativeInfinity,
    /// 0, which beats a negative logit.
    Zero,
}

/// One precision variant of the indexer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct IndexRecipe {
    /// What users call it. The mixing kernel's variants have names of their own, of which one may be the same.
    pub name: String,
    /// One line: what is rounded to what.
    pub summary: String,
    /// Which engine runs it.
    #[serde(default)]
    pub engine: String,
    /// The linears of the query path.
    pub linears: Linears,
    /// The query.
    pub query: QueryPath,
    /// The key.
    pub key: KeyPath,
    /// The head weights.
    pub weights: HeadWeights,
    /// The unit of the dot.
    pub unit: DotUnit,
    /// What a head's dot is stored in.
    #[serde(default)]
    pub dot: Storage,
    /// From the dots of all heads to the logit.
    pub reduction: Reduction,
    /// What the logit is stored in.
    #[serde(default)]
    pub output: LogitFormat,
    /// What stands in the slots of keys that a query may not see.
    #[serde(default)]
    pub fill: Fill,
    /// How the keys are selected.
    #[serde(default)]
    pub select: Selector,
}

/// What no mixing kernel's name begins with.
const TITLE: &str = "indexer ";

impl IndexRecipe {
    /// Its name among the recipes of a report, where a mixing kernel's may be the same.
    #[must_use]
    pub fn title(name: &str) -> String {
        format!("{TITLE}{name}")
    }

    /// What every dot is multiplied by, where the head weights lack it.
    #[must_use]
    pub fn dot_scale(&self, width: usize) -> Option<f32> {
        match self.weights.fold {
            Fold::Split => Some((1.0 / (width as f64).sqrt()) as f32),
            Fold::ConstantFirst | Fold::ScaleFirst => None,
        }
    }

    /// The name in such a title; `None` in what is none.
    #[must_use]
    pub fn name_in(title: &str) -> Option<&str> {
        title.strip_prefix(TITLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: 128 codes of a byte and a scale of four, or of one; 64 bytes of half-byte codes and four scales of one.
    #[test]
    fn bytes_of_a_key() {
        let e4m3 = |scale, held| Quantiser::E4m3 {
            scale,
            block: 128,
            scaling: Scaling::Divide,
            held,
        };
        let fp4 = Quantiser::Mxfp4 {
            floor: Floor::LeastNormal,
            scaling: Scaling::Divide,
            ties: Ties::Even,
            held: Held::Codes,
        };
        for (quantiser, bytes) in [
            (Quantiser::F32, 512),
            (Quantiser::Tf32, 512),
            (Quantiser::Bf16, 256),
            (Quantiser::F16, 256),
            (e4m3(ScaleFormat::F32, Held::Codes), 132),
            (e4m3(ScaleFormat::Ue8m0, Held::Codes), 129),
            (e4m3(ScaleFormat::F32, Held::Values), 256),
            (fp4, 68),
        ] {
            assert_eq!(quantiser.bytes(128), bytes, "{quantiser:?}");
        }
    }
}
