//! What downloads, converters and attackers have produced. Names H… are rows of the list of known
//! faults of other loaders.

use std::{fs, os::unix::fs::symlink};

use serde_json::{Value, json};
use ulpdrift::checkpoint::{Checkpoint, NonFinite, Site, WeightKind};

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
    assert_refused(&directory.spec("d"), &["part.safetensors", "it is empty"]);
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
        assert_eq!(checkpoint.kind(), WeightKind::Real);
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

    for (dtype, shown) in [
        ("I32", "'I32'"),
        ("U32", "'U32'"),
        ("F9_NEW", "'F9_NEW'"),
        // A control character that JSON lets through.
        ("\u{7f}32", r"'\u{7f}32'"),
    ] {
        let raw = Raw::default().layer("layers.0.");
        let header = raw.header_text().replacen("F32", dtype, 1);
        let spec = directory.write("b.safetensors", raw.bytes_with_header(&header));
        assert_refused(&spec, &["layers.0.hc_attn_base", shown, "F32, BF16 or F16"]);
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
