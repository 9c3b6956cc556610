//! Shared experts: golden bytes, every spelling, and what converters and attackers make of them.

use std::fs;

use half::{bf16, f16};
use ndarray::{Array2, array};
use serde_json::json;
use ulpdrift::checkpoint::{Checkpoint, NonFinite, SharedExpert, SyntheticModel, write_synthetic};

use crate::support::{Directory, Raw, assert_sentence, ramp};

const PREFIX: &str = "layers.0.ffn.shared_experts.";

/// A layer of hidden size 8 and no more.
fn layer() -> Raw {
    Raw::default().layer("layers.0.")
}

/// An expert of `inter` units, its values plain.
fn plain(inter: u64) -> Raw {
    let size = (8 * inter) as usize;
    layer()
        .f32(&name("w1.weight"), &[inter, 8], &ramp(size))
        .f32(&name("w2.weight"), &[8, inter], &ramp(2 * size)[size..])
        .f32(&name("w3.weight"), &[inter, 8], &ramp(3 * size)[2 * size..])
}

fn name(part: &str) -> String {
    format!("{PREFIX}{part}")
}

/// The gate in FP8, in blocks of 4×3 as the configuration has it: 6×8 values, 2×3 scales.
fn fp8(codes: [u8; 48], scales: [u8; 6]) -> Raw {
    plain(6)
        .tensor(&name("w1.weight"), "F8_E4M3", &[6, 8], &codes)
        .tensor(&name("w1.scale"), "F8_E8M0", &[2, 3], &scales)
}

/// Opened beside a configuration with blocks of 4×3.
fn open(directory: &Directory, raw: &Raw) -> Checkpoint {
    let config = json!({
        "model_type": "deepseek_v4",
        "quantization_config": { "weight_block_size": [4, 3] },
        "swiglu_limit": 7.5,
    });
    directory.write("config.json", config.to_string());
    Checkpoint::open(&directory.write("a.safetensors", raw.bytes())).unwrap()
}

fn read(raw: &Raw) -> SharedExpert {
    open(&Directory::new(), raw)
        .shared_expert(0, NonFinite::Refuse)
        .unwrap()
}

/// The sentence with which an expert is refused: by a look at it if `at_once`, else when it is read.
#[track_caller]
fn assert_expert_refused(raw: &Raw, at_once: bool, phrases: &[&str]) {
    let checkpoint = open(&Directory::new(), raw);
    let refused = checkpoint.check_shared_expert(0).is_err();
    assert_eq!(refused, at_once, "{phrases:?}");
    let error = checkpoint.shared_expert(0, NonFinite::Refuse).unwrap_err();
    assert_sentence(&error.to_string(), phrases);
}

#[test]
fn plain_values_are_those_stored() {
    let expert = read(&plain(6));
    let values = |from: usize, rows, columns| {
        Array2::from_shape_vec((rows, columns), ramp(144)[48 * from..][..48].to_vec()).unwrap()
    };
    assert_eq!(expert.gate, values(0, 6, 8));
    assert_eq!(expert.down, values(1, 8, 6));
    assert_eq!(expert.up, values(2, 6, 8));
    for dtype in ["BF16", "F16"] {
        let narrow = |&value: &f32| match dtype {
            "BF16" => bf16::from_f32(value).to_le_bytes(),
            _ => f16::from_f32(value).to_le_bytes(),
        };
        let bytes: Vec<u8> = ramp(48).iter().flat_map(narrow).collect();
        let raw = plain(6).tensor(&name("w1.weight"), dtype, &[6, 8], &bytes);
        assert_eq!(read(&raw).gate, expert.gate, "{dtype}");
    }
}

