//! The table with a row per variant: its error and, where it was timed, its time beside it.
//!
//! Where there are times they take the place of the worst site, which the verdict names, and of the slope.

use comfy_table::Table;

use super::{
    ABSENT, Record, Report, cell, plain_table, printable, ratio, shorten, table_width, verdict_of,
    within_6,
};
use crate::report::{
    number::{plain, sci_within},
    summary::{at_stage, mean, median, mix_rows, values, worst},
    wrap,
};

/// Significant digits of the two leading columns; the fewest are the last resort.
#[derive(Clone, Copy)]
struct Digits {
    median: usize,
    worst: usize,
}

const DIGITS: [Digits; 3] = [
    Digits {
        median: 3,
        worst: 3,
    },
    Digits {
        median: 3,
        worst: 2,
    },
    Digits {
        median: 2,
        worst: 2,
    },
];

const ERRORS: [&str; 10] = [
    "variant", "median", "worst", "layer", "operand", "arith", "slope", "y_bf16", "bound",
    "verdict",
];
const WITH_TIMES: [&str; 10] = [
    "variant", "median", "worst", "operand", "arith", "y_bf16", "bound", "us", "GB/s", "verdict",
];

/// The table and what its columns are.
pub(super) fn render(report: &Report, names: &[&str], width: usize) -> String {
    let header = match report.timing {
        None => ERRORS,
        Some(_) => WITH_TIMES,
    };
    let mut table = Table::new();
    for digits in DIGITS {
        let rows = names.iter().map(|name| row(report, name, header, digits));
        table = plain_table(&header, &[0, 9], rows);
        if table_width(&table) <= width {
            break;
        }
    }
    let excess = table_width(&table).saturating_sub(width);
    if excess > 0 {
        let longest = names.iter().map(|name| printable(name).chars().count());
        let room = longest.max().unwrap_or(0).saturating_sub(excess).max(8);
        let rows = names.iter().map(|name| {
            let mut row = row(report, name, header, DIGITS[2]);
            row[0] = shorten(&row[0], room);
            row
        });
        table = plain_table(&header, &[0, 9], rows);
    }
    let caption = caption(report, names);
    format!("{}\n\n{}", wrap(&caption, width, ""), table.trim_fmt())
}

fn caption(report: &Report, names: &[&str]) -> String {
    let sites = names
        .iter()
        .map(|name| at_stage(&mix_rows(&report.records, name), "mixes").len())
        .max()
        .unwrap_or(0);
    let mut caption = format!(
        "Stage mixes against fp64, rel_l2 over {sites} {}. operand, arith: its two parts; y_bf16: \
         rel_l2 of the layer input; bound: largest share of the a-priori bound.",
        if sites == 1 { "site" } else { "sites" }
    );
    if let Some(timing) = &report.timing {
        let copy = plain(timing.copy_gb_per_s.0, 3);
        caption.push_str(&format!(
            " us, GB/s: the projection on the device, from x and the fp32 weight; a copy runs at {copy} GB/s."
        ));
    }
    caption
}

fn row(report: &Report, name: &str, header: [&str; 10], digits: Digits) -> Vec<String> {
    let rows = mix_rows(&report.records, name);
    let mixes = at_stage(&rows, "mixes");
    let median_of = |rows: &[&Record], measure| median(values(rows, measure));
    let high = worst(&mixes, "rel_l2");
    let time = |measure| median_of(&at_stage(&rows, "dot"), measure);
    let column = |&column: &&str| match column {
        "median" => cell(median_of(&mixes, "rel_l2"), |v| {
            sci_within(v, digits.median, 7)
        }),
        "worst" => cell(high.map(|high| high.value), |v| {
            sci_within(v, digits.worst, 7)
        }),
        "layer" => high.map_or_else(
            || ABSENT.to_owned(),
            |high| high.record.key.place().trim_start_matches('L').to_owned(),
        ),
        "operand" => cell(median_of(&mixes, "operand_rel_l2"), |v| sci_within(v, 2, 7)),
        "arith" => cell(median_of(&mixes, "arith_rel_l2"), |v| sci_within(v, 2, 6)),
        "slope" => cell(mean(&values(&mixes, "slope")), |v| sci_within(v, 2, 7)),
        "y_bf16" => cell(median_of(&at_stage(&rows, "y_bf16"), "rel_l2"), |v| {
            sci_within(v, 2, 6)
        }),
        "bound" => cell(worst(&rows, "bound_ratio").map(|high| high.value), ratio),
        "us" => cell(time("time_us"), |v| within_6(plain(v, 3), v)),
        "GB/s" => cell(time("gb_per_s"), |v| within_6(plain(v, 3), v)),
        "verdict" => verdict_of(report, name, "mix"),
        _ => printable(name),
    };
    header.iter().map(column).collect()
}
