//! Processes that are killed at any moment: a file is whole or not there, and what was finished is not lost.

use std::{
    collections::BTreeMap,
    fs,
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::scene::{BINARY, Scene};

const RUN: &str = "run synthetic:tiny --suite mix,chain --variants fp32,bf16 --tokens 64 --out out --dump dump --format csv,json,html,md,junit";
const KILLS: u32 = 24;
const JOURNAL: &str = "out/report.journal";

fn is_temporary(name: &str) -> bool {
    let (_, file) = name.rsplit_once('/').unwrap_or(("", name));
    file.starts_with(".ulpdrift-") && file.ends_with(".tmp")
}

/// Everything but how long the run took, which two files say.
fn comparable(name: &str, bytes: &[u8]) -> Vec<u8> {
    match name {
        "out/report.json" => {
            let mut report: Value = serde_json::from_slice(bytes).unwrap();
            let seconds = report["host"].as_object_mut().unwrap().remove("seconds");
            assert!(seconds.is_some_and(|seconds| seconds.is_number()));
            report.to_string().into_bytes()
        }
        "out/report.html" => {
            let page = str::from_utf8(bytes).unwrap();
            assert!(page.trim_end().ends_with("</html>"));
            let (before, after) = page.split_once("<dt>Took</dt><dd>").unwrap();
            let (_, after) = after.split_once("</dd>").unwrap();
            [before, after].concat().into_bytes()
        }
        _ => bytes.to_owned(),
    }
}

fn comparable_files(scene: &Scene) -> BTreeMap<String, Vec<u8>> {
    let files = scene.files().into_iter();
    let of = |(name, bytes): (String, Vec<u8>)| (name.clone(), comparable(&name, &bytes));
    files.map(of).collect()
}

/// On Unix this is SIGKILL, which no program can clean up after. Whether the run was still at work.
fn kill_after(scene: &Scene, line: &str, delay: Duration) -> bool {
    let mut child = Command::new(BINARY)
        .args(shlex::split(line).unwrap())
        .current_dir(scene.path(""))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    sleep(delay);
    let was_running = child.try_wait().unwrap().is_none();
    child.kill().unwrap();
    child.wait().unwrap();
    was_running
}

/// How long a run takes on a machine that does other things as well: kept by what is seen, so that as many runs as a test
/// wants are killed at work, however that changes.
struct Pace {
    length: Duration,
    tries: u32,
}

impl Pace {
    fn new(length: Duration) -> Self {
        Self { length, tries: 0 }
    }

    /// Kills a run at a moment, 0 to 1 of its length. Whether it was still at work.
    fn kill(&mut self, scene: &Scene, line: &str, moment: f64) -> bool {
        self.tries += 1;
        assert!(self.tries <= 200, "{:?} is no run's length", self.length);
        let was_running = kill_after(scene, line, self.length.mul_f64(moment));
        if !was_running {
            self.length = self.length.mul_f64(0.8);
        } else if moment > 0.5 && !scene.path(JOURNAL).exists() {
            self.length = self.length.mul_f64(1.25);
        }
        was_running
    }
}

#[test]
fn whatever_a_killed_run_leaves_is_whole_and_the_next_one_starts_clean() {
    let undisturbed = Scene::new();
    let start = Instant::now();
    undisturbed.ulpdrift(RUN).exits_with(0);
    let mut pace = Pace::new(start.elapsed());
    let expected = comparable_files(&undisturbed);

    let scene = Scene::new();
    let (mut killed, mut temporary) = (0, 0);
    let mut moments = moments();
    while killed < KILLS {
        let moment = moments.next().expect("no end of moments");
        killed += u32::from(pace.kill(&scene, RUN, moment));
        let left = scene.files();
        let (unfinished, finished): (Vec<_>, Vec<_>) =
            left.iter().partition(|(name, _)| is_temporary(name));
        for (name, bytes) in finished {
            if *name == JOURNAL {
                continue;
            }
            assert!(
                expected.get(name) == Some(&comparable(name, bytes)),
                "{name} after {moment:.2} of the run is not as an undisturbed run writes it"
            );
        }
        // Each run removes what the one before left.
        assert!(unfinished.len() <= expected.len(), "{:?}", left.keys());
        temporary += unfinished.len();
        // What a killed run has finished is replaced by nothing but its own continuation.
        let _ = fs::remove_dir_all(scene.path("dump"));
        let _ = fs::remove_file(scene.path(JOURNAL));
    }
    println!(
        "killed {killed} of {} runs, which left {temporary} temporary files",
        pace.tries
    );
    scene.ulpdrift(RUN).exits_with(0);
    assert!(
        comparable_files(&scene) == expected,
        "{:?}",
        scene.files().keys()
    );
}

#[test]
fn a_temporary_file_that_a_killed_run_left_is_gone_after_the_next() {
    let scene = Scene::new()
        .file("out/.ulpdrift-a1b2c3.tmp", "{\"schema_vers")
        .file("dump/.ulpdrift-d4e5f6.tmp", [0; 100])
        .file("out/notes.tmp", "a user's");
    scene.ulpdrift(RUN).exits_with(0);
    let names: Vec<String> = scene.files().into_keys().collect();
    assert!(!names.iter().any(|name| is_temporary(name)), "{names:?}");
    assert!(names.contains(&"out/notes.tmp".to_owned()));
}

/// A suite of every kind, whose cases are sites, chains, layers and recipes.
const ALL: &str = "run synthetic:tiny --suite mix,recombine,chain,budget,gains,indexer,needle --variants fp32,bf16,transformers \
                   --tokens 16 --context 512 --needle-margins 4";
const FORMATS: &str = "--format csv,json,html,md,junit --out out";

/// Moments that look random and are the same every time, spread over the whole run.
fn moments() -> impl Iterator<Item = f64> {
    // The fractional parts of multiples of the golden ratio leave no gap.
    (1..u64::MAX).map(|n| (n as f64 * 0.618_033_988_749_895).fract())
}

/// Killed at 20 moments or more, several times in a row where the moments are early, and then gone on with.
#[test]
fn a_killed_run_that_is_gone_on_with_ends_in_the_same_bytes() {
    let line = format!("{ALL} {FORMATS} --dump dump");
    let undisturbed = Scene::new();
    let start = Instant::now();
    undisturbed.ulpdrift(&line).exits_with(0);
    let mut pace = Pace::new(start.elapsed());
    let expected = comparable_files(&undisturbed);
    assert!(!expected.contains_key(JOURNAL));

    let (mut killed, mut resumed) = (0, 0);
    let mut scene = Scene::new();
    let resume = format!("{line} --resume");
    for (n, moment) in moments().enumerate() {
        if killed >= 20 && resumed >= 8 {
            break;
        }
        let was_running = pace.kill(&scene, &resume, moment);
        killed += u32::from(was_running);
        // Every third time one more kill hits what goes on.
        if n % 3 == 0 && was_running {
            continue;
        }
        if was_running {
            resumed += u32::from(scene.path(JOURNAL).exists());
            scene.ulpdrift(&resume).exits_with(0);
        }
        assert!(
            comparable_files(&scene) == expected,
            "killed at {moment:.2} of the run, then {:?}",
            scene.files().keys()
        );
        scene = Scene::new();
    }
    println!(
        "killed {killed} of {} runs, {resumed} of which had finished a case",
        pace.tries
    );
}

/// A kill between the end of a run and that of its process leaves this.
#[test]
fn a_run_that_had_ended_ends_in_the_same_bytes_again_and_replaces_no_other_tensors() {
    let line = format!("{ALL} {FORMATS} --dump dump --resume");
    let scene = Scene::new();
    scene.ulpdrift(&line).exits_with(0);
    let expected = comparable_files(&scene);
    scene
        .ulpdrift(&line)
        .exits_with(0)
        .remarks("no run is under way there");
    assert!(comparable_files(&scene) == expected);

    let tensors = "dump/recombine.L3.attn.safetensors";
    let mut others = fs::read(scene.path(tensors)).unwrap();
    *others.last_mut().unwrap() ^= 1;
    fs::write(scene.path(tensors), &others).unwrap();
    // Neither then, nor when it goes on with what it has finished up to there.
    for _ in 0..2 {
        let parts = [tensors, "something else in it", "move it away"];
        scene
            .ulpdrift(&format!("{line} -q"))
            .must_leave_only_its_journal("out", &parts);
    }
    assert!(fs::read(scene.path(tensors)).unwrap() == others);
    fs::remove_file(scene.path(tensors)).unwrap();

    // What a finished case has written is not written again, so it has to be there.
    let finished = scene.path("dump/L0.attn.safetensors");
    let good = fs::read(&finished).unwrap();
    for (there, said) in [(None, "No such file"), (Some(&good[1..]), "bytes and had")] {
        match there {
            None => fs::remove_file(&finished).unwrap(),
            Some(bytes) => fs::write(&finished, bytes).unwrap(),
        }
        let parts = ["--dump dump: L0.attn.safetensors", said, "put it back"];
        scene
            .ulpdrift(&format!("{line} -q"))
            .must_be_refused_saying(&parts);
    }
    fs::write(&finished, good).unwrap();
    scene.ulpdrift(&line).exits_with(0);
    assert!(comparable_files(&scene) == expected);
}

#[test]
fn four_parts_joined_are_the_run_in_one_go() {
    let undisturbed = Scene::new();
    undisturbed
        .ulpdrift(&format!("{ALL} --seeds 2 {FORMATS}"))
        .exits_with(0);
    let expected = comparable_files(&undisturbed);
    let scene = Scene::new();
    for part in [3, 1, 4, 2] {
        scene
            .ulpdrift(&format!(
                "{ALL} --seeds 2 --part {part}/4 --out part-{part}"
            ))
            .exits_with(0)
            .prints(&format!("PART {part} of 4"))
            .prints("ulpdrift merge part-");
    }
    let reports = "part-2/report.json part-4/report.json part-1/report.json part-3/report.json";
    scene
        .ulpdrift(&format!("merge {reports} {FORMATS}"))
        .exits_with(0);
    for (name, bytes) in expected {
        if !name.ends_with('/') {
            let own = fs::read(scene.path(&name)).unwrap();
            assert!(comparable(&name, &own) == bytes, "{name}");
        }
    }
    // A second time, it is all there.
    scene
        .ulpdrift(&format!("merge {reports} -q"))
        .exits_with(0)
        .prints("bf16");
}
