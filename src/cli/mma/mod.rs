//! `ulpdrift mma`: the matrix unit's model, recordings and devices against each other.

mod record;
mod verify;

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};

use super::{
    device::{DeviceFlags, or_emulate},
    usage::whole,
};
use crate::backend::cuda::{device::Device, error::CudaError, source::Sources};

/// Arguments of `ulpdrift mma`.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  ulpdrift mma verify fixtures/vectors/*.safetensors")]
pub struct MmaArgs {
    #[command(subcommand)]
    command: MmaCommand,
}

#[derive(Debug, Subcommand)]
enum MmaCommand {
    /// Compute recorded tensor-core vectors again, in the emulator or on a device, and compare bits
    Verify(verify::VerifyArgs),
    /// Record tensor-core vectors on a device
    Record(record::RecordArgs),
}

/// Which device, and what compiles for it.
#[derive(Debug, Args)]
struct DeviceArgs {
    /// Number of the CUDA device
    #[arg(
        long,
        value_parser = whole::<usize>,
        value_name = "N",
        allow_negative_numbers = true,
        help = "Number of the CUDA device [default: 0]"
    )]
    device: Option<usize>,
    /// The NVRTC library that compiles the kernels [default: what the loader finds]
    #[arg(long, value_name = "PATH")]
    nvrtc: Option<PathBuf>,
}

impl DeviceArgs {
    fn open(&self) -> Result<Device, CudaError> {
        let number = self.device.unwrap_or_default();
        Device::open(number, self.nvrtc.as_deref(), Sources::default())
    }

    fn flags(&self) -> DeviceFlags<'_> {
        DeviceFlags {
            device: self.device,
            nvrtc: self.nvrtc.as_deref(),
        }
    }
}

/// Runs the command.
///
/// # Errors
/// A file is no vector file or cannot be written, an architecture lacks an instruction, a device is asked for
/// and is not here, or stdout cannot be written. Nothing has been printed then, unless it was stdout
/// that failed.
pub fn run(args: &MmaArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        MmaCommand::Verify(args) => verify::run(args).map_err(or_emulate),
        MmaCommand::Record(args) => record::run(args),
    }
}
