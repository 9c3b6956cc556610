//! Which values were read: a SHA-256 per tensor, by its official name.
//!
//! A tensor's digest covers name, type, shape and values, so that two checkpoints with the same weights have the
//! same digests whatever their spelling and shards. The digest of all of them is that of their sorted list: it does
//! not depend on the order in which they were read, nor on how often, so that parts of a run can be joined.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Digests of tensors by their official names, as hexadecimal digits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Digests(BTreeMap<String, String>);

impl Digests {
    /// Adds a tensor unless it is there already: `feed` hashes its values behind its name, type and shape.
    pub(crate) fn add(
        &mut self,
        name: &str,
        stored: &str,
        shape: &[usize],
        feed: impl FnOnce(&mut Sha256),
    ) {
        if self.0.contains_key(name) {
            return;
        }
        let mut digest = Sha256::new();
        digest.update(format!("{name}\n{stored}\n{shape:?}\n"));
        feed(&mut digest);
        self.0
            .insert(name.to_owned(), hex::encode(digest.finalize()));
    }

    /// Adds tensors that were read elsewhere.
    pub fn extend(&mut self, other: &Self) {
        let theirs = other.0.iter();
        self.0
            .extend(theirs.map(|(name, digest)| (name.clone(), digest.clone())));
    }

    /// The first tensor that both have read and found to be different.
    #[must_use]
    pub fn conflict(&self, other: &Self) -> Option<&str> {
        let differs = |(name, own): &(&String, &String)| {
            other.0.get(*name).is_some_and(|theirs| theirs != *own)
        };
        self.0.iter().find(differs).map(|(name, _)| name.as_str())
    }

    /// The digest of all of them: `sha256:` and 64 digits.
    #[must_use]
    pub fn whole(&self) -> String {
        let mut digest = Sha256::new();
        for (name, own) in &self.0 {
            digest.update(format!("{name}\n{own}\n"));
        }
        format!("sha256:{}", hex::encode(digest.finalize()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(tensors: &[(&str, u8)]) -> Digests {
        let mut digests = Digests::default();
        for &(name, value) in tensors {
            digests.add(name, "U8", &[1], |digest| digest.update([value]));
        }
        digests
    }

    /// By Python's hashlib: sha256 of "a\nU8\n[1]\n\x01", and of "a\n" + its digits + "\n".
    #[test]
    fn digests_are_those_of_the_recipe() {
        let digests = of(&[("a", 1)]);
        assert_eq!(
            digests.0["a"],
            "7b33070cbc95d4410a362c6d5e37f7da18cc935b280185e4d8b263ee2fa76384"
        );
        assert_eq!(
            digests.whole(),
            "sha256:736ec6398e943de1dcd84d102988b4dba1062b6deca4a1eba61b83e7faba5294"
        );
    }

    #[test]
    fn neither_order_nor_repetition_matters() {
        let whole = of(&[("a", 1), ("b", 2)]);
        let mut joined = of(&[("b", 2), ("b", 2)]);
        assert_ne!(joined.whole(), whole.whole());
        joined.extend(&of(&[("a", 1), ("b", 2)]));
        assert_eq!(joined.whole(), whole.whole());
        assert_eq!(joined.conflict(&whole), None);
        assert_eq!(joined.conflict(&of(&[("b", 3)])), Some("b"));
        assert_eq!(joined.conflict(&of(&[("c", 3)])), None);
    }
}
