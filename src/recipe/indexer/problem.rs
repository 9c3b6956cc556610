//! What makes a recipe of the indexer contradict itself.

use super::{DotUnit, HeadOrder, Held, IndexRecipe, Quantiser, Reduction, ScalePosition};

/// Values of a head, W.
pub const HEAD: usize = 128;
/// The blocks of values that may share a scale.
const BLOCKS: [usize; 3] = [32, 64, HEAD];

impl IndexRecipe {
    /// The block of e4m3 codes whose scales stay apart.
    fn code_block(format: Quantiser) -> Option<usize> {
        match format {
            Quantiser::E4m3 {
                block,
                held: Held::Codes,
                ..
            } => Some(block),
            _ => None,
        }
    }

    /// Whether a key has one scale, which enters behind its dots.
    #[must_use]
    pub fn has_key_scale(&self) -> bool {
        Self::code_block(self.key.format) == Some(HEAD)
    }

    /// Whether a query's head has one scale, which its weight takes.
    #[must_use]
    pub fn has_query_scale(&self) -> bool {
        Self::code_block(self.query.format) == Some(HEAD)
    }

    /// What contradicts what, and what to do; nothing if the recipe can run.
    #[must_use]
    pub fn problem(&self) -> Option<&'static str> {
        self.format_problem()
            .or_else(|| self.scale_problem())
            .or_else(|| self.select.problem())
    }

    fn format_problem(&self) -> Option<&'static str> {
        let formats = [self.query.format, self.key.format];
        let is_block = |format: &Quantiser| match format {
            Quantiser::E4m3 { block, .. } => BLOCKS.contains(block),
            _ => true,
        };
        if !formats.iter().all(is_block) {
            return Some("an e4m3 block must be 32, 64 or 128 values");
        }
        if !formats
            .iter()
            .all(|format| self.unit.holds(format.format()))
        {
            return Some("the unit cannot hold the format of q or k; choose a unit of that format");
        }
        let is_fp4_code = |format: &Quantiser| {
            matches!(
                format,
                Quantiser::Mxfp4 {
                    held: Held::Codes,
                    ..
                }
            )
        };
        let fp4_codes = formats.iter().filter(|format| is_fp4_code(format)).count();
        match (self.unit, fp4_codes) {
            (DotUnit::Mxf4K64, 2) => None,
            (DotUnit::Mxf4K64, _) => {
                Some("unit mxf4-k64 multiplies mxfp4 codes; let q and k hold them")
            }
            (_, 0) => None,
            _ => Some(
                "mxfp4 codes have scales that only unit mxf4-k64 multiplies; choose it, or hold values",
            ),
        }
    }

    fn scale_problem(&self) -> Option<&'static str> {
        let [query, key] = [self.query.format, self.key.format].map(Self::code_block);
        let is_small = |block: Option<usize>| block.is_some_and(|block| block < HEAD);
        if (is_small(query) || is_small(key)) && query != key {
            return Some("with a block below 128, q and k must both hold e4m3 codes of that block");
        }
        let Reduction::Steps(steps) = self.reduction else {
            return None;
        };
        match (steps.scale, self.has_key_scale()) {
            (ScalePosition::InProduct, true) => Some(
                "the keys have a scale; say where it enters (scale = \"last\", \"before-relu\" or \"before-lanes\")",
            ),
            (ScalePosition::InProduct, false) => None,
            (_, false) => Some("the keys have no scale of their own; scale must be \"in-product\""),
            (ScalePosition::BeforeLanes, true) if steps.order != HeadOrder::FourLanes => {
                Some("scale \"before-lanes\" needs order \"four-lanes\"")
            }
            _ => None,
        }
    }
}
