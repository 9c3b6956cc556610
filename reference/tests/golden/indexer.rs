//! The indexer against 50 decimal digits, and against the scores and selections of transformers.

use ndarray::{Array2, Axis};
use ulpdrift_reference::{
    indexer::{
        KeyStream, Queries, Rope, Scorer, Scores, Weights, Yarn, certify, hidden, latent, queries,
    },
    simd::Level,
};

use crate::recorded::{Recorded, assert_close, assert_close_to_scale};

const THETA: f64 = 160_000.0;

/// YaRN of the published configurations.
const YARN: Yarn = Yarn {
    factor: 16.0,
    original_positions: 65_536,
    beta_fast: 32.0,
    beta_slow: 1.0,
};

#[test]
fn rope_agrees_with_fifty_digits() {
    let golden = Recorded::open("indexer.safetensors");
    let yarn = |factor, original_positions, beta_fast, beta_slow| {
        Some(Yarn {
            factor,
            original_positions,
            beta_fast,
            beta_slow,
        })
    };
    let cases = [
        ("plain", None),
        ("yarn", Some(YARN)),
        ("yarn_step", yarn(4.0, 6, 32.0, 1.0)),
        ("yarn_wide", yarn(40.0, 4096, 2000.0, 0.0001)),
    ];
    for (name, yarn) in cases {
        let rope = Rope::new(THETA, 64, yarn);
        let expected = |part: &str| golden.f64(&format!("rope.{name}.{part}"));
        let frequencies = Array2::from_shape_fn((1, 32), |(_, pair)| rope.frequencies()[pair]);
        assert_close(name, &frequencies, &expected("frequencies"), 1e-15);
        let (cos, sin) = (expected("cos"), expected("sin"));
        for (row, &position) in golden.f64("rope.positions").iter().enumerate() {
            // An angle is rounded, and with it the frequency it is a multiple of.
            let limit = 1e-15 + position * 2.0 * f64::EPSILON;
            for (pair, (got_cos, got_sin)) in rope.cos_sin(position as usize).enumerate() {
                let off = (got_cos - cos[[row, pair]])
                    .abs()
                    .max((got_sin - sin[[row, pair]]).abs());
                assert!(
                    off <= limit,
                    "{name} at {position}, pair {pair}: off by {off:e}"
                );
            }
        }
    }
}

/// A layer's weights, held.
struct Layer {
    parts: Vec<(&'static str, Array2<f32>)>,
}

impl Layer {
    fn read(file: &Recorded, case: &str, parts: &[&'static str]) -> Self {
        let read = |part: &&'static str| (*part, file.f32(&format!("{case}.{part}")));
        Self {
            parts: parts.iter().map(read).collect(),
        }
    }

    fn part(&self, name: &str) -> &Array2<f32> {
        let found = self.parts.iter().find(|(part, _)| *part == name);
        &found.expect("a part that was read").1
    }

    fn row(&self, name: &str) -> &[f32] {
        self.part(name).as_slice().expect("one row")
    }
}

const GOLDEN_PARTS: [&str; 9] = [
    "attn_norm",
    "wq_a",
    "q_norm",
    "wq_b",
    "weights_proj",
    "wkv",
    "wgate",
    "ape",
    "k_norm",
];

fn golden_weights(layer: &Layer) -> Weights<'_> {
    Weights {
        attn_norm: Some(layer.row("attn_norm")),
        wq_a: layer.part("wq_a").view(),
        q_norm: layer.row("q_norm"),
        wq_b: layer.part("wq_b").view(),
        weights_proj: layer.part("weights_proj").view(),
        wkv: layer.part("wkv").view(),
        wgate: layer.part("wgate").view(),
        ape: layer.part("ape").view(),
        k_norm: layer.row("k_norm"),
        norm_eps: 1e-6,
    }
}

#[test]
fn every_stage_agrees_with_fifty_digits() {
    let golden = Recorded::open("indexer.safetensors");
    let rope = Rope::new(THETA, 8, Some(YARN));
    for case in ["narrow", "wide"] {
        let layer = Layer::read(&golden, case, &GOLDEN_PARTS);
        let weights = golden_weights(&layer);
        let y = golden.f32(&format!("{case}.y"));
        for level in Level::ALL {
            let u = hidden(y.view(), &weights);
            let positions = [0, 3, 10, 22];
            let asked = u.select(Axis(0), &positions);
            let qr = latent(level, asked.view(), &weights);
            let queries = queries(level, asked.view(), qr.view(), &positions, &weights, &rope);
            let keys = KeyStream::new(level, &weights, &rope).push(y.view());
            let scores = Scorer::new(level, &queries).score(keys.view(), 0);
            let flat = queries.q.clone().into_shape_with_order((4, 48));
            let stages = [
                ("u", &u),
                ("qr", &qr),
                ("q", &flat.expect("three heads of sixteen values")),
                ("weights", &queries.weights),
                ("keys", &keys),
                ("logits", &scores.logits),
            ];
            for (stage, got) in stages {
                let name = format!("{case}.{stage}");
                assert_close_to_scale(&name, got, &golden.f64(&name), 1e-14);
            }
            let signs = golden.f64(&format!("{case}.signs"));
            let counted = [scores.signs.dots as f64, scores.signs.negative as f64];
            assert_eq!(signs.as_slice(), Some(&counted[..]), "{case}");
            let certificate = certify(level, &queries, keys.view());
            assert_eq!(certificate.checked, 60, "all of 5 keys, 4 queries, 3 heads");
            assert!(certificate.max_rel_to_scale <= 1e-15, "{certificate:?}");
        }
    }
}

/// A layer of the recorded model, its queries and its keys.
struct Captured {
    queries: Queries,
    keys: Array2<f64>,
}

impl Captured {
    fn of(file: &Recorded, layer: usize) -> Self {
        let case = layer.to_string();
        let parts = [
            "wq_b",
            "weights_proj",
            "wkv",
            "wgate",
            "norm",
            "ape",
            "hidden_states",
        ];
        let held = Layer::read(file, &case, &parts);
        let u = held.part("hidden_states");
        let qr = file.f64(&format!("{case}.q_residual"));
        // Of the latent only what comes after its norm is recorded, so that what makes it is not used.
        let unused = Array2::zeros((qr.ncols(), u.ncols()));
        let weights = Weights {
            attn_norm: None,
            wq_a: unused.view(),
            q_norm: &vec![0.0; qr.ncols()],
            wq_b: held.part("wq_b").view(),
            weights_proj: held.part("weights_proj").view(),
            wkv: held.part("wkv").view(),
            wgate: held.part("wgate").view(),
            ape: held.part("ape").view(),
            k_norm: held.row("norm"),
            norm_eps: 1e-6,
        };
        let (level, rope) = (Level::detect(), Rope::new(THETA, 64, None));
        let positions: Vec<usize> = file.f64("queries").iter().map(|&t| t as usize).collect();
        let asked = hidden(u.view(), &weights).select(Axis(0), &positions);
        Self {
            queries: queries(level, asked.view(), qr.view(), &positions, &weights, &rope),
            keys: KeyStream::new(level, &weights, &rope).push(u.view()),
        }
    }

