//! Where error comes from.

use std::fmt;

/// A source of error, in the order in which they happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Rounding of `hc_fn`, x as it is.
    Weight,
    /// Rounding of x, or of the normalised x with its fp32 factor; `hc_fn` as it is.
    X,
    /// What the two roundings are off by together beyond their sum.
    Operands,
    /// The multiply unit's own arithmetic: its partial sums against exact ones of the rounded operands.
    Unit,
    /// The sum of the partial sums, and their storage.
    SplitSums,
    /// Storage of the projection's output.
    Output,
    /// The RMS factor, its product with the output, and the gates, in fp32.
    Epilogue,
    /// The logits of comb and Sinkhorn, in fp32.
    Sinkhorn,
    /// Σ pre·x in fp32.
    Collapse,
    /// The rounding of the layer input; in a chain, of what the sublayer gets and returns as well.
    LayerIo,
    /// `hc_post` in fp32.
    Recombine,
    /// Storage of the streams.
    Residual,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Weight => "weight",
            Self::X => "x",
            Self::Operands => "operands",
            Self::Unit => "unit",
            Self::SplitSums => "split-sums",
            Self::Output => "output",
            Self::Epilogue => "epilogue",
            Self::Sinkhorn => "sinkhorn",
            Self::Collapse => "collapse",
            Self::LayerIo => "layer-io",
            Self::Recombine => "recombine",
            Self::Residual => "residual",
        })
    }
}
