//! What a report says about itself: what ran on what.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    time::Instant,
};

use serde_json::json;
use sha2::{Digest, Sha256};
use ulpdrift_reference::certify::Certificate;

use super::{args::RunArgs, settings::Settings};
use crate::{
    backend::hardware::Hardware,
    checkpoint::SourceKind,
    measure::value::Value,
    recipe::{RecombineRecipe, indexer::IndexRecipe},
    report::{
        self, Host, Records, Report, Run, SCHEMA_VERSION, Skipped, Tool, Verdict, WeightKind,
    },
    suite::{
        Plan, Skip,
        chain::forecast::forecasts,
        fault::findings::findings,
        indexer::fault,
        mix::{products::Probed, times::Times},
        read::Read,
    },
    verdict::failures,
};

/// Makes cuBLAS use TF32, or not, whatever it is asked for.
const OVERRIDE: &str = "NVIDIA_TF32_OVERRIDE";

/// Everything about a run but its rows.
pub struct Provenance<'a> {
    args: &'a RunArgs,
    settings: &'a Settings,
    plan: &'a Plan<'a>,
    started: Instant,
    /// Digest of the weights used.
    pub digest: Option<Sha256>,
    /// The reference's certificate.
    pub certificate: Option<Certificate>,
    /// Stored types of `hc_fn`.
    pub stored_types: Vec<String>,
    /// What could not be run.
    pub skipped: Vec<Skip>,
    /// What a library's products do to their operands.
    pub probed: Vec<Probed>,
    /// How long the projections take.
    pub times: Times,
    /// Where chains stopped being finite.
    pub non_finite: Vec<report::NonFinite>,
    /// What explains what no rounding does.
    pub diagnoses: Vec<report::Diagnosis>,
}

impl<'a> Provenance<'a> {
    /// Of a run that starts now.
    pub fn new(args: &'a RunArgs, settings: &'a Settings, plan: &'a Plan<'a>) -> Self {
        Self {
            args,
            settings,
            plan,
            started: Instant::now(),
            digest: None,
            certificate: None,
            stored_types: Vec::new(),
            skipped: Vec::new(),
            probed: Vec::new(),
            times: Times::default(),
            non_finite: Vec::new(),
            diagnoses: Vec::new(),
        }
    }

    /// What a further suite read and left out, beside what was read before: its digest covers norms as well, a chain's
    /// the head too. What another has left out already is said once.
    pub fn add(&mut self, read: &Read) {
        let own = read.digest.clone();
        self.digest = Some(match self.digest.take() {
            Some(mut before) => {
                before.update(own.finalize());
                before
            }
            None => own,
        });
        for stored in &read.stored_types {
            if !self.stored_types.contains(stored) {
                self.stored_types.push(stored.clone());
            }
        }
        for skip in &read.skipped {
            if !self.skipped.contains(skip) {
                self.skipped.push(skip.clone());
            }
        }
    }

    /// A further certificate of the reference: all that was checked, and the larger differences.
    pub fn certify(&mut self, certificate: Option<Certificate>) {
        self.certificate = match (self.certificate.take(), certificate) {
            (Some(before), Some(own)) => Some(before.merge(own)),
            (before, own) => before.or(own),
        };
    }

    /// The whole report.
    pub fn report(self, records: Records, verdicts: Vec<Verdict>) -> anyhow::Result<Report> {
        let mut recipes = self
            .settings
            .recipes
            .iter()
            .chain([&self.settings.against])
            .map(|recipe| Ok((recipe.name.clone(), serde_json::to_value(recipe)?)))
            .collect::<Result<BTreeMap<_, _>, serde_json::Error>>()?;
        recipes.extend(self.plan.products.iter().map(|&product| {
            let described = json!({
                "name": product.name(),
                "summary": product.summary(),
                "library": "cuBLAS",
                "compute-type": product.compute_type(),
                "operands": product.operands(),
            });
            (product.name().to_owned(), described)
        }));
        let variants = &self.settings.recombinations;
        if !variants.recipes.is_empty() {
            for recipe in variants.recipes.iter().chain([&variants.against]) {
                let title = RecombineRecipe::title(recipe.name);
                recipes.insert(title, serde_json::to_value(recipe)?);
            }
        }
        if let Some(index) = &self.settings.index {
            let claimed = (!index.faults.is_empty()).then(fault::claimed);
            let named = index.recipes.iter().chain([&index.against]);
            for recipe in named.chain(&claimed) {
                let title = IndexRecipe::title(&recipe.name);
                recipes.insert(title, serde_json::to_value(recipe)?);
            }
        }
        Ok(Report {
            schema_version: SCHEMA_VERSION,
            tool: Tool::current(),
            run: self.run(&records)?,
            recipes,
            certificate: self.certificate.map(|certificate| report::Certificate {
                checked: certificate.checked as u64,
                max_abs_diff: Value(certificate.max_abs_diff),
                max_rel_to_scale: Value(certificate.max_rel_to_scale),
            }),
            compiled: self.compiled(),
            timing: self.times.copy.map(|copy| report::Timing {
                copy_gb_per_s: Value(copy),
                inputs_of: self.times.places.clone(),
            }),
            skipped: self.skipped.iter().map(skipped).collect(),
            non_finite: self.non_finite.clone(),
            growth: forecasts(&records),
            faults: findings(&records),
            diagnoses: self.diagnoses.clone(),
            failures: failures(&records),
            records,
            verdicts,
            gates: Vec::new(),
            host: Some(self.host()),
        })
    }