/// Codes by the OCP FP8 table, scales 2^(code − 127), blocks of 4×3 that are ragged at both edges.
#[test]
fn fp8_by_blocks() {
    let mut codes = [0x38; 48]; // 1
    codes[1] = 0x3c; // 1.5
    codes[2] = 0x7e; // 448
    codes[7] = 0x01; // 2^-9
    codes[8 * 3 + 3] = 0xfe; // -448
    codes[8 * 4] = 0x80; // -0
    codes[8 * 5 + 7] = 0xb8; // -1
    let expert = read(&fp8(codes, [127, 128, 126, 120, 130, 0]));
    let tiny = 2.0_f32.powi(-127);
    assert_eq!(
        expert.gate,
        array![
            [1.0, 1.5, 448.0, 2.0, 2.0, 2.0, 0.5, 0.000_976_562_5],
            [1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 0.5, 0.5],
            [1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 0.5, 0.5],
            [1.0, 1.0, 1.0, -896.0, 2.0, 2.0, 0.5, 0.5],
            [-0.0, 0.007_812_5, 0.007_812_5, 8.0, 8.0, 8.0, tiny, tiny],
            [
                0.007_812_5,
                0.007_812_5,
                0.007_812_5,
                8.0,
                8.0,
                8.0,
                tiny,
                -tiny
            ],
        ]
    );
    assert!(expert.gate[[4, 0]].is_sign_negative());
    let mut least = [0x00; 48];
    least[0] = 0x01;
    let expert = read(&fp8(least, [0; 6]));
    assert_eq!(
        expert.gate[[0, 0]].to_bits(),
        1 << 13,
        "2^-136 is no less exact for being subnormal"
    );
}

/// Two codes per byte, the lower four bits first; a scale per 32 values of a row, the last block ragged.
#[test]
fn packed_fp4() {
    let mut codes = vec![0x22; 8 * 17]; // 1, 1
    codes[0] = 0x91; // 0.5, -0.5
    codes[1] = 0xf7; // 6, -6
    codes[15] = 0x43; // 1.5, 2 at columns 30 and 31
    codes[16] = 0x65; // 3, 4 at columns 32 and 33
    let mut scales = [127; 16];
    scales[..4].copy_from_slice(&[128, 126, 129, 127]);
    let raw = plain(34)
        .tensor(&name("w2.weight"), "I8", &[8, 17], &codes)
        .tensor(&name("w2.scale"), "F8_E8M0", &[8, 2], &scales);
    let down = read(&raw).down;
    assert_eq!(down.dim(), (8, 34));
    let first = down.row(0).to_vec();
    assert_eq!(first[..6], [1.0, -1.0, 12.0, -12.0, 2.0, 2.0]);
    assert_eq!(first[28..], [2.0, 2.0, 3.0, 4.0, 1.5, 2.0]);
    assert_eq!(down[[1, 0]], 4.0);
    assert_eq!(down[[1, 33]], 1.0);
    assert_eq!(down[[7, 33]], 1.0);
}

#[test]
fn every_spelling_is_the_same_and_every_byte_counts() {
    let directory = Directory::new();
    let raw = fp8([0x38; 48], [127; 6]);
    let official = open(&directory, &raw)
        .shared_expert(0, NonFinite::Refuse)
        .unwrap();
    let theirs = raw
        .header_text()
        .replace(
            "layers.0.ffn.shared_experts.w1.scale",
            "model.layers.0.mlp.shared_experts.gate_proj.weight_scale_inv",
        )
        .replace(
            "layers.0.ffn.shared_experts.w1.",
            "model.layers.0.mlp.shared_experts.gate_proj.",
        )
        .replace(
            "layers.0.ffn.shared_experts.w2.",
            "model.layers.0.mlp.shared_experts.down_proj.",
        )
        .replace(
            "layers.0.ffn.shared_experts.w3.",
            "model.layers.0.mlp.shared_experts.up_proj.",
        );
    let spec = directory.write("b.safetensors", raw.bytes_with_header(&theirs));
    let spelled = Checkpoint::open(&spec).unwrap();
    assert_eq!(
        spelled.shared_expert(0, NonFinite::Refuse).unwrap(),
        official
    );
    let mut codes = [0x38; 48];
    codes[47] = 0x39;
    for changed in [
        fp8(codes, [127; 6]),
        fp8([0x38; 48], [127, 127, 127, 127, 127, 128]),
        raw.f32(&name("w3.weight"), &[6, 8], &ramp(48)),
    ] {
        assert_ne!(read(&changed).digests, official.digests);
    }
}

