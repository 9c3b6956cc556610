//! Two reports side by side, as a shell sees it.

use crate::scene::Scene;

const RUN: &str = "run synthetic:tiny --suite mix --tokens 2 --layers 0 --quiet";

#[test]
fn what_changed_is_shown_and_is_no_failure() {
    let scene = Scene::new();
    for (seed, out) in [(0, "a"), (1, "b")] {
        let line = format!("{RUN} --variants fp32,bf16 --seed {seed} --out {out}");
        scene.ulpdrift(&line).exits_with(0);
    }
    let outcome = scene
        .ulpdrift("diff a/report.json b/report.json")
        .exits_with(0)
        .fits_80_columns()
        .remarks_nothing();
    let outcome = outcome
        .prints("seed: 0 in A, 1 in B")
        .prints("Rows are paired whatever their seed.")
        .prints("Of 28 rows that both have, 28 changed.")
        .prints("bf16")
        .prints("rel_l2");
    let short = outcome.stdout.lines().count();
    let all = scene
        .ulpdrift("diff a/report.json b/report.json -v")
        .exits_with(0)
        .prints("cosine_gap");
    assert!(all.stdout.lines().count() > 2 * short, "{all}");
}

#[test]
fn a_report_beside_itself_has_no_difference() {
    let scene = Scene::new();
    let line = format!("{RUN} --variants fp32 --out a");
    scene.ulpdrift(&line).exits_with(0);
    scene
        .ulpdrift("diff a/report.json a/report.json")
        .exits_with(0)
        .prints("No difference: 14 rows are alike in every measure.");
}

#[test]
fn rows_of_one_report_only_are_counted_and_named_when_asked() {
    let scene = Scene::new();
    for (variants, out) in [("fp32,bf16", "a"), ("fp32", "b")] {
        let line = format!("{RUN} --variants {variants} --out {out}");
        scene.ulpdrift(&line).exits_with(0);
    }
    scene
        .ulpdrift("diff a/report.json b/report.json")
        .exits_with(0)
        .prints("recipes of its own: bf16 in A, none in B")
        .prints("14 only in A, 0 only in B (--all names them).");
    scene
        .ulpdrift("diff a/report.json b/report.json --all")
        .exits_with(0)
        .fits_80_columns()
        .prints("only in A")
        .prints("variant=bf16");
}

#[test]
fn what_is_no_report_is_refused() {
    let scene = Scene::new()
        .file("newer.json", r#"{"schema_version": 99}"#)
        .file("empty.json", "");
    scene
        .ulpdrift(&format!("{RUN} --variants fp32 --out a"))
        .exits_with(0);
    for (line, part) in [
        ("diff a/report.json nowhere.json", "nowhere.json"),
        ("diff empty.json a/report.json", "is not a report"),
        ("diff a/report.json newer.json", "has report layout 99"),
    ] {
        scene.ulpdrift(line).must_be_refused_saying(&[part]);
    }
    let one = scene.ulpdrift("diff a/report.json");
    one.exits_with(2);
}
