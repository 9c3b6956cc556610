//! From sums to measures: the formulas on top of what the passes over a stage found.

use super::rows::Totals;

/// Sums of squares and products, and the power of two that their numbers were scaled by.
pub(super) struct Reduced<'a> {
    pub(super) totals: &'a Totals,
    pub(super) scale: f64,
}

/// The share of elements that shrank, and how unlikely that is by chance.
pub(super) struct OneSided {
    pub(super) share: f64,
    pub(super) z: f64,
}

impl Reduced<'_> {
    /// An absolute error over rms(r).
    pub(super) fn scaled(&self, error: f64) -> f64 {
        if error == 0.0 {
            return 0.0;
        }
        let rms = (self.totals.rr / self.compared()).sqrt();
        error * self.scale / rms
    }

    /// Elements that entered the sums, as a divisor.
    fn compared(&self) -> f64 {
        self.totals.compared.max(1) as f64
    }

    pub(super) fn ulp_mean(&self) -> f64 {
        self.totals.ulp_sum / self.compared()
    }

    pub(super) fn slope(&self) -> Option<f64> {
        let Totals { rr, dr, .. } = *self.totals;
        (rr > 0.0).then(|| dr / rr)
    }

    pub(super) fn cosine(&self) -> f64 {
        let Totals { gg, rr, gr, .. } = *self.totals;
        match (gg > 0.0, rr > 0.0) {
            (true, true) => (gr / (gg.sqrt() * rr.sqrt())).clamp(-1.0, 1.0),
            (false, false) => 1.0,
            _ => 0.0,
        }
    }

    pub(super) fn calc_diff(&self) -> f64 {
        let Totals { dd, gg, rr, .. } = *self.totals;
        if dd == 0.0 { 0.0 } else { dd / (gg + rr) }
    }

    pub(super) fn sqnr_db(&self) -> f64 {
        let Totals { dd, rr, .. } = *self.totals;
        if dd == 0.0 {
            f64::INFINITY
        } else {
            20.0 * libm::log10(rr.sqrt() / dd.sqrt())
        }
    }

    pub(super) fn one_sided(&self) -> Option<OneSided> {
        let (shrunk, unequal) = (self.totals.shrunk as f64, self.totals.unequal as f64);
        (unequal > 0.0).then(|| OneSided {
            share: shrunk / unequal,
            z: (2.0 * shrunk - unequal) / unequal.sqrt(),
        })
    }
}
