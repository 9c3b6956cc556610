//! How far a known bug is outside rounding: its rows against those of the variants without one.

use std::collections::HashMap;

use crate::{
    measure::value::Value,
    report::{FaultFinding, Key, Record},
};

/// Per bug, of suite mix the row that stands out most, of suite chain the streams after the first layer and at the end.
/// Bugs that nothing was run beside have none.
#[must_use]
pub fn findings(records: &[Record]) -> Vec<FaultFinding> {
    let beside = Beside::of(records);
    let mut faults: Vec<&str> = Vec::new();
    for fault in records.iter().filter_map(|row| row.key.fault.as_deref()) {
        if !faults.contains(&fault) {
            faults.push(fault);
        }
    }
    let mut found = Vec::new();
    for fault in faults {
        let rows = |suite: &'static str| {
            let of_fault = move |row: &&Record| {
                row.key.suite == suite
                    && row.key.fault.as_deref() == Some(fault)
                    && row.key.token_class == "all"
            };
            records.iter().filter(of_fault)
        };
        let mix = rows("mix").filter_map(|row| beside.finding(row));
        // NaN stands out most of all.
        found.extend(mix.reduce(|most, one| match one.times.0 <= most.times.0 {
            true => most,
            false if most.times.0.is_nan() => most,
            false => one,
        }));
        let streams = |row: &&Record| {
            row.key.stage.as_deref() == Some("streams") && row.key.site.as_deref() == Some("ffn")
        };
        let mut chain: Vec<_> = rows("chain").filter(streams).collect();
        chain.sort_by_key(|row| (row.key.seed, row.key.depth));
        let seed = chain.first().map(|row| row.key.seed);
        chain.retain(|row| Some(row.key.seed) == seed);
        let ends = [chain.first(), chain.last().filter(|_| chain.len() > 1)];
        found.extend(
            ends.into_iter()
                .flatten()
                .filter_map(|row| beside.finding(row)),
        );
    }
    found
}

/// The rows without a bug, by what makes two rows comparable.
struct Beside<'a>(HashMap<Key, Vec<&'a Record>>);

impl<'a> Beside<'a> {
    fn of(records: &'a [Record]) -> Self {
        let mut rows: HashMap<Key, Vec<&Record>> = HashMap::new();
        for row in records.iter().filter(|row| row.key.fault.is_none()) {
            rows.entry(place(&row.key)).or_default().push(row);
        }
        Self(rows)
    }

    fn finding(&self, row: &Record) -> Option<FaultFinding> {
        let rel_l2 = |row: &Record| row.measures.value("rel_l2");
        let beside = self.0.get(&place(&row.key))?;
        let own = rel_l2(row)?;
        // NaN of a variant without a bug is worse than any number.
        let worst = beside
            .iter()
            .filter_map(|row| Some((rel_l2(row)?, *row)))
            .reduce(|most, one| match one.0 <= most.0 {
                true => most,
                false => one,
            })?;
        let without = beside
            .iter()
            .find(|other| other.key.variant == row.key.variant);
        Some(FaultFinding {
            fault: row.key.fault.clone()?,
            variant: row.key.variant.clone(),
            suite: row.key.suite.clone(),
            place: row.key.place(),
            stage: row.key.stage.clone()?,
            rel_l2: Value(own),
            without: without.and_then(|row| rel_l2(row)).map(Value),
            worst_variant: worst.1.key.variant.clone(),
            worst_rel_l2: Value(worst.0),
            times: Value(own / worst.0),
        })
    }
}

/// Everything of a key but the candidate.
fn place(key: &Key) -> Key {
    Key {
        variant: String::new(),
        fault: None,
        splits: None,
        sms: None,
        ..key.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Measures;

    fn row(suite: &str, variant: &str, fault: Option<&str>, depth: u32, rel_l2: f64) -> Record {
        Record {
            key: Key {
                suite: suite.to_owned(),
                layer: Some(depth - 1),
                site: Some("ffn".to_owned()),
                depth: Some(depth),
                stage: Some("streams".to_owned()),
                variant: variant.to_owned(),
                fault: fault.map(str::to_owned),
                token_class: "all".to_owned(),
                ..Key::default()
            },
            measures: Measures {
                rel_l2: Some(Value(rel_l2)),
                ..Measures::default()
            },
        }
    }

    #[test]
    fn a_bug_is_held_against_the_worst_variant_at_the_same_place() {
        let records = [
            row("chain", "fp32", None, 1, 1e-3),
            row("chain", "bf16", None, 1, 2e-3),
            row("chain", "fp32", Some("transposed-comb"), 1, 0.1),
            row("chain", "fp32", None, 2, 1e-3),
            row("chain", "bf16", None, 2, 4e-3),
            row("chain", "fp32", Some("transposed-comb"), 2, 0.2),
        ];
        let found = findings(&records);
        let told: Vec<_> = found
            .iter()
            .map(|one| (one.place.as_str(), one.worst_variant.as_str(), one.times.0))
            .collect();
        assert_eq!(
            told,
            [
                ("L0.ffn", "bf16", 0.1 / 2e-3),
                ("L1.ffn", "bf16", 0.2 / 4e-3)
            ]
        );
        assert_eq!(found[0].without, Some(Value(1e-3)));
    }

    #[test]
    fn of_suite_mix_the_row_that_stands_out_most_is_told() {
        let records = [
            row("mix", "fp32", None, 1, 1e-3),
            row("mix", "fp32", Some("x"), 1, 2e-3),
            row("mix", "fp32", None, 2, 1e-3),
            row("mix", "fp32", Some("x"), 2, 0.5),
        ];
        let found = findings(&records);
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].place.as_str(), found[0].times.0),
            ("L1.ffn", 500.0)
        );
        assert!(findings(&records[..1]).is_empty());
        let not_a_number = row("mix", "fp32", Some("x"), 1, f64::NAN);
        for order in [[1, 3], [3, 1]] {
            let mut records = records.clone();
            records[order[0]] = not_a_number.clone();
            records[order[1]].key.depth = Some(2);
            records[order[1]].key.layer = Some(1);
            assert!(findings(&records)[0].times.0.is_nan());
        }
    }
}
