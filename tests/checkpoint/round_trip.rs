//! `synth` against `synthetic:`, spellings, storage types and digests.

use std::fs;

use half::{bf16, f16};
use serde_json::Value;
use ulpdrift::checkpoint::{
    Checkpoint, Digests, HcWeights, NonFinite, ReadBuffers, Site, StoredType, SyntheticModel,
    WeightKind, parse_layers, write_synthetic,
};

use crate::support::{Directory, Raw, assert_sentence, ramp};

fn sites(checkpoint: &Checkpoint) -> Vec<(u32, Site, HcWeights)> {
    let layers = checkpoint.layers().iter();
    layers
        .flat_map(|&layer| Site::ALL.map(|site| (layer, site)))
        .map(|(layer, site)| {
            (
                layer,
                site,
                checkpoint.hc(layer, site, NonFinite::Refuse).unwrap(),
            )
        })
        .collect()
}

fn digest(checkpoint: &Checkpoint) -> String {
    let mut digests = Digests::default();
    for (layer, site, weights) in sites(checkpoint) {
        weights.add_digests(&mut digests, layer, site);
    }
    digests.whole()
}

#[test]
fn disk_and_memory_hold_the_same_bits() {
    let directory = Directory::tiny();
    let disk = Checkpoint::open(&directory.spec("ckpt")).unwrap();
    let memory = Checkpoint::open("synthetic:tiny").unwrap();
    let mut buffers = ReadBuffers::default();
    assert_eq!(disk.kind(), WeightKind::Synthetic);
    assert_eq!(disk.model(), memory.model());
    let (disk_items, memory_items) = (disk.inventory(), memory.inventory());
    assert!(disk_items.missing.is_empty(), "{:?}", disk_items.missing);
    assert_eq!(disk_items.items.len(), memory_items.items.len());
    for (on_disk, in_memory) in disk_items.items.iter().zip(&memory_items.items) {
        assert_eq!(
            (&on_disk.official, &on_disk.shape),
            (&in_memory.official, &in_memory.shape)
        );
        assert_eq!(
            disk.stats(on_disk, &mut buffers).unwrap(),
            memory.stats(in_memory, &mut buffers).unwrap()
        );
    }
    for (on_disk, in_memory) in sites(&disk).iter().zip(&sites(&memory)) {
        assert_eq!(on_disk, in_memory);
    }
    assert_eq!(digest(&disk), digest(&memory));
    // Golden, by Python's hashlib out of the files of `synth`: a change here changes every synthetic result ever reported.
    assert_eq!(&digest(&memory)[..23], "sha256:9ee9259b9bb26089");
}

#[test]
fn fp8_weights_are_within_half_a_step_and_use_the_range() {
    let directory = Directory::tiny();
    let checkpoint = Checkpoint::open(&directory.spec("ckpt")).unwrap();
    let items = checkpoint.inventory().items;
    let item = items
        .iter()
        .find(|item| item.official.ends_with("indexer.wq_b.weight"))
        .unwrap();
    assert_eq!(
        (item.dtype.as_str(), &item.shape[..]),
        ("F8_E4M3", &[1024, 128][..])
    );
    let stats = checkpoint
        .stats(item, &mut ReadBuffers::default())
        .unwrap()
        .unwrap();
    // A scale of 2^ceil(log2(amax/448)) puts the largest code into 224..=448.
    assert!((224.0..=448.0).contains(&stats.abs_max), "{stats:?}");
    assert_eq!(stats.nonfinite, 0);
    let scale = items
        .iter()
        .find(|item| item.official.ends_with("indexer.wq_b.scale"))
        .unwrap();
    let scales = checkpoint
        .stats(scale, &mut ReadBuffers::default())
        .unwrap()
        .unwrap();
    // N(0, 1/128) in 16,384 values reaches about 4.2/11.3; codes times scale have its rms.
    assert_eq!((scale.dtype.as_str(), scales.values), ("F8_E8M0", 8));
    let rms = stats.rms * scales.rms;
    assert!((rms * 128_f64.sqrt() - 1.0).abs() < 0.02, "{rms}");
}

#[test]
fn subsets_of_layers_are_the_same_layers() {
    let directory = Directory::new();
    write_synthetic(&directory.path("a"), SyntheticModel::Tiny, &[1, 3], 0).unwrap();
    let part = Checkpoint::open(&directory.spec("a")).unwrap();
    let whole = Checkpoint::open("synthetic:tiny").unwrap();
    assert_eq!((part.layers(), part.model().layers), ([1, 3].as_slice(), 4));
    assert!(
        part.model()
            .notes
            .iter()
            .any(|note| note.contains("these are not here: 0, 2"))
    );
    for (layer, site, weights) in sites(&part) {
        assert_eq!(weights, whole.hc(layer, site, NonFinite::Refuse).unwrap());
    }
}

