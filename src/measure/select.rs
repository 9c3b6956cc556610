//! Exact percentiles of a distribution that is seen twice and kept never.
//!
//! `NumPy`'s `linear` rule: the `q`-quantile of `n` sorted values sits at the virtual index
//! `h = q (n - 1)`, between the order statistics `floor(h)` and `floor(h) + 1`. A [`Histogram`] of the
//! first pass says in which of its bins, each 1/32 of a power of two wide, those lie; the second pass
//! keeps the values of these bins alone, a few per cent of all, and the order statistics are
//! selected among them. Nothing is sorted and nothing is estimated.

/// The quantiles that are reported.
const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

/// Bits of a key below its bin: 52 fraction bits less five.
const BELOW_BIN: u32 = 47;
/// The exponents that have bins of their own; what lies outside shares the bin at that end.
const EXPONENTS: std::ops::Range<u64> = 1023 - 160..1023 + 96;
const FIRST: u64 = EXPONENTS.start << 5;
const LAST: u64 = (EXPONENTS.end << 5) - 1;
/// One bin for zero, which needs no looking up, and the rest.
const BINS: usize = (LAST - FIRST) as usize + 2;

/// The four percentiles of an error distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Percentiles {
    pub(super) p50: f64,
    pub(super) p90: f64,
    pub(super) p99: f64,
    pub(super) p999: f64,
}

impl Percentiles {
    /// The percentiles of the same errors in another unit.
    pub(super) fn map(self, unit: impl Fn(f64) -> f64) -> Self {
        Self {
            p50: unit(self.p50),
            p90: unit(self.p90),
            p99: unit(self.p99),
            p999: unit(self.p999),
        }
    }
}

/// The bin of a key: the bit pattern of a non-negative f64 or of a positive NaN, whose order as an
/// integer is the order as a number with NaN last.
#[inline(always)]
fn bin(key: u64) -> usize {
    let top = (key >> BELOW_BIN).clamp(FIRST, LAST) - FIRST + 1;
    if key == 0 { 0 } else { top as usize }
}

/// A loop and not a map, whose closure would not be compiled for the vector level.
#[inline(always)]
fn bins<const N: usize>(keys: &[u64; N]) -> [usize; N] {
    let mut bins = [0; N];
    for index in 0..N {
        bins[index] = bin(keys[index]);
    }
    bins
}

/// How many keys fell into each bin.
#[derive(Clone, Debug)]
pub(super) struct Histogram(Box<[u64; BINS]>);

impl Histogram {
    pub(super) fn new() -> Self {
        Self(Box::new([0; BINS]))
    }

    #[inline(always)]
    pub(super) fn add<const N: usize>(&mut self, keys: &[u64; N]) {
        let bins = bins(keys);
        for bin in bins {
            self.0[bin] += 1;
        }
    }

    /// Counts commute, so that it does not matter who counted which part.
    pub(super) fn join(&mut self, other: &Self) {
        for (count, more) in self.0.iter_mut().zip(other.0.iter()) {
            *count += more;
        }
    }

    /// Where to look for the percentiles of the `population` smallest keys; `None` if that is
    /// empty.
    pub(super) fn brackets(&self, population: usize) -> Option<Brackets> {
        if population == 0 {
            return None;
        }
        let mut wanted = Box::new([false; BINS]);
        let places = QUANTILES.map(|q| Place::of(q, population));
        for rank in places.iter().flat_map(Place::ranks) {
            wanted[self.bin_of_rank(rank)] = true;
        }
        // Zero is known without looking.
        wanted[0] = false;
        Some(Brackets {
            skipped: self.skipped(&wanted),
            wanted,
            places,
            zeros: self.0[0],
        })
    }

    fn bin_of_rank(&self, rank: u64) -> usize {
        let mut below = 0;
        let holds = |&count: &u64| {
            below += count;
            rank < below
        };
        self.0.iter().position(holds).unwrap_or(BINS - 1)
    }

