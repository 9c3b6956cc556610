//! What downloads, converters and attackers have produced. Names H… are rows of the list of known
//! faults of other loaders.

use std::{fs, os::unix::fs::symlink};

use serde_json::{Value, json};
use ulpdrift::checkpoint::{Checkpoint, NonFinite, Site, SourceKind};

use crate::support::{Directory, Raw, assert_refused, assert_sentence, ramp};

const FIRST: &str = "ckpt/model-00001-of-00005.safetensors";
const INDEX: &str = "ckpt/model.safetensors.index.json";
const CONFIG: &str = "ckpt/config.json";

#[test]
fn not_a_checkpoint_at_all() {
    let directory = Directory::new();
    assert_refused("", &["is empty"]);
    assert_refused(
        &directory.spec("nowhere"),
        &["no such file or directory", "synthetic:flash"],
    );
    assert_refused(&directory.spec(""), &["the directory is empty"]);
    directory.write("a/readme.txt", "hello");
    assert_refused(&directory.spec("a"), &["holds no weights"]);
    directory.write("b/pytorch_model.bin", "PK");
    assert_refused(&directory.spec("b"), &["PyTorch pickles"]);
    directory.write("c/model-q4.gguf", "GGUF");
    assert_refused(&directory.spec("c"), &["GGUF"]);
    directory.write("d/part.safetensors", "");
    assert_refused(&directory.spec("d"), &["1 .safetensors files", "no index"]);
    assert_refused("synthetic:huge", &["'huge'", "flash, pro, v4.1 and tiny"]);
}

#[test]
fn h1_header_above_the_cap() {
    let directory = Directory::new();
    let spec = directory.write("a.safetensors", 0x07df_9d40_u64.to_le_bytes());
    let file = fs::File::options().write(true).open(&spec).unwrap();
    file.set_len(200_000_000).unwrap();
    assert_refused(&spec, &["132095296 bytes", "limit of 100000000"]);
}

#[test]
fn h3_duplicate_names() {
    let directory = Directory::new();
    let raw = Raw::default().layer("layers.0.");
    let twice = raw
        .header_text()
        .replace("layers.0.hc_ffn_scale", "layers.0.hc_attn_scale");
    let spec = directory.write("a.safetensors", raw.bytes_with_header(&twice));
    assert_refused(&spec, &["'layers.0.hc_attn_scale' is named twice"]);

    let directory = Directory::tiny();
    let index = fs::read_to_string(directory.path(INDEX)).unwrap();
    directory.write(
        INDEX,
        index.replace("layers.0.hc_ffn_scale", "layers.0.hc_attn_scale"),
    );
    assert_refused(
        &directory.spec("ckpt"),
        &["'layers.0.hc_attn_scale' is named twice"],
    );
}

#[test]
fn h3_one_tensor_under_two_spellings() {
    let directory = Directory::new();
    let raw = Raw::default()
        .layer("layers.0.")
        .f32("model.layers.0.attn_hc.scale", &[3], &ramp(3));
    let spec = directory.write("a.safetensors", raw.bytes());
    assert_refused(
        &spec,
        &[
            "layers.0.hc_attn_scale",
            "model.layers.0.attn_hc.scale",
            "remove one",
        ],
    );
}

#[test]
fn h5_metadata_of_every_kind() {
    let directory = Directory::new();
    let raw = Raw::default().layer("layers.0.");
    let metadata = [
        json!({}),
        Value::Null,
        json!({"format": 7, "x": [1]}),
        json!("pt"),
        json!({
            "dtype": "F32", "shape": [1], "data_offsets": [0, 4]
        }),
    ];
    let files = metadata
        .into_iter()
        .map(|value| raw.clone().entry("__metadata__", value));
    for (number, file) in files.chain([raw.clone()]).enumerate() {
        let spec = directory.write(&format!("{number}.safetensors"), file.bytes());
        let checkpoint = Checkpoint::open(&spec).unwrap();
        assert_eq!(checkpoint.layers(), [0]);
        assert_eq!(checkpoint.kind(), SourceKind::Real);
    }
}

#[test]
fn h6_other_dtypes_beside_ours() {
    let directory = Directory::new();
    let raw = Raw::default()
        .tensor("a", "F8_E8M0", &[2], &[1, 2])
        .tensor("b", "F4", &[2, 8], &[0; 8])
        .tensor("c", "F4", &[2, 4], &[0; 8])
        .tensor("d", "F4", &[0, 8], &[])
        .tensor("e", "F8_E4M3", &[3], &[0; 3])
        .tensor("f", "F8_E5M2", &[3], &[0; 3])
        .tensor("g", "U64", &[1], &[0; 8])
        .tensor("h", "BOOL", &[2], &[0; 2])
        .tensor("i", "F6_E2M3", &[4], &[0; 3])
        .tensor("j", "F3_FANCY", &[4], &[0; 5])
        .layer("layers.0.");
    let checkpoint = Checkpoint::open(&directory.write("a.safetensors", raw.bytes())).unwrap();
    assert!(checkpoint.hc(0, Site::Attn, NonFinite::Refuse).is_ok());

    for dtype in ["I32", "U32", "F9_NEW"] {
        let raw = Raw::default().layer("layers.0.");
        let header = raw.header_text().replacen("F32", dtype, 1);
        let spec = directory.write("b.safetensors", raw.bytes_with_header(&header));
        assert_refused(&spec, &["layers.0.hc_attn_base", dtype, "F32, BF16 or F16"]);
    }
}

