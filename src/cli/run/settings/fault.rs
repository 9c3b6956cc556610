//! The known bugs that are candidates.

use anyhow::ensure;

use crate::{
    cli::{
        bugs::Bug,
        run::{args::RunArgs, suite::Suite},
    },
    recipe::MixRecipe,
    suite::{
        fault::{Fault, Variant},
        indexer::fault::IndexFault,
    },
};

/// The bugs named, each once, by kernel.
#[derive(Default)]
pub struct Faults {
    /// Those of the mixing kernel.
    pub mixing: Vec<Fault>,
    /// Those of the indexer.
    pub indexer: Vec<IndexFault>,
}

/// The bugs named, if they can be built into the variant that `--against` names and a suite asked for runs them.
pub fn faults(args: &RunArgs, against: &MixRecipe) -> anyhow::Result<Faults> {
    let mut faults = Faults::default();
    for &bug in &args.fault {
        match bug {
            Bug::Mixing(fault) if !faults.mixing.contains(&fault) => faults.mixing.push(fault),
            Bug::Indexer(fault) if !faults.indexer.contains(&fault) => faults.indexer.push(fault),
            Bug::Mixing(_) | Bug::Indexer(_) => {}
        }
    }
    for &fault in &faults.mixing {
        let variant = Variant {
            recipe: against,
            fault: Some(fault),
        };
        ensure!(
            variant.is_possible(),
            "--fault {fault}: --against {} normalises x before it multiplies, so that the bug cannot be built into it; compare with another variant",
            against.name
        );
    }
    let suites = args.suites();
    ensure!(
        faults.mixing.is_empty() || suites.contains(&Suite::Mix) || suites.contains(&Suite::Chain),
        "--fault: only suites mix and chain run known bugs of the mixing kernel, and neither is asked for; add --suite mix,chain"
    );
    if let Some(fault) = faults.indexer.first() {
        ensure!(
            suites.contains(&Suite::Indexer),
            "--fault {}: only suite indexer runs known bugs of the indexer, and it is not asked for; add --suite indexer",
            fault.name()
        );
    }
    if let Some(flag) = args.own_table() {
        ensure!(
            args.fault.is_empty(),
            "--fault does not go with {flag}, which runs no known bug; drop one of the two"
        );
    }
    Ok(faults)
}
