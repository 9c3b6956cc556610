//! What a report says about a run before its first case: what was asked for, and what it runs on.

use std::collections::BTreeMap;

use serde_json::json;

use super::{args::RunArgs, backend, cases, settings::Settings, typed::Typed};
use crate::{
    backend::hardware::Hardware,
    measure::value::Value,
    recipe::{RecombineRecipe, indexer::IndexRecipe},
    report::{self, Host, Run, Skipped, Tool, part::Head},
    suite::{Plan, indexer::fault},
};

/// The head of a run; `lacking` is what was asked for and is not here.
///
/// # Errors
/// If the checkpoint, the inputs or the library cannot be looked at.
pub fn head(
    args: &RunArgs,
    settings: &Settings,
    plan: &Plan<'_>,
    lacking: Vec<Skipped>,
) -> anyhow::Result<Head> {
    let typed = Typed::here();
    let mut skipped = settings.left_out.clone();
    skipped.extend(lacking);
    Ok(Head {
        tool: Tool::current(),
        run: run(args, settings, plan, &typed)?,
        flags: typed.deciding(),
        fingerprints: fingerprints(args, settings)?,
        recipes: recipes(settings, plan)?,
        skipped,
        cases: cases::all(args, settings, plan),
    })
}

/// What is read besides the flags, by what it is of.
fn fingerprints(args: &RunArgs, settings: &Settings) -> anyhow::Result<BTreeMap<String, String>> {
    let kernels = args.kernels.as_deref().map(backend::fingerprint);
    let all = [
        ("the checkpoint", Some(settings.checkpoint.fingerprint()?)),
        ("the file of inputs", settings.activations.fingerprint()?),
        ("a kernel of --kernels", kernels.transpose()?),
        ("the environment", library_override()),
    ];
    let named = |(name, print): (&str, Option<String>)| Some((name.to_owned(), print?));
    Ok(all.into_iter().filter_map(named).collect())
}

/// The variable that makes cuBLAS use TF32, or not, whatever it is asked for, if it is set.
pub fn library_override() -> Option<String> {
    const VARIABLE: &str = "NVIDIA_TF32_OVERRIDE";
    let value = std::env::var_os(VARIABLE)?;
    Some(format!("{VARIABLE}={}", value.display()))
}

/// Every recipe that a row can be of, in full.
fn recipes(
    settings: &Settings,
    plan: &Plan<'_>,
) -> serde_json::Result<BTreeMap<String, serde_json::Value>> {
    let mut recipes = settings
        .recipes
        .iter()
        .chain([&settings.against])
        .map(|recipe| Ok((recipe.name.clone(), serde_json::to_value(recipe)?)))
        .collect::<serde_json::Result<BTreeMap<_, _>>>()?;
    recipes.extend(plan.products.iter().map(|&product| {
        let described = json!({
            "name": product.name(),
            "summary": product.summary(),
            "library": "cuBLAS",
            "compute-type": product.compute_type(),
            "operands": product.operands(),
        });
        (product.name().to_owned(), described)
    }));
    let variants = &settings.recombinations;
    if !variants.recipes.is_empty() {
        for recipe in variants.recipes.iter().chain([&variants.against]) {
            let title = RecombineRecipe::title(recipe.name);
            recipes.insert(title, serde_json::to_value(recipe)?);
        }
    }
    if let Some(index) = &settings.index {
        let claimed = (!index.faults.is_empty()).then(fault::claimed);
        let named = index.recipes.iter().chain([&index.against]);
        for recipe in named.chain(&claimed) {
            let title = IndexRecipe::title(&recipe.name);
            recipes.insert(title, serde_json::to_value(recipe)?);
        }
    }
    Ok(recipes)
}

fn run(args: &RunArgs, settings: &Settings, plan: &Plan<'_>, typed: &Typed) -> anyhow::Result<Run> {
    let info = plan.backend.info();
    let hardware = plan.backend.hardware();
    let library = hardware.filter(|_| !plan.products.is_empty());
    Ok(Run {
        command: typed.recorded(),
        seed: args.seed,
        inputs: settings.inputs.to_string(),
        // What the cases find out comes with them.
        tokens: 0,
        backend: report::Backend {
            name: info.name.to_owned(),
            arch: info.arch.to_string(),
            device: info.device.as_ref().map(|device| device.name.clone()),
            driver: info.device.as_ref().map(|device| device.driver.clone()),
            nvrtc: info.device.as_ref().map(|device| device.nvrtc.clone()),
            kernels: info
                .device
                .map(|device| device.replaced)
                .unwrap_or_default(),
            options: hardware.map(Hardware::options).unwrap_or_default(),
            library: library.map(Hardware::library).transpose()?,
            probed: BTreeMap::new(),
        },
        checkpoint: checkpoint(settings),
        repeat_flags: repeat_flags(args, settings),
    })
}

fn checkpoint(settings: &Settings) -> report::Checkpoint {
    let checkpoint = &settings.checkpoint;
    let model = checkpoint.model();
    report::Checkpoint {
        source: checkpoint.source().to_owned(),
        revision: checkpoint.revision().map(str::to_owned),
        kind: checkpoint.kind(),
        digest: String::new(),
        family: model.family.to_string(),
        hidden: model.hidden as u64,
        hc: model.hc as u64,
        layers: model.layers as u64,
        dtypes: BTreeMap::new(),
        notes: model.notes.clone(),
    }
}

/// What a command that reproduces one row has to repeat.
fn repeat_flags(args: &RunArgs, settings: &Settings) -> Vec<String> {
    let mut flags = Vec::new();
    if let Some(path) = &args.recipes {
        flags.extend(["--recipes".to_owned(), path.display().to_string()]);
    }
    if args.sweep.is_none() && args.against != "fp32" {
        flags.extend(["--against".to_owned(), args.against.clone()]);
    }
    if settings.index.is_some() {
        flags.extend(["--queries".to_owned(), args.queries.to_string()]);
        if !args.topk.is_empty() {
            let ks: Vec<String> = args.topk.iter().map(usize::to_string).collect();
            flags.extend(["--topk".to_owned(), ks.join(",")]);
        }
    }
    if args.time {
        flags.push("--time".to_owned());
    }
    if args.repeat > 1 {
        flags.extend(["--repeat".to_owned(), args.repeat.to_string()]);
    }
    if args.allow_nonfinite {
        flags.push("--allow-nonfinite".to_owned());
    }
    flags
}

/// This machine, and the time that the cases took.
pub fn host(settings: &Settings, seconds: f64) -> Host {
    Host {
        platform: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        threads: rayon::current_num_threads() as u64,
        simd: settings.level.to_string(),
        seconds: Some(Value(seconds)),
    }
}
