//! What is wrong with a command line, in one sentence.
//!
//! clap explains over several lines; a script that logs the last line of stderr, or the first, has
//! to get all of it, as with every other error of the tool.

use std::str::FromStr;

use clap::{CommandFactory, error::ErrorKind};

use super::Cli;

/// Whether clap stopped to show help or the version because it was asked to.
pub fn is_asked_for(error: &clap::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    )
}

/// Whether clap shows help because nothing was asked for, which is no usage either.
pub fn is_nothing_asked(error: &clap::Error) -> bool {
    error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}

/// clap's explanation without its layout: what was found, what is possible, the tips, and where to
/// read more.
pub fn sentence(error: &clap::Error, words: impl Iterator<Item = String>) -> String {
    let text = error.to_string();
    let mut parts = Vec::new();
    for paragraph in text.split("\n\n") {
        let lines = paragraph.lines().map(str::trim).filter(|l| !l.is_empty());
        let line = lines.collect::<Vec<_>>().join(" ");
        if line.is_empty() || line.starts_with("Usage:") || line.starts_with("For more") {
            continue;
        }
        for part in line.split("tip: ") {
            parts.push(part.trim().to_owned());
        }
    }
    parts.retain(|part| !part.is_empty());
    let found = parts.join("; ").replace(" [possible", "; [possible");
    let found = found.strip_prefix("error: ").unwrap_or(&found);
    format!("{found}; `{} --help` lists what there is", command(words))
}

/// The command that was meant: its name and those of its parents.
fn command(words: impl Iterator<Item = String>) -> String {
    let mut command = Cli::command();
    let mut name = command.get_name().to_owned();
    for word in words.skip(1) {
        let Some(inner) = command.find_subcommand(&word) else {
            break;
        };
        command = inner.clone();
        name = format!("{name} {word}");
    }
    name
}

/// Parses a count or a seed, with a message for people.
pub fn whole<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| "expected a whole number, 0 or more".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    fn said(line: &[&str]) -> String {
        let words = line.iter().map(|&word| word.to_owned());
        sentence(&Cli::try_parse_from(line).expect_err("refused"), words)
    }

    #[test]
    fn every_part_of_claps_explanation_is_kept_on_one_line() {
        assert_eq!(
            said(&["ulpdrift", "run", "--nosuch"]),
            "unexpected argument '--nosuch' found; to pass '--nosuch' as a value, use \
             '-- --nosuch'; `ulpdrift run --help` lists what there is"
        );
        assert_eq!(
            said(&["ulpdrift", "run", "--format", "xml"]),
            "invalid value 'xml' for '--format <FORMATS>'; [possible values: csv, json, md, junit, html]; \
             a similar value exists: 'html'; `ulpdrift run --help` lists what there is"
        );
        assert_eq!(
            said(&["ulpdrift", "run", "--seed", "-1"]),
            "invalid value '-1' for '--seed <SEED>': expected a whole number, 0 or more; \
             `ulpdrift run --help` lists what there is"
        );
        assert_eq!(
            said(&["ulpdrift", "inspekt"]),
            "unrecognized subcommand 'inspekt'; a similar subcommand exists: 'inspect'; \
             `ulpdrift --help` lists what there is"
        );
    }
}
