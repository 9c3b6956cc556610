//! The pass over got and reference that sums, counts, maxima and the histograms of errors share.
//!
//! Rows are reduced one by one (a token's `rel_l2` falls out on the way) over interleaved lanes, rows
//! are added up in order within a block, and blocks in order after that.

use super::{
    LANES,
    class::{Element, is_compared},
    fold::sum_lanes,
    norm::Rescale,
    sample::Sample,
    select::{Brackets, Histogram},
    ulp::UlpRule,
};

/// What the pass needs besides the numbers.
#[derive(Clone, Copy)]
pub(super) struct Parameters {
    /// A power of two that keeps squares inside f64's range; 1 for anything born in f32.
    pub(super) scale: f64,
    pub(super) ulp: UlpRule,
}

/// A largest value and the element it is at, which means nothing while the value is negative.
#[derive(Clone, Copy)]
pub(super) struct Peak {
    pub(super) value: f64,
    pub(super) element: Element,
}

impl Peak {
    const NONE: Self = Self {
        value: -1.0,
        element: Element {
            index: 0,
            got: 0.0,
            reference: 0.0,
        },
    };

    /// Keeps the larger; of equals the one that comes first in the tensor.
    fn join(&mut self, other: &Self) {
        let first_of_equals = other.value == self.value && other.element.index < self.element.index;
        if other.value > self.value || first_of_equals {
            *self = *other;
        }
    }
}

/// Everything the pass adds up, with `d = g - r`; squares and products are of scaled numbers.
pub(super) struct Totals {
    pub(super) dd: f64,
    pub(super) rr: f64,
    pub(super) gg: f64,
    pub(super) dr: f64,
    pub(super) gr: f64,
    pub(super) ulp_sum: f64,
    pub(super) ulp_max: f64,
    /// Elements with `|g| < |r|`, and with `|g| != |r|`.
    pub(super) shrunk: u64,
    pub(super) unequal: u64,
    /// Elements with `r = 0`, and those of them with `g != 0`.
    pub(super) zero: u64,
    pub(super) zero_missed: u64,
    /// Elements that entered the sums.
    pub(super) compared: u64,
    pub(super) abs: Peak,
    pub(super) rel: Peak,
}

impl Totals {
    pub(super) fn new() -> Self {
        Self {
            dd: 0.0,
            rr: 0.0,
            gg: 0.0,
            dr: 0.0,
            gr: 0.0,
            ulp_sum: 0.0,
            ulp_max: 0.0,
            shrunk: 0,
            unequal: 0,
            zero: 0,
            zero_missed: 0,
            compared: 0,
            abs: Peak::NONE,
            rel: Peak::NONE,
        }
    }

    /// Adds the totals of what follows; `rescale` brings both to one scale.
    pub(super) fn join(&mut self, later: &Self, rescale: Rescale) {
        for (sum, term) in [
            (&mut self.dd, later.dd),
            (&mut self.rr, later.rr),
            (&mut self.gg, later.gg),
            (&mut self.dr, later.dr),
            (&mut self.gr, later.gr),
        ] {
            *sum = rescale.join(*sum, term);
        }
        self.ulp_sum += later.ulp_sum;
        // No NaN reaches this pass, so a plain comparison drops nothing.
        if later.ulp_max > self.ulp_max {
            self.ulp_max = later.ulp_max;
        }
        self.shrunk += later.shrunk;
        self.unequal += later.unequal;
        self.zero += later.zero;
        self.zero_missed += later.zero_missed;
        self.compared += later.compared;
        self.abs.join(&later.abs);
        self.rel.join(&later.rel);
    }
}

/// The interleaved partial results of one row.
struct Lanes {
    dd: [f64; LANES],
    rr: [f64; LANES],
    gg: [f64; LANES],
    dr: [f64; LANES],
    gr: [f64; LANES],
    ulp_sum: [f64; LANES],
    ulp_max: [f64; LANES],
    shrunk: [u64; LANES],
    unequal: [u64; LANES],
    zero: [u64; LANES],
    zero_missed: [u64; LANES],
    abs_max: [f64; LANES],
    abs_at: [u64; LANES],
    rel_max: [f64; LANES],
    rel_at: [u64; LANES],
}

impl Lanes {
    #[inline(always)]
    fn new() -> Self {
        Self {
            dd: [0.0; LANES],
            rr: [0.0; LANES],
            gg: [0.0; LANES],
            dr: [0.0; LANES],
            gr: [0.0; LANES],
            ulp_sum: [0.0; LANES],
            ulp_max: [0.0; LANES],
            shrunk: [0; LANES],
            unequal: [0; LANES],
            zero: [0; LANES],
            zero_missed: [0; LANES],
            abs_max: [Peak::NONE.value; LANES],
            abs_at: [0; LANES],
            rel_max: [Peak::NONE.value; LANES],
            rel_at: [0; LANES],
        }
    }

