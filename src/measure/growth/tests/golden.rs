//! Figures that `tests/data/growth_golden.py` had of `numpy.polyfit`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    depths: Vec<u32>,
    values: Vec<f64>,
    held_out: BTreeMap<String, Option<f64>>,
    best: String,
    r2: BTreeMap<String, f64>,
    lines: BTreeMap<String, [f64; 2]>,
    at_61: f64,
}

fn cases() -> Vec<Case> {
    let text = include_str!("../../../../tests/data/growth_golden.json");
    serde_json::from_str(text).expect("the golden file parses")
}

fn name(model: Model) -> &'static str {
    match model {
        Model::Power => "power",
        Model::Linear => "linear",
        Model::Variance => "variance",
    }
}

#[test]
fn numpy_finds_the_same_fits() {
    let cases = cases();
    assert_eq!(cases.len(), 7);
    for case in &cases {
        let growth = fitted(&case.depths, &case.values).unwrap();
        assert_eq!(name(growth.model), case.best, "{}", case.name);
        assert_eq!(growth.depths, case.depths.len());
        let [intercept, slope] = case.lines[&case.best];
        assert_near(growth.line.intercept, intercept, 1e-9, &case.name);
        assert_near(growth.line.slope, slope, 1e-9, &case.name);
        assert_near(growth.predict(61).unwrap(), case.at_61, 1e-9, &case.name);
        for trial in growth.trials {
            let expected = case.held_out[name(trial.model)];
            match (trial.held_out, expected) {
                (Ok(found), Some(expected)) => assert_near(found, expected, 1e-9, &case.name),
                (found, expected) => assert!(
                    found.is_err() && expected.is_none(),
                    "{}: {trial:?}, expected {expected:?}",
                    case.name
                ),
            }
        }
    }
    let chosen = |model: &str| cases.iter().any(|case| case.best == model);
    assert!(Model::ALL.into_iter().map(name).all(chosen));
}

#[test]
fn r2_would_have_chosen_the_worst() {
    let case = cases().pop().expect("there are cases");
    let by_r2 = case.r2.iter().max_by(|a, b| a.1.total_cmp(b.1));
    let (by_r2, _) = by_r2.expect("every model has one");
    let worst = case.held_out.iter().max_by(|a, b| {
        let error = |held_out: &Option<f64>| held_out.expect("none is out");
        error(a.1).total_cmp(&error(b.1))
    });
    assert_eq!(worst.map(|(model, _)| model), Some(by_r2));
    let growth = fitted(&case.depths, &case.values).unwrap();
    assert_eq!((by_r2.as_str(), growth.model), ("power", Model::Variance));
}
