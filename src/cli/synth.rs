//! `ulpdrift synth DIR`: a synthetic checkpoint on disk.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;

use super::{exit, print, usage::whole};
use crate::checkpoint::{SyntheticModel, parse_layers, write_synthetic};

/// Write a synthetic checkpoint in the official layout.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  ulpdrift synth ck                             four small layers
  ulpdrift synth ck --model flash --layers 2    two layers of V4-Flash's size
  ulpdrift synth ck && ulpdrift run ck")]
pub struct SynthArgs {
    /// A directory that does not exist yet, or is empty.
    pub dir: PathBuf,
    /// The model whose dimensions to take: flash, pro, v4.1 or tiny.
    #[arg(long, default_value = "tiny")]
    pub model: SyntheticModel,
    /// Which layers: a count N for the first N, or a list such as 0,2,5-7. All if left out.
    #[arg(long, value_name = "N|LIST", allow_negative_numbers = true)]
    pub layers: Option<String>,
    /// The seed of all weights; 0 gives those of synthetic:MODEL.
    #[arg(long, default_value_t = 0, value_parser = whole::<u64>, allow_negative_numbers = true)]
    pub seed: u64,
}

/// Writes the checkpoint and says what was written.
///
/// # Errors
///
/// If the layers do not exist or the directory cannot be used; nothing is left behind then.
pub fn run(args: &SynthArgs) -> anyhow::Result<ExitCode> {
    let count = args.model.layers();
    let layers = match &args.layers {
        Some(text) => parse_layers(text, count)?,
        None => (0..count).collect(),
    };
    let written = write_synthetic(&args.dir, args.model, &layers, args.seed)?;
    print::result(&format!(
        "SYNTHETIC {} checkpoint: {} of {count} layers, {} tensors, {:.1} MB in {} shards\n",
        args.model,
        layers.len(),
        written.tensors,
        written.bytes as f64 / 1e6,
        written.shards,
    ))?;
    Ok(ExitCode::from(exit::GOOD))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: SynthArgs,
    }

    #[test]
    fn arguments() {
        let line = [
            "synth", "out", "--model", "v4.1", "--layers", "0,2", "--seed", "7",
        ];
        let args = Cli::try_parse_from(line).ok().map(|cli| cli.args);
        let args = args.unwrap();
        assert_eq!((args.model, args.seed), (SyntheticModel::V41, 7));
        assert_eq!(args.layers.as_deref(), Some("0,2"));
        let refused = Cli::try_parse_from(["synth", "out", "--model", "v5"])
            .err()
            .unwrap();
        assert!(
            refused
                .to_string()
                .contains("choose among flash, pro, v4.1 and tiny")
        );
    }
}
