//! Colour, only where it means something: the one place that says what has which.
//!
//! Painted text holds escape sequences, which take no room on a terminal. [`plain`] takes them out again where nobody
//! is looking; text from outside has none left ([`super::printable`]).

use anstream::adapter::strip_str;
use anstyle::{AnsiColor, Style};
use unicode_width::UnicodeWidthStr;

use super::{Class, WeightKind};

/// What fails.
const FAILURE: Style = AnsiColor::Red.on_default().bold();
/// What passes, and what nothing is better than.
const SUCCESS: Style = AnsiColor::Green.on_default();
/// What a reader has to keep in mind.
const CAUTION: Style = AnsiColor::Yellow.on_default();

fn painted(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

/// A value, a word or a sentence that fails.
#[must_use]
pub fn failure(text: &str) -> String {
    painted(FAILURE, text)
}

/// A word for what passes.
#[must_use]
pub fn success(text: &str) -> String {
    painted(SUCCESS, text)
}

/// A word to keep in mind.
#[must_use]
pub fn caution(text: &str) -> String {
    painted(CAUTION, text)
}

/// The word for a verdict.
#[must_use]
pub fn verdict(class: Class) -> String {
    let word = class.word();
    match class {
        Class::Exact => success(word),
        Class::Noise => word.to_owned(),
        Class::Degraded => caution(word),
        Class::Structural | Class::Broken => failure(word),
    }
}

/// A verdict's sentence, in which its word is the first of its kind.
#[must_use]
pub fn sentence(class: Class, sentence: &str) -> String {
    let said = format!(" is {}", class.word());
    sentence.replacen(&said, &format!(" is {}", verdict(class)), 1)
}

/// `REAL` or `SYNTHETIC`.
#[must_use]
pub fn weights(kind: WeightKind) -> String {
    match kind {
        WeightKind::Real => kind.shout().to_owned(),
        WeightKind::Synthetic => caution(kind.shout()),
    }
}

/// The text without its colours.
#[must_use]
pub fn plain(text: &str) -> String {
    strip_str(text).to_string()
}

/// Columns that the text takes on a terminal.
#[must_use]
pub fn width(text: &str) -> usize {
    strip_str(text).map(UnicodeWidthStr::width).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_takes_no_room_and_can_be_taken_out() {
        let text = format!("{} {}\n×▁█", failure("FAIL"), verdict(Class::Exact));
        assert_ne!(text, plain(&text));
        assert_eq!(plain(&text), "FAIL exact\n×▁█");
        assert_eq!(width(&failure("1.2")), 3);
        assert_eq!(width("層"), 2);
    }

    #[test]
    fn what_is_neither_good_nor_bad_has_no_colour() {
        assert_eq!(verdict(Class::Noise), "noise");
        assert_eq!(weights(WeightKind::Real), "REAL");
        assert_ne!(weights(WeightKind::Synthetic), "SYNTHETIC");
        let both = [Class::Structural, Class::Broken].map(verdict);
        assert!(
            both.iter().all(|word| word.contains("\u{1b}[31m")),
            "{both:?}"
        );
    }

    #[test]
    fn the_word_of_a_sentence_is_painted_once() {
        let said = sentence(Class::Degraded, "x is degraded: y is degraded");
        assert_eq!(plain(&said), "x is degraded: y is degraded");
        assert!(said.ends_with("y is degraded"), "{said:?}");
        assert!(said.starts_with("x is \u{1b}["), "{said:?}");
    }
}
