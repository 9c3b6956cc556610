//! What follows the sublayer (`hc_post`): the streams of the next site.
//!
//! ```text
//! X'[t,k,c] = post[t,k]·f[t,c] + Σ_j comb[t,j,k]·X[t,j,c]        X [T, hc, d], f [T, d], comb [T, hc, hc]
//! ```
//!
//! X is the residual before the layer input was made of it, f the sublayer's output. The **first** index
//! of comb is contracted: stream k gets column k, whose elements sum to 1. X' is described up to its own
//! storage, whose rounding is the residual's and not this operation's.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wildmatch::WildMatch;

use super::{Contraction, Storage};

/// The arithmetic of the recombination. X and f enter as stored, products and sums are fp32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct Recombine {
    /// What post and comb are rounded to before they multiply.
    pub gates: Storage,
    /// The order of the sum.
    pub order: RecombineOrder,
    /// Every product but the first of a sum, with the sum. With bf16 gates and bf16 streams a product is
    /// exact in fp32, so that this decides no bit.
    pub contraction: Contraction,
}

/// The order in which the hc + 1 products of one element are summed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RecombineOrder {
    /// post·f, then the streams ascending.
    #[default]
    PostFirst,
    /// The first stream, post·f, then the other streams ascending.
    StreamFirst,
    /// post·f by itself and the sum over the streams, ascending, by itself; then their sum.
    #[serde(rename_all = "kebab-case")]
    Apart {
        /// How each of the two is stored before they are added.
        terms: Storage,
    },
}

impl Recombine {
    /// fp32 gates, post·f first, fused: the official code's arithmetic in the kernels' order.
    pub const FP32: Self = Self {
        gates: Storage::F32,
        order: RecombineOrder::PostFirst,
        contraction: Contraction::Fma,
    };

    /// The same with a rounding per product and per sum.
    pub const MUL_ADD: Self = Self {
        contraction: Contraction::MulAdd,
        ..Self::FP32
    };

    /// What the compiler made of the sm_120 port's kernel: comb₀·X₀, fma of post·f, fma of the rest.
    pub const STREAM_FIRST: Self = Self {
        order: RecombineOrder::StreamFirst,
        ..Self::FP32
    };

    /// transformers: post and comb cast to bf16, post·f and combᵀ·X each a bf16 tensor, and so their sum
    /// (that last rounding is the storage of X'). The order inside its matrix product is a library's;
    /// here it ascends.
    pub const TRANSFORMERS: Self = Self {
        gates: Storage::Bf16,
        order: RecombineOrder::Apart {
            terms: Storage::Bf16,
        },
        contraction: Contraction::Fma,
    };
}

/// What no mixing kernel's name begins with.
const TITLE: &str = "recombine ";

/// A recombination by name: a variant of suite `recombine`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RecombineRecipe {
    /// What users call it. The mixing kernel's variants have names of their own, of which one may be the same.
    pub name: &'static str,
    /// One line: what is rounded, in which order.
    pub summary: &'static str,
    /// Who runs it.
    pub engine: &'static str,
    /// The arithmetic.
    pub arithmetic: Recombine,
}

impl RecombineRecipe {
    /// Every recombination with a name, in the order they are listed. A new one is a new entry.
    pub const ALL: [Self; 4] = [
        Self::FP32,
        Self {
            name: "mul-add",
            summary: "as fp32, with a rounding per product and per sum",
            engine: "kernels compiled without contraction",
            arithmetic: Recombine::MUL_ADD,
        },
        Self {
            name: "stream-first",
            summary: "as fp32, with the first stream's product before post·f",
            engine: "the sm_120 port, as its compiler ordered it",
            arithmetic: Recombine::STREAM_FIRST,
        },
        Self {
            name: "transformers",
            summary: "bf16 post and comb; post·f and combᵀ·X each bf16, then added",
            engine: "transformers",
            arithmetic: Recombine::TRANSFORMERS,
        },
    ];

    /// What the others are measured by, and compared with unless another is named.
    pub const FP32: Self = Self {
        name: "fp32",
        summary: "fp32 post and comb, post·f first, fused multiply-add",
        engine: "TileKernels and the engines' fused kernels",
        arithmetic: Recombine::FP32,
    };

    /// Those whose names match a pattern with * and ?.
    #[must_use]
    pub fn matching(pattern: &str) -> Vec<Self> {
        let glob = WildMatch::new(pattern);
        let matches = |recipe: &Self| glob.matches(recipe.name);
        Self::ALL.into_iter().filter(matches).collect()
    }

    /// Its name among the recipes of a report, where a mixing kernel's may be the same.
    #[must_use]
    pub fn title(name: &str) -> String {
        format!("{TITLE}{name}")
    }

    /// The name in such a title; `None` in what is none.
    #[must_use]
    pub fn name_in(title: &str) -> Option<&str> {
        title.strip_prefix(TITLE)
    }
}
