//! An indexer's weights: golden bytes, both spellings, and what converters and attackers make of them.

use std::collections::BTreeMap;

use half::{bf16, f16};
use ndarray::{Array2, array};
use serde_json::{Value, json};
use ulpdrift::checkpoint::{Checkpoint, IndexerWeights, NonFinite, StoredType};

use crate::support::{Directory, Raw, assert_sentence, ramp};

/// An indexer of two heads of width 4 and rank 6 on hidden size 8, its tensors by name.
#[derive(Clone)]
struct Layer(BTreeMap<String, Tensor>);

#[derive(Clone)]
struct Tensor {
    dtype: &'static str,
    shape: Vec<u64>,
    bytes: Vec<u8>,
}

const WQ_A: &str = "attn.wq_a.weight";
const WQ_B: &str = "attn.indexer.wq_b.weight";
const HEADS: &str = "attn.indexer.weights_proj.weight";
const APE: &str = "attn.indexer.compressor.ape";

impl Layer {
    fn plain() -> Self {
        let mut layer = Self(BTreeMap::new());
        for (name, shape) in [
            ("attn_norm.weight", &[8_u64][..]),
            (WQ_A, &[6, 8]),
            ("attn.q_norm.weight", &[6]),
            (WQ_B, &[8, 6]),
            (HEADS, &[2, 8]),
            ("attn.indexer.compressor.wkv.weight", &[8, 8]),
            ("attn.indexer.compressor.wgate.weight", &[8, 8]),
            (APE, &[4, 8]),
            ("attn.indexer.compressor.norm.weight", &[4]),
        ] {
            layer = layer.plainly(name, "BF16", shape);
        }
        layer
    }

    /// A tensor of plain floats, a ramp from another place for each.
    fn plainly(self, name: &str, dtype: &'static str, shape: &[u64]) -> Self {
        let bytes = values(name, shape.iter().product::<u64>() as usize);
        let bytes = bytes.iter().flat_map(|&value| match dtype {
            "F16" => f16::from_f32(value).to_le_bytes().to_vec(),
            "BF16" => bf16::from_f32(value).to_le_bytes().to_vec(),
            _ => value.to_le_bytes().to_vec(),
        });
        let bytes = bytes.collect();
        self.with(name, dtype, shape, bytes)
    }

    fn with(mut self, name: &str, dtype: &'static str, shape: &[u64], bytes: Vec<u8>) -> Self {
        let shape = shape.to_vec();
        let tensor = Tensor {
            dtype,
            shape,
            bytes,
        };
        self.0.insert(name.to_owned(), tensor);
        self
    }

    fn without(mut self, name: &str) -> Self {
        assert!(self.0.remove(name).is_some(), "{name}");
        self
    }

    /// wq_a in FP8, in blocks of 4×3: 6×8 values, 2×3 scales.
    fn fp8(self, codes: [u8; 48], scales: [u8; 6]) -> Self {
        self.with(WQ_A, "F8_E4M3", &[6, 8], codes.to_vec()).with(
            "attn.wq_a.scale",
            "F8_E8M0",
            &[2, 3],
            scales.to_vec(),
        )
    }

    fn raw(&self) -> Raw {
        let base = Raw::default().layer("layers.0.").layer("layers.2.");
        self.0.iter().fold(base, |raw, (name, tensor)| {
            let name = format!("layers.2.{name}");
            raw.tensor(&name, tensor.dtype, &tensor.shape, &tensor.bytes)
        })
    }

    fn open(&self, directory: &Directory) -> Checkpoint {
        directory.write("config.json", config().to_string());
        Checkpoint::open(&directory.write("a.safetensors", self.raw().bytes())).unwrap()
    }

    fn read(&self) -> IndexerWeights {
        let checkpoint = self.open(&Directory::new());
        checkpoint.indexer(2, NonFinite::Refuse).unwrap()
    }

    /// The sentence with which it is refused: by a look at it if `at_once`, else when it is read.
    #[track_caller]
    fn assert_refused(&self, at_once: bool, phrases: &[&str]) {
        let checkpoint = self.open(&Directory::new());
        assert_eq!(checkpoint.check_indexer(2).is_err(), at_once);
        let error = checkpoint.indexer(2, NonFinite::Refuse).unwrap_err();
        assert_sentence(&error.to_string(), phrases);
    }
}

