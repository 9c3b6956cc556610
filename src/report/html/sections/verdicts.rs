//! What came of it: a sentence per variant, the worst first.

use maud::html;

use super::{Section, count};
use crate::report::{Class, Report, Verdict, printable};

pub fn section(report: &Report) -> Option<Section> {
    if report.verdicts.is_empty() {
        return None;
    }
    let mut verdicts: Vec<&Verdict> = report.verdicts.iter().collect();
    verdicts.sort_by_key(|verdict| std::cmp::Reverse(verdict.verdict));
    Some(Section {
        id: "verdicts",
        title: "Verdicts",
        body: html! {
            p.lead { (summary(&verdicts)) }
            ul.verdicts {
                @for verdict in verdicts {
                    li {
                        span class={ "class " (verdict.verdict.word()) } { (verdict.verdict.word()) }
                        " "
                        span { (printable(&verdict.sentence)) }
                    }
                }
            }
        },
    })
}

/// `7 variants: 1 structural, 2 degraded, 4 noise.`
fn summary(verdicts: &[&Verdict]) -> String {
    const WORST_FIRST: [Class; 5] = [
        Class::Broken,
        Class::Structural,
        Class::Degraded,
        Class::Noise,
        Class::Exact,
    ];
    let of = |class: Class| verdicts.iter().filter(|one| one.verdict == class).count();
    let parts: Vec<String> = WORST_FIRST
        .into_iter()
        .filter(|&class| of(class) > 0)
        .map(|class| format!("{} {}", of(class), class.word()))
        .collect();
    format!(
        "{}: {}.",
        count(verdicts.len(), "variant"),
        parts.join(", ")
    )
}
