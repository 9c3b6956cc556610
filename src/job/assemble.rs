//! The report of a run, out of its head and what its cases found.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::{
    report::{
        DuplicateKey, Found, Host, Records, Report, SCHEMA_VERSION,
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

/// The report of a whole run.
///
/// # Errors
/// If two rows have one key.
pub fn whole(
    head: Head,
    finished: Vec<Finished>,
    limits: &VerdictLimits,
    host: Option<Host>,
) -> Result<Report, DuplicateKey> {
    let Together { found, compiled } = Together::of(finished);
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
/// If two rows have one key.
pub fn part(
    head: Head,
    share: Share,
    mut finished: Vec<Finished>,
    missing: Vec<CaseName>,
    host: Option<Host>,
) -> Result<Report, DuplicateKey> {
    let Together { found, compiled } = Together::of(finished.clone());
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
    fn of(finished: Vec<Finished>) -> Self {
        let mut found = Found::default();
        let mut compiled: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for one in finished {
            found.extend(one.found);
            for (file, macros) in one.compiled {
                compiled.entry(file).or_default().extend(macros);
            }
        }
        Self { found, compiled }
    }
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
