//! Normwise distances of two tensors, under the non-finite contract of this room: any mismatch in
//! class makes the result +Inf or NaN, the same infinity on both sides is left out.

use super::{
    class::{Screen, is_compared},
    fold::lane_sums,
    sample::Sample,
};

/// `‖g − r‖₂ / ‖r‖₂`; 0 if both are zero vectors, +Inf if only `r` is.
///
/// The slices must be of one length; elements beyond the shorter are not looked at.
#[must_use]
pub fn rel_l2<G: Sample, R: Sample>(got: &[G], reference: &[R]) -> f64 {
    let pairs = Pairs::new(got, reference);
    match pairs.poison {
        Some(poison) => poison,
        None => {
            let [dd, rr] = pairs.sums(|g, r| [(g - r) * (g - r), r * r]);
            relative_norm(dd, rr)
        }
    }
}

/// `½‖g/‖g‖ − r/‖r‖‖²`, computed directly: 1 − cosine without its cancellation. Both zero: 0. One
/// zero: 1.
///
/// The slices must be of one length; elements beyond the shorter are not looked at.
#[must_use]
pub fn cosine_gap<G: Sample, R: Sample>(got: &[G], reference: &[R]) -> f64 {
    let pairs = Pairs::new(got, reference);
    match pairs.poison {
        Some(poison) => poison,
        None => {
            let [gg, rr] = pairs.sums(|g, r| [g * g, r * r]);
            pairs.gap(gg, rr)
        }
    }
}

/// `√dd / √rr` with the conventions for zero vectors.
pub(super) fn relative_norm(dd: f64, rr: f64) -> f64 {
    if rr > 0.0 {
        dd.sqrt() / rr.sqrt()
    } else if dd > 0.0 {
        f64::INFINITY
    } else {
        0.0
    }
}

/// Two tensors of one length and what their classes allow.
pub(super) struct Pairs<'a, G, R> {
    got: &'a [G],
    reference: &'a [R],
    scale: f64,
    all_finite: bool,
    pub(super) poison: Option<f64>,
}

impl<'a, G: Sample, R: Sample> Pairs<'a, G, R> {
    pub(super) fn new(got: &'a [G], reference: &'a [R]) -> Self {
        let len = got.len().min(reference.len());
        let (got, reference) = (&got[..len], &reference[..len]);
        Self::screened(got, reference, &Screen::of(got, reference))
    }

    /// The same where the classes are known already.
    pub(super) fn screened(got: &'a [G], reference: &'a [R], screen: &Screen) -> Self {
        Self {
            got,
            reference,
            scale: screen.scale(),
            all_finite: screen.all_finite(),
            poison: screen.poison.map(|poison| poison.value),
        }
    }

    /// Sums terms over the compared elements, both numbers scaled.
    #[inline(always)]
    pub(super) fn sums<const N: usize>(&self, terms: impl Fn(f64, f64) -> [f64; N]) -> [f64; N] {
        let (got, reference) = (self.got, &self.reference[..self.got.len()]);
        let scaled = |index: usize| {
            (
                got[index].widen() * self.scale,
                reference[index].widen() * self.scale,
            )
        };
        if self.all_finite {
            return lane_sums(got.len(), |index| {
                let (g, r) = scaled(index);
                terms(g, r)
            });
        }
        lane_sums(got.len(), |index| {
            let (g, r) = scaled(index);
            if is_compared(g, r) {
                terms(g, r)
            } else {
                [0.0; N]
            }
        })
    }

    /// The cosine gap, given both squared norms of the compared elements.
    pub(super) fn gap(&self, gg: f64, rr: f64) -> f64 {
        match (gg > 0.0, rr > 0.0) {
            (true, true) => {
                let (per_g, per_r) = (1.0 / gg.sqrt(), 1.0 / rr.sqrt());
                let [apart] = self.sums(|g, r| {
                    let difference = g * per_g - r * per_r;
                    [difference * difference]
                });
                0.5 * apart
            }
            (false, false) => 0.0,
            _ => 1.0,
        }
    }
}
