//! The fp64 truth ulpdrift measures against.
//!
//! Written from the published model definition, with no precision knob, no I/O and nothing of the
//! tool: an emulator bug cannot hide here, because no line is shared with the emulator.
//!
//! * [`dot`]: the projection `x·wᵀ` in f64, fast, the same bits at every vector level.
//! * [`exact`]: one dot product without any rounding but the last.
//! * [`expert`]: the SwiGLU expert that every token goes through.
//! * [`squares`]: the sum of a row's squares.
//! * [`certify`]: the worst outputs of `dot` recomputed by `exact`, so the reference vouches for itself.
//! * [`indexer`]: from hidden states to the logits that decide which keys attention sees.
//! * [`mix`]: everything between the projection and the layer's input: rms factor, sigmoid gates,
//!   Sinkhorn, the weighted sum of the streams.
//! * [`streams`]: a chain of layers, its streams kept in f64: the projection of f64 rows, the norm, what a
//!   sublayer's output does to the streams, the head's gates.
//!
//! What may not live here: rounding to a storage format, a kernel's order of operations, any switch
//! that stands for how an engine computes. Inputs are taken exactly as stored (f32 holds every
//! operand format), constants as their decimal value in f64.
// Array views are two words and a pointer: they are handed over by value, as slices are.
#![allow(clippy::needless_pass_by_value)]

pub mod certify;
pub mod dot;
pub mod exact;
pub mod expert;
pub mod indexer;
mod kernel;
pub mod mix;
pub mod simd;
pub mod squares;
pub mod streams;
