//! Lanes in plain Rust: what the compiler makes of arrays, but for one instruction.
#![allow(unsafe_code)]

use super::{LANES, Lanes, PairWords, Reals, Rows, Task, pair_word};

/// Runs everywhere.
#[derive(Clone, Copy)]
pub(super) struct Portable;

impl Lanes for Portable {
    type Real = [f32; LANES];
    type Int = [i32; LANES];
    type Pairs = [[i16; LANES]; 2];

    #[inline(never)]
    fn run(self, task: impl Task) {
        task.run(self);
    }

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
        zip(a, b, |a, b| a * b)
    }

    #[inline(always)]
    fn truncate(self, x: Self::Real) -> Self::Int {
        truncate(x)
    }

    #[inline(always)]
    fn to_real(self, x: Self::Int) -> Self::Real {
        // Converts to nearest, but with the bit below the last one kept cleared.
        map(x, |x| {
            let sign = x >> 31;
            let magnitude = (x ^ sign).wrapping_sub(sign) as u32;
            let rounds_down = (magnitude & !(magnitude >> 24)) as i32;
            (rounds_down ^ sign).wrapping_sub(sign) as f32
        })
    }

    #[inline(always)]
    fn bits(self, x: Self::Real) -> Self::Int {
        map(x, |x| x.to_bits() as i32)
    }

    #[inline(always)]
    fn with_bits(self, x: Self::Int) -> Self::Real {
        map(x, |x| f32::from_bits(x as u32))
    }

    #[inline(always)]
    fn splat_int(self, x: i32) -> Self::Int {
        [x; LANES]
    }

    #[inline(always)]
    fn and(self, a: Self::Int, b: Self::Int) -> Self::Int {
        zip(a, b, |a, b| a & b)
    }

    #[inline(always)]
    fn add(self, a: Self::Int, b: Self::Int) -> Self::Int {
        zip(a, b, |a, b| a.wrapping_add(b))
    }

    #[inline(always)]
    fn subtract(self, a: Self::Int, b: Self::Int) -> Self::Int {
        zip(a, b, |a, b| a.wrapping_sub(b))
    }

    #[inline(always)]
    fn max(self, a: Self::Int, b: Self::Int) -> Self::Int {
        zip(a, b, |a, b| a.max(b))
    }

    #[inline(always)]
    fn max_unsigned(self, a: Self::Int, b: Self::Int) -> Self::Int {
        zip(a, b, |a, b| (a as u32).max(b as u32) as i32)
    }

    #[inline(always)]
    fn above(self, a: Self::Int, b: Self::Int) -> u16 {
        mask(zip(a, b, |a, b| a as u32 > b as u32))
    }

    #[inline(always)]
    fn flag_overflow(
        self,
        flags: Self::Int,
        a: Self::Int,
        b: Self::Int,
        sum: Self::Int,
    ) -> Self::Int {
        let signs = zip(a, sum, |a, sum| a ^ sum);
        let overflow = zip(signs, zip(b, sum, |b, sum| b ^ sum), |a, b| a & b);
        zip(flags, overflow, |flags, overflow| flags | overflow)
    }

    #[inline(always)]
    fn negative(self, x: Self::Int) -> u16 {
        mask(map(x, |x| x < 0))
    }

    #[inline(always)]
    fn load_pairs(self, from: &PairWords) -> Self::Pairs {
        [
            map(from.0, |word| word as i16),
            map(from.0, |word| (word >> 16) as i16),
        ]
    }

    #[inline(always)]
    fn store_pairs(self, from: Self::Pairs, to: &mut PairWords) {
        to.0 = zip(from[0], from[1], pair_word);
    }

    #[inline(always)]
    fn splat_pairs(self, word: u32) -> Self::Pairs {
        [[word as i16; LANES], [(word >> 16) as i16; LANES]]
    }

    #[inline(always)]
    fn add_pairs(self, a: Self::Pairs, b: Self::Pairs) -> Self::Pairs {
        [
            zip(a[0], b[0], |a, b| a.saturating_add(b)),
            zip(a[1], b[1], |a, b| a.saturating_add(b)),
        ]
    }

    #[inline(always)]
    fn max_pairs(self, a: Self::Pairs, b: Self::Pairs) -> Self::Pairs {
        [
            zip(a[0], b[0], |a, b| a.max(b)),
            zip(a[1], b[1], |a, b| a.max(b)),
        ]
    }

    #[inline(always)]
    fn and_pairs(self, a: Self::Pairs, b: Self::Pairs) -> Self::Pairs {
        [zip(a[0], b[0], |a, b| a & b), zip(a[1], b[1], |a, b| a & b)]
    }

    #[inline(always)]
    fn replace_zeros(
        self,
        value: Self::Pairs,
        test: Self::Pairs,
        instead: Self::Pairs,
    ) -> Self::Pairs {
        let mut results = value;
        for half in 0..2 {
            for i in 0..LANES {
                if test[half][i] == 0 {
                    results[half][i] = instead[half][i];
                }
            }
        }
        results
    }

    #[inline(always)]
    fn upper_halves(self, even: Self::Int, odd: Self::Int) -> Self::Pairs {
        [
            map(even, |even| (even >> 16) as i16),
            map(odd, |odd| (odd >> 16) as i16),
        ]
    }

    #[inline(always)]
    fn larger_half(self, x: Self::Pairs) -> Self::Int {
        zip(x[0], x[1], |even, odd| i32::from(even.max(odd)) << 16)
    }

    #[inline(always)]
    fn transpose(self, rows: &Rows<'_>, to: &mut [Reals; LANES]) {
        for (k, to) in to.iter_mut().enumerate() {
            for (to, row) in to.0.iter_mut().zip(rows) {
                *to = row[k];
            }
        }
    }
}

// Written as loops: `array::from_fn` is not inlined here.

#[inline(always)]
fn map<T: Copy, U: Copy + Default>(x: [T; LANES], f: impl Fn(T) -> U) -> [U; LANES] {
    let mut results = [U::default(); LANES];
    for i in 0..LANES {
        results[i] = f(x[i]);
    }
    results
}

#[inline(always)]
fn zip<T: Copy, U: Copy + Default>(
    a: [T; LANES],
    b: [T; LANES],
    f: impl Fn(T, T) -> U,
) -> [U; LANES] {
    let mut results = [U::default(); LANES];
    for i in 0..LANES {
        results[i] = f(a[i], b[i]);
    }
    results
}

#[inline(always)]
fn mask(bits: [bool; LANES]) -> u16 {
    let mut mask = 0;
    for (i, bit) in bits.into_iter().enumerate() {
        mask |= u16::from(bit) << i;
    }
    mask
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn truncate(x: [f32; LANES]) -> [i32; LANES] {
    map(x, |x| x as i32)
}

/// As `x as i32` where it matters, without the saturation that keeps the compiler from using the
/// instruction that every x86-64 has.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn truncate(x: [f32; LANES]) -> [i32; LANES] {
    use std::arch::x86_64::{_mm_cvttps_epi32, _mm_loadu_ps, _mm_storeu_si128};
    let mut results = [0_i32; LANES];
    for (to, from) in results
        .as_chunks_mut::<4>()
        .0
        .iter_mut()
        .zip(x.as_chunks::<4>().0)
    {
        // SAFETY: SSE2 is part of x86-64, and both references cover the 16 bytes.
        unsafe {
            let cut = _mm_cvttps_epi32(_mm_loadu_ps(from.as_ptr()));
            _mm_storeu_si128(to.as_mut_ptr().cast(), cut);
        }
    }
    results
}
