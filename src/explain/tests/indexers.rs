use super::*;
use crate::{recipe::indexer, report::Measures};

/// A selection of an indexer's recipe, over all queries of one layer.
fn selection(variant: &str, measures: [f64; 4]) -> Record {
    let [recall, recall_worst, kept_worst, margin] = measures.map(Value);
    let mut row = record(variant, 2, "attn", "top_k", 0.0);
    row.key.suite = "indexer".to_owned();
    row.key.site = None;
    row.key.context = Some(8192);
    row.key.query_set = Some("all".to_owned());
    row.key.tokens = 4;
    row.key.k = Some(512);
    row.measures = Measures {
        recall: Some(recall),
        recall_worst: Some(recall_worst),
        value_recall: Some(Value(0.9993)),
        score_mass_lost: Some(Value(7e-4)),
        kept_at_2k: Some(Value(1.0)),
        kept_at_2k_worst: Some(kept_worst),
        margin_over_error: Some(margin),
        inside_error: Some(Value(30.0)),
        ..Measures::default()
    };
    row
}

fn indexers(rows: Vec<Record>) -> Report {
    let mut report = fixtures::report(rows);
    report.recipes = indexer::catalogue::builtin()
        .into_iter()
        .map(|recipe| {
            let title = indexer::IndexRecipe::title(&recipe.name);
            (title, serde_json::to_value(&recipe).unwrap())
        })
        .collect();
    report
}

/// By hand: 132 bytes a key of fp8-f32scale, 68 of mxfp4, 512 of fp32.
#[test]
fn the_indexers_cheapest_recipe_is_told_by_bytes_of_a_key() {
    let report = indexers(vec![
        selection("fp32", [0.9969, 0.9922, 1.0, 0.18]),
        selection("fp8-f32scale", [0.9465, 0.9199, 1.0, 0.011]),
        selection("mxfp4", [0.835, 0.7949, 0.9844, 3.4e-3]),
    ]);
    let all = text(&overview(&report));
    says(
        &all,
        &[
            "No recipe of this report selects every true key for every query. The one that loses least, fp32 (512 bytes a key), \
             keeps 0.9969 where it is worst, with neighbouring scores 1.80e-1 of its error apart",
            "twice as many of its own is fp8-f32scale (132 bytes a key), rotated q and k to e4m3",
            "recall at least 0.9465",
            "At a context of 8192 it selects 0.9465 of the true 512 keys over 1 layer (recall; 0.9199 for the worst query)",
        ],
    );
    let row = explained(&report, &["variant=fp8-f32scale"]);
    says(
        &row,
        &[
            "It selects 0.9465 of the true keys (recall, the mean over 4 queries); the worst query 0.9199.",
            "neighbouring scores are 1.10e-2 of the logits' error apart (margin_over_error): the error is wider than the gap",
            "What indexer fp8-f32scale does, step by step",
        ],
    );
}

#[test]
fn an_indexer_that_loses_nothing_is_named() {
    let report = indexers(vec![
        selection("fp32", [1.0, 1.0, 1.0, 3.0]),
        selection("bf16-keys", [1.0, 1.0, 1.0, 2.0]),
        selection("mxfp4", [0.9, 0.8, 0.9, 0.1]),
    ]);
    says(
        &text(&overview(&report)),
        &[
            "The cheapest that loses no key of any query is bf16-keys (256 bytes a key): recall_worst is 1 throughout (1 row).",
        ],
    );
    says(
        &explained(&report, &["variant=bf16-keys"]),
        &["the gap is wider than the error"],
    );
}

/// `DeepGEMM` has a kernel for `sm_90` and one for `sm_100`: only the one that ran is told.
#[test]
fn an_indexers_steps_are_those_of_its_arch() {
    for (arch, there, not_there) in [
        ("sm_90", "lanes by xor 1", "four sums by head mod 4"),
        ("sm_120", "four sums by head mod 4", "lanes by xor 1"),
    ] {
        let mut row = selection("fp8-f32scale", [1.0, 1.0, 1.0, 1.0]);
        row.key.arch = arch.to_owned();
        let text = explained(&indexers(vec![row]), &["suite=indexer"]);
        says(&text, &[there]);
        assert!(!text.contains(not_there), "{text}");
    }
}