    /// Takes in `count <= LANES` elements, one per lane; `index` is that of the first in its row.
    #[inline(always)]
    fn take<G: Sample>(
        &mut self,
        got: &[G],
        reference: &[f64],
        count: usize,
        index: u64,
        parameters: Parameters,
    ) -> Keys {
        let Parameters { scale, ulp } = parameters;
        let mut keys = Keys::NONE;
        for lane in 0..count {
            let (g, r) = (got[lane].widen(), reference[lane]);
            let Errors { distance, relative } = Errors::of(g, r);
            // Scaled before they are subtracted: the difference may leave the range, too.
            let (gs, rs) = (g * scale, r * scale);
            let ds = gs - rs;
            self.dd[lane] += ds * ds;
            self.rr[lane] += rs * rs;
            self.gg[lane] += gs * gs;
            self.dr[lane] += ds * rs;
            self.gr[lane] += gs * rs;

            let ulps = distance * ulp.per_ulp(r);
            self.ulp_sum[lane] += ulps;
            self.ulp_max[lane] = if ulps > self.ulp_max[lane] {
                ulps
            } else {
                self.ulp_max[lane]
            };

            let (g_size, r_size) = (g.abs(), r.abs());
            self.shrunk[lane] += u64::from(g_size < r_size);
            self.unequal[lane] += u64::from(g_size != r_size);
            self.zero[lane] += u64::from(r_size == 0.0);
            self.zero_missed[lane] += u64::from(r_size == 0.0) & u64::from(g_size != 0.0);

            let at = index + lane as u64;
            let farther = distance > self.abs_max[lane];
            self.abs_max[lane] = if farther {
                distance
            } else {
                self.abs_max[lane]
            };
            self.abs_at[lane] = if farther { at } else { self.abs_at[lane] };
            // NaN compares false, so r = 0 does not win.
            let steeper = relative > self.rel_max[lane];
            self.rel_max[lane] = if steeper {
                relative
            } else {
                self.rel_max[lane]
            };
            self.rel_at[lane] = if steeper { at } else { self.rel_at[lane] };

            keys.abs[lane] = distance.to_bits();
            keys.rel[lane] = relative.to_bits();
        }
        keys
    }
}

/// The errors of one element whose percentiles are reported.
struct Errors {
    distance: f64,
    /// NaN where r is 0: it sorts last and enters no percentile.
    relative: f64,
}

impl Errors {
    #[inline(always)]
    fn of(g: f64, r: f64) -> Self {
        let distance = (g - r).abs();
        let relative = if r == 0.0 {
            f64::NAN
        } else {
            distance / r.abs()
        };
        Self { distance, relative }
    }
}

/// Bit patterns of the errors of up to eight elements.
struct Keys {
    abs: [u64; LANES],
    rel: [u64; LANES],
}

impl Keys {
    const NONE: Self = Self {
        abs: [0; LANES],
        rel: [0; LANES],
    };
}

/// The distributions of `|d|` and of `|d|/|r|`.
#[derive(Clone, Debug)]
pub(super) struct Histograms {
    pub(super) abs: Histogram,
    pub(super) rel: Histogram,
}

impl Histograms {
    pub(super) fn new() -> Self {
        Self {
            abs: Histogram::new(),
            rel: Histogram::new(),
        }
    }

    pub(super) fn join(&mut self, other: &Self) {
        self.abs.join(&other.abs);
        self.rel.join(&other.rel);
    }

    #[inline(always)]
    fn add(&mut self, keys: &Keys, count: usize) {
        if count == LANES {
            self.abs.add(&keys.abs);
            self.rel.add(&keys.rel);
        } else {
            for lane in 0..count {
                self.abs.add(&[keys.abs[lane]]);
                self.rel.add(&[keys.rel[lane]]);
            }
        }
    }
}

/// Rows of a block that are compared, element by element: those of the tensor, or of a tensor that
/// is not all finite what is finite on both sides.
pub(super) struct Row<'a, G> {
    got: &'a [G],
    reference: &'a [f64],
    /// Index of the first element in the tensor.
    offset: u64,
    /// Where each element stands in its row, if not all are compared.
    places: Option<&'a [u64]>,
}

