//! Normwise distance of two tensors, a block at a time, under the non-finite contract of this room:
//! any mismatch in class makes it +Inf or NaN, the same infinity on both sides is left out.
//!
//! Sums of squares are taken of scaled numbers, see [`Screen::scale`]; each block has its own scale,
//! and joining two blocks brings both to that of the larger numbers.

use super::{
    LANES,
    class::{Screen, Screened, is_compared},
    fold::sum_lanes,
    sample::Sample,
};

/// `√dd / √rr` with the conventions for zero vectors: 0 if both are, +Inf if only `r` is.
pub(super) fn relative_norm(dd: f64, rr: f64) -> f64 {
    if rr > 0.0 {
        dd.sqrt() / rr.sqrt()
    } else if dd > 0.0 {
        f64::INFINITY
    } else {
        0.0
    }
}

/// What a pair of tensors adds up to: `d = g − r` over the elements that are finite on both sides.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Distance {
    pub(super) screen: Screen,
    dd: f64,
    gg: f64,
    rr: f64,
}

impl Distance {
    /// The sums over one block.
    #[inline(always)]
    pub(super) fn of<G: Sample, R: Sample>(
        got: Screened<'_, G>,
        reference: Screened<'_, R>,
    ) -> Self {
        let screen = Screen::of(got, reference, 0);
        let mut squares = Squares {
            scale: screen.scale(),
            dd: [0.0; LANES],
            gg: [0.0; LANES],
            rr: [0.0; LANES],
        };
        let all_finite = screen.all_finite();
        add_block(&mut squares, got.values, reference.values, all_finite);
        Self {
            screen,
            dd: sum_lanes(&squares.dd),
            gg: sum_lanes(&squares.gg),
            rr: sum_lanes(&squares.rr),
        }
    }

    /// Takes in a later block.
    pub(super) fn join(&mut self, later: &Self) {
        let rescale = Rescale::of(&self.screen, &later.screen);
        for (sum, term) in [
            (&mut self.dd, later.dd),
            (&mut self.gg, later.gg),
            (&mut self.rr, later.rr),
        ] {
            *sum = rescale.join(*sum, term);
        }
        self.screen.join(&later.screen);
    }

    /// `‖g − r‖ / ‖r‖`, or what a class that does not match leaves of it.
    pub(super) fn rel_l2(&self) -> f64 {
        match self.screen.poison {
            Some(poison) => poison.value,
            None => relative_norm(self.dd, self.rr),
        }
    }

    /// How to sum the cosine gap in a second pass.
    pub(super) fn gap(&self) -> Gap {
        Gap::new(&self.screen, self.gg, self.rr)
    }
}

/// Brings the sums of two blocks to one scale. Powers of two, so that nothing is rounded; what falls
/// below f64's range on the way is nothing beside the other block.
#[derive(Clone, Copy)]
pub(super) struct Rescale {
    before: f64,
    after: f64,
}

impl Rescale {
    /// From the scales of what was summed so far and of the block that follows.
    pub(super) fn of(so_far: &Screen, later: &Screen) -> Self {
        let (before, after) = (so_far.scale(), later.scale());
        let common = match (so_far.is_zero(), later.is_zero()) {
            (true, _) => after,
            (_, true) => before,
            _ if after < before => after,
            _ => before,
        };
        Self {
            before: common / before,
            after: common / after,
        }
    }

    /// The sum of two sums of squares or products.
    pub(super) fn join(self, so_far: f64, later: f64) -> f64 {
        so_far * self.before * self.before + later * self.after * self.after
    }
}

/// The cosine gap `½‖g/‖g‖ − r/‖r‖‖²`, which needs both norms before its sum can be taken: 1 − cosine
/// without its cancellation. Both zero: 0. One zero: 1.
#[derive(Clone, Copy, Debug)]
pub(super) enum Gap {
    /// Known without a sum.
    Known(f64),
    /// Each number times `scale`, then times the reciprocal norm of its side.
    Sum {
        scale: f64,
        per_g: f64,
        per_r: f64,
        /// Whether there is nothing to leave out in any block.
        all_finite: bool,
    },
}

impl Gap {
    /// From the squared norms of the compared elements, taken at the screen's scale.
    pub(super) fn new(screen: &Screen, gg: f64, rr: f64) -> Self {
        if let Some(poison) = screen.poison {
            return Self::Known(poison.value);
        }
        match (gg > 0.0, rr > 0.0) {
            (true, true) => Self::Sum {
                scale: screen.scale(),
                per_g: 1.0 / gg.sqrt(),
                per_r: 1.0 / rr.sqrt(),
                all_finite: screen.all_finite(),
            },
            (false, false) => Self::Known(0.0),
            _ => Self::Known(1.0),
        }
    }

