//! What a recipe's dot multiplies: values as the unit reads them, with their scales where those stay apart.
//!
//! Codes of e4m3 and e2m1 stand here as the numbers they encode, so that all formats look alike: `f32` holds every
//! one of them exactly, and every scale.

use ndarray::{Array2, ArrayView1, ArrayView2};

use super::DotUnit;

/// The rows of q ([Q·H, W]) or of k ([N, W]).
#[derive(Clone, Debug, PartialEq)]
pub struct Operands {
    /// What multiplies, exact in the format of the recipe's quantiser.
    pub values: Array2<f32>,
    /// The scales that stay apart, [rows, W / block], each a number that its format holds.
    pub scales: Option<Array2<f32>>,
}

impl Operands {
    /// The scales of the rows, where each has one that `unit` does not multiply by: q's are folded into the head
    /// weights, k's are applied where the reduction says.
    #[must_use]
    pub fn row_scales(&self, unit: DotUnit) -> Option<ArrayView1<'_, f32>> {
        let scales = self.scales.as_ref()?;
        (scales.ncols() == 1 && !unit.takes_scales()).then(|| scales.column(0))
    }

    /// The scales [rows, blocks] that are part of the dot, because the unit takes them or they change along a row.
    #[must_use]
    pub fn block_scales(&self, unit: DotUnit) -> Option<ArrayView2<'_, f32>> {
        let scales = self.scales.as_ref()?;
        (scales.ncols() != 1 || unit.takes_scales()).then(|| scales.view())
    }
}

/// The queries of a recipe.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryOperands {
    /// q, the heads of a query one after the other [Q·H, W].
    pub q: Operands,
    /// Head weights [Q, H] as the sum over the heads multiplies them: with the constants, and with the query's scale
    /// where a head has one.
    pub weights: Array2<f32>,
}

impl QueryOperands {
    /// Index heads.
    #[must_use]
    pub fn heads(&self) -> usize {
        self.weights.ncols()
    }
}