#[test]
fn h8_shape_against_bytes() {
    let directory = Directory::new();
    let cases = [
        (
            json!({"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 60]}),
            "needs 64 bytes",
        ),
        (
            json!({"dtype": "F32", "shape": [1_u64 << 40, 1_u64 << 40], "data_offsets": [0, 4]}),
            "overflows",
        ),
        (
            json!({"dtype": "F32", "shape": [u64::MAX], "data_offsets": [0, 4]}),
            "overflows",
        ),
        (
            json!({"dtype": "F32", "shape": [1], "data_offsets": [8, 4]}),
            "ends before it",
        ),
        (
            json!({"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}),
            "not a dtype, a shape",
        ),
        (
            json!({"dtype": "F32", "shape": [1]}),
            "not a dtype, a shape",
        ),
        (json!(7), "not a dtype, a shape"),
        (
            json!({"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}),
            "overlap",
        ),
    ];
    for (entry, phrase) in cases {
        let raw = Raw::default().layer("layers.0.").entry("extra", entry);
        let spec = directory.write("a.safetensors", raw.bytes());
        assert_refused(&spec, &["'extra'", phrase, "a.safetensors"]);
    }
}

#[test]
fn h10_too_short_and_lfs_pointers() {
    let directory = Directory::tiny();
    let lfs = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";
    for (bytes, phrase) in [
        ("", "is empty"),
        ("1234567", "7 bytes"),
        (lfs, "git lfs pull"),
    ] {
        directory.write(FIRST, bytes);
        assert_refused(&directory.spec("ckpt"), &["model-00001-of-00005", phrase]);
    }
    for (file, name) in [(INDEX, "index"), (CONFIG, "config.json")] {
        let directory = Directory::tiny();
        directory.write(file, lfs);
        assert_refused(&directory.spec("ckpt"), &[name, "git lfs pull"]);
    }
}

#[test]
fn h11_other_formats_under_our_name() {
    let directory = Directory::new();
    let npy = b"\x93NUMPY\x01\x00v\x00".as_slice();
    for (bytes, phrase) in [
        (
            b"PK\x03\x04\x14\x00\x08\x08\x08\x08".as_slice(),
            "zip archive",
        ),
        (b"PK\x03\x04\0\0\0\0\0\0", "zip archive"),
        (b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19", "pickle"),
        (b"GGUF\x03\0\0\0\x10\0\0\0\0\0\0\0", "GGUF"),
        (b"<!DOCTYPE html><html></html>", "HTML"),
        (npy, "NumPy"),
        (b"random text that is nothing", "limit"),
        (
            b"\x10\0\0\0\0\0\0\0not a json object",
            "does not begin with '{'",
        ),
        (b"\x02\0\0\0\0\0\0\0{]", "header"),
    ] {
        let spec = directory.write("model.safetensors", bytes);
        assert_refused(&spec, &["model.safetensors", phrase]);
    }
}

#[test]
fn h11_a_header_as_long_as_a_pickle_begins() {
    let directory = Directory::new();
    let raw = Raw::default().layer("layers.0.");
    let mut header = raw.header_text();
    let padding = 0x0280_usize
        .checked_sub(header.len() % 0x1_0000)
        .unwrap_or(0x1_0280 - header.len());
    header.push_str(&" ".repeat(padding));
    let bytes = raw.bytes_with_header(&header);
    assert_eq!(bytes[..2], [0x80, 0x02]);
    assert!(Checkpoint::open(&directory.write("a.safetensors", bytes)).is_ok());
}

#[test]
fn h13_index_names_more_than_the_shard_holds() {
    let directory = Directory::tiny();
    directory.edit_json(INDEX, |index| {
        index["weight_map"]["layers.1.hc_attn_fn"] = json!("model-00001-of-00005.safetensors");
    });
    assert_refused(
        &directory.spec("ckpt"),
        &["layers.1.hc_attn_fn", "00001", "does not hold it"],
    );

    // Not our business as long as it is none of our tensors; a note if it is a norm.
    let directory = Directory::tiny();
    directory.edit_json(INDEX, |index| {
        index["weight_map"]["mtp.fc.weight"] = json!("model-00009-of-00005.safetensors");
        index["weight_map"]["layers.1.attn_norm.weight"] =
            json!("model-00001-of-00005.safetensors");
    });
    let checkpoint = Checkpoint::open(&directory.spec("ckpt")).unwrap();
    assert_eq!(checkpoint.layers(), [0, 1, 2, 3]);
    assert!(
        checkpoint
            .model()
            .notes
            .iter()
            .any(|note| note.contains("layers.1.attn_norm.weight"))
    );
}

#[test]
fn h15_shard_holds_more_than_the_index_names() {
    let directory = Directory::tiny();
    directory.edit_json(INDEX, |index| {
        index["weight_map"]
            .as_object_mut()
            .unwrap()
            .remove("layers.1.hc_ffn_base");
    });
    assert_refused(
        &directory.spec("ckpt"),
        &["lacks layers.1.hc_ffn_base", "layer 1"],
    );
    let lenient = Checkpoint::open_for_inspection(&directory.spec("ckpt")).unwrap();
    assert_eq!(lenient.layers(), [0, 2, 3]);
    assert!(
        lenient
            .inventory()
            .missing
            .contains(&"layers.1.hc_ffn_base".to_owned())
    );
    let notes = lenient.model().notes.join("\n");
    assert!(notes.contains("layers.1.hc_ffn_base' is in") && notes.contains("not in the index"));
    let error = lenient
        .hc(1, Site::Attn, NonFinite::Refuse)
        .unwrap_err()
        .to_string();
    assert_sentence(&error, &["layers.1.hc_ffn_base"]);
}

#[test]
fn h15_quantised_weight_without_its_scale() {
    let directory = Directory::tiny();
    directory.edit_json(INDEX, |index| {
        index["weight_map"]
            .as_object_mut()
            .unwrap()
            .remove("layers.2.attn.indexer.wq_b.scale");
    });
    let checkpoint = Checkpoint::open(&directory.spec("ckpt")).unwrap();
    assert_eq!(
        checkpoint.inventory().missing,
        ["layers.2.attn.indexer.wq_b.scale"]
    );
}

#[test]
fn h16_half_the_shards() {
    let directory = Directory::tiny();
    for number in [2, 4] {
        fs::remove_file(directory.path(&format!("ckpt/model-0000{number}-of-00005.safetensors")))
            .unwrap();
    }
    assert_refused(
        &directory.spec("ckpt"),
        &["00002-of-00005", "2 of 5 shards", "finish the download"],
    );
    let lenient = Checkpoint::open_for_inspection(&directory.spec("ckpt")).unwrap();
    assert_eq!(lenient.layers(), [0, 2]);
}

#[test]
fn links_and_pipes() {
    let directory = Directory::tiny();
    let first = directory.path(FIRST);
    let blob = directory.path("blob");
    fs::rename(&first, &blob).unwrap();
    symlink("../blob", &first).unwrap();
    assert!(
        Checkpoint::open(&directory.spec("ckpt")).is_ok(),
        "a hub cache is made of links"
    );
    fs::remove_file(&blob).unwrap();
    assert_refused(
        &directory.spec("ckpt"),
        &["symbolic link to '../blob'", "does not exist"],
    );
    fs::remove_file(&first).unwrap();
    symlink(&first, &first).unwrap();
    assert_refused(&directory.spec("ckpt"), &["model-00001", "symbolic links"]);
    fs::remove_file(&first).unwrap();
    fs::create_dir(&first).unwrap();
    assert_refused(&directory.spec("ckpt"), &["is a directory"]);
    assert_refused("/dev/zero", &["not a regular file"]);
}

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
        drop(index.as_object_mut().unwrap().remove("metadata"))
    });
    assert!(Checkpoint::open(&directory.spec("ckpt")).is_ok());
}

#[test]
fn truncated_files() {
    let directory = Directory::tiny();
    let bytes = fs::read(directory.path(FIRST)).unwrap();
    for length in [100, bytes.len() - 1] {
        directory.write(FIRST, &bytes[..length]);
        assert_refused(&directory.spec("ckpt"), &["00001-of-00005", "truncated"]);
    }
}

#[test]
fn file_that_shrinks_while_open() {
    let directory = Directory::tiny();
    let checkpoint = Checkpoint::open(&directory.spec("ckpt")).unwrap();
    let file = fs::File::options()
        .write(true)
        .open(directory.path(FIRST))
        .unwrap();
    file.set_len(5000).unwrap();
    let error = checkpoint
        .hc(0, Site::Attn, NonFinite::Refuse)
        .unwrap_err()
        .to_string();
    assert_sentence(&error, &["truncated", "layers.0.hc_attn_"]);
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
    assert_eq!(
        model
            .notes
            .iter()
            .filter(|note| note.contains("no config.json"))
            .count(),
        3
    );
    assert_eq!(
        checkpoint.kind(),
        SourceKind::Synthetic,
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
