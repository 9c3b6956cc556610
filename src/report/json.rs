//! A report as JSON, written and read back.
//!
//! One line per record, so that two reports can be compared by any line tool and a baseline in
//! version control shows which rows moved. Non-finite numbers are strings (see
//! [`crate::measure::value`]); unknown fields and newer layouts are refused rather than half read.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::ser::{Formatter, Serializer};
use thiserror::Error;

use super::{Report, SCHEMA_VERSION};
use crate::files;

/// Why a file is no report.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("cannot read the report {}: {source}; check the path", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is not a report.
    #[error("{} is not a report of `ulpdrift run --format json`: {source}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// What was found, and where.
        source: serde_json::Error,
    },
    /// The report is not one of a whole run.
    #[error("{} is not the report of a whole run ({headline}); {advice}", path.display())]
    Part {
        /// The file.
        path: PathBuf,
        /// What of it there is.
        headline: String,
        /// What to do.
        advice: &'static str,
    },
    /// The file's layout is not this version's.
    #[error(
        "{} has report layout {found}, this ulpdrift reads layout {SCHEMA_VERSION}; {}",
        path.display(),
        advice(*found)
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its layout version.
        found: u64,
    },
}

fn advice(found: u64) -> &'static str {
    if found > u64::from(SCHEMA_VERSION) {
        "use the ulpdrift that wrote it, or a newer one"
    } else {
        "run the measurement again to write it anew"
    }
}

/// Reads only what says how to read the rest.
#[derive(Deserialize)]
struct Layout {
    schema_version: u64,
}

/// What the report is called in a folder that `--out` names.
pub const FILE: &str = "report.json";

/// Reads a report: a file, or the `report.json` of a folder.
///
/// # Errors
/// If the file cannot be read, is no report, has a field this version does not know, or is of
/// another layout.
pub fn read(path: &Path) -> Result<Report, ReadError> {
    let inside = path.is_dir().then(|| path.join(FILE));
    let path = inside.as_deref().unwrap_or(path);
    let bytes = files::read(path, files::LARGEST_REPORT).map_err(|source| ReadError::Io {
        path: path.to_owned(),
        source,
    })?;
    parse(&bytes, path)
}

/// Reads the text of a report; `origin` is for messages.
///
/// # Errors
/// As [`read`], but for the file.
pub fn parse(text: &[u8], origin: &Path) -> Result<Report, ReadError> {
    let broken = |source| ReadError::Parse {
        path: origin.to_owned(),
        source,
    };
    let found = serde_json::from_slice::<Layout>(text)
        .map_err(broken)?
        .schema_version;
    if found != u64::from(SCHEMA_VERSION) {
        return Err(ReadError::Version {
            path: origin.to_owned(),
            found,
        });
    }
    serde_json::from_slice(text).map_err(broken)
}

/// Reads the report of a whole run.
///
/// # Errors
/// As [`read`], and if it is that of a part of one: what it lacks would go unnoticed.
pub fn read_whole(path: &Path) -> Result<Report, ReadError> {
    let report = read(path)?;
    match &report.part {
        None => Ok(report),
        Some(part) => Err(ReadError::Part {
            path: path.to_owned(),
            headline: part.headline(),
            advice: match part.missing.is_empty() {
                true => "join the parts with `ulpdrift merge`",
                false => "go on with the run by --resume",
            },
        }),
    }
}

/// Writes a report.
///
/// # Errors
/// If `out` fails.
pub fn write(report: &Report, mut out: &mut dyn Write) -> io::Result<()> {
    let mut serializer = Serializer::with_formatter(&mut out, LinePerRow::default());
    report.serialize(&mut serializer).map_err(io::Error::from)?;
    out.write_all(b"\n")
}

/// Breaks lines down to the entries of the top-level fields, and no further.
#[derive(Default)]
struct LinePerRow {
    depth: usize,
    has_entries: bool,
}

impl LinePerRow {
    const DEEPEST_BROKEN: usize = 2;

    fn open<W: ?Sized + Write>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        self.has_entries = false;
        out.write_all(bracket)
    }

    fn close<W: ?Sized + Write>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth -= 1;
        if self.has_entries && self.depth < Self::DEEPEST_BROKEN {
            self.new_line(out)?;
        }
        self.has_entries = true;
        out.write_all(bracket)
    }

    fn entry<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        let broken = self.depth <= Self::DEEPEST_BROKEN;
        if !first {
            out.write_all(if broken { b"," } else { b", " })?;
        }
        if broken {
            self.new_line(out)?;
        }
        self.has_entries = true;
        Ok(())
    }

    fn new_line<W: ?Sized + Write>(&self, out: &mut W) -> io::Result<()> {
        out.write_all(b"\n")?;
        for _ in 0..self.depth {
            out.write_all(b"  ")?;
        }
        Ok(())
    }
}

impl Formatter for LinePerRow {
    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.entry(out, first)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.entry(out, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        measure::value::Value,
        report::{Measures, Records, fixtures},
    };

