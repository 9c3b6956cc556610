//! What `inspect` shows, and what it does not read.

use std::{fs, time::Instant};

use serde_json::json;
use ulpdrift::{
    cli::inspect::{InspectArgs, Only, render},
    report::style,
};

use crate::support::{Directory, Raw, ramp};

fn inspect(spec: &str, only: Option<Only>) -> String {
    let text = render(&InspectArgs {
        checkpoint: spec.to_owned(),
        only,
        against: None,
    })
    .unwrap();
    let text = style::plain(&text);
    println!("{text}");
    text
}

/// All lines but the first, which names the checkpoint, fit a terminal.
#[track_caller]
fn assert_fits(text: &str) {
    for line in text.lines().skip(1) {
        assert!(
            line.starts_with("note:") || line.chars().count() <= 80,
            "too wide: {line}"
        );
    }
}

#[test]
fn tiny_in_full() {
    let text = inspect("synthetic:tiny", None);
    assert_fits(&text);
    assert!(text.starts_with("synthetic:tiny: SYNTHETIC weights\n"));
    assert!(text.contains("family other, hidden 256, 4 streams (K = 1024), 4 of 4 layers"));
    assert!(text.contains("F8_E4M3 values are codes"));
    assert!(text.ends_with("missing: nothing\n"));
    assert_eq!(text.matches("hc_attn_fn").count(), 4);
    assert_eq!(text.matches("attn.indexer.wq_b.weight").count(), 1);
    assert!(text.contains("hc_head_fn"));
}

#[test]
fn one_kind_only() {
    let hc = inspect("synthetic:tiny", Some(Only::Hc));
    assert!(hc.contains("hc_attn_fn") && hc.contains("hc_head_fn") && !hc.contains("norm.weight"));
    let norms = inspect("synthetic:tiny", Some(Only::Norms));
    assert!(norms.contains("ffn_norm.weight") && !norms.contains("hc_attn"));
    let indexer = inspect("synthetic:tiny", Some(Only::Indexer));
    assert!(indexer.contains("indexer.compressor.ape") && !indexer.contains("layer 1"));
}

#[test]
fn nonfinite_lossy_and_missing() {
    let directory = Directory::new();
    let mut values = ramp(24);
    values[3] = f32::NAN;
    let raw = Raw::default()
        .layer("layers.0.")
        .f32("layers.0.hc_attn_base", &[24], &values)
        .tensor("layers.0.hc_attn_fn", "BF16", &[24, 32], &[0; 24 * 32 * 2])
        .tensor("layers.0.attn_norm.weight", "I8", &[8], &[0; 8]);
    let text = inspect(&directory.write("a.safetensors", raw.bytes()), None);
    assert_fits(&text);
    assert!(text.contains(": REAL weights"));
    assert!(text.contains("non-finite: layers.0.hc_attn_base in a.safetensors"));
    assert!(text.contains("1 hc_fn are stored as BF16: already a loss"));
    assert!(text.contains("missing: layers.0.ffn_norm.weight"));
    assert!(text.contains("missing: hc_head_fn"));
    let hc = inspect(&directory.spec("a.safetensors"), Some(Only::Hc));
    assert!(hc.contains("missing: hc_head_fn") && !hc.contains("norm.weight"));
    assert!(text.contains("note: no config.json: hc_eps 1e-6 assumed"));
}

#[test]
fn long_names_keep_their_columns() {
    let directory = Directory::new();
    let name = "model.layers.0.self_attn.compressor.indexer.weights_proj.weight";
    let raw = Raw::default()
        .layer("model.layers.0.")
        .f32(name, &[2, 8], &ramp(16));
    let text = inspect(
        &directory.write("a.safetensors", raw.bytes()),
        Some(Only::Indexer),
    );
    assert_fits(&text);
    assert!(text.contains("self_attn.compressor.indexer.weights_proj.weight\n"));
}

/// Peak resident memory of this process, in kilobytes.
fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_300_gigabyte_shard_costs_nothing() {
    const SIZE: u64 = 300_000_000_000;
    let directory = Directory::tiny();
    let spec = directory.spec("ckpt");
    let before = Instant::now();
    let without = inspect(&spec, None);
    let before = before.elapsed();

    // The first shard gets 300 GB of experts behind its own tensors.
    let shard = "ckpt/model-00001-of-00005.safetensors";
    let bytes = fs::read(directory.path(shard)).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let mut header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let data = &bytes[8 + length..];
    header["layers.0.ffn.experts"] = json!({
        "dtype": "U8",
        "shape": [SIZE],
        "data_offsets": [data.len(), data.len() as u64 + SIZE],
    });
    let header = header.to_string();
    let mut grown = (header.len() as u64).to_le_bytes().to_vec();
    grown.extend_from_slice(header.as_bytes());
    grown.extend_from_slice(data);
    directory.write(shard, &grown);
    let file = fs::File::options()
        .write(true)
        .open(directory.path(shard))
        .unwrap();
    file.set_len(grown.len() as u64 + SIZE).unwrap();
    directory.edit_json("ckpt/model.safetensors.index.json", |index| {
        index["weight_map"]["layers.0.ffn.experts"] = json!("model-00001-of-00005.safetensors");
    });

    let memory = peak_memory();
    let after = Instant::now();
    let with = inspect(&spec, None);
    let after = after.elapsed();
    assert_eq!(with, without);
    assert!(
        after < 5 * before + std::time::Duration::from_secs(2),
        "{before:?} → {after:?}"
    );
    assert!(
        peak_memory() < memory + 128_000,
        "{memory} → {} kB",
        peak_memory()
    );
}
