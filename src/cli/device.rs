//! Whether a command runs on a device or in the emulator, and what is said where a device is missing.

use std::path::Path;

use anyhow::{bail, ensure};
use clap::ValueEnum;

use super::{cuda_error, print, sentence};
use crate::{backend::cuda::error::CudaError, tensor_core::Arch};

/// Which backend is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BackendChoice {
    /// The device if one answers, else the emulator; the output says which.
    Auto,
    /// The bit-exact emulator, on the CPU.
    Emulate,
    /// The kernels on a CUDA device; exit 3 where there is none.
    Cuda,
}

/// The flags that name a device and its compiler.
pub struct DeviceFlags<'a> {
    /// `--device`.
    pub device: Option<usize>,
    /// `--nvrtc`.
    pub nvrtc: Option<&'a Path>,
}

impl DeviceFlags<'_> {
    /// Says, of those that are given, why they name nothing.
    fn are_not_used(&self, quiet: bool, why: &str) {
        let given = [
            self.device.map(|_| "--device"),
            self.nvrtc.map(|_| "--nvrtc"),
        ];
        let given: Vec<&str> = given.into_iter().flatten().collect();
        if !given.is_empty() {
            let given = given.join(", ");
            print::note(
                quiet,
                &format!("{given} not used: {why}; the emulator runs"),
            );
        }
    }
}

/// What `--backend` and the flags beside it ask for.
pub struct DeviceChoice<'a> {
    /// `--backend`.
    pub backend: BackendChoice,
    /// `--arch`.
    pub arch: Option<Arch>,
    /// Which device.
    pub flags: DeviceFlags<'a>,
    /// What else is asked for that only a device can do.
    pub device_only: Vec<&'static str>,
    /// No remarks.
    pub quiet: bool,
}

impl DeviceChoice<'_> {
    /// The device; none where the emulator is to run.
    ///
    /// # Errors
    /// A device is asked for and there is none, it is not of `--arch`, or flags contradict each other.
    pub fn device<D>(
        &self,
        open: impl FnOnce() -> Result<D, CudaError>,
        arch: impl FnOnce(&D) -> Arch,
    ) -> anyhow::Result<Option<D>> {
        let device = match self.backend {
            BackendChoice::Emulate => {
                ensure!(
                    self.device_only.is_empty(),
                    "--backend emulate does not go with {}, which only a device can do; leave out the one or the other",
                    self.device_only.join(", ")
                );
                self.emulate("the emulator takes no device")
            }
            BackendChoice::Cuda => Some(open()?),
            BackendChoice::Auto if !self.device_only.is_empty() => Some(open()?),
            // An arch that is named is to be emulated, unless the device is asked for.
            BackendChoice::Auto if self.arch.is_some() => {
                self.emulate("--arch names what is emulated")
            }
            BackendChoice::Auto => self.whatever_answers(open)?,
        };
        if let (Some(device), Some(asked)) = (&device, self.arch) {
            let own = arch(device);
            ensure!(
                own == asked,
                "--arch {asked}: the device is {own}, and runs no other; leave --arch out, or use --backend emulate"
            );
        }
        Ok(device)
    }

    /// The device if one answers. What keeps one that is there from answering is said, and a missing driver is no
    /// news, unless a flag names a device.
    fn whatever_answers<D>(
        &self,
        open: impl FnOnce() -> Result<D, CudaError>,
    ) -> anyhow::Result<Option<D>> {
        match open() {
            Ok(device) => Ok(Some(device)),
            Err(none @ CudaError::NoDriver { .. }) => Ok(self.emulate(&none.to_string())),
            // There is a device, and another one is asked for.
            Err(other @ CudaError::NoSuchDevice { .. }) => bail!(other),
            Err(reason) => {
                print::note(self.quiet, &format!("{reason}; the emulator runs"));
                Ok(None)
            }
        }
    }

    /// No device, and why those flags that name one name nothing.
    fn emulate<D>(&self, why: &str) -> Option<D> {
        self.flags.are_not_used(self.quiet, why);
        None
    }
}

/// The error of a command that can emulate instead, which says so where it helps.
pub fn or_emulate(error: anyhow::Error) -> anyhow::Error {
    let cause = error.chain().find_map(cuda_error);
    if !cause.is_some_and(|cause| cause.emulator_would_do()) {
        return error;
    }
    let said = sentence(&error);
    error.context(format!("{said}, or use --backend emulate"))
}
