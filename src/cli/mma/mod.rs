//! `ulpdrift mma`: the matrix unit's model, recordings and devices against each other.

mod record;
mod verify;

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};

use super::usage::whole;
use crate::backend::cuda::{device::Device, error::CudaError, source::Sources};

/// Arguments of `ulpdrift mma`.
#[derive(Debug, Args)]
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
    #[arg(long, default_value_t = 0, value_parser = whole::<usize>, value_name = "N", allow_negative_numbers = true)]
    device: usize,
    /// The NVRTC library that compiles the kernels [default: what the loader finds]
    #[arg(long, value_name = "PATH")]
    nvrtc: Option<PathBuf>,
}

impl DeviceArgs {
    fn open(&self) -> Result<Device, CudaError> {
        Device::open(self.device, self.nvrtc.as_deref(), Sources::default())
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
        MmaCommand::Verify(args) => verify::run(args),
        MmaCommand::Record(args) => record::run(args),
    }
}
