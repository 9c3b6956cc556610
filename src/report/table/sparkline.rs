//! A row of blocks whose heights are values on a log scale.

/// The blocks, lowest first.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// What is no finite number.
const NON_FINITE: char = '×';
/// Where there is no value.
const NOTHING: char = ' ';

/// What the lowest and the highest block stand for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Scale {
    /// From the smallest to the largest of the values that have a logarithm, if one has.
    pub(super) fn over(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut scale: Option<Self> = None;
        for value in values.filter(|value| value.is_finite() && *value > 0.0) {
            let Self { low, high } = scale.unwrap_or(Self {
                low: value,
                high: value,
            });
            scale = Some(Self {
                low: low.min(value),
                high: high.max(value),
            });
        }
        scale
    }

    /// A block per value. What is 0 is below every scale, and has the lowest.
    pub(super) fn line(self, values: &[Option<f64>]) -> String {
        values.iter().map(|value| self.block(*value)).collect()
    }

    fn block(self, value: Option<f64>) -> char {
        match value {
            None => NOTHING,
            Some(value) if !value.is_finite() => NON_FINITE,
            Some(value) if value <= self.low => BLOCKS[0],
            Some(value) => {
                let place = libm::log(value / self.low) / libm::log(self.high / self.low);
                let highest = BLOCKS.len() - 1;
                BLOCKS[((place * highest as f64).round() as usize).min(highest)]
            }
        }
    }
}

/// As few values as there is room for, each the largest of so many that follow each other, and how many these are.
/// What is no finite number is larger than any.
pub(super) fn resampled(values: &[Option<f64>], room: usize) -> (Vec<Option<f64>>, usize) {
    let each = values.len().div_ceil(room.max(1)).max(1);
    let largest = |part: &[Option<f64>]| {
        let there = part.iter().copied().flatten();
        there.reduce(|a, b| if a.is_nan() || a >= b { a } else { b })
    };
    (values.chunks(each).map(largest).collect(), each)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heights_are_logarithms() {
        let values = [1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0];
        let scale = Scale::over(values.into_iter()).expect("values");
        let all: Vec<_> = values.map(Some).to_vec();
        assert_eq!(scale.line(&all), "▁▂▃▄▅▆▇█");
    }

    #[test]
    fn what_has_no_logarithm_has_no_part_in_the_scale() {
        let odd = [0.0, f64::NAN, f64::INFINITY, -1.0];
        assert_eq!(Scale::over(odd.into_iter()), None);
        let scale = Scale::over([2.0, 0.0, f64::INFINITY, 1.0].into_iter()).expect("two");
        assert_eq!(
            scale,
            Scale {
                low: 1.0,
                high: 2.0
            }
        );
        let values = [
            Some(0.0),
            Some(2.0),
            None,
            Some(f64::NAN),
            Some(f64::INFINITY),
        ];
        assert_eq!(scale.line(&values), "▁█ ××");
    }

    #[test]
    fn one_value_is_the_lowest() {
        let scale = Scale::over([3.0].into_iter()).expect("one");
        assert_eq!(scale.line(&[Some(3.0), Some(3.0)]), "▁▁");
    }

    #[test]
    fn a_block_is_the_largest_of_its_values() {
        let values = [Some(1.0), Some(3.0), Some(2.0), None, None];
        assert_eq!(resampled(&values, 5), (values.to_vec(), 1));
        let (two, each) = resampled(&values, 3);
        assert_eq!((two, each), (vec![Some(3.0), Some(2.0), None], 2));
        for odd in [f64::NAN, f64::INFINITY] {
            for pair in [[odd, 9.0], [9.0, odd]] {
                let (one, _) = resampled(&pair.map(Some), 1);
                assert!(one[0].is_some_and(|value| !value.is_finite()), "{one:?}");
            }
        }
        assert_eq!(resampled(&[], 10), (vec![], 1));
    }
}
