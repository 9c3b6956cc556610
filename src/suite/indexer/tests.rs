//! Laws that the rows of a run keep among each other, whatever the weights.

use super::*;
use crate::{
    activations::Inputs,
    measure::value::Value,
    report::Record,
    suite::{ledger::whole, tensors::NoDump},
};

fn recipes(names: &[&str]) -> Vec<IndexRecipe> {
    names.iter().map(|name| scene::recipe(name)).collect()
}

/// The rows of a stage and set.
fn rows<'a>(outcome: &'a Found, stage: &str, set: &str) -> Vec<&'a Record> {
    let of = |record: &&Record| {
        record.key.stage.as_deref() == Some(stage) && record.key.query_set.as_deref() == Some(set)
    };
    let found: Vec<_> = outcome.records.iter().filter(of).collect();
    assert!(!found.is_empty(), "{stage} {set}");
    found
}

fn number(value: Option<Value>) -> f64 {
    value.expect("it is measured").0
}

/// What streams through after a context's last token has no part in its rows.
#[test]
fn a_shorter_context_is_the_beginning_of_a_longer_one() {
    let mut own = scene::own(recipes(&["fp8-f32scale", "mxfp4"]), 64);
    own.contexts = vec![1024, 2048, 2560];
    let all = scene::outcome(&Inputs::Correlated, 3, &own);
    for &context in &own.contexts {
        let alone = IndexPlan {
            contexts: vec![context],
            ..own.clone()
        };
        let alone = scene::outcome(&Inputs::Correlated, 3, &alone);
        let of = |record: &&Record| record.key.context == Some(context as u64);
        let same: Vec<_> = all.records.iter().filter(of).cloned().collect();
        assert_eq!(alone.records, same, "{context}");
    }
}

#[test]
fn all_queries_are_those_along_and_those_at_the_end() {
    let own = scene::own(recipes(&["fp8-f32scale", "bf16-steps"]), 64);
    let outcome = scene::outcome(&Inputs::Normal, 0, &own);
    let sets = ["all", "along", "end"].map(|set| rows(&outcome, "top_k", set));
    for ((all, along), end) in sets[0].iter().zip(&sets[1]).zip(&sets[2]) {
        assert_eq!(all.key.variant, end.key.variant);
        assert_eq!(all.key.tokens, along.key.tokens + end.key.tokens);
        let [all, along, end] = [all, along, end].map(|row| &row.measures);
        let mean = 0.5 * (number(along.recall) + number(end.recall));
        assert!((number(all.recall) - mean).abs() < 1e-12);
        let worst = number(along.recall_worst).min(number(end.recall_worst));
        assert_eq!(number(all.recall_worst), worst);
    }
}

/// More keys that compete, and coarser numbers, cost recall; value is lost last.
#[test]
fn coarser_formats_select_worse_and_lose_little_value() {
    let names = ["fp32", "bf16-steps", "fp8-f32scale", "mxfp4"];
    let own = scene::own(recipes(&names), 64);
    let outcome = scene::outcome(&Inputs::Normal, 1, &own);
    let recall: Vec<f64> = rows(&outcome, "top_k", "all")
        .into_iter()
        .map(|row| {
            let measures = &row.measures;
            assert!(number(measures.value_recall) >= number(measures.recall));
            assert!(number(measures.kept_at_2k) >= number(measures.recall));
            assert_eq!(measures.certificates, Some(0), "{}", row.key.variant);
            number(measures.recall)
        })
        .collect();
    assert!(recall.is_sorted_by(|a, b| a >= b), "{recall:?}");
    assert!(recall[1] > recall[2] && recall[2] > recall[3], "{recall:?}");
}

#[test]
fn a_layer_without_an_indexer_is_refused() {
    scene::with_plan(&Inputs::Normal, 0, |plan| {
        let mut own = scene::own(recipes(&["fp32"]), 64);
        own.layers = vec![0];
        let found = whole(|ledger| run(plan, &own, &mut NoDump, ledger));
        let error = found.expect_err("layer 0 has no indexer");
        assert!(error.to_string().contains("which layers 2 have"), "{error}");
    });
}
