//! Reports made up for tests.

use std::collections::BTreeMap;

use super::{
    Backend, Certificate, Checkpoint, Host, Key, Measures, Record, Records, Report, Run,
    SCHEMA_VERSION, Tool, WeightKind,
};
use crate::measure::value::Value;

/// A row of suite mix whose other measures follow from `rel_l2` as they would for a rounded operand.
pub(crate) fn record(variant: &str, layer: u32, site: &str, stage: &str, rel_l2: f64) -> Record {
    Record {
        key: Key {
            suite: "mix".to_owned(),
            layer: Some(layer),
            site: Some(site.to_owned()),
            depth: Some(layer + u32::from(site == "ffn")),
            stage: Some(stage.to_owned()),
            variant: variant.to_owned(),
            inputs: "normal".to_owned(),
            token_class: "all".to_owned(),
            tokens: 64,
            backend: "emulate".to_owned(),
            arch: "sm_120".to_owned(),
            ..Key::default()
        },
        measures: Measures {
            rel_l2: Some(Value(rel_l2)),
            cosine: Some(Value(1.0 - rel_l2 * rel_l2 / 2.0)),
            cosine_gap: Some(Value(rel_l2 * rel_l2 / 2.0)),
            nan_got: Some(0),
            inf_got: Some(0),
            class_mismatch: Some(0),
            ..Measures::default()
        },
    }
}

/// A row of stage `mixes` with the split of its error.
pub(crate) fn mixes(variant: &str, layer: u32, site: &str, operand: f64, arith: f64) -> Record {
    let mut record = record(variant, layer, site, "mixes", operand.hypot(arith));
    record.measures.operand_rel_l2 = Some(Value(operand));
    record.measures.arith_rel_l2 = Some(Value(arith));
    record.measures.slope = Some(Value(-operand * 0.005));
    record.measures.bound_ratio = Some(Value(0.11));
    record
}

/// A report of given rows on synthetic weights.
pub(crate) fn report(records: Vec<Record>) -> Report {
    let recipes: BTreeMap<String, serde_json::Value> = records
        .iter()
        .map(|record| {
            let name = &record.key.variant;
            (name.clone(), serde_json::json!({ "name": name }))
        })
        .collect();
    Report {
        schema_version: SCHEMA_VERSION,
        tool: Tool::current(),
        run: Run {
            command: vec!["ulpdrift".to_owned(), "run".to_owned()],
            seed: 0,
            inputs: "normal".to_owned(),
            tokens: 64,
            backend: Backend {
                name: "emulate".to_owned(),
                arch: "sm_120".to_owned(),
                device: None,
                driver: None,
                nvrtc: None,
                kernels: Vec::new(),
                options: Vec::new(),
                library: None,
                probed: BTreeMap::new(),
            },
            checkpoint: Checkpoint {
                source: "synthetic:flash".to_owned(),
                revision: None,
                kind: WeightKind::Synthetic,
                digest: "sha256:00".to_owned(),
                family: "flash".to_owned(),
                hidden: 4096,
                hc: 4,
                layers: 43,
                dtypes: BTreeMap::from([("hc_fn".to_owned(), "F32".to_owned())]),
                notes: Vec::new(),
            },
            repeat_flags: Vec::new(),
        },
        part: None,
        recipes,
        certificate: Some(Certificate {
            checked: 64,
            max_abs_diff: Value(3e-16),
            max_rel_to_scale: Value(1e-15),
        }),
        compiled: BTreeMap::new(),
        timing: None,
        non_finite: Vec::new(),
        growth: Vec::new(),
        faults: Vec::new(),
        diagnoses: Vec::new(),
        failures: Vec::new(),
        skipped: Vec::new(),
        records: Records::new(records).expect("a test report has distinct keys"),
        verdicts: Vec::new(),
        gates: Vec::new(),
        host: Some(Host {
            platform: "linux-x86_64".to_owned(),
            threads: 2,
            simd: "avx512".to_owned(),
            seconds: Some(Value(12.5)),
        }),
    }
}

/// Two layers, four variants, three stages: enough for a table, a verdict and a gate.
pub(crate) fn mix_report() -> Report {
    let variants = [
        ("fp32", 1e-9, 3e-7),
        ("tf32", 2.09e-4, 6e-7),
        ("tf32-rz", 4.2e-4, 4e-6),
        ("bf16-prenorm", 2.89e-3, 5e-7),
    ];
    let mut records = Vec::new();
    for layer in [0, 17] {
        for (site, scale) in [("attn", 1.0), ("ffn", 1.03)] {
            for (variant, operand, arith) in variants {
                records.push(mixes(variant, layer, site, operand * scale, arith));
                records.push(record(variant, layer, site, "comb", operand * 0.8));
                records.push(record(variant, layer, site, "y_bf16", operand * 0.4));
            }
        }
    }
    report(records)
}

/// A row of suite recombine.
pub(crate) fn recombined(variant: &str, site: &str, stage: &str, rel_l2: f64) -> Record {
    let mut record = record(variant, 3, site, stage, rel_l2);
    record.key.suite = "recombine".to_owned();
    record.measures.changed = Some(Value(0.0));
    if stage == "streams" {
        record.measures.operand_rel_l2 = Some(Value(0.0));
        record.measures.arith_rel_l2 = Some(Value(rel_l2));
        record.measures.bound_ratio = Some(Value(0.99998));
    }
    record
}
