//! An experiment: which operations, on which cases, compared where.
//!
//! A suite takes cases (one site with its weights and inputs), runs the candidates on a backend beside the fp64 reference
//! and yields records. [`mix`] compares the hyper-connection mixing kernel stage by stage at every site; [`recombine`] what
//! follows the sublayer; [`chain`] takes both through all layers; [`budget`] says which rounding an error comes from;
//! [`gains`] what the rest of the model makes of one; [`indexer`] follows hidden states to the keys that attention selects,
//! [`needle`] a planted key; [`mod@sweep`] shows how the mixing kernel's result depends on the batch, the device and the
//! number of splits. [`fault`] builds known bugs into candidates. [`crosscheck`] compares two backends, [`repeat`] several runs
//! of one, [`weights`] two checkpoints; [`vectors`] replays recorded tensor-core results.
//!
//! [`case`] is what all of them take, [`feed`] reads it ahead, [`tensors`] is what they hand to a dump, [`ledger`] who they
//! report to. A new suite is a file, a line here, and an entry among the command line's suites. What may not live here:
//! printing, file formats, limits.

pub mod budget;
pub mod case;
pub mod chain;
pub mod crosscheck;
pub mod fault;
pub mod feed;
pub mod gains;
pub mod indexer;
pub mod ledger;
pub mod mix;
pub mod needle;
pub mod recombine;
pub mod repeat;
pub mod sweep;
pub mod tensors;
pub mod vectors;
pub mod weights;

use thiserror::Error;
use ulpdrift_reference::simd::Level;

use crate::{
    activations::{Activations, ActivationsError, Inputs},
    backend::{Backend, BackendError},
    checkpoint::{Checkpoint, CheckpointError, NonFinite, Site},
    measure::{bound::BoundError, error::MeasureError, interval::IntervalError},
    recipe::{MixRecipe, library::LibraryProduct},
    report::{Found, Key, Skipped},
};
use case::Case;
use fault::{Fault, Variant};
use ledger::Ledger;

