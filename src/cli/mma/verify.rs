//! `ulpdrift mma verify`: recordings against the emulator, or against a device.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::anyhow;
use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use ulpdrift_reference::simd::Level;

use super::DeviceArgs;
use crate::{
    backend::cuda::device::Device,
    cli::{
        device::{BackendChoice, DeviceChoice},
        environment, exit, print,
    },
    files,
    report::{printable, style},
    suite::vectors::{
        self, Mismatch, Replay, VectorError,
        on_unit::{OnUnitError, Outcome, replay_on},
    },
    tensor_core::Arch,
};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ulpdrift mma verify fixtures/vectors/*.safetensors
  ulpdrift mma verify vectors.safetensors --backend cuda    does the device give the same bits?")]
pub struct VerifyArgs {
    /// Safetensors files of recorded vectors, such as those in fixtures/vectors
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// What computes the outputs again
    #[arg(long, value_enum, default_value = "emulate")]
    backend: BackendChoice,

    /// Emulate this architecture, not the one the file was recorded on
    #[arg(
        long,
        value_name = "ARCH",
        help = "Emulate this architecture, not the one the file was recorded on \
                [sm_80, sm_86, sm_89, sm_90, sm_100, sm_120]; with a device, its own: compare it \
                with files of any architecture"
    )]
    arch: Option<Arch>,

    #[command(flatten)]
    device: DeviceArgs,
}

/// Runs the command: 0 if all bits agree, 1 if any differ or none was compared.
pub fn run(args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let verified = verify(args)?;
    print::result(&verified.text)?;
    Ok(ExitCode::from(verified.code))
}

/// What computes the outputs again.
enum Replayer {
    Emulator(Level),
    Device(Box<Device>),
}

impl Replayer {
    /// As the flags ask.
    fn new(args: &VerifyArgs) -> anyhow::Result<Self> {
        let choice = DeviceChoice {
            backend: args.backend,
            arch: args.arch,
            flags: args.device.flags(),
            device_only: Vec::new(),
            quiet: false,
        };
        Ok(
            match choice.device(|| args.device.open(), |device| device.arch)? {
                Some(device) => Self::Device(Box::new(device)),
                None => Self::Emulator(environment::level()?),
            },
        )
    }

    fn replay(&self, path: &Path, arch: Option<Arch>) -> anyhow::Result<Outcome> {
        let of_file = |error: VectorError| anyhow!("{}: {error}", path.display());
        match self {
            Self::Emulator(level) => vectors::replay_file(path, arch, &[*level])
                .map(Outcome::Replayed)
                .map_err(of_file),
            Self::Device(device) => {
                let bytes = files::read(path, files::LARGEST_VECTORS)
                    .map_err(|error| of_file(error.into()))?;
                replay_on(device.as_ref(), &bytes, arch).map_err(|error| match error {
                    OnUnitError::File(error) => of_file(error),
                    OnUnitError::Device(error) => error.into(),
                })
            }
        }
    }

    /// What a replay says of where it was made, to follow the file's own source.
    fn describe(&self, replay: &Replay) -> String {
        match self {
            Self::Emulator(_) => replay
                .arch
                .map_or_else(String::new, |arch| format!(", emulated as {arch}")),
            Self::Device(device) => {
                let name = printable(&device.facts.name);
                format!(", run on {name} ({})", device.arch)
            }
        }
    }
}

/// What was found, and the exit code it amounts to.
struct Verified {
    /// Painted.
    text: String,
    code: u8,
}

fn verify(args: &VerifyArgs) -> anyhow::Result<Verified> {
    let replayer = Replayer::new(args)?;
    let outcome = |path: &PathBuf| replayer.replay(path, args.arch);
    let outcomes = args
        .files
        .iter()
        .map(outcome)
        .collect::<Result<Vec<_>, _>>()?;
    let where_run = |replay: &Replay| replayer.describe(replay);
    Ok(summarise(&args.files, &outcomes, where_run))
}

/// All files, and how many were none: a file that was skipped is no success.
fn summarise(
    paths: &[PathBuf],
    outcomes: &[Outcome],
    where_run: impl Fn(&Replay) -> String,
) -> Verified {
    let mut text = String::new();
    let (mut skipped, mut differ) = (0, false);
    for (path, outcome) in paths.iter().zip(outcomes) {
        match outcome {
            Outcome::Replayed(replay) => {
                text.push_str(&describe(path, replay, &where_run(replay)));
                differ |= replay.mismatches() != 0;
            }
            Outcome::Skipped {
                instruction,
                source,
                why,
            } => {
                let source = source.as_deref().unwrap_or(UNKNOWN);
                let path = path.display();
                text.push_str(&format!(
                    "{path}\n{instruction} ({source})\nskipped: {why}\n\n"
                ));
                skipped += 1;
            }
        }
    }
    let files = outcomes.len();
    if skipped == files {
        text.push_str(&format!(
            "{}: {skipped} of {files} files skipped\n",
            style::failure("nothing was verified")
        ));
    } else if skipped != 0 {
        text.push_str(&format!("{skipped} of {files} files skipped\n"));
    }
    let failed = differ || skipped == files;
    Verified {
        text,
        code: if failed {
            exit::CHECK_FAILED
        } else {
            exit::GOOD
        },
    }
}

/// What is said of a file that does not name its source.
const UNKNOWN: &str = "of unknown origin";

fn describe(path: &Path, replay: &Replay, where_run: &str) -> String {
    let source = replay.source.as_deref().unwrap_or(UNKNOWN);
    let (mismatches, outputs) = (replay.mismatches(), replay.outputs());
    let outcome = format!("{mismatches} of {outputs} outputs differ");
    let outcome = match mismatches {
        0 => outcome,
        _ => style::failure(&outcome),
    };
    format!(
        "{}\n{} ({source}){where_run}\n{}\n{outcome}\n\n",
        path.display(),
        replay.instruction,
        table(replay).trim_fmt()
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
        args: VerifyArgs,
    }

    fn verified(args: &[&str]) -> anyhow::Result<Verified> {
        verify(&Cli::try_parse_from(["verify"].iter().chain(args))?.args)
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

    fn skip() -> Outcome {
        Outcome::Skipped {
            instruction: "wgmma".to_owned(),
            source: None,
            why: "no such thing".to_owned(),
        }
    }

    fn replayed(name: &str, arch: Arch) -> Outcome {
        let path = fixture(name);
        Outcome::Replayed(vectors::replay_file(Path::new(&path), Some(arch), &[]).unwrap())
    }

    fn summary(outcomes: &[Outcome]) -> Verified {
        let paths = vec![PathBuf::from("file"); outcomes.len()];
        summarise(&paths, outcomes, |_| ", run on a device".to_owned())
    }

    #[test]
    fn a_skip_is_counted_and_is_no_success() {
        let good = replayed("model_sm_80_bf16.safetensors", Arch::Sm80);
        let bad = replayed("model_sm_80_bf16.safetensors", Arch::Sm90);

        let none = summary(&[skip(), skip()]);
        assert_eq!(none.code, exit::CHECK_FAILED);
        assert_eq!(
            style::plain(&none.text),
            "file\nwgmma (of unknown origin)\nskipped: no such thing\n\n".repeat(2)
                + "nothing was verified: 2 of 2 files skipped\n"
        );

        let some = summary(&[skip(), good.clone()]);
        assert_eq!(some.code, exit::GOOD);
        assert!(
            some.text.contains("(model), run on a device\n"),
            "{}",
            some.text
        );
        assert!(
            some.text.ends_with("\n\n1 of 2 files skipped\n"),
            "{}",
            some.text
        );

        assert_eq!(
            summary(&[skip(), good.clone(), bad]).code,
            exit::CHECK_FAILED
        );
        assert!(!summary(&[good]).text.contains("skipped"));
    }
}
