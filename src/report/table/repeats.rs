//! Whether further runs of the same cases gave the same bits.

use super::{Record, Report, printable, style};
use crate::report::summary::variants;

/// A sentence per variant of which they did not, or that all did; nothing where cases ran once.
pub(super) fn notes(report: &Report) -> Vec<String> {
    let repeated = |record: &&Record| record.measures.repeat_changed.is_some();
    let rows: Vec<&Record> = report.records.iter().filter(repeated).collect();
    let changed: Vec<String> = variants(&report.records)
        .into_iter()
        .filter_map(|name| of_variant(&rows, name))
        .collect();
    match (rows.len(), changed.is_empty()) {
        (0, _) => Vec::new(),
        (rows, true) => vec![format!(
            "Repeated: the same bits every time in {rows} rows."
        )],
        (_, false) => changed,
    }
}

fn of_variant(rows: &[&Record], name: &str) -> Option<String> {
    let count = |row: &&Record| row.measures.repeat_changed.unwrap_or(0);
    let own = rows.iter().copied().filter(|row| row.key.variant == name);
    let changed: Vec<&Record> = own.clone().filter(|row| count(row) > 0).collect();
    let first = changed.first()?;
    Some(format!(
        "{}: repeated runs {} in {} of {} rows, of {} elements in {}.",
        printable(name),
        style::caution("change bits"),
        changed.len(),
        own.count(),
        count(first),
        first.key.words()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures::{record, report};

    fn noted(changed: &[Option<u64>]) -> Vec<String> {
        let row = |(layer, changed): (usize, &Option<u64>)| {
            let mut row = record("tf32", layer as u32, "attn", "dot", 1e-4);
            row.measures.repeat_changed = *changed;
            row
        };
        let notes = notes(&report(changed.iter().enumerate().map(row).collect()));
        notes.iter().map(|note| style::plain(note)).collect()
    }

    #[test]
    fn what_changes_is_said_by_variant() {
        assert!(noted(&[None, None]).is_empty());
        assert_eq!(
            noted(&[Some(0), Some(0)]),
            ["Repeated: the same bits every time in 2 rows."]
        );
        assert_eq!(
            noted(&[Some(0), Some(3), None]),
            [
                "tf32: repeated runs change bits in 1 of 2 rows, of 3 elements in mix L1.attn dot tf32."
            ]
        );
    }
}
