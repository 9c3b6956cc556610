//! The known bugs that are candidates.

use anyhow::ensure;

use crate::{
    cli::run::args::{self, RunArgs, Suite},
    recipe::MixRecipe,
    suite::fault::{Fault, Variant},
};

/// The bugs named, each once, if they can be built into the variant that `--against` names.
pub fn faults(args: &RunArgs, against: &MixRecipe) -> anyhow::Result<Vec<Fault>> {
    let mut faults: Vec<Fault> = Vec::new();
    for fault in &args.fault {
        let fault = match fault {
            args::Fault::TransposedComb => Fault::TransposedComb,
            args::Fault::PostWithoutFactor => Fault::PostWithoutFactor,
            args::Fault::EpsOutsideRoot => Fault::EpsOutsideRoot,
        };
        let variant = Variant {
            recipe: against,
            fault: Some(fault),
        };
        ensure!(
            variant.is_possible(),
            "--fault {fault}: --against {} normalises x before it multiplies, so that the bug cannot be built into it; compare with another variant",
            against.name
        );
        if !faults.contains(&fault) {
            faults.push(fault);
        }
    }
    let suites = args.suites();
    ensure!(
        faults.is_empty() || suites.contains(&Suite::Mix) || suites.contains(&Suite::Chain),
        "--fault: only suites mix and chain run known bugs, and neither is asked for; add --suite mix,chain"
    );
    for (flag, is_there) in [
        ("--sweep", args.sweep.is_some()),
        ("--crosscheck", args.crosscheck),
    ] {
        ensure!(
            faults.is_empty() || !is_there,
            "--fault does not go with {flag}, which runs no known bug; drop one of the two"
        );
    }
    Ok(faults)
}
