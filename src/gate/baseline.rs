//! A report beside the one it must not be worse than.
//!
//! Rows are matched on their key. Where the thresholds allow another backend or arch, that field is
//! left out of the match. What is not the same experiment (other tensors, another backend, arch or
//! recipe, a missing row) fails by itself, whatever the numbers say.

use std::collections::BTreeSet;

use super::{Allowed, GateError, Limit, Ratio};
use crate::report::{Breach, GateOutcome, Key, Record, Report, pairing::Rows, reproduce};

/// A report and its baseline, with their rows matched.
pub(super) struct Pair<'a> {
    pub(super) report: &'a Report,
    baseline: &'a Report,
    allow: &'a [Allowed],
    baseline_rows: Rows<'a>,
    report_rows: Rows<'a>,
}

/// How much worse a row may be than its baseline's where no limit says so: room for a kernel that rounds differently, and
/// none for one that rounds more; of the keys half a hundredth.
const ALONE: [(&str, Ratio); 4] = [
    (
        "rel_l2",
        Ratio {
            max_ratio: 1.05,
            floor: 1e-7,
        },
    ),
    ("recall", SHARE),
    ("kept_at_2k", SHARE),
    ("found", SHARE),
];

/// Of shares of keys.
const SHARE: Ratio = Ratio {
    max_ratio: 1.0,
    floor: 0.005,
};

impl<'a> Pair<'a> {
    /// Matches the rows.
    pub(super) fn new(
        report: &'a Report,
        baseline: &'a Report,
        allow: &'a [Allowed],
    ) -> Result<Self, GateError> {
        if baseline.records.is_empty() {
            return Err(GateError::EmptyBaseline);
        }
        Ok(Self {
            report,
            baseline,
            allow,
            baseline_rows: rows(baseline, allow)?,
            report_rows: rows(report, allow)?,
        })
    }