/// Why a suite stopped.
#[derive(Debug, Error)]
pub enum SuiteError {
    /// A weight could not be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// An input could not be read.
    #[error(transparent)]
    Inputs(#[from] ActivationsError),
    /// The backend cannot run a recipe.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// Two sides could not be compared.
    #[error(transparent)]
    Measure(#[from] MeasureError),
    /// A bound could not be computed.
    #[error(transparent)]
    Bound(#[from] BoundError),
    /// The intervals of logits could not be computed.
    #[error(transparent)]
    Interval(#[from] IntervalError),
    /// The tensors behind the rows could not be written.
    #[error("{0}")]
    Dump(String),
    /// A thread could not be started.
    #[error("no further thread can be started ({0}); raise the limit on processes or close others")]
    Thread(std::io::Error),
    /// The writer has given up; its own error says why.
    #[error("writing stopped")]
    Stopped,
    /// Somebody asked it to.
    #[error("interrupted")]
    Interrupted,
    /// What was found could not be kept.
    #[error("{0}")]
    Keep(String),
    /// No case was left to run.
    #[error("{0}")]
    NothingToRun(String),
}

impl SuiteError {
    /// Whether the weights or inputs are to blame, so that the same run would end the same way; a disk, a device or the
    /// system may do better another time.
    #[must_use]
    pub fn is_of_the_input(&self) -> bool {
        match self {
            Self::Checkpoint(error) | Self::Inputs(ActivationsError::File(error)) => {
                !matches!(error, CheckpointError::Unreadable { .. })
            }
            Self::Inputs(_) | Self::Measure(_) | Self::NothingToRun(_) => true,
            _ => false,
        }
    }
}

/// What a suite runs, on what.
pub struct Plan<'a> {
    /// Where the weights come from.
    pub checkpoint: &'a Checkpoint,
    /// What executes the recipes.
    pub backend: &'a dyn Backend,
    /// The candidates.
    pub recipes: &'a [MixRecipe],
    /// Known bugs that are candidates as well, built into the variant that all are compared with.
    pub faults: &'a [Fault],
    /// A library's products that are candidates as well.
    pub products: &'a [LibraryProduct],
    /// Whether the projections are timed.
    pub time: bool,
    /// How often every case is run and every time taken.
    pub repeat: usize,
    /// The variant every candidate is compared with besides the truth.
    pub against: &'a MixRecipe,
    /// Layers, ascending.
    pub layers: &'a [u32],
    /// Sites of each layer.
    pub sites: &'a [Site],
    /// What x is, by name.
    pub inputs: &'a Inputs,
    /// Where x comes from.
    pub activations: &'a Activations,
    /// Tokens in the batch; none: all that a file recorded of each site, else [`DEFAULT_TOKENS`].
    pub tokens: Option<usize>,
    /// Seed of every random stream.
    pub seed: u64,
    /// Streaming multiprocessors, for the split rules that ask.
    pub sms: usize,
    /// Whether non-finite weights are refused.
    pub nonfinite: NonFinite,
    /// Vector instructions of the reference and the measures.
    pub level: Level,
}

/// Tokens of a run that names none.
pub const DEFAULT_TOKENS: usize = 64;

impl<'a> Plan<'a> {
    /// Every candidate that has a recipe: variants, then known bugs.
    pub fn variants(&self) -> impl Iterator<Item = Variant<'a>> {
        let (against, faults) = (self.against, self.faults);
        let spoilt = faults.iter().map(move |&fault| Variant {
            recipe: against,
            fault: Some(fault),
        });
        self.recipes.iter().map(Variant::from).chain(spoilt)
    }

    /// The sites asked for, layer by layer.
    pub fn places(&self) -> impl Iterator<Item = (u32, Site)> {
        let sites = |&layer: &u32| self.sites.iter().map(move |&site| (layer, site));
        self.layers.iter().flat_map(sites)
    }

    /// Those of them that a ledger wants.
    #[must_use]
    pub fn wanted(&self, ledger: &dyn Ledger) -> Vec<(u32, Site)> {
        let is_wanted = |(layer, site): &(u32, Site)| ledger.wants(&site.of(*layer));
        self.places().filter(is_wanted).collect()
    }

    /// Whether these are all sites asked for: a part of them may well have none to run.
    fn are_all(&self, places: &[(u32, Site)]) -> bool {
        places.len() == self.layers.len() * self.sites.len()
    }

    /// Tokens in the batch of one site.
    #[must_use]
    pub fn tokens_at(&self, layer: u32, site: Site) -> usize {
        let recorded = match self.inputs {
            Inputs::File(_) => self.activations.available(layer, site),
            _ => None,
        };
        self.tokens.or(recorded).unwrap_or(DEFAULT_TOKENS)
    }
}

/// Told after every step: steps done, steps in all, and where the last was. Its error stops the suite.
pub type Progress<'a> = &'a dyn Fn(usize, usize, &str) -> Result<(), SuiteError>;

impl Skipped {
    /// The case of which nothing else is to be said.
    fn alone(self) -> (String, Found) {
        let place = self.what.clone();
        let mut found = Found::default();
        found.read.skip(self);
        (place, found)
    }

    /// A site that the inputs lack.
    fn site(plan: &Plan<'_>, layer: u32, site: Site) -> Self {
        Self {
            what: site.of(layer),
            why: format!("{} has no x for it", plan.inputs),
        }
    }
}

impl SuiteError {
    /// The inputs lack every site.
    fn no_site(plan: &Plan<'_>) -> Self {
        let sites = plan.layers.len() * plan.sites.len();
        Self::NothingToRun(format!(
            "{} has no x for any of the {sites} sites asked for; check --layers and --sites, or name the suites that it has \
             inputs for with --suite",
            plan.inputs
        ))
    }
}

/// The part of a record's key that every suite of the mixing kernel shares. A library's product has no
/// split rule that we know of.
fn record_key(plan: &Plan<'_>, case: &Case, variant: &str, splits: Option<usize>) -> Key {
    Key {
        layer: Some(case.layer),
        site: Some(case.site.to_string()),
        depth: Some(case.layer + u32::from(case.site == Site::Ffn)),
        variant: variant.to_owned(),
        inputs: plan.inputs.to_string(),
        token_class: "all".to_owned(),
        tokens: case.x.nrows() as u64,
        splits: splits.and_then(|splits| u32::try_from(splits).ok()),
        sms: splits.and_then(|_| u32::try_from(plan.sms).ok()),
        seed: plan.seed,
        backend: plan.backend.info().name.to_owned(),
        arch: plan.backend.info().arch.to_string(),
        ..Key::default()
    }
}
