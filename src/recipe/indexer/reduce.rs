//! From the dots of all heads to one logit.
//!
//! ```text
//! S = kscale · Σ_h w_h · relu(s_h)
//! ```
//!
//! | order | running sums | how they meet |
//! |---|---|---|
//! | `ascending` | one, h = 0, 1, … | |
//! | `four-lanes` | eight: lane c = 0..3 has one over heads 8j + 2c and one over heads 8j + 2c + 1, j ascending | even + odd in each lane; lane c with c xor 1, then c xor 2 |
//! | `four-chains` | four: heads h mod 4, ascending | (c₀ + c₂) + (c₁ + c₃) |
//! | `chunks-of-eight` | one per 8 heads, ascending | chunk after chunk, from 0 |
//! | `tree` | none | pairs h and h + stride, stride = H/2, …, 2, 1 |
//!
//! A running sum begins at 0. Where that leaves something open: `half-sum` is halved when all sums have met, before a scale
//! that comes last; a scale before the lanes multiplies lanes, chains, chunks, or the products of a tree; a tree of H heads,
//! H no power of two, has the strides of the next one, and a head without a partner stays. Sums held in bf16 round every
//! fused product and sum once, to bf16, and a scale that multiplies one is rounded to bf16 first, as its product is after.
//! Source: `DeepGEMM`'s kernels for `sm_90` (four lanes) and `sm_100` (four chains), vLLM's
//! Triton kernel (chunks), SGLang's (ascending).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    recipe::{Contraction, Storage},
    tensor_core::Arch,
};

/// Where the key's scale enters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ScalePosition {
    /// There is none, or it is part of the product.
    #[default]
    InProduct,
    /// Every dot · scale, before relu.
    BeforeRelu,
    /// A lane's sum · scale, before the lanes meet.
    BeforeLanes,
    /// The sum over the heads · scale.
    Last,
}

/// How relu is taken, and what becomes of a NaN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Relu {
    /// max(s, 0) as `fmaxf` does: a NaN becomes 0.
    #[default]
    Max,
    /// max(s, 0) that keeps a NaN.
    MaxKeepsNan,
    /// s + |s|, halved at the end: −∞ becomes NaN, and NaN stays.
    HalfSum,
    /// Left out: a bug that shipped.
    Absent,
}

/// The order of the sum over the heads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HeadOrder {
    /// One running sum.
    #[default]
    Ascending,
    /// Two running sums in each of four lanes.
    FourLanes,
    /// Four running sums.
    FourChains,
    /// One running sum per eight heads.
    ChunksOfEight,
    /// Pairs at strides H/2, …, 1.
    Tree,
}

/// From the dots to the logit, step by step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct Reduce {
    /// Where the key's scale enters.
    pub scale: ScalePosition,
    /// How relu is taken.
    pub relu: Relu,
    /// The order of the sum.
    pub order: HeadOrder,
    /// Whether a product is rounded before it is added.
    pub contraction: Contraction,
    /// What a product is stored in; bf16 makes it a rounding of its own whatever the contraction.
    pub product: Storage,
    /// What the running sums are held in, a rounding per addition.
    pub sum: Storage,
}

/// From the dots to the logit: spelled out, or as a kernel does that differs by arch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Reduction {
    /// `DeepGEMM`'s kernel of the arch.
    DeepGemm,
    /// Spelled out.
    Steps(Reduce),
}

impl Reduction {
    /// The steps on `arch`. `scales` tells whether keys have scales that the product does not hold.
    ///
    /// `DeepGEMM` has no kernel below `sm_90`; there and on `sm_89` the one of `sm_90` stands in, on `sm_120` the one
    /// of `sm_100`.
    #[must_use]
    pub fn on(self, arch: Arch, scales: bool) -> Reduce {
        let position = |position| match scales {
            true => position,
            false => ScalePosition::InProduct,
        };
        match (self, arch) {
            (Self::Steps(steps), _) => steps,
            (Self::DeepGemm, Arch::Sm100 | Arch::Sm120) => Reduce {
                scale: position(ScalePosition::Last),
                relu: Relu::HalfSum,
                order: HeadOrder::FourChains,
                ..Reduce::default()
            },
            (Self::DeepGemm, _) => Reduce {
                scale: position(ScalePosition::BeforeLanes),
                relu: Relu::Max,
                order: HeadOrder::FourLanes,
                ..Reduce::default()
            },
        }
    }
}
