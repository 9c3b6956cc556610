//! Lanes in plain Rust: what the compiler makes of arrays.

use super::{Doubles, Lanes, Pairs, Singles, TOKENS};

/// Runs everywhere.
#[derive(Clone, Copy)]
pub(super) struct Portable {
    /// The first token of the part.
    first: usize,
}

impl Portable {
    /// The first part.
    pub(super) const fn new() -> Self {
        Self { first: 0 }
    }

    /// What belongs to the part.
    #[inline(always)]
    fn slice<T: Copy>(self, tile: &[T; TOKENS]) -> [T; WIDTH] {
        *tile[self.first..].first_chunk().expect("parts are whole")
    }

    #[inline(always)]
    fn slice_mut<T>(self, tile: &mut [T; TOKENS]) -> &mut [T; WIDTH] {
        tile[self.first..]
            .first_chunk_mut()
            .expect("parts are whole")
    }
}

/// Tokens of a part.
const WIDTH: usize = 8;

const SIGN: u64 = 1 << 63;
const FRACTION: u64 = (1 << 52) - 1;

impl Lanes for Portable {
    type Double = [f64; WIDTH];
    type Pairs = [i16; 2 * WIDTH];

    const PARTS: usize = TOKENS / WIDTH;
    const OUTPUTS: usize = 1;

    #[inline(always)]
    fn part(self, index: usize) -> Self {
        Self {
            first: index * WIDTH,
        }
    }

    #[inline(always)]
    fn transpose(self, rows: &[Singles; TOKENS], to: &mut [Singles; TOKENS]) {
        for (token, row) in rows.iter().enumerate() {
            for (to, x) in to.iter_mut().zip(row.0) {
                to.0[token] = x;
            }
        }
    }

    #[inline(always)]
    fn widen(self, from: &Singles) -> Self::Double {
        map(self.slice(&from.0), f64::from)
    }

    #[inline(always)]
    fn load(self, from: &Doubles) -> Self::Double {
        self.slice(&from.0)
    }

    #[inline(always)]
    fn store(self, from: Self::Double, to: &mut Doubles) {
        *self.slice_mut(&mut to.0) = from;
    }

    #[inline(always)]
    fn splat(self, x: f64) -> Self::Double {
        [x; WIDTH]
    }

    #[inline(always)]
    fn add(self, a: Self::Double, b: Self::Double) -> Self::Double {
        zip(a, b, |a, b| a + b)
    }

    #[inline(always)]
    fn subtract(self, a: Self::Double, b: Self::Double) -> Self::Double {
        zip(a, b, |a, b| a - b)
    }

    #[inline(always)]
    fn multiply(self, a: Self::Double, b: Self::Double) -> Self::Double {
        zip(a, b, |a, b| a * b)
    }

    #[inline(always)]
    fn add_product(self, a: Self::Double, b: Self::Double, c: Self::Double) -> Self::Double {
        self.add(self.multiply(a, b), c)
    }

    #[inline(always)]
    fn add_square(self, x: Self::Double, sum: Self::Double) -> Self::Double {
        zip(x, sum, |x, sum| x * x + sum)
    }

