//! Distances, and two seeds of one model.

use super::*;
use crate::checkpoint::SyntheticModel;

fn between(a: &[f64], b: &[f64]) -> Distance {
    Distance::between(a.iter().copied(), b.iter().copied())
}

#[test]
fn distances() {
    let none = between(
        &[1.0, f64::NAN, f64::INFINITY],
        &[1.0, f64::NAN, f64::INFINITY],
    );
    assert_eq!(
        (none.rel_l2, none.max_abs, none.changed, none.values),
        (0.0, 0.0, 0, 3)
    );
    let some = between(&[3.0, 4.0], &[3.0, 4.5]);
    assert_eq!((some.rel_l2, some.max_abs, some.changed), (0.1, 0.5, 1));
    assert_eq!(between(&[0.0], &[1.0]).rel_l2, f64::INFINITY);
    assert_eq!(
        between(&[0.0], &[-0.0]),
        Distance {
            rel_l2: 0.0,
            max_abs: 0.0,
            changed: 1,
            values: 1
        }
    );
    let nan = between(&[1.0, 1.0], &[f64::NAN, 9.0]);
    assert!(nan.rel_l2.is_nan() && nan.max_abs.is_nan() && nan.changed == 2);
}

#[test]
fn a_checkpoint_is_itself_and_not_another() {
    let open = |seed| Checkpoint::synthetic(SyntheticModel::Tiny, seed).unwrap();
    let (a, again, b) = (open(0), open(0), open(1));
    let same = compare(&a, &again, &|_| true).unwrap();
    assert!(same.changes.is_empty() && same.equal > 30 && same.recoded == 0);
    assert!(mixing::effects(&a, &again).unwrap().is_empty());
    assert_eq!(
        selection::effects(&a, &again).unwrap(),
        selection::Selection::default()
    );

    let other = compare(&a, &b, &|group| group == Group::Hc).unwrap();
    assert!(
        other
            .changes
            .iter()
            .all(|change| change.a.group == Group::Hc)
    );
    let rel_l2 = |change: &Change| match &change.difference {
        Difference::Values(distance) => distance.rel_l2,
        other => panic!("{other:?}"),
    };
    assert!(other.changes.is_sorted_by(|x, y| rel_l2(x) >= rel_l2(y)));
    let mixed = mixing::effects(&a, &b).unwrap();
    assert_eq!(mixed.len(), 8);
    // Independent weights: mixes of the same size, at a right angle.
    assert!(
        (1.0..2.0).contains(&mixed[0].mixes.rel_l2),
        "{:?}",
        mixed[0]
    );
    let selected = selection::effects(&a, &b).unwrap();
    assert_eq!(selected.differing, [2]);
    assert!(
        (0.3..0.8).contains(&selected.effects[0].recall),
        "{selected:?}"
    );
}
