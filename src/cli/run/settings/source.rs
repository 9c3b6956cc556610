//! What a run reads, opened: weights, inputs, and the layers and sites of both.

use anyhow::{Context, ensure};

use super::places::Places;
use crate::{
    activations::{Activations, Inputs},
    checkpoint::{Checkpoint, Site},
    cli::run::args::RunArgs,
    suite::sweep::Axes,
};

/// The most tokens a batch may have whose stages are all kept: twice the largest prefill chunk, and
/// some 4 GB for V4-Flash.
const MAX_TOKENS: usize = 1 << 14;

/// It.
pub struct Source {
    /// Where the weights come from.
    pub checkpoint: Checkpoint,
    /// Where x comes from.
    pub inputs: Inputs,
    /// The same, opened.
    pub activations: Activations,
    /// Tokens in the batch; none: all that a file recorded, else the default.
    pub tokens: Option<usize>,
    /// Layers and sites.
    pub places: Places,
}

impl Source {
    /// Opens what the flags name.
    ///
    /// # Errors
    /// What cannot be read, or is not there.
    pub fn open(args: &RunArgs) -> anyhow::Result<Self> {
        let checkpoint = Checkpoint::open(&args.checkpoint)?;
        let inputs: Inputs = args.inputs.parse().context("--inputs")?;
        let activations =
            Activations::open(&inputs, args.seed, checkpoint.model()).context("--inputs")?;
        if let Some(tokens) = args.tokens {
            ensure!(
                (1..=MAX_TOKENS).contains(&tokens),
                "--tokens {tokens}: expected 1 to {MAX_TOKENS}; choose a batch size in that range, or --sweep tokens=… for more"
            );
        }
        let places = Places::new(args, &checkpoint)?;
        Ok(Self {
            checkpoint,
            inputs,
            activations,
            tokens: args.tokens,
            places,
        })
    }

    /// Tokens of a batch.
    pub fn batch(&self) -> usize {
        self.tokens
            .unwrap_or_else(|| self.places.batch(&self.inputs, &self.activations))
    }

    /// Whether a file of inputs has tokens enough at every site.
    ///
    /// # Errors
    /// A site that has fewer than are asked for.
    pub fn check_tokens(&self, sweep: Option<&Axes>) -> anyhow::Result<()> {
        let Inputs::File(_) = self.inputs else {
            return Ok(());
        };
        let swept = sweep.and_then(|axes| axes.tokens.iter().max()).copied();
        self.places
            .check_tokens(&self.activations, swept.or(self.tokens))
    }

    /// The layers asked for, ascending.
    pub fn layers(&self) -> &[u32] {
        &self.places.layers
    }

    /// Whether both sites of every layer are asked for.
    pub fn has_both_sites(&self) -> bool {
        self.places.sites.len() == Site::ALL.len()
    }
}
