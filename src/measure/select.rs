//! Exact percentiles by selection.
//!
//! `NumPy`'s `linear` rule: the `q`-quantile of `n` sorted values sits at the virtual index
//! `h = q (n - 1)`, between the order statistics `floor(h)` and `floor(h) + 1`. Only those two are
//! needed, so nothing is sorted: the ranks are selected in ascending order, each in what lies right
//! of the one before.

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

/// The percentiles of the `population` smallest of `keys`, or `None` if that is empty.
///
/// A key is the bit pattern of a non-negative f64 or of a positive NaN, whose order as an integer
/// is the order as a number with NaN last. Reorders `keys`.
pub(super) fn percentiles(keys: &mut [u64], population: usize) -> Option<Percentiles> {
    let mut selection = Selection::new(keys, population)?;
    Some(Percentiles {
        p50: selection.quantile(0.5),
        p90: selection.quantile(0.9),
        p99: selection.quantile(0.99),
        p999: selection.quantile(0.999),
    })
}

/// Keys of which everything left of `settled` is known to be smaller than the rest.
pub(super) struct Selection<'a> {
    keys: &'a mut [u64],
    population: usize,
    settled: usize,
}

impl<'a> Selection<'a> {
    pub(super) fn new(keys: &'a mut [u64], population: usize) -> Option<Self> {
        (0 < population && population <= keys.len()).then_some(Self {
            keys,
            population,
            settled: 0,
        })
    }

    /// The `q`-quantile; successive calls must not descend in `q`.
    pub(super) fn quantile(&mut self, q: f64) -> f64 {
        let position = q * (self.population - 1) as f64;
        let rank = (position.floor() as usize).min(self.population - 1);
        let fraction = position - rank as f64;
        let rest = &mut self.keys[self.settled..];
        let (_, &mut low, above) = rest.select_nth_unstable(rank - self.settled);
        self.settled = rank;
        let low = f64::from_bits(low);
        if fraction == 0.0 {
            return low;
        }
        // A rank below the last has a neighbour in the population, and it is the smallest above.
        let high = above.iter().min().copied().map_or(low, f64::from_bits);
        interpolate(low, high, fraction)
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

    proptest! {
        #[test]
        fn selection_equals_sorting(values in proptest::collection::vec(0.0..1e3_f64, 1..400)) {
            let mut keys: Vec<u64> = values.iter().map(|value| value.to_bits()).collect();
            let population = keys.len();
            let got = percentiles(&mut keys, population).expect("not empty");
            for (quantile, q) in [(got.p50, 0.5), (got.p90, 0.9), (got.p99, 0.99), (got.p999, 0.999)] {
                prop_assert_eq!(quantile.to_bits(), by_sorting(&values, q).to_bits());
            }
        }
    }

    #[test]
    fn keys_beyond_the_population_do_not_count() {
        let mut keys = [2.0, f64::NAN, 1.0, f64::NAN, 3.0].map(f64::to_bits);
        let got = percentiles(&mut keys, 3).expect("three values");
        assert_eq!((got.p50, got.p999), (2.0, 2.998));
        assert_eq!(percentiles(&mut keys, 0), None);
    }

    #[test]
    fn infinities_do_not_become_nan() {
        let mut keys = [f64::INFINITY; 4].map(f64::to_bits);
        assert_eq!(percentiles(&mut keys, 4).expect("four").p90, f64::INFINITY);
    }
}
