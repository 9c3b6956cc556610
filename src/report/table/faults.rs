//! How far known bugs are outside rounding.

use super::{cell, plain_table, printable};
use crate::report::{
    Report,
    number::{plain, sci},
    wrap,
};

/// The table, if bugs were run.
pub fn render(report: &Report, width: usize) -> Option<String> {
    let first = report.faults.first()?;
    let caption = format!(
        "Known bugs, built into {}: rel_l2 with the bug, without it, and of the variant that rounding hurts most at \
         the same place; times: the first over the last. About 1 or less: hidden by rounding there.",
        printable(&first.variant)
    );
    let header = [
        "bug", "suite", "at", "stage", "rel_l2", "without", "rounding", "times",
    ];
    let lines = report.faults.iter().map(|found| {
        vec![
            printable(&found.fault),
            printable(&found.suite),
            printable(&found.place),
            printable(&found.stage),
            sci(found.rel_l2.0, 2),
            cell(found.without.map(|value| value.0), |value| sci(value, 2)),
            sci(found.worst_rel_l2.0, 2),
            plain(found.times.0, 2),
        ]
    });
    let table = plain_table(&header, &[0, 1, 2, 3], lines);
    Some(format!(
        "{}\n\n{}",
        wrap(&caption, width, ""),
        table.trim_fmt()
    ))
}
