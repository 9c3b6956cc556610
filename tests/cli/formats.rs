//! Formats beside CSV and JSON, the file that a gate begins with, and what shells know.

use crate::scene::Scene;

const RUN: &str =
    "run synthetic:tiny --suite mix --tokens 2 --layers 0 --variants fp32,bf16 --quiet";

#[test]
fn every_format_is_written_at_once() {
    let scene = Scene::new();
    let line = format!("{RUN} --out out --format csv,json,md,junit,html");
    scene.ulpdrift(&line).exits_with(0);
    let comment = scene.read("out/report.md");
    assert!(comment.starts_with(
        "### ulpdrift: no variant is broken or beyond rounding\n\n**SYNTHETIC weights**"
    ));
    let junit = scene.read("out/junit.xml");
    assert!(
        junit.contains("<testsuites name=\"ulpdrift\" tests=\"2\" failures=\"0\""),
        "{junit}"
    );
    let page = scene.read("out/report.html");
    assert!(
        page.starts_with("<!DOCTYPE html>") && page.contains(">SYNTHETIC</span> weights · emulate"),
        "{page}"
    );
}

#[test]
fn a_page_is_made_of_a_report_and_is_that_of_the_run() {
    let scene = Scene::new();
    let line = format!("{RUN} --out out --format json,html");
    scene.ulpdrift(&line).exits_with(0);
    let page = scene.read("out/report.html");
    scene
        .ulpdrift("report out/report.json -o page.html")
        .exits_with(0);
    assert_eq!(scene.read("page.html"), page);
    let outcome = scene.ulpdrift("report out/report.json -o -");
    assert_eq!(outcome.stdout, page);
    outcome.exits_with(0);
    let outcome = scene.ulpdrift(&RUN.replace("run ", "run --format html "));
    assert!(outcome.stdout.contains("</h1>"), "{}", outcome.stdout);
    outcome.exits_with(0);
}

#[test]
fn no_page_is_made_of_what_is_no_report() {
    let scene = Scene::new()
        .file("newer.json", r#"{"schema_version": 99, "unheard": 1}"#)
        .file("other.json", "[]")
        .file("old.html", "old");
    for (line, expected) in [
        ("report newer.json -o old.html", "has report layout 99"),
        ("report other.json -o old.html", "is not a report"),
        ("report none.json -o old.html", "cannot read the report"),
        ("report newer.json", "--output"),
    ] {
        let refused = scene.ulpdrift(line);
        assert!(refused.stderr.contains(expected), "{}", refused.stderr);
        assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
        refused.exits_with(2);
    }
    assert_eq!(scene.read("old.html"), "old");
}

#[test]
fn a_gate_begins_with_a_file_that_its_report_passes_and_fails_where_that_is_tightened() {
    let scene = Scene::new();
    scene.ulpdrift(&format!("{RUN} --out out")).exits_with(0);
    scene
        .ulpdrift("gate out/report.json --init -o gate.toml")
        .exits_with(0);
    scene
        .ulpdrift("gate out/report.json --thresholds gate.toml")
        .exits_with(0);
    let text = scene.read("gate.toml");
    let is_error = |line: &&str| line.starts_with("max = 0.00");
    let limit = text.lines().find(is_error).expect("bf16 has an error");
    scene.put("gate.toml", text.replace(limit, "max = 1e-5"));
    let outcome =
        scene.ulpdrift("gate out/report.json --thresholds gate.toml --format junit -o junit.xml");
    outcome.exits_with(1);
    let junit = scene.read("junit.xml");
    assert!(
        junit.contains("is above max 1e-5") && junit.contains("ulpdrift run synthetic:tiny"),
        "{junit}"
    );
    let outcome = scene.ulpdrift("gate out/report.json --thresholds gate.toml --format md");
    assert!(
        outcome.stdout.contains("checks failed"),
        "{}",
        outcome.stdout
    );
    outcome.exits_with(1);
    let refused = scene.ulpdrift("gate out/report.json --init --thresholds gate.toml");
    refused.exits_with(2);
}

#[test]
fn a_step_summary_is_added_where_the_job_offers_one() {
    let scene = Scene::new().file("summary.md", "before\n");
    let line = format!("{RUN} --step-summary");
    scene
        .ulpdrift_with(&line, &[("GITHUB_STEP_SUMMARY", "summary.md")])
        .exits_with(0);
    let text = scene.read("summary.md");
    assert!(text.starts_with("before\n### ulpdrift: "), "{text}");
    let refused = scene.ulpdrift_with(&line, &[("GITHUB_STEP_SUMMARY", "")]);
    assert!(
        refused.stderr.contains("GITHUB_STEP_SUMMARY names no file"),
        "{}",
        refused.stderr
    );
    refused.exits_with(2);
}

#[test]
fn shells_and_man_know_every_command() {
    let scene = Scene::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let outcome = scene.ulpdrift(&format!("completions {shell}"));
        for word in [
            "run",
            "gate",
            "diff",
            "explain",
            "variants",
            "needle-margins",
            "step-summary",
        ] {
            assert!(
                outcome.stdout.contains(word),
                "{shell} does not know {word}"
            );
        }
        outcome.exits_with(0);
    }
    let outcome = scene.ulpdrift("man");
    assert!(
        outcome.stdout.contains(".TH ulpdrift 1") && outcome.stdout.contains("ulpdrift\\-run(1)"),
        "{}",
        outcome.stdout
    );
    outcome.exits_with(0);
    scene.ulpdrift("man --out pages").exits_with(0);
    assert!(
        scene
            .read("pages/ulpdrift-gate.1")
            .contains("\\-\\-thresholds")
    );
}

/// The completions as bash reads them.
#[test]
fn bash_completes_a_flag() {
    let scene = Scene::new();
    let line = "ulpdrift completions bash > c && . ./c && COMP_WORDS=(ulpdrift run --need) COMP_CWORD=2 && \
                _ulpdrift ulpdrift --need run && printf '%s\\n' \"${COMPREPLY[@]}\"";
    let outcome = scene.shell(line);
    assert_eq!(outcome.stdout, "--needle-margins\n--needle-depths\n");
}
