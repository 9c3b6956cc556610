//! A tile's sixteen tokens: the few operations that bounds need, per instruction set.
//!
//! Every implementation gives the same bits: all operations are exact or correctly rounded IEEE
//! operations, or integer ones. A value of an implementing type is the proof that the processor has
//! the instructions: it can only be had from a check at run time.
//!
//! Numbers are f64, one per token, in the tokens' order. Exponents are `i16`, in pairs of one token:
//! those of two k, or one value twice. In which order the pairs stand is the instruction set's own
//! business: one in which f64 and pairs turn into each other within the 128-bit parts of a register.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

use ulpdrift_reference::simd::Level;

/// Tokens of a tile: lanes of a vector.
pub(in crate::measure) const TOKENS: usize = 16;

/// What the exponent field of an f64 is above its exponent.
pub(in crate::measure) const BIAS: i32 = 1023;

/// One f32 per token in memory, aligned as the widest instruction set likes it.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(in crate::measure) struct Singles(pub(in crate::measure) [f32; TOKENS]);

/// One f64 per token in memory, aligned as the widest instruction set likes it.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(in crate::measure) struct Doubles(pub(in crate::measure) [f64; TOKENS]);

/// One pair of `i16` per token in memory.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(in crate::measure) struct Pairs(pub(in crate::measure) [i16; 2 * TOKENS]);

/// Two `i16` in one word, the first in the low half.
#[inline(always)]
pub(in crate::measure) const fn pair_word(even: i16, odd: i16) -> u32 {
    (even as u16 as u32) | (odd as u16 as u32) << 16
}

/// The operations of one instruction set on the tokens of a part.
pub(in crate::measure) trait Lanes: Copy {
    /// An f64 per token.
    type Double: Copy;
    /// A pair of `i16` per token.
    type Pairs: Copy;

    /// How many parts of its own width a tile has.
    const PARTS: usize;
    /// How many outputs share the loads of x: as many as the registers hold.
    const OUTPUTS: usize;

    /// The lanes of a part of the tile.
    fn part(self, index: usize) -> Self;
    /// Turns 16 k of every token into 16 lines of all tokens.
    fn transpose(self, rows: &[Singles; TOKENS], to: &mut [Singles; TOKENS]);
    fn widen(self, from: &Singles) -> Self::Double;
    fn load(self, from: &Doubles) -> Self::Double;
    fn store(self, from: Self::Double, to: &mut Doubles);
    fn splat(self, x: f64) -> Self::Double;
    fn add(self, a: Self::Double, b: Self::Double) -> Self::Double;
    fn subtract(self, a: Self::Double, b: Self::Double) -> Self::Double;
    fn multiply(self, a: Self::Double, b: Self::Double) -> Self::Double;
    /// `a * b + c` for an `a * b` that f64 holds: fused or not makes no difference.
    fn add_product(self, a: Self::Double, b: Self::Double, c: Self::Double) -> Self::Double;
    /// `x * x + sum` for an `x * x` that f64 holds.
    fn add_square(self, x: Self::Double, sum: Self::Double) -> Self::Double;
    /// The larger one; `b` where one is NaN.
    fn larger(self, a: Self::Double, b: Self::Double) -> Self::Double;
    fn absolute(self, x: Self::Double) -> Self::Double;
    /// `sign(x) * 2^floor(log2 |x|)`, and 0 for 0: the number without its fraction.
    fn leading_bit(self, x: Self::Double) -> Self::Double;
    /// A non-negative `x` with the sign of `sign`.
    fn with_sign(self, x: Self::Double, sign: Self::Double) -> Self::Double;

    fn load_pairs(self, from: &Pairs) -> Self::Pairs;
    fn store_pairs(self, from: Self::Pairs, to: &mut Pairs);
    /// The lower halves of `even` and the upper ones of `odd`.
    fn halves(self, even: Self::Pairs, odd: Self::Pairs) -> Self::Pairs;
    /// `x`, but `by` in every half where `test` is zero.
    fn replace_zeros(self, x: Self::Pairs, test: Self::Pairs, by: Self::Pairs) -> Self::Pairs;
    fn splat_pairs(self, word: u32) -> Self::Pairs;
    /// Wraps around in each half.
    fn add_pairs(self, a: Self::Pairs, b: Self::Pairs) -> Self::Pairs;
    fn max_pairs(self, a: Self::Pairs, b: Self::Pairs) -> Self::Pairs;
    /// The larger half of each pair, in both halves.
    fn max_of_pair(self, x: Self::Pairs) -> Self::Pairs;
    /// `counts`, and `one` more in every half where `x`, read without sign, is below a positive `limit`.
    fn count_below(
        self,
        counts: Self::Pairs,
        one: Self::Pairs,
        x: Self::Pairs,
        limit: Self::Pairs,
    ) -> Self::Pairs;

    /// The exponent field of a non-negative number, in both halves.
    fn exponent_field(self, x: Self::Double) -> Self::Pairs;
    /// The power of two with the exponent field in the low half, which is from 0 to 2047.
    fn power(self, field: Self::Pairs) -> Self::Double;
    /// `power(field) * (1 + n * 2^-52)`, where n is the sum of both non-negative halves of `counts`.
    fn power_plus(self, field: Self::Pairs, counts: Self::Pairs) -> Self::Double;
}

/// Something to be run with whatever lanes a level has.
pub(in crate::measure) trait Task {
    /// Runs it. Implementations are `#[inline(always)]`, as is everything of weight they call, so
    /// that the body is compiled for the instruction set that runs it.
    fn run<V: Lanes>(self, lanes: V);
}

/// Runs `task` at `level`, or the next lower one that this processor has: the bits are the same.
pub(in crate::measure) fn run(level: Level, task: impl Task) {
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
    task.run(portable::Portable::new());
}
