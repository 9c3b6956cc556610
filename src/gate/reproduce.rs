//! The one command that reproduces a row alone.

use std::borrow::Cow;

use crate::report::{Key, Record, Report};

/// A command for a POSIX shell, built from what the report ran on and the key of one of its rows.
#[must_use]
pub fn reproduce(report: &Report, key: &Key) -> String {
    let run = &report.run;
    let mut words = vec![
        "ulpdrift".to_owned(),
        "run".to_owned(),
        run.checkpoint.source.clone(),
    ];
    let mut flag = |name: &str, value: String| words.extend([name.to_owned(), value]);
    let is_sweep = key.suite == "sweep";
    if !is_sweep {
        flag("--suite", key.suite.clone());
    }
    flag("--variants", key.variant.clone());
    if let Some(layer) = key.layer {
        flag("--layers", layer.to_string());
    }
    if let Some(site) = &key.site {
        flag("--sites", site.clone());
    }
    if is_sweep {
        flag("--sweep", sweep_tokens(report, key));
    } else {
        flag("--tokens", key.tokens.to_string());
    }
    if let Some(sms) = key.sms {
        flag("--sms", sms.to_string());
    }
    flag("--seed", key.seed.to_string());
    flag("--inputs", key.inputs.clone());
    flag("--backend", key.backend.clone());
    // A device has the arch it has; only the emulator is told.
    if key.backend != "cuda" {
        flag("--arch", key.arch.clone());
    }
    words.extend(run.repeat_flags.iter().cloned());
    let quoted: Vec<Cow<'_, str>> = words.iter().map(|word| quote(word)).collect();
    quoted.join(" ")
}

/// A sweep compares each batch with its first one, so that one is needed too.
fn sweep_tokens(report: &Report, key: &Key) -> String {
    let is_same_sweep = |record: &&Record| {
        let other = &record.key;
        other.suite == key.suite
            && other.variant == key.variant
            && other.layer == key.layer
            && other.site == key.site
            && other.sms == key.sms
    };
    match report.records.iter().find(is_same_sweep) {
        Some(first) if first.key.tokens != key.tokens => {
            format!("tokens={},{}", first.key.tokens, key.tokens)
        }
        _ => format!("tokens={}", key.tokens),
    }
}

/// Quoted for a POSIX shell. A NUL cannot be passed to a program at all, so such a word could only
/// come from a report edited by hand; it is printed as it is.
fn quote(word: &str) -> Cow<'_, str> {
    shlex::Quoter::new()
        .allow_nul(true)
        .quote(word)
        .unwrap_or(Cow::Borrowed(word))
}
