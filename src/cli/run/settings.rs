//! From flags to settings: everything a run needs, checked, before anything is computed.

mod chain;
mod fault;
mod indexer;
mod names;
mod places;
mod together;

use std::{collections::BTreeSet, path::Path};

use anyhow::{Context, anyhow, bail, ensure};
use ulpdrift_reference::simd::Level;

use self::{names::Names, places::Places};
use super::{
    args::{RunArgs, Suite},
    products::Products,
};
use crate::{
    activations::{Activations, Inputs},
    checkpoint::{Checkpoint, NonFinite, Site},
    files,
    recipe::{
        MixRecipe, catalogue,
        library::LibraryProduct,
        user::{self, Recipes},
    },
    report::Skipped,
    suite::{
        chain::Around, fault::Fault, indexer::IndexPlan, needle::NeedlePlan, recombine::Variants,
        sweep::Axes,
    },
    tensor_core::Arch,
};

/// The most tokens a sweep may have: far beyond any prefill chunk, and safe for every index.
const MAX_SWEEP_TOKENS: usize = 1 << 20;
/// The most tokens a batch may have whose stages are all kept: twice the largest prefill chunk, and
/// some 4 GB for V4-Flash.
const MAX_TOKENS: usize = 1 << 14;
/// The environment variable that forces a vector level.
const SIMD_VARIABLE: &str = "ULPDRIFT_SIMD";

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

impl Settings {
    /// Checks the flags and opens what they name.
    ///
    /// # Errors
    /// The first flag, file or tensor that cannot be used.
    pub fn new(args: &RunArgs) -> anyhow::Result<Self> {
        let known = known_recipes(args.recipes.as_deref())?;
        names::check(args)?;
        indexer::check(args)?;
        let names = Names::share_out(args, &known)?;
        let (products, patterns) = Products::select(&known.mix, &names.mixing);
        let recipes = if args.variants.is_empty() && names.mixes {
            default_recipes(args, &known.mix)?
        } else {
            user::select(&known.mix, &patterns).context("--variants")?
        };
        products.check(args, &recipes)?;
        together::check_outputs(args)?;
        together::check_time(args)?;
        together::check_repeat(args)?;
        chain::check_seeds(args)?;
        let against = against(&known.mix, &names.against)?;
        let faults = fault::faults(args, &against)?;
        let arch: Option<Arch> = args
            .arch
            .as_deref()
            .map(str::parse)
            .transpose()
            .context("--arch")?;
        let level = level()?;
        let sms = args.sms.clone();
        ensure!(
            sms.iter().all(|&sms| sms > 0),
            "--sms: 0 found, a device has at least 1; give its number of streaming multiprocessors"
        );
        ensure!(
            sms.iter().collect::<BTreeSet<_>>().len() == sms.len(),
            "--sms: a value stands twice; name each once"
        );
        let checkpoint = Checkpoint::open(&args.checkpoint)?;
        let inputs: Inputs = args.inputs.parse().context("--inputs")?;
        let activations =
            Activations::open(&inputs, args.seed, checkpoint.model()).context("--inputs")?;
        let tokens = tokens(args.tokens)?;
        let places = Places::new(args, &checkpoint)?;
        let batch = tokens.unwrap_or_else(|| places.batch(&inputs, &activations));
        let sweep = args
            .sweep
            .as_deref()
            .map(|text| axes(text, &sms, batch))
            .transpose()?;
        let tokens_swept = sweep.as_ref().is_some_and(|axes| axes.splits.is_empty());
        ensure!(
            sms.len() == 1 || tokens_swept,
            "--sms: {} values found; several need --sweep tokens=…, otherwise give one",
            sms.len()
        );
        if let Inputs::File(_) = inputs {
            let swept = sweep.iter().flat_map(|axes| &axes.tokens).max().copied();
            places.check_tokens(&activations, swept.or(tokens))?;
        }
        let around = chain::around(args, &places.layers)?;
        let sources = chain::Sources {
            checkpoint: &checkpoint,
            inputs: &inputs,
            activations: &activations,
            layers: &places.layers,
        };
        let mut suites = args.suites();
        let mut left_out = Vec::new();
        // Of suites that nobody named those without a variant are not meant.
        let lacks_mixing = recipes.is_empty() && products.named.is_empty();
        if args.suite.is_empty() && !args.variants.is_empty() && lacks_mixing {
            suites.retain(|suite| *suite == Suite::Indexer);
        }
        if args.suite.is_empty() && suites.contains(&Suite::Chain) {
            // Who narrows a run to some sites has not asked for a chain.
            let is_chain = chain::is_chain(&places.layers, &places.sites);
            if let Some(why) = chain::lacking(&sources).filter(|_| is_chain) {
                left_out.push(Skipped {
                    what: "suite chain".to_owned(),
                    why,
                });
            }
            suites.retain(|suite| *suite != Suite::Chain || is_chain && left_out.is_empty());
        }
        let index_sources = indexer::Sources {
            checkpoint: &checkpoint,
            inputs: &inputs,
            activations: &activations,
            layers: &places.layers,
            is_whole: places.sites.len() == Site::ALL.len(),
        };
        let index = indexer::plan(
            args,
            &index_sources,
            names.indexers,
            faults.indexer,
            &mut suites,
            &mut left_out,
        )?;
        ensure!(
            !suites.is_empty(),
            "--variants {}: these are variants of the indexer, and there is none to run here; name others, or other layers",
            args.variants.join(",")
        );
        chain::check(args, &suites, &places.layers, &places.sites, &products)?;
        sources.check(args, &suites, &around)?;
        let nonfinite = if args.allow_nonfinite {
            NonFinite::Allow
        } else {
            NonFinite::Refuse
        };
        Ok(Self {
            suites,
            left_out,
            checkpoint,
            recipes,
            products,
            against,
            faults: faults.mixing,
            recombinations: names.recombinations,
            needles: indexer::needles(args)?,
            index,
            layers: places.layers,
            sites: places.sites,
            inputs,
            activations,
            tokens,
            arch,
            sms,
            sweep,
            nonfinite,
            around,
            level,
        })
    }
}

