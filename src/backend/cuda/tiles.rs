//! One matrix instruction per tile, and conversions, on a device.

use super::{
    device::{Argument, Device},
    error::CudaError,
    options,
};
use crate::{
    backend::tiles::{Converted, MatrixUnit, Tiles},
    tensor_core::Arch,
};

impl MatrixUnit for Device {
    fn arch(&self) -> Arch {
        self.arch
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
    fn mma(&self, tiles: &Tiles<'_>) -> Result<Vec<u32>, CudaError> {
        self.bind()?;
        let build = options::tiles(tiles.instruction, tiles.count());
        let function = self.function(&build, "tiles")?;
        let code_bytes = tiles.instruction.operand.code_bytes();
        let a = self.upload("a", &packed(tiles.a, code_bytes))?;
        let b = self.upload("b", &packed(tiles.b, code_bytes))?;
        let c = self.upload("c", tiles.c)?;
        let d = self.zeros::<u32>("d", tiles.c.len())?;
        let count = tiles.count() as i32;
        let arguments = [
            Argument::Words(&a),
            Argument::Words(&b),
            Argument::Words(&c),
            Argument::Words(&d),
            Argument::Int(&count),
        ];
        self.launch(&function, build.grid, "tiles", &arguments)?;
        self.download("d", &d)
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
    fn convert(&self, x: &[u32]) -> Result<Converted, CudaError> {
        self.bind()?;
        let build = options::convert(x.len());
        let function = self.function(&build, "convert")?;
        let words = self.upload("x", x)?;
        let rna_tf32 = self.zeros::<u32>("rna_tf32", x.len())?;
        let rn_bf16 = self.zeros::<u16>("rn_bf16", x.len())?;
        let count = x.len() as i32;
        let arguments = [
            Argument::Words(&words),
            Argument::Words(&rna_tf32),
            Argument::Codes(&rn_bf16),
            Argument::Int(&count),
        ];
        self.launch(&function, build.grid, "convert", &arguments)?;
        let codes = self.download("rn_bf16", &rn_bf16)?;
        Ok(Converted {
            rna_tf32: self.download("rna_tf32", &rna_tf32)?,
            rn_bf16: codes.into_iter().map(u32::from).collect(),
        })
    }
}

/// Codes of `code_bytes` bytes, one after another, the first in a word's low bits.
fn packed(codes: &[u32], code_bytes: usize) -> Vec<u32> {
    let word = |codes: &[u32]| {
        codes.iter().rev().fold(0, |word: u32, &code| {
            word.unbounded_shl(8 * code_bytes as u32) | code
        })
    };
    codes.chunks(4 / code_bytes).map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        backend::cuda::{
            device,
            nvrtc::Nvrtc,
            source::Sources,
            testing::{pinned_nvrtc, skipped},
        },
        suite::vectors::{
            inputs,
            recording::{Origin, Recording, Subject},
            replay,
        },
        tensor_core::{Family, Instruction},
    };

    #[test]
    fn codes_lie_one_after_another() {
        assert_eq!(packed(&[1, 2], 4), [1, 2]);
        assert_eq!(packed(&[0xaabb, 0xccdd], 2), [0xccdd_aabb]);
        assert_eq!(
            packed(&[1, 2, 3, 4, 5, 6, 7, 8], 1),
            [0x0403_0201, 0x0807_0605]
        );
    }

    /// Every `mma.sync` of the table compiles for its arch, and is the one instruction of its kind in it.
    #[test]
    fn every_instruction_of_the_table_compiles() {
        let Some(library) = pinned_nvrtc() else {
            return;
        };
        let nvrtc = Nvrtc::open(Some(&library)).unwrap();
        let sources = Sources::default();
        for arch in [Arch::Sm80, Arch::Sm89, Arch::Sm90, Arch::Sm120] {
            let all = arch.instructions();
            for instruction in all.filter(|known| known.family == Family::MmaSync) {
                let build = options::tiles(instruction, 1);
                let compiled =
                    device::compile(&nvrtc, &sources, &build, &arch.to_string()).unwrap();
                let Instruction { operand, k, .. } = instruction;
                let name =
                    format!("mma.sync.aligned.m16n8k{k}.row.col.f32.{operand}.{operand}.f32 ");
                assert_eq!(
                    compiled.ptx.matches("mma.sync").count(),
                    1,
                    "{arch} {instruction}"
                );
                assert!(
                    compiled.ptx.contains(&name),
                    "{arch} {instruction}: {}",
                    compiled.ptx
                );
            }
            let converted =
                device::compile(&nvrtc, &sources, &options::convert(1), &arch.to_string()).unwrap();
            for name in ["cvt.rna.tf32.f32", "cvt.rn.bf16.f32"] {
                assert!(converted.ptx.contains(name), "{arch}: {}", converted.ptx);
            }
        }
    }

    /// The device's bits of every category are the emulator's.
    #[test]
    fn the_device_gives_the_emulators_bits() {
        let Ok(device) = Device::open(0, pinned_nvrtc().as_deref(), Sources::default()) else {
            return skipped("no device");
        };
        let origin = Origin {
            source: "test".to_owned(),
            device: device.facts.name.clone(),
            driver: String::new(),
            nvrtc: String::new(),
        };
        for subject in Subject::all() {
            if let Subject::Mma(instruction) = subject
                && device.arch.rule(instruction).is_err()
            {
                skipped(&format!("{} has no {instruction}", device.arch));
                continue;
            }
            let recording = Recording::make(&device, subject, 7).unwrap();
            let replay = replay(&recording.bytes(&origin), None, &[]).unwrap();
            assert!(replay.outputs() >= 2 * inputs::TILES * 128, "{subject}");
            assert_eq!(
                replay.mismatches(),
                0,
                "{subject}: {:x?}",
                replay.categories
            );
        }
    }
}
