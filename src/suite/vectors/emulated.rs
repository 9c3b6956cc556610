//! A matrix unit for tests: the scalar rule, or nearly.

use super::{convert, recording::Origin};
use crate::{
    backend::{
        cuda::error::CudaError,
        tiles::{COLS, Converted, MatrixUnit, ROWS, Tiles},
    },
    tensor_core::{Arch, scalar},
};

/// Stands in for a device.
pub struct Emulated {
    pub arch: Arch,
    /// The output whose last bit is wrong.
    pub spoilt: Option<usize>,
}

/// Where its recordings come from.
pub fn origin() -> Origin {
    Origin {
        source: "test".to_owned(),
        device: "an emulator".to_owned(),
        driver: "none".to_owned(),
        nvrtc: "none".to_owned(),
    }
}

impl MatrixUnit for Emulated {
    fn arch(&self) -> Arch {
        self.arch
    }

    fn mma(&self, tiles: &Tiles<'_>) -> Result<Vec<u32>, CudaError> {
        let rule = self.arch.rule(tiles.instruction).expect("the arch has it");
        let k = tiles.instruction.k;
        let output = |(at, &c): (usize, &u32)| {
            let (row, col) = (at / COLS, at % COLS);
            let (tile, a) = (row / ROWS, &tiles.a[row * k..][..k]);
            let b: Vec<u32> = (0..k)
                .map(|i| tiles.b[(tile * k + i) * COLS + col])
                .collect();
            scalar::mma(&rule, a, &b, c) ^ u32::from(self.spoilt == Some(at))
        };
        Ok(tiles.c.iter().enumerate().map(output).collect())
    }

    fn convert(&self, x: &[u32]) -> Result<Converted, CudaError> {
        let mut converted = convert(x);
        if let Some(at) = self.spoilt {
            converted.rna_tf32[at] ^= 1;
        }
        Ok(converted)
    }
}
