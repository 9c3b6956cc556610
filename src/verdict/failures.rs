//! What fails in suites that judge no variant: a budget that does not add up, a number that is none.
//!
//! At `mixes`, `y_bf16` and `streams` a budget's sources have to come to what is measured, within [`COMPLETE`] of it for
//! [`MANY_TOKENS`] and, since the errors of fewer tokens happen to be more alike, within as much times √(512/tokens),
//! but never more than [`AT_MOST`]. Elsewhere cross terms matter, which have rows of their own.

use crate::report::{Record, number::plain};

/// How far from 1 a budget of many tokens may be that is complete.
const COMPLETE: f64 = 0.1;
/// So many tokens are many.
const MANY_TOKENS: u64 = 512;
/// How far from 1 any budget may be that is complete.
const AT_MOST: f64 = 0.5;

/// The stages whose budget has to be complete.
const COMPLETE_AT: [&str; 3] = ["mixes", "y_bf16", "streams"];

/// A sentence per suite, variant and stage: of the row that is worst.
#[must_use]
pub fn failures(records: &[Record]) -> Vec<String> {
    let mut failing: Vec<Failing<'_>> = Vec::new();
    for record in records {
        let Some(found) = Failing::of(record) else {
            continue;
        };
        match failing.iter_mut().find(|known| known.is_alike(&found)) {
            None => failing.push(found),
            Some(known) => {
                let count = known.count + 1;
                // NaN is the worst there is.
                if found.badness.is_nan() || found.badness > known.badness {
                    *known = found;
                }
                known.count = count;
            }
        }
    }
    failing.iter().map(|one| one.sentence(records)).collect()
}

/// Rows of one suite, variant and stage that fail.
struct Failing<'a> {
    record: &'a Record,
    /// What the sources of a budget come to; nothing where a number is none.
    explained: Option<f64>,
    badness: f64,
    count: usize,
}

impl<'a> Failing<'a> {
    fn of(record: &'a Record) -> Option<Self> {
        let key = &record.key;
        let has_no_verdict = matches!(key.suite.as_str(), "budget" | "gains");
        let measures = &record.measures;
        if !has_no_verdict {
            return None;
        }
        let is_none = [measures.rel_l2, measures.explained, measures.gain]
            .into_iter()
            .flatten()
            .any(|value| !value.0.is_finite());
        let explained = measures.explained.map(|value| value.0);
        if is_none {
            return Some(Self {
                record,
                explained: None,
                badness: f64::NAN,
                count: 1,
            });
        }
        let off = explained.map(|explained| (explained - 1.0).abs())?;
        let is_held = key
            .stage
            .as_deref()
            .is_some_and(|stage| COMPLETE_AT.contains(&stage));
        let few = MANY_TOKENS as f64 / key.tokens.max(1) as f64;
        let allowed = (COMPLETE * few.sqrt().max(1.0)).min(AT_MOST);
        let is_complete = off <= allowed;
        (is_held && !is_complete).then_some(Self {
            record,
            explained,
            badness: off,
            count: 1,
        })
    }

    fn is_alike(&self, other: &Self) -> bool {
        let of = |one: &'_ Self| {
            let key = &one.record.key;
            (key.suite.clone(), key.variant.clone(), key.stage.clone())
        };
        of(self) == of(other)
    }

    fn sentence(&self, records: &[Record]) -> String {
        let key = &self.record.key;
        let (variant, place) = (&key.variant, key.place());
        let stage = key.stage.as_deref().unwrap_or_default();
        let more = match self.count {
            1 => String::new(),
            count => format!(" (and {} further rows)", count - 1),
        };
        let Some(explained) = self.explained else {
            return format!(
                "Suite {} of {variant} at {stage} of {place} is not finite{more}: see suites mix and chain for where that begins.",
                key.suite
            );
        };
        let cross =
            largest_cross(records, self.record).map_or_else(String::new, |(pair, cross)| {
                format!(
                    "; {pair}, which quadrature leaves out, is {} % of its square",
                    plain(100.0 * cross, 2)
                )
            });
        format!(
            "Budget of {variant} at {stage} of {place} does not add up{more}: its sources come to {} of what is measured{cross}.",
            plain(explained, 3)
        )
    }
}

/// The pair of sources whose errors are most alike where a budget's total stands.
fn largest_cross<'a>(records: &'a [Record], total: &Record) -> Option<(&'a str, f64)> {
    let beside = records.iter().filter(|row| {
        let mut key = row.key.clone();
        key.source.clone_from(&total.key.source);
        key == total.key
    });
    let crosses = beside.filter_map(|row| {
        let cross = row.measures.cross?.0;
        Some((row.key.source.as_deref()?, cross))
    });
    crosses.reduce(|most, one| match one.1.abs() <= most.1.abs() {
        true => most,
        false => one,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        measure::value::Value,
        report::{Key, Measures},
    };

    fn row(suite: &str, stage: &str, tokens: u64, measures: Measures) -> Record {
        Record {
            key: Key {
                suite: suite.to_owned(),
                stage: Some(stage.to_owned()),
                variant: "tf32-rz".to_owned(),
                source: Some("total".to_owned()),
                tokens,
                ..Key::default()
            },
            measures,
        }
    }

    fn explained(value: f64) -> Measures {
        Measures {
            rel_l2: Some(Value(1e-3)),
            explained: Some(Value(value)),
            ..Measures::default()
        }
    }

    #[test]
    fn a_budget_that_does_not_add_up_fails() {
        for (tokens, value, fails) in [
            (512, 1.0, false),
            (512, 0.91, false),
            (512, 0.89, true),
            (512, 1.11, true),
            (512, f64::NAN, true),
            (128, 0.81, false),
            (128, 0.79, true),
            (1, 1.49, false),
            (1, 1.51, true),
        ] {
            for stage in COMPLETE_AT {
                let rows = [row("budget", stage, tokens, explained(value))];
                assert_eq!(
                    failures(&rows).len(),
                    usize::from(fails),
                    "{tokens} {value}"
                );
            }
        }
        let rows = [row("budget", "comb", 512, explained(0.5))];
        assert!(failures(&rows).is_empty(), "cross terms are told there");
    }

    #[test]
    fn the_sentence_names_the_worst_row_and_the_pair_that_is_alike() {
        let mut pair = row("budget", "streams", 512, Measures::default());
        pair.key.source = Some("weight*x".to_owned());
        pair.measures.cross = Some(Value(0.36));
        let mut other = row("budget", "streams", 512, explained(0.85));
        other.key.layer = Some(1);
        let rows = [other, row("budget", "streams", 512, explained(0.8)), pair];
        let told = failures(&rows);
        assert_eq!(told.len(), 1);
        for part in ["tf32-rz", "come to 0.8", "weight*x", "36 %", "1 further"] {
            assert!(told[0].contains(part), "{part}: {}", told[0]);
        }
    }

    #[test]
    fn what_is_no_number_fails() {
        for value in [f64::NAN, f64::INFINITY] {
            let rel_l2 = Measures {
                rel_l2: Some(Value(value)),
                ..Measures::default()
            };
            assert_eq!(
                failures(&[row("gains", "streams", 1, rel_l2.clone())]).len(),
                1
            );
            assert_eq!(
                failures(&[row("budget", "pre", 1, rel_l2.clone())]).len(),
                1
            );
            assert!(failures(&[row("mix", "mixes", 1, rel_l2)]).is_empty());
        }
    }
}
