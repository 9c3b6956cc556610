//! Whether two heads are of the same run: what one has finished is then of use to the other.

use std::{collections::BTreeSet, fmt};

use crate::report::{
    part::{self, CaseName, Head},
    printable,
};

/// What keeps two heads from being of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// They were asked for otherwise: in words, what each of them has.
    Asked(String),
    /// The same was asked for, and something that is read is not what it was: its name.
    Changed(String),
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked(words) => f.write_str(words),
            Self::Changed(what) => write!(f, "{what} has changed in between"),
        }
    }
}

/// The first thing that keeps `there` from being the run of `here`.
#[must_use]
pub fn difference(here: &Head, there: &Head) -> Option<Difference> {
    asked(here, there)
        .map(Difference::Asked)
        .or_else(|| changed(here, there).map(Difference::Changed))
        .or_else(|| rest(here, there).map(Difference::Asked))
}

/// The first thing that is read and is not what it was.
fn changed(here: &Head, there: &Head) -> Option<String> {
    if here.run.checkpoint != there.run.checkpoint {
        return Some("the checkpoint".to_owned());
    }
    let (here, there) = (&here.fingerprints, &there.fingerprints);
    let mut names = here.keys().chain(there.keys());
    let name = names.find(|&name| here.get(name) != there.get(name))?;
    Some(printable(name))
}

/// What was asked for, with what each of them has.
fn asked(here: &Head, there: &Head) -> Option<String> {
    let named = |what: &str, here: &str, there: &str| {
        let quoted = |text: &str| format!("'{}'", printable(text));
        format!(
            "{what} is {} here and {} there",
            quoted(here),
            quoted(there)
        )
    };
    let texts = [
        ("the version", &here.tool.version, &there.tool.version),
        (
            "the checkpoint",
            &here.run.checkpoint.source,
            &there.run.checkpoint.source,
        ),
    ];
    for (what, here, there) in texts {
        if here != there {
            return Some(named(what, here, there));
        }
    }
    let flags: BTreeSet<&String> = here.flags.keys().chain(there.flags.keys()).collect();
    for flag in flags {
        let value = |head: &Head| match head.flags.get(flag) {
            Some(value) if value.is_empty() => "given".to_owned(),
            Some(value) => format!("'{}'", printable(value)),
            None => "not given".to_owned(),
        };
        let (here, there) = (value(here), value(there));
        if here != there {
            return Some(format!("{flag} is {here} here and {there} there"));
        }
    }
    let backend = |head: &Head| serde_json::to_string(&head.run.backend).unwrap_or_default();
    if here.run.backend != there.run.backend {
        return Some(named("the backend", &backend(here), &backend(there)));
    }
    let commit = |head: &Head| head.run.checkpoint.revision.clone().unwrap_or_default();
    if commit(here) != commit(there) {
        return Some(named(
            "the commit of the model",
            &commit(here),
            &commit(there),
        ));
    }
    None
}

/// What follows from the flags and from what was read.
fn rest(here: &Head, there: &Head) -> Option<String> {
    let mut names = here.recipes.keys().chain(there.recipes.keys());
    if let Some(name) = names.find(|&name| here.recipes.get(name) != there.recipes.get(name)) {
        return Some(format!("recipe '{}' is another", printable(name)));
    }
    let only = |a: &[CaseName], b: &[CaseName]| -> Vec<CaseName> {
        let b: BTreeSet<&CaseName> = b.iter().collect();
        a.iter().filter(|case| !b.contains(case)).cloned().collect()
    };
    let more = only(&here.cases, &there.cases);
    let fewer = only(&there.cases, &here.cases);
    match (more.is_empty(), fewer.is_empty()) {
        (false, _) => Some(format!("it has no {}", part::some(&more))),
        (true, false) => Some(format!("it has {} besides", part::some(&fewer))),
        // Whatever else a head holds.
        (true, true) => (here.run.seed != there.run.seed
            || here.run.repeat_flags != there.run.repeat_flags
            || here.cases != there.cases)
            .then(|| "its settings are others".to_owned()),
    }
}
