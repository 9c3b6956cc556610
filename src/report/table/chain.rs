//! How the error of each variant's streams goes with depth.

use super::{
    ABSENT, Columns, NARROW, cell, plain_table, printable, shorten,
    sparkline::{Scale, resampled},
    table_width,
};
use crate::report::{
    Growth, Record, Report,
    number::sci,
    style,
    summary::{at_stage, suite_rows, variants},
    wrap,
};

/// Depths that are shown if the model has them, besides the last.
const DEPTHS: [u32; 4] = [1, 2, 10, 21];

/// More of them, where a window has room: the most that fit.
const MORE_DEPTHS: [&[u32]; 3] = [
    &[1, 2, 3, 4, 5, 6, 8, 10, 13, 15, 17, 21, 26, 31, 37, 43, 50],
    &[1, 2, 3, 4, 6, 8, 10, 13, 17, 21, 26, 31],
    &[1, 2, 4, 7, 10, 15, 21, 31],
];

/// More layers than any model has: blocks for each of what somebody has written into a report would fill the memory.
const MOST_LAYERS: u32 = 10_000;

/// Fewer layers than these are few to forecast from.
const FEW: u32 = 20;

/// The table, if the suite ran, and a line of blocks per variant.
pub fn render(report: &Report, width: usize) -> Option<String> {
    let walks = walks(report);
    let key = &walks.first()?.rows.first()?.key;
    let text = |field: &Option<String>| printable(field.as_deref().unwrap_or(ABSENT));
    let caption = format!(
        "Depth: rel_l2 of the streams after so many layers; residual {}, layer-io {},\nsublayer {}, variants on {}",
        text(&key.residual),
        text(&key.layer_io),
        text(&key.sublayer),
        text(&key.sites_on)
    );
    let table = table(&walks, width)?;
    let blocks = blocks(report, &walks, width);
    let parts = [Some(caption), Some(table.trim_fmt()), blocks];
    Some(parts.into_iter().flatten().collect::<Vec<_>>().join("\n\n"))
}

/// What one variant's chain left behind at each layer's end.
struct Walk<'a> {
    name: String,
    /// All of its rows.
    rows: Vec<&'a Record>,
    /// Of the two rows of a layer, the one with both sites behind it.
    streams: Vec<&'a Record>,
}

impl Walk<'_> {
    fn at(&self, depth: u32) -> Option<&Record> {
        let is_it = |row: &&&Record| row.key.depth == Some(depth);
        self.streams.iter().rfind(is_it).copied()
    }

    fn measured(&self, depth: u32, measure: &str) -> Option<f64> {
        let row = self.at(depth)?;
        row.measures.value(measure)
    }
}

/// The chains, in the order of their rows; of several seeds the streams of the run's own.
fn walks(report: &Report) -> Vec<Walk<'_>> {
    let walk = |name: &str| {
        let rows = suite_rows(&report.records, "chain", name);
        let mut streams = at_stage(&rows, "streams");
        streams.retain(|row| {
            row.key.seed == report.run.seed && row.key.site.as_deref() == Some("ffn")
        });
        (!rows.is_empty()).then(|| Walk {
            name: name.to_owned(),
            rows,
            streams,
        })
    };
    variants(&report.records)
        .into_iter()
        .filter_map(walk)
        .collect()
}

