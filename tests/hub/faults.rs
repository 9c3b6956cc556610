//! What a hub and the way to it can do wrong: what passes is waited for, the rest is one sentence.

use std::{
    fs,
    time::{Duration, Instant},
};

use crate::{
    scene::{Scene, tiny},
    server::{Fault, Role, Seen},
    source::read_json,
};

fn is_data(seen: &Seen) -> bool {
    seen.is_data()
}

/// A fetch that has to cope with a fault some times, and does.
fn copes(times: usize, applies: impl Fn(&Seen) -> bool + Send + 'static, fault: Fault) -> Scene {
    let scene = Scene::tiny();
    scene.hub.fault(times, applies, fault);
    let fetched = scene.fetch().unwrap();
    let whole = read_json(&tiny().join("plain/model.safetensors.index.json"));
    assert!(
        fetched.tensors > 0 && fetched.tensors < whole["weight_map"].as_object().unwrap().len()
    );
    assert_same(&scene);
    scene
}

/// What came is what comes from a hub in order.
fn assert_same(scene: &Scene) {
    let good = Scene::tiny();
    good.fetch().unwrap();
    for entry in fs::read_dir(good.path("out")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name != "provenance.json" {
            let read = |scene: &Scene| fs::read(scene.path("out").join(&name)).unwrap();
            assert!(read(scene) == read(&good), "{name}");
        }
    }
}

/// The sentence about a fault that does not pass.
fn refused(applies: impl Fn(&Seen) -> bool + Send + 'static, fault: Fault) -> String {
    let scene = Scene::tiny();
    scene.hub.fault(usize::MAX, applies, fault);
    scene.refused()
}

#[test]
fn what_passes() {
    for status in [408, 429, 500, 502, 503, 504] {
        copes(3, is_data, Fault::status(status));
        copes(2, |seen| seen.role == Role::Hub, Fault::status(status));
    }
    copes(
        5,
        |_| true,
        Fault {
            reset: true,
            ..Fault::default()
        },
    );
}

#[test]
fn answers_that_break_off_are_continued() {
    let is_long = |seen: &Seen| {
        seen.is_data()
            && seen
                .range()
                .is_some_and(|(first, last)| last - first >= 1000)
    };
    let scene = copes(20, is_long, Fault::cut(1000));
    // What came before the end was not sent again.
    let ranges = scene.hub.seen();
    let ranges: Vec<(u64, u64)> = ranges
        .iter()
        .filter(|seen| seen.is_data())
        .filter_map(Seen::range)
        .collect();
    let continued = |&(begin, end): &(u64, u64)| ranges.contains(&(begin + 1000, end));
    assert!(ranges.iter().filter(|range| continued(range)).count() >= 15);
    copes(
        3,
        |seen| seen.file() == "config.json" && seen.method == "GET",
        Fault::cut(10),
    );
    copes(3, |seen| seen.range() == Some((0, 63)), Fault::cut(10));
}

#[test]
fn a_server_says_how_long_to_wait() {
    let scene = Scene::tiny();
    scene.hub.fault(
        1,
        is_data,
        Fault::status(429).and_header("Retry-After", "1"),
    );
    let began = Instant::now();
    scene.fetch().unwrap();
    assert!(began.elapsed() >= Duration::from_secs(1));
}

#[test]
fn a_wait_that_is_too_long() {
    let error = refused(
        is_data,
        Fault::status(429).and_header("Retry-After", "3600"),
    );
    assert!(
        error.contains("HTTP 429 and asks to wait 3600 s"),
        "{error}"
    );
    assert!(
        error.contains("run the same command later to continue"),
        "{error}"
    );
}

/// Longer than a clock counts, behind a wait that has taken time.
#[test]
fn a_wait_without_end() {
    let scene = Scene::tiny();
    let mut answers = ["1", "18446744073709551615"].into_iter();
    scene.hub.script(move |seen| {
        let wait = is_data(seen).then(|| answers.next()).flatten()?;
        Some(Fault::status(503).and_header("Retry-After", wait))
    });
    let mut request = scene.request();
    request.jobs = 1;
    let error = scene
        .fetch_with(&request)
        .expect_err("too long")
        .to_string();
    assert!(
        error.contains("asks to wait 18446744073709551615 s"),
        "{error}"
    );
}

#[test]
fn patience_ends() {
    let error = refused(is_data, Fault::status(503));
    assert!(
        error.contains("localhost answers HTTP 503, and the same again for"),
        "{error}"
    );
}

#[test]
fn a_server_that_dies_ten_times() {
    let scene = Scene::tiny();
    let mut requests = 0;
    let mut deaths = 0;
    scene.hub.script(move |seen| {
        requests += usize::from(seen.is_data());
        let dies = seen.is_data() && requests % 3 == 0 && deaths < 10;
        deaths += usize::from(dies);
        dies.then(|| Fault {
            cut: Some(500),
            dead_for: Some(Duration::from_millis(60)),
            ..Fault::default()
        })
    });
    scene.fetch().unwrap();
    assert_eq!(scene.hub.deaths(), 10);
    assert_same(&scene);
}

