//! The table with a row per variant: its error and, where it was timed, its time beside it.
//!
//! Where there are times they take the place of the worst site, which the verdict names, and of the slope. A wider window
//! has more columns, as many of [`MORE`] as fit.

use super::{
    ABSENT, Columns, NARROW, Record, Report, bound_cell, cell, plain_table, printable, ratio,
    shorten, table_width, verdict_of, within_6,
};
use crate::report::{
    number::{plain, sci, sci_within},
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

/// What stands before the bound where a window has room for it, and what it is.
const MORE: [(&str, &str); 8] = [
    ("pre", "rel_l2 of the collapse's gates"),
    ("post", "of the sublayer's gates"),
    ("comb", "of the combination matrix"),
    ("y", "of the layer input before rounding"),
    ("gap", "largest cosine gap of the layer input"),
    (
        "changed",
        "share of its values with other bits than the variant compared with",
    ),
    ("token", "rel_l2 of the worst token's mixes"),
    ("ulp", "the largest error of the mixes in ulps"),
];

/// The table and what its columns are.
pub(super) fn render(report: &Report, names: &[&str], width: usize) -> String {
    let (table, more) = table(report, names, width);
    let caption = caption(report, names, more);
    format!("{}\n\n{}", wrap(&caption, width, ""), table.trim_fmt())
}

/// The table, and how many of [`MORE`] it has.
fn table(report: &Report, names: &[&str], width: usize) -> (Columns, usize) {
    let of = |header: &[&str], digits| {
        let rows = names.iter().map(|name| row(report, name, header, digits));
        plain_table(header, &[0, header.len() - 1], rows)
    };
    if width > NARROW {
        for more in (1..=MORE.len()).rev() {
            let wide = of(&header(report, more), DIGITS[0]);
            if table_width(&wide) <= width {
                return (wide, more);
            }
        }
    }
    let header = header(report, 0);
    for digits in DIGITS {
        let table = of(&header, digits);
        if table_width(&table) <= width {
            return (table, 0);
        }
    }
    let excess = table_width(&of(&header, DIGITS[2])).saturating_sub(width);
    let longest = names.iter().map(|name| printable(name).chars().count());
    let room = longest.max().unwrap_or(0).saturating_sub(excess).max(8);
    let rows = names.iter().map(|name| {
        let mut row = row(report, name, &header, DIGITS[2]);
        row[0] = shorten(&row[0], room);
        row
    });
    (plain_table(&header, &[0, 9], rows), 0)
}

fn header(report: &Report, more: usize) -> Vec<&'static str> {
    let mut header = match report.timing {
        None => ERRORS,
        Some(_) => WITH_TIMES,
    }
    .to_vec();
    let bound = header.iter().position(|name| *name == "bound");
    let at = bound.unwrap_or(header.len());
    header.splice(at..at, MORE[..more].iter().map(|(name, _)| *name));
    header
}

fn caption(report: &Report, names: &[&str], more: usize) -> String {
    let sites = names
        .iter()
        .map(|name| at_stage(&mix_rows(&report.records, name), "mixes").len())
        .max()
        .unwrap_or(0);
    let mut caption = format!(
        "Stage mixes against fp64, rel_l2 over {sites} {}. operand, arith: its two parts; y_bf16: \
         rel_l2 of the layer input; {}bound: largest share of the a-priori bound.",
        if sites == 1 { "site" } else { "sites" },
        MORE[..more]
            .iter()
            .map(|(name, what)| format!("{name}: {what}; "))
            .collect::<String>()
    );
    if let Some(timing) = &report.timing {
        let copy = plain(timing.copy_gb_per_s.0, 3);
        caption.push_str(&format!(
            " us, GB/s: the projection on the device, from x and the fp32 weight; a copy runs at {copy} GB/s."
        ));
    }
    caption
}

fn row(report: &Report, name: &str, header: &[&str], digits: Digits) -> Vec<String> {
    let rows = mix_rows(&report.records, name);
    let mixes = at_stage(&rows, "mixes");
    let median_of = |rows: &[&Record], measure| median(values(rows, measure));
    let high = worst(&mixes, "rel_l2");
    let of_worst = |rows: &[&Record], measure| worst(rows, measure).map(|high| high.value);
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
            |high| printable(high.record.key.place().trim_start_matches('L')),
        ),
        "operand" => cell(median_of(&mixes, "operand_rel_l2"), |v| sci_within(v, 2, 7)),
        "arith" => cell(median_of(&mixes, "arith_rel_l2"), |v| sci_within(v, 2, 6)),
        "slope" => cell(mean(&values(&mixes, "slope")), |v| sci_within(v, 2, 7)),
        "y_bf16" => cell(median_of(&at_stage(&rows, "y_bf16"), "rel_l2"), |v| {
            sci_within(v, 2, 6)
        }),
        "pre" | "post" | "comb" | "y" => cell(median_of(&at_stage(&rows, column), "rel_l2"), |v| {
            sci_within(v, 2, 7)
        }),
        "gap" => cell(of_worst(&at_stage(&rows, "y_bf16"), "cosine_gap"), |v| {
            sci_within(v, 2, 7)
        }),
        "changed" => cell(median_of(&at_stage(&rows, "y_bf16"), "changed"), |v| {
            within_6(sci(v, 2), v)
        }),
        "token" => cell(of_worst(&mixes, "token_rel_l2_max"), |v| {
            sci_within(v, 2, 7)
        }),
        "ulp" => cell(of_worst(&mixes, "ulp_max"), |v| within_6(plain(v, 3), v)),
        "bound" => bound_cell(of_worst(&rows, "bound_ratio"), ratio),
        "us" => cell(time("time_us"), |v| within_6(plain(v, 3), v)),
        "GB/s" => cell(time("gb_per_s"), |v| within_6(plain(v, 3), v)),
        "verdict" => verdict_of(report, name, "mix"),
        _ => printable(name),
    };
    header.iter().map(column).collect()
}
