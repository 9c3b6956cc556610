//! Lanes in plain Rust: what the compiler makes of arrays.

use std::array::from_fn;

use super::{LANES, Lanes, PairWords, Reals};

/// Runs everywhere.
#[derive(Clone, Copy)]
pub(super) struct Portable;

impl Lanes for Portable {
    type Real = [f32; LANES];
    type Int = [i32; LANES];
    type Pairs = [[i16; LANES]; 2];

    #[inline(always)]
    fn load(self, from: &Reals) -> Self::Real {
        from.0
    }

    #[inline(always)]
    fn store(self, from: Self::Real, to: &mut Reals) {
        to.0 = from;
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Self::Real {
        [x; LANES]
    }

    #[inline(always)]
    fn multiply(self, a: Self::Real, b: Self::Real) -> Self::Real {
        from_fn(|i| a[i] * b[i])
    }

    #[inline(always)]
    fn truncate(self, x: Self::Real) -> Self::Int {
        from_fn(|i| x[i] as i32)
    }

    #[inline(always)]
    fn splat_int(self, x: i32) -> Self::Int {
        [x; LANES]
    }

    #[inline(always)]
    fn add(self, a: Self::Int, b: Self::Int) -> Self::Int {
        from_fn(|i| a[i].wrapping_add(b[i]))
    }

    #[inline(always)]
    fn subtract(self, a: Self::Int, b: Self::Int) -> Self::Int {
        from_fn(|i| a[i].wrapping_sub(b[i]))
    }

    #[inline(always)]
    fn max(self, a: Self::Int, b: Self::Int) -> Self::Int {
        from_fn(|i| a[i].max(b[i]))
    }

    #[inline(always)]
    fn min(self, a: Self::Int, b: Self::Int) -> Self::Int {
        from_fn(|i| a[i].min(b[i]))
    }

    #[inline(always)]
    fn exponent(self, x: Self::Real) -> Self::Int {
        from_fn(|i| ((x[i].to_bits() >> 23) & 0xff) as i32 - 127)
    }

    #[inline(always)]
    fn power_of_two(self, x: Self::Int) -> Self::Real {
        from_fn(|i| f32::from_bits((x[i].wrapping_add(127) as u32) << 23))
    }

    #[inline(always)]
    fn differ(self, a: Self::Int, b: Self::Int) -> u16 {
        let mut bits = 0;
        for i in 0..LANES {
            bits |= u16::from(a[i] != b[i]) << i;
        }
        bits
    }

    #[inline(always)]
    fn load_pairs(self, from: &PairWords) -> Self::Pairs {
        [
            from_fn(|i| from.0[i] as i16),
            from_fn(|i| (from.0[i] >> 16) as i16),
        ]
    }

    #[inline(always)]
    fn splat_pairs(self, word: u32) -> Self::Pairs {
        [[word as i16; LANES], [(word >> 16) as i16; LANES]]
    }

    #[inline(always)]
    fn add_pairs(self, a: Self::Pairs, b: Self::Pairs) -> Self::Pairs {
        from_fn(|half| from_fn(|i| a[half][i].wrapping_add(b[half][i])))
    }

    #[inline(always)]
    fn max_pairs(self, a: Self::Pairs, b: Self::Pairs) -> Self::Pairs {
        from_fn(|half| from_fn(|i| a[half][i].max(b[half][i])))
    }

    #[inline(always)]
    fn larger_half(self, x: Self::Pairs) -> Self::Int {
        from_fn(|i| i32::from(x[0][i].max(x[1][i])))
    }

    #[inline(always)]
    fn cut(self, x: Self::Int, mask: u64) -> Self::Real {
        from_fn(|i| f64::from_bits(f64::from(x[i]).to_bits() & mask) as f32)
    }

    #[inline(always)]
    fn cut_sum(self, a: Self::Int, b: Self::Int, mask: u64) -> Self::Real {
        from_fn(|i| {
            let sum = f64::from(a[i]) + f64::from(b[i]);
            f64::from_bits(sum.to_bits() & mask) as f32
        })
    }
}