#[test]
fn seeds_and_repetition() {
    let directory = Directory::new();
    for (name, seed) in [("a", 1), ("b", 1), ("c", 2)] {
        write_synthetic(&directory.path(name), SyntheticModel::Tiny, &[0], seed).unwrap();
    }
    let files = |name: &str| -> Vec<(String, Vec<u8>)> {
        let entries = fs::read_dir(directory.path(name))
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = entries
            .map(|path| {
                (
                    path.file_name().unwrap().to_str().unwrap().to_owned(),
                    fs::read(path).unwrap(),
                )
            })
            .collect();
        files.sort();
        files
    };
    assert_eq!(files("a"), files("b"));
    assert_ne!(files("a"), files("c"));
}

#[test]
fn synth_refuses_what_is_in_use_and_leaves_nothing() {
    let directory = Directory::new();
    directory.write("full/notes.txt", "mine");
    let refuse = |name: &str| {
        let outcome = write_synthetic(&directory.path(name), SyntheticModel::Tiny, &[0], 0);
        outcome.unwrap_err().to_string()
    };
    assert_sentence(&refuse("full"), &["full", "not empty"]);
    assert_sentence(
        &refuse("full/notes.txt"),
        &["notes.txt", "choose another directory"],
    );
    assert_sentence(&refuse("no/such/parent"), &["parent", "No such file"]);
    fs::create_dir(directory.path("empty")).unwrap();
    write_synthetic(&directory.path("empty"), SyntheticModel::Tiny, &[0], 0).unwrap();
    assert!(Checkpoint::open(&directory.spec("empty")).is_ok());
    let left: Vec<_> = fs::read_dir(directory.path("")).unwrap().collect();
    assert_eq!(left.len(), 2, "only 'full' and 'empty': {left:?}");
}

#[test]
fn layers_of_synth() {
    assert_eq!(parse_layers("2", 4).unwrap(), [0, 1]);
    assert_eq!(parse_layers("3,0-1,1", 4).unwrap(), [0, 1, 3]);
    for text in [
        "0",
        "5",
        "4,",
        "0-4",
        "3-1",
        "x",
        "-1",
        "",
        "1-2-3",
        "99999999999",
    ] {
        assert_sentence(&parse_layers(text, 4).unwrap_err().to_string(), &["layers"]);
    }
}

#[test]
fn every_spelling_and_place_of_one_checkpoint() {
    let directory = Directory::new();
    let official = Raw::default().layer("layers.0.").bytes();
    let behind_model = Raw::default().layer("model.layers.0.").bytes();
    let modules = {
        let raw = Raw::default().layer("model.layers.0.");
        let header = ["attn", "ffn"]
            .iter()
            .fold(raw.header_text(), |header, site| {
                header.replace(&format!("hc_{site}_"), &format!("{site}_hc."))
            });
        assert!(header.contains("model.layers.0.attn_hc.fn"));
        raw.bytes_with_header(&header)
    };
    let mut digests = Vec::new();
    for bytes in [&official, &behind_model, &modules] {
        digests.push(digest(
            &Checkpoint::open(&directory.write("a.safetensors", bytes)).unwrap(),
        ));
    }
    directory.write("single/model.safetensors", &official);
    digests.push(digest(
        &Checkpoint::open(&directory.spec("single")).unwrap(),
    ));
    digests.dedup();
    assert_eq!(digests.len(), 1);
}

#[test]
fn unaligned_data_are_copied() {
    let directory = Directory::new();
    let aligned = Raw::default().layer("layers.0.");
    let unaligned = Raw::default()
        .tensor("a", "U8", &[3], &[1, 2, 3])
        .layer("layers.0.");
    let mut odd_header = unaligned.header_text();
    odd_header.push_str(if odd_header.len() % 2 == 0 { " " } else { "" });
    let a = Checkpoint::open(&directory.write("a.safetensors", aligned.bytes())).unwrap();
    let bytes = unaligned.bytes_with_header(&odd_header);
    let b = Checkpoint::open(&directory.write("b.safetensors", bytes)).unwrap();
    assert_eq!(sites(&a), sites(&b));
}

