//! How the error of each variant's streams goes with depth.

use super::{ABSENT, cell, plain_table, printable, shorten, table_width};
use crate::report::{
    Growth, Record, Report,
    number::sci,
    summary::{at_stage, suite_rows, variants},
};

/// Depths that are shown if the model has them, besides the last.
const DEPTHS: [u32; 4] = [1, 2, 10, 21];

/// Fewer layers than these are few to forecast from.
const FEW: u32 = 20;

/// The table, if the suite ran.
pub fn render(report: &Report, width: usize) -> Option<String> {
    let names: Vec<&str> = variants(&report.records)
        .into_iter()
        .filter(|name| !suite_rows(&report.records, "chain", name).is_empty())
        .collect();
    let first = suite_rows(&report.records, "chain", names.first()?);
    let key = &first.first()?.key;
    let text = |field: &Option<String>| field.clone().unwrap_or_else(|| ABSENT.to_owned());
    let caption = format!(
        "Depth: rel_l2 of the streams after so many layers; residual {}, layer-io {},\nsublayer {}, variants on {}",
        text(&key.residual),
        text(&key.layer_io),
        text(&key.sublayer),
        text(&key.sites_on)
    );
    let last = first.iter().filter_map(|record| record.key.depth).max()?;
    let mut depths: Vec<u32> = DEPTHS.into_iter().filter(|&depth| depth < last).collect();
    depths.push(last);
    let mut header = vec!["variant".to_owned()];
    header.extend(depths.iter().map(u32::to_string));
    header.extend(["gap", "against"].map(str::to_owned));
    let table = |room: Option<usize>| {
        let lines = names.iter().map(|name| {
            let name = printable(name);
            let shown = room.map_or_else(|| name.clone(), |room| shorten(&name, room));
            let mut rows = suite_rows(&report.records, "chain", &name);
            rows.retain(|row| row.key.seed == report.run.seed);
            line(&rows, shown, &depths)
        });
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        plain_table(&header, &[0], lines)
    };
    let whole = table(None);
    let over = table_width(&whole).saturating_sub(width);
    let longest = names.iter().map(|name| name.chars().count()).max()?;
    let fitted = if over == 0 {
        whole
    } else {
        table(Some(longest.saturating_sub(over).max(1)))
    };
    Some(format!("{caption}\n\n{}", fitted.trim_fmt()))
}

/// What a deeper model can expect, as a sentence.
pub fn forecast(growth: &Growth) -> String {
    let mut text = format!(
        "{}: {} over {} layers",
        growth.variant,
        growth.laws.join("; "),
        growth.fitted
    );
    let held_out: Vec<String> = growth
        .held_out
        .iter()
        .map(|held_out| format!("{} {}", held_out.law, sci(held_out.error.0, 2)))
        .collect();
    if !held_out.is_empty() {
        text.push_str(&format!(" (held out: {})", held_out.join(", ")));
    }
    if let (Some(low), Some(median), Some(high)) = (growth.low, growth.median, growth.high) {
        text.push_str(&format!(
            "; after {} layers {} expected",
            growth.depth,
            sci(median.0, 2)
        ));
        if growth.laws.len() > 1 {
            text.push_str(&format!(
                " ({} to {} over {} seeds)",
                sci(low.0, 2),
                sci(high.0, 2),
                growth.laws.len()
            ));
        }
    }
    if growth.fitted < FEW && growth.median.is_some() {
        text.push_str(", a guess from so few layers");
    }
    if let Some(measured) = growth.measured {
        text.push_str(&format!(", {} measured", sci(measured.0, 2)));
    }
    text + "."
}

fn line(rows: &[&Record], name: String, depths: &[u32]) -> Vec<String> {
    // Of the two rows of a depth, the one with both sites behind it.
    let streams = at_stage(rows, "streams");
    let at = |depth: &u32| {
        streams
            .iter()
            .rfind(|row| row.key.depth == Some(*depth) && row.key.site.as_deref() == Some("ffn"))
    };
    let get = |row: Option<&&Record>, measure| {
        row.and_then(|row| row.measures.get(measure))
            .map(|number| number.as_f64())
    };
    let mut line = vec![name];
    line.extend(
        depths
            .iter()
            .map(|depth| cell(get(at(depth), "rel_l2"), |value| sci(value, 2))),
    );
    let last = depths.last().and_then(at);
    line.push(cell(get(last, "cosine_gap"), |value| sci(value, 2)));
    line.push(cell(get(last, "against_rel_l2"), |value| sci(value, 2)));
    line
}
