//! Figures that `tests/data/selection_golden.py` has of NumPy's sort and of Python's sets.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::*;

/// What both sides must agree to, relative; counts and shares of counts agree exactly.
const TOLERANCE: f64 = 1e-12;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Golden {
    cases: Vec<Case>,
    recall_at_64: BTreeMap<String, f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    keys: usize,
    visible: usize,
    seed: u64,
    error: f64,
    grid: f64,
    got_grid: f64,
    shift: i64,
    checksum: String,
    at: BTreeMap<usize, BTreeMap<String, Value>>,
}

/// The generator of the Python side, operation by operation.
struct Noise(u64);

impl Noise {
    fn uniform(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 * 2.0_f64.powi(-53)
    }
}

fn on_grid(score: f64, grid: f64) -> f64 {
    if grid == 0.0 {
        score
    } else {
        (score / grid).floor() * grid
    }
}

impl Case {
    fn scores(&self) -> (Vec<f64>, Vec<f32>) {
        let mut noise = Noise(self.seed);
        let mut cell = || {
            let sum = noise.uniform() + noise.uniform() + noise.uniform() + noise.uniform() - 2.0;
            let score = on_grid(sum, self.grid);
            let got = on_grid(score + self.error * (noise.uniform() - 0.5), self.got_grid);
            (score, got as f32)
        };
        let (reference, got): (Vec<f64>, Vec<f32>) = (0..self.keys).map(|_| cell()).unzip();
        let words = reference
            .iter()
            .copied()
            .chain(got.iter().map(|&g| f64::from(g)));
        let sum = words.fold(0_u64, |sum, x| {
            sum.wrapping_mul(31).wrapping_add(x.to_bits())
        });
        assert_eq!(format!("{sum:016x}"), self.checksum, "{}", self.name);
        (reference, got)
    }

    fn chosen(&self, ranking: &Ranking<'_, f32>, k: usize) -> Chosen {
        let keys = ranking.top(k).iter();
        let moved: Vec<i64> = keys.map(|&key| i64::from(key) + self.shift).collect();
        Chosen::new(&moved, self.visible)
    }
}

fn golden() -> Golden {
    let text = include_str!("../../../../tests/data/selection_golden.json");
    serde_json::from_str(text).expect("the golden file parses")
}

/// The measures under the names of the golden file.
fn named(found: &Selection, kept_at: f64) -> BTreeMap<&'static str, Option<f64>> {
    let count = |count: u64| Some(count as f64);
    BTreeMap::from([
        ("recall", Some(found.recall)),
        ("kept_at", Some(kept_at)),
        ("tie_adjusted_recall", Some(found.tie_adjusted_recall)),
        ("jaccard", Some(found.jaccard)),
        ("value_recall", Some(found.value_recall)),
        ("score_mass_lost", found.score_mass_lost),
        ("best_lost_rank", found.best_lost_rank.and_then(count)),
        ("ties_ref", count(found.ties_ref)),
        ("ties_got", count(found.ties_got)),
        ("margin", found.margin),
        ("margin_over_error", found.margin_over_error),
        ("inside_error", found.inside_error.and_then(count)),
    ])
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::String(text) if text == "Infinity" => Some(f64::INFINITY),
        value => value.as_f64(),
    }
}

#[test]
fn numpy_finds_the_same_measures() {
    let mut compared = 0;
    for case in golden().cases {
        let (reference, got) = case.scores();
        let (reference, got) = (&reference[..case.visible], &got[..case.visible]);
        let deepest = case.at.keys().max().copied().unwrap_or(0);
        let truth = Truth::new(reference, deepest);
        let ranking = Ranking::new(got, 2 * deepest);
        for (&k, expected) in &case.at {
            let found = truth.measure(k, &ranking, &case.chosen(&ranking, k));
            let kept_at = truth.kept(k, &case.chosen(&ranking, 2 * k));
            let found = named(&found, kept_at);
            assert_eq!(found.len(), expected.len());
            for (name, expected) in expected {
                let (found, expected) = (found[name.as_str()], number(expected));
                let is_near = match (found, expected) {
                    (Some(found), Some(expected)) => {
                        found == expected || (found - expected).abs() <= TOLERANCE * expected.abs()
                    }
                    (found, expected) => found == expected,
                };
                let place = format!("{}, k {k}, {name}", case.name);
                assert!(is_near, "{place}: {found:?}, expected {expected:?}");
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 8 * 5 * 12);
}

#[test]
fn numpy_finds_the_same_spread() {
    let golden = golden();
    let recalls = golden.cases.iter().map(|case| {
        let recall = number(&case.at[&64]["recall"]);
        recall.expect("every case has one")
    });
    let spread = Spread::over(&recalls.collect::<Vec<_>>()).expect("there are cases");
    for (name, found) in [
        ("mean", spread.mean),
        ("p1", spread.p1),
        ("worst", spread.worst),
    ] {
        let expected = golden.recall_at_64[name];
        assert!(
            (found - expected).abs() <= TOLERANCE,
            "{name}: {found}, expected {expected}"
        );
    }
}