    /// Per wanted bin, how many keys below it no wanted bin holds.
    fn skipped(&self, wanted: &[bool; BINS]) -> Vec<Skipped> {
        let (mut skipped, mut seen) = (0, 0);
        let mut table = Vec::new();
        for (&count, &wanted) in self.0.iter().zip(wanted) {
            if wanted {
                seen += count;
                table.push(Skipped {
                    up_to: skipped + seen,
                    keys: skipped,
                });
            } else {
                skipped += count;
            }
        }
        table
    }
}

/// Ranks below `up_to` (and not below the row before) have `keys` smaller keys that are not kept.
#[derive(Clone, Copy, Debug)]
struct Skipped {
    up_to: u64,
    keys: u64,
}

/// Where a quantile sits among sorted values.
#[derive(Clone, Copy, Debug)]
struct Place {
    rank: u64,
    fraction: f64,
}

impl Place {
    fn of(q: f64, population: usize) -> Self {
        let position = q * (population - 1) as f64;
        let rank = (position.floor() as u64).min(population as u64 - 1);
        Self {
            rank,
            fraction: position - rank as f64,
        }
    }

    /// The order statistics it lies between.
    fn ranks(&self) -> impl Iterator<Item = u64> + use<> {
        let next = (self.fraction != 0.0).then_some(self.rank + 1);
        std::iter::once(self.rank).chain(next)
    }
}

/// Which keys decide the percentiles.
#[derive(Clone, Debug)]
pub(super) struct Brackets {
    wanted: Box<[bool; BINS]>,
    skipped: Vec<Skipped>,
    places: [Place; QUANTILES.len()],
    zeros: u64,
}

impl Brackets {
    /// Adds to `kept` those of `keys` that may be one of the order statistics.
    #[inline(always)]
    pub(super) fn keep<const N: usize>(&self, keys: &[u64; N], kept: &mut Vec<u64>) {
        let bins = bins(keys);
        let mut any = false;
        for bin in bins {
            any |= self.wanted[bin];
        }
        if any {
            for (&key, bin) in keys.iter().zip(bins) {
                if self.wanted[bin] {
                    kept.push(key);
                }
            }
        }
    }

    /// The percentiles, from everything kept in any order; reorders it.
    pub(super) fn percentiles(&self, kept: &mut [u64]) -> Percentiles {
        let mut ranked = Ranked { kept, settled: 0 };
        let [p50, p90, p99, p999] = self.places.map(|place| {
            let mut at = |rank| self.at_rank(rank, &mut ranked);
            let low = at(place.rank);
            if place.fraction == 0.0 {
                low
            } else {
                interpolate(low, at(place.rank + 1), place.fraction)
            }
        });
        Percentiles {
            p50,
            p90,
            p99,
            p999,
        }
    }

    fn at_rank(&self, rank: u64, ranked: &mut Ranked<'_>) -> f64 {
        if rank < self.zeros {
            return 0.0;
        }
        let row = self.skipped.iter().find(|row| rank < row.up_to);
        let skipped = row.map_or(0, |row| row.keys);
        ranked.at((rank - skipped) as usize)
    }
}

/// Keys of which those left of `settled` are known to be no larger than the rest.
struct Ranked<'a> {
    kept: &'a mut [u64],
    settled: usize,
}

impl Ranked<'_> {
    /// The order statistic `rank`; ranks must not descend by more than one.
    fn at(&mut self, rank: usize) -> f64 {
        let start = self.settled.min(rank);
        let (_, &mut key, _) = self.kept[start..].select_nth_unstable(rank - start);
        self.settled = rank;
        f64::from_bits(key)
    }
}

