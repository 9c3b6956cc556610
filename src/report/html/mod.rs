//! The report as one HTML file that needs nothing else: no network, no fonts, and no script to be read.
//!
//! The order is that of a reader's questions: what ran on what, what came of it, what failed, where the error is and
//! where it comes from, how to see the worst of it again, and what all of it rests on. A section stands there only if
//! the report has its rows. Every number is one of the report's; every figure has its table.
//!
//! The same report gives the same bytes.

mod markup;
mod plot;
mod policy;
mod sections;
#[cfg(test)]
mod tests;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{Report, WeightKind, printable, style, table};
use markup::Section;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// The whole file.
#[must_use]
pub fn render(report: &Report) -> String {
    let title = style::plain(&table::title(report, usize::MAX));
    let (facts, weights) = title.split_once('\n').unwrap_or((&title, ""));
    let sections = sections::all(report);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy::policy(STYLE, SCRIPT));
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (facts) " – ulpdrift" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                a.skip href="#main" { "Skip to the results" }
                header {
                    h1 { (headed(report, facts)) }
                    p { (weights) }
                    p.quiet {
                        "How far each variant of a kernel is from fp64. Written by "
                        (printable(&report.tool.name)) " " (printable(&report.tool.version)) "."
                    }
                }
                nav aria-label="Contents" { (contents(&sections)) }
                main id="main" tabindex="-1" {
                    @for section in &sections { (shown(section)) }
                }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string() + "\n"
}

/// The facts with the word that says whether the weights are a model's as a mark.
fn headed(report: &Report, facts: &str) -> Markup {
    let kind = report.run.checkpoint.kind;
    let class = match kind {
        WeightKind::Real => "real",
        WeightKind::Synthetic => "synthetic",
    };
    html! {
        @match facts.strip_prefix(kind.shout()) {
            Some(rest) => { span class={ "kind " (class) } { (kind.shout()) } (rest) }
            None => { (facts) }
        }
    }
}

fn contents(sections: &[Section]) -> Markup {
    html! {
        ul {
            @for section in sections {
                li { a href={ "#" (section.id) } { (section.title) } }
            }
        }
    }
}

fn shown(section: &Section) -> Markup {
    let heading = format!("{}-heading", section.id);
    html! {
        section id=(section.id) aria-labelledby=(heading) {
            h2 id=(heading) { (section.title) }
            (section.body)
        }
    }
}
