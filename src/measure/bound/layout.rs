//! Where each product stands in the packed operands.
//!
//! A chain's products follow one another, range by range. A range is filled up to whole blocks, so
//! that no block is ragged, and a chain is cut into panels short enough for the first-level cache.

use std::ops::Range;

use super::{ChainRule, MAX_BLOCK, Order, Rule, TOKENS};

/// Products per panel, at most: a multiple of every block's places.
pub(super) const PANEL: usize = 128;

/// Places of the shortest block.
pub(super) const LEAST_PLACES: usize = 4;

/// The places of all chains' products.
pub(super) struct Layout {
    /// Per chain, the panels it runs through.
    pub(super) chains: Vec<Vec<Section>>,
    /// How many places there are.
    pub(super) length: usize,
}

/// What one panel holds: a stretch of places of one chain.
pub(super) struct Section {
    /// The places, in whole blocks; those that no piece fills hold zeros.
    pub(super) places: Range<usize>,
    /// What fills them.
    pub(super) pieces: Vec<Piece>,
}

impl Section {
    /// Calls `f` for every place that no piece fills, counted from the first.
    #[inline(always)]
    pub(super) fn for_each_unfilled(&self, mut f: impl FnMut(usize)) {
        let mut end = 0;
        for piece in &self.pieces {
            (end..piece.at).for_each(&mut f);
            end = piece.at + piece.k.len();
        }
        (end..self.places.len()).for_each(f);
    }
}

/// Consecutive k in consecutive places.
pub(super) struct Piece {
    /// The first place, counted from the section's first.
    pub(super) at: usize,
    /// The k.
    pub(super) k: Range<usize>,
}

impl ChainRule {
    /// Places per block: what it is filled up to with zeros, of which neither sum nor bound knows.
    pub(super) fn places(self) -> usize {
        self.block_len
            .next_power_of_two()
            .clamp(LEAST_PLACES, MAX_BLOCK)
    }
}

impl Layout {
    pub(super) fn new(order: &Order, rule: Rule) -> Self {
        let blocks = match rule {
            Rule::TensorCore(rule) => Blocks {
                products: rule.block_len,
                places: rule.places(),
            },
            Rule::Fma32 => Blocks {
                products: 1,
                places: 1,
            },
        };
        let mut length = 0;
        let chains = order
            .chains
            .iter()
            .map(|ranges| blocks.sections(ranges, &mut length))
            .collect();
        Self { chains, length }
    }

    /// Whether most pieces are too short to be transposed on their own.
    pub(super) fn is_scattered(&self) -> bool {
        let pieces: usize = self.sections().map(|section| section.pieces.len()).sum();
        pieces * TOKENS > self.length
    }

    /// Every section of every chain.
    pub(super) fn sections(&self) -> impl Iterator<Item = &Section> {
        self.chains.iter().flatten()
    }
}

/// How many products a block has, and how many places it takes.
#[derive(Clone, Copy)]
struct Blocks {
    products: usize,
    places: usize,
}

impl Blocks {
    /// The sections of one chain, from the place `end` on, which is moved behind them.
    fn sections(self, ranges: &[Range<usize>], end: &mut usize) -> Vec<Section> {
        let mut sections: Vec<Section> = Vec::new();
        for range in ranges {
            let mut start = range.start;
            while start < range.end {
                if sections
                    .last()
                    .is_none_or(|last| last.places.len() == PANEL)
                {
                    sections.push(Section {
                        places: *end..*end,
                        pieces: Vec::new(),
                    });
                }
                let section = sections.last_mut().expect("one was just pushed");
                let at = section.places.len();
                let most = if self.products == self.places {
                    PANEL - at
                } else {
                    self.products
                };
                let k = start..range.end.min(start + most);
                start = k.end;
                section.places.end += k.len().next_multiple_of(self.places);
                *end = section.places.end;
                section.pieces.push(Piece { at, k });
            }
        }
        sections
    }
}
