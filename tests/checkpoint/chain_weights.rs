//! What a chain of layers needs beside the hyper-connections: norms, the head, rows of the embedding.

use std::fs::OpenOptions;

use half::{bf16, f16};
use ndarray::Array2;
use ulpdrift::checkpoint::{
    Checkpoint, CheckpointError, Digests, HeadWeights, NonFinite, Site, StoredType, SyntheticModel,
    write_synthetic,
};

use crate::support::{Directory, Raw, assert_sentence, ramp};

/// A layer of hidden size 8 with its norms, the head, the final norm and an embedding of five rows.
fn whole() -> Raw {
    Raw::default()
        .layer("layers.0.")
        .f32("layers.0.attn_norm.weight", &[8], &ramp(8))
        .f32("layers.0.ffn_norm.weight", &[8], &ramp(16)[8..])
        .f32("hc_head_fn", &[4, 32], &ramp(4 * 32))
        .f32("hc_head_base", &[4], &ramp(4))
        .f32("hc_head_scale", &[1], &[0.25])
        .f32("norm.weight", &[8], &ramp(24)[16..])
        .f32("embed.weight", &[5, 8], &ramp(40))
}

fn open(directory: &Directory, raw: &Raw) -> Checkpoint {
    Checkpoint::open(&directory.write("a.safetensors", raw.bytes())).unwrap()
}

/// Everything, and a digest of it.
#[derive(Debug, PartialEq)]
struct Weights {
    norms: Vec<Vec<f32>>,
    head: Option<HeadWeights>,
    final_norm: Vec<f32>,
    embedding: Option<Array2<f32>>,
    digest: String,
}

impl Weights {
    fn read(checkpoint: &Checkpoint) -> Self {
        let mut digests = Digests::default();
        let mut norms = Vec::new();
        for &layer in checkpoint.layers() {
            for site in Site::ALL {
                let norm = checkpoint.norm(layer, site, NonFinite::Refuse).unwrap();
                checkpoint.add_norm_digest(&mut digests, Some((layer, site)), &norm);
                norms.push(norm);
            }
        }
        let head = checkpoint.head(NonFinite::Refuse).unwrap();
        if let Some(head) = &head {
            head.add_digests(&mut digests);
        }
        let final_norm = checkpoint.final_norm(NonFinite::Refuse).unwrap();
        checkpoint.add_norm_digest(&mut digests, None, &final_norm);
        Self {
            norms,
            head,
            final_norm,
            embedding: checkpoint
                .embedding(&[4, 0, 4, 2], NonFinite::Refuse)
                .unwrap(),
            digest: digests.whole(),
        }
    }
}

#[test]
fn values_are_those_stored() {
    let weights = Weights::read(&open(&Directory::new(), &whole()));
    assert_eq!(weights.norms, [ramp(8), ramp(16)[8..].to_vec()]);
    assert_eq!(weights.final_norm, ramp(24)[16..]);
    let head = weights.head.unwrap();
    assert_eq!(
        head.function,
        Array2::from_shape_vec((4, 32), ramp(128)).unwrap()
    );
    assert_eq!((head.base, head.scale), (ramp(4), 0.25));
    assert_eq!(head.dtype, StoredType::F32);
    let rows = weights.embedding.unwrap();
    for (got, row) in rows.rows().into_iter().zip([4, 0, 4, 2]) {
        assert_eq!(got.to_vec(), ramp(40)[8 * row..][..8]);
    }
}

