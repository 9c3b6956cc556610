//! The flags of suite chain, and what does not go with it.

use anyhow::{Context, ensure};

use super::{Products, places::ranges};
use crate::{
    activations::{Activations, Inputs},
    checkpoint::{Checkpoint, CheckpointError, NonFinite, Site},
    cli::run::args::{LayerIo, Residual, RunArgs, Sublayer, Suite},
    format::Format,
    suite::{
        DEFAULT_TOKENS,
        chain::{self, Around, SitesOn},
    },
};

/// The most seeds of a chain.
const MAX_SEEDS: u64 = 100;

/// Seeds are what a chain's forecast is spread over.
pub fn check_seeds(args: &RunArgs) -> anyhow::Result<()> {
    ensure!(
        (1..=MAX_SEEDS).contains(&args.seeds),
        "--seeds {}: expected 1 to {MAX_SEEDS}",
        args.seeds
    );
    ensure!(
        args.seeds == 1 || args.suites().contains(&Suite::Chain),
        "--seeds {}: only suite chain runs with several; name --suite chain, or leave --seeds out",
        args.seeds
    );
    ensure!(
        args.seeds == 1 || args.dump.is_none(),
        "--seeds {} does not go with --dump, whose tensors are of one seed; drop one of the two",
        args.seeds
    );
    ensure!(
        args.seed.checked_add(args.seeds).is_some(),
        "--seed {}: too large to count {} from it; choose a smaller one",
        args.seed,
        args.seeds
    );
    Ok(())
}

/// The suites that go from layer to layer.
const DEEP: [(Suite, &str); 3] = [
    (Suite::Chain, "chain"),
    (Suite::Budget, "budget"),
    (Suite::Gains, "gains"),
];

/// What lies around the mixing kernel.
pub fn around(args: &RunArgs, layers: &[u32]) -> anyhow::Result<Around> {
    Ok(Around {
        residual: match args.residual {
            Residual::Bf16 => Format::Bf16,
            Residual::Fp32 => Format::F32,
            Residual::Fp16 => Format::F16,
        },
        layer_io: match args.layer_io {
            LayerIo::Bf16 => Format::Bf16,
            LayerIo::Fp32 => Format::F32,
        },
        sublayer: match args.sublayer {
            Sublayer::RmsNorm => chain::Sublayer::RmsNorm,
            Sublayer::SharedExpert => chain::Sublayer::SharedExpert,
            Sublayer::File => chain::Sublayer::File,
        },
        sites_on: sites_on(&args.sites_on, layers)?,
    })
}

/// What a run reads.
pub struct Sources<'a> {
    pub checkpoint: &'a Checkpoint,
    pub inputs: &'a Inputs,
    pub activations: &'a Activations,
    pub layers: &'a [u32],
}

impl Sources<'_> {
    /// Whether what the chain begins with and what stands in for its sublayers is there: found out before anything
    /// is computed, be it by a suite that runs first.
    pub fn check(&self, args: &RunArgs, suites: &[Suite], around: &Around) -> anyhow::Result<()> {
        let first = self.layers.first().copied().unwrap_or_default();
        if *self.inputs == Inputs::Embedding {
            ensure!(
                suites
                    .iter()
                    .all(|suite| matches!(suite, Suite::Chain | Suite::Gains)),
                "--inputs embedding: no site but the first finds embeddings in its streams, so that only suites chain and gains begin with them; name --suite chain, or choose other inputs"
            );
            ensure!(
                first == 0,
                "--inputs embedding: the streams hold embeddings before layer 0, not before layer {first}; let --layers begin with 0, or choose other inputs"
            );
            self.checkpoint.vocabulary().context("--inputs embedding")?;
        }
        if !DEEP.into_iter().any(|(suite, _)| suites.contains(&suite)) {
            return Ok(());
        }
        let recorded = match self.inputs {
            Inputs::File(_) => self.activations.available(first, Site::Attn),
            _ => None,
        };
        let tokens = args.tokens.or(recorded).unwrap_or(DEFAULT_TOKENS);
        if *self.inputs == Inputs::Embedding {
            let vocabulary = self.checkpoint.vocabulary()?.tokens;
            let ids = self.activations.token_ids(vocabulary, 0..tokens);
            let rows = self.checkpoint.check_embeddings(&ids);
            rows.context("--inputs embedding")?;
        }
        around
            .sublayer
            .check(self.checkpoint, self.activations, self.layers, tokens)
            .with_context(|| format!("--sublayer {}", around.sublayer))
    }
}

/// Whether layers and sites make a chain: both sites of every layer, and no gaps.
pub fn is_chain(layers: &[u32], sites: &[Site]) -> bool {
    sites.len() == Site::ALL.len() && layers.windows(2).all(|pair| pair[1] == pair[0] + 1)
}