impl<G: Sample> Row<'_, G> {
    fn element(&self, at: u64) -> Element {
        let at = at as usize;
        Element {
            index: self.offset + self.places.map_or(at as u64, |places| places[at]),
            got: self.got[at].widen(),
            reference: self.reference[at],
        }
    }

    /// Reduces the row and counts its errors in `histograms`.
    #[inline(always)]
    pub(super) fn totals(&self, parameters: Parameters, histograms: &mut Histograms) -> Totals {
        let mut lanes = Lanes::new();
        let (got, got_rest) = self.got.as_chunks::<LANES>();
        let (reference, reference_rest) = self.reference.as_chunks::<LANES>();
        let starts = (0..).step_by(LANES);
        for ((got, reference), start) in got.iter().zip(reference).zip(starts) {
            let keys = lanes.take(got, reference, LANES, start, parameters);
            histograms.add(&keys, LANES);
        }
        let (start, count) = ((LANES * got.len()) as u64, got_rest.len());
        let keys = lanes.take(got_rest, reference_rest, count, start, parameters);
        histograms.add(&keys, count);
        self.fold(&lanes)
    }

    #[inline(always)]
    fn fold(&self, lanes: &Lanes) -> Totals {
        let mut ulp_max = 0.0;
        for lane in lanes.ulp_max {
            if lane > ulp_max {
                ulp_max = lane;
            }
        }
        Totals {
            dd: sum_lanes(&lanes.dd),
            rr: sum_lanes(&lanes.rr),
            gg: sum_lanes(&lanes.gg),
            dr: sum_lanes(&lanes.dr),
            gr: sum_lanes(&lanes.gr),
            ulp_sum: sum_lanes(&lanes.ulp_sum),
            ulp_max,
            shrunk: lanes.shrunk.iter().sum(),
            unequal: lanes.unequal.iter().sum(),
            zero: lanes.zero.iter().sum(),
            zero_missed: lanes.zero_missed.iter().sum(),
            compared: self.got.len() as u64,
            abs: self.peak(&lanes.abs_max, &lanes.abs_at),
            rel: self.peak(&lanes.rel_max, &lanes.rel_at),
        }
    }

    /// The peak of all lanes.
    fn peak(&self, max: &[f64; LANES], at: &[u64; LANES]) -> Peak {
        let mut peak = Peak::NONE;
        for lane in 0..LANES {
            if max[lane] >= 0.0 {
                peak.join(&Peak {
                    value: max[lane],
                    element: self.element(at[lane]),
                });
            }
        }
        peak
    }

    /// Keeps the errors that decide the percentiles: the second pass.
    #[inline(always)]
    pub(super) fn keep(&self, brackets: &ErrorBrackets, kept: &mut KeptErrors) {
        let (got, got_rest) = self.got.as_chunks::<LANES>();
        let (reference, reference_rest) = self.reference.as_chunks::<LANES>();
        for (got, reference) in got.iter().zip(reference) {
            let mut keys = Keys::NONE;
            for lane in 0..LANES {
                let errors = Errors::of(got[lane].widen(), reference[lane]);
                keys.abs[lane] = errors.distance.to_bits();
                keys.rel[lane] = errors.relative.to_bits();
            }
            brackets.keep(&keys.abs, &keys.rel, kept);
        }
        for (got, &reference) in got_rest.iter().zip(reference_rest) {
            let errors = Errors::of(got.widen(), reference);
            brackets.keep(
                &[errors.distance.to_bits()],
                &[errors.relative.to_bits()],
                kept,
            );
        }
    }
}

/// Where the percentiles of both errors are to be found; none where nothing is compared.
pub(super) struct ErrorBrackets {
    pub(super) abs: Option<Brackets>,
    pub(super) rel: Option<Brackets>,
}

/// The errors kept for the percentiles.
#[derive(Default)]
pub(super) struct KeptErrors {
    pub(super) abs: Vec<u64>,
    pub(super) rel: Vec<u64>,
}

impl ErrorBrackets {
    #[inline(always)]
    fn keep<const N: usize>(&self, abs: &[u64; N], rel: &[u64; N], kept: &mut KeptErrors) {
        if let Some(brackets) = &self.abs {
            brackets.keep(abs, &mut kept.abs);
        }
        if let Some(brackets) = &self.rel {
            brackets.keep(rel, &mut kept.rel);
        }
    }
}

/// Cuts a block into rows that are compared.
pub(super) struct Cut<G> {
    all_finite: bool,
    /// The elements of one row that are finite on both sides, and where each stood in the row.
    got: Vec<G>,
    reference: Vec<f64>,
    places: Vec<u64>,
}

impl<G: Sample> Cut<G> {
    /// `all_finite` says that there is nothing to leave out.
    pub(super) fn new(all_finite: bool) -> Self {
        Self {
            all_finite,
            got: Vec::new(),
            reference: Vec::new(),
            places: Vec::new(),
        }
    }

    /// What is compared of one row whose first element is number `offset` of the tensor.
    #[inline(always)]
    pub(super) fn row<'a>(
        &'a mut self,
        got: &'a [G],
        reference: &'a [f64],
        offset: u64,
    ) -> Row<'a, G> {
        if self.all_finite {
            return Row {
                got,
                reference,
                offset,
                places: None,
            };
        }
        self.fill(got, reference);
        Row {
            got: &self.got,
            reference: &self.reference,
            offset,
            places: Some(&self.places),
        }
    }

    fn fill(&mut self, got: &[G], reference: &[f64]) {
        self.got.clear();
        self.reference.clear();
        self.places.clear();
        for (place, (&g, &r)) in (0..).zip(got.iter().zip(reference)) {
            if is_compared(g.widen(), r) {
                self.got.push(g);
                self.reference.push(r);
                self.places.push(place);
            }
        }
    }
}