#[test]
fn every_spelling_is_the_same_and_every_value_counts() {
    let directory = Directory::new();
    let official = Weights::read(&open(&directory, &whole()));
    let mut modules = whole().header_text();
    for (ours, theirs) in [
        ("layers.0.hc_attn_", "model.layers.0.attn_hc."),
        ("layers.0.hc_ffn_", "model.layers.0.ffn_hc."),
        ("layers.0.attn_norm.", "model.layers.0.input_layernorm."),
        (
            "layers.0.ffn_norm.",
            "model.layers.0.post_attention_layernorm.",
        ),
        ("hc_head_", "model.hc_head.hc_"),
        ("\"norm.", "\"model.norm."),
        ("embed.", "model.embed_tokens."),
    ] {
        assert!(modules.contains(ours), "{ours}");
        modules = modules.replace(ours, theirs);
    }
    let bytes = whole().bytes_with_header(&modules);
    let spelled = Checkpoint::open(&directory.write("b.safetensors", bytes)).unwrap();
    assert_eq!(Weights::read(&spelled), official);

    for (name, shape) in [
        ("layers.0.attn_norm.weight", vec![8]),
        ("layers.0.ffn_norm.weight", vec![8]),
        ("hc_head_fn", vec![4, 32]),
        ("hc_head_base", vec![4]),
        ("hc_head_scale", vec![1]),
        ("norm.weight", vec![8]),
    ] {
        let values = vec![3.0; shape.iter().product::<u64>() as usize];
        let changed = open(&directory, &whole().f32(name, &shape, &values));
        assert_ne!(Weights::read(&changed).digest, official.digest, "{name}");
    }
}

#[test]
fn narrow_types_are_read_exactly() {
    let directory = Directory::new();
    let plain = Weights::read(&open(&directory, &whole()));
    for dtype in ["BF16", "F16"] {
        let encode = |values: &[f32]| -> Vec<u8> {
            let narrow = |&value: &f32| match dtype {
                "BF16" => bf16::from_f32(value).to_le_bytes(),
                _ => f16::from_f32(value).to_le_bytes(),
            };
            values.iter().flat_map(narrow).collect()
        };
        let raw = whole()
            .tensor("layers.0.attn_norm.weight", dtype, &[8], &encode(&ramp(8)))
            .tensor("hc_head_fn", dtype, &[4, 32], &encode(&ramp(128)))
            .tensor("norm.weight", dtype, &[8], &encode(&ramp(24)[16..]))
            .tensor("embed.weight", dtype, &[5, 8], &encode(&ramp(40)));
        let narrow = Weights::read(&open(&directory, &raw));
        assert_eq!(narrow.norms, plain.norms);
        assert_eq!(narrow.final_norm, plain.final_norm);
        assert_eq!(narrow.embedding, plain.embedding);
        let (narrow_head, plain_head) = (narrow.head.unwrap(), plain.head.clone().unwrap());
        assert_eq!(narrow_head.function, plain_head.function);
        assert_eq!(narrow_head.dtype.name(), dtype);
        // How a weight is stored is part of what was measured.
        assert_ne!(narrow.digest, plain.digest);
    }
}

#[test]
fn what_is_missing_is_named_with_the_place_that_needs_it() {
    let directory = Directory::new();
    let bare = open(&directory, &Raw::default().layer("layers.0."));
    let sentence = |error: CheckpointError| error.to_string();
    assert_sentence(
        &sentence(bare.norm(0, Site::Ffn, NonFinite::Allow).unwrap_err()),
        &[
            "a.safetensors' lacks layers.0.ffn_norm.weight",
            "layer 0 ffn",
            "complete",
        ],
    );
    assert_sentence(
        &sentence(bare.norm(7, Site::Ffn, NonFinite::Allow).unwrap_err()),
        &["layer 7 is not in", "choose among"],
    );
    assert_sentence(
        &sentence(bare.final_norm(NonFinite::Allow).unwrap_err()),
        &["lacks norm.weight", "the model's end"],
    );
    assert_sentence(
        &sentence(bare.head(NonFinite::Allow).unwrap_err()),
        &[
            "lacks hc_head_fn, hc_head_base, hc_head_scale",
            "the head",
            "mean of the streams",
        ],
    );
    assert_eq!(bare.embedding(&[0], NonFinite::Refuse).unwrap(), None);
    let part = open(
        &directory,
        &Raw::default()
            .layer("layers.0.")
            .f32("hc_head_base", &[4], &ramp(4)),
    );
    assert_sentence(
        &sentence(part.head(NonFinite::Allow).unwrap_err()),
        &["lacks hc_head_fn, hc_head_scale, needed"],
    );
}

