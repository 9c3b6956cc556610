//! What a suite has read and left out.

use sha2::Sha256;

use super::{Skip, case::Case};

/// What a report says of the weights behind its rows, and of what is missing.
#[derive(Default)]
pub struct Read {
    /// Digest of the weights used.
    pub digest: Sha256,
    /// Stored types of `hc_fn`, each once.
    pub stored_types: Vec<String>,
    /// What could not be run.
    pub skipped: Vec<Skip>,
}

impl Read {
    /// Notes the weights of a site.
    pub fn site(&mut self, case: &Case) {
        case.weights
            .digest_update(&mut self.digest, case.layer, case.site);
        self.stored_as(case);
    }

    /// Notes what a site's `hc_fn` is stored in, its weights being in the digest.
    pub fn stored_as(&mut self, case: &Case) {
        let stored = case.weights.dtype.to_string();
        if !self.stored_types.contains(&stored) {
            self.stored_types.push(stored);
        }
    }
}
