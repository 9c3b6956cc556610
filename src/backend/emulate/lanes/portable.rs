//! Plain Rust: what the compiler makes of it for the baseline target.

use super::{LANES, Lane, Vector};

/// Needs no proof.
#[derive(Clone, Copy)]
pub(super) struct Portable;

#[inline(always)]
fn each(value: impl Fn(usize) -> f32) -> Lane {
    let mut lane = [0.0; LANES];
    for (index, to) in lane.iter_mut().enumerate() {
        *to = value(index);
    }
    lane
}

impl Vector for Portable {
    type Real = Lane;
    const ACCUMULATORS: usize = 1;

    #[inline(always)]
    fn load(self, from: &Lane) -> Self::Real {
        *from
    }

    #[inline(always)]
    fn store(self, from: Self::Real, to: &mut Lane) {
        *to = from;
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Self::Real {
        [x; LANES]
    }

    #[inline(always)]
    fn add(self, a: Self::Real, b: Self::Real) -> Self::Real {
        each(|lane| a[lane] + b[lane])
    }

    #[inline(always)]
    fn multiply(self, a: Self::Real, b: Self::Real) -> Self::Real {
        each(|lane| a[lane] * b[lane])
    }

    #[inline(always)]
    fn divide(self, a: Self::Real, b: Self::Real) -> Self::Real {
        each(|lane| a[lane] / b[lane])
    }

    #[inline(always)]
    fn fma(self, a: Self::Real, b: Self::Real, c: Self::Real) -> Self::Real {
        each(|lane| a[lane].mul_add(b[lane], c[lane]))
    }

    #[inline(always)]
    fn at_least(self, x: Self::Real, floor: Self::Real) -> Self::Real {
        each(|lane| {
            if x[lane] < floor[lane] {
                floor[lane]
            } else {
                x[lane]
            }
        })
    }
}
