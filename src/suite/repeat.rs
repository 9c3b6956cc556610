//! A case run several times: which outputs come out otherwise, and how far its measures lie apart.
//!
//! A kernel that sums in whatever order its threads arrive (atomics, split-K without an order) gives other bits every
//! time. The rows are those of the first run; to them are added
//!
//! | measure | what |
//! |---|---|
//! | `repeat_changed` | elements that had other bits in any later run than in the first |
//! | `rel_l2_spread`, … | the largest of that measure over all runs less the smallest |
//!
//! What is no number in one run, or has no row, has a spread of NaN, which no gate accepts; what is the same in all
//! has a spread of 0. What was measured is compared as the tensors behind the rows are written ([`Tensors`]).

use std::collections::HashMap;

use super::{
    SuiteError,
    tensors::{NamedTensor, Sink, Tensors, Values},
};
use crate::{
    measure::value::Value,
    report::{Key, Measures, Record},
};

/// The bits of what a case computed, by the names of the tensors.
#[derive(Default)]
pub struct Bits(HashMap<String, Vec<u64>>);

impl Bits {
    /// Those of some tensors. What is in fp64 is no candidate's.
    ///
    /// # Errors
    /// A device that fails where values are made only now.
    pub fn of(tensors: &dyn Tensors) -> Result<Self, SuiteError> {
        let mut bits = Self::default();
        bits.add(tensors)?;
        Ok(bits)
    }

    fn add(&mut self, tensors: &dyn Tensors) -> Result<(), SuiteError> {
        for tensor in tensors.named().into_iter().filter(is_candidates) {
            let bits = match tensor.values()? {
                Values::F32(values) => values.iter().map(|value| bits(*value)).collect(),
                Values::I64(values) => values.iter().map(|value| *value as u64).collect(),
                Values::F64(_) => continue,
            };
            self.0.insert(tensor.name, bits);
        }
        Ok(())
    }

    /// Marks every element that is another one here than in `first`.
    fn mark(&self, first: &Self, changed: &mut HashMap<String, Vec<bool>>) {
        for (name, before) in &first.0 {
            let marks = changed
                .entry(name.clone())
                .or_insert_with(|| vec![false; before.len()]);
            match self.0.get(name).filter(|now| now.len() == before.len()) {
                Some(now) => {
                    let pairs = now.iter().zip(before);
                    marks
                        .iter_mut()
                        .zip(pairs)
                        .for_each(|(mark, (now, before))| {
                            *mark |= now != before;
                        });
                }
                None => marks.fill(true),
            }
        }
    }
}

/// What is left are inputs: `L3.attn.x`, `L2.indexer.hidden_states`, `chain.x0`.
fn is_candidates(tensor: &NamedTensor<'_>) -> bool {
    tensor.name.starts_with("head.") || tensor.name.split('.').count() > 3
}

/// A NaN is as good as another.
fn bits(value: f32) -> u64 {
    match value.is_nan() {
        true => u64::MAX,
        false => value.to_bits().into(),
    }
}

/// Keeps the bits of what passes through.
struct Keeping<'a> {
    bits: Bits,
    /// Where it goes.
    to: Option<&'a mut dyn Sink>,
}

impl<'a> Keeping<'a> {
    /// On the way to a sink, if there is one.
    fn new(to: Option<&'a mut dyn Sink>) -> Self {
        Self {
            bits: Bits::default(),
            to,
        }
    }
}

impl Sink for Keeping<'_> {
    fn take(&mut self, tensors: &dyn Tensors) -> Result<(), String> {
        self.bits.add(tensors).map_err(|error| error.to_string())?;
        match &mut self.to {
            Some(sink) => sink.take(tensors),
            None => Ok(()),
        }
    }
}

/// Smallest and largest so far.
#[derive(Clone, Copy)]
struct Range {
    low: f64,
    high: f64,
}

impl Range {
    const NONE: Self = Self {
        low: f64::NAN,
        high: f64::NAN,
    };

    fn of(value: Option<f64>) -> Option<Self> {
        value.map(|value| Self {
            low: value,
            high: value,
        })
    }

