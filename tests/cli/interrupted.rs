//! Ctrl-C, requests to terminate, and runs in parts: what a shell sees of them.

use std::{
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::scene::{BINARY, Scene};

/// Some seconds of cases of some tenths of one.
const RUN: &str = "run synthetic:tiny --suite mix --variants * --tokens 4096";

/// What came of a run that got a signal as soon as it had finished a case.
struct Interrupted {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// Sends `signal` once `is_time`.
fn interrupt(scene: &Scene, line: &str, signal: &str, is_time: impl Fn() -> bool) -> Interrupted {
    let child = Command::new(BINARY)
        .args(line.split(' '))
        .current_dir(scene.path(""))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while !is_time() {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "no case finished"
        );
        sleep(Duration::from_millis(2));
    }
    let sent = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
    let output = child.wait_with_output().unwrap();
    Interrupted {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Whether the journal has a line behind its first.
fn has_finished_a_case(scene: &Scene) -> bool {
    let journal = std::fs::read(scene.path("out/report.journal")).unwrap_or_default();
    journal.iter().filter(|&&byte| byte == b'\n').count() > 1
}

#[test]
fn an_interrupted_run_keeps_what_is_finished_and_exits_with_130() {
    for signal in ["-INT", "-TERM"] {
        let scene = Scene::new();
        let line = format!("{RUN} --out out");
        let found = interrupt(&scene, &line, signal, || has_finished_a_case(&scene));
        assert_eq!(found.code, Some(130), "{}", found.stderr);
        assert!(
            found.stdout.contains("INTERRUPTED after "),
            "{}",
            found.stdout
        );
        assert!(
            found.stdout.contains("with --resume goes on"),
            "{}",
            found.stdout
        );
        assert!(
            found.stderr.contains("kept in out/report.journal"),
            "{}",
            found.stderr
        );
        let report = scene.json("out/report.json");
        let part = &report["part"];
        let count = |field: &str| part[field].as_array().map_or(0, Vec::len);
        assert!(count("finished") > 0 && count("missing") > 0, "{part}");
        assert_eq!(count("finished") + count("missing"), 8);
        assert_eq!(report["verdicts"], Value::Array(Vec::new()));
        // Nobody takes it for the whole.
        let parts = ["not the report of a whole run", "INTERRUPTED", "--resume"];
        scene
            .ulpdrift("gate out/report.json --init")
            .must_be_refused_saying(&parts);
        scene
            .ulpdrift("run synthetic:tiny --layers 0 --baseline out/report.json")
            .must_be_refused_saying(&parts);
        scene
            .ulpdrift("merge out/report.json")
            .must_be_refused_saying(&["cases are missing", "taken up with --resume"]);

        scene.ulpdrift(&format!("{line} --resume")).exits_with(0);
        assert_eq!(scene.json("out/report.json").get("part"), None);
        assert!(!scene.path("out/report.journal").exists());
    }
}

#[test]
fn without_a_folder_what_is_finished_is_shown() {
    let scene = Scene::new();
    let start = Instant::now();
    let is_time = || start.elapsed() > Duration::from_millis(600);
    let found = interrupt(&scene, RUN, "-INT", is_time);
    assert_eq!(found.code, Some(130), "{}", found.stderr);
    assert!(found.stderr.starts_with("interrupted"), "{}", found.stderr);
    assert!(scene.files().is_empty());
}

#[test]
fn parts_and_what_goes_on_are_refused_where_they_make_no_sense() {
    let scene = Scene::new().file("limits.toml", "");
    for (flags, parts) in [
        ("--part 0/4 --out out", ["'0/4'", "such as 2/4"]),
        ("--part 5/4 --out out", ["'5/4'", "such as 2/4"]),
        ("--part 2 --out out", ["'2'", "such as 2/4"]),
        (
            "--part 1/1000000 --out out",
            ["'1/1000000'", "at most 100000"],
        ),
        (
            "--part 1/2",
            ["--part: `ulpdrift merge` reads JSON", "--out DIR"],
        ),
        (
            "--part 1/2 --format csv --out out",
            ["--part: `ulpdrift merge`", "json"],
        ),
        (
            "--part 1/2 --out out --gate limits.toml",
            ["--gate does not go with --part", "merge"],
        ),
        (
            "--part 1/2 --out out --baseline x.json",
            ["--baseline does not go with", "merge"],
        ),
        (
            "--part 1/2 --out out --crosscheck",
            ["--part does not go with --crosscheck", "drop"],
        ),
        (
            "--resume --out out --crosscheck",
            ["--resume does not go with", "drop"],
        ),
        (
            "--crosscheck --out out",
            ["--out does not go with --crosscheck", "makes no report"],
        ),
        (
            "--crosscheck --gate limits.toml",
            ["--gate does not go with --crosscheck", "drop"],
        ),
        (
            "--crosscheck --dump dump",
            ["--dump does not go with --crosscheck", "drop"],
        ),
        ("--resume", ["--out", "required"]),
    ] {
        scene
            .ulpdrift(&format!("run synthetic:tiny --layers 0 {flags}"))
            .must_be_refused_saying(&parts);
    }
    scene
        .ulpdrift("merge absent.json")
        .must_be_refused_saying(&["absent.json", "check the path"]);
}

/// More parts than cases: some have nothing to do, and say so.
#[test]
fn a_part_may_have_no_case() {
    let scene = Scene::new();
    let run = "run synthetic:tiny --layers 0 --suite mix --variants fp32 -q";
    for part in 1..=3 {
        let line = format!("{run} --part {part}/3 --out p{part}");
        let cases = usize::from(part < 3);
        scene
            .ulpdrift(&line)
            .exits_with(0)
            .prints(&format!("PART {part} of 3, {cases} of the run's 2 cases"));
    }
    scene
        .ulpdrift("merge p1/report.json p2/report.json p3/report.json --format json")
        .exits_with(0)
        .prints("\"variant\": \"fp32\"");
    scene
        .ulpdrift("merge p1/report.json p3/report.json")
        .must_be_refused_saying(&["1 of 2 cases are missing (mix L0.ffn)", "part 2/3 is not"]);
}
