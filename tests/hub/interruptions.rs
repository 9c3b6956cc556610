//! A fetch that is killed goes on where it stopped; two do not get in each other's way.

use std::{
    collections::BTreeSet,
    fs::{self, OpenOptions},
    io::Write,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    scene::Scene,
    server::{COMMIT, Fault, REPOSITORY, Seen},
};

/// Starts a fetch that takes its time.
fn start(scene: &Scene) -> Child {
    scene.hub.script(|_| {
        Some(Fault {
            slow: Some(Duration::from_millis(40)),
            ..Fault::default()
        })
    });
    let mut command = scene.command();
    command.args([
        "fetch",
        REPOSITORY,
        "--out",
        "out",
        "--endpoint",
        &scene.hub.endpoint(),
    ]);
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The ranges that the journal has, as first bytes of shards.
fn pieces(scene: &Scene) -> BTreeSet<(String, u64)> {
    let text = fs::read_to_string(scene.path("out.part/journal")).unwrap_or_default();
    let objects = text.lines().filter_map(|line| line.rsplit_once(' '));
    let lines = objects.filter_map(|(object, _)| serde_json::from_str::<Value>(object).ok());
    lines
        .filter_map(|line| {
            let piece = line.get("piece")?;
            Some((piece["name"].as_str()?.to_owned(), piece["begin"].as_u64()?))
        })
        .collect()
}

/// Kills a fetch as soon as so many ranges are there.
fn kill_after(scene: &Scene, count: usize) {
    let mut child = start(scene);
    let began = Instant::now();
    while pieces(scene).len() < count && began.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!scene.path("out").exists());
}

/// The data that were asked for.
fn asked(scene: &Scene) -> Vec<(String, u64)> {
    let seen = scene.hub.seen();
    let data = seen.iter().filter(|seen| seen.is_data());
    data.filter_map(|seen| Some((seen.file().to_owned(), Seen::range(seen)?.0)))
        .collect()
}

#[test]
fn a_killed_fetch_goes_on() {
    let undisturbed = Scene::tiny();
    undisturbed.fetch().unwrap();
    let scene = Scene::tiny();
    for count in [0, 1, 2, 5, 9] {
        kill_after(&scene, count);
        let there = pieces(&scene);
        scene.hub.forget();
        scene.hub.script(|_| None);
        if count == 9 {
            scene.fetch().unwrap();
            let again = asked(&scene)
                .into_iter()
                .filter(|piece| there.contains(piece))
                .count();
            assert_eq!(again, 0, "what is complete is not asked for again");
            assert!(there.len() >= 9);
        }
    }
    for entry in fs::read_dir(undisturbed.path("out")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let read = |scene: &Scene| fs::read(scene.path("out").join(&name)).unwrap();
        if name != "provenance.json" {
            assert!(read(&scene) == read(&undisturbed), "{name}");
        }
    }
    assert!(!scene.path("out.part").exists());
}

#[test]
fn what_is_complete_is_not_asked_for_again() {
    let scene = Scene::tiny();
    scene.hub.script(|seen| {
        (seen.is_data() && seen.file().contains("00004")).then(|| Fault::status(403))
    });
    scene.fetch().expect_err("refused");
    scene.hub.script(|_| None);
    scene.hub.forget();
    let mut request = scene.request();
    request.repository = format!("org/model@{COMMIT}").parse().unwrap();
    scene.fetch_with(&request).unwrap();
    // No index, no configuration, no header: only what is missing of the data.
    assert!(
        scene
            .hub
            .seen()
            .iter()
            .all(|seen| seen.range().is_some_and(|(first, _)| first > 8))
    );
}

#[test]
fn a_torn_line_and_damaged_parts() {
    let scene = Scene::tiny();
    kill_after(&scene, 6);
    let mut journal = OpenOptions::new()
        .append(true)
        .open(scene.path("out.part/journal"))
        .unwrap();
    journal.write_all(b"{\"piece\":{\"name\":\"mod").unwrap();
    // What the journal says is there, and is not any more.
    let shard = scene.path("out.part/content/model-00001-of-00005.safetensors");
    let length = fs::metadata(&shard).unwrap().len();
    fs::write(&shard, vec![0; length as usize]).unwrap();
    scene.hub.script(|_| None);
    scene.fetch().unwrap();
    let good = Scene::tiny();
    good.fetch().unwrap();
    let read =
        |scene: &Scene| fs::read(scene.path("out/model-00001-of-00005.safetensors")).unwrap();
    assert!(read(&scene) == read(&good));
}