impl Settings {
    /// What the rows of this run have for a suite.
    pub fn row_suites(&self) -> Vec<&'static str> {
        match &self.sweep {
            Some(axes) if axes.splits.is_empty() => vec!["sweep"],
            Some(_) => vec!["splits"],
            None => self.suites.iter().map(|suite| suite.name()).collect(),
        }
    }
}

/// The default variants and whatever the user brought. A sweep's first question is the engines' own
/// batch dependence, so it starts with their recipes.
fn default_recipes(args: &RunArgs, known: &[MixRecipe]) -> anyhow::Result<Vec<MixRecipe>> {
    let defaults: &[&str] = match args.sweep {
        Some(_) => &["fp32", "tf32", "tf32-rz", "bf16"],
        None => &catalogue::DEFAULT_VARIANTS,
    };
    let mut recipes = user::select(known, defaults)?;
    recipes.extend_from_slice(&known[catalogue::builtin().len()..]);
    Ok(recipes)
}

/// The catalogues and, if a file is given, its recipes.
pub fn known_recipes(file: Option<&Path>) -> anyhow::Result<Recipes> {
    let mut known = Recipes::builtin();
    if let Some(path) = file {
        let named = || format!("--recipes {}", path.display());
        let text = files::read_text(path, files::LARGEST_SETTINGS)
            .map_err(|error| anyhow!("cannot read it: {error}; check the path"))
            .with_context(named)?;
        let more = user::parse(&text).with_context(named)?;
        user::extend(&mut known.mix, more.mix).with_context(named)?;
        user::extend(&mut known.indexer, more.indexer).with_context(named)?;
    }
    Ok(known)
}

fn against(known: &[MixRecipe], name: &str) -> anyhow::Result<MixRecipe> {
    ensure!(
        LibraryProduct::ALL
            .iter()
            .all(|product| product.name() != name),
        "--against {name}: it is measured on a device and has no recipe to compare with; name a recipe"
    );
    let mut chosen = user::select(known, &[name]).context("--against")?;
    ensure!(
        chosen.len() == 1,
        "--against '{name}' matches {} variants; name exactly one",
        chosen.len()
    );
    Ok(chosen.remove(0))
}

/// The vector level: the fastest there is, or the one the environment forces.
pub fn level() -> anyhow::Result<Level> {
    let Some(forced) = std::env::var_os(SIMD_VARIABLE) else {
        return Ok(Level::detect());
    };
    let level: Level = forced
        .to_string_lossy()
        .parse()
        .map_err(anyhow::Error::msg)
        .context(SIMD_VARIABLE)?;
    ensure!(
        level.is_available(),
        "{SIMD_VARIABLE}={level}: this processor does not run it; unset the variable"
    );
    Ok(level)
}

fn tokens(asked: Option<usize>) -> anyhow::Result<Option<usize>> {
    if let Some(tokens) = asked {
        ensure!(
            (1..=MAX_TOKENS).contains(&tokens),
            "--tokens {tokens}: expected 1 to {MAX_TOKENS}; choose a batch size in that range, or --sweep tokens=… for more"
        );
    }
    Ok(asked)
}

fn axes(text: &str, sms: &[usize], tokens: usize) -> anyhow::Result<Axes> {
    let expected = "expected tokens=1,64,512 or splits=1,64";
    let (axis, list) = text
        .split_once('=')
        .with_context(|| format!("--sweep '{text}': {expected}"))?;
    let values = list
        .split(',')
        .map(|value| {
            value
                .trim()
                .parse::<usize>()
                .ok()
                .filter(|value| *value > 0)
        })
        .collect::<Option<Vec<_>>>()
        .with_context(|| format!("--sweep '{text}': not all positive whole numbers; {expected}"))?;
    let distinct: BTreeSet<_> = values.iter().collect();
    ensure!(
        distinct.len() == values.len(),
        "--sweep '{text}': a value stands twice; name each once"
    );
    ensure!(
        values.iter().all(|&value| value <= MAX_SWEEP_TOKENS),
        "--sweep '{text}': above {MAX_SWEEP_TOKENS}"
    );
    match axis {
        "tokens" => Ok(Axes {
            tokens: values,
            sms: sms.to_vec(),
            splits: Vec::new(),
        }),
        "splits" => Ok(Axes {
            tokens: vec![tokens],
            sms: sms.to_vec(),
            splits: values,
        }),
        _ => bail!("--sweep '{text}': unknown axis '{axis}'; {expected}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeps_name_one_axis() {
        let sweep = axes("tokens=1,64", &[132, 188], 64).expect("tokens");
        assert_eq!(
            sweep,
            Axes {
                tokens: vec![1, 64],
                sms: vec![132, 188],
                splits: vec![]
            }
        );
        let sweep = axes("splits=1,64", &[188], 13).expect("splits");
        assert_eq!(
            sweep,
            Axes {
                tokens: vec![13],
                sms: vec![188],
                splits: vec![1, 64]
            }
        );
        for bad in [
            "tokens",
            "tokens=",
            "tokens=0",
            "tokens=1,1",
            "k=1",
            "tokens=-1",
            "tokens=1e3",
        ] {
            assert!(axes(bad, &[188], 64).is_err(), "{bad}");
        }
    }
}
