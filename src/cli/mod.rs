//! The command line: clap types, one file per command. Knows nothing of numerics.
//!
//! Results go to stdout, progress and errors to stderr. An error is one sentence; the exit codes are
//! in [`exit`].

pub mod exit;
pub mod gate;
pub mod inspect;
pub mod mma;
mod print;
pub mod run;
pub mod synth;
pub mod variants;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// How far is this kernel from the truth, on your weights?
///
/// Runs precision variants of a DeepSeek-V4-style model's kernels, bit-exactly emulated on the CPU,
/// against an fp64 reference.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 good · 1 a gate, bound or verify check failed · 2 bad usage \
    or bad input, nothing written\n\n\
    Examples:\n  \
    ulpdrift run                                  built-in synthetic V4-Flash weights\n  \
    ulpdrift run ~/models/DeepSeek-V4-Flash       every layer of a checkpoint\n  \
    ulpdrift run CHECKPOINT --out report          CSV and JSON too\n  \
    ulpdrift gate report/report.json --thresholds limits.toml\n  \
    ulpdrift variants tf32-rz                     what that variant's arithmetic is"
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure precision variants on every layer of a checkpoint.
    Run(Box<run::args::RunArgs>),
    /// Show which hyper-connection and indexer tensors a checkpoint holds, and what is missing.
    Inspect(inspect::InspectArgs),
    /// Apply thresholds or a baseline to a report.
    Gate(gate::GateArgs),
    /// List the precision variants, or explain one step by step.
    Variants(variants::VariantsArgs),
    /// Write a synthetic checkpoint in the official layout.
    Synth(synth::SynthArgs),
    /// Replay recorded tensor-core vectors through the emulator.
    Mma(mma::MmaArgs),
}

/// Runs the command and turns its outcome into an exit code.
#[must_use]
pub fn run(cli: &Cli) -> ExitCode {
    let outcome = match &cli.command {
        Command::Run(args) => run::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::Gate(args) => gate::run(args),
        Command::Variants(args) => variants::run(args),
        Command::Synth(args) => synth::run(args),
        Command::Mma(args) => mma::run(args),
    };
    outcome.unwrap_or_else(|error| {
        print::error(&format!("{error:#}"));
        ExitCode::from(exit::BAD_INPUT)
    })
}
