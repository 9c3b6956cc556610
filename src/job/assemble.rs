//! The report of a run, out of its head and what its cases found.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use thiserror::Error;

use crate::{
    report::{
        DuplicateKey, Found, Host, Records, Report, SCHEMA_VERSION, Skipped,
        part::{CaseName, Finished, Head, Part, Share},
    },
    suite::{chain::forecast::forecasts, fault::findings::findings},
    verdict::{self, VerdictLimits, failures},
};

/// Puts what is finished in the order of the head.
pub fn sort(head: &Head, finished: &mut [Finished]) {
    let places: HashMap<&CaseName, usize> = head.cases.iter().zip(0..).collect();
    finished.sort_by_key(|one| places.get(&one.case).copied());
}

/// Why what cases found makes no report.
#[derive(Debug, Error)]
pub enum AssembleError {
    /// Rows that cannot stand in one report.
    #[error(transparent)]
    Duplicate(#[from] DuplicateKey),
    /// A tensor that two cases have read differently.
    #[error(
        "{tensor} was not the same when {case} was measured as before: the checkpoint has changed in between; measure all of it again"
    )]
    OtherWeights {
        /// Its name.
        tensor: String,
        /// The later case.
        case: CaseName,
    },
    /// A suite whose cases were all left out.
    #[error("suite {suite} has nothing to run: {why}; leave the suite out")]
    NothingToRun {
        /// Its name.
        suite: String,
        /// Why, of the first case that says so.
        why: String,
    },
}

/// The report of a whole run.
///
/// # Errors
/// If two rows have one key, two cases have read different weights, or a suite has no row.
pub fn whole(
    head: Head,
    finished: Vec<Finished>,
    limits: &VerdictLimits,
    host: Option<Host>,
) -> Result<Report, AssembleError> {
    require_rows(&finished)?;
    let Together { found, compiled } = Together::of(finished)?;
    let mut verdicts = verdict::judge(&found.records, &found.non_finite, &found.yardstick, limits);
    let mut diagnoses = found.diagnoses.clone();
    verdict::explain(&mut verdicts, &diagnoses);
    verdict::judge_bugs(&mut diagnoses, &found.records, &found.yardstick, limits);
    let mut report = bare(head, found, compiled, host)?;
    report.verdicts = verdicts;
    report.diagnoses = diagnoses;
    Ok(report)
}

/// The report of a part of a run, or of one that was interrupted. It reaches no verdict: what the rest of the run finds
/// could change it.
///
/// # Errors
/// If two rows have one key, or two cases have read different weights.
pub fn part(
    head: Head,
    share: Share,
    mut finished: Vec<Finished>,
    missing: Vec<CaseName>,
    host: Option<Host>,
) -> Result<Report, AssembleError> {
    let Together { found, compiled } = Together::of(finished.clone())?;
    // Their rows are those of the report.
    finished
        .iter_mut()
        .for_each(|one| one.found.records = Vec::new());
    let mut report = bare(head.clone(), found, compiled, host)?;
    report.part = Some(Part {
        share,
        head,
        finished,
        missing,
    });
    Ok(report)
}

/// What all cases found.
struct Together {
    found: Found,
    compiled: BTreeMap<String, BTreeSet<String>>,
}

impl Together {
    fn of(finished: Vec<Finished>) -> Result<Self, AssembleError> {
        let mut found = Found::default();
        let mut compiled: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for one in finished {
            if let Some(tensor) = found.read.digests.conflict(&one.found.read.digests) {
                return Err(AssembleError::OtherWeights {
                    tensor: tensor.to_owned(),
                    case: one.case,
                });
            }
            found.extend(one.found);
            for (file, macros) in one.compiled {
                compiled.entry(file).or_default().extend(macros);
            }
        }
        Ok(Self { found, compiled })
    }
}

/// A suite that was asked for and has no row, known bugs apart, was not what was meant.
fn require_rows(finished: &[Finished]) -> Result<(), AssembleError> {
    for suite in finished.chunk_by(|a, b| a.case.suite == b.case.suite) {
        let mut rows = suite.iter().flat_map(|one| &one.found.records);
        if rows.any(|row| row.key.fault.is_none()) {
            continue;
        }
        let mut skipped = suite.iter().flat_map(|one| &one.found.read.skipped);
        let why = skipped.next().map_or_else(
            || "none of its cases has a row".to_owned(),
            |Skipped { what, why }| format!("{what}: {why}"),
        );
        return Err(AssembleError::NothingToRun {
            suite: suite[0].case.suite.clone(),
            why,
        });
    }
    Ok(())
}

/// Everything that follows from the rows alone.
fn bare(
    head: Head,
    found: Found,
    compiled: BTreeMap<String, BTreeSet<String>>,
    host: Option<Host>,
) -> Result<Report, DuplicateKey> {
    let records = Records::new(found.records)?;
    let mut run = head.run;
    run.tokens = tokens(&records);
    run.backend.probed = found.probed;
    let checkpoint = &mut run.checkpoint;
    checkpoint.digest = found.read.digests.whole();
    let stored = found.read.stored_types;
    if !stored.is_empty() {
        let hc_fn = ("hc_fn".to_owned(), stored.join(", "));
        checkpoint.dtypes = BTreeMap::from([hc_fn]);
    }
    for stored in stored.iter().filter(|stored| *stored != "F32") {
        checkpoint.notes.push(format!(
            "hc_fn is stored as {stored}, which is already a loss: it is not in these \
             figures, which take the stored weights for the truth"
        ));
    }
    let mut skipped = found.read.skipped;
    skipped.extend(head.skipped);
    Ok(Report {
        schema_version: SCHEMA_VERSION,
        tool: head.tool,
        run,
        part: None,
        recipes: head.recipes,
        certificate: found.certificate,
        compiled,
        timing: found.timing,
        skipped,
        non_finite: found.non_finite,
        growth: forecasts(&records),
        faults: findings(&records),
        diagnoses: Vec::new(),
        failures: failures(&records),
        records,
        verdicts: Vec::new(),
        gates: Vec::new(),
        host,
    })
}

/// Tokens in the batch. The rows of an indexer count queries; without others, its context is the batch.
fn tokens(records: &Records) -> u64 {
    let batches = records.iter().filter(|record| record.key.context.is_none());
    let contexts = records.iter().filter_map(|record| record.key.context);
    let most = batches.map(|record| record.key.tokens).max();
    most.or(contexts.max()).unwrap_or_default()
}
