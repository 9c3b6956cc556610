//! Each verdict and its cause, and which of several wins.

use super::*;
use crate::{
    measure::value::Value,
    report::{Measures, fixtures},
};

/// fp32 and one candidate whose rows a case then spoils.
fn judged(spoil: impl Fn(&mut Record)) -> Verdict {
    let mut records = Vec::new();
    for layer in 0..3 {
        for stage in ["mixes", "y_bf16"] {
            records.push(fixtures::record("fp32", layer, "ffn", stage, 3e-7));
            let mut record = fixtures::record("cand", layer, "ffn", stage, 2e-4);
            record.measures.bound_ratio = (stage == "mixes").then_some(Value(0.2));
            if layer == 1 {
                spoil(&mut record);
            }
            records.push(record);
        }
    }
    let verdicts = judge(&records, &[], &records, &VerdictLimits::default());
    assert_eq!(verdicts.len(), 2);
    assert_eq!(
        verdicts[0].verdict,
        Class::Exact,
        "fp32 is its own yardstick"
    );
    verdicts.into_iter().nth(1).unwrap()
}

fn set(stage: &'static str, change: impl Fn(&mut Measures)) -> impl Fn(&mut Record) {
    move |record| {
        if record.key.stage.as_deref() == Some(stage) {
            change(&mut record.measures);
        }
    }
}

#[test]
fn each_verdict_has_its_cause() {
    let value = |v: f64| Some(Value(v));
    type Spoil = Box<dyn Fn(&mut Record)>;
    let cases: Vec<(Spoil, Class, &str)> = vec![
        (
            Box::new(|_| ()),
            Class::Noise,
            "cosine_gap at most 2.00e-8 in y_bf16 of L0.ffn",
        ),
        (
            Box::new(set("mixes", move |m| m.rel_l2 = value(f64::NAN))),
            Class::Degraded,
            "rel_l2 NaN in mixes of L1.ffn",
        ),
        (
            Box::new(set("y_bf16", move |m| m.cosine_gap = value(1e-4))),
            Class::Degraded,
            "cosine_gap 1.00e-4 in y_bf16 of L1.ffn, not below 1e-4",
        ),
        (
            Box::new(set("y_bf16", move |m| m.cosine_gap = value(f64::NAN))),
            Class::Degraded,
            "NaN",
        ),
        (
            Box::new(set("y_bf16", move |m| m.cosine_gap = None)),
            Class::Degraded,
            "missing",
        ),
        (
            Box::new(set("mixes", move |m| m.bound_ratio = value(48.0))),
            Class::Structural,
            "48.0 times its bound in mixes of L1.ffn",
        ),
        (
            Box::new(set("mixes", move |m| m.bound_ratio = value(f64::NAN))),
            Class::Structural,
            "NaN",
        ),
        (
            Box::new(set("mixes", |m| m.class_mismatch = Some(2))),
            Class::Structural,
            "2 outputs finite",
        ),
        (
            Box::new(set("y_bf16", |m| m.nan_got = Some(3))),
            Class::Broken,
            "3 NaN and 0 infinite outputs in y_bf16 of L1.ffn",
        ),
        (
            Box::new(set("mixes", |m| m.inf_got = Some(1))),
            Class::Broken,
            "0 NaN and 1 infinite",
        ),
        (
            Box::new(set("mixes", move |m| m.cosine = value(0.98))),
            Class::Broken,
            "cosine 0.9800 in mixes of L1.ffn, limit 0.99",
        ),
        (
            Box::new(set("mixes", move |m| m.cosine = value(f64::NAN))),
            Class::Broken,
            "cosine NaN",
        ),
    ];
    for (spoil, class, sentence) in cases {
        let verdict = judged(spoil);
        assert_eq!(verdict.verdict, class, "{}", verdict.sentence);
        assert!(verdict.sentence.contains(sentence), "{}", verdict.sentence);
    }
}

#[test]
fn the_worse_verdict_wins() {
    let verdict = judged(|record| {
        record.measures.bound_ratio = Some(Value(9.0));
        record.measures.inf_got = Some(1);
        record.measures.cosine_gap = Some(Value(0.3));
    });
    assert_eq!(verdict.verdict, Class::Broken);
    assert!(
        verdict.sentence.contains("bound_ratio 9.0"),
        "{}",
        verdict.sentence
    );
}

#[test]
fn nothing_is_exact_without_fp32() {
    let records = vec![fixtures::record("tf32x3", 0, "attn", "mixes", 1e-9)];
    let verdict = &judge(&records, &[], &records, &VerdictLimits::default())[0];
    assert_eq!(verdict.verdict, Class::Noise);
    assert!(
        verdict.sentence.contains("fp32, which was not run"),
        "{}",
        verdict.sentence
    );

    let fp32 = vec![fixtures::record("fp32", 0, "attn", "mixes", 1e-9)];
    let verdict = &judge(&records, &[], &fp32, &VerdictLimits::default())[0];
    assert_eq!(verdict.verdict, Class::Exact);
    assert_eq!(
        verdict.sentence,
        "tf32x3 is exact: mixes is at or below fp32's own error on each of 1 site; mixes rel_l2 \
         median 1.00e-9, worst 1.00e-9 (L0.attn); without a bound, so that a bug cannot be told from rounding. \
         Rests on mix; not run: chain."
    );
}

