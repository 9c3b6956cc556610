//! The two folds every measure uses: a sum in a fixed order and a maximum that keeps NaN.

use super::LANES;

/// Joins interleaved partial sums by one fixed tree.
///
/// Never inlined: a call wants the eight in memory side by side, and so the compiler keeps them in one
/// register; otherwise it pairs them for the tree, in the loop that sums, too.
#[inline(never)]
pub(super) fn sum_lanes(lanes: &[f64; LANES]) -> f64 {
    ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6]))
        + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]))
}

/// The larger of two numbers; NaN if either is, in either order. `f64::max` would drop the NaN and
/// with it the failure it stands for.
#[inline(always)]
pub(crate) fn nan_max(a: f64, b: f64) -> f64 {
    if b > a || b.is_nan() { b } else { a }
}

/// Sums `term(0), ..., term(len - 1)` over interleaved lanes.
pub(super) fn lane_sum(len: usize, term: impl Fn(usize) -> f64) -> f64 {
    let mut lanes = [0.0; LANES];
    for index in 0..len {
        lanes[index % LANES] += term(index);
    }
    sum_lanes(&lanes)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Known faults A10, A20, A21, A23: a NaN lost in a running maximum, depending on the order.
    #[test]
    fn a10_a20_a21_a23_maximum_keeps_nan_in_both_orders() {
        for values in [
            [1e-7, f64::NAN, 1e-6],
            [1e-6, f64::NAN, 1e-7],
            [f64::NAN, 10.0, 0.0],
            [10.0, 0.0, f64::NAN],
            [f64::NAN, f64::NAN, f64::NAN],
        ] {
            assert!(values.into_iter().fold(0.0, nan_max).is_nan(), "{values:?}");
        }
        assert_eq!([1.0, 3.0, 2.0].into_iter().fold(0.0, nan_max), 3.0);
    }

    #[test]
    fn lane_sum_adds_every_term_once() {
        for len in [0, 1, 7, 8, 9, 64, 100] {
            let sum = lane_sum(len, |index| (index + 1) as f64);
            let expected = (len * (len + 1) / 2) as f64;
            assert_eq!(sum, expected, "{len}");
        }
    }
}
