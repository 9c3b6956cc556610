//! `ulpdrift mma`: the matrix-unit model against recordings.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::anyhow;
use clap::{Args, Subcommand};
use comfy_table::{CellAlignment, Table, presets};

use super::{exit, print, run::settings};
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
    let MmaCommand::Verify(args) = &args.command;
    let verified = verify(args)?;
    print::result(&verified.text)?;
    Ok(ExitCode::from(verified.code))
}

/// What was found, and the exit code it amounts to.
struct Verified {
    text: String,
    code: u8,
}

fn verify(args: &VerifyArgs) -> anyhow::Result<Verified> {
    let level = settings::level()?;
    let mut verified = Verified {
        text: String::new(),
        code: exit::GOOD,
    };
    for path in &args.files {
        let replay = vectors::replay_file(path, args.arch, &[level])
            .map_err(|error| anyhow!("{}: {error}", path.display()))?;
        verified.text.push_str(&describe(path, &replay));
        if replay.mismatches() != 0 {
            verified.code = exit::CHECK_FAILED;
        }
    }
    Ok(verified)
}

fn describe(path: &Path, replay: &Replay) -> String {
    let source = replay.source.as_deref().unwrap_or("of unknown origin");
    let emulated = replay
        .arch
        .map_or_else(String::new, |arch| format!(", emulated as {arch}"));
    format!(
        "{}\n{} ({source}){emulated}\n{}\n{} of {} outputs differ\n\n",
        path.display(),
        replay.instruction,
        table(replay).trim_fmt(),
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

    fn verified(args: &[&str]) -> anyhow::Result<Verified> {
        let MmaCommand::Verify(args) = Cli::try_parse_from(["mma", "verify"].iter().chain(args))?
            .mma
            .command;
        verify(&args)
    }

    fn fixture(name: &str) -> String {
        format!("{}/fixtures/vectors/{name}", env!("CARGO_MANIFEST_DIR"))
    }

    #[test]
    fn agreement_is_success() {
        let Verified {
            text: printed,
            code,
        } = verified(&[&fixture("model_sm_80_bf16.safetensors")]).unwrap();
        assert_eq!(code, exit::GOOD);
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
        let Verified {
            text: printed,
            code,
        } = verified(&[&file, "--arch", "sm_120"]).unwrap();
        assert_eq!(code, exit::CHECK_FAILED);
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
    fn block_scaled_instructions_are_replayed_with_their_scales() {
        let file = fixture("model_sm_120_mxf4nvf4.safetensors");
        let Verified { text, code } = verified(&[&file]).unwrap();
        assert_eq!(code, exit::GOOD);
        assert!(text.contains("kind::mxf4nvf4.block_scale"), "{text}");
        assert!(text.contains("0 of 11520 outputs differ"), "{text}");

        let message = verified(&[&file, "--arch", "sm_90"]).err().unwrap();
        assert!(
            message.to_string().ends_with(
                ": sm_90 has no block-scaled mma.sync mxf4nvf4 k64 instruction: emulate sm_100 \
                 (tcgen05) or sm_120 (mma.sync)"
            ),
            "{message}"
        );
    }

    #[test]
    fn bad_input_names_the_file_and_prints_nothing() {
        let good = fixture("model_sm_80_bf16.safetensors");
        let message = format!("{:#}", verified(&[&good, "no/such/file"]).err().unwrap());
        assert!(
            message.starts_with("no/such/file: cannot be read ("),
            "{message}"
        );

        let fp8 = fixture("h200_sm_90_e4m3.safetensors");
        let message = format!("{:#}", verified(&[&fp8, "--arch", "sm_80"]).err().unwrap());
        assert!(
            message.contains("sm_80 has no mma.sync e4m3 k32 instruction"),
            "{message}"
        );

        let message = verified(&[&fp8, "--arch", "sm_75"])
            .err()
            .unwrap()
            .to_string();
        assert!(message.contains("is not one of sm_80, sm_86"), "{message}");
        assert!(verified(&[]).is_err(), "at least one file");
    }
}