fn config() -> Value {
    json!({
        "model_type": "deepseek_v4",
        "compress_ratios": [0, 128, 4],
        "qk_rope_head_dim": 2,
        "quantization_config": { "weight_block_size": [4, 3] },
    })
}

fn values(name: &str, count: usize) -> Vec<f32> {
    ramp(name.len() + count)[name.len()..].to_vec()
}

fn matrix(name: &str, rows: usize, columns: usize) -> Array2<f32> {
    Array2::from_shape_vec((rows, columns), values(name, rows * columns)).unwrap()
}

#[test]
fn plain_values_are_those_stored() {
    let weights = Layer::plain().read();
    let compressor = |part: &str| format!("attn.indexer.compressor.{part}.weight");
    assert_eq!(weights.attn_norm, values("attn_norm.weight", 8));
    assert_eq!(weights.wq_a.values, matrix(WQ_A, 6, 8));
    assert_eq!(weights.wq_a.fp8, None);
    assert_eq!(weights.q_norm, values("attn.q_norm.weight", 6));
    assert_eq!(weights.wq_b.values, matrix(WQ_B, 8, 6));
    assert_eq!(weights.weights_proj, matrix(HEADS, 2, 8));
    assert_eq!(weights.wkv, matrix(&compressor("wkv"), 8, 8));
    assert_eq!(weights.wgate, matrix(&compressor("wgate"), 8, 8));
    assert_eq!(weights.ape, matrix(APE, 4, 8));
    assert_eq!(weights.k_norm, values(&compressor("norm"), 4));
    assert!(
        weights
            .stored
            .values()
            .all(|&stored| stored == StoredType::Bf16)
    );
    assert_eq!(weights.stored.len(), 9);
    // Every one of them may be stored in every plain type; the digest tells them apart.
    let mut digests = vec![weights.digests.whole()];
    for (name, tensor) in Layer::plain().0 {
        for dtype in ["F16", "F32"] {
            let other = Layer::plain().plainly(&name, dtype, &tensor.shape).read();
            let stored = other.stored.values().filter(|&&s| s != StoredType::Bf16);
            assert_eq!(stored.count(), 1, "{name}");
            digests.push(other.digests.whole());
            let same = IndexerWeights {
                stored: weights.stored.clone(),
                digests: weights.digests.clone(),
                ..other
            };
            assert_eq!(same, weights, "{name} as {dtype}");
        }
    }
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), 1 + 2 * 9);
}

/// Codes by the OCP FP8 table, scales 2^(code − 127), blocks of 4×3 that are ragged at both edges.
#[test]
fn fp8_by_blocks() {
    let mut codes = [0x38; 48]; // 1
    codes[1] = 0x3c; // 1.5
    codes[7] = 0x01; // 2^-9
    codes[8 * 4] = 0x80; // -0
    codes[8 * 5 + 7] = 0xfe; // -448
    let scales = [127, 128, 126, 120, 130, 0];
    let weights = Layer::plain().fp8(codes, scales).read();
    let upper = [1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 0.5, 0.5];
    let tiny = 2.0_f32.powi(-127);
    let small = 2.0_f32.powi(-7);
    let expected = array![
        [1.0, 1.5, 1.0, 2.0, 2.0, 2.0, 0.5, 2.0_f32.powi(-10)],
        upper,
        upper,
        upper,
        [-0.0, small, small, 8.0, 8.0, 8.0, tiny, tiny],
        [small, small, small, 8.0, 8.0, 8.0, tiny, -448.0 * tiny],
    ];
    assert_eq!(weights.wq_a.values, expected);
    let blocks = weights.wq_a.fp8.unwrap();
    assert_eq!(
        blocks.codes,
        Array2::from_shape_vec((6, 8), codes.to_vec()).unwrap()
    );
    assert_eq!(blocks.scales, array![[127, 128, 126], [120, 130, 0]]);
    assert_eq!(blocks.block, [4, 3]);
    assert_eq!(weights.stored["wq_a"], StoredType::F8E4M3);
    assert_eq!(weights.wq_b.fp8, None);
    // A scale is part of the digest.
    let other = Layer::plain()
        .fp8(codes, [126, 128, 126, 120, 130, 0])
        .read();
    assert_ne!(other.digests, weights.digests);
}

