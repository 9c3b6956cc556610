//! The command line: clap types, one file per command. Knows nothing of numerics.
//!
//! Results go to stdout, progress and errors to stderr. An error is one sentence; the exit codes are
//! in [`exit`].

mod bugs;
pub mod device;
mod diff;
pub mod doctor;
mod environment;
pub mod exit;
pub mod explain;
pub mod fetch;
pub mod gate;
mod gates;
pub mod inspect;
mod kernel_cache;
pub mod merge;
pub mod mma;
mod outputs;
mod print;
pub mod report;
pub mod run;
pub mod shell;
mod step_summary;
pub mod synth;
mod usage;
pub mod variants;

use std::process::ExitCode;

use clap::{ColorChoice, Parser, Subcommand};

use crate::{
    backend::{BackendError, cuda::error::CudaError},
    report::printable,
    suite::SuiteError,
};

/// How far is this kernel from the truth, on your weights?
///
/// Runs precision variants of a DeepSeek-V4-style model's kernels, bit-exactly emulated on the CPU,
/// against an fp64 reference.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 good · 1 a gate, bound or verify check failed, or a variant is broken · 2 bad usage \
    or bad input, no report written · 3 the requested backend or device is not here · 130 interrupted, finished cases \
    kept\n\n\
    Environment: HF_HUB_CACHE, HF_HOME where ORG/MODEL is looked for · HF_TOKEN, HF_ENDPOINT whom fetch asks, and as \
    whom · ULPDRIFT_CACHE=off compiles kernels anew · ULPDRIFT_SIMD, RAYON_NUM_THREADS speed, never a number\n\n\
    Examples:\n  \
    ulpdrift run                                  built-in synthetic V4-Flash weights\n  \
    ulpdrift run ~/models/DeepSeek-V4-Flash       every layer of a checkpoint\n  \
    ulpdrift run CHECKPOINT --out report          CSV and JSON too\n  \
    ulpdrift gate report/report.json --init -o limits.toml\n  \
    ulpdrift gate report/report.json --thresholds limits.toml\n  \
    ulpdrift report report/report.json -o report.html\n  \
    ulpdrift diff before/report.json report/report.json\n  \
    ulpdrift explain report/report.json           what the numbers mean, and what would help\n  \
    ulpdrift variants tf32-rz                     what that variant's arithmetic is"
)]
pub struct Cli {
    /// Colour: auto is where stdout is a terminal, unless NO_COLOR is set.
    #[arg(
        long,
        global = true,
        value_enum,
        default_value = "auto",
        value_name = "WHEN"
    )]
    color: ColorChoice,
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
    /// Join the reports of a run that was made in parts.
    Merge(merge::MergeArgs),
    /// Make a page to read of a report.
    Report(report::ReportArgs),
    /// Show two reports side by side: what changed, by variant, worst first.
    Diff(diff::DiffArgs),
    /// Say in words what a report or a row of it means, and what would help.
    Explain(explain::ExplainArgs),
    /// List the precision variants, or explain one step by step.
    Variants(variants::VariantsArgs),
    /// Write a synthetic checkpoint in the official layout.
    Synth(synth::SynthArgs),
    /// Fetch the few tensors that a run needs out of a checkpoint on a hub.
    Fetch(fetch::FetchArgs),
    /// Replay recorded tensor-core vectors, in the emulator or on a device, and record them.
    Mma(mma::MmaArgs),
    /// Show what is here (processor, driver, device, compiler) and what each missing piece means.
    Doctor(doctor::DoctorArgs),
    /// Print a shell's completions.
    Completions(shell::CompletionsArgs),
    /// Print the manual page, or write a page per command.
    Man(shell::ManArgs),
}

/// Parses the command line, runs the command and turns its outcome into an exit code.
#[must_use]
pub fn main() -> ExitCode {
    let parsed = Cli::try_parse().inspect(|cli| print::choose_colour(cli.color));
    let outcome = match parsed {
        // It has to work where the threads do not start.
        Ok(Cli {
            command: Command::Doctor(args),
            ..
        }) => doctor::run(&args),
        Ok(cli) => environment::start_threads().and_then(|()| dispatch(&cli)),
        Err(stop) if usage::is_asked_for(&stop) => {
            print::result(&stop.to_string()).map(|()| ExitCode::from(exit::GOOD))
        }
        Err(stop) if usage::is_nothing_asked(&stop) => {
            print::note(false, stop.to_string().trim_end());
            return ExitCode::from(exit::BAD_INPUT);
        }
        Err(wrong) => {
            let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
            Err(anyhow::Error::msg(usage::sentence(&wrong, words)))
        }
    };
    outcome.unwrap_or_else(|error| {
        print::error(&told(&error));
        ExitCode::from(exit_code(&error))
    })
}

