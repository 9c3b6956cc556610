//! Flags that do not go together, whatever they name.

use std::path::Path;

use anyhow::{bail, ensure};

use crate::cli::{outputs::Format, run::args::RunArgs};

/// What a part, a run that is taken up again and a dump have no use for, or would get wrong.
pub fn check_outputs(args: &RunArgs) -> anyhow::Result<()> {
    ensure!(
        args.dump.is_none() || args.sweep.is_none(),
        "--dump does not go with --sweep; a sweep keeps no tensors, so drop one of the two"
    );
    if let Some(dump) = &args.dump {
        let whole = |path: &Path| path.canonicalize().ok();
        let checkpoint = Path::new(&args.checkpoint);
        let own = match checkpoint.is_dir() {
            true => Some(checkpoint),
            false => checkpoint.parent(),
        };
        let is_own = own
            .and_then(whole)
            .is_some_and(|own| whole(dump) == Some(own));
        ensure!(
            !is_own || !checkpoint.exists(),
            "--dump {}: it is the checkpoint's own folder, whose tensors it would be taken for; name another directory",
            dump.display()
        );
    }
    let output = &args.output;
    for (flag, is_given) in [
        ("--part", args.part.is_some()),
        ("--resume", args.resume),
        ("--out", output.out.is_some()),
        ("--format", !output.format.is_empty()),
        ("--step-summary", output.step_summary),
        ("--gate", output.gate.is_some()),
        ("--baseline", output.baseline.is_some()),
        ("--dump", args.dump.is_some()),
    ] {
        ensure!(
            !(is_given && args.crosscheck),
            "{flag} does not go with --crosscheck, which makes no report; drop one of the two"
        );
    }
    if args.part.is_none() {
        return Ok(());
    }
    for (flag, is_given) in [
        ("--gate", args.output.gate.is_some()),
        ("--baseline", args.output.baseline.is_some()),
        ("--step-summary", args.output.step_summary),
    ] {
        ensure!(
            !is_given,
            "{flag} does not go with --part, which has some of the rows only; give it to `ulpdrift merge`"
        );
    }
    let has_json = match &args.output.out {
        Some(_) => args.output.format.is_empty() || args.output.format.contains(&Format::Json),
        None => args.output.format == [Format::Json],
    };
    ensure!(
        has_json,
        "--part: `ulpdrift merge` reads JSON, and none is written; add --out DIR, with json among the formats"
    );
    Ok(())
}

/// A sweep and a crosscheck have tables of their own, without times.
pub fn check_time(args: &RunArgs) -> anyhow::Result<()> {
    let Some(other) = args.own_table() else {
        return Ok(());
    };
    ensure!(
        !args.time,
        "--time does not go with {other}; it times what suite mix measures, so drop one of the two"
    );
    Ok(())
}

/// The most repeats: what changes once in a thousand runs is not found by chance.
const MAX_REPEATS: usize = 1000;

/// A sweep and a crosscheck compare what they run with something else.
pub fn check_repeat(args: &RunArgs) -> anyhow::Result<()> {
    let repeat = args.repeat;
    ensure!(
        (1..=MAX_REPEATS).contains(&repeat),
        "--repeat {repeat}: expected 1 to {MAX_REPEATS}; give the number of times that every case is run"
    );
    if repeat == 1 {
        return Ok(());
    }
    if let Some(other) = args.own_table() {
        bail!("--repeat does not go with {other}, which has no rows for it; drop one of the two");
    }
    let suites = args.suites();
    ensure!(
        suites.iter().any(|suite| suite.repeats()),
        "--repeat {repeat}: suite {} runs its cases once; name mix, recombine, chain or indexer with --suite, or leave \
         --repeat out",
        suites
            .iter()
            .map(|suite| suite.name())
            .collect::<Vec<_>>()
            .join(", ")
    );
    Ok(())
}
