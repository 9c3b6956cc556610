//! The bit-exact model of NVIDIA's matrix units.
//!
//! * [`arch`]: which unit computes by which parameters: the specification as a table.
//! * [`scalar`]: the rule itself, one block of products at a time, written to be read.
//! * [`chains`]: the same rule over whole GEMMs, sixteen tokens at a time; equal bit for bit.
//! * [`block_scaled`]: fp8 and fp4 operands with a scale per block of k, which are rules of their own.
//!
//! Source: replayed against recordings of an H200 (`mma.sync` and `wgmma`: bf16, f16, tf32, e4m3)
//! without a mismatch; the rows of other architectures rest on published models and recordings
//! (`fixtures/vectors/PROVENANCE.md`). Knows nothing of checkpoints or reports.

pub mod arch;
pub mod block_scaled;
mod fix;
mod gemm;
mod lanes;
mod operand;
mod pack;
pub mod scalar;
mod stretch;
mod vector;

#[cfg(test)]
mod tests;

pub use arch::{Arch, Family, Instruction, Lowering, Output, Rule};
pub use gemm::chains;
pub use operand::Operand;
pub use pack::PackedWeights;