/// What an error amounts to: a device that is not there, or input that is wrong.
fn exit_code(error: &anyhow::Error) -> u8 {
    match error.chain().find_map(cuda_error) {
        Some(error) if error.is_absence() => exit::NO_DEVICE,
        _ => exit::BAD_INPUT,
    }
}

/// What a device said, whoever hands it on.
fn cuda_error<'a>(cause: &'a (dyn std::error::Error + 'static)) -> Option<&'a CudaError> {
    let backend = match cause.downcast_ref::<SuiteError>() {
        Some(SuiteError::Backend(error)) => Some(error),
        _ => cause.downcast_ref::<BackendError>(),
    };
    match backend {
        Some(BackendError::Cuda(error)) => Some(error),
        _ => cause.downcast_ref::<CudaError>(),
    }
}

fn dispatch(cli: &Cli) -> anyhow::Result<ExitCode> {
    match &cli.command {
        Command::Run(args) => run::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::Gate(args) => gate::run(args),
        Command::Merge(args) => merge::run(args),
        Command::Report(args) => report::run(args),
        Command::Diff(args) => diff::run(args),
        Command::Explain(args) => explain::run(args),
        Command::Variants(args) => variants::run(args),
        Command::Synth(args) => synth::run(args),
        Command::Fetch(args) => fetch::run(args),
        Command::Mma(args) => mma::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Completions(args) => shell::completions(args),
        Command::Man(args) => shell::man(args),
    }
}

/// An error as the terminal shows it: one line of bounded length, whatever the names in it hold.
#[must_use]
pub fn told(error: &anyhow::Error) -> String {
    // Of a longer one the middle is left out: a file is named before what is wrong with it, and what to do comes last.
    const LONGEST: usize = 2000;
    let told = printable(&sentence(error));
    if told.len() <= LONGEST {
        return told;
    }
    let boundary = |place: usize| (place..).find(|&place| told.is_char_boundary(place));
    let front = boundary(LONGEST / 2).unwrap_or(0);
    let back = boundary(told.len() - LONGEST / 2).unwrap_or(told.len());
    format!("{} … {}", &told[..front], &told[back..])
}

/// The error and its causes in one sentence; a cause that the message before it already quotes is
/// not said twice.
fn sentence(error: &anyhow::Error) -> String {
    let mut said = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if said.is_empty() {
            said = cause;
        } else if !said.contains(&cause) {
            said = format!("{said}: {cause}");
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn assert_examples(command: &clap::Command) {
        let name = command.get_name();
        let help = command.get_after_help().map(ToString::to_string);
        assert!(
            help.is_some_and(|help| help.contains("Example")),
            "the help of {name} has no example"
        );
        command.get_subcommands().for_each(assert_examples);
    }

    #[test]
    fn every_command_shows_an_example() {
        assert_examples(&<Cli as clap::CommandFactory>::command());
    }

    #[test]
    fn a_cause_is_said_once() {
        let quoted = anyhow::Error::from(io::Error::other("disk gone"))
            .context("cannot write x: disk gone; name another")
            .context("--out");
        assert_eq!(
            sentence(&quoted),
            "--out: cannot write x: disk gone; name another"
        );
        let unquoted = anyhow::Error::from(io::Error::other("disk gone")).context("--out x");
        assert_eq!(sentence(&unquoted), "--out x: disk gone");
    }

    #[test]
    fn a_name_of_any_length_leaves_the_file_and_the_advice() {
        let long = anyhow::anyhow!(
            "a.toml, line 1: unknown '{}'; remove it",
            "é\n".repeat(9000)
        );
        let told = told(&long.context("--thresholds"));
        assert!(told.len() <= 2048, "{}", told.len());
        assert!(
            told.starts_with("--thresholds: a.toml, line 1: unknown 'é\\né"),
            "{told}"
        );
        assert!(told.ends_with("é\\n'; remove it"), "{told}");
    }

    #[test]
    fn a_device_that_fails_is_exit_code_3_whoever_hands_it_on() {
        let device = || CudaError::Driver {
            doing: "running the kernels".to_owned(),
            message: "gone".to_owned(),
        };
        let backend = || BackendError::Cuda(device());
        for error in [
            anyhow::Error::from(device()),
            anyhow::Error::from(backend()),
            anyhow::Error::from(SuiteError::from(backend())).context("L0.attn"),
        ] {
            assert_eq!(exit_code(&error), exit::NO_DEVICE, "{error:#}");
        }
        let other = CudaError::NoSuchDevice { asked: 1, count: 1 };
        assert_eq!(exit_code(&other.into()), exit::NO_DEVICE);
        assert_eq!(exit_code(&anyhow::Error::msg("no file")), exit::BAD_INPUT);
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
