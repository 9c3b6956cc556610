//! The flags of suites indexer and needle, and what does not go with them.

use anyhow::{Context, bail, ensure};

use super::{Suites, names::Indexers, places::ranges, source::Source};
use crate::{
    activations::Inputs,
    cli::run::{args::RunArgs, suite::Suite},
    recipe::indexer::catalogue,
    report::{Kernel, Skipped},
    suite::{
        indexer::{IndexPlan, fault, fault::IndexFault},
        needle::{Margin, NeedlePlan},
    },
};

/// Tokens of context where nothing says how many.
const DEFAULT_CONTEXT: usize = 8192;
/// The longest context: that of the models.
const MAX_CONTEXT: usize = 1 << 20;
/// The most positions that ask.
const MAX_QUERIES: usize = 1 << 12;
/// The most keys that are selected.
const MAX_K: usize = 1 << 16;

/// Whether a suite runs the indexer.
fn indexes(suite: &Suite) -> bool {
    suite.kernel() == Kernel::Indexer
}

/// Whether the flags go together, whatever there is to run on.
pub fn check(args: &RunArgs) -> anyhow::Result<()> {
    let suites = args.suites();
    let is_asked = suites.iter().any(indexes);
    for (flag, is_there) in [
        ("--context", !args.context.is_empty()),
        ("--topk", !args.topk.is_empty()),
    ] {
        ensure!(
            !is_there || is_asked,
            "{flag}: only suites indexer and needle select keys, and neither is asked for; add --suite indexer"
        );
    }
    let within = |flag: &str, values: &[usize], least: usize, most: usize| {
        let outside = values.iter().find(|value| !(least..=most).contains(value));
        match outside {
            Some(value) => bail!("{flag} {value}: expected {least} to {most}"),
            None => Ok(()),
        }
    };
    within("--context", &args.context, 4, MAX_CONTEXT)?;
    within("--topk", &args.topk, 1, MAX_K)?;
    within("--queries", &[args.queries], 1, MAX_QUERIES)?;
    let Some(suite) = args.suite.iter().copied().find(indexes) else {
        return Ok(());
    };
    ensure!(
        args.sweep.is_none(),
        "--suite {} does not go with --sweep; drop one of the two",
        suite.name()
    );
    ensure!(
        !args.crosscheck || !args.suite.contains(&Suite::Needle),
        "--suite needle does not go with --crosscheck, which plants no keys; drop one of the two"
    );
    Ok(())
}

/// What the suites run, if they do; one that was not named and cannot run is taken out of `suites`, and why is said.
pub fn plan(
    args: &RunArgs,
    source: &Source,
    indexers: Indexers,
    faults: Vec<IndexFault>,
    suites: &mut Suites,
) -> anyhow::Result<Option<IndexPlan>> {
    if !suites.run.iter().any(indexes) {
        return Ok(None);
    }
    if args.suite.is_empty() {
        // Who narrows a run to some sites has not asked for the indexer.
        let is_asked = source.has_both_sites() && !indexers.recipes.is_empty();
        let why = lacking(source, args);
        if let Some(fault) = faults.first().filter(|_| !is_asked || why.is_some()) {
            bail!(
                "--fault {}: the run narrows to what has no indexer; add --suite indexer to learn why, or leave the bug out",
                fault.name()
            );
        }
        if !is_asked || why.is_some() {
            suites.run.retain(|suite| !indexes(suite));
            let said = why.filter(|_| is_asked && args.layers.is_none());
            suites.left_out.extend(said.map(|why| Skipped {
                what: "suite indexer".to_owned(),
                why,
            }));
            return Ok(None);
        }
    }
    if let Some(why) = lacking(source, args) {
        bail!("suite indexer: {why}; leave it out, or choose another checkpoint, layers or inputs");
    }
    let layers = chosen(source, args)?;
    let contexts = contexts(source, args, &layers)?;
    let model = source.checkpoint.model().indexer;
    let model_k = model.map_or(DEFAULT_CONTEXT, |model| model.topk);
    let mut top_k = match args.topk.as_slice() {
        [] => vec![model_k, 2 * model_k],
        named => named.to_vec(),
    };
    top_k.sort_unstable();
    top_k.dedup();
    let is_named = indexers.against != catalogue::fp32();
    Ok(Some(IndexPlan {
        recipes: indexers.recipes,
        charged: match is_named {
            true => indexers.against.clone(),
            false => fault::claimed(),
        },
        against: indexers.against,
        faults,
        layers,
        contexts,
        queries: args.queries,
        top_k,
        model_k,
    }))
}

