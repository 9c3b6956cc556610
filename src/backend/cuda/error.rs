//! Why there is no CUDA backend here, or why it stopped. Each variant is one sentence: what was
//! found, what was expected, what to do.

use std::path::PathBuf;

use thiserror::Error;

use super::probe::OLDEST_DRIVER;
use crate::tensor_core::Arch;

/// A driver, a device or a compiler that is missing, broken or too old.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CudaError {
    /// The loader finds no driver.
    #[error("no NVIDIA driver is here: the loader finds no {library}; install the driver")]
    NoDriver {
        /// The library that was looked for.
        library: &'static str,
    },

    /// The driver's library is there but does not load.
    #[error("the NVIDIA driver does not load ({reason}); reinstall the driver")]
    Unloadable {
        /// What the loader said.
        reason: String,
    },

    /// The driver's library lacks a function.
    #[error(
        "the NVIDIA driver is broken: {library} has no function {symbol}; reinstall the driver"
    )]
    Broken {
        /// The library that was loaded.
        library: String,
        /// The function it lacks.
        symbol: &'static str,
    },

    /// The driver refuses a call.
    #[error("the NVIDIA driver does not work: {0}; check it with nvidia-smi")]
    Call(Refusal),

    /// The driver is older than anything this was built for.
    #[error(
        "the NVIDIA driver is too old: it supports CUDA {}.{}, expected {}.{} or newer; update the driver", .found.0, .found.1, OLDEST_DRIVER.0, OLDEST_DRIVER.1
    )]
    TooOld {
        /// The CUDA version the driver supports: major, minor.
        found: (u32, u32),
    },

    /// The driver works, and drives nothing.
    #[error(
        "the NVIDIA driver finds no device{}; make one visible", because_hidden(.visible.as_deref())
    )]
    NoDevice {
        /// `CUDA_VISIBLE_DEVICES`, which hides devices.
        visible: Option<String>,
    },

    /// A device number beyond the last one.
    #[error(
        "--device {asked}: there {}; `ulpdrift doctor` lists them", only_these(*.count)
    )]
    NoSuchDevice {
        /// The number asked for.
        asked: usize,
        /// Devices there are.
        count: usize,
    },

    /// A device whose arithmetic is in no table.
    #[error(
        "device {ordinal} ({name}) has compute capability {}.{}, whose matrix unit is not modelled: expected one of {}; choose another --device", .capability.0, .capability.1, known_archs()
    )]
    UnknownCapability {
        /// The device's number.
        ordinal: usize,
        /// The device's name.
        name: String,
        /// Its compute capability: major, minor.
        capability: (u32, u32),
    },

    /// No run-time compiler.
    #[error(
        "no NVRTC is here, the compiler of the kernels: {}; install it (pip install nvidia-cuda-nvrtc) and name its libnvrtc.so.* by --nvrtc", not_found_at(.path.as_ref())
    )]
    NoNvrtc {
        /// The path asked for; `None` where the loader was to find it.
        path: Option<PathBuf>,
    },

    /// The compiler's library does not load, lacks a function or fails before it compiles anything.
    #[error("the NVRTC at {path} is broken: {reason}; name another by --nvrtc")]
    NvrtcBroken {
        /// The library, as far as it is known.
        path: String,
        /// What is wrong with it.
        reason: String,
    },

    /// The compiler does not find the second half of itself.
    #[error(
        "the NVRTC at {path} is incomplete: {reason}; put libnvrtc-builtins of the same version beside it, or name a complete one by --nvrtc"
    )]
    NoBuiltins {
        /// The library.
        path: String,
        /// What it said.
        reason: String,
    },

    /// The compiler fails, and not because of the source.
    #[error(
        "the NVRTC at {path} failed while compiling {kernel} for {arch}: {reason}; name another by --nvrtc"
    )]
    NvrtcFailed {
        /// The library.
        path: String,
        /// The source's name.
        kernel: String,
        /// The target.
        arch: String,
        /// What it said.
        reason: String,
    },

    /// The compiler is older, or newer, than the device.
    #[error(
        "NVRTC {}.{} does not compile for {arch}: it knows {known}; name another version by --nvrtc", .version.0, .version.1
    )]
    UnknownArch {
        /// The target asked for.
        arch: String,
        /// The compiler's version: major, minor.
        version: (i32, i32),
        /// The targets it has, as a list.
        known: String,
    },

    /// A kernel's source is wrong.
    #[error("kernel '{kernel}' does not compile for {arch}: {reason}; correct the source")]
    Compile {
        /// The source's name.
        kernel: String,
        /// The target.
        arch: String,
        /// The first error.
        reason: String,
        /// The compiler's whole log.
        log: String,
    },

    /// The vendor's library is not here.
    #[error(
        "the cublas-* variants need cuBLAS, and {reason}; install it and add its folder to LD_LIBRARY_PATH, or leave these variants out"
    )]
    NoCublas {
        /// What is missing.
        reason: String,
    },

    /// The driver stops while it is at work.
    #[error("the CUDA device failed while {doing}: {message}; run `ulpdrift doctor`")]
    Driver {
        /// What was being done: "copying x to the device".
        doing: String,
        /// What the driver said.
        message: String,
    },
}

impl CudaError {
    /// Whether the emulator would do in the place of what is missing; no device, where a certain one was asked for, or
    /// a library, which it does not emulate.
    #[must_use]
    pub fn emulator_would_do(&self) -> bool {
        !matches!(
            self,
            Self::Compile { .. } | Self::NoSuchDevice { .. } | Self::NoCublas { .. }
        )
    }

    /// Whether a device, a driver or a compiler is missing, rather than a source wrong.
    #[must_use]
    pub fn is_absence(&self) -> bool {
        !matches!(self, Self::Compile { .. })
    }
}

/// What a function of a library returned that did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{call} returned error {code}{}", in_brackets(.meaning.as_deref()))]
pub struct Refusal {
    /// The function.
    pub call: &'static str,
    /// The code it returned, whether or not anybody has heard of it.
    pub code: i32,
    /// The code's name and what it stands for, where the library knows.
    pub meaning: Option<String>,
}

fn in_brackets(meaning: Option<&str>) -> String {
    meaning.map_or_else(String::new, |meaning| format!(" ({meaning})"))
}

fn because_hidden(visible: Option<&str>) -> String {
    visible.map_or_else(String::new, |value| {
        format!(", and CUDA_VISIBLE_DEVICES='{value}' hides all that it does not list")
    })
}

fn only_these(count: usize) -> String {
    match count {
        0 => "is no device".to_owned(),
        1 => "is only device 0".to_owned(),
        _ => format!("are only devices 0 to {}", count - 1),
    }
}

fn known_archs() -> String {
    Arch::ALL.map(|arch| arch.to_string()).join(", ")
}

fn not_found_at(path: Option<&PathBuf>) -> String {
    path.map_or_else(
        || "the loader finds no libnvrtc.so".to_owned(),
        |path| format!("'{}' does not exist", path.display()),
    )
}
