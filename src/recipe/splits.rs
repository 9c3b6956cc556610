//! The rules that cut K into ranges, one accumulation chain each.
//!
//! The engines' counts depend on the batch and on the device, so the same row has other bits in
//! another batch: `--sweep` shows it. Boundaries decide bits too: `DeepGEMM` hands out blocks of 64
//! and gives the first ranges one more, Triton takes ⌈K/S⌉ wherever that falls.

use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Order;

/// Products along k in one block of `DeepGEMM`'s kernels.
const BLOCK_K: usize = 64;
/// Tokens in one block of `DeepGEMM`'s kernels.
const BLOCK_TOKENS: usize = 64;
/// The engines want at least this many blocks of k in a range.
const MIN_BLOCKS_PER_SPLIT: usize = 4;
/// Up to this many tokens `SGLang`'s `TileLang` path splits k.
const TILELANG_MAX_TOKENS: usize = 2048;
/// And then into this many ranges.
const TILELANG_SPLITS: usize = 32;

/// How many ranges K is cut into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SplitCount {
    /// Always this many.
    Fixed(usize),
    /// `max(1, min(SMs / ⌈T/64⌉, (K/64)/4))`: `SGLang` and vLLM before `DeepGEMM`'s kernel.
    Engine,
    /// 32 up to 2048 tokens, else 1: `SGLang`'s `TileLang` kernel.
    Tilelang,
}

/// Where the ranges end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Boundaries {
    /// Whole blocks of 64; the first ranges take one more where they do not divide evenly.
    #[default]
    Deepgemm,
    /// ⌈K/S⌉ elements each, aligned to nothing; the last range is shorter.
    Triton,
}

/// A split rule: a count and its boundaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SplitRule {
    /// How many ranges.
    pub count: SplitCount,
    /// Where they end.
    #[serde(default)]
    pub boundaries: Boundaries,
}

/// What a split rule looks at besides K.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Tokens in the batch.
    pub tokens: usize,
    /// Streaming multiprocessors of the device.
    pub sms: usize,
}

impl SplitRule {
    /// A fixed count with `DeepGEMM`'s boundaries.
    #[must_use]
    pub const fn fixed(count: usize) -> Self {
        Self {
            count: SplitCount::Fixed(count),
            boundaries: Boundaries::Deepgemm,
        }
    }

    /// The number of ranges asked for, at least 1. A range that would be empty is not made, so
    /// [`Self::ranges`] can return fewer.
    #[must_use]
    pub fn count(&self, k: usize, launch: Launch) -> usize {
        match self.count {
            SplitCount::Fixed(count) => count.max(1),
            SplitCount::Engine => {
                let by_device = launch.sms / launch.tokens.div_ceil(BLOCK_TOKENS).max(1);
                by_device.min(k / BLOCK_K / MIN_BLOCKS_PER_SPLIT).max(1)
            }
            SplitCount::Tilelang if launch.tokens <= TILELANG_MAX_TOKENS => TILELANG_SPLITS,
            SplitCount::Tilelang => 1,
        }
    }

    /// Where the ranges of k lie, none of them empty.
    #[must_use]
    pub fn cuts(&self, k: usize, launch: Launch) -> Cuts {
        let count = self.count(k, launch);
        match self.boundaries {
            Boundaries::Deepgemm => {
                let blocks = k.div_ceil(BLOCK_K);
                // More ranges than blocks would be empty ones.
                let count = count.min(blocks).max(1);
                Cuts {
                    unit: BLOCK_K,
                    each: blocks / count,
                    extra: blocks % count,
                    depth: k,
                    count,
                }
            }
            Boundaries::Triton => {
                let width = k.div_ceil(count).max(1);
                Cuts {
                    unit: 1,
                    each: width,
                    extra: 0,
                    depth: k,
                    count: k.div_ceil(width),
                }
            }
        }
    }

    /// The ranges of k, ascending, none of them empty.
    #[must_use]
    pub fn ranges(&self, k: usize, launch: Launch) -> Vec<Range<usize>> {
        self.cuts(k, launch).ranges()
    }
}

/// Ranges of k as a formula: units of `unit` elements, `each` of them to a range and one more to the first
/// `extra`; the depth may cut the last short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cuts {
    /// Elements of a unit.
    pub unit: usize,
    /// Units of a range.
    pub each: usize,
    /// Ranges that take one unit more.
    pub extra: usize,
    /// K.
    pub depth: usize,
    /// Ranges.
    pub count: usize,
}

