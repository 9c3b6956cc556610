//! One block's work, compiled for each vector level.
//!
//! The work is plain Rust over interleaved lanes, which the compiler turns into vector code of the
//! width it is compiled for. It never fuses a product with a sum by itself, so every level gives the
//! same bits.
#![allow(unsafe_code)]

use ulpdrift_reference::simd::Level;

/// Something to be compiled for every level.
pub(super) trait Task {
    /// What it yields.
    type Output;
    /// Does the work. Implementations are `#[inline(always)]`, as is everything of weight they
    /// call, so that the body is compiled for the instruction set that runs it.
    fn run(self) -> Self::Output;
}

/// Runs `task` with the instructions of `level`, or of the baseline where the processor does not
/// have them.
pub(super) fn run<T: Task>(level: Level, task: T) -> T::Output {
    #[cfg(target_arch = "x86_64")]
    if level.is_available() {
        match level {
            // SAFETY: the processor was just asked for every feature that the function enables.
            Level::Avx512 => return unsafe { avx512(task) },
            // SAFETY: as above.
            Level::Avx2 => return unsafe { avx2(task) },
            Level::Portable => {}
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = level;
    task.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn avx512<T: Task>(task: T) -> T::Output {
    task.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2<T: Task>(task: T) -> T::Output {
    task.run()
}
