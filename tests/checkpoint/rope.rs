//! How keys turn: what configurations of either spelling say, and what they cannot mean.

use serde_json::{Value, json};
use ulpdrift::checkpoint::{
    Checkpoint, CheckpointError, IndexerModel, Rope, SyntheticModel, Yarn, write_synthetic,
};

use crate::support::{Directory, assert_sentence};

/// The tiny checkpoint's dimensions with a configuration of these entries on top.
struct Configured(Directory);

impl Configured {
    fn new() -> Self {
        Self(Directory::tiny())
    }

    fn open(&self, entries: &Value) -> Result<Rope, CheckpointError> {
        let mut config = json!({ "model_type": "deepseek_v4" });
        for (key, value) in entries.as_object().unwrap() {
            config[key] = value.clone();
        }
        self.0.write("ckpt/config.json", config.to_string());
        let checkpoint = Checkpoint::open(&self.0.spec("ckpt"))?;
        Ok(checkpoint.model().indexer.unwrap().rope)
    }
}

const PUBLISHED: Yarn = Yarn {
    factor: 16.0,
    original_positions: 65_536,
    beta_fast: 32.0,
    beta_slow: 1.0,
};

fn rope(theta: f64, yarn: Option<Yarn>) -> Rope {
    Rope {
        dims: 64,
        theta,
        yarn,
    }
}

#[test]
fn what_configurations_say() {
    let yarn = json!({ "type": "yarn", "factor": 16, "original_max_position_embeddings": 65536,
        "beta_fast": 32, "beta_slow": 1 });
    let short = json!({ "rope_type": "yarn", "factor": 4.5, "original_max_position_embeddings": 4096,
        "attention_factor": 1.0 });
    let usual = Yarn {
        factor: 4.5,
        original_positions: 4096,
        ..PUBLISHED
    };
    let configured = Configured::new();
    for (entries, expected) in [
        (json!({}), rope(160_000.0, None)),
        (json!({ "rope_scaling": null }), rope(160_000.0, None)),
        (json!({ "rope_scaling": {} }), rope(160_000.0, None)),
        (
            json!({ "compress_rope_theta": 5e4, "rope_scaling": yarn, "qk_rope_head_dim": 64 }),
            rope(5e4, Some(PUBLISHED)),
        ),
        (
            json!({ "rope_scaling": { "type": "default" } }),
            rope(160_000.0, None),
        ),
        (
            json!({ "rope_parameters": {
                "compress": { "rope_theta": 7e4, "rope_type": "default" },
                "main": yarn,
            } }),
            rope(7e4, None),
        ),
        (
            json!({ "rope_parameters": { "compress": short, "main": { "rope_type": "default" } } }),
            rope(160_000.0, Some(usual)),
        ),
        // One set for all layers: its theta is the main attention's.
        (
            json!({ "rope_parameters": { "rope_theta": 1e4, "rope_type": "default" },
                "rope_scaling": yarn }),
            rope(160_000.0, None),
        ),
        (
            json!({ "rope_parameters": { "main": { "rope_type": "default" } }, "rope_scaling": yarn }),
            rope(160_000.0, Some(PUBLISHED)),
        ),
        (
            json!({ "compress_rope_theta": 160000.0,
                "rope_parameters": { "compress": { "rope_theta": 160000 } } }),
            rope(160_000.0, None),
        ),
    ] {
        assert_eq!(configured.open(&entries).unwrap(), expected, "{entries}");
    }
    let narrow = configured.open(&json!({ "qk_rope_head_dim": 32 })).unwrap();
    assert_eq!(narrow.dims, 32);
}

