//! Every kind fires on what it is for, and none on a selection of rounded scores.

use proptest::prelude::*;

use super::*;
use crate::ranking::Ranking;

const LO: [f64; 6] = [0.9, 1.9, 2.9, 3.9, 4.9, 5.9];
const HI: [f64; 6] = [1.1, 2.1, 3.1, 4.1, 5.1, 6.1];
const LOGITS: [f32; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];

const GOOD: Claim<'static> = Claim {
    selected: &[5, 4, 3],
    k: 3,
    visible: 6,
    logits: &LOGITS,
    lo: &LO,
    hi: &HI,
};

fn findings(claim: Claim<'_>) -> Vec<Finding> {
    let found = certificates(7, &claim);
    assert!(found.iter().all(|certificate| certificate.query == 7));
    found
        .into_iter()
        .map(|certificate| certificate.finding)
        .collect()
}

fn sentences(claim: Claim<'_>) -> Vec<String> {
    certificates(7, &claim)
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn a_good_selection_has_no_finding() {
    assert_eq!(findings(GOOD), []);
    let few = Claim {
        selected: &[1, 0, -1],
        visible: 2,
        ..GOOD
    };
    assert_eq!(findings(few), []);
    let none = Claim {
        selected: &[-1; 3],
        visible: 0,
        ..GOOD
    };
    assert_eq!(findings(none), []);
}

#[test]
fn sets_that_are_none_are_told() {
    for (selected, visible, sentence) in [
        (
            &[5, 4, 6][..],
            6,
            "query 7: index 6 was chosen, and 6 keys are visible; 1 such indices in all",
        ),
        (
            &[2, i64::MAX, i64::MIN],
            3,
            "query 7: index 9223372036854775807 was chosen, and 3 keys are visible; 2 such indices in all",
        ),
        (
            &[5, 5, 5],
            6,
            "query 7: key 5 was chosen more than once; 2 repeated in all",
        ),
        (
            &[5, 4],
            6,
            "query 7: 2 keys were chosen, expected 3 of 6 visible ones",
        ),
        (
            &[5, 4, 3, 2],
            6,
            "query 7: 4 keys were chosen, expected 3 of 6 visible ones",
        ),
        (
            &[5, -1, 4],
            6,
            "query 7: 2 keys were chosen, expected 3 of 6 visible ones",
        ),
    ] {
        let claim = Claim {
            selected,
            visible,
            ..GOOD
        };
        assert_eq!(sentences(claim)[0], sentence);
    }
}

#[test]
fn classes_that_the_interval_rules_out_are_told() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    for (got, lo, hi, allowed) in [
        (f32::NAN, 0.0, 1.0, false),
        (f32::INFINITY, 0.0, 1.0, false),
        (f32::NEG_INFINITY, 0.0, inf, false),
        (f32::INFINITY, 0.0, inf, true),
        (f32::INFINITY, -inf, 0.0, false),
        (f32::NEG_INFINITY, -inf, 0.0, true),
        (f32::NAN, -inf, inf, true),
        (0.5, -inf, inf, true),
        (0.5, -inf, -inf, false),
        (f32::NEG_INFINITY, -inf, -inf, true),
        (f32::NAN, nan, nan, true),
        (0.0, nan, nan, false),
        (f32::INFINITY, nan, nan, false),
        (0.0, nan, 1.0, false),
    ] {
        let claim = Claim {
            selected: &[0],
            k: 1,
            visible: 1,
            logits: &[got],
            lo: &[lo],
            hi: &[hi],
        };
        let found = findings(claim);
        let is_class = matches!(found[..], [Finding::Class(off)] if off.count == 1);
        assert!(
            if allowed { found.is_empty() } else { is_class },
            "{got} in {lo}..{hi}: {found:?}"
        );
    }
    let logits = [1.0, f32::NAN, 3.0, 4.0, f32::INFINITY, 6.0];
    assert_eq!(
        sentences(Claim {
            logits: &logits,
            ..GOOD
        }),
        [
            "query 7: the logit of key 1 is NaN, which the recipe cannot give there (1.9e0 to 2.1e0); 2 in all"
        ]
    );
}

#[test]
fn the_logit_furthest_outside_stands_for_all() {
    let logits = [1.2, 1.5, 3.1, 4.0, 5.0, 6.2];
    let found = sentences(Claim {
        logits: &logits,
        ..GOOD
    });
    assert_eq!(
        found,
        ["query 7: the logit of key 1 is 1.5e0, outside 1.9e0 to 2.1e0; 3 in all"]
    );
    // The ends belong to it.
    let ends: Vec<f32> = vec![0.5, 0.75];
    let claim = Claim {
        selected: &[1, 0],
        k: 2,
        visible: 2,
        logits: &ends,
        lo: &[0.5, 0.25],
        hi: &[1.0, 0.75],
    };
    assert_eq!(findings(claim), []);
}

