//! What one case of a run found: its rows, and what a report says beside them.
//!
//! A report is put together from these ([`crate::job`]); what a run has finished is kept as these, so that it can
//! be taken up again, and a part of a run carries these, so that the parts can be joined.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Certificate, Diagnosis, NonFinite, Record, Skipped, Timing};
use crate::checkpoint::Digests;

/// What one case found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Found {
    /// Its rows, in the order of the report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub records: Vec<Record>,
    /// The fp32 variant's rows: what the verdict `exact` is measured by, whether or not fp32 is among the candidates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub yardstick: Vec<Record>,
    /// What was read and left out.
    #[serde(default)]
    pub read: Read,
    /// How the reference certified itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<Certificate>,
    /// What each product of a library does to its operands, by variant.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub probed: BTreeMap<String, String>,
    /// How the times were taken that were taken here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timing: Option<Timing>,
    /// Where variants of a chain stopped being finite.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub non_finite: Vec<NonFinite>,
    /// What explains candidates of the indexer that no rounding does, and those with a known bug.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diagnoses: Vec<Diagnosis>,
}

/// What a report says of the weights behind its rows, and of what is missing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Read {
    /// Digests of the weights used.
    pub digests: Digests,
    /// Stored types of `hc_fn`, each once.
    pub stored_types: Vec<String>,
    /// What could not be run.
    pub skipped: Vec<Skipped>,
}

impl Read {
    /// What was read and left out elsewhere as well. What is left out is said once.
    pub fn extend(&mut self, other: &Self) {
        self.digests.extend(&other.digests);
        for stored in &other.stored_types {
            self.stored_as(stored);
        }
        for skipped in &other.skipped {
            self.skip(skipped.clone());
        }
    }

    /// Notes what an `hc_fn` is stored in.
    pub fn stored_as(&mut self, stored: &str) {
        if !self.stored_types.iter().any(|known| known == stored) {
            self.stored_types.push(stored.to_owned());
        }
    }

    /// Notes what is left out, once.
    pub fn skip(&mut self, skipped: Skipped) {
        if !self.skipped.contains(&skipped) {
            self.skipped.push(skipped);
        }
    }
}

impl Found {
    /// Adds what another case found.
    pub fn extend(&mut self, other: Self) {
        self.records.extend(other.records);
        self.yardstick.extend(other.yardstick);
        self.read.extend(&other.read);
        self.certify(other.certificate);
        self.probed.extend(other.probed);
        self.time(other.timing);
        self.non_finite.extend(other.non_finite);
        self.diagnoses.extend(other.diagnoses);
    }

    /// A further certificate of the reference: all that was checked, and the larger differences.
    pub fn certify(&mut self, certificate: Option<Certificate>) {
        self.certificate = match (self.certificate.take(), certificate) {
            (Some(before), Some(own)) => Some(before.merge(own)),
            (before, own) => before.or(own),
        };
    }

    /// Further times: the rate of a copy is that beside the first.
    fn time(&mut self, timing: Option<Timing>) {
        match (&mut self.timing, timing) {
            (Some(before), Some(own)) => before.inputs_of.extend(own.inputs_of),
            (before, own) => *before = before.take().or(own),
        }
    }
}
