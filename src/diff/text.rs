//! A comparison as text for a terminal: a pure function of it and a width.

use super::{Change, Changed, Diff, OfStage, OfVariant};
use crate::report::{
    Class, Key, Report,
    field::Number,
    number::{exact, plain, sci},
    printable,
    table::{ABSENT, plain_table, shorten, table_width},
    wrap,
};

/// How it is to look.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Columns of the terminal.
    pub width: usize,
    /// Every row with every measure that changed, and the names of rows that only one report has.
    pub all: bool,
}

/// A report and what it is called.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// As named on the command line.
    pub name: &'a str,
    /// The report.
    pub report: &'a Report,
}

/// Rows of a stage that are shown unless all are.
const SHOWN: usize = 3;

/// The whole text, with a final newline.
#[must_use]
pub fn render(diff: &Diff<'_>, [a, b]: [Side<'_>; 2], layout: Layout) -> String {
    let width = layout.width;
    let sides = [("A", a), ("B", b)].map(|(letter, side)| title(letter, side, width));
    let mut parts = vec![sides.join("\n"), header(diff, width), counts(diff, layout)];
    for variant in &diff.variants {
        parts.push(of_variant(variant, layout));
    }
    if layout.all {
        for (letter, keys) in [("A", &diff.only_a), ("B", &diff.only_b)] {
            if !keys.is_empty() {
                let rows = keys
                    .iter()
                    .map(|key| wrap(&format!("  {key}"), width, "    "));
                let rows: Vec<String> = rows.collect();
                parts.push(format!("only in {letter}\n{}", rows.join("\n")));
            }
        }
    }
    parts.join("\n\n") + "\n"
}

fn title(letter: &str, side: Side<'_>, width: usize) -> String {
    let run = &side.report.run;
    let part = side.report.part.as_ref();
    let part = part.map(|part| format!(" · {}", part.headline()));
    let line = format!(
        "{letter}: {}: {} weights{} · {} {} · {} rows",
        side.name,
        run.checkpoint.kind.shout(),
        part.unwrap_or_default(),
        run.backend.name,
        run.backend.arch,
        side.report.records.len()
    );
    wrap(&printable(&line), width, "   ")
}

/// What differs in what was run.
fn header(diff: &Diff<'_>, width: usize) -> String {
    let mut lines = Vec::new();
    for fact in &diff.header {
        lines.push(format!("{}: {} in A, {} in B", fact.name, fact.a, fact.b));
    }
    if !diff.recipes.is_empty() {
        let names = diff.recipes.join(", ");
        lines.push(format!("recipes not the same in A and B: {names}"));
    }
    if lines.is_empty() {
        lines.push(
            "Both ran the same recipes on the same weights, with the same backend, arch, device, seed, inputs, tokens \
             and version of the tool."
                .to_owned(),
        );
    } else {
        lines.insert(0, "What differs in what was run:".to_owned());
    }
    if !diff.without.is_empty() {
        let fields = diff.without.join(", ");
        lines.push(format!("Rows are paired whatever their {fields}."));
    }
    let lines = lines.iter().map(|line| wrap(&printable(line), width, "  "));
    lines.collect::<Vec<_>>().join("\n")
}

/// How many rows are alike, changed, or in one report only.
fn counts(diff: &Diff<'_>, layout: Layout) -> String {
    let changed = diff.changed();
    let mut text = if diff.is_empty() {
        format!(
            "No difference: {} are alike in every measure.",
            rows(diff.compared)
        )
    } else if diff.compared == 0 {
        "No row of one is a row of the other.".to_owned()
    } else if changed == 0 {
        format!(
            "No difference in the numbers: {} that both have are alike in every measure.",
            rows(diff.compared)
        )
    } else {
        format!(
            "Of {} that both have, {changed} changed.",
            rows(diff.compared)
        )
    };
    let (only_a, only_b) = (diff.only_a.len(), diff.only_b.len());
    if only_a + only_b > 0 {
        text.push_str(&format!(" {only_a} only in A, {only_b} only in B"));
        text.push_str(if layout.all {
            "."
        } else {
            " (--all names them)."
        });
    }
    wrap(&text, layout.width, "")
}

fn rows(count: usize) -> String {
    match count {
        1 => "1 row".to_owned(),
        count => format!("{count} rows"),
    }
}

