//! From sums to measures: what one pass over a stage found, and the formulas on top of it.

use super::{
    class::is_compared,
    rows::{Peak, Totals},
    sample::Sample,
};

/// What the pass over all rows found.
pub(super) struct Reduced {
    pub(super) totals: Totals,
    /// The largest per-token `rel_l2`.
    pub(super) token_max: f64,
    /// How many elements entered the sums.
    pub(super) compared: usize,
    /// The power of two that squares were scaled by.
    scale: f64,
}

/// The share of elements that shrank, and how unlikely that is by chance.
pub(super) struct OneSided {
    pub(super) share: f64,
    pub(super) z: f64,
}

impl Reduced {
    pub(super) fn new(scale: f64) -> Self {
        Self {
            totals: Totals::new(),
            token_max: 0.0,
            compared: 0,
            scale,
        }
    }

    /// An absolute error over rms(r).
    pub(super) fn scaled(&self, error: f64) -> f64 {
        if error == 0.0 {
            return 0.0;
        }
        let rms = (self.totals.rr / self.compared.max(1) as f64).sqrt();
        error * self.scale / rms
    }

    pub(super) fn cosine(&self) -> f64 {
        let Totals { gg, rr, gr, .. } = self.totals;
        match (gg > 0.0, rr > 0.0) {
            (true, true) => (gr / (gg.sqrt() * rr.sqrt())).clamp(-1.0, 1.0),
            (false, false) => 1.0,
            _ => 0.0,
        }
    }

    pub(super) fn calc_diff(&self) -> f64 {
        let Totals { dd, gg, rr, .. } = self.totals;
        if dd == 0.0 { 0.0 } else { dd / (gg + rr) }
    }

    pub(super) fn sqnr_db(&self) -> f64 {
        let Totals { dd, rr, .. } = self.totals;
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

    /// Renames peaks of the kept elements to indices of the tensor; nothing to do if all were kept.
    pub(super) fn peaks_to_tensor(&mut self, kept: &[usize]) {
        let rename = |peak: &mut Peak| {
            if let Some(&index) = kept.get(peak.at as usize) {
                peak.at = index as u64;
            }
        };
        rename(&mut self.totals.abs);
        rename(&mut self.totals.rel);
    }
}

/// The elements that enter the sums of a tensor that is not all finite.
pub(super) struct Kept<G> {
    pub(super) got: Vec<G>,
    pub(super) reference: Vec<f64>,
    /// Where each stood in the tensor.
    pub(super) index: Vec<usize>,
}

impl<G: Sample> Kept<G> {
    pub(super) fn new() -> Self {
        Self {
            got: Vec::new(),
            reference: Vec::new(),
            index: Vec::new(),
        }
    }

    /// Keeps what can be compared of one row; returns where the row now starts.
    pub(super) fn keep_row(&mut self, got: &[G], reference: &[f64], offset: usize) -> usize {
        let start = self.got.len();
        for (column, (&g, &r)) in got.iter().zip(reference).enumerate() {
            if is_compared(g.widen(), r) {
                self.got.push(g);
                self.reference.push(r);
                self.index.push(offset + column);
            }
        }
        start
    }
}
