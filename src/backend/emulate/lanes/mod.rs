//! fp32 arithmetic over 16 tokens at a time.
//!
//! Every lane is one token, so the order of each token's sum is the scalar order written here, and a
//! vector level changes speed only: fused multiply-add, product, sum and quotient are IEEE operations
//! at every level (without FMA hardware the fused product is the C library's exact one).
//!
//! The kernels are in [`sums`], [`recombine`](mod@recombine) and [`transpose`]; they are written once, in the operations of
//! [`Vector`], which [`run`] chooses.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;
mod recombine;
mod sums;
mod transpose;

use ulpdrift_reference::simd::Level;

pub use self::{
    recombine::{Token, recombine},
    sums::{GROUP, ROW_LANES, Sums, add, chains, collapse, square_chains, square_lanes},
    transpose::transpose,
};

/// Tokens in a tile.
pub const LANES: usize = 16;

/// One value per token of a tile.
pub type Lane = [f32; LANES];

/// The operations of one instruction set on sixteen lanes.
///
/// A value of an implementing type is the proof that the processor has the instructions: it can only
/// be had from a check at run time.
pub trait Vector: Copy {
    /// Sixteen `f32`.
    type Real: Copy;
    /// How many accumulators its registers hold beside the operands.
    const ACCUMULATORS: usize;

    fn load(self, from: &Lane) -> Self::Real;
    fn store(self, from: Self::Real, to: &mut Lane);
    fn splat(self, x: f32) -> Self::Real;
    fn add(self, a: Self::Real, b: Self::Real) -> Self::Real;
    fn multiply(self, a: Self::Real, b: Self::Real) -> Self::Real;
    fn divide(self, a: Self::Real, b: Self::Real) -> Self::Real;
    /// `a·b + c`, rounded once.
    fn fma(self, a: Self::Real, b: Self::Real, c: Self::Real) -> Self::Real;
    /// `floor` where x is below it, else x: a NaN stays one.
    fn at_least(self, x: Self::Real, floor: Self::Real) -> Self::Real;
}

/// Something to be run with whatever vectors a level has.
pub trait Task {
    /// What it gives.
    type Output;

    /// Runs it. Implementations are `#[inline(always)]`, as is everything of weight they call, and pass
    /// no closures on, so that the body is compiled for the instruction set that runs it.
    fn run<V: Vector>(self, vector: V) -> Self::Output;
}

/// Runs `task` at `level`, or the next lower one that this processor has: the bits are the same.
pub fn run<T: Task>(level: Level, task: T) -> T::Output {
    #[cfg(target_arch = "x86_64")]
    {
        if level >= Level::Avx512
            && let Some(vector) = avx512::Avx512::detect()
        {
            return vector.run(task);
        }
        if level >= Level::Avx2
            && let Some(vector) = avx2::Avx2::detect()
        {
            return vector.run(task);
        }
    }
    let _ = level;
    task.run(portable::Portable)
}
