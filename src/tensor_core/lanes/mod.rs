//! Sixteen lanes at a time: the few operations that the vectorised rule needs, per instruction set.
//!
//! Every implementation gives the same bits: all operations are exact or correctly rounded IEEE
//! operations, or integer ones. A value of an implementing type is the proof that the processor has
//! the instructions: it can only be had from a check at run time.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

use ulpdrift_reference::simd::Level;

/// Lanes of a vector: tokens of a tile.
pub(super) const LANES: usize = 16;

/// Sixteen `f32` in memory, aligned as the widest instruction set likes it.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Reals(pub(super) [f32; LANES]);

/// Sixteen pairs of `i16` in memory, the even one in the low half of each word.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct PairWords(pub(super) [u32; LANES]);

/// Two `i16` in one word, the first in the low half.
#[inline(always)]
pub(super) const fn pair_word(even: i16, odd: i16) -> u32 {
    (even as u16 as u32) | (odd as u16 as u32) << 16
}

/// The operations of one instruction set on sixteen lanes.
pub(super) trait Lanes: Copy {
    /// Sixteen `f32`.
    type Real: Copy;
    /// Sixteen `i32`.
    type Int: Copy;
    /// Sixteen pairs of `i16`.
    type Pairs: Copy;

    fn load(self, from: &Reals) -> Self::Real;
    fn store(self, from: Self::Real, to: &mut Reals);
    fn splat(self, x: f32) -> Self::Real;
    fn multiply(self, a: Self::Real, b: Self::Real) -> Self::Real;
    /// Cut toward zero. Lanes that hold no `i32` come out arbitrary.
    fn truncate(self, x: Self::Real) -> Self::Int;

    fn splat_int(self, x: i32) -> Self::Int;
    /// Wraps around.
    fn add(self, a: Self::Int, b: Self::Int) -> Self::Int;
    /// Wraps around.
    fn subtract(self, a: Self::Int, b: Self::Int) -> Self::Int;
    fn max(self, a: Self::Int, b: Self::Int) -> Self::Int;
    fn min(self, a: Self::Int, b: Self::Int) -> Self::Int;
    /// The exponent field of an `f32`, less 127.
    fn exponent(self, x: Self::Real) -> Self::Int;
    /// 2^x for x from −126 to 127.
    fn power_of_two(self, x: Self::Int) -> Self::Real;
    /// A bit for each lane in which the two differ.
    fn differ(self, a: Self::Int, b: Self::Int) -> u16;

    fn load_pairs(self, from: &PairWords) -> Self::Pairs;
    fn splat_pairs(self, word: u32) -> Self::Pairs;
    /// Wraps around in each half.
    fn add_pairs(self, a: Self::Pairs, b: Self::Pairs) -> Self::Pairs;
    fn max_pairs(self, a: Self::Pairs, b: Self::Pairs) -> Self::Pairs;
    /// The larger of the two halves of each pair.
    fn larger_half(self, x: Self::Pairs) -> Self::Int;

    /// `x` with the `f64` significand bits outside `mask` cleared, as `f32`.
    fn cut(self, x: Self::Int, mask: u64) -> Self::Real;
    /// The exact `a + b` with the `f64` significand bits outside `mask` cleared, as `f32`.
    fn cut_sum(self, a: Self::Int, b: Self::Int, mask: u64) -> Self::Real;
}

/// Something to be run with whatever lanes a level has.
pub(super) trait Task {
    /// Runs it. Implementations are `#[inline(always)]`, as is everything of weight they call, so
    /// that the body is compiled for the instruction set that runs it.
    fn run<V: Lanes>(self, lanes: V);
}

/// Runs `task` at `level`, or the next lower one that this processor has: the bits are the same.
pub(super) fn run(level: Level, task: impl Task) {
    #[cfg(target_arch = "x86_64")]
    {
        if level >= Level::Avx512
            && let Some(lanes) = avx512::Avx512::detect()
        {
            return lanes.run(task);
        }
        if level >= Level::Avx2
            && let Some(lanes) = avx2::Avx2::detect()
        {
            return lanes.run(task);
        }
    }
    let _ = level;
    task.run(portable::Portable);
}