#[test]
fn the_parts_of_another_fetch() {
    let scene = Scene::tiny();
    kill_after(&scene, 1);
    scene.hub.script(|_| None);
    let mut request = scene.request();
    request.selection.shared_experts = true;
    let error = scene.fetch_with(&request).expect_err("another").to_string();
    assert!(
        error.contains("the beginning of another fetch (it has another --with)"),
        "{error}"
    );
    let other = "f".repeat(40);
    let mut request = scene.request();
    request.repository = format!("org/model@{other}").parse().unwrap();
    let error = scene.fetch_with(&request).expect_err("another").to_string();
    assert!(
        error.contains(&format!(
            "it is of commit {COMMIT}, where {other} is asked for now"
        )),
        "{error}"
    );
    for (text, said) in [
        ("what is this", "its journal is something else"),
        ("what is this\n", "its journal is something else"),
        (
            "{\"fetch\":{}}\n",
            "its journal is of another version, or damaged",
        ),
    ] {
        fs::write(scene.path("out.part/journal"), text).unwrap();
        let error = scene.fetch().expect_err("damaged").to_string();
        assert!(error.contains(said), "{error}");
        let kept = fs::read_to_string(scene.path("out.part/journal")).unwrap();
        assert_eq!(kept, text);
    }
}

#[test]
fn two_at_once() {
    let scene = Scene::tiny();
    let mut child = start(&scene);
    let began = Instant::now();
    while pieces(&scene).is_empty() && began.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(1));
    }
    let error = scene.fetch().expect_err("in use").to_string();
    assert!(error.contains("is in use by another fetch"), "{error}");
    assert!(child.wait().unwrap().success());
    assert!(scene.path("out").exists());
}

/// The configuration and the index decide what is measured and what is wanted at all.
#[test]
fn saved_files_that_have_changed_are_fetched_again() {
    let undisturbed = Scene::tiny();
    undisturbed.fetch().unwrap();
    for name in ["config.json", "model.safetensors.index.json"] {
        for spoil in [
            (|_| Vec::new()) as fn(Vec<u8>) -> Vec<u8>,
            |_| b"{}".to_vec(),
            |text| {
                text.iter()
                    .map(|byte| byte ^ u8::from(*byte == b'4'))
                    .collect()
            },
        ] {
            let scene = Scene::tiny();
            kill_after(&scene, 1);
            let saved = scene.path("out.part/source").join(name);
            let spoilt = spoil(fs::read(&saved).unwrap());
            fs::write(&saved, spoilt).unwrap();
            scene.hub.script(|_| None);
            scene.fetch().unwrap();
            let read = |scene: &Scene| fs::read(scene.path("out").join(name)).unwrap();
            assert!(read(&scene) == read(&undisturbed), "{name}");
        }
    }
}

#[test]
fn what_somebody_else_keeps_there_is_left_alone() {
    let refused = |scene: &Scene, found: &str| {
        let error = scene.fetch().expect_err("taken").to_string();
        let said = format!("out.part is {found}");
        assert!(error.contains(&said), "{error}");
        assert!(error.contains("name another --out"), "{error}");
        assert!(!scene.path("out").exists());
    };
    let scene = Scene::tiny();
    fs::create_dir_all(scene.path("out.part/content")).unwrap();
    fs::write(scene.path("out.part/thesis.txt"), "mine").unwrap();
    refused(&scene, "a directory with files in it that are of no fetch");
    assert!(scene.path("out.part/thesis.txt").exists());

    let scene = Scene::tiny();
    fs::create_dir(scene.path("out.part")).unwrap();
    fs::write(scene.path("out.part/journal"), "").unwrap();
    fs::write(scene.path("out.part/thesis.txt"), "mine").unwrap();
    refused(&scene, "a directory with files in it that are of no fetch");
    fs::remove_file(scene.path("out.part/thesis.txt")).unwrap();
    scene.fetch().unwrap();

    let scene = Scene::tiny();
    fs::write(scene.path("out.part"), "mine").unwrap();
    refused(&scene, "no directory");
    assert_eq!(fs::read(scene.path("out.part")).unwrap(), b"mine");

    let scene = Scene::tiny();
    fs::create_dir(scene.path("elsewhere")).unwrap();
    std::os::unix::fs::symlink("elsewhere", scene.path("out.part")).unwrap();
    refused(&scene, "a link");
    assert!(
        fs::read_dir(scene.path("elsewhere"))
            .unwrap()
            .next()
            .is_none()
    );

    let scene = Scene::tiny();
    fs::create_dir(scene.path("out.part")).unwrap();
    scene.fetch().unwrap();
}
