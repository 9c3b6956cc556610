//! How the program says no.

use super::Outcome;

/// More than any refusal takes, whatever names it quotes: what a terminal's log can bear.
const LONGEST: usize = 2048;

/// A refusal, as the terminal shows it, is one sentence.
pub fn refused(error: impl Into<anyhow::Error>) -> Outcome {
    let told = ulpdrift::cli::told(&error.into());
    assert!(!told.trim().is_empty(), "a refusal says nothing");
    assert!(
        told.len() <= LONGEST,
        "a refusal has {} bytes: {told}",
        told.len()
    );
    plain(&told);
    Outcome::Refused
}

/// One line, without characters that drive a terminal or turn the line round.
pub fn plain(line: &str) {
    assert!(!line.contains(is_hostile), "{line:?} is not plain text");
}

/// Lines that each are [`plain`].
pub fn plain_lines(text: &str) {
    text.split('\n').for_each(plain);
}

/// The same of painted text: nothing but colours is in it besides.
pub fn painted_lines(text: &str) {
    let mut parts = text.split("\u{1b}[");
    parts.next().into_iter().for_each(plain_lines);
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';');
        let rest = rest.strip_prefix('m').expect("an escape that is no colour");
        plain_lines(rest);
    }
}

fn is_hostile(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || c.is_control()
}