    /// A NaN stays.
    fn with(self, value: f64) -> Self {
        if value.is_nan() || self.low.is_nan() {
            return Self::NONE;
        }
        Self {
            low: self.low.min(value),
            high: self.high.max(value),
        }
    }

    /// Two infinities of one sign are the same.
    fn spread(self) -> f64 {
        if self.low == self.high {
            0.0
        } else {
            self.high - self.low
        }
    }
}

/// What several runs of one case had in common.
pub struct Repeats {
    first: Bits,
    changed: HashMap<String, Vec<bool>>,
    /// By row: a range per measure of [`Measures::SPREADS`] that the first run has.
    ranges: Vec<(Key, Vec<Option<Range>>)>,
}

impl Repeats {
    /// The first run.
    #[must_use]
    pub fn new(records: &[Record], first: Bits) -> Self {
        let ranges = records.iter().map(|record| {
            let values =
                Measures::SPREADS.map(|(measure, _)| Range::of(record.measures.value(measure)));
            (record.key.clone(), values.to_vec())
        });
        Self {
            ranges: ranges.collect(),
            changed: HashMap::new(),
            first,
        }
    }

    /// A further run.
    pub fn see(&mut self, records: &[Record], bits: &Bits) {
        bits.mark(&self.first, &mut self.changed);
        let rows: HashMap<&Key, &Record> =
            records.iter().map(|record| (&record.key, record)).collect();
        for (key, ranges) in &mut self.ranges {
            let row = rows.get(key);
            for ((measure, _), range) in Measures::SPREADS.iter().zip(ranges) {
                let now = row.and_then(|row| row.measures.value(measure));
                *range = range.map(|range| range.with(now.unwrap_or(f64::NAN)));
            }
        }
    }

    /// Adds what was found to the rows of the first run.
    pub fn add_to(&self, records: &mut [Record]) {
        // The tensor of an indexer's selection is that of the most keys, asked for by all queries.
        let most = records.iter().map(|record| record.key.k).max().flatten();
        let is_whole = |key: &Key| {
            key.token_class == "all"
                && key.query_set.as_deref().is_none_or(|set| set == "all")
                && (key.k.is_none() || key.k == most && key.k_at.is_none())
        };
        for (record, (_, ranges)) in records.iter_mut().zip(&self.ranges) {
            let changed = self.changed.get(&tensor_of(&record.key));
            let count = changed.map(|marks| marks.iter().filter(|mark| **mark).count() as u64);
            record.measures.repeat_changed = count.filter(|_| is_whole(&record.key));
            for ((_, set), range) in Measures::SPREADS.iter().zip(ranges) {
                if let Some(range) = range {
                    *set(&mut record.measures) = Some(Value(range.spread()));
                }
            }
        }
    }
}

/// Runs a case `times` times, each time adding its rows to an outcome of its own but for the first, whose tensors the
/// sink gets.
///
/// # Errors
/// Those of the case.
pub fn repeated<O: Default>(
    times: usize,
    sink: &mut dyn Sink,
    outcome: &mut O,
    records: fn(&mut O) -> &mut Vec<Record>,
    case: &mut dyn FnMut(&mut dyn Sink, &mut O) -> Result<(), SuiteError>,
) -> Result<(), SuiteError> {
    if times == 1 {
        return case(sink, outcome);
    }
    let before = records(outcome).len();
    let mut keeping = Keeping::new(Some(sink));
    case(&mut keeping, outcome)?;
    let mut repeats = Repeats::new(&records(outcome)[before..], keeping.bits);
    for _ in 1..times {
        let (mut again, mut keeping) = (O::default(), Keeping::new(None));
        case(&mut keeping, &mut again)?;
        repeats.see(records(&mut again), &keeping.bits);
    }
    repeats.add_to(&mut records(outcome)[before..]);
    Ok(())
}

