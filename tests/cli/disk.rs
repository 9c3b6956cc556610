//! Disks that fill up, pipes that close: a file is whole or not there.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::scene::Scene;

/// One layer, six variants: 60 KB of CSV and 130 KB of JSON.
const RUN: &str = "ulpdrift run synthetic:tiny --layers 0";

/// A file system of a given size; gone with the value.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None`, and a word on why, where this user may not mount.
    fn mount(path: PathBuf, size: &str) -> Option<Self> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]);
        match mount.arg(&path).output() {
            Ok(output) if output.status.success() => Some(Self(path)),
            Ok(output) => {
                let why = String::from_utf8_lossy(&output.stderr).into_owned();
                println!("SKIPPED: no small disk to fill: {why}");
                None
            }
            Err(why) => {
                println!("SKIPPED: no small disk to fill: {why}");
                None
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()));
    }
}

#[test]
fn a_full_disk_leaves_no_report() {
    let scene = Scene::new().folder("disk");
    // What is finished does not all fit: no report may be there afterwards.
    let Some(_disk) = SmallDisk::mount(scene.path("disk"), "128k") else {
        return;
    };
    let parts = [
        "--out",
        "report.journal",
        "No space left on device",
        "make room",
    ];
    for folder in ["disk", "disk/new"] {
        scene
            .shell(&format!("{RUN} --out {folder}"))
            .must_leave_only_its_journal(folder, &parts);
        fs::remove_file(scene.path(folder).join("report.journal")).unwrap();
    }
    let parts = [
        "L0.attn.safetensors",
        "No space left on device",
        "make room",
    ];
    scene
        .shell(&format!("{RUN} --dump disk"))
        .must_be_refused_saying(&parts);
    let parts = [
        "'disk/ckpt'",
        "No space left on device",
        "nothing was left behind",
    ];
    scene
        .shell("ulpdrift synth disk/ckpt")
        .must_be_refused_saying(&parts);
}

/// The same without the right to mount: no file may grow beyond 100 KiB.
#[test]
fn a_file_that_may_not_grow_leaves_the_old_report() {
    let scene = Scene::new();
    scene
        .shell(&format!("{RUN} --variants fp32 --out out"))
        .exits_with(0);
    let limited = format!("trap '' XFSZ; ulimit -f 100; {RUN} --seed 1 --out out");
    let parts = ["--out", "out/report.journal", "File too large"];
    scene
        .shell(&limited)
        .must_leave_only_its_journal("out", &parts);
    let elsewhere = limited.replace("--out out", "--out new/folder");
    let parts = ["--out", "new/folder/report.journal"];
    scene
        .shell(&elsewhere)
        .must_leave_only_its_journal("new/folder", &parts);
    // With room for it, it goes on from there.
    let resumed = format!("{RUN} --seed 1 --out new/folder --resume");
    scene.shell(&resumed).exits_with(0).remarks("1 of 3 cases");
}

#[test]
fn a_full_terminal_is_an_error_and_the_report_is_there() {
    let scene = Scene::new();
    for line in [
        RUN,
        "ulpdrift variants",
        "ulpdrift --help",
        "ulpdrift run --help",
    ] {
        let parts = [
            "standard output cannot be written",
            "No space left",
            "redirect",
        ];
        scene
            .shell(&format!("{line} > /dev/full"))
            .must_be_refused_saying(&parts);
    }
    let outcome = scene
        .shell(&format!("{RUN} --quiet --out out > /dev/full"))
        .exits_with(2);
    outcome.remarks("standard output cannot be written");
    assert_whole_report(&scene.path("out"));
}

#[test]
fn a_closed_pipe_ends_quietly_and_the_report_is_there() {
    let scene = Scene::new();
    for line in [
        &format!("{RUN} -v --quiet --out out"),
        &format!("{RUN} --format csv"),
        &format!("{RUN} --format json"),
        "ulpdrift variants '*'",
        "ulpdrift inspect synthetic:tiny",
        "ulpdrift --help",
    ] {
        // The reader is gone before anything is written.
        let piped = format!("{line} | head -c 0; exit ${{PIPESTATUS[0]}}");
        scene
            .shell(&piped)
            .exits_with(0)
            .prints_nothing()
            .remarks_nothing();
        let piped = format!("{line} | head -1; exit ${{PIPESTATUS[0]}}");
        scene.shell(&piped).exits_with(0).remarks_nothing();
    }
    assert_whole_report(&scene.path("out"));
    // A gate that fails does not pass because nobody reads why.
    scene.put("t.toml", "[[limit]]\nmeasure = \"rel_l2\"\nmax = 0\n");
    let gate = "ulpdrift gate out/report.json --thresholds t.toml | head -1; exit ${PIPESTATUS[0]}";
    scene.shell(gate).exits_with(1).remarks_nothing();
    let closed = format!("{RUN} --out out >&- 2>&-");
    scene.shell(&closed).exits_with(0);
}

fn assert_whole_report(folder: &Path) {
    let csv = fs::read_to_string(folder.join("report.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + 6 * (2 * 7 + 2 * 3 + 1));
    let json = fs::read(folder.join("report.json")).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(
        json["records"].as_array().unwrap().len(),
        6 * (2 * 7 + 2 * 3 + 1)
    );
}
