//! The one command that reproduces a row alone.

use std::borrow::Cow;

use wildmatch::WildMatch;

use super::{Key, Report, is_hostile};
use crate::recipe::{RecombineRecipe, catalogue, indexer::IndexRecipe};

/// A command for a POSIX shell, built from what the report ran on and the key of one of its rows.
#[must_use]
pub fn reproduce(report: &Report, key: &Key) -> String {
    command(report, key, &report.run.repeat_flags)
}

fn command(report: &Report, key: &Key, repeat_flags: &[String]) -> String {
    let run = &report.run;
    let source = run.checkpoint.pinned();
    // A name that begins as a flag does is none.
    let is_last = source.starts_with('-');
    let mut words = vec!["ulpdrift".to_owned(), "run".to_owned()];
    if !is_last {
        words.push(source.clone());
    }
    let mut flag = |name: &str, value: String| words.extend(flag_of(name, value));
    let first = first_of_sweep(report, key);
    let with_first = |of: fn(&Key) -> String| match of(first) {
        first if first != of(key) => format!("{first},{}", of(key)),
        same => same,
    };
    let tokens = |key: &Key| key.tokens.to_string();
    let splits = |key: &Key| key.splits.unwrap_or(1).to_string();
    let sms = |key: &Key| key.sms.map_or(String::new(), |sms| sms.to_string());
    let is_sweep = matches!(key.suite.as_str(), "sweep" | "splits");
    if !is_sweep {
        flag("--suite", key.suite.clone());
    }
    // A perturbation is no variant's: any will do.
    let variant = match &key.direction {
        Some(_) => catalogue::DEFAULT_AGAINST.to_owned(),
        None => key.variant.clone(),
    };
    flag("--variants", variant);
    if let Some(fault) = &key.fault {
        flag("--fault", fault.clone());
    }
    if key.residual.is_some() {
        flag("--layers", layers_of_chain(report, key));
        for (name, value) in [
            ("--residual", &key.residual),
            ("--layer-io", &key.layer_io),
            ("--sublayer", &key.sublayer),
            ("--sites-on", &key.sites_on),
        ] {
            flag(name, value.clone().unwrap_or_default());
        }
    } else {
        if let Some(layer) = key.layer {
            flag("--layers", layer.to_string());
        }
        if let Some(site) = &key.site {
            flag("--sites", site.clone());
        }
    }
    match key.suite.as_str() {
        "sweep" => flag("--sweep", format!("tokens={}", with_first(tokens))),
        "splits" => flag("--sweep", format!("splits={}", with_first(splits))),
        _ => {}
    }
    match key.context {
        Some(context) => flag("--context", context.to_string()),
        None if key.suite != "sweep" => flag("--tokens", tokens(key)),
        None => {}
    }
    if let Some(k) = key.k {
        let deeper = key.k_at.map(|at| format!(",{at}")).unwrap_or_default();
        flag("--topk", format!("{k}{deeper}"));
    }
    if let Some(margin) = &key.needle_margin {
        flag("--needle-margins", margin.clone());
    }
    if let Some(depth) = &key.needle_depth {
        flag("--needle-depths", depth.clone());
    }
    if key.sms.is_some() {
        flag("--sms", with_first(sms));
    }
    flag("--seed", key.seed.to_string());
    flag("--inputs", key.inputs.clone());
    flag("--backend", key.backend.clone());
    // A device has the arch it has; only the emulator is told.
    if key.backend != "cuda" {
        flag("--arch", key.arch.clone());
    }
    words.extend(repeated(report, key, repeat_flags));
    if is_last {
        words.extend(["--".to_owned(), source]);
    }
    let quoted: Vec<Cow<'_, str>> = words.iter().map(|word| shell_word(word)).collect();
    quoted.join(" ")
}

/// A flag and its value, in one word where the value would be taken for a flag itself.
fn flag_of(name: &str, value: String) -> Vec<String> {
    match value.starts_with('-') {
        true => vec![format!("{name}={value}")],
        false => vec![name.to_owned(), value],
    }
}

