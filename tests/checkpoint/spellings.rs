//! One model in every spelling and type it is met in: the same records.

use std::{collections::BTreeMap, fs, process::Command};

use half::{bf16, f16};
use safetensors::SafeTensors;
use serde_json::json;

use crate::support::{Directory, Raw};

/// A tensor: dtype, shape, bytes.
#[derive(Clone)]
pub struct Tensor {
    pub dtype: &'static str,
    pub shape: Vec<u64>,
    pub bytes: Vec<u8>,
}

pub type Model = BTreeMap<String, Tensor>;

/// The small synthetic model, its hyper-connection weights rounded to what BF16 and F16 both hold.
pub fn official(directory: &Directory) -> Model {
    let mut model = Model::new();
    for entry in fs::read_dir(directory.path("ckpt")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|end| end != "safetensors") {
            continue;
        }
        let bytes = fs::read(path).unwrap();
        for (name, view) in SafeTensors::deserialize(&bytes).unwrap().iter() {
            let dtype = match format!("{:?}", view.dtype()).as_str() {
                "F32" => "F32",
                "BF16" => "BF16",
                "F8_E4M3" => "F8_E4M3",
                "F8_E8M0" => "F8_E8M0",
                other => panic!("{other}"),
            };
            let tensor = Tensor {
                dtype,
                shape: view.shape().iter().map(|&side| side as u64).collect(),
                bytes: view.data().to_vec(),
            };
            model.insert(name.to_owned(), tensor);
        }
    }
    map(&mut model, is_hc, |tensor| {
        let both = |value: f32| f16::from_f32(bf16::from_f32(value).to_f32()).to_f32();
        store(tensor, "F32", both);
    });
    model
}

pub fn is_hc(name: &str) -> bool {
    name.contains(".hc_")
}

pub fn map(model: &mut Model, applies: impl Fn(&str) -> bool, change: impl Fn(&mut Tensor)) {
    let chosen = model.iter_mut().filter(|(name, _)| applies(name));
    let changed = chosen.map(|(_, tensor)| change(tensor)).count();
    assert!(changed > 0);
}

fn values(tensor: &Tensor) -> Vec<f32> {
    let pairs = || {
        tensor
            .bytes
            .chunks_exact(2)
            .map(|b| u16::from_le_bytes([b[0], b[1]]))
    };
    match tensor.dtype {
        "F32" => {
            let words = tensor.bytes.chunks_exact(4);
            words
                .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                .collect()
        }
        "BF16" => pairs().map(|bits| bf16::from_bits(bits).to_f32()).collect(),
        "F8_E8M0" => tensor
            .bytes
            .iter()
            .map(|&code| 2_f32.powi(i32::from(code) - 127))
            .collect(),
        other => panic!("{other}"),
    }
}

/// Stores a tensor as another type.
pub fn store(tensor: &mut Tensor, dtype: &'static str, value: impl Fn(f32) -> f32) {
    let values = values(tensor).into_iter().map(value);
    tensor.bytes = match dtype {
        "F32" => values.flat_map(f32::to_le_bytes).collect(),
        "BF16" => values
            .flat_map(|v| bf16::from_f32(v).to_le_bytes())
            .collect(),
        "F16" => values
            .flat_map(|v| f16::from_f32(v).to_le_bytes())
            .collect(),
        other => panic!("{other}"),
    };
    tensor.dtype = dtype;
}

/// Writes a model with its names spelled so.
pub fn write(
    directory: &Directory,
    place: &str,
    model: &Model,
    spell: impl Fn(&str) -> String,
) -> String {
    let raw = model.iter().fold(Raw::default(), |raw, (name, tensor)| {
        raw.tensor(&spell(name), tensor.dtype, &tensor.shape, &tensor.bytes)
    });
    directory.write(&format!("{place}/model.safetensors"), raw.bytes());
    fs::copy(
        directory.path("ckpt/config.json"),
        directory.path(&format!("{place}/config.json")),
    )
    .unwrap();
    directory.spec(place)
}

pub fn as_is(name: &str) -> String {
    name.to_owned()
}

/// Runs, and hands exit code, records and what was said back.
fn run(spec: &str, flags: &str) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_ulpdrift"))
        .args(["run", spec, "--tokens", "2"])
        .args(flags.split(' '))
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

const ALL: &str =
    "--suite mix,chain,indexer --context 128 --variants fp32,tf32,bf16-patch,fp8-f32scale";

#[track_caller]
fn records(spec: &str, flags: &str) -> String {
    let (code, records, said) = run(spec, &format!("{flags} --format csv"));
    assert!(code < 2 && records.lines().count() > 10, "{said}");
    records
}