#[test]
fn shapes_that_do_not_fit() {
    let because = "2 index heads of width 4, query rank 6 and hidden size 8";
    for (name, shape) in [
        ("attn_norm.weight", &[4_u64][..]),
        ("attn.q_norm.weight", &[5]),
        (WQ_A, &[7, 8]),
        (WQ_A, &[6, 4]),
        (WQ_A, &[48]),
        (HEADS, &[2, 4]),
        ("attn.indexer.compressor.wkv.weight", &[4, 8]),
        ("attn.indexer.compressor.wgate.weight", &[8, 4]),
        (APE, &[8, 8]),
        (APE, &[32]),
        ("attn.indexer.compressor.norm.weight", &[8]),
    ] {
        let layer = Layer::plain().plainly(name, "F32", shape);
        layer.assert_refused(true, &[name, &format!("has shape {shape:?}"), because]);
    }
    // Query rows that are no whole number of heads.
    let ragged = Layer::plain().plainly(WQ_B, "F32", &[7, 6]);
    ragged.assert_refused(
        true,
        &[WQ_B, "[7, 6]", "as many heads as indexer.weights_proj"],
    );
    // Another layer's rank: the first one's says what the model's is.
    let first = Layer::plain();
    let raw = first.0.iter().fold(first.raw(), |raw, (name, tensor)| {
        let name = format!("layers.0.{name}");
        raw.tensor(&name, tensor.dtype, &tensor.shape, &tensor.bytes)
    });
    let raw = raw.f32(&format!("layers.2.{WQ_B}"), &[8, 3], &ramp(24));
    let directory = Directory::new();
    directory.write("config.json", config().to_string());
    let checkpoint = Checkpoint::open(&directory.write("a.safetensors", raw.bytes())).unwrap();
    checkpoint.check_indexer(0).unwrap();
    let error = checkpoint.check_indexer(2).unwrap_err().to_string();
    assert_sentence(
        &error,
        &["layers.2.attn.indexer.wq_b", "[8, 3]", "expected [8, 6]"],
    );
}

#[test]
fn types_that_do_not_fit() {
    let layer = Layer::plain();
    let bytes = |name: &str| layer.0[name].shape.iter().product::<u64>() as usize;
    for name in [WQ_A, WQ_B] {
        let shape = layer.0[name].shape.clone();
        let packed = layer.clone().with(name, "I8", &shape, vec![0; bytes(name)]);
        let expected = "F8_E4M3, BF16, F16 or F32; convert it";
        packed.assert_refused(true, &[name, "dtype 'I8'", expected]);
    }
    for name in [
        HEADS,
        APE,
        "attn.indexer.compressor.wkv.weight",
        "attn.q_norm.weight",
    ] {
        let shape = layer.0[name].shape.clone();
        let fp8 = layer
            .clone()
            .with(name, "F8_E4M3", &shape, vec![0; bytes(name)]);
        fp8.assert_refused(true, &[name, "F8_E4M3", "F32, BF16 or F16"]);
    }
}