impl Cuts {
    /// All of K in one range.
    #[must_use]
    pub fn whole(depth: usize) -> Self {
        Self {
            unit: depth,
            each: 1,
            extra: 0,
            depth,
            count: 1,
        }
    }

    /// Where a range begins; where K ends, for the one after the last.
    #[must_use]
    pub fn start(&self, range: usize) -> usize {
        (self.unit * (range * self.each + range.min(self.extra))).min(self.depth)
    }

    /// The ranges, ascending.
    #[must_use]
    pub fn ranges(&self) -> Vec<Range<usize>> {
        (0..self.count)
            .map(|range| self.start(range)..self.start(range + 1))
            .collect()
    }
}

impl Order {
    /// Where the ranges of k lie: one for the thread-strided order.
    #[must_use]
    pub fn cuts(&self, k: usize, launch: Launch) -> Cuts {
        match self {
            Self::Chains { splits, .. } => splits.cuts(k, launch),
            Self::ThreadStrided { .. } => Cuts::whole(k),
        }
    }

    /// The ranges of k.
    #[must_use]
    pub fn ranges(&self, k: usize, launch: Launch) -> Vec<Range<usize>> {
        self.cuts(k, launch).ranges()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const K: usize = 16384;

    fn engine(tokens: usize, sms: usize, k: usize) -> usize {
        let rule = SplitRule {
            count: SplitCount::Engine,
            boundaries: Boundaries::Deepgemm,
        };
        rule.count(k, Launch { tokens, sms })
    }

    #[test]
    fn the_engine_formula_gives_the_published_examples() {
        for (tokens, splits) in [
            (1, 64),
            (64, 64),
            (128, 64),
            (192, 44),
            (512, 16),
            (4096, 2),
            (8192, 1),
        ] {
            assert_eq!(engine(tokens, 132, K), splits, "{tokens} tokens on 132 SMs");
        }
        assert_eq!(engine(1, 132, 28672), 112);
        assert_eq!(engine(512, 132, 28672), 16);
        assert_eq!(engine(1_000_000, 132, K), 1);
        assert_eq!(engine(64, 188, K), 64);
    }

    #[test]
    fn tilelang_splits_up_to_2048_tokens() {
        let rule = SplitRule {
            count: SplitCount::Tilelang,
            boundaries: Boundaries::Deepgemm,
        };
        assert_eq!(
            rule.count(
                K,
                Launch {
                    tokens: 2048,
                    sms: 188
                }
            ),
            32
        );
        assert_eq!(
            rule.count(
                K,
                Launch {
                    tokens: 2049,
                    sms: 188
                }
            ),
            1
        );
    }

    #[test]
    fn deepgemm_gives_the_first_ranges_one_block_more() {
        let ranges = SplitRule::fixed(3).ranges(64 * 8, Launch { tokens: 1, sms: 1 });
        assert_eq!(ranges, [0..192, 192..384, 384..512]);
    }

    #[test]
    fn triton_boundaries_are_aligned_to_nothing() {
        let rule = SplitRule {
            count: SplitCount::Fixed(3),
            boundaries: Boundaries::Triton,
        };
        assert_eq!(
            rule.ranges(1024, Launch { tokens: 1, sms: 1 }),
            [0..342, 342..684, 684..1024]
        );
    }

    #[test]
    fn hostile_counts_cover_k_once_and_leave_no_range_empty() {
        for boundaries in [Boundaries::Deepgemm, Boundaries::Triton] {
            for count in [1, 2, 3, 7, 16, 32, 64, 112, 256, 257, usize::MAX] {
                for k in [1, 63, 64, 65, 1000, K, 28672] {
                    let rule = SplitRule {
                        count: SplitCount::Fixed(count),
                        boundaries,
                    };
                    let ranges = rule.ranges(k, Launch { tokens: 1, sms: 1 });
                    assert!(ranges.len() <= count && ranges.iter().all(|range| !range.is_empty()));
                    assert_eq!(ranges[0].start, 0);
                    assert_eq!(ranges[ranges.len() - 1].end, k);
                    assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
                }
            }
        }
    }
}