#[test]
fn shapes_types_and_rows_are_checked() {
    let directory = Directory::new();
    let norm = |raw: Raw| {
        open(&directory, &raw)
            .norm(0, Site::Attn, NonFinite::Allow)
            .unwrap_err()
    };
    let head = |raw: Raw| open(&directory, &raw).head(NonFinite::Allow).unwrap_err();
    let rows = |raw: Raw, rows: &[u64]| {
        open(&directory, &raw)
            .embedding(rows, NonFinite::Refuse)
            .unwrap_err()
    };
    for (error, phrases) in [
        (
            norm(whole().f32("layers.0.attn_norm.weight", &[9], &ramp(9))),
            ["attn_norm.weight", "shape [9], expected [8]"],
        ),
        (
            norm(whole().tensor("layers.0.attn_norm.weight", "I8", &[8], &[0; 8])),
            ["attn_norm.weight", "dtype 'I8', expected F32"],
        ),
        (
            head(whole().f32("hc_head_fn", &[24, 32], &ramp(24 * 32))),
            ["hc_head_fn", "shape [24, 32], expected [4, 32]"],
        ),
        (
            head(whole().f32("hc_head_base", &[3], &ramp(3))),
            ["hc_head_base", "shape [3], expected [4]"],
        ),
        (
            head(whole().f32("hc_head_scale", &[3], &ramp(3))),
            ["hc_head_scale", "shape [3], expected [1]"],
        ),
        (
            rows(whole().f32("embed.weight", &[5, 4], &ramp(20)), &[0]),
            ["embed.weight", "shape [5, 4], expected [5, 8]"],
        ),
        (
            rows(whole().f32("embed.weight", &[40], &ramp(40)), &[0]),
            ["embed.weight", "shape [40], expected [40, 8]"],
        ),
        (
            rows(whole(), &[4, 5]),
            [
                "embed.weight",
                "has 5 rows, but row 5 is asked for; choose tokens below 5",
            ],
        ),
        (
            rows(whole(), &[u64::MAX]),
            ["embed.weight", "row 18446744073709551615"],
        ),
    ] {
        assert_sentence(&error.to_string(), &phrases);
    }
    let scalar = open(&directory, &whole().f32("hc_head_scale", &[], &[0.25]));
    let head = scalar.head(NonFinite::Refuse).unwrap().unwrap();
    assert_eq!(head.scale, 0.25);
}

#[test]
fn what_is_not_finite_is_refused_or_allowed() {
    let directory = Directory::new();
    let mut spoiled = ramp(8);
    spoiled[5] = f32::NAN;
    let raw = whole()
        .f32("layers.0.attn_norm.weight", &[8], &spoiled)
        .f32("norm.weight", &[8], &spoiled)
        .f32("hc_head_scale", &[1], &[f32::INFINITY]);
    let checkpoint = open(&directory, &raw);
    let refused = [
        (
            checkpoint.norm(0, Site::Attn, NonFinite::Refuse).map(drop),
            "layer 0 attn",
        ),
        (
            checkpoint.final_norm(NonFinite::Refuse).map(drop),
            "the model's end",
        ),
        (checkpoint.head(NonFinite::Refuse).map(drop), "the head"),
    ];
    for (outcome, place) in refused {
        assert_sentence(
            &outcome.unwrap_err().to_string(),
            &[
                "1 non-finite values",
                &format!("needed at {place}; look at it"),
            ],
        );
    }
    let norm = checkpoint.norm(0, Site::Attn, NonFinite::Allow).unwrap();
    assert!(norm[5].is_nan() && norm[4] == ramp(8)[4]);
    assert!(checkpoint.final_norm(NonFinite::Allow).unwrap()[5].is_nan());
    let head = checkpoint.head(NonFinite::Allow).unwrap().unwrap();
    assert_eq!(head.scale, f32::INFINITY);
}

