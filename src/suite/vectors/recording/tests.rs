//! Round trips through the emulator, which stands in for a device.

use ulpdrift_reference::simd::Level;

use super::*;
use crate::suite::vectors::{
    emulated::{Emulated, origin},
    replay,
};

fn unit(arch: Arch) -> Emulated {
    Emulated { arch, spoilt: None }
}

#[test]
fn names_are_read_as_they_are_written() {
    for subject in Subject::all() {
        assert_eq!(subject.to_string().parse(), Ok(subject));
        if let Subject::Mma(instruction) = subject {
            assert_eq!(subject.instruction().parse(), Ok(instruction));
        }
    }
    assert_eq!(
        "mma-bf16".parse::<Subject>(),
        Err("expected one of mma-tf32-k8, mma-tf32-k4, mma-bf16-k16, mma-bf16-k8, mma-f16-k16, mma-f16-k8, \
             mma-e4m3-k32, mma-e4m3-k16, cvt"
            .to_owned())
    );
}

#[test]
fn every_instruction_of_every_arch_can_be_recorded() {
    let known = Subject::all();
    for instruction in Arch::ALL.iter().flat_map(|arch| arch.instructions()) {
        if instruction.family == Family::MmaSync {
            assert!(known.contains(&Subject::Mma(instruction)), "{instruction}");
        }
    }
}

/// What is recorded is replayed without a mismatch, by both forms of the rule.
#[test]
fn a_recording_verifies() {
    for subject in Subject::all() {
        let recording = Recording::make(&unit(Arch::Sm120), subject, 5).unwrap();
        let bytes = recording.bytes(&origin());
        let replay = replay(&bytes, None, &[Level::detect()]).unwrap();
        assert_eq!(replay.mismatches(), 0, "{subject}: {:?}", replay.categories);
        let outputs = match subject {
            Subject::Mma(Instruction { operand, .. }) => {
                let categories = if operand == Operand::Tf32 { 19 } else { 18 };
                assert_eq!(replay.categories.len(), categories);
                categories * inputs::TILES * 128
            }
            Subject::Conversions => 2 * inputs::words(5).len(),
        };
        assert_eq!(replay.outputs(), outputs, "{subject}");
        assert_eq!(recording.outputs(), outputs, "{subject}");
        assert_eq!(replay.instruction, subject.instruction());
        assert_eq!(replay.source.as_deref(), Some("test, an emulator"));
    }
}

#[test]
fn a_recording_names_its_arch_and_is_replayed_as_that() {
    let subject = "mma-bf16-k16".parse().unwrap();
    let bytes = Recording::make(&unit(Arch::Sm80), subject, 5)
        .unwrap()
        .bytes(&origin());
    let mismatches = |arch| replay(&bytes, arch, &[]).unwrap().mismatches();
    assert_eq!(mismatches(None), 0);
    assert!(mismatches(Some(Arch::Sm90)) > 1000);
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for subject in Subject::all() {
        let bytes = |seed| {
            Recording::make(&unit(Arch::Sm120), subject, seed)
                .unwrap()
                .bytes(&origin())
        };
        assert!(bytes(5) == bytes(5), "{subject}");
        assert!(bytes(5) != bytes(6), "{subject}");
    }
}
