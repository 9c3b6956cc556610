//! What a recipe's dot multiplies: values as the unit reads them, with their scales where those stay apart.
//!
//! Codes of e4m3 and e2m1 stand here as the numbers they encode, so that all formats look alike: `f32` holds every
//! one of them exactly, and every scale.

use ndarray::Array2;

/// The rows of q ([Q·H, W]) or of k ([N, W]).
#[derive(Clone, Debug, PartialEq)]
pub struct Operands {
    /// What multiplies, exact in the format of the recipe's quantiser.
    pub values: Array2<f32>,
    /// The scales that stay apart, [rows, W / block], each a number that its format holds.
    pub scales: Option<Array2<f32>>,
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
