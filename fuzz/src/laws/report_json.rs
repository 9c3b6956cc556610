//! A report, read back by every command that takes one.

use std::path::Path;

use ulpdrift::{
    cli,
    diff::{
        diff,
        text::{Layout, Side, render},
    },
    explain::{self, Paragraph},
    gate::{self, GateError, Problem, Thresholds, init},
    job::join::{Source, join},
    report::{Key, Measures, Report, csv, html, json, junit, markdown, table},
    verdict::{self, VerdictLimits},
};

use super::{
    Outcome,
    refusal::{painted_lines, refused},
    sometimes,
};

const PATH: &str = "report.json";
/// The width of a narrow terminal, and of a wide one.
const WIDTHS: [usize; 2] = [80, 200];

/// A report that is taken is written again as it is, shown in every format, and equal to itself.
pub fn report_json(text: &[u8]) -> Outcome {
    let report = match json::parse(text, Path::new(PATH)) {
        Ok(report) => report,
        Err(error) => return refused(error),
    };
    reads_back(&report);
    is_joined(&report);
    // All of it costs fifty times as much as reading.
    let looks: [fn(&Report); 4] = [is_told, is_written, is_compared, is_gated];
    for (number, look) in looks.iter().enumerate() {
        if sometimes([text, &[number as u8]].concat(), 16) {
            look(&report);
        }
    }
    Outcome::Accepted
}

fn written(report: &Report) -> Vec<u8> {
    let mut bytes = Vec::new();
    json::write(report, &mut bytes).expect("memory takes it");
    bytes
}

/// What was written reads back to the same thing; NaN, which equals nothing, is compared as text.
fn reads_back(report: &Report) {
    let first = written(report);
    let back = json::parse(&first, Path::new(PATH)).expect("what was written can be read");
    assert!(written(&back) == first, "another text");
    assert_eq!(format!("{back:?}"), format!("{report:?}"));
}

/// A part of a run makes a whole one, if it has all its cases and no other part has any of them.
fn is_joined(report: &Report) {
    let Some(part) = &report.part else {
        return;
    };
    let limits = VerdictLimits::default();
    let source = || Source {
        name: PATH.to_owned(),
        report: report.clone(),
    };
    match join(vec![source()], &limits) {
        Ok(whole) => {
            assert!(whole.part.is_none());
            assert_eq!(whole.records.len(), report.records.len(), "a row is lost");
            reads_back(&whole);
        }
        Err(error) => drop(refused(error)),
    }
    match join(vec![source(), source()], &limits) {
        Ok(_) => assert!(part.finished.is_empty(), "a case counts twice"),
        Err(error) => drop(refused(error)),
    }
}

/// The formats for a terminal, where nothing may drive it.
fn is_told(report: &Report) {
    for width in WIDTHS {
        for verbose in [false, true] {
            let layout = table::Layout {
                width,
                verbose,
                colour: false,
            };
            painted_lines(&table::render(report, layout));
        }
    }
    let first = report.records.first().map(|record| row(&record.key));
    let rows = first.map(|conditions| explain::rows(report, &conditions));
    let rows = match rows {
        None => Vec::new(),
        Some(Ok(blocks)) => blocks,
        Some(Err(error)) => {
            refused(error);
            Vec::new()
        }
    };
    for block in explain::overview(report).iter().chain(&rows) {
        assert!(!block.title.is_empty());
        for paragraph in &block.paragraphs {
            let (Paragraph::Text(said) | Paragraph::Command(said)) = paragraph;
            assert!(!said.is_empty());
        }
    }
}

/// The conditions of a row, as `--row` takes them.
fn row(key: &Key) -> Vec<String> {
    let fields = Key::NAMES.iter().filter_map(|name| {
        let text = key.get(name)?;
        Some(format!("{name}={text}"))
    });
    fields.collect()
}

/// The formats for files.
fn is_written(report: &Report) {
    let page = html::render(report);
    assert_eq!(page.matches("<script").count(), 1, "a script not ours");
    assert!(page.ends_with("</html>\n"));
    assert!(!markdown::render(report).is_empty());

    let mut bytes = Vec::new();
    junit::write(report, &mut bytes).expect("memory takes it");
    let xml = String::from_utf8(bytes).expect("XML is text");
    let is_legal =
        |c: char| matches!(c, '\t' | '\n' | '\r' | ' '..) && !matches!(c, '\u{fffe}' | '\u{ffff}');
    assert!(xml.chars().all(is_legal), "a character XML does not have");

    let mut bytes = Vec::new();
    csv::write(&report.records, &mut bytes).expect("memory takes it");
    let mut reader = ::csv::Reader::from_reader(bytes.as_slice());
    let columns = Key::NAMES.len() + Measures::NAMES.len();
    assert_eq!(reader.headers().expect("a header").len(), columns);
    // A reader refuses rows of other lengths.
    let rows = reader
        .records()
        .map(|row| row.expect("a row of all columns"));
    assert_eq!(rows.count(), report.records.len());
}

/// A report beside itself has all its rows, and none that changed.
fn is_compared(report: &Report) {
    let compared = diff(report, report);
    assert_eq!(compared.compared, report.records.len());
    assert!(compared.header.is_empty() && compared.recipes.is_empty());
    assert!(compared.only_a.is_empty() && compared.only_b.is_empty());
    for (width, all) in WIDTHS.into_iter().zip([false, true]) {
        let side = Side { name: PATH, report };
        let layout = Layout { width, all };
        painted_lines(&render(&compared, [side, side], layout));
    }
}

/// A report against itself, and against the limits that are made of it.
fn is_gated(report: &Report) {
    let limits = VerdictLimits::default();
    let verdicts = verdict::judge(
        &report.records,
        &report.non_finite,
        &report.records,
        &limits,
    );
    assert!(verdicts.iter().all(|verdict| !verdict.sentence.is_empty()));
    let failures = verdict::failures(&report.records);
    assert!(failures.iter().all(|failure| !failure.is_empty()));

    match gate::evaluate(&Thresholds::baseline_only(), report, Some(report)) {
        Ok(outcomes) => painted_lines(&cli::gate::describe(&outcomes)),
        Err(error) => drop(refused(error)),
    }
    let text = init::thresholds(report);
    match Thresholds::parse(&text, Path::new("made.toml")) {
        Ok(thresholds) => match gate::evaluate(&thresholds, report, None) {
            Ok(outcomes) => painted_lines(&cli::gate::describe(&outcomes)),
            Err(error) => panic!("limits made of a report mean none of its rows: {error}"),
        },
        Err(error) => {
            let is_empty = matches!(error.problem, Problem::NoLimits);
            assert!(
                is_empty,
                "limits made of a report are none: {error}\n{text}"
            );
            refused(GateError::from(error));
        }
    }
}