fn of_variant(variant: &OfVariant<'_>, layout: Layout) -> String {
    let word = |class: Option<Class>| class.map_or("without a verdict", Class::word);
    let title = match variant.verdict {
        Some([a, b]) => format!("{}: {} in A, {} in B", variant.title, word(a), word(b)),
        None => variant.title.clone(),
    };
    let title = wrap(&printable(&title), layout.width, "  ");
    if variant.stages.is_empty() {
        return title;
    }
    format!("{title}\n\n{}", table(&variant.stages, layout))
}

const HEADER: [&str; 6] = ["stage", "row", "measure", "A", "B", "B/A"];
/// The column that gives way where the window is narrow.
const ROW: usize = 1;

fn table(stages: &[OfStage<'_>], layout: Layout) -> String {
    let mut lines: Vec<Vec<String>> = stages
        .iter()
        .flat_map(|stage| of_stage(stage, layout))
        .collect();
    let build = |lines: &[Vec<String>]| plain_table(&HEADER, &[0, 1, 2], lines.iter().cloned());
    let excess = table_width(&build(&lines)).saturating_sub(layout.width);
    if excess > 0 {
        let longest = lines.iter().map(|line| line[ROW].chars().count());
        let room = longest.max().unwrap_or(0).saturating_sub(excess).max(8);
        for line in &mut lines {
            line[ROW] = shorten(&line[ROW], room);
        }
    }
    build(&lines).trim_fmt()
}

/// The lines of a stage; its name stands in the first.
fn of_stage(stage: &OfStage<'_>, layout: Layout) -> Vec<Vec<String>> {
    let shown = match layout.all {
        true => stage.rows.len(),
        false => SHOWN.min(stage.rows.len()),
    };
    let mut lines = Vec::new();
    for row in &stage.rows[..shown] {
        let changes = match layout.all {
            true => row.changes.clone(),
            false => vec![row.lead()],
        };
        for (index, change) in changes.iter().enumerate() {
            let place = match index {
                0 => place(row, &stage.telling),
                _ => String::new(),
            };
            lines.push(line(place, change));
        }
    }
    let left = stage.rows.len() - shown;
    if left > 0 {
        let more = format!("and {} more", rows(left));
        lines.push(vec![String::new(), more]);
    }
    if let Some(first) = lines.first_mut() {
        first[0] = printable(&[stage.suite, stage.stage].join(" "))
            .trim_end()
            .to_owned();
    }
    for line in &mut lines {
        line.resize(HEADER.len(), String::new());
    }
    lines
}

/// Where the row is, in the words that `explain --row` takes.
fn place(row: &Changed<'_>, telling: &[&'static str]) -> String {
    let key: &Key = row.key;
    let fields = telling
        .iter()
        .filter_map(|field| Some(format!("{field}={}", key.get(field)?)));
    let words: Vec<String> = [key.place()]
        .into_iter()
        .filter(|place| !place.is_empty())
        .chain(fields)
        .collect();
    match words.as_slice() {
        [] => ABSENT.to_owned(),
        words => printable(&words.join(" ")),
    }
}

fn line(place: String, change: &Change) -> Vec<String> {
    let [a, b] = told_apart(change.a, change.b);
    let quotient = match (change.a, change.b) {
        (Some(Number::Float(a)), Some(Number::Float(b))) => b / a,
        _ => f64::NAN,
    };
    let quotient = match quotient.is_finite() {
        true => plain(quotient, 3),
        false => ABSENT.to_owned(),
    };
    vec![
        String::new(),
        place,
        change.measure.to_owned(),
        a,
        b,
        quotient,
    ]
}

/// Both numbers with three digits, or with as many as it takes to see that they differ.
fn told_apart(a: Option<Number>, b: Option<Number>) -> [String; 2] {
    let text = |number: Option<Number>, digits: usize| match number {
        None => ABSENT.to_owned(),
        Some(Number::Count(count)) => count.to_string(),
        Some(Number::Float(value)) => sci(value, digits),
    };
    let shortest = (3..=8).find(|&digits| text(a, digits) != text(b, digits));
    match shortest {
        Some(digits) => [a, b].map(|number| text(number, digits)),
        None => [a, b].map(|number| number.map_or(ABSENT.to_owned(), |n| exact(n.as_f64()))),
    }
}