/// The name of the tensor behind a row: `L3.attn.mixes.tf32`, `L2.indexer.logits.mxfp4`, `head.tf32`.
fn tensor_of(key: &Key) -> String {
    let site = match key.context {
        Some(_) => Some("indexer"),
        None => key.site.as_deref(),
    };
    let layer = key.layer.map(|layer| format!("L{layer}"));
    let variant = match &key.fault {
        Some(fault) => format!("{}+{fault}", key.variant),
        None => key.variant.clone(),
    };
    let parts = [layer.as_deref(), site, key.stage.as_deref(), Some(&variant)];
    let parts: Vec<&str> = parts.into_iter().flatten().collect();
    parts.join(".")
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, array};

    use super::*;
    use crate::{report::fixtures, suite::tensors::Stored};

    struct One(Array2<f32>);

    impl Tensors for One {
        fn place(&self) -> String {
            "L0.attn".to_owned()
        }

        fn named(&self) -> Vec<NamedTensor<'_>> {
            let name = "L0.attn.mixes.tf32".to_owned();
            vec![NamedTensor::fp32(name, Stored::F32, self.0.view())]
        }
    }

    fn run(values: [f32; 3], rel_l2: f64) -> (Vec<Record>, Bits) {
        let row = fixtures::record("tf32", 0, "attn", "mixes", rel_l2);
        let bits = Bits::of(&One(array![values])).unwrap();
        (vec![row], bits)
    }

    fn added(runs: &[([f32; 3], f64)]) -> Measures {
        let (mut records, bits) = run(runs[0].0, runs[0].1);
        let mut repeats = Repeats::new(&records, bits);
        for &(values, rel_l2) in &runs[1..] {
            let (records, bits) = run(values, rel_l2);
            repeats.see(&records, &bits);
        }
        repeats.add_to(&mut records);
        records.remove(0).measures
    }

    #[test]
    fn what_is_the_same_has_no_spread() {
        let nan = f32::from_bits(0x7fc0_0001);
        let found = added(&[([1.0, 2.0, nan], 1e-3), ([1.0, 2.0, f32::NAN], 1e-3)]);
        assert_eq!(found.repeat_changed, Some(0));
        assert_eq!(found.rel_l2_spread, Some(Value(0.0)));
        assert_eq!(found.time_us_spread, None, "the row has no such measure");
        let endless = [([0.0; 3], f64::INFINITY); 2];
        assert_eq!(added(&endless).rel_l2_spread, Some(Value(0.0)));
    }

    #[test]
    fn an_element_that_changes_twice_counts_once() {
        let found = added(&[
            ([1.0, 2.0, 0.0], 1e-3),
            ([1.5, 2.0, -0.0], 3e-3),
            ([1.6, 2.0, 0.0], 2e-3),
        ]);
        assert_eq!(found.repeat_changed, Some(2));
        assert_eq!(found.rel_l2_spread, Some(Value(3e-3 - 1e-3)));
        assert_eq!(found.rel_l2, Some(Value(1e-3)), "the first run's");
    }

    #[test]
    fn what_is_no_number_once_has_no_spread_that_passes() {
        let found = added(&[([1.0; 3], 1e-3), ([1.0; 3], f64::NAN), ([1.0; 3], 1e-3)]);
        assert!(found.rel_l2_spread.unwrap().0.is_nan());
        let (mut records, bits) = run([1.0; 3], 1e-3);
        let mut repeats = Repeats::new(&records, bits);
        repeats.see(&[], &Bits::default());
        repeats.add_to(&mut records);
        let found = &records[0].measures;
        assert!(
            found.rel_l2_spread.unwrap().0.is_nan(),
            "its row is missing"
        );
        assert_eq!(found.repeat_changed, Some(3), "and so are its outputs");
    }

    #[test]
    fn rows_find_their_tensors() {
        let mut key = fixtures::record("fp32", 3, "attn", "streams", 0.0).key;
        assert_eq!(tensor_of(&key), "L3.attn.streams.fp32");
        key.fault = Some("transposed-comb".to_owned());
        assert_eq!(tensor_of(&key), "L3.attn.streams.fp32+transposed-comb");
        key.fault = None;
        (key.site, key.context) = (None, Some(8192));
        assert_eq!(tensor_of(&key), "L3.indexer.streams.fp32");
        (key.layer, key.context) = (None, None);
        key.stage = Some("head".to_owned());
        assert_eq!(tensor_of(&key), "head.fp32");
    }
}