#[test]
fn limits_move_the_verdict() {
    let report = fixtures::mix_report();
    let class = |limits: &VerdictLimits| {
        let verdicts = judge(&report.records, &[], &report.records, limits);
        verdicts
            .iter()
            .find(|v| v.variant == "tf32")
            .map(|v| v.verdict)
    };
    assert_eq!(class(&VerdictLimits::default()), Some(Class::Noise));
    let strict = VerdictLimits {
        noise_cosine_gap: 1e-12,
        ..VerdictLimits::default()
    };
    assert_eq!(class(&strict), Some(Class::Degraded));
    let tight = VerdictLimits {
        bound_ratio: 0.1,
        ..VerdictLimits::default()
    };
    assert_eq!(class(&tight), Some(Class::Structural));
}

/// Finite rows as far as it came do not make up for those that are missing.
#[test]
fn a_chain_that_ends_is_broken_whatever_its_rows_say() {
    let report = fixtures::mix_report();
    let records = &report.records;
    let end = NonFinite {
        variant: "tf32".to_owned(),
        place: "L5.attn".to_owned(),
        depth: 5,
        stage: "dot".to_owned(),
        token: 3,
        value: Value(f64::INFINITY),
        came_with: Value(1e30),
        largest: Value(3e38),
    };
    let limits = VerdictLimits::default();
    let tf32 = |ends: &[NonFinite]| {
        let verdicts = judge(records, ends, records, &limits);
        verdicts
            .into_iter()
            .find(|verdict| verdict.variant == "tf32")
            .expect("tf32")
    };
    assert_ne!(tf32(&[]).verdict, Class::Broken);
    let broken = tf32(&[end]);
    assert_eq!(broken.verdict, Class::Broken);
    assert!(
        broken.sentence.contains("dot of token 3 is inf in L5.attn"),
        "{}",
        broken.sentence
    );
}

/// One name, two kernels: neither verdict rests on the other's rows.
#[test]
fn a_recombination_is_judged_apart_from_the_mixing_kernel_of_its_name() {
    let rows = |variant: &str, rel_l2: f64| {
        let row = |stage| fixtures::recombined(variant, "attn", stage, rel_l2);
        ["streams", "streams_bf16"].map(row)
    };
    let mut records = fixtures::mix_report().records.to_vec();
    let mixing = records.len();
    records.extend(rows("fp32", 4.8e-8));
    records.extend(rows("stream-first", 4.8e-8));
    records.extend(rows("mul-add", 5e-8));
    let judged = |records: &[Record]| judge(records, &[], records, &VerdictLimits::default());
    let of = |verdicts: &[Verdict], suite: &str, variant: &str| {
        let is_it = |verdict: &&Verdict| verdict.suites == [suite] && verdict.variant == variant;
        verdicts.iter().find(is_it).cloned().expect("a verdict")
    };
    let before = judged(&records);
    assert_eq!(before.len(), 4 + 3);
    for (suite, variant, class) in [
        ("mix", "fp32", Class::Exact),
        ("mix", "tf32", Class::Noise),
        ("recombine", "fp32", Class::Exact),
        ("recombine", "stream-first", Class::Exact),
        ("recombine", "mul-add", Class::Noise),
    ] {
        let found = of(&before, suite, variant).verdict;
        assert_eq!(found, class, "{suite} {variant}");
    }
    assert_eq!(
        of(&before, "recombine", "fp32").sentence,
        "recombine fp32 is exact: streams is at or below fp32's own error on each of 1 site; streams rel_l2 median \
         4.80e-8, worst 4.80e-8 (L3.attn); bound_ratio 0.99998. Rests on recombine."
    );
    records[mixing].measures.bound_ratio = Some(Value(1.5));
    let after = judged(&records);
    assert_eq!(of(&after, "recombine", "fp32").verdict, Class::Structural);
    assert_eq!(of(&after, "mix", "fp32"), of(&before, "mix", "fp32"));
    records[mixing].measures.bound_ratio = Some(Value(0.5));
    records[0].measures.nan_got = Some(1);
    let after = judged(&records);
    assert_eq!(of(&after, "mix", "fp32").verdict, Class::Broken);
    assert_eq!(of(&after, "recombine", "fp32").verdict, Class::Exact);
    // Without fp32's rows nothing is exact.
    let alone = &judged(&rows("stream-first", 1e-8))[0];
    let said = "not compared with fp32";
    assert!(alone.sentence.contains(said), "{}", alone.sentence);
}
