//! What failed, and what was not run: limits, bounds, certificates, and ends of a chain.

use maud::{Markup, html};

use super::{Section, count};
use crate::report::{
    GateOutcome, Record, Report,
    html::markup::{Table, case},
    number::share,
    printable, reproduce,
    table::end,
};

/// Rows of a check that are shown; the rest is count.
const SHOWN: usize = 20;

pub fn section(report: &Report) -> Option<Section> {
    let outside = outside(report);
    let parts = [
        gates(&report.gates),
        list(&report.failures),
        bounds(report, &outside),
        ends(report),
        skipped(report),
    ];
    let parts: Vec<Markup> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        return None;
    }
    let has_failed = !outside.is_empty()
        || !report.failures.is_empty()
        || !report.non_finite.is_empty()
        || report.gates.iter().any(|gate| !gate.passed);
    Some(Section {
        id: "checks",
        title: match (has_failed, report.gates.is_empty()) {
            (true, _) => "What failed",
            (false, false) => "Checks",
            (false, true) => "What was not run",
        },
        body: html! { @for part in parts { (part) } },
    })
}

fn gates(gates: &[GateOutcome]) -> Option<Markup> {
    if gates.is_empty() {
        return None;
    }
    let failed = gates.iter().filter(|gate| !gate.passed);
    let lead = match failed.clone().count() {
        0 => format!("{} passed.", count(gates.len(), "check")),
        failed => format!("{failed} of {} failed.", count(gates.len(), "check")),
    };
    let row = |gate: &GateOutcome| {
        let outcome = if gate.passed { "passed" } else { "failed" };
        vec![
            gate.check.clone(),
            outcome.to_owned(),
            gate.matched.to_string(),
            gate.breaches.len().to_string(),
            gate.improved.len().to_string(),
        ]
    };
    let head = ["check", "outcome", "rows", "failed", "better"];
    let table = Table::new("Limits and what came of them", &head, 2);
    let table = table.with_rows(gates.iter().map(row));
    Some(html! {
        p.lead { (lead) }
        @for gate in failed {
            h3 { (printable(&gate.check)) }
            ul.cases {
                @for breach in gate.breaches.iter().take(SHOWN) {
                    @let row = breach.key.as_ref().map(|key| key.words()).unwrap_or_default();
                    (case(&row, &breach.sentence, breach.reproduce.as_deref()))
                }
            }
            (more(gate.breaches.len()))
        }
        (table.folded())
    })
}

fn more(count: usize) -> Markup {
    html! {
        @if count > SHOWN { p { "And " (count - SHOWN) " more." } }
    }
}

fn list(sentences: &[String]) -> Option<Markup> {
    (!sentences.is_empty()).then(|| {
        html! {
            h3 { "Suites that judge no variant" }
            ul.cases { @for sentence in sentences { (case("", sentence, None)) } }
        }
    })
}

/// Rows that no rounding explains, with what is wrong. Bugs that were built in on purpose have their own section.
fn outside(report: &Report) -> Vec<(&Record, String)> {
    let fault = |record: &Record| {
        let bound = record.measures.value("bound_ratio");
        let bound = bound.filter(|ratio| ratio.is_nan() || *ratio > 1.0);
        let found = record.measures.certificates.filter(|found| *found > 0);
        let bound = bound.map(|ratio| {
            let share = share(ratio);
            format!("{share} of what rounding can explain (bound_ratio; the limit is 1)")
        });
        let found = found.map(|found| {
            let findings = count(found as usize, "finding");
            format!("{findings} in the selection that no rounding explains (certificates)")
        });
        let parts: Vec<String> = bound.into_iter().chain(found).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    };
    let own = report.records.iter().filter(|row| row.key.fault.is_none());
    own.filter_map(|row| Some((row, fault(row)?))).collect()
}

fn bounds(report: &Report, outside: &[(&Record, String)]) -> Option<Markup> {
    (!outside.is_empty()).then(|| {
        html! {
            h3 { "Bounds and certificates" }
            ul.cases {
                @for (row, sentence) in outside.iter().take(SHOWN) {
                    (case(&row.key.words(), sentence, Some(&reproduce(report, &row.key))))
                }
            }
            (more(outside.len()))
        }
    })
}

fn ends(report: &Report) -> Option<Markup> {
    (!report.non_finite.is_empty()).then(|| {
        html! {
            h3 { "Where a variant stops being finite" }
            ul.cases { @for at in &report.non_finite { li { (end(at)) } } }
        }
    })
}

fn skipped(report: &Report) -> Option<Markup> {
    (!report.skipped.is_empty()).then(|| {
        html! {
            h3 { "Skipped" }
            ul.cases {
                @for skipped in &report.skipped { (case(&skipped.what, &skipped.why, None)) }
            }
        }
    })
}
