//! Numbers and names as they stand in a sentence.

use std::fmt::Write;

use crate::report::number::{plain, sci};

/// An error: three digits.
pub fn error(value: f64) -> String {
    sci(value, 3)
}

/// A share of keys: as many digits as tell one key of thousands.
pub fn keys(value: f64) -> String {
    plain(value, 4)
}

/// A share of a whole in percent; what is next to nothing, or next to all, is said as such.
pub fn percent(share: f64) -> String {
    match share {
        0.0 => "0 %".to_owned(),
        share if share > 0.0 && share < 5e-4 => "less than 0.1 %".to_owned(),
        share if share < 0.0 && share > -5e-4 => "about 0 %".to_owned(),
        share if share > 0.9995 && share < 1.0 => "more than 99.9 %".to_owned(),
        share => format!("{} %", plain(100.0 * share, 3)),
    }
}

/// `a, b and c`.
pub fn list<T: AsRef<str>>(names: &[T]) -> String {
    let mut text = String::new();
    for (index, name) in names.iter().enumerate() {
        let gap = match index {
            0 => "",
            last if last + 1 == names.len() => " and ",
            _ => ", ",
        };
        // Writing to a String cannot fail.
        let _ = write!(text, "{gap}{}", name.as_ref());
    }
    text
}
