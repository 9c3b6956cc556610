//! The emulator stands in for a device; what it must not do is call a skip or a wrong bit a success.

use std::{fs, path::Path};

use super::*;
use crate::suite::vectors::{
    emulated::{Emulated, origin},
    recording::{Recording, Subject},
};

const H200: Emulated = Emulated {
    arch: Arch::Sm90,
    spoilt: None,
};

fn fixture(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/vectors");
    fs::read(folder.join(format!("{name}.safetensors"))).unwrap()
}

fn replayed(unit: &Emulated, bytes: &[u8], recorded: Option<Arch>) -> Replay {
    match replay_on(unit, bytes, recorded).unwrap() {
        Outcome::Replayed(replay) => replay,
        Outcome::Skipped { why, .. } => panic!("skipped: {why}"),
    }
}

fn skipped(unit: &Emulated, bytes: &[u8]) -> String {
    match replay_on(unit, bytes, None).unwrap() {
        Outcome::Skipped { why, .. } => why,
        Outcome::Replayed(replay) => panic!("replayed: {replay:?}"),
    }
}

#[test]
fn recordings_that_the_unit_can_give_are_replayed_on_it() {
    for (name, outputs) in [
        ("h200_sm_90_bf16", 98_304),
        ("h200_sm_90_f16", 98_304),
        ("h200_sm_90_tf32", 98_304),
        ("h200_sm_90_e4m3", 98_304),
        ("h200_sm_90_cvt", 24_576),
        ("model_sm_120_bf16", 26_624),
        ("model_sm_120_tf32", 26_624),
    ] {
        let replay = replayed(&H200, &fixture(name), None);
        assert_eq!(
            (replay.outputs(), replay.mismatches()),
            (outputs, 0),
            "{name}"
        );
        assert_eq!(replay.arch, Some(Arch::Sm90));
    }
}

#[test]
fn what_the_unit_lacks_is_skipped_and_says_why() {
    assert_eq!(
        skipped(&H200, &fixture("h200_sm_90_wgmma_tf32")),
        "wgmma is replayed by the emulator only, the device runs mma.sync"
    );
    assert_eq!(
        skipped(&H200, &fixture("model_sm_120_mxf4")),
        "block-scaled instructions are replayed by the emulator only"
    );
    assert_eq!(
        skipped(&H200, &fixture("model_sm_80_bf16")),
        "sm_80 executes mma.sync bf16 k16 by another rule than the device, which is sm_90"
    );
    let a100 = Emulated {
        arch: Arch::Sm80,
        spoilt: None,
    };
    let why = skipped(&a100, &fixture("h200_sm_90_e4m3"));
    assert!(
        why.starts_with("sm_80 has no mma.sync e4m3 k32 instruction"),
        "{why}"
    );
    let other = Emulated {
        arch: Arch::Sm120,
        spoilt: None,
    };
    let why = skipped(&other, &fixture("h200_sm_90_e4m3"));
    assert!(why.contains("by another rule"), "{why}");
}

/// Told that the file holds the device's own bits, it is compared all the same.
#[test]
fn an_arch_that_is_named_stands_for_the_files() {
    let replay = replayed(&H200, &fixture("model_sm_80_bf16"), Some(Arch::Sm90));
    assert_eq!(replay.mismatches(), 5594);
}

#[test]
fn one_wrong_bit_is_found_and_located() {
    for subject in Subject::all() {
        let unit = |spoilt| Emulated {
            arch: Arch::Sm120,
            spoilt,
        };
        let bytes = Recording::make(&unit(None), subject, 5)
            .unwrap()
            .bytes(&origin());
        assert_eq!(replayed(&unit(None), &bytes, None).mismatches(), 0);
        let replay = replayed(&unit(Some(128 * 30 + 8 * 3 + 5)), &bytes, None);
        assert_eq!(replay.mismatches(), 1, "{subject}");
        let first = replay
            .categories
            .iter()
            .find_map(|category| category.first)
            .unwrap();
        let place = match subject {
            Subject::Mma(_) => (30, 3, 5),
            Subject::Conversions => (128 * 30 + 29, 0, 0),
        };
        assert_eq!((first.tile, first.row, first.col), place, "{subject}");
        assert_eq!((first.form, first.got ^ first.want), (Form::Device, 1));
    }
}

#[test]
fn a_broken_file_is_no_skip() {
    let refused = |bytes: &[u8]| replay_on(&H200, bytes, None).unwrap_err().to_string();
    let bytes = fixture("h200_sm_90_wgmma_tf32");
    assert!(refused(&bytes[..bytes.len() - 1]).starts_with("is not a whole safetensors file"));
}

/// Tiles of another size than the instruction's could only be replayed wrongly.
#[test]
fn tiles_of_another_size_are_refused() {
    let mut bytes = fixture("h200_sm_90_wgmma_bf16");
    let wgmma = b"wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16";
    let at = bytes
        .windows(wgmma.len())
        .position(|found| found == wgmma)
        .unwrap();
    let name = format!(
        "{:<1$}",
        "mma.sync.aligned.m64n8k16.row.col.f32.bf16.bf16",
        wgmma.len()
    );
    bytes[at..][..wgmma.len()].copy_from_slice(name.replace("bf16    ", "bf16.f32").as_bytes());
    assert_eq!(
        replay_on(&H200, &bytes, None).unwrap_err().to_string(),
        "tensor 'd' has shape [192, 64, 8]: expected [tiles, 16, 8], the instruction's own"
    );
}
