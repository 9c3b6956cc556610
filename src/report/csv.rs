//! The records as CSV: exactly those, one row each.
//!
//! The header is [`Key::NAMES`] then [`Measures::NAMES`], the same in every file of one layout
//! version, whether a column is empty or not. pandas reads it without options: NaN is `NaN`,
//! infinities are `inf` and `-inf`, what does not apply is empty. A NUL cannot stand in a CSV that
//! C parsers read, so it becomes U+FFFD here and only here; JSON keeps it.

use std::{borrow::Cow, io};

use super::{Key, Measures, Record};

/// Writes the records.
///
/// # Errors
/// If `out` fails.
pub fn write(records: &[Record], out: &mut dyn io::Write) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(Key::NAMES.iter().chain(Measures::NAMES))?;
    for record in records {
        let key = Key::NAMES.iter().map(|name| key_cell(&record.key, name));
        let measures = Measures::NAMES
            .iter()
            .map(|name| measure_cell(&record.measures, name));
        for cell in key.chain(measures) {
            writer.write_field(cell.as_bytes())?;
        }
        writer.write_record(None::<&[u8]>)?;
    }
    writer.flush()
}

fn key_cell<'a>(key: &'a Key, name: &str) -> Cow<'a, str> {
    let text = key.get(name).unwrap_or_default();
    if text.contains('\0') {
        Cow::Owned(text.replace('\0', "\u{fffd}"))
    } else {
        text
    }
}

fn measure_cell<'a>(measures: &Measures, name: &str) -> Cow<'a, str> {
    let number = measures.get(name);
    Cow::Owned(number.map_or_else(String::new, |number| number.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{measure::value::Value, report::fixtures};

    fn text(records: &[Record]) -> String {
        let mut bytes = Vec::new();
        write(records, &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    /// The whole file as it stands for one row: a name, an order or a format that changes breaks
    /// somebody's script, so it has to be changed here as well.
    #[test]
    fn columns_are_stable() {
        let mut record = fixtures::record("tf32", 17, "ffn", "mixes", 2.09e-4);
        record.measures.slope = Some(Value(f64::NAN));
        record.measures.max_abs = Some(Value(f64::INFINITY));
        record.measures.drift = Some(Value(f64::NEG_INFINITY));
        record.measures.nan_got = Some(3);
        insta::assert_snapshot!(text(&[record]));
    }

    /// Known fault J4: a CSV that lacks the measured columns.
    #[test]
    fn j4_every_measure_is_a_column() {
        let header = text(&[]);
        let columns: Vec<&str> = header.trim_end().split(',').collect();
        assert_eq!(columns.len(), Key::NAMES.len() + Measures::NAMES.len());
        for name in Measures::NAMES {
            assert!(columns.contains(name), "{name} is not a column");
        }
    }

    #[test]
    fn hostile_names_stay_in_their_cell() {
        let names = [
            "a,b",
            "say \"x\"",
            "two\nlines",
            "cr\rlf",
            "Ω-карта",
            " lead",
            "=1+1",
            "",
        ];
        let records: Vec<Record> = names
            .iter()
            .map(|name| fixtures::record(name, 0, "attn", "mixes", 1e-4))
            .collect();
        let text = text(&records);
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let variant = Key::NAMES
            .iter()
            .position(|name| *name == "variant")
            .unwrap();
        let rel_l2 = Key::NAMES.len();
        let mut rows = 0;
        for (row, name) in reader.records().zip(names) {
            let row = row.unwrap();
            assert_eq!(&row[variant], name);
            assert_eq!(&row[rel_l2], "0.0001");
            rows += 1;
        }
        assert_eq!(rows, names.len());
    }

    /// Known fault J5: a stray byte in a name, and the columns behind it vanish.
    #[test]
    fn j5_a_nul_does_not_truncate_the_file() {
        let text = text(&[fixtures::record("a\0b", 0, "attn", "mixes", 1e-4)]);
        assert!(!text.contains('\0'));
        assert!(text.contains("a\u{fffd}b"));
        assert!(text.contains("0.0001"));
    }

    #[test]
    fn numbers_read_back_as_the_same_bits() {
        for value in [
            0.1,
            -0.0,
            1e-320,
            f64::MIN_POSITIVE,
            2.09e-4,
            1e300,
            3.0,
            -1.5e-7,
        ] {
            let mut record = fixtures::record("tf32", 0, "attn", "mixes", value);
            record.measures.rel_l2 = Some(Value(value));
            let text = text(&[record]);
            let row = csv::Reader::from_reader(text.as_bytes())
                .records()
                .next()
                .unwrap()
                .unwrap();
            let back: f64 = row[Key::NAMES.len()].parse().unwrap();
            assert_eq!(back.to_bits(), value.to_bits());
        }
    }
}