    fn scores(&self) -> Scores {
        Scorer::new(Level::detect(), &self.queries).score(self.keys.view(), 0)
    }
}

#[test]
fn scores_agree_with_transformers() {
    let file = Recorded::open("captured_indexer.safetensors");
    for layer in [1, 3] {
        let captured = Captured::of(&file, layer);
        let (got, expected) = (
            captured.scores().logits,
            file.f64(&format!("{layer}.scores")),
        );
        assert_eq!(got.dim(), expected.dim());
        let norm =
            |values: &Array2<f64>| values.iter().map(|value| value * value).sum::<f64>().sqrt();
        let off = &got - &expected;
        let rms = norm(&expected) / (expected.len() as f64).sqrt();
        assert!(
            norm(&off) / norm(&expected) <= 2e-6,
            "layer {layer}: {:e}",
            norm(&off) / norm(&expected)
        );
        for off in off {
            assert!(
                off.abs() <= 5e-5 * rms,
                "layer {layer}: off by {:e} of rms",
                off / rms
            );
        }
    }
}

#[test]
fn the_highest_visible_keys_are_those_of_transformers() {
    let file = Recorded::open("captured_indexer.safetensors");
    for layer in [1, 3] {
        let captured = Captured::of(&file, layer);
        let logits = captured.scores().logits;
        let selected = file.f64(&format!("{layer}.topk"));
        let scale = logits
            .iter()
            .fold(0.0, |most: f64, value| most.max(value.abs()));
        for (query, (logits, selected)) in
            logits.rows().into_iter().zip(selected.rows()).enumerate()
        {
            let visible = captured.queries.visible[query];
            let mut ranked: Vec<usize> = (0..visible).collect();
            ranked.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
            let kept = visible.min(selected.len());
            let theirs: Vec<usize> = selected
                .iter()
                .filter(|&&key| key >= 0.0)
                .map(|&key| key as usize)
                .collect();
            assert_eq!(theirs.len(), kept, "layer {layer}, query {query}");
            // In their order, scores closer than float32 tells apart aside.
            for (&ours, &theirs) in ranked.iter().zip(&theirs) {
                let gap = (logits[ours] - logits[theirs]).abs();
                assert!(
                    gap <= 1e-6 * scale,
                    "layer {layer}, query {query}: {ours} against {theirs}"
                );
            }
        }
    }
}