#[test]
fn missing_matrices_and_scales() {
    let advice = "--sublayer rms-norm";
    assert_expert_refused(
        &layer(),
        true,
        &[
            "lacks layers.0.ffn.shared_experts.w1.weight",
            "layer 0 ffn",
            advice,
        ],
    );
    let without_scale = plain(6).tensor(&name("w1.weight"), "F8_E4M3", &[6, 8], &[0x38; 48]);
    assert_expert_refused(
        &without_scale,
        true,
        &["lacks layers.0.ffn.shared_experts.w1.scale", advice],
    );
    let half = layer().f32(&name("w1.weight"), &[6, 8], &ramp(48));
    assert_expert_refused(&half, true, &["shared_experts.w2.weight", advice]);
    let checkpoint = open(&Directory::new(), &plain(6));
    let error = checkpoint.check_shared_expert(5).unwrap_err();
    assert_sentence(&error.to_string(), &["layer 5 is not in", "choose among"]);
}

#[test]
fn wrong_shapes_and_types() {
    let scale = |dtype: &str, shape: &[u64], bytes: usize| {
        fp8([0x38; 48], [127; 6]).tensor(&name("w1.scale"), dtype, shape, &vec![127; bytes])
    };
    for (raw, phrases) in [
        (
            scale("F8_E8M0", &[6, 8], 48),
            [
                "w1.scale",
                "shape [6, 8], expected [2, 3] for a weight of 6×8 with a scale per 4×3",
            ],
        ),
        (
            scale("F8_E8M0", &[3, 2], 6),
            ["w1.scale", "expected [2, 3]"],
        ),
        (
            scale("F8_E8M0", &[6], 6),
            ["w1.scale", "shape [6], expected"],
        ),
        (
            scale("I32", &[2, 3], 24),
            ["w1.scale", "dtype 'I32', expected F8_E8M0, or F32"],
        ),
        (
            plain(6).tensor(&name("w1.weight"), "F8_E5M2", &[6, 8], &[0; 48]),
            [
                "w1.weight",
                "dtype 'F8_E5M2', expected F8_E4M3, I8 (packed FP4)",
            ],
        ),
        (
            plain(6).f32(&name("w3.weight"), &[5, 8], &ramp(40)),
            ["w3.weight", "shape [5, 8], expected [6, 8]"],
        ),
        (
            plain(6).f32(&name("w2.weight"), &[6, 8], &ramp(48)),
            [
                "w2.weight",
                "shape [6, 8], expected [8, 6] for hidden size 8 and as many",
            ],
        ),
        (
            plain(6).f32(&name("w1.weight"), &[48], &ramp(48)),
            ["w1.weight", "shape [48], expected [48, 8]"],
        ),
        (
            plain(6).f32(&name("w1.weight"), &[0, 8], &[]),
            ["w1.weight", "shape [0, 8], expected [1, 8]"],
        ),
        (
            plain(6).f32(&name("w1.weight"), &[], &[1.0]),
            ["w1.weight", "shape [], expected"],
        ),
    ] {
        assert_expert_refused(&raw, true, &phrases);
    }
}

/// Converters write scales as F32: powers of two are those of F8_E8M0, anything else is not what the kernels read.
#[test]
fn scales_of_plain_floats() {
    let with = |scales: [f32; 6]| {
        plain(6)
            .tensor(&name("w1.weight"), "F8_E4M3", &[6, 8], &[0x38; 48])
            .f32(&name("w1.scale"), &[2, 3], &scales)
    };
    let scales = [1.0, 2.0, 0.5, 4.0, 1.0, 0.25];
    let codes = [127, 128, 126, 129, 127, 125];
    assert_eq!(read(&with(scales)).gate, read(&fp8([0x38; 48], codes)).gate);
    for (value, found) in [(0.0123, "0.0123"), (0.0, "0"), (-1.0, "-1")] {
        let odd = with([1.0, value, 0.5, 4.0, 1.0, 0.25]);
        assert_expert_refused(&odd, false, &["w1.scale", found, "powers of two"]);
    }
}