/// What a chain through the layers lacks, if it lacks anything.
pub fn lacking(sources: &Sources<'_>) -> Option<String> {
    let layers = sources.layers;
    let first = *layers.first()?;
    if matches!(sources.inputs, Inputs::File(_))
        && sources.activations.available(first, Site::Attn).is_none()
    {
        let inputs = sources.inputs;
        return Some(format!(
            "{inputs} has no x for L{first}.attn, where it would begin"
        ));
    }
    let norms = layers
        .iter()
        .flat_map(|&layer| Site::ALL.map(|site| (layer, site)));
    let mut read =
        norms.map(|(layer, site)| sources.checkpoint.norm(layer, site, NonFinite::Allow));
    // What is there and cannot be read is the chain's own error.
    read.find_map(|norm| match norm {
        Err(lacking @ CheckpointError::Lacking { .. }) => Some(lacking.to_string()),
        _ => None,
    })
}

fn sites_on(text: &str, layers: &[u32]) -> anyhow::Result<SitesOn> {
    if text == "all" {
        return Ok(SitesOn::All);
    }
    if let Ok(site) = text.parse() {
        return Ok(SitesOn::Of(site));
    }
    let layer: Option<u32> = text.parse().ok();
    let layer = layer.filter(|layer| layers.contains(layer));
    let layer = layer.with_context(|| {
        format!(
            "--sites-on '{text}': expected all, attn, ffn or one of the {} that run",
            ranges(layers)
        )
    })?;
    Ok(SitesOn::Layer(layer))
}

/// Whether the flags go together: a chain goes through both sites of layers that follow each other, and what is said of
/// one is said to it.
pub fn check(
    args: &RunArgs,
    suites: &[Suite],
    layers: &[u32],
    sites: &[Site],
    products: &Products,
) -> anyhow::Result<()> {
    let has = |suite| suites.contains(&suite);
    let deep = DEEP.into_iter().find(|(suite, _)| has(*suite));
    ensure!(
        args.sites_on == "all" || has(Suite::Chain) && !has(Suite::Budget) && !has(Suite::Gains),
        "--sites-on {}: only suite chain has a variant at some sites and not at others; name --suite chain alone, or leave --sites-on out",
        args.sites_on
    );
    let is_default = args.residual == Residual::Bf16
        && args.layer_io == LayerIo::Bf16
        && args.sublayer == Sublayer::RmsNorm;
    ensure!(
        deep.is_some() || is_default,
        "--residual, --layer-io and --sublayer are of suites chain, budget and gains, none of which is asked for; add --suite chain"
    );
    ensure!(
        args.seeds == 1 || has(Suite::Chain),
        "--seeds {}: only suite chain runs with several, and these layers and sites make none; leave --seeds out",
        args.seeds
    );
    let Some((_, name)) = deep else {
        return Ok(());
    };
    ensure!(
        has(Suite::Mix) || !args.time && products.named.is_empty(),
        "suite {name} alone has no place for times and cublas-* variants; add --suite mix,{name}"
    );
    for (suite, name) in [(Suite::Budget, "budget"), (Suite::Gains, "gains")] {
        let has_tensors = has(Suite::Mix) || has(Suite::Recombine) || has(Suite::Chain);
        for (flag, is_there) in [
            ("--sweep", args.sweep.is_some()),
            ("--crosscheck", args.crosscheck),
            ("--dump", args.dump.is_some() && !has_tensors),
        ] {
            ensure!(
                !has(suite) || !is_there,
                "--suite {name} does not go with {flag}; drop one of the two"
            );
        }
    }
    // A budget without a chain is one of single sites, and says so.
    let whole = |(suite, _): &(Suite, _)| *suite != Suite::Budget && has(*suite);
    match DEEP.into_iter().find(whole) {
        Some((_, name)) => check_chain(args, name, layers, sites),
        None => Ok(()),
    }
}

/// What a suite that cannot do without a chain needs.
fn check_chain(args: &RunArgs, name: &str, layers: &[u32], sites: &[Site]) -> anyhow::Result<()> {
    for (flag, is_there) in [
        ("--sweep", args.sweep.is_some()),
        ("--crosscheck", args.crosscheck),
    ] {
        ensure!(
            !is_there,
            "--suite {name} does not go with {flag}, which looks at single sites; drop one of the two"
        );
    }
    ensure!(
        sites.len() == Site::ALL.len(),
        "--sites {}: suite {name} goes through both sites of every layer; leave --sites out or name --sites-on",
        args.sites.join(",")
    );
    let follows = |pair: &[u32]| pair[1] == pair[0] + 1;
    ensure!(
        layers.windows(2).all(follows),
        "--layers {}: suite {name} goes from layer to layer; name a range without gaps, such as 0-3",
        args.layers.as_deref().unwrap_or("all")
    );
    Ok(())
}
