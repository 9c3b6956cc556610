//! What follows the sublayer.

use super::{Build, Grid, Stored, THREADS, define, fused, storage};
use crate::{
    backend::cuda::source::Kernel,
    recipe::{Recombine, RecombineOrder, Storage},
};

/// The operands of the recombination.
#[derive(Clone, Copy, Debug)]
pub struct StreamShape {
    /// T.
    pub tokens: usize,
    /// Streams.
    pub hc: usize,
    /// Columns of a stream.
    pub width: usize,
    /// How x is stored.
    pub x: Stored,
    /// How f is stored.
    pub f: Stored,
}

/// The streams after the sublayer.
#[must_use]
pub fn recombine(recombine: &Recombine, shape: StreamShape) -> Build {
    let (order, terms) = match recombine.order {
        RecombineOrder::PostFirst => (0, Storage::F32),
        RecombineOrder::StreamFirst => (1, Storage::F32),
        RecombineOrder::Apart { terms } => (2, terms),
    };
    let bf16 = |stored| usize::from(stored == Stored::Bf16);
    let mut options = Vec::new();
    define(&mut options, "HC", shape.hc);
    define(&mut options, "X_BF16", bf16(shape.x));
    define(&mut options, "F_BF16", bf16(shape.f));
    define(&mut options, "GATES", storage(recombine.gates));
    define(&mut options, "ORDER", order);
    define(&mut options, "TERMS", storage(terms));
    let fma = fused(recombine.contraction);
    define(&mut options, "RECOMBINE_FMA", fma);
    Build {
        kernel: Kernel::Recombine,
        own_arch_only: false,
        options,
        grid: Grid {
            blocks: (shape.tokens, shape.width.div_ceil(THREADS)),
            threads: THREADS,
            shared: 0,
            waits: false,
        },
    }
}
