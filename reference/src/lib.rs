//! The fp64 truth ulpdrift measures against.
//!
//! Written from the published model definition, with no precision knob, no I/O and nothing of the
//! tool: an emulator bug cannot hide here, because no line is shared with the emulator.
pub mod simd;
