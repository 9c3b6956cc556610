//! `model.safetensors.index.json`: which shard holds which tensor.

use std::{
    collections::BTreeSet,
    path::{Component, Path},
};

use serde_json::{Value, json};
use ulpdrift::checkpoint::{CheckpointError, formats::Index};

use super::{Outcome, refusal::refused, sometimes};

/// Whatever an index names is a file beside it, and no name is lost or kept twice.
pub fn checkpoint_index(text: &[u8]) -> Outcome {
    let index = match parse(text, &|_| true) {
        Ok(index) => index,
        Err(error) => return refused(error),
    };
    assert!(index.total > 0, "an index of nothing");
    assert_eq!(index.weight_map.len(), index.total, "a tensor is lost");
    let named: BTreeSet<&String> = index.weight_map.values().collect();
    assert!(named.into_iter().eq(&index.files), "other files");
    for file in &index.files {
        stays(file);
    }

    if !sometimes(text, 4) {
        return Outcome::Accepted;
    }
    let none = parse(text, &|_| false).expect("it is the same index");
    assert!(none.weight_map.is_empty());
    assert_eq!((none.total, &none.files), (index.total, &index.files));

    let again = json!({ "metadata": {}, "weight_map": index.weight_map }).to_string();
    let again = parse(again.as_bytes(), &|_| true).expect("what was read can be written");
    assert_eq!(again.weight_map, index.weight_map);
    // Beside a reader that keeps everything; it refuses what we do not read.
    if let Ok(whole) = serde_json::from_slice::<Value>(text) {
        assert_eq!(whole["weight_map"], json!(index.weight_map));
    }
    Outcome::Accepted
}

fn parse(text: &[u8], keep: &dyn Fn(&str) -> bool) -> Result<Index, CheckpointError> {
    Index::parse(Path::new("model.safetensors.index.json"), text, keep)
}

/// A name that is a file of its directory, here and elsewhere.
fn stays(file: &str) {
    let mut parts = Path::new(file).components();
    let is_one = matches!(parts.next(), Some(Component::Normal(name)) if name == file)
        && parts.next().is_none();
    assert!(
        is_one && !file.contains(['/', '\\', ':', '\0']),
        "{file:?} is no plain file name"
    );
}
