//! Repositories that hold what they should not.

use std::{fs, path::Path};

use serde_json::json;

use crate::{
    scene::Scene,
    server::Fault,
    source::{read_header, read_json},
};

const SHARD: &str = "model-00002-of-00005.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// The sentence about a repository with another file in it.
fn with_file(name: &str, content: impl AsRef<[u8]>) -> String {
    let scene = Scene::changed(|files| replace(&files.join(name), content.as_ref()));
    scene.refused()
}

/// The files are links to those of others.
fn replace(path: &Path, content: &[u8]) {
    fs::remove_file(path).unwrap();
    fs::write(path, content).unwrap();
}

/// A shard of this header and as many bytes of data.
fn shard(header: &serde_json::Value, data: usize) -> Vec<u8> {
    let text = header.to_string();
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(text.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

#[test]
fn headers_of_absurd_length() {
    let mut bytes = u64::MAX.to_le_bytes().to_vec();
    bytes.extend_from_slice(b"{}");
    let error = with_file(SHARD, &bytes);
    assert!(
        error
            .contains("its header would have 18446744073709551615 bytes, above the format's limit"),
        "{error}"
    );
    let mut bytes = 99_000_000_u64.to_le_bytes().to_vec();
    bytes.extend_from_slice(b"{\"a\":{}}");
    let error = with_file(SHARD, &bytes);
    assert!(
        error.contains("it has 16 bytes, but its header alone ends at byte 99000008"),
        "{error}"
    );
    let error = with_file(SHARD, b"");
    assert!(error.contains("HTTP 416"), "{error}");
}

#[test]
fn headers_that_lie() {
    let entry = |begin: u64, end: u64| json!({ "dtype": "F32", "shape": [(end - begin) / 4], "data_offsets": [begin, end] });
    let error = with_file(
        SHARD,
        shard(&json!({ "a": entry(0, 8), "b": entry(4, 12) }), 12),
    );
    assert!(error.contains("'a' and 'b' overlap"), "{error}");
    let error = with_file(SHARD, shard(&json!({ "a": entry(0, 1 << 40) }), 12));
    assert!(
        error.contains("'a' ends at data byte 1099511627776, but only 12 bytes follow"),
        "{error}"
    );
    let overflow = json!({ "a": { "dtype": "F32", "shape": [1_u64 << 40, 1_u64 << 40], "data_offsets": [0, 12] } });
    let error = with_file(SHARD, shard(&overflow, 12));
    assert!(error.contains("overflows"), "{error}");
    let error = with_file(SHARD, shard(&json!({ "a": entry(0, 12) }), 12));
    assert!(error.contains("which does not hold it"), "{error}");
}

#[test]
fn files_of_other_kinds() {
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12345678901234\n";
    let error = with_file(SHARD, pointer);
    assert!(error.contains("it is a Git-LFS pointer"), "{error}");
    let error = with_file(INDEX, "<html>");
    assert!(error.contains("HTML"), "{error}");
}

#[test]
fn an_index_that_leaves_its_directory() {
    for file in ["../out/x", "/etc/passwd", "a/b.safetensors", "..", ""] {
        let index = json!({ "weight_map": { "layers.0.hc_attn_fn": file } });
        let error = with_file(INDEX, index.to_string());
        assert!(error.contains("which is not a plain file name"), "{error}");
    }
}

#[test]
fn an_index_that_would_overwrite_what_is_ours() {
    for file in ["config.json", "provenance.json", INDEX] {
        let index = json!({ "weight_map": { "layers.0.hc_attn_fn": file } });
        let error = with_file(INDEX, index.to_string());
        assert!(
            error.contains("which is not a .safetensors file"),
            "{error}"
        );
    }
}

#[test]
fn a_model_without_hyper_connections() {
    let index = json!({ "weight_map": { "model.layers.0.mlp.gate.weight": SHARD } });
    let error = with_file(INDEX, index.to_string());
    assert!(
        error.starts_with("org/model has no hyper-connection tensors"),
        "{error}"
    );
}

#[test]
fn a_file_that_is_not_the_one_the_hub_names() {
    let scene = Scene::tiny();
    let etag = "\"0123456789abcdef0123456789abcdef01234567\"";
    scene
        .hub
        .fault(9, |seen| seen.file() == INDEX, Fault::header("ETag", etag));
    let error = scene.refused();
    assert!(
        error.contains("came from 127.0.0.1 with another git hash than the hub names for it"),
        "{error}"
    );
}

#[test]
fn what_cannot_be_opened_is_not_published() {
    // One tensor of a layer less, and all else in order.
    let scene = Scene::changed(|files| {
        let path = files.join(INDEX);
        let mut index = read_json(&path);
        index["weight_map"]
            .as_object_mut()
            .unwrap()
            .remove("layers.1.hc_ffn_scale")
            .unwrap();
        replace(&path, index.to_string().as_bytes());
    });
    let error = scene.refused();
    assert!(error.contains("lacks layers.1.hc_ffn_scale"), "{error}");
}

#[test]
fn metadata_that_are_no_texts_are_left_out() {
    let scene = Scene::changed(|files| {
        let path = files.join(SHARD);
        let (start, mut header) = read_header(&path);
        header.insert(
            "__metadata__".to_owned(),
            json!({ "format": "pt", "n": 1, "list": [] }),
        );
        let text = serde_json::Value::Object(header).to_string();
        let whole = fs::read(&path).unwrap();
        let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(text.as_bytes());
        bytes.extend_from_slice(&whole[start as usize..]);
        replace(&path, &bytes);
    });
    scene.fetch().unwrap();
    let (_, header) = read_header(&scene.path("out").join(SHARD));
    assert_eq!(header["__metadata__"], json!({ "format": "pt" }));
}
