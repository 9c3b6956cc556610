//! `ulpdrift mma`: the matrix-unit model against recordings.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, anyhow};
use clap::{Args, Subcommand};
use comfy_table::{CellAlignment, Table, presets};
use ulpdrift_reference::simd::Level;

use crate::{
    suite::vectors::{self, Mismatch, Replay},
    tensor_core::Arch,
};

/// Arguments of `ulpdrift mma`.
#[derive(Debug, Args)]
pub struct MmaArgs {
    #[command(subcommand)]
    command: MmaCommand,
}

#[derive(Debug, Subcommand)]
enum MmaCommand {
    /// Replay recorded tensor-core vectors through the emulator, and compare bits
    Verify(VerifyArgs),
}

#[derive(Debug, Args)]
struct VerifyArgs {
    /// Safetensors files of recorded vectors, such as those in fixtures/vectors
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// Emulate this architecture, not the one the file was recorded on
    #[arg(
        long,
        value_name = "ARCH",
        help = "Emulate this architecture, not the one the file was recorded on \
                [sm_80, sm_86, sm_89, sm_90, sm_100, sm_120]"
    )]
    arch: Option<Arch>,
}

/// Runs the command: 0 if all bits agree, 1 if any differ.
///
/// # Errors
/// A file is no vector file, the architecture lacks its instruction, or stdout cannot be written.
/// Nothing has been printed then, unless it was stdout that failed.
pub fn run(args: &MmaArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        MmaCommand::Verify(args) => verify(args, &mut io::stdout().lock()),
    }
}

fn verify(args: &VerifyArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let level = Level::detect();
    let replays = args
        .files
        .iter()
        .map(|path| {
            vectors::replay_file(path, args.arch, &[level])
                .map_err(|error| anyhow!("{}: {error}", path.display()))
        })
        .collect::<anyhow::Result<Vec<Replay>>>()?;

    for (path, replay) in args.files.iter().zip(&replays) {
        print(out, path, replay).context("cannot write to stdout")?;
    }
    let good = replays.iter().all(|replay| replay.mismatches() == 0);
    Ok(if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

fn print(out: &mut impl Write, path: &Path, replay: &Replay) -> io::Result<()> {
    writeln!(out, "{}", path.display())?;
    let source = replay.source.as_deref().unwrap_or("of unknown origin");
    match replay.arch {
        Some(arch) => writeln!(out, "{} ({source}), emulated as {arch}", replay.instruction)?,
        None => writeln!(out, "{} ({source})", replay.instruction)?,
    }
    writeln!(out, "{}", table(replay).trim_fmt())?;
    writeln!(
        out,
        "{} of {} outputs differ\n",
        replay.mismatches(),
        replay.outputs()
    )
}

/// A row per category; where bits differ, also the first place they do: tile, row, column.
fn table(replay: &Replay) -> Table {
    let all_agree = replay.mismatches() == 0;
    let columns = ["category", "outputs", "mismatches"];
    let first_columns = ["first at", "form", "got", "recorded"];
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let first_columns = if all_agree { &[][..] } else { &first_columns };
    table.set_header(columns.iter().chain(first_columns));
    for category in &replay.categories {
        let mut row = vec![
            category.name.clone(),
            category.outputs.to_string(),
            category.mismatches.to_string(),
        ];
        if let Some(Mismatch {
            tile,
            row: r,
            col,
            form,
            got,
            want,
        }) = category.first
        {
            row.push(format!("{tile},{r},{col}"));
            row.extend([
                form.to_string(),
                format!("{got:08x}"),
                format!("{want:08x}"),
            ]);
        }
        table.add_row(row);
    }
    for column in [1, 2] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        mma: MmaArgs,
    }

    /// Exit code and output.
    fn verified(args: &[&str]) -> anyhow::Result<(ExitCode, String)> {
        let MmaCommand::Verify(args) = Cli::try_parse_from(["mma", "verify"].iter().chain(args))?
            .mma
            .command;
        let mut printed = Vec::new();
        let code = verify(&args, &mut printed)?;
        Ok((code, String::from_utf8(printed)?))
    }

    fn fixture(name: &str) -> String {
        format!("{}/fixtures/vectors/{name}", env!("CARGO_MANIFEST_DIR"))
    }

    #[test]
    fn agreement_is_success() {
        let (code, printed) = verified(&[&fixture("model_sm_80_bf16.safetensors")]).unwrap();
        assert_eq!(code, ExitCode::SUCCESS);
        assert!(printed.contains("(model), emulated as sm_80"), "{printed}");
        assert!(
            printed.contains("zero_times_big        1664           0"),
            "{printed}"
        );
        assert!(printed.contains("0 of 26624 outputs differ"), "{printed}");
        assert!(!printed.contains("first at"), "{printed}");
    }

    /// The two families differ in 5594 of these outputs (source: the published models).
    #[test]
    fn another_architecture_is_found_out_and_the_first_place_shown() {
        let file = fixture("model_sm_80_bf16.safetensors");
        let (code, printed) = verified(&[&file, "--arch", "sm_120"]).unwrap();
        assert_eq!(code, ExitCode::from(1));
        assert!(printed.contains("emulated as sm_120"), "{printed}");
        assert!(
            printed.contains("5594 of 26624 outputs differ"),
            "{printed}"
        );
        assert!(
            printed.contains("first at  form    got       recorded"),
            "{printed}"
        );
        assert!(
            printed.contains("0,0,3     scalar  bd4b22b0  bd4b22a0"),
            "{printed}"
        );
        assert!(
            printed.lines().skip(2).all(|line| line.len() <= 80),
            "{printed}"
        );
    }

    #[test]
    fn bad_input_names_the_file_and_prints_nothing() {
        let good = fixture("model_sm_80_bf16.safetensors");
        let message = format!("{:#}", verified(&[&good, "no/such/file"]).unwrap_err());
        assert!(
            message.starts_with("no/such/file: cannot be read ("),
            "{message}"
        );

        let fp8 = fixture("h200_sm_90_e4m3.safetensors");
        let message = format!("{:#}", verified(&[&fp8, "--arch", "sm_80"]).unwrap_err());
        assert!(
            message.contains("sm_80 has no mma.sync e4m3 k32 instruction"),
            "{message}"
        );

        let message = verified(&[&fp8, "--arch", "sm_75"])
            .unwrap_err()
            .to_string();
        assert!(message.contains("is not one of sm_80, sm_86"), "{message}");
        assert!(verified(&[]).is_err(), "at least one file");
    }
}
