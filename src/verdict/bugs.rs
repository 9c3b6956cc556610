//! What a diagnosis adds to the verdict of a variant, and what a verdict on a candidate with a known bug would be.

use super::{VerdictLimits, judge};
use crate::report::{Class, Diagnosis, Record, Verdict};

/// Adds to the sentence of an indexer that is structural or broken what explains it, by its first diagnosis.
pub fn explain(verdicts: &mut [Verdict], diagnoses: &[Diagnosis]) {
    for verdict in verdicts {
        let is_own = |diagnosis: &&Diagnosis| {
            diagnosis.fault.is_none()
                && diagnosis.variant == verdict.variant
                && verdict.suites.contains(&diagnosis.suite)
        };
        let is_bad = matches!(verdict.verdict, Class::Structural | Class::Broken);
        if let Some(diagnosis) = diagnoses.iter().find(is_own).filter(|_| is_bad) {
            let place = format!("L{}, context {}", diagnosis.layer, diagnosis.context);
            let more = format!(" Diagnosis ({place}): {}.", diagnosis.sentence);
            verdict.sentence.push_str(&more);
        }
    }
}

/// Judges every candidate with a known bug as if it were the variant that it claims to be.
pub fn judge_bugs(
    diagnoses: &mut [Diagnosis],
    records: &[Record],
    yardstick: &[Record],
    limits: &VerdictLimits,
) {
    for diagnosis in diagnoses.iter_mut().filter(|one| one.fault.is_some()) {
        let is_own = |record: &&Record| {
            let key = &record.key;
            key.suite == diagnosis.suite
                && key.fault == diagnosis.fault
                && key.variant == diagnosis.variant
                && key.layer == Some(diagnosis.layer)
                && key.context == Some(diagnosis.context)
        };
        let own = records.iter().filter(is_own).cloned();
        let own: Vec<Record> = own
            .map(|mut record| {
                record.key.fault = None;
                record
            })
            .collect();
        let verdicts = judge(&own, &[], yardstick, limits);
        diagnosis.verdict = verdicts.first().map(|verdict| verdict.verdict);
    }
}
