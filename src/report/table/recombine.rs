//! The table of suite recombine: a row per variant of what follows the sublayer.

use super::{
    Columns, Report, bound_cell, cell, plain_table, printable, shorten, table_width, verdict_of,
    within_6,
};
use crate::report::{
    number::{sci, sci_within, share},
    summary::{at_stage, median, suite_rows, values, variants, worst},
    wrap,
};

const SUITE: &str = "recombine";
const HEADER: [&str; 9] = [
    "variant", "median", "worst", "operand", "arith", "bound", "bf16", "changed", "verdict",
];

/// The table, if the suite ran.
pub fn render(report: &Report, width: usize) -> Option<String> {
    let names: Vec<&str> = variants(&report.records)
        .into_iter()
        .filter(|name| !suite_rows(&report.records, SUITE, name).is_empty())
        .collect();
    let sites = names
        .iter()
        .map(|name| at_stage(&suite_rows(&report.records, SUITE, name), "streams").len())
        .max()?;
    let caption = format!(
        "Recombination after the sublayer: streams before storage against fp64, rel_l2 over {sites} {}. operand, \
         arith: its two parts; bound: largest share of the a-priori bound; bf16: rel_l2 as deployed; changed: \
         share of deployed values with other bits than the variant compared with.",
        if sites == 1 { "site" } else { "sites" }
    );
    let mut table = table(report, &names, None);
    let excess = table_width(&table).saturating_sub(width);
    if excess > 0 {
        let longest = names.iter().map(|name| printable(name).chars().count());
        let room = longest.max().unwrap_or(0).saturating_sub(excess).max(8);
        table = self::table(report, &names, Some(room));
    }
    Some(format!(
        "{}\n\n{}",
        wrap(&caption, width, ""),
        table.trim_fmt()
    ))
}

fn table(report: &Report, names: &[&str], room: Option<usize>) -> Columns {
    let rows = names.iter().map(|name| {
        let shown = printable(name);
        let shown = room.map_or_else(|| shown.clone(), |room| shorten(&shown, room));
        row(report, name, shown)
    });
    plain_table(&HEADER, &[0, 8], rows)
}

fn row(report: &Report, name: &str, shown: String) -> Vec<String> {
    let rows = suite_rows(&report.records, SUITE, name);
    let (streams, deployed) = (at_stage(&rows, "streams"), at_stage(&rows, "streams_bf16"));
    let of_streams = |measure| median(values(&streams, measure));
    let as_deployed = |measure| median(values(&deployed, measure));
    let high = |measure| worst(&streams, measure).map(|high| high.value);
    let number = |value| cell(value, |v| sci_within(v, 2, 7));
    vec![
        shown,
        cell(of_streams("rel_l2"), |v| sci_within(v, 3, 7)),
        cell(high("rel_l2"), |v| sci_within(v, 3, 7)),
        number(of_streams("operand_rel_l2")),
        number(of_streams("arith_rel_l2")),
        bound_cell(high("bound_ratio"), bound),
        number(as_deployed("rel_l2")),
        cell(as_deployed("changed"), |v| within_6(sci(v, 2), v)),
        verdict_of(report, name, SUITE),
    ]
}

/// A share near 1 with the digits that tell it from 1, where they fit.
fn bound(value: f64) -> String {
    let text = share(value);
    if text.len() <= 7 {
        text
    } else {
        sci_within(value, 2, 7)
    }
}