#[test]
fn odd_fp4_packing() {
    let packed = |part: &str, shape: [u64; 2], raw: Raw| {
        let bytes = vec![0x22; (shape[0] * shape[1]) as usize];
        raw.tensor(&name(part), "I8", &shape, &bytes).tensor(
            &name("w2.scale"),
            "F8_E8M0",
            &[8, 1],
            &[127; 8],
        )
    };
    // A row of five values would end within a byte.
    assert_expert_refused(
        &packed("w2.weight", [8, 2], plain(5)),
        true,
        &[
            "w2.weight",
            "packs 5 values into a row, expected an even number",
        ],
    );
    // One value per byte, and one byte too many.
    for columns in [6, 4] {
        assert_expert_refused(
            &packed("w2.weight", [8, columns], plain(6)),
            true,
            &[
                "w2.weight",
                "expected [8, 3] for 6 packed FP4 values in a row, two per byte",
            ],
        );
    }
}

#[test]
fn nan_scales_codes_and_overflow() {
    let mut codes = [0x38; 48];
    let nan_scale = fp8(codes, [127, 127, 127, 255, 127, 127]);
    assert_expert_refused(
        &nan_scale,
        false,
        &[
            "w1.scale",
            "holds 1 non-finite values of 6 (the first at index 3)",
            "layer 0 ffn",
        ],
    );
    let checkpoint = open(&Directory::new(), &nan_scale);
    let gate = checkpoint.shared_expert(0, NonFinite::Allow).unwrap().gate;
    assert_eq!(gate.iter().filter(|value| value.is_nan()).count(), 6);
    assert!(gate[[4, 2]].is_nan() && gate[[3, 2]] == 1.0);
    codes[9] = 0x7f;
    assert_expert_refused(
        &fp8(codes, [127; 6]),
        false,
        &[
            "w1.weight",
            "holds 1 non-finite values of 48 (the first at index 9)",
        ],
    );
    codes[9] = 0x7e;
    assert_expert_refused(
        &fp8(codes, [254; 6]),
        false,
        &["w1.weight", "holds 1 non-finite values of 48"],
    );
}

#[test]
fn the_configuration_has_blocks_and_the_limit() {
    let directory = Directory::new();
    let model = open(&directory, &layer()).model().clone();
    assert_eq!((model.weight_block, model.swiglu_limit), ([4, 3], 7.5));
    let spec = directory.spec("a.safetensors");
    let with = |config: serde_json::Value| {
        directory.write("config.json", config.to_string());
        Checkpoint::open(&spec).map(|checkpoint| checkpoint.model().clone())
    };
    let model = with(json!({ "swiglu_limit": 0 })).unwrap();
    assert_eq!(
        (model.weight_block, model.swiglu_limit),
        ([128; 2], f64::INFINITY)
    );
    let model = with(json!({ "model_type": "deepseek_v41", "text_config": {
        "quantization_config": { "weight_block_size": null } } }));
    let model = model.unwrap();
    assert_eq!((model.weight_block, model.swiglu_limit), ([32; 2], 10.0));
    assert!(
        model
            .notes
            .iter()
            .all(|note| !note.contains("swiglu_limit"))
    );
    for wrong in [
        json!(128),
        json!([128]),
        json!([0, 128]),
        json!([1, 2, 3]),
        json!(["a", 1]),
    ] {
        let config = json!({ "quantization_config": { "weight_block_size": wrong } });
        let error = with(config).unwrap_err().to_string();
        assert_sentence(
            &error,
            &[
                "config.json",
                "weight_block_size is",
                "expected two integers",
            ],
        );
    }
    for wrong in [json!(-1), json!("10"), json!(1e300)] {
        let error = with(json!({ "swiglu_limit": wrong })).unwrap_err();
        assert_sentence(
            &error.to_string(),
            &["swiglu_limit is", "a number from 0 to"],
        );
    }
    // Where there is an expert and no word on its limit, that is said.
    fs::remove_file(directory.path("config.json")).unwrap();
    let spec = directory.write("b.safetensors", plain(6).bytes());
    let notes = &Checkpoint::open(&spec).unwrap().model().notes.join("\n");
    assert!(notes.contains("swiglu_limit 10 assumed"), "{notes}");
}