#[test]
fn logits_that_are_not_visible_are_checked_too() {
    let mut logits = LOGITS;
    logits[5] = 0.0;
    let claim = Claim {
        selected: &[4, 3, 2],
        visible: 5,
        logits: &logits,
        ..GOOD
    };
    assert!(matches!(findings(claim)[..], [Finding::Interval(off)] if off.key == 5));
}

#[test]
fn a_key_that_surely_belongs_and_was_left_out_is_told() {
    let claim = Claim {
        selected: &[0, 4, 1],
        ..GOOD
    };
    assert_eq!(
        sentences(claim),
        [
            "query 7: key 0 was chosen, whose logit is at most 1.1e0, and key 5 left out, whose logit is at least 5.9e0; 3 in all are chosen that this key beats"
        ]
    );
    // Overlapping intervals say nothing.
    let hi = [6.0; 6];
    assert_eq!(findings(Claim { hi: &hi, ..claim }), []);
}

/// Rows that are too short end the check and no more.
#[test]
fn rows_of_different_lengths_do_not_panic() {
    let claim = Claim {
        lo: &LO[..2],
        logits: &LOGITS[..4],
        visible: 9,
        ..GOOD
    };
    assert_eq!(findings(claim), []);
}

/// A logit anywhere in its interval, ends included; some intervals are points, some share their ends, some say NaN or reach infinity.
fn cell() -> impl Strategy<Value = (f32, f64, f64)> {
    let width = prop_oneof![Just(0.0_f32), Just(0.25), 0.0..2.0_f32];
    let centre = prop_oneof![3 => (0..6).prop_map(|x| x as f32 * 0.25), 1 => -8.0..8.0_f32];
    let plain = (
        centre,
        width,
        prop_oneof![Just(0.0_f32), Just(1.0), 0.0..1.0_f32],
    )
        .prop_map(|(lo, width, share)| {
            let hi = lo + width;
            (
                (lo + share * width).clamp(lo, hi),
                f64::from(lo),
                f64::from(hi),
            )
        });
    let inf = f64::INFINITY;
    prop_oneof![
        20 => plain,
        1 => Just((f32::NAN, f64::NAN, f64::NAN)),
        1 => Just((f32::INFINITY, 0.0, inf)),
        1 => Just((0.5, -inf, inf)),
        1 => Just((f32::NAN, -inf, inf)),
        1 => Just((f32::NEG_INFINITY, -inf, -inf)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    /// The proof in the module's documentation, tried.
    #[test]
    fn no_certificate_fires_on_an_exact_selection_of_scores_in_their_intervals(
        cells in proptest::collection::vec(cell(), 0..60), k in 1..40_usize, hidden in 0..10_usize,
    ) {
        let logits: Vec<f32> = cells.iter().map(|cell| cell.0).collect();
        let lo: Vec<f64> = cells.iter().map(|cell| cell.1).collect();
        let hi: Vec<f64> = cells.iter().map(|cell| cell.2).collect();
        let visible = cells.len().saturating_sub(hidden);
        let top = Ranking::new(&logits[..visible], k).into_order();
        let selected: Vec<i64> = top.into_iter().map(i64::from).collect();
        let claim = Claim { selected: &selected, k, visible, logits: &logits, lo: &lo, hi: &hi };
        prop_assert_eq!(certificates(0, &claim), []);
    }

    /// By trying every pair.
    #[test]
    fn an_inversion_is_found_exactly_if_some_pair_is_one(
        cells in proptest::collection::vec(cell(), 1..30), choice in proptest::collection::vec(any::<bool>(), 30),
    ) {
        let logits: Vec<f32> = cells.iter().map(|cell| cell.0).collect();
        let lo: Vec<f64> = cells.iter().map(|cell| cell.1).collect();
        let hi: Vec<f64> = cells.iter().map(|cell| cell.2).collect();
        let keys = 0..cells.len();
        let selected: Vec<i64> = keys.clone().filter(|&key| choice[key]).map(|key| key as i64).collect();
        let claim = Claim {
            selected: &selected, k: selected.len(), visible: cells.len(), logits: &logits, lo: &lo, hi: &hi,
        };
        let pairs = keys.clone().filter(|&i| !choice[i]).flat_map(|i| {
            keys.clone().filter(|&j| choice[j]).map(move |j| (i, j))
        });
        let some = pairs.into_iter().any(|(i, j)| lo[i] > hi[j]);
        let found = certificates(0, &claim);
        prop_assert_eq!(some, !found.is_empty());
        for certificate in found {
            let Finding::Order(pair) = certificate.finding else {
                return Err(TestCaseError::fail(certificate.to_string()));
            };
            prop_assert!(lo[pair.left_out] > hi[pair.chosen] && !choice[pair.left_out] && choice[pair.chosen]);
            let beaten = selected.iter().filter(|&&j| hi[j as usize] < pair.lo);
            prop_assert_eq!(pair.count, beaten.count());
        }
    }
}
