//! Processes that are killed at any moment: a file is whole or not there, and the next run starts clean.

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
fn kill_after(scene: &Scene, delay: Duration) -> bool {
    let mut child = Command::new(BINARY)
        .args(shlex::split(RUN).unwrap())
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

#[test]
fn whatever_a_killed_run_leaves_is_whole_and_the_next_one_starts_clean() {
    let undisturbed = Scene::new();
    let start = Instant::now();
    undisturbed.ulpdrift(RUN).exits_with(0);
    let length = start.elapsed();
    let expected = comparable_files(&undisturbed);

    let scene = Scene::new();
    let (mut killed, mut temporary) = (0, 0);
    for n in 0..KILLS {
        killed += u32::from(kill_after(&scene, length * n / KILLS));
        let left = scene.files();
        let (unfinished, finished): (Vec<_>, Vec<_>) =
            left.iter().partition(|(name, _)| is_temporary(name));
        for (name, bytes) in finished {
            assert!(
                expected.get(name) == Some(&comparable(name, bytes)),
                "{name} after {n}/{KILLS} of the run is not as an undisturbed run writes it"
            );
        }
        // Each run removes what the one before left.
        assert!(unfinished.len() <= expected.len(), "{:?}", left.keys());
        temporary += unfinished.len();
        // A dump replaces no tensors, be they a killed run's: the next one is told to go elsewhere.
        let _ = fs::remove_dir_all(scene.path("dump"));
    }
    println!("killed {killed} of {KILLS} runs, which left {temporary} temporary files");
    assert!(killed > KILLS / 2);
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