/// Four gigabytes, of which a file system that knows holes stores a few blocks.
#[test]
fn only_the_rows_asked_for_are_read() {
    const ROWS: u64 = 1 << 28;
    let directory = Directory::new();
    let raw = Raw::default().layer("layers.0.");
    let data_start = |header: &str| 8 + header.len() as u64;
    let layer_end = raw.bytes().len() as u64 - data_start(&raw.header_text());
    let offsets = [layer_end, layer_end + ROWS * 16];
    let entry = serde_json::json!({ "dtype": "BF16", "shape": [ROWS, 8], "data_offsets": offsets });
    let raw = raw.entry("embed.weight", entry);
    let spec = directory.write("a.safetensors", raw.bytes());
    let file = OpenOptions::new().write(true).open(&spec).unwrap();
    file.set_len(data_start(&raw.header_text()) + offsets[1])
        .unwrap();
    let last: Vec<u8> = ramp(8)
        .iter()
        .flat_map(|&v| bf16::from_f32(v).to_le_bytes())
        .collect();
    std::os::unix::fs::FileExt::write_all_at(
        &file,
        &last,
        data_start(&raw.header_text()) + offsets[1] - 16,
    )
    .unwrap();
    let checkpoint = Checkpoint::open(&spec).unwrap();
    let rows = checkpoint
        .embedding(&[ROWS - 1, 0], NonFinite::Refuse)
        .unwrap()
        .unwrap();
    assert_eq!(rows.row(0).to_vec(), ramp(8));
    assert_eq!(rows.row(1).to_vec(), [0.0; 8]);
    let items = checkpoint.inventory().items;
    assert!(items.iter().all(|item| item.official != "embed.weight"));
}

#[test]
fn synthetic_weights_are_the_same_in_memory_and_on_disk() {
    let directory = Directory::tiny();
    let disk = Weights::read(&Checkpoint::open(&directory.spec("ckpt")).unwrap());
    let memory = Weights::read(&Checkpoint::open("synthetic:tiny").unwrap());
    assert_eq!(disk, memory);
    assert_eq!(memory.norms.len(), 8);
    // Golden, by Python's hashlib out of the files of `synth`: a change here changes every synthetic chain ever reported.
    assert_eq!(&memory.digest[..23], "sha256:6f15b12563bd54c6");
    // Taken from the file with Python.
    let row = memory.embedding.unwrap().row(1).to_vec();
    assert_eq!(
        [row[0], row[255]].map(f32::to_bits),
        [0x3bf7_0000, 0x3b90_0000]
    );
}

#[test]
fn v4_1_has_no_head() {
    let directory = Directory::new();
    write_synthetic(&directory.path("a"), SyntheticModel::V41, &[0], 0).unwrap();
    for checkpoint in [
        Checkpoint::open(&directory.spec("a")).unwrap(),
        Checkpoint::open("synthetic:v4.1").unwrap(),
    ] {
        assert_eq!(checkpoint.head(NonFinite::Refuse).unwrap(), None);
        assert_eq!(
            checkpoint.final_norm(NonFinite::Refuse).unwrap().len(),
            5120
        );
        assert_eq!(
            checkpoint
                .embedding(&[1023], NonFinite::Refuse)
                .unwrap()
                .unwrap()
                .dim(),
            (1, 5120)
        );
    }
}

fn mean_and_deviation(values: &[f32]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().map(|&value| f64::from(value)).sum::<f64>() / count;
    let squares = values
        .iter()
        .map(|&value| (f64::from(value) - mean).powi(2));
    (mean, (squares.sum::<f64>() / count).sqrt())
}

