//! `ulpdrift mma record`: vectors from a device.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context;
use clap::Args;

use super::DeviceArgs;
use crate::{
    backend::cuda::device::Device,
    cli::{exit, print, usage::whole},
    files::write::write_whole,
    report::printable,
    suite::vectors::recording::{Origin, Recording, Subject},
};

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    ulpdrift mma record vectors.safetensors --instruction mma-bf16-k16\n  \
    ulpdrift mma verify vectors.safetensors          does the emulator give the same bits?")]
pub struct RecordArgs {
    /// The safetensors file to write
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// What to record: mma-tf32-k8, mma-tf32-k4, mma-bf16-k16, mma-bf16-k8, mma-f16-k16, mma-f16-k8,
    /// mma-e4m3-k32 or mma-e4m3-k16 (all mma.sync m16n8), or cvt: the conversions to tf32 and bf16
    #[arg(long, value_name = "NAME")]
    instruction: Subject,

    /// Seed of the inputs' random streams
    #[arg(long, default_value_t = 0, value_parser = whole::<u64>, allow_negative_numbers = true)]
    seed: u64,

    #[command(flatten)]
    device: DeviceArgs,
}

/// Records, and says what was recorded.
pub fn run(args: &RecordArgs) -> anyhow::Result<ExitCode> {
    let device = args.device.open()?;
    if let Subject::Mma(instruction) = args.instruction {
        let rule = device.arch.rule(instruction);
        rule.with_context(|| format!("--instruction {}", args.instruction))?;
    }
    let recording = Recording::make(&device, args.instruction, args.seed)?;
    let bytes = recording.bytes(&origin(&device));
    write_whole(&args.file, |out| out.write_all(&bytes))?;
    print::result(&format!(
        "{}\n{}\n{} outputs recorded on {} ({}), seed {}\n",
        args.file.display(),
        args.instruction.instruction(),
        recording.outputs(),
        printable(&device.facts.name),
        device.arch,
        args.seed
    ))?;
    Ok(ExitCode::from(exit::GOOD))
}

fn origin(device: &Device) -> Origin {
    let (driver, nvrtc) = (device.driver_version(), device.nvrtc().version());
    Origin {
        source: "hardware".to_owned(),
        device: device.facts.name.clone(),
        driver: format!("CUDA {}.{}", driver.0, driver.1),
        nvrtc: format!("{}.{}", nvrtc.0, nvrtc.1),
    }
}
