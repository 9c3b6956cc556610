//! What comes back when all goes well.

use std::{collections::BTreeSet, fs, path::Path, time::Instant};

use safetensors::SafeTensors;
use serde_json::Value;
use ulpdrift::{
    checkpoint::{Group, SyntheticModel},
    hub::Selection,
};

use crate::{
    scene::{SHARDS, Scene, tiny},
    server::{COMMIT, Hub, Role},
    source::{self, read_json},
};

/// Every tensor of the checkpoint `part` is what it is in `whole`; returns the names.
fn same_tensors(part: &Path, whole: &Path) -> BTreeSet<String> {
    let map =
        |path: &Path| read_json(&path.join("model.safetensors.index.json"))["weight_map"].clone();
    let (part_map, whole_map) = (map(part), map(whole));
    let mut names = BTreeSet::new();
    let mut loaded: Vec<(String, Vec<u8>)> = Vec::new();
    for (name, file) in part_map.as_object().unwrap() {
        let mut load = |directory: &Path, file: &Value| {
            let path = directory.join(file.as_str().unwrap());
            let key = path.display().to_string();
            if !loaded.iter().any(|(known, _)| *known == key) {
                loaded.push((key.clone(), fs::read(&path).unwrap()));
            }
            loaded.iter().position(|(known, _)| *known == key).unwrap()
        };
        let (mine, theirs) = (load(part, file), load(whole, &whole_map[name]));
        let mine =
            SafeTensors::deserialize(&loaded[mine].1).expect("the format's own reader reads it");
        let theirs = SafeTensors::deserialize(&loaded[theirs].1).unwrap();
        let (mine, theirs) = (mine.tensor(name).unwrap(), theirs.tensor(name).unwrap());
        assert_eq!(mine.dtype(), theirs.dtype(), "{name}");
        assert_eq!(mine.shape(), theirs.shape(), "{name}");
        assert!(mine.data() == theirs.data(), "{name}");
        names.insert(name.clone());
    }
    names
}

fn usual(plain: &Path) -> BTreeSet<String> {
    let index = read_json(&plain.join("model.safetensors.index.json"));
    let names = index["weight_map"].as_object().unwrap().keys();
    names
        .filter(|name| Group::of(name).is_some_and(Group::is_usual))
        .cloned()
        .collect()
}

#[test]
fn the_usual_tensors_and_little_else() {
    let scene = Scene::tiny();
    let fetched = scene.fetch().unwrap();
    let (plain, files, out) = (tiny().join("plain"), tiny().join("hub"), scene.path("out"));
    assert_eq!(same_tensors(&out, &plain), usual(&plain));
    assert_eq!(fetched.tensors, usual(&plain).len());
    assert_eq!(fetched.commit, COMMIT);
    assert_eq!(
        fetched.checked,
        ["model.safetensors.index.json", "config.json"]
    );
    assert_eq!(
        fs::read(out.join("config.json")).unwrap(),
        fs::read(plain.join("config.json")).unwrap()
    );
    assert!(!scene.path("out.part").exists());

    let wanted = source::wanted(&files);
    assert_eq!(fetched.bytes, wanted.tensors);
    let small: u64 = ["config.json", "model.safetensors.index.json"]
        .map(|name| fs::metadata(files.join(name)).unwrap().len())
        .iter()
        .sum();
    // The first 64 bytes of a shard come before its header, and 8 of them are none of the JSON that comes then.
    let least = wanted.tensors + wanted.headers + small;
    assert!(scene.hub.sent() >= least);
    let most = least + wanted.tensors / 50 + 64 * SHARDS as u64;
    assert!(
        scene.hub.sent() <= most,
        "{} bytes sent, at most {most} expected",
        scene.hub.sent()
    );
}