/// The flags to repeat, without those that say nothing to the row's suite: a variant to compare with that is not one of
/// its own, recipes of another kernel, times of another suite.
fn repeated(report: &Report, key: &Key, repeat_flags: &[String]) -> Vec<String> {
    let is_recombination = key.suite == "recombine";
    let is_indexing = key.context.is_some();
    let compares = !matches!(key.suite.as_str(), "budget" | "gains" | "needle");
    let knows = |pattern: &str| {
        let glob = WildMatch::new(pattern);
        let names = |title: &str| {
            let recombination = RecombineRecipe::name_in(title);
            let index = IndexRecipe::name_in(title);
            match (recombination, index) {
                (Some(name), _) => is_recombination && glob.matches(name),
                (_, Some(name)) => is_indexing && glob.matches(name),
                _ => !is_recombination && !is_indexing && glob.matches(title),
            }
        };
        report.recipes.keys().any(|title| names(title))
    };
    let mut words = Vec::new();
    let mut flags = repeat_flags.iter();
    while let Some(flag) = flags.next() {
        let value = match flag.as_str() {
            "--recipes" | "--against" | "--queries" | "--topk" | "--repeat" => flags.next(),
            _ => None,
        };
        let is_meant = match (flag.as_str(), value) {
            ("--against", Some(name)) => compares && knows(name),
            ("--recipes", _) => !is_recombination,
            ("--time", _) => key.suite == "mix",
            ("--queries", _) => is_indexing,
            ("--topk", _) => is_indexing && key.k.is_none(),
            ("--repeat", _) => repeats(&key.suite),
            ("--allow-nonfinite", _) => true,
            // No run asks to repeat another.
            _ => false,
        };
        match value {
            _ if !is_meant => {}
            Some(value) => words.extend(flag_of(flag, value.clone())),
            None => words.push(flag.clone()),
        }
    }
    words
}

/// Whether a suite runs its cases as often as it is told.
#[must_use]
pub fn repeats(suite: &str) -> bool {
    matches!(suite, "mix" | "recombine" | "chain" | "indexer")
}

/// The same where the row's time is wanted: on a device, which takes it.
#[must_use]
pub fn reproduce_timed(report: &Report, key: &Key) -> String {
    let key = Key {
        backend: "cuda".to_owned(),
        ..key.clone()
    };
    let flag = "--time".to_owned();
    let mut flags = report.run.repeat_flags.clone();
    if !flags.contains(&flag) {
        flags.push(flag);
    }
    command(report, &key, &flags)
}

/// A row of a chain needs every layer before its own; the head's needs all, and so does what the end makes of an error.
fn layers_of_chain(report: &Report, key: &Key) -> String {
    let chain = report.records.iter().map(|record| &record.key);
    let layers = chain
        .filter(|other| other.suite == key.suite)
        .filter_map(|other| other.layer);
    let (first, last) = layers.fold((u32::MAX, 0), |(first, last), layer| {
        (first.min(layer), last.max(layer))
    });
    let own = match key.suite.as_str() {
        "gains" => last,
        _ => key.layer.unwrap_or(last),
    };
    // The layer where the variant runs has to be there, be it behind this one.
    let named = key.sites_on.as_deref().and_then(|text| text.parse().ok());
    let needed = named.map_or(own, |layer: u32| own.max(layer));
    format!("{}-{needed}", first.min(needed))
}

/// A sweep compares each of its points with its first one, so that one is needed too. A row of
/// another suite is its own first.
fn first_of_sweep<'a>(report: &'a Report, key: &'a Key) -> &'a Key {
    let is_same_sweep = |other: &&Key| {
        matches!(key.suite.as_str(), "sweep" | "splits")
            && other.suite == key.suite
            && other.variant == key.variant
            && other.layer == key.layer
            && other.site == key.site
            && other.sms.is_some() == key.sms.is_some()
    };
    let mut keys = report.records.iter().map(|record| &record.key);
    keys.find(is_same_sweep).unwrap_or(key)
}

/// A word, quoted for a POSIX shell. A NUL cannot be passed to a program at all, so such a word could only
/// come from a report edited by hand; the shell leaves it out.
#[must_use]
pub fn shell_word(word: &str) -> Cow<'_, str> {
    if word.chars().any(|c| c != '\n' && is_hostile(c)) {
        return Cow::Owned(printed(word));
    }
    shlex::Quoter::new()
        .quote(word)
        .unwrap_or(Cow::Borrowed(word))
}

/// A word that would drive the terminal that shows it, as the call by which a shell makes it.
fn printed(word: &str) -> String {
    // The shell drops the line breaks at the end of what a call prints.
    let printed = word.trim_end_matches('\n');
    let dropped = &word[printed.len()..];
    let mut text = String::new();
    for c in printed.chars() {
        match c {
            '\\' => text.push_str(r"\\"),
            '\'' => text.push_str(r"'\''"),
            c if is_hostile(c) => {
                let bytes = c.to_string().into_bytes();
                text.extend(bytes.iter().map(|byte| format!(r"\0{byte:03o}")));
            }
            c => text.push(c),
        }
    }
    format!("\"$(printf %b '{text}'){dropped}\"")
}

#[cfg(test)]
mod tests;