    /// The baseline's row of the same key.
    pub(super) fn partner(&self, record: &Record) -> Option<&'a Record> {
        self.baseline_rows.partner(record)
    }

    /// Whether both are reports of one experiment, a check per aspect.
    pub(super) fn identity(&self) -> Vec<GateOutcome> {
        let (now, before) = (&self.report.run, &self.baseline.run);
        vec![
            self.same(
                Allowed::Digest,
                "digest of the tensors read",
                &now.checkpoint.digest,
                &before.checkpoint.digest,
            ),
            self.same(
                Allowed::Backend,
                "backend",
                &now.backend.name,
                &before.backend.name,
            ),
            self.same(
                Allowed::Arch,
                "arch",
                &now.backend.arch,
                &before.backend.arch,
            ),
            self.same_recipes(),
            self.no_row_vanished(),
        ]
    }

    /// What a baseline means where no limit compares with it: every measure of these that a row has.
    pub(super) fn limits(&self) -> Vec<Limit> {
        let has = |measure: &str| {
            let mut rows = self
                .report
                .records
                .iter()
                .chain(self.baseline.records.iter());
            rows.any(|row| row.measures.get(measure).is_some())
        };
        let limit = |(measure, ratio)| Limit {
            matchers: Vec::new(),
            measure,
            max: None,
            min: None,
            ratio: Some(ratio),
            line: 1,
        };
        let mut there: Vec<_> = ALONE
            .into_iter()
            .filter(|(measure, _)| has(measure))
            .collect();
        if there.is_empty() {
            // Which then says that there is nothing to compare.
            there.push(ALONE[0]);
        }
        there.into_iter().map(limit).collect()
    }

    /// The first thing by which the two are no reports of one experiment, rows aside.
    pub(super) fn difference(&self) -> Option<String> {
        let named = |breach: &Breach| breach.key.is_none();
        let outcomes = self.identity().into_iter();
        let mut breaches = outcomes.flat_map(|outcome| outcome.breaches);
        breaches.find(named).map(|breach| breach.sentence)
    }

    /// The first field of a row of which the two have no value in common.
    pub(super) fn apart(&self) -> Option<String> {
        const NAMED: usize = 3;
        let values = |report: &'a Report, field: &str| -> BTreeSet<String> {
            let rows = report.records.iter();
            rows.filter_map(|row| Some(row.key.get(field)?.into_owned()))
                .collect()
        };
        let listed = |values: &BTreeSet<String>| {
            let named: Vec<&str> = values.iter().take(NAMED).map(String::as_str).collect();
            match values.len().saturating_sub(NAMED) {
                0 => named.join(", "),
                more => format!("{} and {more} more", named.join(", ")),
            }
        };
        Key::NAMES.iter().find_map(|field| {
            let (now, before) = (values(self.report, field), values(self.baseline, field));
            let is_apart = !now.is_empty() && !before.is_empty() && now.is_disjoint(&before);
            is_apart.then(|| {
                format!(
                    "{field} is {} in the report and {} in the baseline: run both with the same",
                    listed(&now),
                    listed(&before)
                )
            })
        })
    }

    fn same(&self, aspect: Allowed, name: &str, now: &str, before: &str) -> GateOutcome {
        let mut breaches = Vec::new();
        if now != before {
            let word = word(aspect);
            breaches.push(sentence_only(format!(
                "{name} is {now}, the baseline's is {before}; compare like with like, or allow it with [baseline] allow = [\"{word}\"]"
            )));
        }
        self.outcome(aspect, format!("baseline: same {name}"), 1, breaches)
    }

    fn same_recipes(&self) -> GateOutcome {
        let mut breaches = Vec::new();
        let mut shared = 0;
        for (name, before) in &self.baseline.recipes {
            let Some(now) = self.report.recipes.get(name) else {
                continue;
            };
            shared += 1;
            if now != before {
                breaches.push(sentence_only(format!(
                    "recipe {name} is not what it was in the baseline; write a new baseline, or allow it with [baseline] allow = [\"recipes\"]"
                )));
            }
        }
        let check = "baseline: same recipes".to_owned();
        self.outcome(Allowed::Recipes, check, shared, breaches)
    }

    fn no_row_vanished(&self) -> GateOutcome {
        let mut breaches = Vec::new();
        // Whether a pair of sources has a row follows from its size.
        let rows = self.baseline.records.iter();
        for record in rows.filter(|row| !row.key.is_pair()) {
            if self.report_rows.partner(record).is_none() {
                breaches.push(Breach {
                    key: Some(record.key.clone()),
                    reproduce: Some(reproduce(self.baseline, &record.key)),
                    ..sentence_only("the baseline has this row, the report has not".to_owned())
                });
            }
        }
        let is_new = |record: &&Record| self.partner(record).is_none();
        let mut check = "baseline: no row vanished".to_owned();
        match self.report.records.iter().filter(is_new).count() {
            0 => {}
            1 => check.push_str(" (1 new row, not compared)"),
            new => check.push_str(&format!(" ({new} new rows, not compared)")),
        }
        let matched = self.baseline.records.len() as u64;
        self.outcome(Allowed::Rows, check, matched, breaches)
    }

    fn outcome(
        &self,
        aspect: Allowed,
        mut check: String,
        matched: u64,
        mut breaches: Vec<Breach>,
    ) -> GateOutcome {
        if !breaches.is_empty() && self.allow.contains(&aspect) {
            check.push_str(": differs, which is allowed");
            breaches.clear();
        }
        GateOutcome {
            check,
            passed: breaches.is_empty(),
            matched,
            breaches,
            improved: Vec::new(),
        }
    }
}

fn sentence_only(sentence: String) -> Breach {
    Breach {
        key: None,
        value: None,
        limit: None,
        sentence,
        reproduce: None,
    }
}

fn word(aspect: Allowed) -> &'static str {
    match aspect {
        Allowed::Digest => "digest",
        Allowed::Backend => "backend",
        Allowed::Arch => "arch",
        Allowed::Recipes => "recipes",
        Allowed::Rows => "rows",
    }
}

/// The rows, whatever may differ.
fn rows<'a>(report: &'a Report, allow: &[Allowed]) -> Result<Rows<'a>, GateError> {
    let field = |aspect: &Allowed| match aspect {
        Allowed::Backend => Some("backend"),
        Allowed::Arch => Some("arch"),
        Allowed::Digest | Allowed::Recipes | Allowed::Rows => None,
    };
    let without: Vec<&'static str> = allow.iter().filter_map(field).collect();
    Rows::new(&report.records, &without).map_err(|record| {
        let words: Vec<&str> = allow.iter().copied().map(word).collect();
        GateError::Ambiguous {
            allowed: format!("{words:?}"),
            key: Box::new(record.key.clone()),
        }
    })
}