#[test]
fn where_it_is_from() {
    let scene = Scene::tiny();
    scene.fetch().unwrap();
    let said = read_json(&scene.path("out").join("provenance.json"));
    assert_eq!(said["repository"], "org/model");
    assert_eq!(said["revision"], "main");
    assert_eq!(said["commit"], COMMIT);
    assert_eq!(said["endpoint"], format!("{}/", scene.hub.endpoint()));
    assert_eq!(said["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(said["files"][0]["checked"], "git-hash");
    assert_eq!(
        said["bytes"]["tensors"],
        source::wanted(&tiny().join("hub")).tensors
    );
    let shards = said["shards"].as_array().unwrap();
    assert_eq!(shards.len(), SHARDS);
    for shard in shards {
        let size = fs::metadata(tiny().join("hub").join(shard["name"].as_str().unwrap()))
            .unwrap()
            .len();
        assert_eq!(shard["identity"]["size"], size);
        assert_eq!(shard["identity"]["etag"], "of-the-storage");
        assert!(!shard["ranges"].as_array().unwrap().is_empty());
    }
}

#[test]
fn a_run_gives_the_same_records() {
    let scene = Scene::tiny();
    let output = scene.run_fetch(&["--with", "shared-experts"]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.starts_with(&format!("org/model at commit {COMMIT}: ")),
        "{said}"
    );
    let (plain, out) = (tiny().join("plain"), scene.path("out"));
    assert_eq!(scene.records(&out, &[]), scene.records(&plain, &[]));
    let experts = ["--suite", "chain", "--sublayer", "shared-expert"];
    assert_eq!(
        scene.records(&out, &experts),
        scene.records(&plain, &experts)
    );
}

#[test]
fn every_request_is_for_the_commit() {
    let scene = Scene::tiny();
    let mut request = scene.request();
    request.repository = "org/old-name@refs/pr/1".parse().unwrap();
    scene.fetch_with(&request).unwrap();
    let seen = scene.hub.seen();
    assert_eq!(
        seen[0].path,
        "/org/old-name/resolve/refs%2Fpr%2F1/config.json"
    );
    assert_eq!(seen[0].method, "HEAD");
    // Renamed: the hub says where it is now.
    assert_eq!(seen[1].path, "/org/model/resolve/refs%2Fpr%2F1/config.json");
    for seen in seen[2..].iter().filter(|seen| seen.role == Role::Hub) {
        assert!(
            seen.path.contains(&format!("/resolve/{COMMIT}/")),
            "{}",
            seen.path
        );
    }
}

#[test]
fn a_commit_needs_no_asking() {
    let scene = Scene::tiny();
    let mut request = scene.request();
    request.repository = format!("org/model@{COMMIT}").parse().unwrap();
    scene.fetch_with(&request).unwrap();
    assert!(scene.hub.seen().iter().all(|seen| seen.method == "GET"));
}

#[test]
fn a_model_in_one_file_without_a_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let files = directory.path().join("one");
    source::spread(&tiny().join("plain"), &files, 1);
    fs::rename(
        files.join("model-00001-of-00001.safetensors"),
        files.join("model.safetensors"),
    )
    .unwrap();
    fs::remove_file(files.join("model.safetensors.index.json")).unwrap();
    fs::remove_file(files.join("config.json")).unwrap();
    let scene = Scene {
        hub: Hub::new(&files),
        directory,
    };
    let fetched = scene.fetch().unwrap();
    assert_eq!(
        (fetched.shards, fetched.tensors),
        (1, usual(&tiny().join("plain")).len())
    );
    let names: BTreeSet<String> = fs::read_dir(scene.path("out"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(
        names,
        ["model.safetensors", "provenance.json"]
            .map(String::from)
            .into()
    );
}

#[test]
fn a_folder_in_use_is_left_alone() {
    let scene = Scene::tiny();
    fs::create_dir(scene.path("out")).unwrap();
    fs::write(scene.path("out/mine"), "").unwrap();
    let error = scene.fetch().expect_err("in use").to_string();
    assert!(
        error.contains("it is not empty; choose a new or empty directory"),
        "{error}"
    );
    assert!(scene.hub.seen().is_empty());
    fs::remove_file(scene.path("out/mine")).unwrap();
    scene.fetch().unwrap();
}

#[test]
fn what_is_asked_for_must_be_there() {
    let scene = Scene::changed(|files| {
        let path = files.join("model.safetensors.index.json");
        let mut index = read_json(&path);
        index["weight_map"]
            .as_object_mut()
            .unwrap()
            .retain(|name, _| !name.contains("shared_experts"));
        fs::remove_file(&path).unwrap();
        fs::write(&path, index.to_string()).unwrap();
    });
    let mut request = scene.request();
    request.selection = Selection {
        shared_experts: true,
        ..Selection::default()
    };
    let error = scene.fetch_with(&request).expect_err("none").to_string();
    assert_eq!(
        error,
        "org/model has no shared experts; leave them out of --with"
    );
}

/// The full shapes of V4-Flash in 46 shards: minutes, and gigabytes of holes. `cargo test --release --test hub -- --ignored
/// --nocapture` prints the figures of BENCHMARKS.md.
#[test]
#[ignore = "it takes minutes"]
fn the_full_shapes_of_flash() {
    let directory = tempfile::tempdir().unwrap();
    let (plain, files) = (directory.path().join("plain"), directory.path().join("hub"));
    source::write(&plain, &files, SyntheticModel::Flash, 46);
    let scene = Scene::of(&files);
    let wanted = source::wanted(&files);
    let data = std::sync::atomic::AtomicUsize::new(0);
    scene.hub.script(move |seen| {
        let number = data.fetch_add(
            usize::from(seen.is_data()),
            std::sync::atomic::Ordering::SeqCst,
        );
        (seen.is_data() && number % 25 == 24 && number < 250).then(|| crate::server::Fault {
            cut: Some(100_000),
            dead_for: Some(std::time::Duration::from_millis(200)),
            ..Default::default()
        })
    });
    let began = Instant::now();
    let fetched = scene.fetch().unwrap();
    let (seconds, sent) = (began.elapsed().as_secs_f64(), scene.hub.sent());
    println!(
        "{} tensors of {} shards, {} bytes of {}: {} bytes sent ({:.3} of tensors and headers), {} requests, {} deaths, \
         {seconds:.1} s",
        fetched.tensors,
        fetched.shards,
        wanted.tensors,
        fetched.of,
        sent,
        sent as f64 / (wanted.tensors + wanted.headers) as f64,
        scene.hub.seen().len(),
        scene.hub.deaths(),
    );
    assert_eq!(scene.hub.deaths(), 10);
    assert!(sent as f64 <= 1.02 * wanted.tensors as f64 + wanted.headers as f64);
    let few = ["--layers", "0-3", "--suite", "mix,indexer"];
    assert_eq!(
        scene.records(&scene.path("out"), &few),
        scene.records(&plain, &few)
    );
}

#[test]
fn rows_of_the_embedding() {
    const EMBEDDING: [&str; 4] = ["--suite", "chain", "--inputs", "embedding"];
    let scene = Scene::tiny();
    let with_rows = |with: &str| {
        let output = scene.run_fetch(&["--with", with]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
    };
    with_rows("embed-rows=0");
    let mut command = scene.command();
    let output = command
        .args(["run", "out", "--tokens", "4"])
        .args(EMBEDDING)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("has only some rows of embed.weight, and not those of the tokens"),
        "{said}"
    );
    // The sentence says what to do.
    let with = said
        .split("fetch --with ")
        .nth(1)
        .and_then(|rest| rest.split('`').next())
        .unwrap();
    fs::remove_dir_all(scene.path("out")).unwrap();
    with_rows(with);
    let plain = tiny().join("plain");
    assert_eq!(
        scene.records(&scene.path("out"), &EMBEDDING),
        scene.records(&plain, &EMBEDDING)
    );
}

#[test]
fn arguments_that_make_no_sense() {
    let scene = Scene::tiny();
    for (arguments, found) in [
        (
            vec!["fetch", "model", "--out", "out"],
            "\"model\" is not a repository of a hub; give ORG/MODEL",
        ),
        (
            vec!["fetch", "org/model", "--out", "out", "--with", "experts"],
            "--with \"experts\": there is no such part",
        ),
        (
            vec![
                "fetch",
                "org/model",
                "--out",
                "out",
                "--endpoint",
                "hub.example",
            ],
            "the endpoint \"hub.example\" cannot be asked",
        ),
        (
            vec!["fetch", "org/model", "--out", "out", "--jobs", "0"],
            "invalid value '0' for '--jobs <N>'",
        ),
        (vec!["fetch", "org/model"], "--out <DIR>"),
    ] {
        let output = scene.command().args(&arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(found), "{said}");
    }
    assert!(scene.hub.seen().is_empty());
}
