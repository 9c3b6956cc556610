//! The block-scaled instructions of Blackwell: narrow operands with a shared scale per block of k.
//!
//! * [`rule`]: which architecture has which kind, by which parameters.
//! * [`scalar`]: the rule itself, one block at a time, written to be read.
//! * [`chains`]: the same rule over whole GEMMs, many outputs at a time; equal bit for bit.
//!
//! Operands are codes and scales as the unit is handed them ([`ScaledRows`]); quantising is the
//! caller's task.

mod fp4;
mod fp8;
mod gemm;
mod operand;
pub mod rule;
pub mod scalar;
mod simd;
mod vector;

#[cfg(test)]
mod tests;

pub use gemm::chains;
pub use operand::{PackedRows, ScaledRows};
pub use rule::{Kind, ScaleFormat, ScaledInstruction, ScaledRule};
