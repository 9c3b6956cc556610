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
#[cfg(target_arch = "x86_64")]
mod prefetch;

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

/// Sixteen consecutive k of each of sixteen tokens.
pub(super) type Rows<'a> = [&'a [f32; LANES]; LANES];

/// The operations of one instruction set on sixteen lanes.
pub(super) trait Lanes: Copy {
    /// Sixteen `f32`.
    type Real: Copy;
    /// Sixteen `i32`.
    type Int: Copy;
    /// Sixteen pairs of `i16`.
    type Pairs: Copy;

    /// Runs `task` in a function of its own, compiled for this instruction set.
    fn run(self, task: impl Task);

    /// Asks for the cache line of `x`, to be read later.
    fn prefetch(self, x: &f32) {
        #[cfg(target_arch = "x86_64")]
        prefetch::into_second_level(x);
        #[cfg(not(target_arch = "x86_64"))]
        let _ = x;
    }

    fn load(self, from: &Reals) -> Self::Real;
    fn store(self, from: Self::Real, to: &mut Reals);
    fn splat(self, x: f32) -> Self::Real;
    fn multiply(self, a: Self::Real, b: Self::Real) -> Self::Real;
    /// Cut toward zero. Lanes that hold no `i32` come out arbitrary.
    fn truncate(self, x: Self::Real) -> Self::Int;
    /// The nearest `f32` toward zero.
    fn to_real(self, x: Self::Int) -> Self::Real;
    fn bits(self, x: Self::Real) -> Self::Int;
    fn with_bits(self, x: Self::Int) -> Self::Real;

    fn splat_int(self, x: i32) -> Self::Int;
    fn and(self, a: Self::Int, b: Self::Int) -> Self::Int;
    /// Wraps around.
    fn add(self, a: Self::Int, b: Self::Int) -> Self::Int;
    /// Wraps around.
    fn subtract(self, a: Self::Int, b: Self::Int) -> Self::Int;
    fn max(self, a: Self::Int, b: Self::Int) -> Self::Int;
    /// The larger as `u32`.
    fn max_unsigned(self, a: Self::Int, b: Self::Int) -> Self::Int;
    /// A bit for each lane in which `a` is larger as `u32`.
    fn above(self, a: Self::Int, b: Self::Int) -> u16;
    /// `flags`, made negative in each lane where `sum`, wrapped around, is not `a + b`.
    fn flag_overflow(
        self,
        flags: Self::Int,
        a: Self::Int,
        b: Self::Int,
        sum: Self::Int,
    ) -> Self::Int;
    /// A bit for each negative lane.
    fn negative(self, x: Self::Int) -> u16;

    fn load_pairs(self, from: &PairWords) -> Self::Pairs;
    fn store_pairs(self, from: Self::Pairs, to: &mut PairWords);
    fn splat_pairs(self, word: u32) -> Self::Pairs;
    /// Saturates in each half.
    fn add_pairs(self, a: Self::Pairs, b: Self::Pairs) -> Self::Pairs;
    fn max_pairs(self, a: Self::Pairs, b: Self::Pairs) -> Self::Pairs;
    fn and_pairs(self, a: Self::Pairs, b: Self::Pairs) -> Self::Pairs;
    /// `value`, but `instead` in each half where `test` is zero.
    fn replace_zeros(
        self,
        value: Self::Pairs,
        test: Self::Pairs,
        instead: Self::Pairs,
    ) -> Self::Pairs;
    /// The upper halves of two words: `even`'s in the low half of each pair.
    fn upper_halves(self, even: Self::Int, odd: Self::Int) -> Self::Pairs;
    /// The larger of the two halves of each pair, in the upper half of a word. What is in the lower half
    /// is arbitrary.
    fn larger_half(self, x: Self::Pairs) -> Self::Int;

    /// One vector for each k of `rows`.
    fn transpose(self, rows: &Rows<'_>, to: &mut [Reals; LANES]);
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
    portable::Portable.run(task);
}