/// Where suite needle plants keys, if it is asked for.
pub fn needles(args: &RunArgs) -> anyhow::Result<Option<NeedlePlan>> {
    if !args.suite.contains(&Suite::Needle) {
        return Ok(None);
    }
    let outside = args.needle_depths.iter().find(|&&depth| depth > 100);
    if let Some(depth) = outside {
        bail!("--needle-depths {depth}: expected percent of the context, 0 to 100");
    }
    let mut depths = args.needle_depths.clone();
    depths.sort_unstable();
    depths.dedup();
    let mut margins = Vec::new();
    for text in &args.needle_margins {
        let margin = margin(text).with_context(|| {
            format!(
                "--needle-margins {text}: expected a number of gaps such as 16, or a rank such as rank:256"
            )
        })?;
        if !margins.contains(&margin) {
            margins.push(margin);
        }
    }
    Ok(Some(NeedlePlan { depths, margins }))
}

fn margin(text: &str) -> Option<Margin> {
    match text.strip_prefix("rank:") {
        Some(rank) => rank.parse().ok().filter(|&rank| rank > 0).map(Margin::Rank),
        None => {
            let gaps: f64 = text.parse().ok()?;
            gaps.is_finite().then_some(Margin::Gaps(gaps))
        }
    }
}

/// The layers asked for that have an indexer.
fn indexed(source: &Source) -> Vec<u32> {
    let mut indexed = source.checkpoint.indexer_layers();
    indexed.retain(|layer| source.layers().contains(layer));
    indexed
}

/// Why there is nothing to run the indexer on, if there is nothing.
fn lacking(source: &Source, args: &RunArgs) -> Option<String> {
    if let Some(why) = source.checkpoint.why_no_indexer() {
        return Some(why);
    }
    let indexed = indexed(source);
    if indexed.is_empty() {
        let have = ranges(&source.checkpoint.indexer_layers());
        let asked = args.layers.as_deref().unwrap_or("all");
        return Some(format!(
            "no layer of --layers {asked} has an indexer ({have} have)"
        ));
    }
    if source.inputs == Inputs::Embedding {
        return Some("--inputs embedding has no hidden states of a layer".to_owned());
    }
    let has = |&layer: &u32| !matches!(source.activations.index_source(layer), Ok(None));
    (!indexed.iter().any(has)).then(|| {
        let inputs = &source.inputs;
        format!(
            "{inputs} has no hidden states (layers.N.indexer.hidden_states) of {}",
            ranges(&indexed)
        )
    })
}

/// The layers that run: all named ones that have an indexer, else three of them.
fn chosen(source: &Source, args: &RunArgs) -> anyhow::Result<Vec<u32>> {
    let mut indexed = indexed(source);
    if args.layers.is_none() {
        let recorded = |layer: &u32| !matches!(source.activations.index_source(*layer), Ok(None));
        indexed.retain(recorded);
        let (last, middle) = (indexed.len() - 1, (indexed.len() - 1) / 2);
        let mut three = vec![indexed[0], indexed[middle], indexed[last]];
        three.dedup();
        indexed = three;
    }
    for &layer in &indexed {
        source.checkpoint.check_indexer(layer)?;
    }
    Ok(indexed)
}

/// The contexts asked for, ascending, each once; all tokens of a file where none is.
fn contexts(source: &Source, args: &RunArgs, layers: &[u32]) -> anyhow::Result<Vec<usize>> {
    let recorded = layers
        .iter()
        .map(|&layer| source.activations.index_source(layer))
        .collect::<Result<Vec<_>, _>>()
        .context("--inputs")?;
    let recorded = recorded
        .into_iter()
        .flatten()
        .map(|source| source.tokens)
        .min();
    let recorded = recorded.unwrap_or(usize::MAX);
    let mut contexts = match args.context.as_slice() {
        [] if recorded == usize::MAX => vec![DEFAULT_CONTEXT],
        [] => vec![recorded.min(MAX_CONTEXT)],
        named => named.to_vec(),
    };
    contexts.sort_unstable();
    contexts.dedup();
    if let Some(beyond) = contexts.iter().find(|&&context| context > recorded) {
        bail!(
            "--context {beyond}: {} has {recorded} tokens of hidden states; choose at most that",
            source.inputs
        );
    }
    ensure!(
        contexts.iter().all(|&context| context >= 4),
        "--inputs: {} has {recorded} tokens of hidden states, and 4 make the first key",
        source.inputs
    );
    Ok(contexts)
}
