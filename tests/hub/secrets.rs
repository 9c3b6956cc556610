//! The token goes to the hub's own address and nowhere else; neither it nor a signed address is told to anybody.

use std::{fs, path::Path, process::Output};

use crate::{
    scene::Scene,
    server::{Fault, REPOSITORY, Role, SIGNATURE},
};

const TOKEN: &str = "hf_aVeryPrivateToken";

fn with_token(scene: &Scene, more: &[&str]) -> Output {
    let mut command = scene.command();
    command.args([
        "fetch",
        REPOSITORY,
        "--out",
        "out",
        "--endpoint",
        &scene.hub.endpoint(),
    ]);
    command.args(more).env("HF_TOKEN", TOKEN).output().unwrap()
}

/// Everything in a folder, as text.
fn contents(path: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(path).into_iter().flatten() {
        let path = entry.unwrap().path();
        text.push_str(&path.display().to_string());
        match path.is_dir() {
            true => text.push_str(&contents(&path)),
            false => text.push_str(&String::from_utf8_lossy(&fs::read(&path).unwrap())),
        }
    }
    text
}

fn assert_secret(scene: &Scene, output: &Output) {
    let mut told = contents(scene.directory.path());
    told.push_str(&String::from_utf8_lossy(&output.stdout));
    told.push_str(&String::from_utf8_lossy(&output.stderr));
    assert!(told.contains(REPOSITORY));
    assert!(!told.contains(TOKEN));
    assert!(!told.contains(SIGNATURE));
}

/// Who was sent a token.
fn assert_only_the_hub_knows(scene: &Scene) {
    let seen = scene.hub.seen();
    assert!(seen.iter().any(|seen| seen.role == Role::Storage));
    for seen in seen {
        let told =
            seen.headers.values().any(|value| value.contains(TOKEN)) || seen.path.contains(TOKEN);
        assert_eq!(told, seen.role == Role::Hub, "{seen:?}");
    }
}

#[test]
fn it_is_sent_to_the_hub_alone() {
    let scene = Scene::tiny();
    scene.hub.require(TOKEN);
    let output = with_token(&scene, &[]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_only_the_hub_knows(&scene);
    assert_secret(&scene, &output);
}

#[test]
fn another_port_is_another_place() {
    // The storage under the hub's own name: only the port differs.
    let scene = Scene::tiny();
    let storage = scene.hub.storage().replace("localhost", "127.0.0.1");
    scene.hub.script(move |seen| {
        let is_shard = seen.role == Role::Hub && seen.file().ends_with(".safetensors");
        let location = format!("{storage}/{}?Signature={SIGNATURE}", seen.file());
        is_shard.then(|| Fault::status(302).and_header("Location", location))
    });
    let output = with_token(&scene, &[]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_only_the_hub_knows(&scene);
}

#[test]
fn errors_tell_neither() {
    let astray = format!("http://user:{SIGNATURE}@localhost/x");
    let not_an_address = format!("http://local host/x?{SIGNATURE}");
    for fault in [
        Fault::status(403),
        Fault::status(404),
        Fault::header("Content-Range", "nothing"),
        Fault {
            ignores_range: true,
            ..Fault::default()
        },
        Fault::header("ETag", "\"other\""),
        Fault::status(302).and_header("Location", astray),
        Fault::status(302).and_header("Location", not_an_address),
    ] {
        let scene = Scene::tiny();
        scene.hub.require(TOKEN);
        scene
            .hub
            .fault(usize::MAX, |seen| seen.is_data(), fault.clone());
        let output = with_token(&scene, &[]);
        assert_eq!(output.status.code(), Some(2), "{fault:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said.lines().count(), 1, "{said}");
        assert_secret(&scene, &output);
        assert_only_the_hub_knows(&scene);
    }
}

#[test]
fn a_token_that_does_not_suffice_is_named() {
    let scene = Scene::tiny();
    scene.hub.require("another");
    let output = with_token(&scene, &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("to the owner of the token of HF_TOKEN (HTTP 401)"),
        "{said}"
    );
    assert!(!said.contains(TOKEN));
}

#[test]
fn it_is_not_sent_for_anybody_to_read() {
    let scene = Scene::tiny();
    let mut command = scene.command();
    command
        .args(["fetch", REPOSITORY, "--out", "out"])
        .env("HF_TOKEN", TOKEN);
    let output = command
        .env("HF_ENDPOINT", "http://hub.example")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("the token of HF_TOKEN would be sent to http://hub.example/ for anybody"),
        "{said}"
    );
}

#[test]
fn the_endpoint_of_the_environment() {
    let scene = Scene::tiny();
    let mut command = scene.command();
    command
        .args(["fetch", REPOSITORY, "--out", "out", "-q"])
        .env("HF_ENDPOINT", scene.hub.endpoint());
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.stderr.is_empty());
}
