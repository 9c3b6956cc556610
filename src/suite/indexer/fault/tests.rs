//! Bugs worked by hand.

use ndarray::{Array2, array};

use super::{
    trigger::{Signs, Trigger, zeroed},
    *,
};

const SIZE: Size = Size {
    keys: 4096,
    heads: 64,
    width: 128,
};

#[test]
fn parameters_follow_from_seed_and_layer_and_stay_within_their_range() {
    let mut shifts = Vec::new();
    let mut missing = Vec::new();
    for seed in 0..200 {
        for bug in IndexFault::ALL {
            let fault = bug.draw(seed, 3, SIZE).expect("there is room");
            assert_eq!(bug.draw(seed, 3, SIZE), Ok(fault));
            assert_eq!(fault.kind(), bug);
            match fault {
                Fault::KeysShifted(by) => shifts.push(by),
                Fault::StaleLength(count) => missing.push(count),
                Fault::PagesSwapped([one, other]) => assert!(one < other && other < 64),
                Fault::HeadsPermuted(by) => assert!((1..64).contains(&by)),
                _ => {}
            }
        }
    }
    shifts.sort_unstable();
    shifts.dedup();
    let all: Vec<i64> = (-8..=8).filter(|&by| by != 0).collect();
    assert_eq!(shifts, all);
    assert!(missing.iter().all(|count| (1..=2048).contains(count)));
    assert!(missing.contains(&1) && missing.iter().any(|&count| count > 1000));
    let small = Size { keys: 127, ..SIZE };
    assert!(IndexFault::PagesSwapped.draw(0, 3, small).is_err());
}

/// The published case: 8320 keys, k = 2048, 100 winners and zeros leave 924 slots unwritten.
#[test]
fn f5_ties_beyond_the_buffer_leave_slots_unwritten() {
    let mut logits = Array2::<f32>::zeros((1, 8320));
    let mut selected: Vec<i64> = Vec::new();
    for winner in 0..100 {
        logits[[0, 80 * winner]] = 200.0 - winner as f32;
        selected.push(80 * winner as i64);
    }
    selected.extend((0..8320).filter(|key| key % 80 != 0).take(1948));
    let right = selected.clone();
    let mut spoilt = [selected];
    Fault::TieOverflow(-1).spoil_selection(&mut spoilt, &logits, 2048);
    let invalid = spoilt[0].iter().filter(|key| **key == -1).count();
    assert_eq!(invalid, 924);
    assert_eq!(spoilt[0][..1124], right[..1124]);
    // Few ties fit.
    let mut few = [vec![0, 80, 160, 240]];
    Fault::TieOverflow(-1).spoil_selection(&mut few, &logits, 4);
    assert_eq!(few[0], [0, 80, 160, 240]);
}

#[test]
fn slots_hold_the_keys_that_the_bug_looks_for() {
    let shifted = Fault::KeysShifted(3);
    assert_eq!(
        [0, 6, 7].map(|slot| shifted.source(slot, 10)),
        [Some(3), Some(9), None]
    );
    assert_eq!(Fault::KeysShifted(-3).source(2, 10), None);
    let swapped = Fault::PagesSwapped([0, 2]);
    let sources = [1, 64, 129].map(|slot| swapped.source(slot, 192));
    assert_eq!(sources, [Some(129), Some(64), Some(1)]);
    let mut visible = [1, 5, 9];
    Fault::StaleLength(4).lose(&mut visible);
    assert_eq!(visible, [0, 1, 5]);
}

#[test]
fn triggers_are_what_they_say() {
    assert_eq!(Trigger::positions(4, 2, 4, 64), [7, 15]);
    assert_eq!(Trigger::positions(1, 3, 4, 64), [3]);
    assert_eq!(Trigger::positions(512, 2, 4, 64), [31, 63]);
    assert_eq!(Signs::Negative.apply(2.0), -2.0);
    assert_eq!(Signs::Positive.apply(-2.0), 2.0);
    let trigger = IndexFault::TieOverflow.trigger(512);
    assert_eq!(trigger.winners, Some(100));
    let kept = trigger.kept(7, 2, 300).expect("keys are zeroed");
    assert_eq!(kept.iter().filter(|kept| **kept).count(), 100);
    let keys = array![[1.0_f32], [2.0], [3.0]];
    let zeroed = zeroed(keys.view(), 2, Some(&[false, true]));
    assert_eq!(zeroed, array![[0.0], [2.0]]);
}
