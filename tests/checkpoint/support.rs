//! Safetensors files written byte by byte, so that they can be wrong.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value, json};
use ulpdrift::checkpoint::{Checkpoint, SyntheticModel, write_synthetic};

/// A file under construction; its header can be overridden.
#[derive(Clone, Default)]
pub struct Raw {
    header: Map<String, Value>,
    data: Vec<u8>,
}

impl Raw {
    /// Appends a tensor.
    pub fn tensor(mut self, name: &str, dtype: &str, shape: &[u64], bytes: &[u8]) -> Self {
        let begin = self.data.len();
        self.data.extend_from_slice(bytes);
        let offsets = [begin, self.data.len()];
        let entry = json!({ "dtype": dtype, "shape": shape, "data_offsets": offsets });
        self.header.insert(name.to_owned(), entry);
        self
    }

    /// Appends an F32 tensor.
    pub fn f32(self, name: &str, shape: &[u64], values: &[f32]) -> Self {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.tensor(name, "F32", shape, &bytes)
    }

    /// Appends the hyper-connection tensors of one layer for hidden size 8.
    pub fn layer(mut self, prefix: &str) -> Self {
        for site in ["attn", "ffn"] {
            let name = |part: &str| format!("{prefix}hc_{site}_{part}");
            self = self
                .f32(&name("fn"), &[24, 32], &ramp(24 * 32))
                .f32(&name("base"), &[24], &ramp(24))
                .f32(&name("scale"), &[3], &ramp(3));
        }
        self
    }

    /// Sets a header entry, the metadata for example.
    pub fn entry(mut self, name: &str, value: Value) -> Self {
        self.header.insert(name.to_owned(), value);
        self
    }

    /// The header's text.
    pub fn header_text(&self) -> String {
        Value::Object(self.header.clone()).to_string()
    }

    /// The file's bytes.
    pub fn bytes(&self) -> Vec<u8> {
        self.bytes_with_header(&self.header_text())
    }

    /// The file's bytes with another header.
    pub fn bytes_with_header(&self, header: &str) -> Vec<u8> {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(&self.data);
        bytes
    }
}

/// Distinct, small, exact in every format of at least 8 significant bits.
pub fn ramp(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i % 128) as f32 / 64.0 - 1.0).collect()
}

/// A directory that goes away with the test.
pub struct Directory(tempfile::TempDir);

impl Directory {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A written tiny checkpoint.
    pub fn tiny() -> Self {
        let directory = Self::new();
        write_synthetic(
            &directory.path("ckpt"),
            SyntheticModel::Tiny,
            &[0, 1, 2, 3],
            0,
        )
        .unwrap();
        directory
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        text(&path)
    }

    /// Changes the JSON file `name`.
    pub fn edit_json(&self, name: &str, edit: impl FnOnce(&mut Value)) {
        let mut value = serde_json::from_slice(&fs::read(self.path(name)).unwrap()).unwrap();
        edit(&mut value);
        self.write(name, value.to_string());
    }

    pub fn spec(&self, name: &str) -> String {
        text(&self.path(name))
    }
}

pub fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// The sentence a checkpoint is refused with: one line, and it must contain all of `phrases`.
#[track_caller]
pub fn assert_refused(spec: &str, phrases: &[&str]) {
    let error = Checkpoint::open(spec).expect_err("this must not open");
    assert_sentence(&error.to_string(), phrases);
}

#[track_caller]
pub fn assert_sentence(sentence: &str, phrases: &[&str]) {
    println!("{sentence}");
    assert!(
        !sentence.chars().any(char::is_control),
        "control characters in: {sentence}"
    );
    for phrase in phrases {
        assert!(sentence.contains(phrase), "no '{phrase}' in: {sentence}");
    }
}
