//! Which rows are meant: conditions on the fields of a record's key, as limits and `--row` give them.

use std::fmt;

use wildmatch::WildMatch;

use super::{Key, printable};

/// A condition on one field of a record's key.
#[derive(Clone, Debug)]
pub struct Matcher {
    /// The field.
    pub field: &'static str,
    /// Globs of which one has to match.
    any_of: Vec<WildMatch>,
}

impl Matcher {
    /// One of the globs has to match the field's text.
    #[must_use]
    pub fn any_of(field: &'static str, globs: &[String]) -> Self {
        Self {
            field,
            any_of: globs.iter().map(|glob| WildMatch::new(glob)).collect(),
        }
    }

    /// Whether the record is meant. A field the record does not have matches nothing.
    #[must_use]
    pub fn is_match(&self, key: &Key) -> bool {
        key.get(self.field)
            .is_some_and(|text| self.any_of.iter().any(|glob| glob.matches(&text)))
    }

    /// Whether it and the others mean the row, a field each. Rows of a known bug are meant by a condition on `fault`, and
    /// by no other.
    #[must_use]
    pub fn all_match(all: &[Self], key: &Key) -> bool {
        let names_faults = all.iter().any(|matcher| matcher.field == "fault");
        (names_faults || key.fault.is_none()) && all.iter().all(|matcher| matcher.is_match(key))
    }
}

/// `variant=tf32*|bf16`.
impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let globs: Vec<String> = self.any_of.iter().map(|glob| glob.pattern()).collect();
        write!(f, "{}={}", self.field, printable(&globs.join("|")))
    }
}