    fn run(&self, records: &Records) -> anyhow::Result<Run> {
        let info = self.plan.backend.info();
        // The rows of an indexer count queries; without others, its context is the batch.
        let batches = records.iter().filter(|record| record.key.context.is_none());
        let contexts = records.iter().filter_map(|record| record.key.context);
        let most = batches
            .map(|record| record.key.tokens)
            .max()
            .or(contexts.max());
        let hardware = self.plan.backend.hardware();
        let library = hardware.filter(|_| !self.plan.products.is_empty());
        Ok(Run {
            command: command_line(),
            seed: self.args.seed,
            inputs: self.settings.inputs.to_string(),
            tokens: most.unwrap_or_default(),
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
                probed: self.probed.iter().map(probed).collect(),
            },
            checkpoint: self.checkpoint(),
            repeat_flags: self.repeat_flags(),
        })
    }

    /// The macros of every file of kernels that ran.
    fn compiled(&self) -> BTreeMap<String, BTreeSet<String>> {
        let macros = self.plan.backend.hardware().map(Hardware::macros);
        let named = |(file, macros): (&str, _)| (file.to_owned(), macros);
        macros.unwrap_or_default().into_iter().map(named).collect()
    }

    fn checkpoint(&self) -> report::Checkpoint {
        let checkpoint = &self.settings.checkpoint;
        let model = checkpoint.model();
        let dtypes = match self.stored_types.is_empty() {
            true => BTreeMap::new(),
            false => BTreeMap::from([("hc_fn".to_owned(), self.stored_types.join(", "))]),
        };
        let mut notes = model.notes.clone();
        for stored in self.stored_types.iter().filter(|stored| *stored != "F32") {
            notes.push(format!(
                "hc_fn is stored as {stored}, which is already a loss: it is not in these \
                 figures, which take the stored weights for the truth"
            ));
        }
        report::Checkpoint {
            source: checkpoint.source().to_owned(),
            revision: checkpoint.revision().map(str::to_owned),
            kind: weight_kind(checkpoint.kind()),
            digest: hex(self.digest.clone()),
            family: model.family.to_string(),
            hidden: model.hidden as u64,
            hc: model.hc as u64,
            layers: model.layers as u64,
            dtypes,
            notes,
        }
    }

    /// What a command that reproduces one row has to repeat.
    fn repeat_flags(&self) -> Vec<String> {
        let mut flags = Vec::new();
        if let Some(path) = &self.args.recipes {
            flags.extend(["--recipes".to_owned(), path.display().to_string()]);
        }
        if self.args.sweep.is_none() && self.args.against != "fp32" {
            flags.extend(["--against".to_owned(), self.args.against.clone()]);
        }
        if self.settings.index.is_some() {
            flags.extend(["--queries".to_owned(), self.args.queries.to_string()]);
            if !self.args.topk.is_empty() {
                let ks: Vec<String> = self.args.topk.iter().map(usize::to_string).collect();
                flags.extend(["--topk".to_owned(), ks.join(",")]);
            }
        }
        if self.args.time {
            flags.push("--time".to_owned());
        }
        if self.args.repeat > 1 {
            flags.extend(["--repeat".to_owned(), self.args.repeat.to_string()]);
        }
        if self.args.allow_nonfinite {
            flags.push("--allow-nonfinite".to_owned());
        }
        flags
    }

    fn host(&self) -> Host {
        Host {
            platform: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            threads: rayon::current_num_threads() as u64,
            simd: self.settings.level.to_string(),
            seconds: Some(Value(self.started.elapsed().as_secs_f64())),
        }
    }
}

/// The command line as typed, but for the program: where it is installed is the machine's business.
fn command_line() -> Vec<String> {
    let typed = std::env::args_os().skip(1);
    std::iter::once(env!("CARGO_PKG_NAME").to_owned())
        .chain(typed.map(|word| word.to_string_lossy().into_owned()))
        .collect()
}

/// The same word in a report.
pub fn weight_kind(kind: SourceKind) -> WeightKind {
    match kind {
        SourceKind::Real => WeightKind::Real,
        SourceKind::Synthetic => WeightKind::Synthetic,
    }
}

/// What was found out about a product, and the variable that may be why.
fn probed((product, roundings): &Probed) -> (String, String) {
    let mut found = roundings.words(*product);
    if let Some(value) = std::env::var_os(OVERRIDE) {
        let _ = write!(found, ", {OVERRIDE}={}", value.display());
    }
    (product.name().to_owned(), found)
}

/// The same in a report.
pub fn skipped(skip: &Skip) -> Skipped {
    Skipped {
        what: skip.what.clone(),
        why: skip.why.clone(),
    }
}

fn hex(digest: Option<Sha256>) -> String {
    let mut text = "sha256:".to_owned();
    for byte in digest.unwrap_or_default().finalize() {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