    fn text(report: &Report) -> String {
        let mut bytes = Vec::new();
        write(report, &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    fn read_text(text: &str) -> Result<Report, ReadError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        read(file.path())
    }

    #[test]
    fn non_finite_numbers_survive_as_strings() {
        let measures = Measures {
            rel_l2: Some(Value(f64::NAN)),
            cosine: Some(Value(f64::NEG_INFINITY)),
            max_abs: Some(Value(f64::INFINITY)),
            slope: Some(Value(-0.0)),
            max_rel: Some(Value(f64::from_bits(1))),
            worst_index: Some(u64::MAX),
            ..Measures::default()
        };
        let mut record = fixtures::record("tf32", 3, "attn", "mixes", 1e-4);
        record.measures = measures;
        let report = fixtures::report(vec![record]);
        let text = text(&report);
        assert!(text.contains(r#""rel_l2": "NaN""#), "{text}");
        assert!(text.contains(r#""cosine": "-Infinity""#), "{text}");
        assert!(text.contains(r#""max_abs": "Infinity""#), "{text}");
        assert!(!text.contains("null"), "{text}");

        let back = read_text(&text).unwrap().records[0].measures.clone();
        assert!(back.rel_l2.unwrap().0.is_nan());
        assert_eq!(back.cosine, Some(Value(f64::NEG_INFINITY)));
        assert_eq!(back.max_abs, Some(Value(f64::INFINITY)));
        assert!(back.slope.unwrap().0.is_sign_negative());
        assert_eq!(back.max_rel, Some(Value(f64::from_bits(1))));
        assert_eq!(back.worst_index, Some(u64::MAX));
    }

    /// The vector [1, inf, -inf, nan] that others write as [1, null, null, null].
    #[test]
    fn the_non_finite_vector_is_not_nulled() {
        let values = [1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN].map(Value);
        let text = serde_json::to_string(&values).unwrap();
        assert_eq!(text, r#"[1.0,"Infinity","-Infinity","NaN"]"#);
        let back: [Value; 4] = serde_json::from_str(&text).unwrap();
        assert_eq!(back[..3], values[..3]);
        assert!(back[3].0.is_nan());
    }

    proptest::proptest! {
        #[test]
        fn every_number_reads_back_as_the_same_bits(bits: u64) {
            let value = f64::from_bits(bits);
            let text = serde_json::to_string(&Value(value)).unwrap();
            let back: Value = serde_json::from_str(&text).unwrap();
            assert!(back.0.to_bits() == bits || (back.0.is_nan() && value.is_nan()), "{text}");
        }
    }

    #[test]
    fn a_report_reads_back_as_it_was_and_writes_the_same_bytes() {
        let report = fixtures::mix_report();
        let first = text(&report);
        let back = read_text(&first).unwrap();
        assert_eq!(back, report);
        assert_eq!(text(&back), first);
    }

    #[test]
    fn every_record_has_a_line_of_its_own() {
        let report = fixtures::mix_report();
        let text = text(&report);
        let rows = text.lines().filter(|line| line.contains(r#""stage":"#));
        assert_eq!(rows.count(), report.records.len());
    }

    #[test]
    fn a_hostile_device_name_survives() {
        let mut report = fixtures::mix_report();
        let name = "H200\0, \"fast\"\r\nΩ card \u{1b}[31m";
        report.run.backend.device = Some(name.to_owned());
        let back = read_text(&text(&report)).unwrap();
        assert_eq!(back.run.backend.device.as_deref(), Some(name));
    }

    #[test]
    fn a_newer_layout_is_refused_in_one_sentence() {
        let newer = r#"{"schema_version": 9, "unheard_of": [1, 2]}"#;
        let message = read_text(newer).unwrap_err().to_string();
        assert!(message.contains("has report layout 9, this ulpdrift reads layout 1"));
        assert!(!message.contains('\n'));
    }

    #[test]
    fn what_is_no_report_is_refused() {
        let good = text(&fixtures::mix_report());
        let cases = [
            ("", "EOF"),
            ("[]", "expected"),
            ("{}", "missing field `schema_version`"),
            (&good[..good.len() / 2], "EOF"),
            (
                &good.replacen("\"rel_l2\"", "\"rel_l3\"", 1),
                "unknown field `rel_l3`",
            ),
            (
                &good.replacen("\"tool\"", "\"tooool\"", 1),
                "unknown field `tooool`",
            ),
            (
                &good.replacen("\"suite\"", "\"drift\": null, \"suite\"", 1),
                "drift is null in a record",
            ),
            (
                &good.replacen("\"suite\"", "\"rel_l2\": \"NaN\", \"suite\"", 1),
                "rel_l2 stands twice",
            ),
            (
                &good.replacen("\"rel_l2\": ", "\"rel_l2\": \"nan\", \"x\": ", 1),
                "\"nan\"",
            ),
        ];
        for (text, expected) in cases {
            let message = read_text(text).unwrap_err().to_string();
            assert!(
                message.contains(expected) && !message.contains('\n'),
                "{message}"
            );
        }
    }

    #[test]
    fn two_records_with_one_key_are_refused_on_both_ways_in() {
        let record = fixtures::record("tf32", 3, "attn", "mixes", 1e-4);
        let error = Records::new(vec![record.clone(), record.clone()]).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("suite=mix layer=3 site=attn depth=3 stage=mixes variant=tf32"),
            "{error}"
        );
        let text = text(&fixtures::report(vec![record]));
        let line = text
            .lines()
            .find(|line| line.contains("\"stage\""))
            .unwrap();
        let doubled = text.replace(line, &format!("{line},\n{line}"));
        let message = read_text(&doubled).unwrap_err().to_string();
        assert!(message.contains("two records have the key"), "{message}");
    }
}
