//! From flags to settings: everything a run needs, checked, before anything is computed.

mod candidates;
mod chain;
mod fault;
mod indexer;
mod names;
mod places;
mod source;
mod sweep;
mod together;

use anyhow::{Context, ensure};
use ulpdrift_reference::simd::Level;

pub use self::candidates::known_recipes;
use self::{candidates::Candidates, source::Source};
use super::{args::RunArgs, products::Products, suite::Suite};
use crate::{
    activations::{Activations, Inputs},
    checkpoint::{Checkpoint, NonFinite, Site},
    cli::environment,
    recipe::MixRecipe,
    report::Skipped,
    suite::{
        chain::Around, fault::Fault, indexer::IndexPlan, needle::NeedlePlan, recombine::Variants,
        sweep::Axes,
    },
    tensor_core::Arch,
};

/// What to run, checked.
pub struct Settings {
    /// The suites, each once.
    pub suites: Vec<Suite>,
    /// What a run that names no suite would have had as well.
    pub left_out: Vec<Skipped>,
    /// Where the weights come from.
    pub checkpoint: Checkpoint,
    /// The candidates.
    pub recipes: Vec<MixRecipe>,
    /// A library's products among them.
    pub products: Products,
    /// What they are compared with besides truth.
    pub against: MixRecipe,
    /// Known bugs that are candidates, built into that variant.
    pub faults: Vec<Fault>,
    /// The candidates of suite recombine.
    pub recombinations: Variants,
    /// What suites indexer and needle run, if they do.
    pub index: Option<IndexPlan>,
    /// Where suite needle plants keys, if it runs.
    pub needles: Option<NeedlePlan>,
    /// Layers, ascending.
    pub layers: Vec<u32>,
    /// Sites, attn first.
    pub sites: Vec<Site>,
    /// Where x comes from.
    pub inputs: Inputs,
    /// The same, opened.
    pub activations: Activations,
    /// Tokens in the batch; none: all that a file recorded, else the default.
    pub tokens: Option<usize>,
    /// Emulated architecture, if one is named.
    pub arch: Option<Arch>,
    /// SM counts; one unless the tokens are swept.
    pub sms: Vec<usize>,
    /// The sweep asked for.
    pub sweep: Option<Axes>,
    /// Whether non-finite weights are refused.
    pub nonfinite: NonFinite,
    /// What lies around the mixing kernel in suite chain.
    pub around: Around,
    /// Vector instructions.
    pub level: Level,
}

/// The suites of a run, as long as it is open which they are.
struct Suites {
    /// Those that run, each once.
    run: Vec<Suite>,
    /// Those that nobody named and that cannot run here.
    left_out: Vec<Skipped>,
}

impl Settings {
    /// Checks the flags and opens what they name.
    ///
    /// # Errors
    /// The first flag, file or tensor that cannot be used.
    pub fn new(args: &RunArgs) -> anyhow::Result<Self> {
        check_flags(args)?;
        let candidates = Candidates::new(args)?;
        let arch: Option<Arch> = args
            .arch
            .as_deref()
            .map(str::parse)
            .transpose()
            .context("--arch")?;
        let level = environment::level()?;
        let source = Source::open(args)?;
        let sweep = sweep::sweep(args, source.batch())?;
        source.check_tokens(sweep.as_ref())?;
        let around = chain::around(args, source.layers())?;
        let mut suites = Suites {
            run: args.suites(),
            left_out: Vec::new(),
        };
        // Of suites that nobody named those without a variant are not meant.
        if args.suite.is_empty() && !args.variants.is_empty() && candidates.lack_mixing() {
            suites.run.retain(|suite| *suite == Suite::Indexer);
        }
        chain::leave_out(args, &source, &mut suites);
        let (indexers, bugs) = (candidates.indexers, candidates.faults.indexer);
        let index = indexer::plan(args, &source, indexers, bugs, &mut suites)?;
        ensure!(
            !suites.run.is_empty(),
            "--variants {}: these are variants of the indexer, and there is none to run here; name others, or other layers",
            args.variants.join(",")
        );
        chain::check(args, &suites.run, &source, &candidates.products)?;
        chain::check_source(&suites.run, &source, &around)?;
        Ok(Self {
            suites: suites.run,
            left_out: suites.left_out,
            checkpoint: source.checkpoint,
            recipes: candidates.recipes,
            products: candidates.products,
            against: candidates.against,
            faults: candidates.faults.mixing,
            recombinations: candidates.recombinations,
            needles: indexer::needles(args)?,
            index,
            layers: source.places.layers,
            sites: source.places.sites,
            inputs: source.inputs,
            activations: source.activations,
            tokens: source.tokens,
            arch,
            sms: args.sms.clone(),
            sweep,
            nonfinite: match args.allow_nonfinite {
                true => NonFinite::Allow,
                false => NonFinite::Refuse,
            },
            around,
            level,
        })
    }

    /// What the rows of this run have for a suite.
    pub fn row_suites(&self) -> Vec<&'static str> {
        match &self.sweep {
            Some(axes) if axes.splits.is_empty() => vec!["sweep"],
            Some(_) => vec!["splits"],
            None => self.suites.iter().map(|suite| suite.name()).collect(),
        }
    }
}

/// What can be said of the flags before anything that they name is opened.
fn check_flags(args: &RunArgs) -> anyhow::Result<()> {
    names::check(args)?;
    indexer::check(args)?;
    together::check_outputs(args)?;
    together::check_time(args)?;
    together::check_repeat(args)?;
    chain::check_seeds(args)?;
    sweep::check_sms(args)
}
