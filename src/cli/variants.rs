//! `ulpdrift variants [NAME]`: the catalogue, or one recipe step by step; with `--faults` the known bugs.

use std::{fmt::Write, path::PathBuf, process::ExitCode};

use clap::{Args, ValueEnum};

use super::{bugs::Bug, exit, print, run::settings};
use crate::{
    recipe::{
        MixRecipe, RecombineRecipe, catalogue, explain,
        indexer::{self, IndexRecipe},
        library::LibraryProduct,
        user::{self, RecipeError, Recipes},
    },
    report::wrap,
};

/// Arguments of `variants`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  ulpdrift variants\n  ulpdrift variants tf32-rz\n  \
    ulpdrift variants 'bf16*' --recipes mine.toml\n  ulpdrift variants --faults"
)]
pub struct VariantsArgs {
    /// Explain this variant, or those that match a pattern with * and ?.
    name: Option<String>,
    /// Add the recipes of a TOML file.
    #[arg(long, value_name = "FILE")]
    recipes: Option<PathBuf>,
    /// List the known bugs that `ulpdrift run --fault` builds into a variant.
    #[arg(long, conflicts_with_all = ["name", "recipes"])]
    faults: bool,
}

/// Prints the catalogue or explains a part of it.
///
/// # Errors
/// A name that matches nothing, or a recipe file that cannot be used.
pub fn run(args: &VariantsArgs) -> anyhow::Result<ExitCode> {
    if args.faults {
        print::result(&list_bugs())?;
        return Ok(ExitCode::from(exit::GOOD));
    }
    let known = settings::known_recipes(args.recipes.as_deref())?;
    print::result(&text(&known, args.name.as_deref(), print::width())?)?;
    Ok(ExitCode::from(exit::GOOD))
}

/// What is known, a line or two each, or the steps of those that a name or pattern matches.
///
/// # Errors
/// A name that matches nothing.
pub fn text(known: &Recipes, name: Option<&str>, width: usize) -> Result<String, RecipeError> {
    Ok(match name {
        None => list(known),
        Some(name) => {
            let products = LibraryProduct::matching(name);
            let recombinations = RecombineRecipe::matching(name);
            let indexers = user::select(&known.indexer, &[name]).unwrap_or_default();
            let is_known =
                !products.is_empty() || !recombinations.is_empty() || !indexers.is_empty();
            let recipes = match user::select(&known.mix, &[name]) {
                Err(_) if is_known => Vec::new(),
                found => found?,
            };
            let of_recipes = recipes.iter().map(|recipe| {
                let MixRecipe {
                    name,
                    summary,
                    engine,
                    ..
                } = recipe;
                explanation([name, summary, engine], &explain::steps(recipe), width)
            });
            let of_products = products.iter().map(|&product| {
                let head = [product.name(), product.summary(), "cuBLAS"];
                explanation(head, &explain::product(product), width)
            });
            let of_recombinations = recombinations.iter().map(|recipe| {
                let title = RecombineRecipe::title(recipe.name);
                let head = [title.as_str(), recipe.summary, recipe.engine];
                explanation(head, &explain::recombination(&recipe.arithmetic), width)
            });
            let of_indexers = indexers.iter().map(|recipe| {
                let title = IndexRecipe::title(&recipe.name);
                let head = [title.as_str(), &recipe.summary, &recipe.engine];
                explanation(head, &indexer::explain::steps(recipe), width)
            });
            let all = of_recipes
                .chain(of_products)
                .chain(of_recombinations)
                .chain(of_indexers);
            all.collect::<Vec<_>>().join("\n")
        }
    })
}

fn list(known: &Recipes) -> String {
    let names = known.mix.iter().map(|recipe| recipe.name.len());
    let wide = names.max().unwrap_or_default();
    let mut text = "mixing kernel (--suite mix)\n".to_owned();
    for recipe in &known.mix {
        // Writing to a String cannot fail.
        let default = catalogue::DEFAULT_VARIANTS.contains(&recipe.name.as_str());
        let mark = if default { '*' } else { ' ' };
        let _ = writeln!(text, "{mark} {:wide$}  {}", recipe.name, recipe.summary);
        if !recipe.engine.is_empty() {
            let _ = writeln!(text, "  {:wide$}    {}", "", recipe.engine);
        }
    }
    text.push_str("\nmeasured on a device only, not emulated: cuBLAS\n");
    let wide = LibraryProduct::ALL.map(|product| product.name().len());
    let wide = wide.into_iter().max().unwrap_or_default();
    for product in LibraryProduct::ALL {
        let _ = writeln!(text, "  {:wide$}  {}", product.name(), product.summary());
    }
    text.push_str("\nrecombination of the streams, hc_post (--suite recombine)\n");
    let wide = RecombineRecipe::ALL.map(|recipe| recipe.name.len());
    let wide = wide.into_iter().max().unwrap_or_default();
    for recipe in RecombineRecipe::ALL {
        let _ = writeln!(text, "* {:wide$}  {}", recipe.name, recipe.summary);
        let _ = writeln!(text, "  {:wide$}    {}", "", recipe.engine);
    }
    text.push_str("\nindexer, from the hidden states to the selection (--suite indexer)\n");
    let wide = known.indexer.iter().map(|recipe| recipe.name.len());
    let wide = wide.max().unwrap_or_default();
    let defaults = indexer::catalogue::defaults();
    for recipe in &known.indexer {
        let mark = if defaults.contains(recipe) { '*' } else { ' ' };
        let _ = writeln!(text, "{mark} {:wide$}  {}", recipe.name, recipe.summary);
        if !recipe.engine.is_empty() {
            let _ = writeln!(text, "  {:wide$}    {}", "", recipe.engine);
        }
    }
    text.push_str("\n* run by default. `ulpdrift variants NAME` explains one step by step.\n");
    text
}

/// The known bugs, kernel by kernel.
fn list_bugs() -> String {
    let bugs = Bug::value_variants();
    let names = bugs.iter().map(|bug| bug.words()[0].len());
    let wide = names.max().unwrap_or_default();
    let mut text = String::new();
    for (title, is_own) in [
        (
            "mixing kernel (--suite mix,chain), built into the variant that --against names\n",
            (|bug| matches!(bug, Bug::Mixing(_))) as fn(&&Bug) -> bool,
        ),
        (
            "\nindexer (--suite indexer), built into fp8-f32scale\n",
            |bug| matches!(bug, Bug::Indexer(_)),
        ),
    ] {
        text.push_str(title);
        for bug in bugs.iter().filter(is_own) {
            let [name, what, origin] = bug.words();
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  {name:wide$}  {what}");
            let _ = writeln!(text, "  {:wide$}    {origin}", "");
        }
    }
    text
}

fn explanation([name, summary, engine]: [&str; 3], steps: &[String], width: usize) -> String {
    let title = format!("{name}: {summary}");
    let mut text = wrap(&title, width, "  ") + "\n";
    if !engine.is_empty() {
        let engine = format!("used by: {engine}");
        let _ = writeln!(text, "{}", wrap(&engine, width, "  "));
    }
    for (index, step) in steps.iter().enumerate() {
        let step = format!("{:>3}. {step}", index + 1);
        let _ = writeln!(text, "{}", wrap(&step, width, "     "));
    }
    text
}
