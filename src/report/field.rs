//! How one column of a record is read as text or as a number, whatever its type.
//!
//! [`Key`](super::Key) and [`Measures`](super::Measures) list their fields once, in a macro; these
//! traits are what lets JSON, CSV, the gate and the schema follow that list.

use std::{borrow::Cow, fmt};

use crate::measure::value::Value;

/// A field of a record's key.
pub trait KeyField {
    /// The field as text, or nothing where the suite has no such field.
    fn text(&self) -> Option<Cow<'_, str>>;

    /// Whether the field is left out of JSON.
    fn is_absent(&self) -> bool {
        self.text().is_none()
    }
}

impl KeyField for String {
    fn text(&self) -> Option<Cow<'_, str>> {
        Some(Cow::Borrowed(self))
    }
}

impl KeyField for u32 {
    fn text(&self) -> Option<Cow<'_, str>> {
        Some(Cow::Owned(self.to_string()))
    }
}

impl KeyField for u64 {
    fn text(&self) -> Option<Cow<'_, str>> {
        Some(Cow::Owned(self.to_string()))
    }
}

impl<T: KeyField> KeyField for Option<T> {
    fn text(&self) -> Option<Cow<'_, str>> {
        self.as_ref().and_then(KeyField::text)
    }
}

/// A measure's number: counts stay integers, so that they print as such.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A count or an index.
    Count(u64),
    /// Anything else, non-finite values included.
    Float(f64),
}

impl Number {
    /// The number to compare with a limit. Counts above 2⁵³ round, which no limit can notice.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Count(count) => count as f64,
            Self::Float(value) => value,
        }
    }
}

impl From<Value> for Number {
    fn from(value: Value) -> Self {
        Self::Float(value.0)
    }
}

impl From<u64> for Number {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

/// The shortest text that reads back as the same bits; `NaN`, `inf` and `-inf` as pandas knows them.
impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Float(value) => write!(f, "{value:?}"),
        }
    }
}
