//! What to take out of a checkpoint.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::HubError;
use crate::checkpoint::{Group, is_embedding, is_mtp};

/// More rows than this are the better part of an embedding.
const MOST_ROWS: usize = 1 << 16;

/// What is asked for beside what the default suites read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    /// The shared expert of every layer.
    pub shared_experts: bool,
    /// Rows of the embedding: token ids, ascending.
    pub embed_rows: Vec<u64>,
}

impl Selection {
    /// Whether all of a tensor is wanted.
    pub(super) fn wants(&self, tensor: &str) -> bool {
        match Group::of(tensor) {
            Some(Group::SharedExpert) => self.shared_experts,
            Some(group) => group.is_usual() && !is_mtp(tensor),
            None => false,
        }
    }

    /// Whether rows of a tensor are wanted.
    pub(super) fn wants_rows(&self, tensor: &str) -> bool {
        !self.embed_rows.is_empty() && is_embedding(tensor)
    }
}

impl FromStr for Selection {
    type Err = HubError;

    /// Parses a list such as `norms,shared-experts,embed-rows=0,7-9`: numbers belong to the word before them.
    fn from_str(text: &str) -> Result<Self, HubError> {
        let mut selection = Self::default();
        let mut in_rows = false;
        for part in text.split(',').map(str::trim) {
            let rows = match part.strip_prefix("embed-rows=") {
                Some(rows) => Some(rows),
                None if in_rows && part.starts_with(|c: char| c.is_ascii_digit()) => Some(part),
                None => None,
            };
            in_rows = rows.is_some();
            match (rows, part) {
                (Some(rows), _) => selection.add_rows(rows)?,
                // They are always there; the word is for those who want to say so.
                (None, "norms") => {}
                (None, "shared-experts") => selection.shared_experts = true,
                _ => return Err(HubError::Selection(part.to_owned())),
            }
        }
        selection.embed_rows.sort_unstable();
        selection.embed_rows.dedup();
        Ok(selection)
    }
}

impl Selection {
    /// Adds one id, or a range of them.
    fn add_rows(&mut self, text: &str) -> Result<(), HubError> {
        let wrong = |found| HubError::Rows {
            text: text.to_owned(),
            found,
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let number = |text: &str| text.parse::<u64>().map_err(|_| wrong("it is no token id"));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(wrong("it ends before it begins"));
        }
        if (last - first) as usize >= MOST_ROWS - self.embed_rows.len().min(MOST_ROWS) {
            return Err(wrong("that is more than 65536 rows"));
        }
        self.embed_rows.extend(first..=last);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        let parsed: Selection = "embed-rows=7-9,0,shared-experts,norms"
            .parse()
            .expect("a list");
        assert!(parsed.shared_experts);
        assert_eq!(parsed.embed_rows, [0, 7, 8, 9]);
        let parsed: Selection = "norms".parse().expect("a list");
        assert_eq!(parsed, Selection::default());
        for wrong in [
            "",
            "experts",
            "norms,",
            "7",
            "norms,7",
            "embed-rows=",
            "embed-rows=x",
            "embed-rows=9-7",
            "embed-rows=0-99999999999",
            "embed-rows=0-65535,7",
            "embed-rows=-1",
        ] {
            assert!(wrong.parse::<Selection>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn what_is_wanted() {
        let usual = Selection::default();
        for tensor in [
            "layers.0.hc_attn_fn",
            "model.hc_head.hc_fn",
            "norm.weight",
            "layers.2.attn.wq_a.scale",
        ] {
            assert!(usual.wants(tensor), "{tensor}");
        }
        for tensor in [
            "layers.0.ffn.shared_experts.w1.weight",
            "embed.weight",
            "mtp.0.hc_attn_fn",
            "head.weight",
        ] {
            assert!(
                !usual.wants(tensor) && !usual.wants_rows(tensor),
                "{tensor}"
            );
        }
        let more: Selection = "shared-experts,embed-rows=1".parse().expect("a list");
        assert!(more.wants("layers.0.ffn.shared_experts.w1.weight"));
        assert!(more.wants_rows("model.embed_tokens.weight") && !more.wants("embed.weight"));
    }
}