/// The last depth that any chain reached.
fn deepest(walks: &[Walk<'_>]) -> Option<u32> {
    let rows = walks.iter().flat_map(|walk| &walk.rows);
    rows.filter_map(|row| row.key.depth).max()
}

/// As many depths as fit; names are shortened where not even the fewest do.
fn table(walks: &[Walk<'_>], width: usize) -> Option<Columns> {
    let last = deepest(walks)?;
    if width > NARROW {
        for depths in MORE_DEPTHS {
            let whole = of_depths(walks, depths, last, usize::MAX);
            if table_width(&whole) <= width {
                return Some(whole);
            }
        }
    }
    let whole = of_depths(walks, &DEPTHS, last, usize::MAX);
    let over = table_width(&whole).saturating_sub(width);
    let names = walks
        .iter()
        .map(|walk| printable(&walk.name).chars().count());
    let longest = names.max()?;
    Some(match over {
        0 => whole,
        over => of_depths(walks, &DEPTHS, last, longest.saturating_sub(over).max(1)),
    })
}

fn of_depths(walks: &[Walk<'_>], depths: &[u32], last: u32, room: usize) -> Columns {
    let mut depths: Vec<u32> = depths
        .iter()
        .copied()
        .filter(|&depth| depth < last)
        .collect();
    depths.push(last);
    let mut header = vec!["variant".to_owned()];
    header.extend(depths.iter().map(u32::to_string));
    header.extend(["gap", "against"].map(str::to_owned));
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let line = |walk: &Walk<'_>| {
        let number = |depth, measure| cell(walk.measured(depth, measure), |value| sci(value, 2));
        let mut line = vec![shorten(&printable(&walk.name), room)];
        line.extend(depths.iter().map(|&depth| number(depth, "rel_l2")));
        line.extend(["cosine_gap", "against_rel_l2"].map(|measure| number(last, measure)));
        line
    };
    plain_table(&header, &[0], walks.iter().map(line))
}

/// A line per variant: its error at the first and the last layer, and all of them between these as blocks.
fn blocks(report: &Report, walks: &[Walk<'_>], width: usize) -> Option<String> {
    let last = deepest(walks)?;
    let rows = walks.iter().flat_map(|walk| &walk.streams);
    let first = rows.filter_map(|row| row.key.depth).min()?;
    let depths = first..=last.min(first.saturating_add(MOST_LAYERS));
    let value = |walk: &Walk<'_>, depth| {
        let ended = ends_at(report, &walk.name, depth).then_some(f64::NAN);
        walk.measured(depth, "rel_l2").or(ended)
    };
    let curves: Vec<Vec<Option<f64>>> = walks
        .iter()
        .map(|walk| depths.clone().map(|depth| value(walk, depth)).collect())
        .collect();
    let scale = Scale::over(curves.iter().flatten().copied().flatten())?;
    let end = |curve: &[Option<f64>], index: usize| {
        let shown = match curve[index] {
            None => ABSENT.to_owned(),
            Some(value) if value.is_finite() => sci(value, 2),
            Some(_) => style::failure("×"),
        };
        format!("{}: {shown}", first as usize + index)
    };
    let ends: Vec<[String; 2]> = curves
        .iter()
        .map(|curve| {
            let there = curve.iter().rposition(Option::is_some).unwrap_or(0);
            [end(curve, 0), end(curve, there)]
        })
        .collect();
    let widest = |texts: &mut dyn Iterator<Item = &String>| {
        texts.map(|text| style::width(text)).max().unwrap_or(0)
    };
    let around = widest(&mut ends.iter().map(|[first, _]| first))
        + widest(&mut ends.iter().map(|[_, last]| last))
        + 3;
    // Names give way before the curve has fewer blocks than this.
    const LEAST: usize = 16;
    let names: Vec<String> = walks.iter().map(|walk| printable(&walk.name)).collect();
    let longest = widest(&mut names.iter()).min(width.saturating_sub(around + LEAST).max(8));
    let room = width.saturating_sub(around + longest).max(1);
    let mut each = 1;
    let lines = walks
        .iter()
        .zip(&curves)
        .zip(ends)
        .map(|((walk, curve), [from, to])| {
            let (values, layers) = resampled(curve, room);
            each = layers;
            let name = shorten(&printable(&walk.name), longest);
            vec![name, from, scale.line(&values), to]
        });
    let table = plain_table(&[], &[0, 2, 3], lines).trim_fmt();
    let block = match each {
        1 => "a block is a layer".to_owned(),
        each => format!("a block is the largest of {each} layers"),
    };
    let caption = format!(
        "By layer, log scale ▁ {} to █ {}; {block}",
        sci(scale.low, 2),
        sci(scale.high, 2)
    );
    Some(format!("{}\n\n{table}", wrap(&caption, width, "")))
}

/// Whether a chain ended in the layer that would have completed `depth`.
fn ends_at(report: &Report, variant: &str, depth: u32) -> bool {
    let layer = format!("L{}.", depth.saturating_sub(1));
    let mut ends = report.non_finite.iter();
    ends.any(|at| at.variant == variant && at.place.starts_with(&layer))
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
