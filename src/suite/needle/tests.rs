//! Needles where they were asked to be, by a score written out here, and searches whose outcome is certain.

use super::*;
use crate::{activations::Inputs, suite::indexer::scene, suite::ledger::whole};

const K: usize = 64;

fn needles(depths: &[u8], margins: &[Margin]) -> NeedlePlan {
    NeedlePlan {
        depths: depths.to_vec(),
        margins: margins.to_vec(),
    }
}

/// The score of a pooled window: the norm, the weight, rope by the angles of the model, the heads; all in f64.
fn score(field: &Field<'_>, needle: &Needle) -> f64 {
    let layer = field.layer;
    let window: Vec<f64> = needle.pooled.iter().copied().map(f64::from).collect();
    let mean = window.iter().map(|x| x * x).sum::<f64>() / window.len() as f64;
    let norm = |(x, w): (&f64, &f32)| x / (mean + layer.norm_eps).sqrt() * f64::from(*w);
    let mut key: Vec<f64> = window.iter().zip(&layer.weights.k_norm).map(norm).collect();
    let first = key.len() - 2 * layer.rope.frequencies().len();
    for (pair, frequency) in layer.rope.frequencies().iter().enumerate() {
        let (sin, cos) = ((layer.model.ratio * needle.index) as f64 * frequency).sin_cos();
        let (a, b) = (key[first + 2 * pair], key[first + 2 * pair + 1]);
        key[first + 2 * pair] = a * cos - b * sin;
        key[first + 2 * pair + 1] = a * sin + b * cos;
    }
    let truth = &field.asked.truth;
    let mut sum = 0.0;
    for (head, weight) in truth.weights.row(needle.query).iter().enumerate() {
        let dot: f64 = (0..key.len())
            .map(|channel| truth.q[[needle.query, head, channel]] * key[channel])
            .sum();
        sum += weight * dot.max(0.0);
    }
    sum
}

#[test]
fn needles_score_what_was_asked() {
    scene::with_plan(&Inputs::Normal, 0, |plan| {
        let layer = Layer::read(plan, scene::LAYER, &[2048]).expect("the layer is read");
        let asked = Asked::at_end(plan, &layer, 2048, 3).expect("queries are made");
        let field = Field {
            plan,
            layer: &layer,
            asked: &asked,
        };
        let margins = [Margin::Rank(2), Margin::Rank(100), Margin::Gaps(8.0)];
        let planted = field.plant(K, &needles(&[0, 50, 100], &margins));
        assert_eq!(planted.len(), 3 * 3 * 3);
        for needle in planted {
            let visible = asked.visible()[needle.query];
            let place = f64::from(needle.percent) / 100.0 * (visible - 1) as f64;
            assert!((needle.index as f64 - place).abs() <= 0.5);
            let own = score(&field, &needle);
            let row = asked.logits.row(needle.query);
            let others = (0..visible).filter(|&key| key != needle.index);
            let mut others: Vec<f64> = others.map(|key| row[key]).collect();
            others.sort_unstable_by(|a, b| b.total_cmp(a));
            let rank = 1 + others.iter().filter(|&&other| other > own).count();
            match needle.margin {
                Margin::Rank(asked) => assert_eq!(rank, asked),
                Margin::Gaps(gaps) => {
                    // All 128 scores around the cut, K on each side.
                    let gap = (others[0] - others[2 * K - 1]) / (2 * K - 1) as f64;
                    let found = (own - others[K - 1]) / gap;
                    assert!((found - gaps).abs() < 1e-3, "{found}");
                }
            }
        }
    });
}

#[test]
fn the_best_key_is_found_and_one_far_below_the_cut_is_not() {
    let recipes = ["fp32", "fp8-f32scale"].map(scene::recipe).to_vec();
    let own = scene::own(recipes, K);
    let planted = needles(&[10, 90], &[Margin::Rank(1), Margin::Rank(4 * K)]);
    let outcome = scene::with_plan(&Inputs::Correlated, 5, |plan| {
        whole(|ledger| run(plan, &own, &planted, ledger)).expect("the suite runs")
    });
    assert_eq!(outcome.records.len(), 2 * 2 * 2);
    for record in &outcome.records {
        let found = record.measures.found.expect("it is looked for").0;
        let expected = match record.key.needle_margin.as_deref() {
            Some("rank:1") => 1.0,
            _ => 0.0,
        };
        assert_eq!(found, expected, "{:?}", record.key);
        assert_eq!(record.key.tokens, 6);
    }
}

#[test]
fn a_context_of_no_more_keys_than_are_selected_has_no_needles() {
    let own = scene::own(vec![scene::recipe("fp32")], 512);
    let planted = needles(&[50], &[Margin::Rank(1)]);
    let found = scene::with_plan(&Inputs::Normal, 0, |plan| {
        whole(|ledger| run(plan, &own, &planted, ledger))
    });
    let error = found.expect_err("every key is selected");
    assert!(error.to_string().contains("raise --context"), "{error}");
}