#[test]
fn bf16_and_f16_weights_are_read_exactly_and_reported() {
    let directory = Directory::new();
    let values = ramp(24 * 32);
    let bf16_bytes: Vec<u8> = values
        .iter()
        .flat_map(|&v| bf16::from_f32(v).to_le_bytes())
        .collect();
    let f16_bytes: Vec<u8> = values
        .iter()
        .flat_map(|&v| f16::from_f32(v).to_le_bytes())
        .collect();
    let plain = Checkpoint::open(
        &directory.write("f32.safetensors", Raw::default().layer("layers.0.").bytes()),
    );
    let plain = plain.unwrap().hc(0, Site::Attn, NonFinite::Refuse).unwrap();
    for (dtype, stored, bytes) in [
        ("BF16", StoredType::Bf16, bf16_bytes),
        ("F16", StoredType::F16, f16_bytes),
    ] {
        let raw = Raw::default().layer("layers.0.").tensor(
            "layers.0.hc_attn_fn",
            dtype,
            &[24, 32],
            &bytes,
        );
        let checkpoint = Checkpoint::open(&directory.write("a.safetensors", raw.bytes())).unwrap();
        let weights = checkpoint.hc(0, Site::Attn, NonFinite::Refuse).unwrap();
        assert_eq!(weights.dtype, stored);
        assert_eq!(weights.function, plain.function);
        assert_ne!(weights, plain);
    }
}

#[test]
fn mtp_layers_are_none_of_the_main_stack() {
    let directory = Directory::new();
    let raw = Raw::default()
        .layer("layers.0.")
        .layer("mtp.0.")
        .layer("model.mtp.1.");
    let checkpoint = Checkpoint::open(&directory.write("a.safetensors", raw.bytes())).unwrap();
    assert_eq!(
        (checkpoint.layers(), checkpoint.model().layers),
        ([0].as_slice(), 1)
    );

    // Appended to the main stack, as some writers do: the configuration tells them apart.
    let raw = Raw::default().layer("layers.0.").layer("layers.1.");
    directory.write("b/model.safetensors", raw.bytes());
    let config = r#"{"num_hidden_layers": 1, "num_nextn_predict_layers": 1}"#;
    directory.write("b/config.json", config);
    let checkpoint = Checkpoint::open(&directory.spec("b")).unwrap();
    assert_eq!(
        (checkpoint.layers(), checkpoint.model().layers),
        ([0].as_slice(), 1)
    );
    assert!(checkpoint.hc(1, Site::Attn, NonFinite::Refuse).is_err());
}

#[test]
fn composite_configuration_of_v4_1() {
    let directory = Directory::new();
    write_synthetic(&directory.path("a"), SyntheticModel::V41, &[0], 0).unwrap();
    let config: Value =
        serde_json::from_slice(&fs::read(directory.path("a/config.json")).unwrap()).unwrap();
    assert_eq!(config["text_config"]["hidden_size"], 5120);
    let checkpoint = Checkpoint::open(&directory.spec("a")).unwrap();
    assert_eq!(checkpoint.model().norm_eps, 1e-20);
    assert_eq!(checkpoint.model().width(), 20480);
    let inventory = checkpoint.inventory();
    assert!(inventory.missing.is_empty(), "{:?}", inventory.missing);
    assert!(
        inventory
            .items
            .iter()
            .all(|item| !item.official.starts_with("hc_head"))
    );
}

#[test]
fn thread_count_changes_no_weight() {
    let checkpoint = Checkpoint::open("synthetic:tiny").unwrap();
    let with_threads = |count| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(count)
            .build()
            .unwrap();
        pool.install(|| digest(&checkpoint))
    };
    assert_eq!(with_threads(1), with_threads(3));
}

#[test]
fn holes_and_trailing_bytes_harm_nobody() {
    let directory = Directory::new();
    let plain = Raw::default().layer("layers.0.");
    let mut trailing = plain.bytes();
    trailing.extend_from_slice(&[0xff; 100]);
    // Naming a tensor again leaves its first bytes unclaimed.
    let hole = plain
        .clone()
        .f32("layers.0.hc_attn_scale", &[3], &ramp(3))
        .bytes();
    let mut digests: Vec<String> = [plain.bytes(), trailing, hole]
        .iter()
        .map(|bytes| digest(&Checkpoint::open(&directory.write("a.safetensors", bytes)).unwrap()))
        .collect();
    digests.dedup();
    assert_eq!(digests.len(), 1);
}
