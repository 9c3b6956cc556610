//! The one pass over got and reference that every sum, count, maximum and percentile shares.
//!
//! Rows are reduced one by one (a token's `rel_l2` falls out on the way) over interleaved lanes, and
//! rows are added up in order.

use super::{LANES, error::Scratch, fold::sum_lanes, sample::Sample, ulp::UlpRule};

/// What the pass needs besides the numbers.
#[derive(Clone, Copy)]
pub(super) struct Parameters {
    /// A power of two that keeps squares inside f64's range; 1 for anything born in f32.
    pub(super) scale: f64,
    pub(super) ulp: UlpRule,
}

/// A largest value and where it is; `at` means nothing while `value` is negative.
#[derive(Clone, Copy)]
pub(super) struct Peak {
    pub(super) value: f64,
    pub(super) at: u64,
}

impl Peak {
    const NONE: Self = Self { value: -1.0, at: 0 };

    /// Keeps the larger; of equals the one that comes first in the tensor.
    fn join(&mut self, other: Self) {
        let first_of_equals = other.value == self.value && other.at < self.at;
        if other.value > self.value || first_of_equals {
            *self = other;
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
            abs: Peak::NONE,
            rel: Peak::NONE,
        }
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

    /// Takes in `count <= LANES` elements, one per lane; `index` is that of the first.
    #[inline(always)]
    fn take<G: Sample>(
        &mut self,
        elements: &Elements<'_, G>,
        keys: &mut Keys<'_>,
        count: usize,
        index: u64,
        parameters: Parameters,
    ) {
        let Parameters { scale, ulp } = parameters;
        for lane in 0..count {
            let (g, r) = (elements.got[lane].widen(), elements.reference[lane]);
            let distance = (g - r).abs();
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

            // NaN compares false and sorts last, so r = 0 neither wins nor enters a percentile.
            let relative = if r_size == 0.0 {
                f64::NAN
            } else {
                distance / r_size
            };
            let at = index + lane as u64;
            let farther = distance > self.abs_max[lane];
            self.abs_max[lane] = if farther {
                distance
            } else {
                self.abs_max[lane]
            };
            self.abs_at[lane] = if farther { at } else { self.abs_at[lane] };
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
    }
}

struct Elements<'a, G> {
    got: &'a [G],
    reference: &'a [f64],
}

struct Keys<'a> {
    abs: &'a mut [u64],
    rel: &'a mut [u64],
}

/// What a row contributes to the per-token figures.
pub(super) struct RowNorms {
    pub(super) dd: f64,
    pub(super) rr: f64,
}

/// Reduces one row that starts at `offset` of the tensor, adds it to `totals` and leaves its
/// elements' absolute and relative errors in `scratch`.
pub(super) fn add_row<G: Sample>(
    got: &[G],
    reference: &[f64],
    offset: usize,
    parameters: Parameters,
    scratch: &mut Scratch,
    totals: &mut Totals,
) -> RowNorms {
    let len = got.len();
    let abs = &mut scratch.abs[offset..offset + len];
    let rel = &mut scratch.rel[offset..offset + len];
    let mut lanes = Lanes::new();
    let whole = len - len % LANES;
    let mut start = 0;
    while start < len {
        let count = if start < whole { LANES } else { len - whole };
        let part = start..start + count;
        let elements = Elements {
            got: &got[part.clone()],
            reference: &reference[part.clone()],
        };
        let mut keys = Keys {
            abs: &mut abs[part.clone()],
            rel: &mut rel[part],
        };
        let index = (offset + start) as u64;
        if count == LANES {
            lanes.take(&elements, &mut keys, LANES, index, parameters);
        } else {
            lanes.take(&elements, &mut keys, count, index, parameters);
        }
        start += LANES;
    }
    fold_row(&lanes, totals)
}

fn fold_row(lanes: &Lanes, totals: &mut Totals) -> RowNorms {
    let norms = RowNorms {
        dd: sum_lanes(&lanes.dd),
        rr: sum_lanes(&lanes.rr),
    };
    totals.dd += norms.dd;
    totals.rr += norms.rr;
    totals.gg += sum_lanes(&lanes.gg);
    totals.dr += sum_lanes(&lanes.dr);
    totals.gr += sum_lanes(&lanes.gr);
    totals.ulp_sum += sum_lanes(&lanes.ulp_sum);
    totals.shrunk += lanes.shrunk.iter().sum::<u64>();
    totals.unequal += lanes.unequal.iter().sum::<u64>();
    totals.zero += lanes.zero.iter().sum::<u64>();
    totals.zero_missed += lanes.zero_missed.iter().sum::<u64>();
    for lane in 0..LANES {
        // No NaN reaches this pass, so a plain comparison drops nothing.
        if lanes.ulp_max[lane] > totals.ulp_max {
            totals.ulp_max = lanes.ulp_max[lane];
        }
        totals.abs.join(Peak {
            value: lanes.abs_max[lane],
            at: lanes.abs_at[lane],
        });
        totals.rel.join(Peak {
            value: lanes.rel_max[lane],
            at: lanes.rel_at[lane],
        });
    }
    norms
}
