//! The variants of a run, kernel by kernel, and what they are compared with.

use std::path::Path;

use anyhow::{Context, anyhow, ensure};

use super::{
    fault::{self, Faults},
    names::{Indexers, Names},
};
use crate::{
    cli::run::{args::RunArgs, products::Products},
    files,
    recipe::{
        MixRecipe, catalogue,
        library::LibraryProduct,
        user::{self, Recipes},
    },
    suite::recombine::Variants,
};

/// Them.
pub struct Candidates {
    /// Those of the mixing kernel.
    pub recipes: Vec<MixRecipe>,
    /// A library's products among them.
    pub products: Products,
    /// What they are compared with besides truth.
    pub against: MixRecipe,
    /// The recombination's.
    pub recombinations: Variants,
    /// The indexer's.
    pub indexers: Indexers,
    /// Known bugs.
    pub faults: Faults,
}

impl Candidates {
    /// What `--variants`, `--against`, `--recipes` and `--fault` name.
    ///
    /// # Errors
    /// A name that nothing has or that no suite takes, a file that cannot be used.
    pub fn new(args: &RunArgs) -> anyhow::Result<Self> {
        let known = known_recipes(args.recipes.as_deref())?;
        let names = Names::share_out(args, &known)?;
        let (products, patterns) = Products::select(&known.mix, &names.mixing);
        let recipes = if args.variants.is_empty() && names.mixes {
            default_recipes(args, &known.mix)?
        } else {
            user::select(&known.mix, &patterns).context("--variants")?
        };
        products.check(args, &recipes)?;
        let against = against(&known.mix, &names.against)?;
        Ok(Self {
            recipes,
            products,
            faults: fault::faults(args, &against)?,
            against,
            recombinations: names.recombinations,
            indexers: names.indexers,
        })
    }

    /// Whether the mixing kernel has none that must run.
    pub fn lack_mixing(&self) -> bool {
        self.recipes.is_empty() && self.products.named.is_empty()
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
