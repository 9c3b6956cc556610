//! The cases of a run, suite by suite: by name before anything is computed, and then run.

use super::{args::RunArgs, desk::Desk, settings::Settings, suite::Suite};
use crate::{
    activations::Activations,
    checkpoint::Site,
    report::part::CaseName,
    suite::{Plan, budget, chain, gains, indexer, mix, needle, recombine, sweep, tensors::Sink},
};

/// Every case by name, in the order in which they run.
pub fn all(args: &RunArgs, settings: &Settings, plan: &Plan<'_>) -> Vec<CaseName> {
    let named = |suite: &str, places: Vec<String>| -> Vec<CaseName> {
        let case = |place| CaseName {
            suite: suite.to_owned(),
            place,
        };
        places.into_iter().map(case).collect()
    };
    let sites = || -> Vec<String> {
        let name = |(layer, site): (u32, Site)| site.of(layer);
        plan.places().map(name).collect()
    };
    if let Some(axes) = &settings.sweep {
        return named(axes.suite(), sites());
    }
    let layers = |place: fn(u32) -> String| -> Vec<String> {
        let own = settings.index.iter().flat_map(|own| &own.layers);
        own.map(|&layer| place(layer)).collect()
    };
    let asked = Suite::all().filter(|suite| settings.suites.contains(suite));
    asked
        .flat_map(|suite| {
            let places = match suite {
                Suite::Mix | Suite::Recombine => sites(),
                Suite::Chain => seeds(args).map(chain::place).collect(),
                Suite::Budget => budget::places(plan),
                Suite::Gains => vec![gains::PLACE.to_owned()],
                Suite::Indexer => layers(indexer::place),
                Suite::Needle => layers(needle::place),
            };
            named(suite.name(), places)
        })
        .collect()
}

fn seeds(args: &RunArgs) -> impl Iterator<Item = u64> {
    args.seed..args.seed + args.seeds
}

/// Runs those that the desk wants.
///
/// # Errors
/// Those of the suites; [`Interrupted`](crate::suite::SuiteError::Interrupted) where somebody has asked for it.
pub fn run(
    args: &RunArgs,
    settings: &Settings,
    plan: &Plan<'_>,
    sink: &mut dyn Sink,
    desk: &mut Desk<'_>,
) -> anyhow::Result<()> {
    if let Some(axes) = &settings.sweep {
        desk.begin(axes.suite(), "sites");
        return Ok(sweep::run(plan, axes, desk)?);
    }
    for suite in Suite::all().filter(|suite| settings.suites.contains(suite)) {
        desk.begin(suite.name(), suite.units());
        let (around, index) = (&settings.around, settings.index.as_ref());
        match suite {
            Suite::Mix => mix::run(plan, sink, desk)?,
            Suite::Recombine => recombine::run(plan, &settings.recombinations, sink, desk)?,
            Suite::Chain => chains(args, settings, plan, sink, desk)?,
            Suite::Budget => budget::run(plan, around, desk)?,
            Suite::Gains => gains::run(plan, around, desk)?,
            Suite::Indexer => {
                if let Some(own) = index {
                    indexer::run(plan, own, sink, desk)?;
                }
            }
            Suite::Needle => {
                if let Some((own, needles)) = index.zip(settings.needles.as_ref()) {
                    needle::run(plan, own, needles, desk)?;
                }
            }
        }
    }
    Ok(())
}

/// A chain per seed.
fn chains(
    args: &RunArgs,
    settings: &Settings,
    plan: &Plan<'_>,
    sink: &mut dyn Sink,
    desk: &mut Desk<'_>,
) -> anyhow::Result<()> {
    for seed in seeds(args) {
        let activations = Activations::open(&settings.inputs, seed, plan.checkpoint.model())?;
        let plan = Plan {
            activations: &activations,
            seed,
            ..*plan
        };
        chain::run(&plan, &settings.around, sink, desk)?;
    }
    Ok(())
}
