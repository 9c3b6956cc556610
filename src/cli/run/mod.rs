//! `ulpdrift run`: the main job.
//!
//! Flags become settings (`settings`), outputs are opened before anything is computed
//! (`outputs`), suites run, and the report goes to files first and to the terminal last.

pub mod args;
mod backend;
mod crosscheck;
mod next;
mod outputs;
mod products;
mod progress;
mod provenance;
pub mod settings;

use std::process::ExitCode;

use anyhow::ensure;

pub use self::provenance::weight_kind;
use self::{
    args::{RunArgs, Suite},
    outputs::Outputs,
    settings::Settings,
};
use super::{absence::or_emulate, exit};
use crate::{
    activations::Activations,
    backend::Backend,
    gate::{self, Thresholds},
    recipe::library::LibraryProduct,
    report::{Class, GateOutcome, Measures, Record, Records, Report, json},
    suite::{Plan, budget, chain, gains, indexer, mix, needle, recombine, sweep},
    verdict::{self, VerdictLimits},
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
    let gates = Gates::open(args)?;
    gates.check(&settings.row_suites())?;
    let mut outputs = Outputs::prepare(args, settings)?;
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
    let mut report = measure(args, settings, &plan, &gates, &mut outputs)?;
    let lacking = lacking.iter().map(provenance::skipped);
    report.skipped.extend(lacking);
    report.gates = gates.apply(&report)?;
    let limits = gates.verdict_limits();
    outputs.write(args, &report, &limits)?;
    Ok(ExitCode::from(if is_good(&report, &limits) {
        exit::GOOD
    } else {
        exit::CHECK_FAILED
    }))
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

/// Whether every gate passed, and no variant did what rounding cannot explain or yielded what
/// nobody can use. A sweep has no verdicts, so its rows are held to the same limit of what is broken. A budget has to
/// add up.
fn is_good(report: &Report, limits: &VerdictLimits) -> bool {
    let is_usable = |class| !matches!(class, Class::Structural | Class::Broken);
    report.gates.iter().all(|gate| gate.passed)
        && report
            .verdicts
            .iter()
            .all(|verdict| is_usable(verdict.verdict))
        && report.records.iter().all(|record| is_sound(record, limits))
        && report.failures.is_empty()
}

/// Whether a row is of any use. A known bug is there to be seen, and fails nothing.
fn is_sound(record: &Record, limits: &VerdictLimits) -> bool {
    // What an indexer's formats cost is for its verdict.
    if record.key.fault.is_some() || record.key.context.is_some() {
        return true;
    }
    let Measures { rel_l2, cosine, .. } = &record.measures;
    rel_l2.is_none_or(|value| value.0.is_finite())
        && cosine.is_none_or(|value| value.0 >= limits.broken_cosine)
}

fn measure(
    args: &RunArgs,
    settings: &Settings,
    plan: &Plan<'_>,
    gates: &Gates,
    outputs: &mut Outputs,
) -> anyhow::Result<Report> {
    let progress = progress::Bar::new(args.quiet);
    let tell = |done, total, place: &str| progress.tell(done, total, place);
    let mut provenance = provenance::Provenance::new(args, settings, plan);
    if let Some(axes) = &settings.sweep {
        progress.begin("sweep", "sites");
        let outcome = sweep::run(plan, axes, &tell)?;
        provenance.digest = Some(outcome.digest);
        provenance.skipped = outcome.skipped;
        return provenance.report(Records::new(outcome.records)?, Vec::new());
    }
    let mut records = Vec::new();
    let mut yardstick = Vec::new();
    if settings.suites.contains(&Suite::Mix) {
        progress.begin(Suite::Mix.name(), "sites");
        let outcome = mix::run(plan, outputs.sink(), &tell)?;
        records = outcome.records;
        yardstick = outcome.yardstick;
        provenance.add(&outcome.read);
        provenance.certify(outcome.certificate);
        provenance.probed = outcome.probed;
        provenance.times = outcome.times;
    }
    if settings.suites.contains(&Suite::Recombine) {
        progress.begin(Suite::Recombine.name(), "sites");
        let outcome = recombine::run(plan, &settings.recombinations, outputs.sink(), &tell)?;
        provenance.add(&outcome.read);
        records.extend(outcome.records);
        yardstick.extend(outcome.yardstick);
    }
    if settings.suites.contains(&Suite::Chain) {
        progress.begin(Suite::Chain.name(), "sites");
        for seed in args.seed..args.seed + args.seeds {
            let activations = Activations::open(&settings.inputs, seed, plan.checkpoint.model())?;
            let plan = Plan {
                activations: &activations,
                seed,
                ..*plan
            };
            let outcome = chain::run(&plan, &settings.around, outputs.sink(), &tell)?;
            if seed == args.seed {
                provenance.add(&outcome.read);
            }
            records.extend(outcome.records);
            provenance.non_finite.extend(outcome.non_finite);
        }
    }
    if settings.suites.contains(&Suite::Budget) {
        progress.begin(Suite::Budget.name(), "steps");
        let outcome = budget::run(plan, &settings.around, &tell)?;
        provenance.add(&outcome.read);
        records.extend(outcome.records);
    }
    if settings.suites.contains(&Suite::Gains) {
        progress.begin(Suite::Gains.name(), "steps");
        let outcome = gains::run(plan, &settings.around, &tell)?;
        provenance.add(&outcome.read);
        records.extend(outcome.records);
    }
    if let Some(own) = settings
        .index
        .as_ref()
        .filter(|_| settings.suites.contains(&Suite::Indexer))
    {
        progress.begin(Suite::Indexer.name(), "layers");
        let outcome = indexer::run(plan, own, outputs.sink(), &tell)?;
        provenance.add(&outcome.read);
        provenance.certify(outcome.certificate);
        records.extend(outcome.records);
        yardstick.extend(outcome.yardstick);
        provenance.diagnoses = outcome.diagnoses;
    }
    if let Some((own, needles)) = settings.index.as_ref().zip(settings.needles.as_ref()) {
        progress.begin(Suite::Needle.name(), "layers");
        let outcome = needle::run(plan, own, needles, &tell)?;
        provenance.add(&outcome.read);
        records.extend(outcome.records);
    }
    provenance.skipped.extend(settings.left_out.iter().cloned());
    let limits = gates.verdict_limits();
    let mut verdicts = verdict::judge(&records, &provenance.non_finite, &yardstick, &limits);
    verdict::explain(&mut verdicts, &provenance.diagnoses);
    verdict::judge_bugs(&mut provenance.diagnoses, &records, &yardstick, &limits);
    provenance.report(Records::new(records)?, verdicts)
}

/// The thresholds and the baseline that the run itself applies, read before it starts.
struct Gates {
    thresholds: Option<Thresholds>,
    baseline: Option<Report>,
}

impl Gates {
    fn open(args: &RunArgs) -> anyhow::Result<Self> {
        Ok(Self {
            thresholds: args.gate.as_deref().map(Thresholds::read).transpose()?,
            baseline: args.baseline.as_deref().map(json::read).transpose()?,
        })
    }

    /// Whether every limit is of a suite that runs: found out before it does.
    fn check(&self, suites: &[&str]) -> anyhow::Result<()> {
        let limits = self.thresholds.iter().flat_map(|file| &file.limits);
        for limit in limits {
            let is_meant = |suite: &&str| limit.looks_at(suite);
            ensure!(
                suites.iter().any(is_meant),
                "--gate: the limit '{limit}' is of no suite that runs ({}); name its suite with --suite, or remove it",
                suites.join(", ")
            );
        }
        Ok(())
    }

    /// The outcomes of every check; none where no gate was asked for.
    fn apply(&self, report: &Report) -> anyhow::Result<Vec<GateOutcome>> {
        let thresholds = match (&self.thresholds, &self.baseline) {
            (None, None) => return Ok(Vec::new()),
            (Some(thresholds), _) => thresholds,
            (None, Some(_)) => &Thresholds::baseline_only(),
        };
        Ok(gate::evaluate(thresholds, report, self.baseline.as_ref())?)
    }

    fn verdict_limits(&self) -> VerdictLimits {
        self.thresholds
            .as_ref()
            .and_then(|thresholds| thresholds.verdict)
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
