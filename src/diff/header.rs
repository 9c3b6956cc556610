//! What differs in what was run.

use crate::report::{Part, Report};

/// Something that the two reports say differently of themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// What.
    pub name: &'static str,
    /// In the first report.
    pub a: String,
    /// In the second.
    pub b: String,
}

/// What stands where one of the two has nothing.
const NONE: &str = "none";

/// Everything that differs, the weights first.
pub(super) fn facts(a: &Report, b: &Report) -> Vec<Fact> {
    let (own, other) = (texts(a), texts(b));
    let mut facts: Vec<Fact> = own
        .into_iter()
        .zip(other)
        .map(|((name, a), (_, b))| Fact { name, a, b })
        .collect();
    facts.push(lacking(a, b));
    facts.retain(|fact| fact.a != fact.b);
    facts
}

/// What a report says of its run.
fn texts(report: &Report) -> [(&'static str, String); 16] {
    let (run, tool) = (&report.run, &report.tool);
    let (backend, checkpoint) = (&run.backend, &run.checkpoint);
    let optional = |text: &Option<String>| text.clone().unwrap_or_else(|| NONE.to_owned());
    [
        (
            "weights",
            format!("{} {}", checkpoint.kind.shout(), checkpoint.source),
        ),
        ("finished", finished(report)),
        ("suites", suites(report)),
        ("digest of the tensors read", checkpoint.digest.clone()),
        ("backend", backend.name.clone()),
        ("arch", backend.arch.clone()),
        ("device", optional(&backend.device)),
        ("driver", optional(&backend.driver)),
        ("NVRTC", optional(&backend.nvrtc)),
        ("library", optional(&backend.library)),
        ("own kernels", list(&backend.kernels)),
        ("seed", run.seed.to_string()),
        ("inputs", run.inputs.clone()),
        ("tokens", run.tokens.to_string()),
        ("repeated flags", list(&run.repeat_flags)),
        ("tool", format!("{} {}", tool.name, tool.version)),
    ]
}

/// How much of a run it is of.
fn finished(report: &Report) -> String {
    let part = report.part.as_ref();
    part.map_or_else(|| "all of it".to_owned(), Part::headline)
}

/// The suites that have a row, in the order of the rows.
fn suites(report: &Report) -> String {
    let mut suites: Vec<String> = Vec::new();
    for record in report.records.iter() {
        if !suites.contains(&record.key.suite) {
            suites.push(record.key.suite.clone());
        }
    }
    list(&suites)
}

fn list(words: &[String]) -> String {
    match words {
        [] => NONE.to_owned(),
        words => words.join(" "),
    }
}

/// Recipes that one of the two lacks.
fn lacking(a: &Report, b: &Report) -> Fact {
    let names = |own: &Report, other: &Report| {
        let names = own.recipes.keys();
        let own: Vec<&str> = names
            .filter(|name| !other.recipes.contains_key(*name))
            .map(String::as_str)
            .collect();
        match own.as_slice() {
            [] => NONE.to_owned(),
            names => names.join(", "),
        }
    };
    Fact {
        name: "recipes of its own",
        a: names(a, b),
        b: names(b, a),
    }
}

/// Names of recipes that both have and that are not the same.
pub(super) fn changed_recipes(a: &Report, b: &Report) -> Vec<String> {
    let is_changed = |(name, recipe): &(&String, &serde_json::Value)| {
        b.recipes.get(*name).is_some_and(|other| other != *recipe)
    };
    let changed = a.recipes.iter().filter(is_changed);
    changed.map(|(name, _)| name.clone()).collect()
}
