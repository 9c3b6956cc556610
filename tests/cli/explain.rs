//! A report in words, as a shell sees it.

use crate::scene::Scene;

const RUN: &str = "run synthetic:tiny --suite mix,budget --tokens 2 --layers 0 --quiet";

fn measured(flags: &str) -> Scene {
    let scene = Scene::new();
    let line = format!("{RUN} {flags} --out out");
    scene.ulpdrift(&line).exits_with(0);
    scene
}

#[test]
fn a_report_in_words() {
    let scene = measured("--variants fp32,tf32,bf16");
    scene
        .ulpdrift("explain out/report.json")
        .exits_with(0)
        .fits_80_columns()
        .remarks_nothing()
        .prints("SYNTHETIC weights")
        .prints("fp32 is exact")
        .prints("What would help")
        .prints("The cheapest variant of this report that is hidden");
}

#[test]
fn a_row_in_words() {
    let scene = measured("--variants fp32,tf32");
    let outcome = scene
        .ulpdrift("explain out/report.json --row suite=mix,site=ffn,stage=mixes,variant=tf32")
        .exits_with(0)
        .prints("mix L0.ffn mixes tf32")
        .prints("Source by source")
        .prints("What tf32 does, step by step");
    // All fits but the command, which is one line. It gives the row again.
    let is_too_wide = |line: &&str| line.chars().count() > 80;
    let wide: Vec<&str> = outcome.stdout.lines().filter(is_too_wide).collect();
    assert!(
        wide.iter()
            .all(|line| line.starts_with("    ulpdrift run ")),
        "{wide:?}"
    );
    let mut lines = outcome.stdout.lines().map(str::trim);
    let command = lines
        .find(|line| line.starts_with("ulpdrift run"))
        .expect("a command");
    scene.shell(&format!("{command} --quiet")).exits_with(0);
}

#[test]
fn rows_that_are_not_there_or_too_many_are_refused_with_what_is() {
    let scene = measured("--variants fp32,tf32");
    for (row, parts) in [
        (
            "suite=mix,layer=7,stage=mixes,site=ffn,variant=tf32",
            vec!["means no row", "layer there is 0"],
        ),
        ("variant=tf3", vec!["means no row", "fp32, tf32"]),
        (
            "variant=tf32",
            vec!["rows, and at most 4", "stage (dot, mixes"],
        ),
        (
            "varient=tf32",
            vec!["varient=tf32", "fields are suite, layer"],
        ),
        ("mixes", vec!["'mixes' is no condition", "FIELD=VALUE"]),
    ] {
        let line = format!("explain out/report.json --row {row}");
        scene.ulpdrift(&line).must_be_refused_saying(&parts);
    }
}

#[test]
fn what_is_no_report_is_refused() {
    let scene = Scene::new().file("newer.json", r#"{"schema_version": 99}"#);
    for (line, part) in [
        ("explain nowhere.json", "nowhere.json"),
        ("explain newer.json", "has report layout 99"),
    ] {
        scene.ulpdrift(line).must_be_refused_saying(&[part]);
    }
}

/// An indexer's steps are those of the arch that ran, and of no other.
#[test]
fn an_indexers_row_has_the_steps_of_its_arch() {
    let scene = Scene::new();
    let line = "run synthetic:tiny --suite indexer --context 64 --queries 2 --variants fp32,fp8-f32scale --arch sm_90 \
                --quiet --out out";
    scene.ulpdrift(line).exits_with(0);
    let outcome = scene
        .ulpdrift("explain out/report.json --row stage=logits,query_set=all,variant=fp8-f32scale")
        .exits_with(0)
        .prints("What indexer fp8-f32scale does, step by step")
        .prints("lanes by xor 1");
    assert!(
        !outcome.stdout.contains("four sums by head mod 4"),
        "{outcome}"
    );
}