/// A scale that is not there is not 1.
#[test]
fn scales_that_are_missing_or_odd() {
    let fp8 = Layer::plain().fp8([0x38; 48], [127; 6]);
    fp8.clone().without("attn.wq_a.scale").assert_refused(
        true,
        &[
            "lacks layers.2.attn.wq_a.scale",
            "layer 2 indexer",
            "complete the checkpoint",
        ],
    );
    let scale = |shape: &[u64]| {
        let count = shape.iter().product::<u64>() as usize;
        let scales = vec![127; count];
        fp8.clone()
            .with("attn.wq_a.scale", "F8_E8M0", shape, scales)
    };
    for shape in [&[1_u64, 3][..], &[3, 2], &[2, 2], &[6]] {
        scale(shape).assert_refused(
            true,
            &[
                "wq_a.scale",
                &format!("{shape:?}"),
                "expected [2, 3]",
                "6×8 with a scale per 4×3",
            ],
        );
    }
    fp8.clone()
        .plainly("attn.wq_a.scale", "I32", &[2, 3])
        .assert_refused(true, &["wq_a.scale", "dtype 'I32'", "expected F8_E8M0"]);
    // Other floats can hold powers of two, which these do not.
    fp8.clone()
        .plainly("attn.wq_a.scale", "F32", &[2, 3])
        .assert_refused(false, &["wq_a.scale", "expected powers of two", "UE8M0"]);
    // A plain weight has no use for one, and nothing is made of it.
    let plain = Layer::plain().with("attn.wq_a.scale", "F8_E8M0", &[2, 3], vec![120; 6]);
    assert_eq!(plain.read(), Layer::plain().read());
}

#[test]
fn nan_codes_scales_and_overflow() {
    let nan_scale = Layer::plain().fp8([0x38; 48], [127, 127, 127, 255, 127, 127]);
    nan_scale.assert_refused(
        false,
        &[
            "wq_a.scale",
            "holds 1 non-finite values of 6 (the first at index 3)",
            "layer 2 indexer",
        ],
    );
    let checkpoint = nan_scale.open(&Directory::new());
    let allowed = checkpoint.indexer(2, NonFinite::Allow).unwrap();
    let values = &allowed.wq_a.values;
    assert_eq!(values.iter().filter(|value| value.is_nan()).count(), 6);
    assert!(values[[4, 2]].is_nan() && values[[3, 2]] == 1.0);
    let mut codes = [0x38; 48];
    codes[9] = 0x7f;
    let phrases = [
        "wq_a.weight",
        "holds 1 non-finite values of 48 (the first at index 9)",
    ];
    Layer::plain()
        .fp8(codes, [127; 6])
        .assert_refused(false, &phrases);
    // 448·2^127 is beyond f32.
    codes[9] = 0x7e;
    Layer::plain()
        .fp8(codes, [254; 6])
        .assert_refused(false, &phrases);
    for name in [HEADS, APE, "attn_norm.weight"] {
        let mut layer = Layer::plain();
        let tensor = layer.0.get_mut(name).unwrap();
        tensor.bytes[2..4].copy_from_slice(&0x7f80_u16.to_le_bytes());
        layer.assert_refused(false, &[name, "the first at index 1", "layer 2 indexer"]);
    }
}

#[test]
fn layers_without_and_with_half_an_indexer() {
    let directory = Directory::new();
    let checkpoint = Layer::plain().open(&directory);
    assert_eq!(checkpoint.indexer_layers(), [2]);
    assert_eq!(checkpoint.why_no_indexer(), None);
    for layer in [0, 1, 7] {
        let error = checkpoint.check_indexer(layer).unwrap_err().to_string();
        let said = format!("layer {layer} of");
        assert_sentence(
            &error,
            &[&said, "no indexer, which layers 2 have", "choose"],
        );
    }
    for missing in Layer::plain().0.keys() {
        let half = Layer::plain().without(missing);
        let name = format!("layers.2.{missing}");
        half.assert_refused(true, &["lacks", &name, "needed at layer 2 indexer"]);
        let checkpoint = half.open(&directory);
        assert!(checkpoint.indexer_layers().is_empty());
        let why = checkpoint.why_no_indexer().unwrap();
        assert_sentence(
            &why,
            &["no layer with a whole indexer: layer 2 lacks", &name],
        );
    }
    // By the configuration alone, layer 2 should have one; without one, none should.
    let none = Layer(BTreeMap::new());
    none.assert_refused(
        true,
        &["lacks", "layers.2.attn.indexer.compressor.norm.weight"],
    );
    directory.write("config.json", "{}");
    let bare = Checkpoint::open(&directory.write("a.safetensors", none.raw().bytes())).unwrap();
    let why = bare.why_no_indexer().unwrap();
    assert_sentence(&why, &["a.safetensors' has no indexer"]);
    let error = bare.check_indexer(2).unwrap_err().to_string();
    assert_sentence(&error, &[&why, "needed at layer 2"]);
}