/// What a name becomes.
type Spelling = fn(&str) -> String;

/// What converters write: `model.` alone, older module names, those of transformers, a composite model's.
pub fn spellings() -> [(&'static str, Spelling); 4] {
    fn renamed(name: &str, names: &[(&str, &str)]) -> String {
        let name = match name.strip_suffix(".scale") {
            Some(stem) => format!("model.{stem}.weight_scale_inv"),
            None => format!("model.{name}"),
        };
        let replace = |name: String, &(ours, theirs): &(&str, &str)| name.replace(ours, theirs);
        names.iter().fold(name, replace)
    }
    [
        ("prefixed", |name| format!("model.{name}")),
        ("modules", |name| {
            renamed(name, &[(".attn.", ".self_attn."), (".ffn.", ".mlp.")])
        }),
        ("transformers", |name| {
            renamed(
                name,
                &[
                    ("hc_head_", "hc_head.hc_"),
                    ("hc_attn_", "attn_hc."),
                    ("hc_ffn_", "ffn_hc."),
                    ("ffn_norm", "post_attention_layernorm"),
                    ("attn_norm", "input_layernorm"),
                    (".attn.wq_a.", ".self_attn.q_a_proj."),
                    (".attn.q_norm.", ".self_attn.q_a_norm."),
                    (
                        ".attn.indexer.wq_b.",
                        ".self_attn.compressor.indexer.q_b_proj.",
                    ),
                    (
                        ".attn.indexer.weights_proj.",
                        ".self_attn.compressor.indexer.weights_proj.",
                    ),
                    (
                        ".attn.indexer.compressor.wkv.",
                        ".self_attn.compressor.indexer.kv_proj.",
                    ),
                    (
                        ".attn.indexer.compressor.wgate.",
                        ".self_attn.compressor.indexer.gate_proj.",
                    ),
                    (
                        ".attn.indexer.compressor.norm.",
                        ".self_attn.compressor.indexer.kv_norm.",
                    ),
                    (
                        ".attn.indexer.compressor.ape",
                        ".self_attn.compressor.indexer.position_bias",
                    ),
                    (".ffn.shared_experts.w1.", ".mlp.shared_experts.gate_proj."),
                    (".ffn.shared_experts.w2.", ".mlp.shared_experts.down_proj."),
                    (".ffn.shared_experts.w3.", ".mlp.shared_experts.up_proj."),
                    (".embed.", ".embed_tokens."),
                ],
            )
        }),
        ("composite", |name| format!("model.language_model.{name}")),
    ]
}

#[test]
fn every_spelling_gives_the_same_records() {
    let directory = Directory::tiny();
    let model = official(&directory);
    let expected = records(&write(&directory, "official", &model, as_is), ALL);
    for (place, spell) in spellings() {
        let spelled = write(&directory, place, &model, spell);
        assert!(records(&spelled, ALL) == expected, "{place}");
    }
    // In shards without an index, by name.
    let (first, second): (Model, Model) = model
        .clone()
        .into_iter()
        .partition(|(name, _)| name.starts_with("layers.0"));
    let list = [("one", first), ("two", second)]
        .map(|(place, part)| write(&directory, place, &part, as_is) + "/model.safetensors");
    assert!(records(&list.join(","), ALL) == expected);
}

#[test]
fn every_type_gives_the_same_records_or_says_what_it_costs() {
    let directory = Directory::tiny();
    let model = official(&directory);
    let expected = records(&write(&directory, "official", &model, as_is), ALL);
    for (place, dtype) in [("bf16", "BF16"), ("f16", "F16")] {
        let mut stored = model.clone();
        map(&mut stored, is_hc, |tensor| {
            store(tensor, dtype, |value| value);
        });
        let spec = write(&directory, place, &stored, as_is);
        assert!(records(&spec, ALL) == expected, "{dtype}");
        let (_, report, _) = run(&spec, "--suite mix --variants fp32 --format json");
        assert!(report.contains(&format!(
            "hc_fn is stored as {dtype}, which is already a loss"
        )));
    }
    // An indexer in F32, its block scales too.
    let mut wide = model.clone();
    map(
        &mut wide,
        |name| name.contains(".attn.") && name.ends_with("scale"),
        |tensor| {
            store(tensor, "F32", |value| value);
        },
    );
    let is_plain =
        |name: &str| name.contains("indexer.compressor") || name.contains("weights_proj");
    map(&mut wide, is_plain, |tensor| {
        store(tensor, "F32", |value| value);
    });
    let spec = write(&directory, "wide", &wide, |name| {
        match name.strip_suffix(".scale") {
            Some(stem) => format!("{stem}.weight_scale_inv"),
            None => name.to_owned(),
        }
    });
    assert!(records(&spec, ALL) == expected);
}

#[test]
fn a_scale_that_is_no_power_of_two_is_refused() {
    let directory = Directory::tiny();
    let mut model = official(&directory);
    map(
        &mut model,
        |name| name.contains("indexer.wq_b.scale"),
        |tensor| {
            store(tensor, "F32", |value| value * 1.25);
        },
    );
    let spec = write(&directory, "odd", &model, as_is);
    let (code, _, said) = run(&spec, "--suite indexer --context 128 --variants fp32");
    assert_eq!(code, 2);
    assert!(
        said.contains("indexer.wq_b.scale") && said.contains("expected powers of two"),
        "{said}"
    );
}

#[test]
fn nvfp4_changes_nothing_but_the_routed_experts() {
    let directory = Directory::tiny();
    let mut model = official(&directory);
    let expected = records(&write(&directory, "official", &model, as_is), ALL);
    for (part, dtype, shape) in [
        ("weight", "U8", vec![64, 64]),
        ("weight_scale", "F8_E4M3", vec![64, 8]),
        ("weight_scale_2", "F32", vec![]),
        ("input_scale", "F32", vec![]),
    ] {
        let elements = shape.iter().product::<u64>() as usize;
        let bytes = vec![1; if dtype == "F32" { 4 } else { elements }];
        let name = format!("layers.0.ffn.experts.0.w1.{part}");
        model.insert(
            name,
            Tensor {
                dtype,
                shape,
                bytes,
            },
        );
    }
    assert!(records(&write(&directory, "nvfp4", &model, as_is), ALL) == expected);
}

#[test]
fn packed_and_fused_indexers_are_named() {
    let directory = Directory::tiny();
    let model = official(&directory);
    for (place, from, to) in [
        (
            "packed",
            "indexer.wq_b.weight",
            "indexer.wq_b.weight_packed",
        ),
        ("fused", "attn.wq_a.weight", "attn.fused_wqa_wkv.weight"),
        ("scaled", "indexer.wq_b.scale", "indexer.wq_b.weight_scale"),
        (
            "joined",
            "indexer.compressor.wkv.weight",
            "indexer.compressor.wkv_gate.weight",
        ),
    ] {
        let spec = write(&directory, place, &model, |name| name.replace(from, to));
        let (code, _, said) = run(&spec, "--suite indexer --context 128 --variants fp32");
        assert_eq!(code, 2, "{said}");
        for part in [
            from,
            to,
            "a fused, packed or renamed form that ulpdrift does not read",
        ] {
            assert!(said.contains(part), "no {part}: {said}");
        }
        records(&spec, "--suite mix --variants fp32");
    }
}

#[test]
fn mtp_layers_are_listed_and_never_measured() {
    let directory = Directory::tiny();
    let model = official(&directory);
    let expected = records(&write(&directory, "official", &model, as_is), ALL);
    let norm = |raw: Raw, name: &str| raw.f32(name, &[256], &[1.0; 256]);
    for (place, prefix, nextn) in [
        ("official-mtp", "mtp.0.", 1),
        ("third", "mtp.2.", 1),
        ("behind", "layers.4.", 1),
        // Known by its norms where the configuration counts none.
        ("undeclared", "layers.4.", 0),
        ("prefixed-mtp", "model.layers.4.", 0),
    ] {
        let mut more = model.clone();
        for (name, tensor) in &model {
            if let Some(part) = name.strip_prefix("layers.0.hc_") {
                more.insert(format!("{prefix}hc_{part}"), tensor.clone());
            }
        }
        let spec = write(&directory, place, &more, as_is);
        let file = format!("{place}/model.safetensors");
        let raw = more.iter().fold(Raw::default(), |raw, (name, tensor)| {
            raw.tensor(name, tensor.dtype, &tensor.shape, &tensor.bytes)
        });
        let raw = norm(
            norm(raw, &format!("{prefix}enorm.weight")),
            &format!("{prefix}hnorm.weight"),
        );
        directory.write(&file, raw.bytes());
        directory.edit_json(&format!("{place}/config.json"), |config| {
            config["num_nextn_predict_layers"] = json!(nextn);
        });
        assert!(records(&spec, ALL) == expected, "{place}");
        let listed = Command::new(env!("CARGO_BIN_EXE_ulpdrift"))
            .args(["inspect", &spec])
            .output()
            .unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        let heading = format!("MTP {}, not measured", prefix.trim_end_matches('.'));
        assert!(
            listed.contains(&heading) && listed.contains("4 of 4 layers"),
            "{place}: {listed}"
        );
        assert!(listed.contains("enorm.weight"), "{listed}");
    }
}