    #[inline(always)]
    fn larger(self, a: Self::Double, b: Self::Double) -> Self::Double {
        zip(a, b, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    fn absolute(self, x: Self::Double) -> Self::Double {
        map(x, f64::abs)
    }

    #[inline(always)]
    fn leading_bit(self, x: Self::Double) -> Self::Double {
        map(x, |x| f64::from_bits(x.to_bits() & !FRACTION))
    }

    #[inline(always)]
    fn with_sign(self, x: Self::Double, sign: Self::Double) -> Self::Double {
        zip(x, sign, |x, sign| {
            f64::from_bits(x.to_bits() | (sign.to_bits() & SIGN))
        })
    }

    #[inline(always)]
    fn load_pairs(self, from: &Pairs) -> Self::Pairs {
        *from.0[2 * self.first..].first_chunk().expect("whole part")
    }

    #[inline(always)]
    fn store_pairs(self, from: Self::Pairs, to: &mut Pairs) {
        to.0[2 * self.first..][..2 * WIDTH].copy_from_slice(&from);
    }

    #[inline(always)]
    fn splat_pairs(self, word: u32) -> Self::Pairs {
        let mut pairs = [0; 2 * WIDTH];
        for pair in pairs.as_chunks_mut::<2>().0 {
            *pair = [word as i16, (word >> 16) as i16];
        }
        pairs
    }

    #[inline(always)]
    fn halves(self, even: Self::Pairs, odd: Self::Pairs) -> Self::Pairs {
        let mut results = even;
        for token in 0..WIDTH {
            results[2 * token + 1] = odd[2 * token + 1];
        }
        results
    }

    #[inline(always)]
    fn replace_zeros(self, x: Self::Pairs, test: Self::Pairs, by: Self::Pairs) -> Self::Pairs {
        let kept = zip(x, test, |x, test| if test == 0 { 0 } else { x });
        let new = zip(by, test, |by, test| if test == 0 { by } else { 0 });
        zip(kept, new, |kept, new| kept | new)
    }

    #[inline(always)]
    fn add_pairs(self, a: Self::Pairs, b: Self::Pairs) -> Self::Pairs {
        zip(a, b, i16::wrapping_add)
    }

    #[inline(always)]
    fn max_pairs(self, a: Self::Pairs, b: Self::Pairs) -> Self::Pairs {
        zip(a, b, i16::max)
    }

    #[inline(always)]
    fn max_of_pair(self, x: Self::Pairs) -> Self::Pairs {
        let mut swapped = x;
        for token in 0..WIDTH {
            swapped[2 * token] = x[2 * token + 1];
            swapped[2 * token + 1] = x[2 * token];
        }
        zip(x, swapped, i16::max)
    }

    #[inline(always)]
    fn count_below(
        self,
        counts: Self::Pairs,
        one: Self::Pairs,
        x: Self::Pairs,
        limit: Self::Pairs,
    ) -> Self::Pairs {
        let below = zip(x, limit, |x, limit| (x as u16) < limit as u16);
        let more = zip(one, below, |one, below| if below { one } else { 0 });
        zip(counts, more, i16::wrapping_add)
    }

    #[inline(always)]
    fn exponent_field(self, x: Self::Double) -> Self::Pairs {
        let fields = map(x, |x| (x.to_bits() >> 52) as i16);
        paired(fields, fields)
    }

    #[inline(always)]
    fn power(self, field: Self::Pairs) -> Self::Double {
        map(evens(field), |field| f64::from_bits((field as u64) << 52))
    }

    #[inline(always)]
    fn power_plus(self, field: Self::Pairs, counts: Self::Pairs) -> Self::Double {
        let mut sums = [0; WIDTH];
        for token in 0..WIDTH {
            sums[token] = counts[2 * token].wrapping_add(counts[2 * token + 1]);
        }
        zip(evens(field), sums, |field, sum| {
            f64::from_bits((field as u64) << 52 | sum as u64)
        })
    }
}

#[inline(always)]
fn paired(even: [i16; WIDTH], odd: [i16; WIDTH]) -> [i16; 2 * WIDTH] {
    let mut pairs = [0; 2 * WIDTH];
    for token in 0..WIDTH {
        pairs[2 * token] = even[token];
        pairs[2 * token + 1] = odd[token];
    }
    pairs
}

#[inline(always)]
fn evens(pairs: [i16; 2 * WIDTH]) -> [i16; WIDTH] {
    let mut results = [0; WIDTH];
    for token in 0..WIDTH {
        results[token] = pairs[2 * token];
    }
    results
}

// Written as loops: `array::from_fn` is not inlined here.

#[inline(always)]
fn map<T: Copy, U: Copy + Default, const N: usize>(x: [T; N], f: impl Fn(T) -> U) -> [U; N] {
    let mut results = [U::default(); N];
    for i in 0..N {
        results[i] = f(x[i]);
    }
    results
}

#[inline(always)]
fn zip<T: Copy, U: Copy, R: Copy + Default, const N: usize>(
    a: [T; N],
    b: [U; N],
    f: impl Fn(T, U) -> R,
) -> [R; N] {
    let mut results = [R::default(); N];
    for i in 0..N {
        results[i] = f(a[i], b[i]);
    }
    results
}