    /// What a block contributes to the sum.
    #[inline(always)]
    pub(super) fn part<G: Sample, R: Sample>(&self, got: &[G], reference: &[R]) -> f64 {
        let Self::Sum {
            scale,
            per_g,
            per_r,
            all_finite,
        } = *self
        else {
            return 0.0;
        };
        let mut sums = Apart {
            scale,
            per_g,
            per_r,
            apart: [0.0; LANES],
        };
        add_block(&mut sums, got, reference, all_finite);
        sum_lanes(&sums.apart)
    }

    /// The gap, given the sum of all parts.
    pub(super) fn finish(&self, apart: f64) -> f64 {
        match *self {
            Self::Known(gap) => gap,
            Self::Sum { .. } => 0.5 * apart,
        }
    }
}

/// What is summed of pairs of numbers, in lanes.
///
/// A trait and not a closure: what is marked `#[inline(always)]` is compiled for the vector level of
/// whoever sums, and a closure called in two places is not.
trait Sums {
    /// Takes in a pair.
    fn add(&mut self, lane: usize, g: f64, r: f64);
}

/// `d²`, `g²` and `r²` of numbers times a scale.
struct Squares {
    scale: f64,
    dd: [f64; LANES],
    gg: [f64; LANES],
    rr: [f64; LANES],
}

impl Sums for Squares {
    #[inline(always)]
    fn add(&mut self, lane: usize, g: f64, r: f64) {
        let (g, r) = (g * self.scale, r * self.scale);
        let d = g - r;
        self.dd[lane] += d * d;
        self.gg[lane] += g * g;
        self.rr[lane] += r * r;
    }
}

/// `(g/‖g‖ − r/‖r‖)²` of numbers times a scale.
struct Apart {
    scale: f64,
    per_g: f64,
    per_r: f64,
    apart: [f64; LANES],
}

impl Sums for Apart {
    #[inline(always)]
    fn add(&mut self, lane: usize, g: f64, r: f64) {
        let (g, r) = (g * self.scale, r * self.scale);
        let difference = g * self.per_g - r * self.per_r;
        self.apart[lane] += difference * difference;
    }
}

/// Sums over the compared elements of a block.
#[inline(always)]
fn add_block<G: Sample, R: Sample>(
    sums: &mut impl Sums,
    got: &[G],
    reference: &[R],
    all_finite: bool,
) {
    if all_finite {
        let (got, got_rest) = got.as_chunks::<LANES>();
        let (reference, reference_rest) = reference.as_chunks::<LANES>();
        for (got, reference) in got.iter().zip(reference) {
            for lane in 0..LANES {
                sums.add(lane, got[lane].widen(), reference[lane].widen());
            }
        }
        for (lane, (got, reference)) in got_rest.iter().zip(reference_rest).enumerate() {
            sums.add(lane, got.widen(), reference.widen());
        }
    } else {
        for (index, (got, reference)) in got.iter().zip(reference).enumerate() {
            let (g, r) = (got.widen(), reference.widen());
            if is_compared(g, r) {
                sums.add(index % LANES, g, r);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;

    fn split(got: &[f64], reference: &[f64], at: usize) -> Distance {
        let of = |part: Range<usize>| {
            let (got, reference) = (&got[part.clone()], &reference[part]);
            Distance::of(Screened::new(got), Screened::new(reference))
        };
        let mut distance = of(0..at);
        distance.join(&of(at..got.len()));
        distance
    }

    #[test]
    fn blocks_of_any_magnitude_join() {
        let (tiny, huge) = (2.0_f64.powi(-900), 2.0_f64.powi(900));
        for (left, right) in [
            (tiny, tiny),
            (tiny, 0.0),
            (0.0, tiny),
            (1.0, 0.0),
            (huge, huge),
        ] {
            let reference = [left, 2.0 * left, 2.0 * right, right];
            let got = reference.map(|r| 1.25 * r);
            assert_eq!(split(&got, &reference, 2).rel_l2(), 0.25, "{left} {right}");
        }
        // What is nothing beside the rest counts as nothing.
        let reference = [tiny, huge];
        assert_eq!(split(&[2.0 * tiny, huge], &reference, 1).rel_l2(), 0.0);
        assert_eq!(split(&[tiny, 2.0 * huge], &reference, 1).rel_l2(), 1.0);
    }

    #[test]
    fn a_class_that_does_not_match_is_found_in_any_block() {
        let reference = [1.0; 4];
        for place in 0..4 {
            let mut got = reference;
            got[place] = f64::INFINITY;
            assert_eq!(split(&got, &reference, 2).rel_l2(), f64::INFINITY);
            got[place] = f64::NAN;
            assert!(split(&got, &reference, 2).rel_l2().is_nan());
        }
    }
}
