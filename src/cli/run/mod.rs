//! `ulpdrift run`: the main job.
//!
//! Flags become settings (`settings`), outputs are opened before anything is computed
//! (`outputs`), suites run case by case (`cases`), what is finished is kept (`desk`), and the report goes to files first
//! and to the terminal last.

pub mod args;
mod backend;
mod cases;
mod crosscheck;
mod desk;
mod head;
mod interrupt;
mod products;
mod progress;
pub mod settings;
pub mod suite;
mod typed;

use std::{process::ExitCode, sync::mpsc};

use self::{args::RunArgs, desk::Desk, settings::Settings};
use super::{
    device::or_emulate,
    exit,
    gates::Gates,
    outputs::{Outputs, Wanted},
    print, sentence,
};
use crate::{
    backend::Backend,
    job::{assemble::AssembleError, dump::Origin},
    recipe::library::LibraryProduct,
    suite::{Plan, SuiteError},
    verdict::is_good,
};

/// Runs the suites asked for.
///
/// # Errors
/// Anything the flags name that cannot be used; nothing is written then.
pub fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let settings = Settings::new(args)?;
    let may_emulate = backend::device_only(args, &settings).is_empty();
    run_with(args, &settings).map_err(|error| match may_emulate {
        true => or_emulate(error),
        false => error,
    })
}

fn run_with(args: &RunArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let gates = Gates::open(args.output.gate.as_deref(), args.output.baseline.as_deref())?;
    gates.check(&settings.row_suites())?;
    let mut outputs = Outputs::prepare(wanted(args))?;
    let backend = backend::Chosen::new(args, settings)?;
    // What does not look at a library's products does not start the library.
    let (products, lacking) = match (&settings.sweep, args.crosscheck) {
        (None, false) => settings.products.on(backend.get())?,
        _ => Default::default(),
    };
    let plan = plan(args, settings, backend.get(), &products);
    if args.crosscheck {
        return crosscheck::run(args, &plan, settings);
    }
    let head = head::head(args, settings, &plan, lacking)?;
    let (tell, told) = mpsc::channel();
    let mut desk = Desk::open(args, settings, head, plan.backend, told)?;
    say_resumed(args, &desk);
    if let Some(dir) = &args.dump {
        outputs.dump_into(dir, args.resume, origin(args, settings), tell)?;
    }
    let outcome = cases::run(args, settings, &plan, outputs.sink(), &mut desk)
        .and_then(|()| finish(&gates, &mut desk, &mut outputs));
    outcome.or_else(|error| match error.downcast_ref() {
        Some(SuiteError::Interrupted) => match desk.counts() {
            // It came too late to stop anything.
            [_, 0] => finish(&gates, &mut desk, &mut outputs),
            _ => interrupted(args, &gates, &desk, &mut outputs),
        },
        // What another process has finished is not this one's to throw away.
        Some(cause) if cause.is_of_the_input() && !desk.is_resumed() => {
            desk.discard();
            Err(error)
        }
        _ => Err(with_what_is_kept(error, &desk, &mut outputs)),
    })
}

/// Says where the finished cases are, which whatever went wrong has not spoilt.
fn with_what_is_kept(
    error: anyhow::Error,
    desk: &Desk<'_>,
    outputs: &mut Outputs<'_>,
) -> anyhow::Error {
    let Some(path) = desk.kept() else {
        return error;
    };
    outputs.keep_dump();
    let [done, left] = desk.counts();
    let path = path.display();
    let said = sentence(&error);
    let kept = match error.downcast_ref() {
        // Which of them are of which weights is not known.
        Some(AssembleError::OtherWeights { .. }) => {
            format!("the finished cases in {path} are of both: remove that file first")
        }
        _ => format!(
            "{done} of {} cases are finished and kept in {path}; --resume goes on with them",
            done + left
        ),
    };
    error.context(format!("{said} ({kept})"))
}

/// What is to be written.
fn wanted(args: &RunArgs) -> Wanted<'_> {
    Wanted {
        args: &args.output,
        verbose: args.verbose,
        quiet: args.quiet,
    }
}

/// What dumped tensors say about themselves.
fn origin(args: &RunArgs, settings: &Settings) -> Origin {
    Origin {
        kind: settings.checkpoint.kind(),
        source: settings.checkpoint.source().to_owned(),
        seed: args.seed,
        inputs: settings.inputs.to_string(),
    }
}

fn say_resumed(args: &RunArgs, desk: &Desk<'_>) {
    let [done, left] = desk.counts();
    if !args.resume {
        return;
    }
    let said = match desk.is_resumed() {
        true => format!("--resume: {done} of {} cases were finished", done + left),
        false => "--resume: no run is under way there, so this one begins".to_owned(),
    };
    print::note(args.quiet, &said);
}

/// Every case is finished.
fn finish(
    gates: &Gates,
    desk: &mut Desk<'_>,
    outputs: &mut Outputs<'_>,
) -> anyhow::Result<ExitCode> {
    let limits = gates.verdict_limits();
    let mut report = desk.report(&limits)?;
    report.gates = gates.apply(&report)?;
    outputs.write(&report)?;
    desk.discard();
    outputs.show(&report, &limits)?;
    Ok(ExitCode::from(if is_good(&report, &limits) {
        exit::GOOD
    } else {
        exit::CHECK_FAILED
    }))
}

/// What is finished, and how to go on.
fn interrupted(
    args: &RunArgs,
    gates: &Gates,
    desk: &Desk<'_>,
    outputs: &mut Outputs<'_>,
) -> anyhow::Result<ExitCode> {
    let [done, left] = desk.counts();
    if done == 0 {
        print::note(
            args.quiet,
            "interrupted before a case was finished; nothing is kept",
        );
        return Ok(ExitCode::from(exit::INTERRUPTED));
    }
    let limits = gates.verdict_limits();
    let report = desk.report(&limits)?;
    outputs.write(&report)?;
    outputs.show(&report, &limits)?;
    let how = match desk.kept() {
        Some(path) => format!(
            "they are kept in {}, and the same command with --resume goes on",
            path.display()
        ),
        None if args.output.out.is_some() => {
            "their journal is gone, so that --resume has nothing to go on with".to_owned()
        }
        None => "with --out DIR they would be kept for --resume".to_owned(),
    };
    let said = format!(
        "interrupted: {done} of {} cases are finished; {how}",
        done + left
    );
    print::note(args.quiet, &said);
    Ok(ExitCode::from(exit::INTERRUPTED))
}

fn plan<'a>(
    args: &RunArgs,
    settings: &'a Settings,
    backend: &'a dyn Backend,
    products: &'a [LibraryProduct],
) -> Plan<'a> {
    Plan {
        checkpoint: &settings.checkpoint,
        backend,
        recipes: &settings.recipes,
        faults: &settings.faults,
        products,
        time: args.time,
        repeat: args.repeat,
        against: &settings.against,
        layers: &settings.layers,
        sites: &settings.sites,
        inputs: &settings.inputs,
        activations: &settings.activations,
        tokens: settings.tokens,
        seed: args.seed,
        sms: settings.sms[0],
        nonfinite: settings.nonfinite,
        level: settings.level,
    }
}

#[cfg(test)]
mod tests;