#[test]
fn synthetic_ones_are_as_wide_as_published_and_written_with_tiny_alone() {
    for (model, hidden, inter, scales) in [
        ("flash", 4096, 2048, 128),
        ("pro", 7168, 3072, 128),
        ("v4.1", 5120, 2304, 32),
        ("tiny", 256, 128, 128),
    ] {
        let checkpoint = Checkpoint::open(&format!("synthetic:{model}")).unwrap();
        assert_eq!(checkpoint.model().weight_block, [scales; 2], "{model}");
        checkpoint.check_shared_expert(3).unwrap();
        if model == "pro" {
            continue;
        }
        let expert = checkpoint.shared_expert(1, NonFinite::Refuse).unwrap();
        assert_eq!(expert.gate.dim(), (inter, hidden), "{model}");
        assert_ne!(expert.gate, expert.up);
        for (matrix, fan_in) in [
            (&expert.gate, hidden),
            (&expert.up, hidden),
            (&expert.down, inter),
        ] {
            let squares: f64 = matrix.iter().map(|&v| f64::from(v) * f64::from(v)).sum();
            let rms = (squares / matrix.len() as f64 * fan_in as f64).sqrt();
            assert!((rms - 1.0).abs() < 0.02, "{model}: {rms}");
        }
    }
    let directory = Directory::tiny();
    let written = Checkpoint::open(&directory.spec("ckpt")).unwrap();
    let memory = Checkpoint::open("synthetic:tiny").unwrap();
    for layer in 0..4 {
        assert_eq!(
            written.shared_expert(layer, NonFinite::Refuse).unwrap(),
            memory.shared_expert(layer, NonFinite::Refuse).unwrap()
        );
    }
    write_synthetic(&directory.path("flash"), SyntheticModel::Flash, &[0], 0).unwrap();
    let flash = Checkpoint::open(&directory.spec("flash")).unwrap();
    let error = flash.check_shared_expert(0).unwrap_err().to_string();
    assert_sentence(&error, &["lacks layers.0.ffn.shared_experts.w1.weight"]);
}

/// A shard that holds nothing but an expert is missed by those alone who ask for it.
#[test]
fn an_absent_shard_is_told_to_those_who_ask() {
    let directory = Directory::new();
    let (whole, expert) = (layer(), plain(6));
    let mut map = serde_json::Map::new();
    for part in ["fn", "base", "scale"] {
        for site in ["attn", "ffn"] {
            map.insert(
                format!("layers.0.hc_{site}_{part}"),
                json!("one.safetensors"),
            );
        }
    }
    for part in ["w1", "w2", "w3"] {
        map.insert(name(&format!("{part}.weight")), json!("two.safetensors"));
    }
    directory.write("c/one.safetensors", whole.bytes());
    directory.write(
        "c/model.safetensors.index.json",
        json!({ "weight_map": map }).to_string(),
    );
    let checkpoint = Checkpoint::open(&directory.spec("c")).unwrap();
    let notes = checkpoint.model().notes.join("\n");
    assert!(!notes.contains("two.safetensors"), "{notes}");
    let error = checkpoint.check_shared_expert(0).unwrap_err().to_string();
    assert_sentence(
        &error,
        &["'two.safetensors'", "1 of 2 shards", "--sublayer rms-norm"],
    );
    directory.write("c/two.safetensors", expert.bytes());
    let checkpoint = Checkpoint::open(&directory.spec("c")).unwrap();
    checkpoint.check_shared_expert(0).unwrap();
}
