//! Indexes, configurations and tensors that are well-formed and still cannot be right.

use std::fs;

use serde_json::json;
use ulpdrift::checkpoint::{Checkpoint, NonFinite, Site, WeightKind};

use crate::support::{Directory, Raw, assert_refused, assert_sentence, ramp};

const INDEX: &str = "ckpt/model.safetensors.index.json";
const CONFIG: &str = "ckpt/config.json";

#[test]
fn index_that_points_elsewhere() {
    for file in [
        "../secret.safetensors",
        "/etc/passwd",
        "a/b.safetensors",
        "..",
        "",
        "a\\b",
    ] {
        let directory = Directory::tiny();
        directory.edit_json(INDEX, |index| index["weight_map"]["x"] = json!(file));
        assert_refused(
            &directory.spec("ckpt"),
            &["not a plain file name", "do not trust"],
        );
    }
}

#[test]
fn index_that_is_none() {
    for (text, phrase) in [
        ("", "EOF"),
        ("[]", "expected an object with a weight_map"),
        ("{}", "weight_map"),
        (r#"{"weight_map": {}}"#, "is empty"),
        (r#"{"weight_map": {"a": 3}}"#, "'a'"),
        (
            r#"{"weight_map": {"layers.0.hc_attn_fn": "\u001b[2J"}}"#,
            "\\u{1b}",
        ),
    ] {
        let directory = Directory::tiny();
        directory.write(INDEX, text);
        assert_refused(&directory.spec("ckpt"), &[phrase]);
    }
}

#[test]
fn index_without_metadata() {
    let directory = Directory::tiny();
    directory.edit_json(INDEX, |index| {
        drop(index.as_object_mut().unwrap().remove("metadata"));
    });
    assert!(Checkpoint::open(&directory.spec("ckpt")).is_ok());
}

#[test]
fn no_hyper_connections() {
    let directory = Directory::new();
    let raw = Raw::default().f32("model.layers.0.mlp.up_proj.weight", &[2, 2], &ramp(4));
    directory.write("a/model.safetensors", raw.bytes());
    assert_refused(
        &directory.spec("a"),
        &["no hyper-connection tensors", "1 tensors"],
    );
    directory.write("a/config.json", r#"{"model_type": "llama"}"#);
    assert_refused(
        &directory.spec("a"),
        &["llama", "without hyper-connections"],
    );
}

#[test]
fn wrong_shapes() {
    let directory = Directory::new();
    for (name, shape, phrases) in [
        (
            "layers.0.hc_attn_fn",
            vec![23, 32],
            ["[23, 32]", "[24, 4·hidden]"],
        ),
        (
            "layers.0.hc_attn_fn",
            vec![24, 30],
            ["[24, 30]", "four streams"],
        ),
        ("layers.0.hc_attn_fn", vec![24], ["[24]", "[24, 4·hidden]"]),
        (
            "layers.0.hc_ffn_fn",
            vec![24, 64],
            ["[24, 64]", "expected [24, 32]"],
        ),
        ("layers.0.hc_ffn_base", vec![16], ["[16]", "expected [24]"]),
        ("layers.0.hc_attn_scale", vec![1], ["[1]", "expected [3]"]),
        ("layers.0.hc_attn_scale", vec![], ["[]", "expected [3]"]),
    ] {
        let count = shape.iter().product::<u64>() as usize;
        let raw = Raw::default()
            .layer("layers.0.")
            .f32(name, &shape, &ramp(count));
        let spec = directory.write("a.safetensors", raw.bytes());
        assert_refused(&spec, &[name, phrases[0], phrases[1]]);
    }
}

#[test]
fn config_against_tensors() {
    for (key, value, phrases) in [
        (
            "hidden_size",
            json!(4096),
            ["hidden_size = 4096", "[24, 1024]"],
        ),
        ("hc_mult", json!(2), ["hc_mult = 2", "[24, 1024]"]),
        (
            "num_hidden_layers",
            json!(3),
            ["num_hidden_layers = 3", "layer 3"],
        ),
        (
            "q_lora_rank",
            json!(96),
            ["q_lora_rank = 96", "[1024, 128]"],
        ),
        (
            "index_n_heads",
            json!(64),
            ["index_n_heads = 64", "[8, 256]"],
        ),
        (
            "index_head_dim",
            json!(64),
            ["index_head_dim = 64", "[1024, 128]"],
        ),
        ("hc_eps", json!("1e-6"), ["hc_eps", "a number from 0 to 1"]),
        ("hc_eps", json!(-1e-6), ["hc_eps", "a number from 0 to 1"]),
        (
            "hc_sinkhorn_iters",
            json!(0),
            ["hc_sinkhorn_iters is '0'", "from 1 to 1000"],
        ),
        ("rms_norm_eps", json!(true), ["rms_norm_eps", "'true'"]),
    ] {
        let directory = Directory::tiny();
        directory.edit_json(CONFIG, |config| config[key] = value);
        assert_refused(&directory.spec("ckpt"), &phrases);
    }
    for (text, phrase) in [("", "EOF"), ("[]", "not a JSON object"), ("{", "EOF")] {
        let directory = Directory::tiny();
        directory.write(CONFIG, text);
        assert_refused(&directory.spec("ckpt"), &["config.json", phrase]);
    }
}

#[test]
fn no_config_means_documented_values_and_a_note() {
    let directory = Directory::tiny();
    fs::remove_file(directory.path(CONFIG)).unwrap();
    let checkpoint = Checkpoint::open(&directory.spec("ckpt")).unwrap();
    let model = checkpoint.model();
    assert_eq!(
        (model.sinkhorn_iters, model.hc_eps, model.norm_eps),
        (20, 1e-6, 1e-6)
    );
    assert_eq!((model.weight_block, model.swiglu_limit), ([128; 2], 10.0));
    assert_eq!(
        model
            .notes
            .iter()
            .filter(|note| note.contains("no config.json"))
            .count(),
        6
    );
    assert_eq!(
        checkpoint.kind(),
        WeightKind::Synthetic,
        "the shards say so themselves"
    );
}

#[test]
fn nonfinite_weights() {
    let directory = Directory::new();
    let mut values = ramp(24 * 32);
    (values[40], values[100]) = (f32::NAN, f32::NEG_INFINITY);
    let raw = Raw::default()
        .layer("layers.0.")
        .f32("layers.0.hc_ffn_fn", &[24, 32], &values);
    let spec = directory.write("a.safetensors", raw.bytes());
    let checkpoint = Checkpoint::open(&spec).unwrap();
    assert!(checkpoint.hc(0, Site::Attn, NonFinite::Refuse).is_ok());
    let error = checkpoint
        .hc(0, Site::Ffn, NonFinite::Refuse)
        .unwrap_err()
        .to_string();
    assert_sentence(
        &error,
        &[
            "2 non-finite values of 768",
            "index 40",
            "--allow-nonfinite",
        ],
    );
    let allowed = checkpoint.hc(0, Site::Ffn, NonFinite::Allow).unwrap();
    assert!(allowed.function[[1, 8]].is_nan());
    assert_eq!(allowed.function[[3, 4]], f32::NEG_INFINITY);
}

#[test]
fn missing_layer() {
    let checkpoint = Checkpoint::open("synthetic:tiny").unwrap();
    let error = checkpoint
        .hc(99, Site::Attn, NonFinite::Refuse)
        .unwrap_err()
        .to_string();
    assert_sentence(&error, &["layer 99", "0-3"]);
}

#[test]
fn absurd_hidden_size_allocates_nothing() {
    let directory = Directory::new();
    let (width, rows) = (1_u64 << 32, 24_u64);
    let end = width * rows * 4;
    let raw = Raw::default().entry(
        "layers.0.hc_attn_fn",
        json!({"dtype": "F32", "shape": [rows, width], "data_offsets": [0, end]}),
    );
    let spec = directory.write("a.safetensors", raw.bytes());
    let file = fs::File::options().write(true).open(&spec).unwrap();
    file.set_len(end + 4096).unwrap();
    assert_refused(
        &spec,
        &["four streams of the same hidden size, at most 1048576"],
    );
}