/// The `q`-quantile of `keys`, NaN if there are none; reorders them.
pub(crate) fn quantile(keys: &mut [u64], q: f64) -> f64 {
    if keys.is_empty() {
        return f64::NAN;
    }
    let place = Place::of(q, keys.len());
    let mut ranked = Ranked {
        kept: keys,
        settled: 0,
    };
    let low = ranked.at(place.rank as usize);
    if place.fraction == 0.0 {
        low
    } else {
        interpolate(low, ranked.at(place.rank as usize + 1), place.fraction)
    }
}

/// `NumPy`'s interpolation, which works from the nearer end so that it is monotone.
fn interpolate(low: f64, high: f64, fraction: f64) -> f64 {
    if low == high {
        return low; // also where both are infinite, whose difference is not a number
    }
    let step = high - low;
    if fraction < 0.5 {
        low + step * fraction
    } else {
        high - step * (1.0 - fraction)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn by_sorting(values: &[f64], q: f64) -> f64 {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let position = q * (sorted.len() - 1) as f64;
        let rank = position.floor() as usize;
        interpolate(
            sorted[rank],
            sorted[(rank + 1).min(sorted.len() - 1)],
            position - rank as f64,
        )
    }

    /// Both passes over `values`; the percentiles of the `population` smallest.
    fn percentiles(values: &[f64], population: usize) -> Option<Percentiles> {
        let mut histogram = Histogram::new();
        for value in values {
            histogram.add(&[value.to_bits()]);
        }
        let brackets = histogram.brackets(population)?;
        let mut kept = Vec::new();
        for value in values {
            brackets.keep(&[value.to_bits()], &mut kept);
        }
        Some(brackets.percentiles(&mut kept))
    }

    /// Error-like numbers: many magnitudes, zeros, repeats, and what is beyond the bins.
    fn errors() -> impl Strategy<Value = f64> {
        prop_oneof![
            8 => 0.0..1e3_f64,
            2 => (-60..60_i32).prop_map(|power| 10.0_f64.powi(power)),
            1 => Just(0.0),
            1 => Just(0.25),
            1 => (0..u64::MAX >> 1).prop_map(f64::from_bits).prop_filter("finite", |x| x.is_finite()),
        ]
    }

    proptest! {
        #[test]
        fn selection_equals_sorting(values in proptest::collection::vec(errors(), 1..400)) {
            let got = percentiles(&values, values.len()).expect("not empty");
            for (got, q) in [(got.p50, 0.5), (got.p90, 0.9), (got.p99, 0.99), (got.p999, 0.999)] {
                prop_assert_eq!(got.to_bits(), by_sorting(&values, q).to_bits());
                let mut keys: Vec<u64> = values.iter().map(|value| value.to_bits()).collect();
                prop_assert_eq!(quantile(&mut keys, q).to_bits(), got.to_bits());
            }
        }
    }

    #[test]
    fn keys_beyond_the_population_do_not_count() {
        let got = percentiles(&[2.0, f64::NAN, 1.0, f64::NAN, 3.0], 3).expect("three values");
        assert_eq!((got.p50, got.p999), (2.0, 2.998));
        assert_eq!(percentiles(&[f64::NAN], 0), None);
        assert!(quantile(&mut [], 0.5).is_nan());
    }

    #[test]
    fn infinities_do_not_become_nan() {
        let got = percentiles(&[f64::INFINITY; 4], 4).expect("four");
        assert_eq!(got.p90, f64::INFINITY);
    }

    #[test]
    fn few_keys_are_kept_of_a_smooth_distribution() {
        let values: Vec<f64> = (1..100_000).map(|k| f64::from(k) * 1e-9).collect();
        let mut histogram = Histogram::new();
        for value in &values {
            histogram.add(&[value.to_bits()]);
        }
        let brackets = histogram.brackets(values.len()).expect("not empty");
        let mut kept = Vec::new();
        for value in &values {
            brackets.keep(&[value.to_bits()], &mut kept);
        }
        assert!(kept.len() < values.len() / 8, "{}", kept.len());
    }
}
