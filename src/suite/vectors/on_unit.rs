//! Recordings replayed on a matrix unit that is really there, its bits against the file's.
//!
//! What the unit does not have is skipped and not passed over in silence: another family than
//! `mma.sync`, block-scaled operands, an instruction that its arch lacks, and one that the file's arch
//! executes by another rule, whose bits the unit cannot give.

use thiserror::Error;

use super::{
    Form, Replay, ScaledVectors, VectorError, Vectors,
    file::{self, Conversions},
};
use crate::{
    backend::{
        cuda::error::CudaError,
        tiles::{self, MatrixUnit},
    },
    tensor_core::{Arch, Family},
};

/// Why a file was not replayed on a unit.
#[derive(Debug, Error)]
pub enum OnUnitError {
    /// The file is not what it should be.
    #[error(transparent)]
    File(#[from] VectorError),
    /// The device stopped.
    #[error(transparent)]
    Device(#[from] CudaError),
}

/// What came of a file.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// It was replayed.
    Replayed(Replay),
    /// It was not.
    Skipped {
        /// What was recorded.
        instruction: String,
        /// Where the vectors come from, as the file says.
        source: Option<String>,
        /// What the unit lacks, to follow "skipped: ".
        why: String,
    },
}

/// Replays a file's bytes on `unit`. `recorded` is the arch whose bits the file holds, where it is not to
/// be the one the file names.
///
/// # Errors
/// The file is not what it should be, or the device stops.
pub fn replay_on(
    unit: &dyn MatrixUnit,
    bytes: &[u8],
    recorded: Option<Arch>,
) -> Result<Outcome, OnUnitError> {
    let file = file::File::open(bytes)?;
    let instruction = file.instruction()?;
    let source = file.source();
    let found = if file.holds_conversions() {
        let conversions = Conversions::read(&file)?;
        let got = unit.convert(&conversions.x)?;
        Ok(conversions.compare(&got, Form::Device))
    } else if file.is_block_scaled()? {
        // Read all the same: a broken file is no skip.
        ScaledVectors::read(&file)?;
        Err("block-scaled instructions are replayed by the emulator only".to_owned())
    } else {
        let vectors = Vectors::read(&file)?;
        let recorded = recorded.map_or_else(|| file.arch(), Ok)?;
        match vectors.lacking(unit.arch(), recorded)? {
            Some(why) => Err(why),
            None => Ok(vectors.compare_on(unit)?),
        }
    };
    Ok(match found {
        Ok(categories) => Outcome::Replayed(Replay {
            instruction,
            arch: Some(unit.arch()),
            source,
            categories,
        }),
        Err(why) => Outcome::Skipped {
            instruction,
            source,
            why,
        },
    })
}

impl Vectors {
    /// Why a unit of arch `own` cannot give the bits that one of arch `recorded` gave.
    fn lacking(&self, own: Arch, recorded: Arch) -> Result<Option<String>, VectorError> {
        let rule = recorded.rule(self.instruction)?;
        if self.instruction.family != Family::MmaSync {
            let family = self.instruction.family;
            return Ok(Some(format!(
                "{family} is replayed by the emulator only, the device runs mma.sync"
            )));
        }
        Ok(match own.rule(self.instruction) {
            Err(lacks) => Some(lacks.to_string()),
            Ok(same) if same == rule => None,
            Ok(_) => Some(format!(
                "{recorded} executes {} by another rule than the device, which is {own}",
                self.instruction
            )),
        })
    }

    /// Compares what `unit` computes.
    fn compare_on(&self, unit: &dyn MatrixUnit) -> Result<Vec<super::Category>, OnUnitError> {
        self.tiles.expect_size(tiles::ROWS, tiles::COLS)?;
        let d = unit.mma(&tiles::Tiles {
            instruction: self.instruction,
            a: &self.a,
            b: &self.b,
            c: self.tiles.all_c(),
        })?;
        let outputs = tiles::ROWS * tiles::COLS;
        let compare = |tile: usize| vec![(Form::Device, d[tile * outputs..][..outputs].to_vec())];
        Ok(self.tiles.compare(compare))
    }
}

#[cfg(test)]
mod tests;
