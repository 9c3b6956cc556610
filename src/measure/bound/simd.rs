//! One tile, compiled for each vector level.
#![allow(unsafe_code)]

use ulpdrift_reference::simd::Level;

use super::kernel::{State, Tile};

/// Evaluates a tile with the instructions of `level`, or of the baseline where the processor does
/// not have them; the bits are the same.
pub(super) fn tile(level: Level, tile: &Tile<'_>) -> Vec<State> {
    #[cfg(target_arch = "x86_64")]
    if level.is_available() {
        match level {
            // SAFETY: the processor was just asked for every feature that the function enables.
            Level::Avx512 => return unsafe { tile_avx512(tile) },
            // SAFETY: as above.
            Level::Avx2 => return unsafe { tile_avx2(tile) },
            Level::Portable => {}
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = level;
    tile.evaluate()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn tile_avx512(tile: &Tile<'_>) -> Vec<State> {
    tile.evaluate()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn tile_avx2(tile: &Tile<'_>) -> Vec<State> {
    tile.evaluate()
}
