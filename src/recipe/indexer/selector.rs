//! How the top k of a row of logits is selected. The algorithms are in
//! [`top_k`](crate::backend::emulate::top_k).
//!
//! A selector is not a rounding: beside [`Selector::Exact`] they take other sets of the same logits, and no interval around a
//! logit explains it. All of them see the visible keys alone, and where no more than k are visible they take all.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A selection algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Selector {
    /// The k largest scores, ties to the lower index. −0 equals +0; a NaN stands behind every number.
    #[default]
    Exact,
    /// The scores rounded to bfloat16 (nearest-even) first, then as `exact`: scores that became equal go to
    /// the lower index.
    Bf16Ties,
    /// A radix selection on a coarse key with a buffer of fixed size, as production kernels have it.
    ///
    /// 1. The score is converted to half (nearest-even: NaN becomes 7fff, what is beyond ±65520 an infinity).
    /// 2. The half's bits become an integer of the same order: inverted if negative, else with the sign bit
    ///    set. Its upper `key-bits` bits are the key. −0 is below +0, and a NaN is above +∞.
    /// 3. The cut is in the bin (the scores of one key) that holds the k-th largest key. Scores in the bins
    ///    above are taken whole.
    /// 4. Of the cut's bin the first `buffer` scores are kept and **the others are dropped, whatever
    ///    they are**. The kernels keep whichever arrive first at an atomic counter, and so another set in
    ///    another run; here the lower indices arrive first.
    /// 5. Among those kept the largest by the order of their fp32 bits are taken, ties to the lower index.
    ///
    /// With a buffer below k, fewer than min(k, visible) keys may be taken: the kernels leave the slots that
    /// are left over as they were.
    #[serde(rename_all = "kebab-case")]
    CoarseRadix {
        /// Upper bits of the ordered half that make the key: 1 to 16.
        key_bits: u32,
        /// How many scores of the cut's bin are kept: at least 1.
        buffer: usize,
    },
}

impl Selector {
    /// `SGLang`'s `fast_topk_v2`: 8 bits, 4096 candidates (sglang issue 36807: at k = 2048, 6 to 42 wrong keys in each of 64 rows of
    /// 262,144, others in every run). `TileLang`'s example and the copies of it are the same with other buffers.
    pub const SGLANG_FAST: Self = Self::CoarseRadix {
        key_bits: 8,
        buffer: 4096,
    };
    /// `SGLang`'s JIT top-k v2 where a block has the row: 12 bits, a tie buffer of 2048 (sglang issue 35257; 1024
    /// before pull request 30512, which left slots unwritten at k = 2048). Its path for at most 128 ties
    /// compares floats, not bits, which differs for NaN alone.
    pub const SGLANG_JIT: Self = Self::CoarseRadix {
        key_bits: 12,
        buffer: 2048,
    };
    /// The same where a cluster of blocks shares the row: 10 bits.
    pub const SGLANG_JIT_CLUSTER: Self = Self::CoarseRadix {
        key_bits: 10,
        buffer: 2048,
    };
    /// `FlashInfer`'s `FilteredTopK` before pull request 2605 and vLLM's `persistent_topk` above 32 rows: 8 bits, 16,384 candidates
    /// (flashinfer issue 2604, vllm issue 51782).
    pub const FILTERED: Self = Self::CoarseRadix {
        key_bits: 8,
        buffer: 16_384,
    };

    /// Its name in a recipe.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Bf16Ties => "bf16-ties",
            Self::CoarseRadix { .. } => "coarse-radix",
        }
    }

    /// What contradicts itself in it, and what to do.
    #[must_use]
    pub fn problem(self) -> Option<&'static str> {
        match self {
            Self::CoarseRadix { key_bits, .. } if !(1..=16).contains(&key_bits) => {
                Some("key-bits of a coarse-radix selector must be 1 to 16, the bits of a half")
            }
            Self::CoarseRadix { buffer: 0, .. } => {
                Some("the buffer of a coarse-radix selector must hold at least 1 score")
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Holder {
        selector: Selector,
    }

    #[test]
    fn selectors_read_as_a_recipe_spells_them() {
        for (text, selector) in [
            (r#"selector = "exact""#, Selector::Exact),
            (r#"selector = "bf16-ties""#, Selector::Bf16Ties),
            (
                "selector = { coarse-radix = { key-bits = 12, buffer = 2048 } }",
                Selector::SGLANG_JIT,
            ),
        ] {
            let read: Holder = toml::from_str(text).expect("it is one");
            assert_eq!(read.selector, selector);
            let written = toml::to_string(&read).expect("it serialises");
            assert_eq!(toml::from_str::<Holder>(&written), Ok(read));
        }
        let unknown = "selector = { coarse-radix = { key-bits = 12, bufer = 2048 } }";
        assert!(toml::from_str::<Holder>(unknown).is_err());
    }

    #[test]
    fn contradictions_are_named() {
        let coarse = |key_bits, buffer| Selector::CoarseRadix { key_bits, buffer };
        for selector in [coarse(0, 1), coarse(17, 1), coarse(8, 0)] {
            assert!(selector.problem().is_some(), "{selector:?}");
        }
        for selector in [Selector::Exact, coarse(1, 1), coarse(16, 1)] {
            assert_eq!(selector.problem(), None, "{selector:?}");
        }
    }
}