#[test]
fn a_signature_that_has_run_out_is_renewed() {
    let scene = Scene::tiny();
    let mut expired = Vec::new();
    scene.hub.script(move |seen| {
        let expires = seen.is_data() && expired.len() < 4 && !expired.contains(&seen.range());
        expired.extend(expires.then(|| seen.range()));
        expires.then(|| Fault::status(403))
    });
    // One at a time: of two, one may be refused with the signature that the other has just been given.
    let mut request = scene.request();
    request.jobs = 1;
    scene.fetch_with(&request).unwrap();
    assert_same(&scene);
    let asked = scene.hub.seen();
    let of_shards = |seen: &&Seen| seen.role == Role::Hub && seen.file().ends_with(".safetensors");
    assert!(asked.iter().filter(of_shards).count() > 5);
    let error = refused(|seen| seen.role == Role::Storage, Fault::status(403));
    assert!(error.contains("localhost answers HTTP 403"), "{error}");
}

#[test]
fn ranges_ignored() {
    let error = refused(
        is_data,
        Fault {
            ignores_range: true,
            ..Fault::default()
        },
    );
    assert!(
        error.starts_with("localhost answers a request for a part of model-0000"),
        "{error}"
    );
    assert!(error.contains("with the whole of it"), "{error}");
}

#[test]
fn a_file_that_changes_on_the_way() {
    let error = refused(is_data, Fault::header("ETag", "\"another\""));
    assert!(
        error.contains("is not the file it was when this fetch began: its ETag is another one"),
        "{error}"
    );
    let error = refused(
        |seen| seen.is_data() && seen.file().contains("00002"),
        Fault::header("Content-Range", "bytes 0-63/64"),
    );
    assert!(
        error.contains("(Content-Length) that it calls bytes 0 to 63"),
        "{error}"
    );
}

#[test]
fn a_file_that_grows_on_the_way() {
    let scene = Scene::tiny();
    let mut answered = false;
    scene.hub.script(move |seen| {
        let (first, last) = seen.range().filter(|_| seen.is_data() && !answered)?;
        answered = true;
        Some(Fault::header(
            "Content-Range",
            format!("bytes {first}-{last}/999999999999"),
        ))
    });
    let error = scene.refused();
    assert!(
        error.contains("it has 999999999999 bytes, and had"),
        "{error}"
    );
    assert!(error.contains("out.part and fetch again"), "{error}");
}

#[test]
fn answers_that_are_not_what_was_asked_for() {
    let error = refused(is_data, Fault::header("Content-Range", ""));
    assert!(
        error.contains("does not say which (Content-Range)"),
        "{error}"
    );
    let error = refused(is_data, Fault::header("Content-Range", "bytes */100"));
    assert!(
        error.contains("does not say which (Content-Range)"),
        "{error}"
    );
    let error = refused(is_data, Fault::header("Content-Length", "7"));
    assert!(
        error.contains("7 bytes (Content-Length) that it calls bytes"),
        "{error}"
    );
    let error = refused(is_data, Fault::header("Content-Encoding", "gzip"));
    assert!(
        error.contains("content in the encoding \"gzip\", which nobody asked for"),
        "{error}"
    );
    let scene = Scene::tiny();
    scene.hub.script(|seen| {
        let (first, last) = seen.range().filter(|_| seen.is_data())?;
        let size = 1_u64 << 40;
        let said = format!("bytes {}-{}/{size}", first + 8, last + 8);
        Some(Fault::header("Content-Range", said))
    });
    let error = scene.refused();
    assert!(error.contains("(Content-Range) where bytes"), "{error}");
}

#[test]
fn redirects_that_lead_astray() {
    let leads_to = |location: &str| Fault::status(302).and_header("Location", location);
    let of_shards = |seen: &Seen| seen.role == Role::Hub && seen.file().ends_with(".safetensors");
    for (location, found) in [
        ("", "it does not say where"),
        ("file:///etc/passwd", "it is not an address"),
        (
            "ftp://localhost/x",
            "it does not begin with https:// or http://",
        ),
        (
            "http://user:word@localhost/x",
            "it holds a user or a password",
        ),
        (
            "/org/model/resolve/main/model.safetensors",
            "there is no end after 5 redirects",
        ),
    ] {
        let error = refused(of_shards, leads_to(location));
        assert!(error.contains(found), "{error}");
    }
}

#[test]
fn what_the_hub_does_not_show() {
    let error = refused(|_| true, Fault::status(401));
    assert!(
        error.contains("127.0.0.1 does not show org/model without a token (HTTP 401)"),
        "{error}"
    );
    assert!(
        error.contains("set HF_TOKEN to a token of somebody who may read it"),
        "{error}"
    );
    let error = refused(|_| true, Fault::status(403));
    assert!(error.contains("(HTTP 403)"), "{error}");
    let named = |repository: &str| {
        let scene = Scene::tiny();
        let mut request = scene.request();
        request.repository = repository.parse().unwrap();
        scene
            .fetch_with(&request)
            .expect_err("nothing there")
            .to_string()
    };
    assert_eq!(
        named("org/other"),
        "127.0.0.1 has no repository org/other; check the name"
    );
    assert_eq!(
        named("org/model@v9"),
        "127.0.0.1 has no such revision of org/model; name a branch, a tag or a commit behind the @"
    );
    let error = refused(|_| true, Fault::header("X-Repo-Commit", ""));
    assert!(
        error.contains("does not say which commit \"main\" is"),
        "{error}"
    );
}

#[test]
fn nobody_there() {
    let scene = Scene::tiny();
    let mut request = scene.request();
    // The discard port of this machine, where nobody listens.
    request.endpoint = "http://127.0.0.1:9".to_owned();
    let error = scene.fetch_with(&request).expect_err("nobody").to_string();
    assert!(error.starts_with("config.json cannot be had: "), "{error}");
}
