//! Runs recipes on a CUDA device. Every library is loaded at run time, so the tool builds and starts
//! on any machine.
//!
//! * [`error`]: each way in which a device, a driver or a compiler can be missing, in one sentence.
//! * [`probe`]: what is here, asked before cudarc is: cudarc panics where a library or a symbol is
//!   missing.
//! * [`nvrtc`]: the run-time compiler.

pub mod error;
mod library;
pub mod nvrtc;
pub mod probe;
#[cfg(test)]
pub mod testing;
