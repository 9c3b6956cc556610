//! One strip, compiled for each vector level.
#![allow(unsafe_code)]

use ulpdrift_reference::simd::Level;

use super::vector::{Block, Strip};

/// Runs a strip with the instructions of `level`, or of the baseline where the processor does not
/// have them; the bits are the same.
pub(super) fn run<B: Block>(level: Level, strip: Strip<'_, B>) {
    #[cfg(target_arch = "x86_64")]
    if level.is_available() {
        match level {
            // SAFETY: the processor was just asked for every feature that the function enables.
            Level::Avx512 => return unsafe { run_avx512(strip) },
            // SAFETY: as above.
            Level::Avx2 => return unsafe { run_avx2(strip) },
            Level::Portable => {}
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = level;
    strip.run();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn run_avx512<B: Block>(strip: Strip<'_, B>) {
    strip.run();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn run_avx2<B: Block>(strip: Strip<'_, B>) {
    strip.run();
}
