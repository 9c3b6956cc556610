//! Which vector instructions a kernel may use.
//!
//! Every level gives the same bits: a level is a choice of speed, never of result. It can be forced
//! so that tests and users can check exactly that.
//!
//! Most kernels are plain Rust over interleaved lanes ([`Task`]), which the compiler turns into vector
//! code of the width it is compiled for. It never fuses a product with a sum by itself, so the bits
//! are the same at every level.
#![allow(unsafe_code)]

use std::{fmt, str::FromStr};

/// A vector instruction set, from the slowest that runs everywhere to the fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Whatever the compiler emits for the baseline target.
    Portable,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F, BW, DQ and VL, with AVX2 and FMA.
    Avx512,
}

impl Level {
    /// All levels, slowest first.
    pub const ALL: [Self; 3] = [Self::Portable, Self::Avx2, Self::Avx512];

    /// The fastest level this processor runs.
    #[must_use]
    pub fn detect() -> Self {
        Self::ALL
            .into_iter()
            .rev()
            .find(|level| level.is_available())
            .unwrap_or(Self::Portable)
    }

    /// Whether this processor runs the level.
    #[must_use]
    pub fn is_available(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            match self {
                Self::Portable => true,
                Self::Avx2 => avx2,
                Self::Avx512 => {
                    avx2 && is_x86_feature_detected!("avx512f")
                        && is_x86_feature_detected!("avx512bw")
                        && is_x86_feature_detected!("avx512dq")
                        && is_x86_feature_detected!("avx512vl")
                }
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            self == Self::Portable
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        })
    }
}

impl FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|level| level.to_string() == text)
            .ok_or_else(|| format!("vector level '{text}' is not one of portable, avx2, avx512"))
    }
}

/// Something to be compiled for every level.
pub trait Task {
    /// What it yields.
    type Output;
    /// Does the work. Implementations are `#[inline(always)]`, as is everything of weight they
    /// call, so that the body is compiled for the instruction set that runs it.
    fn run(self) -> Self::Output;
}

/// Runs `task` with the instructions of `level`, or the best that this processor has below it.
pub fn run<T: Task>(level: Level, task: T) -> T::Output {
    #[cfg(target_arch = "x86_64")]
    match level.min(Level::detect()) {
        // SAFETY: `detect` has found these features on this processor.
        Level::Avx512 => return unsafe { avx512(task) },
        // SAFETY: as above.
        Level::Avx2 => return unsafe { avx2(task) },
        Level::Portable => {}
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
