//! A checkpoint as it lies on a hub: the tensors of a synthetic one, between others that nobody wants, in as many sparse
//! shards as asked for.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
};

use serde_json::{Value, json};
use ulpdrift::checkpoint::{Group, SyntheticModel, parse_layers, write_synthetic};

/// Bytes between the wanted tensors: what is joined, what is not, and what makes a checkpoint large.
const FILLERS: [u64; 4] = [256, 16 << 10, 1 << 20, 8 << 20];

/// A tensor of the checkpoint that the hub's is made of.
struct Tensor {
    name: String,
    entry: Value,
    bytes: Vec<u8>,
}

/// Writes all layers of a model to `plain`, and to `hub` the same in `shards` shards.
pub fn write(plain: &Path, hub: &Path, model: SyntheticModel, shards: usize) {
    let layers = parse_layers(&model.layers().to_string(), model.layers()).unwrap();
    write_synthetic(plain, model, &layers, 0).unwrap();
    spread(plain, hub, shards);
}

/// Spreads a checkpoint over other shards.
pub fn spread(plain: &Path, hub: &Path, shards: usize) {
    fs::create_dir(hub).unwrap();
    let index: Value = read_json(&plain.join("model.safetensors.index.json"));
    let map = index["weight_map"].as_object().unwrap();
    let mut files: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, file) in map {
        files.entry(file.as_str().unwrap()).or_default().push(name);
    }
    // As many to each shard, give or take one.
    let share = |number: usize| map.len() * (number + 1) / shards - map.len() * number / shards;
    let mut weight_map = serde_json::Map::new();
    let mut waiting: Vec<Tensor> = Vec::new();
    let mut number = 0;
    for (file, names) in &files {
        waiting.extend(read_tensors(&plain.join(file), names));
        while number < shards && waiting.len() >= share(number) {
            let rest = waiting.split_off(share(number));
            number += 1;
            let file = format!("model-{number:05}-of-{shards:05}.safetensors");
            for name in write_shard(&hub.join(&file), number, &waiting) {
                weight_map.insert(name, json!(file));
            }
            waiting = rest;
        }
    }
    let index = json!({ "metadata": {}, "weight_map": weight_map });
    fs::write(hub.join("model.safetensors.index.json"), index.to_string()).unwrap();
    fs::copy(plain.join("config.json"), hub.join("config.json")).unwrap();
}

fn read_tensors(path: &Path, names: &[&str]) -> Vec<Tensor> {
    let (start, header) = read_header(path);
    let file = File::open(path).unwrap();
    names
        .iter()
        .map(|name| {
            let entry = header[*name].clone();
            let [begin, end] = offsets(&entry);
            let mut bytes = vec![0; (end - begin) as usize];
            file.read_exact_at(&mut bytes, start + begin).unwrap();
            Tensor {
                name: (*name).to_owned(),
                entry,
                bytes,
            }
        })
        .collect()
}

/// Writes a shard with something unwanted behind each tensor, as a hole; returns all names in it.
fn write_shard(path: &Path, number: usize, tensors: &[Tensor]) -> Vec<String> {
    let mut header = serde_json::Map::new();
    header.insert(
        "__metadata__".to_owned(),
        json!({ "format": "pt", "ulpdrift_synthetic": "spread over shards" }),
    );
    let (mut position, mut places) = (0, Vec::new());
    for (expert, tensor) in tensors.iter().enumerate() {
        let end = position + tensor.bytes.len() as u64;
        let mut entry = tensor.entry.clone();
        entry["data_offsets"] = json!([position, end]);
        header.insert(tensor.name.clone(), entry);
        places.push(position);
        let filler = FILLERS[(expert + number) % FILLERS.len()];
        position = end + filler;
        let name = format!("layers.0.ffn.experts.{number}-{expert}.w1.weight");
        header.insert(
            name,
            json!({ "dtype": "I8", "shape": [filler], "data_offsets": [end, position] }),
        );
    }
    let names = header
        .keys()
        .filter(|name| *name != "__metadata__")
        .cloned()
        .collect();
    let text = Value::Object(header).to_string();
    let file = File::create(path).unwrap();
    file.write_all_at(&(text.len() as u64).to_le_bytes(), 0)
        .unwrap();
    file.write_all_at(text.as_bytes(), 8).unwrap();
    let start = 8 + text.len() as u64;
    file.set_len(start + position).unwrap();
    for (place, tensor) in places.into_iter().zip(tensors) {
        file.write_all_at(&tensor.bytes, start + place).unwrap();
    }
    names
}

/// What is known of the wanted tensors of a checkpoint.
pub struct Wanted {
    /// Bytes of their data.
    pub tensors: u64,
    /// Bytes of all shards' headers.
    pub headers: u64,
}

/// What a fetch of the usual tensors cannot do without.
pub fn wanted(hub: &Path) -> Wanted {
    let mut wanted = Wanted {
        tensors: 0,
        headers: 0,
    };
    for entry in fs::read_dir(hub).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_none_or(|extension| extension != "safetensors")
        {
            continue;
        }
        let (start, header) = read_header(&path);
        let sizes = header
            .iter()
            .filter(|(name, _)| Group::of(name).is_some_and(Group::is_usual));
        let bytes: u64 = sizes
            .map(|(_, entry)| offsets(entry))
            .map(|[begin, end]| end - begin)
            .sum();
        wanted.tensors += bytes;
        wanted.headers += if bytes > 0 { start } else { 0 };
    }
    wanted
}

/// Where the data begin, and the entries.
pub fn read_header(path: &Path) -> (u64, serde_json::Map<String, Value>) {
    let file = File::open(path).unwrap();
    let mut length = [0; 8];
    file.read_exact_at(&mut length, 0).unwrap();
    let mut text = vec![0; u64::from_le_bytes(length) as usize];
    file.read_exact_at(&mut text, 8).unwrap();
    let header: Value = serde_json::from_slice(&text).unwrap();
    (8 + text.len() as u64, header.as_object().unwrap().clone())
}

fn offsets(entry: &Value) -> [u64; 2] {
    [0, 1].map(|end| entry["data_offsets"][end].as_u64().unwrap())
}

pub fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}
