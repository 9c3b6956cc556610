//! The flags of suite chain, and what does not go with it.

use anyhow::{Context, bail, ensure};

use super::{Products, Suites, places::ranges, source::Source};
use crate::{
    activations::Inputs,
    checkpoint::{CheckpointError, NonFinite, Site},
    cli::run::{
        args::{LayerIo, Residual, RunArgs, Sublayer},
        suite::Suite,
    },
    format::Format,
    report::Skipped,
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

/// Whether what the chain begins with and what stands in for its sublayers is there: found out before anything
/// is computed, be it by a suite that runs first.
pub fn check_source(suites: &[Suite], source: &Source, around: &Around) -> anyhow::Result<()> {
    let first = source.layers().first().copied().unwrap_or_default();
    if source.inputs == Inputs::Embedding {
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
        source
            .checkpoint
            .vocabulary()
            .context("--inputs embedding")?;
    }
    if !suites.iter().any(|suite| suite.is_deep()) {
        return Ok(());
    }
    let recorded = match source.inputs {
        Inputs::File(_) => source.activations.available(first, Site::Attn),
        _ => None,
    };
    let tokens = source.tokens.or(recorded).unwrap_or(DEFAULT_TOKENS);
    if source.inputs == Inputs::Embedding {
        let vocabulary = source.checkpoint.vocabulary()?.tokens;
        let ids = source.activations.token_ids(vocabulary, 0..tokens);
        let rows = source.checkpoint.check_embeddings(&ids);
        rows.context("--inputs embedding")?;
    }
    around
        .sublayer
        .check(
            &source.checkpoint,
            &source.activations,
            source.layers(),
            tokens,
        )
        .with_context(|| format!("--sublayer {}", around.sublayer))
}

/// Takes a chain that nobody named out of the suites where layers and sites make none, and says why where the
/// checkpoint or the inputs do not.
pub fn leave_out(args: &RunArgs, source: &Source, suites: &mut Suites) {
    if !args.suite.is_empty() || !suites.run.contains(&Suite::Chain) {
        return;
    }
    // Who narrows a run to some sites has not asked for a chain.
    let is_chain = source.has_both_sites() && follow_each_other(source.layers());
    let why = lacking(source).filter(|_| is_chain);
    suites
        .run
        .retain(|suite| *suite != Suite::Chain || is_chain && why.is_none());
    suites.left_out.extend(why.map(|why| Skipped {
        what: "suite chain".to_owned(),
        why,
    }));
}

/// Whether there are no gaps between layers.
fn follow_each_other(layers: &[u32]) -> bool {
    layers.windows(2).all(|pair| pair[1] == pair[0] + 1)
}

/// What a chain through the layers lacks, if it lacks anything.
fn lacking(source: &Source) -> Option<String> {
    let layers = source.layers();
    let first = *layers.first()?;
    let inputs = &source.inputs;
    if matches!(inputs, Inputs::File(_))
        && source.activations.available(first, Site::Attn).is_none()
    {
        return Some(format!(
            "{inputs} has no x for L{first}.attn, where it would begin"
        ));
    }
    let norms = layers
        .iter()
        .flat_map(|&layer| Site::ALL.map(|site| (layer, site)));
    let mut read = norms.map(|(layer, site)| source.checkpoint.norm(layer, site, NonFinite::Allow));
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
    source: &Source,
    products: &Products,
) -> anyhow::Result<()> {
    let has = |suite| suites.contains(&suite);
    let first_of = |is_meant: fn(Suite) -> bool| {
        Suite::all().find(|&suite| suites.contains(&suite) && is_meant(suite))
    };
    let deep = first_of(Suite::is_deep);
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
    let Some(deep) = deep else {
        return Ok(());
    };
    let name = deep.name();
    ensure!(
        has(Suite::Mix) || !args.time && products.named.is_empty(),
        "suite {name} alone has no place for times and cublas-* variants; add --suite mix,{name}"
    );
    let has_tensors = has(Suite::Mix) || has(Suite::Recombine) || has(Suite::Chain);
    let useless_dump = args.dump.as_ref().filter(|_| !has_tensors);
    let other = args.own_table().or(useless_dump.map(|_| "--dump"));
    if let Some(flag) = other {
        for suite in [Suite::Budget, Suite::Gains] {
            ensure!(
                !has(suite),
                "--suite {} does not go with {flag}; drop one of the two",
                suite.name()
            );
        }
    }
    // A budget without a chain is one of single sites, and says so.
    match first_of(|suite| suite.is_deep() && suite != Suite::Budget) {
        Some(suite) => check_chain(args, suite.name(), source),
        None => Ok(()),
    }
}

/// What a suite that cannot do without a chain needs.
fn check_chain(args: &RunArgs, name: &str, source: &Source) -> anyhow::Result<()> {
    if let Some(flag) = args.own_table() {
        bail!(
            "--suite {name} does not go with {flag}, which looks at single sites; drop one of the two"
        );
    }
    ensure!(
        source.has_both_sites(),
        "--sites {}: suite {name} goes through both sites of every layer; leave --sites out or name --sites-on",
        args.sites.join(",")
    );
    ensure!(
        follow_each_other(source.layers()),
        "--layers {}: suite {name} goes from layer to layer; name a range without gaps, such as 0-3",
        args.layers.as_deref().unwrap_or("all")
    );
    Ok(())
}
