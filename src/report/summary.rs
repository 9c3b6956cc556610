//! Many rows in one number: the median over sites and the worst of them.
//!
//! Both let NaN win: a median of rows of which one is NaN is NaN, and NaN is worse than any number.
//! A summary that dropped it would make a failed kernel look good.

use super::{Better, Measures, Record};

/// The row where a measure is worst.
#[derive(Clone, Copy, Debug)]
pub struct Worst<'a> {
    /// The measure there.
    pub value: f64,
    /// The row.
    pub record: &'a Record,
}

/// Names of the variants, in the order in which their first row stands.
#[must_use]
pub fn variants(records: &[Record]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for record in records {
        if !names.contains(&record.key.variant.as_str()) {
            names.push(&record.key.variant);
        }
    }
    names
}

/// The rows of a variant in suite mix that are over all tokens, in file order.
#[must_use]
pub fn mix_rows<'a>(records: &'a [Record], variant: &str) -> Vec<&'a Record> {
    suite_rows(records, "mix", variant)
}

/// The rows of a variant in a suite that are over all tokens, in file order; those of a known bug are not the variant's.
#[must_use]
pub fn suite_rows<'a>(records: &'a [Record], suite: &str, variant: &str) -> Vec<&'a Record> {
    let is_wanted = |record: &&Record| {
        let key = &record.key;
        key.suite == suite
            && key.token_class == "all"
            && key.variant == variant
            && key.fault.is_none()
    };
    records.iter().filter(is_wanted).collect()
}

/// The streams of a chain with the most layers behind them, of every seed.
#[must_use]
pub fn deepest_streams<'a>(chain: &[&'a Record]) -> Vec<&'a Record> {
    let mut streams = at_stage(chain, "streams");
    let last = streams.iter().map(|record| record.key.depth).max();
    streams.retain(|record| Some(record.key.depth) == last);
    streams
}

/// The rows of one stage.
#[must_use]
pub fn at_stage<'a>(rows: &[&'a Record], stage: &str) -> Vec<&'a Record> {
    let is_wanted = |record: &&&Record| record.key.stage.as_deref() == Some(stage);
    rows.iter().filter(is_wanted).copied().collect()
}

/// A measure of all rows that have it.
#[must_use]
pub fn values(rows: &[&Record], measure: &str) -> Vec<f64> {
    let value = |record: &&Record| record.measures.value(measure);
    rows.iter().filter_map(value).collect()
}

/// The median, the mean of the middle two where there are two (as `NumPy` does); NaN if any value is;
/// nothing of nothing.
#[must_use]
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    if values.iter().any(|value| value.is_nan()) {
        return Some(f64::NAN);
    }
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    Some(if values.len() % 2 == 1 {
        values[middle]
    } else {
        (values[middle - 1] + values[middle]) / 2.0
    })
}

/// The mean in file order; nothing of nothing.
#[must_use]
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The row where a measure is worst: NaN if there is one, else the extreme in the direction in
/// which the measure gets worse, the first of equals.
#[must_use]
pub fn worst<'a>(rows: &[&'a Record], measure: &str) -> Option<Worst<'a>> {
    let badness = |value: f64| match Measures::better(measure) {
        Some(Better::Larger | Better::LargerToInfinity) => -value,
        _ => value.abs(),
    };
    let mut worst: Option<Worst<'a>> = None;
    for &record in rows {
        let Some(value) = record.measures.value(measure) else {
            continue;
        };
        let is_worse = worst.is_none_or(|worst| {
            !worst.value.is_nan() && (value.is_nan() || badness(value) > badness(worst.value))
        });
        if is_worse {
            worst = Some(Worst { value, record });
        }
    }
    worst
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{measure::value::Value, report::fixtures};

    fn rows(measure: impl Fn(&mut Measures, f64), values: &[f64]) -> Vec<Record> {
        let row = |(layer, value): (usize, &f64)| {
            let mut record = fixtures::record("tf32", layer as u32, "attn", "mixes", 0.5);
            measure(&mut record.measures, *value);
            record
        };
        values.iter().enumerate().map(row).collect()
    }

    fn worst_layer(records: &[Record], measure: &str) -> Option<u32> {
        let rows: Vec<&Record> = records.iter().collect();
        worst(&rows, measure).and_then(|worst| worst.record.key.layer)
    }

    #[test]
    fn the_worst_of_an_error_is_nan_then_the_largest_either_way() {
        let rel_l2 = |m: &mut Measures, v| m.rel_l2 = Some(Value(v));
        let slope = |m: &mut Measures, v| m.slope = Some(Value(v));
        for values in [[1e-7, f64::NAN, 1e-6], [1e-6, f64::NAN, f64::INFINITY]] {
            assert_eq!(worst_layer(&rows(rel_l2, &values), "rel_l2"), Some(1));
        }
        assert_eq!(
            worst_layer(&rows(rel_l2, &[f64::NAN, 1.0]), "rel_l2"),
            Some(0)
        );
        assert_eq!(
            worst_layer(&rows(slope, &[1e-5, -1e-4, 9e-5]), "slope"),
            Some(1)
        );
        assert_eq!(
            worst_layer(&rows(rel_l2, &[1.0, 1.0]), "rel_l2"),
            Some(0),
            "first of equals"
        );
    }

    #[test]
    fn the_worst_of_a_similarity_is_the_smallest() {
        let cosine = |m: &mut Measures, v| m.cosine = Some(Value(v));
        assert_eq!(
            worst_layer(&rows(cosine, &[1.0, -0.5, 0.2]), "cosine"),
            Some(1)
        );
        assert_eq!(worst_layer(&[], "cosine"), None);
    }

    #[test]
    fn the_median_is_numpys_and_keeps_nan() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0]), Some(3.0));
        assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(
            median(vec![f64::INFINITY, 1.0, f64::INFINITY]),
            Some(f64::INFINITY)
        );
        assert!(median(vec![1.0, f64::NAN, 2.0]).unwrap().is_nan());
    }
}