#[test]
fn synthetic_norms_and_embeddings_have_the_documented_spread() {
    let checkpoint = Checkpoint::open("synthetic:flash").unwrap();
    let mut seen = Vec::new();
    for layer in [0, 42] {
        for site in Site::ALL {
            seen.push(checkpoint.norm(layer, site, NonFinite::Refuse).unwrap());
        }
    }
    seen.push(checkpoint.final_norm(NonFinite::Refuse).unwrap());
    for (index, norm) in seen.iter().enumerate() {
        assert!(norm.iter().all(|&weight| weight > 0.0));
        assert!(!seen[..index].contains(norm));
        let (mean, deviation) = mean_and_deviation(norm);
        // Four standard errors of 4096 values.
        assert!((mean - 1.0).abs() < 0.00625 && (deviation - 0.1).abs() < 0.0045);
    }
    let rows: Vec<u64> = (0..1024).collect();
    let rows = checkpoint
        .embedding(&rows, NonFinite::Refuse)
        .unwrap()
        .unwrap();
    assert_ne!(rows.row(0), rows.row(1));
    let (mean, deviation) = mean_and_deviation(rows.as_slice().unwrap());
    assert!(
        mean.abs() < 4e-5 && (deviation / 0.02 - 1.0).abs() < 0.002,
        "{mean} {deviation}"
    );
}

#[test]
fn what_there_is_to_be_embedded() {
    let directory = Directory::new();
    let vocabulary = open(&directory, &whole()).vocabulary().unwrap();
    assert_eq!((vocabulary.tokens, vocabulary.stored), (5, StoredType::F32));
    let bare = open(&directory, &Raw::default().layer("layers.0."));
    assert_sentence(
        &bare.vocabulary().unwrap_err().to_string(),
        &["lacks embed.weight", "choose other --inputs"],
    );
    let mut odd = ramp(40);
    odd[8 * 3 + 2] = f32::NAN;
    let odd = open(&directory, &whole().f32("embed.weight", &[5, 8], &odd));
    assert!(odd.embedding(&[2, 4], NonFinite::Refuse).is_ok());
    assert!(odd.embedding(&[3], NonFinite::Allow).is_ok());
    assert_sentence(
        &odd.embedding(&[3], NonFinite::Refuse)
            .unwrap_err()
            .to_string(),
        &["embed.weight", "1 non-finite values of 8", "token 3"],
    );
}

/// The first and last words, taken from the file with Python.
#[test]
fn another_projects_checkpoint() {
    let spec = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/transformers_tiny");
    let checkpoint = Checkpoint::open(spec).unwrap();
    let ends = |values: &[f32]| [values[0], values[values.len() - 1]].map(f32::to_bits);
    let norm = |layer, site| checkpoint.norm(layer, site, NonFinite::Refuse).unwrap();
    assert_eq!(ends(&norm(0, Site::Attn)), [0x3f9f_0000, 0x3f6a_0000]);
    assert_eq!(ends(&norm(3, Site::Ffn)), [0x3f6d_0000, 0x3f58_0000]);
    let head = checkpoint.head(NonFinite::Refuse).unwrap().unwrap();
    assert_eq!(
        ends(head.function.as_slice().unwrap()),
        [0x3d93_8db7, 0xbedc_1381]
    );
    assert_eq!(ends(&head.base), [0xbe92_497a, 0x3f31_b08e]);
    assert_eq!(head.scale.to_bits(), 0x3e4c_cccd);
    let rows = checkpoint
        .embedding(&[5, 127], NonFinite::Refuse)
        .unwrap()
        .unwrap();
    assert_eq!(
        [rows[[0, 0]], rows[[0, 1]]].map(f32::to_bits),
        [0x3def_0000, 0x3db2_0000]
    );
    assert_eq!(rows[[1, 255]].to_bits(), 0x3d8a_0000);
    // Its last shard is not part of the fixture.
    let error = checkpoint.final_norm(NonFinite::Refuse).unwrap_err();
    assert_sentence(&error.to_string(), &["lacks norm.weight", "complete"]);
}