#[test]
fn another_indexer_is_not_taken_for_it() {
    let checkpoint = Checkpoint::open("synthetic:v4.1").unwrap();
    assert!(checkpoint.indexer_layers().is_empty());
    let why = checkpoint.why_no_indexer().unwrap();
    assert_sentence(
        &why,
        &[
            "'synthetic:v4.1'",
            "indexer of V4.1",
            "where that of V4 is covered",
        ],
    );
    let error = checkpoint.indexer(2, NonFinite::Refuse).unwrap_err();
    assert_sentence(&error.to_string(), &[&why]);
}

/// The official tensors and the same ones as transformers' modules name them.
#[test]
fn transformers_spelling_gives_the_same_weights() {
    let official = Layer::plain().fp8([0x39; 48], [127; 6]);
    let base = Raw::default().layer("layers.0.").layer("layers.2.");
    let raw = official.0.iter().fold(base, |raw, (name, tensor)| {
        let theirs = match name.as_str() {
            "attn_norm.weight" => "input_layernorm.weight",
            WQ_A => "self_attn.q_a_proj.weight",
            "attn.wq_a.scale" => "self_attn.q_a_proj.weight_scale_inv",
            "attn.q_norm.weight" => "self_attn.q_a_norm.weight",
            WQ_B => "self_attn.compressor.indexer.q_b_proj.weight",
            HEADS => "self_attn.compressor.indexer.weights_proj.weight",
            "attn.indexer.compressor.wkv.weight" => "self_attn.compressor.indexer.kv_proj.weight",
            "attn.indexer.compressor.wgate.weight" => {
                "self_attn.compressor.indexer.gate_proj.weight"
            }
            APE => "self_attn.compressor.indexer.position_bias",
            "attn.indexer.compressor.norm.weight" => "self_attn.compressor.indexer.kv_norm.weight",
            other => panic!("{other}"),
        };
        let name = format!("model.layers.2.{theirs}");
        raw.tensor(&name, tensor.dtype, &tensor.shape, &tensor.bytes)
    });
    let directory = Directory::new();
    directory.write("config.json", config().to_string());
    let theirs = Checkpoint::open(&directory.write("a.safetensors", raw.bytes())).unwrap();
    let read = theirs.indexer(2, NonFinite::Refuse).unwrap();
    assert_eq!(read, official.read());
}

#[test]
fn synthetic_ones_are_as_wide_as_published_and_survive_the_disk() {
    for (model, hidden, heads, rank, layers) in [
        ("flash", 4096, 64, 1024, 21),
        ("pro", 7168, 64, 1536, 30),
        ("tiny", 256, 8, 128, 1),
    ] {
        let checkpoint = Checkpoint::open(&format!("synthetic:{model}")).unwrap();
        let indexed = checkpoint.indexer_layers();
        assert_eq!((indexed.len(), indexed[0]), (layers, 2), "{model}");
        indexed
            .iter()
            .for_each(|&l| checkpoint.check_indexer(l).unwrap());
        if model == "pro" {
            continue;
        }
        let weights = checkpoint.indexer(2, NonFinite::Refuse).unwrap();
        assert_eq!(weights.wq_a.values.dim(), (rank, hidden), "{model}");
        assert_eq!(weights.wq_b.values.dim(), (heads * 128, rank), "{model}");
        let blocks = weights.wq_b.fp8.as_ref().unwrap();
        assert_eq!(blocks.block, [128, 128]);
        assert_eq!(blocks.scales.dim(), (heads, rank / 128));
        assert_eq!(weights.weights_proj.dim(), (heads, hidden));
        assert_eq!(weights.wkv.dim(), (256, hidden));
        assert_eq!((weights.ape.dim(), weights.k_norm.len()), ((4, 256), 128));
    }
    let directory = Directory::tiny();
    let written = Checkpoint::open(&directory.spec("ckpt")).unwrap();
    let memory = Checkpoint::open("synthetic:tiny").unwrap();
    assert_eq!(
        written.indexer(2, NonFinite::Refuse).unwrap(),
        memory.indexer(2, NonFinite::Refuse).unwrap()
    );
}