#[test]
fn what_configurations_cannot_mean() {
    let scaling = |change: Value| {
        let mut yarn = json!({ "type": "yarn", "factor": 16,
            "original_max_position_embeddings": 65536, "beta_fast": 32, "beta_slow": 1 });
        for (key, value) in change.as_object().unwrap() {
            yarn[key] = value.clone();
        }
        json!({ "rope_scaling": yarn })
    };
    let configured = Configured::new();
    for (entries, phrases) in [
        (
            scaling(json!({ "type": "llama3" })),
            ["rope_scaling.type is '\"llama3\"'", "default or yarn"],
        ),
        (
            scaling(json!({ "type": 3 })),
            ["rope_scaling.type is '3'", "default or yarn"],
        ),
        (
            scaling(json!({ "type": null })),
            ["rope_scaling has no 'type'", "default or yarn"],
        ),
        (
            scaling(json!({ "factor": null })),
            ["rope_scaling has no 'factor'", "a number"],
        ),
        (
            scaling(json!({ "factor": "16" })),
            ["rope_scaling.factor is", "a number above 0"],
        ),
        (
            scaling(json!({ "factor": 5e-324 })),
            ["rope_scaling.factor is '5e-324'", "a number above 0.000001"],
        ),
        (
            scaling(json!({ "beta_fast": 2e-310, "beta_slow": 1e-310 })),
            [
                "rope_scaling.beta_fast is '2e-310'",
                "a number above 0.000001",
            ],
        ),
        (
            scaling(json!({ "original_max_position_embeddings": null })),
            ["has no 'original_max_position_embeddings'", "an integer"],
        ),
        (
            scaling(json!({ "original_max_position_embeddings": 0 })),
            ["original_max_position_embeddings is '0'", "an integer"],
        ),
        (
            scaling(json!({ "beta_slow": 0 })),
            ["rope_scaling.beta_slow is '0'", "a number above 0"],
        ),
        (
            scaling(json!({ "beta_fast": 1 })),
            [
                "rope_scaling.beta_fast is",
                "more than beta_slow, which is 1",
            ],
        ),
        (
            scaling(json!({ "attention_factor": 1.27 })),
            ["rope_scaling.attention_factor is '1.27'", "expected 1"],
        ),
        (
            json!({ "rope_scaling": "yarn" }),
            ["rope_scaling is '\"yarn\"'", "an object or null"],
        ),
        (
            json!({ "rope_parameters": { "compress": { "rope_type": "yarn" } } }),
            ["rope_parameters.compress has no 'factor'", "a number"],
        ),
        (
            json!({ "compress_rope_theta": 1 }),
            ["compress_rope_theta is '1'", "a number above 1"],
        ),
        (
            json!({ "compress_rope_theta": "160000" }),
            ["compress_rope_theta is", "a number above 1"],
        ),
        (
            json!({ "compress_rope_theta": 1e4,
                "rope_parameters": { "compress": { "rope_theta": 16e4 } } }),
            [
                "rope_parameters.compress.rope_theta is '160000.0'",
                "expected 10000",
            ],
        ),
        (
            json!({ "qk_rope_head_dim": 63 }),
            ["qk_rope_head_dim is '63'", "an even integer"],
        ),
    ] {
        let error = configured.open(&entries).unwrap_err().to_string();
        assert_sentence(&error, &["config.json", "mend it", phrases[0], phrases[1]]);
    }
    // Heads that are narrower than what turns cannot be read, but all else can.
    let checkpoint = {
        let entries = json!({ "qk_rope_head_dim": 130 });
        assert_eq!(configured.open(&entries).unwrap().dims, 130);
        Checkpoint::open(&configured.0.spec("ckpt")).unwrap()
    };
    let error = checkpoint.check_indexer(2).unwrap_err().to_string();
    assert_sentence(
        &error,
        &["wq_b.weight", "heads of width 128", "130 dimensions"],
    );
}

#[test]
fn published_models_turn_as_published() {
    for (name, heads, rank, topk) in [
        ("flash", 64, 1024, 512),
        ("pro", 64, 1536, 1024),
        ("tiny", 8, 128, 16),
    ] {
        let checkpoint = Checkpoint::open(&format!("synthetic:{name}")).unwrap();
        let expected = IndexerModel {
            heads,
            width: 128,
            rank,
            ratio: 4,
            topk,
            rope: rope(160_000.0, Some(PUBLISHED)),
        };
        assert_eq!(checkpoint.model().indexer, Some(expected), "{name}");
    }
    let other = Checkpoint::open("synthetic:v4.1").unwrap();
    assert_eq!(other.model().indexer, None);
}

/// Where nothing is configured, the family's values stand in and are remarked on.
#[test]
fn what_is_assumed_is_said() {
    let directory = Directory::tiny();
    std::fs::remove_file(directory.path("ckpt/config.json")).unwrap();
    let model = Checkpoint::open(&directory.spec("ckpt"))
        .unwrap()
        .model()
        .clone();
    assert_eq!(model.indexer.unwrap().rope, rope(160_000.0, None));
    assert_eq!(model.indexer.unwrap().topk, 512);
    let notes = model.notes.join("\n");
    for note in [
        "no config.json: the rope of compressed keys: 64 dimensions, theta 160000, no YaRN, assumed",
        "no config.json: index_topk 512 assumed",
    ] {
        assert!(notes.contains(note), "no '{note}' in: {notes}");
    }
    write_synthetic(&directory.path("flash"), SyntheticModel::Flash, &[2], 0).unwrap();
    std::fs::remove_file(directory.path("flash/config.json")).unwrap();
    let flash = Checkpoint::open(&directory.spec("flash")).unwrap();
    let model = flash.model();
    assert_eq!(
        model.indexer.unwrap().rope,
        rope(160_000.0, Some(PUBLISHED))
    );
    let notes = model.notes.join("\n");
    let note = "theta 160000, YaRN of factor 16 over 65536 positions, beta 32 and 1, assumed";
    assert!(notes.contains(note), "{notes}");
}
