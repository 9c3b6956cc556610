//! What of interest is in a checkpoint, and what is not: the facts behind `inspect`.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Checkpoint, CheckpointError, Family, Group, ReadBuffers, Site, StoredType, TensorStats, layers,
    locate::Located,
    names::{HC_PARTS, INDEXER_PARTS, head_name, indexer_name, norm_name},
    stats,
};

/// A tensor of interest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The layer; `None` for tensors of the whole model.
    pub layer: Option<u32>,
    /// Whether that is a layer that predicts further tokens, which nothing measures.
    pub mtp: bool,
    /// What it belongs to.
    pub group: Group,
    /// The official name.
    pub official: String,
    /// The name in the file.
    pub stored: String,
    /// The type as the file spells it.
    pub dtype: String,
    /// The dimensions.
    pub shape: Vec<usize>,
    /// The file's name, or `synthetic`.
    pub file: String,
}

/// All tensors of interest, and the official names of those that should be there too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inventory {
    /// By layer, the whole model's last; within a layer by group and name.
    pub items: Vec<Item>,
    /// Those of the layers that predict further tokens, which nothing measures; in the same order.
    pub mtp: Vec<Item>,
    /// What the layers that are there lack.
    pub missing: Vec<String>,
}

impl Checkpoint {
    /// Lists the tensors of interest; reads none of them.
    #[must_use]
    pub fn inventory(&self) -> Inventory {
        let indexed = self.indexed_layers();
        let is_listed = |located: &Located| match located.group {
            // A query projection without an indexer behind it is not of interest.
            Group::Indexer => located.layer.is_some_and(|l| indexed.contains(&l)),
            // Of this one only some rows are, and statistics of the whole cost a gigabyte's reading.
            Group::Embedding => false,
            // Looked at by the chain alone, and large.
            Group::SharedExpert => false,
            Group::Hc | Group::Head | Group::Norm | Group::Mtp => true,
        };
        let items = |tensors: &BTreeMap<String, Located>, mtp: bool| {
            let listed = tensors.iter().filter(|(_, located)| is_listed(located));
            let mut items: Vec<Item> = listed
                .map(|(official, located)| Item::new(official, located, mtp))
                .collect();
            items.sort_by(|a, b| {
                let key = |item: &Item| (item.layer.is_none(), item.layer, item.group);
                key(a)
                    .cmp(&key(b))
                    .then_with(|| a.official.cmp(&b.official))
            });
            items
        };
        Inventory {
            items: items(&self.found.tensors, false),
            mtp: items(&self.found.mtp, true),
            missing: self.missing(&indexed),
        }
    }

    /// Reads a tensor of the inventory once, through `buffers`; `None` if its type is not one the tool
    /// decodes.
    ///
    /// # Errors
    ///
    /// If the tensor cannot be read.
    pub fn stats(
        &self,
        item: &Item,
        buffers: &mut ReadBuffers,
    ) -> Result<Option<TensorStats>, CheckpointError> {
        match self.tensor(&item.official) {
            Some(located) => stats::measure(self, located, buffers),
            None => Ok(None),
        }
    }

    /// The layers that have, or by the configuration should have, an indexer.
    pub(super) fn indexed_layers(&self) -> BTreeSet<u32> {
        let configured = self
            .found
            .config
            .iter()
            .flat_map(|config| &config.indexer_layers);
        let there = self
            .found
            .tensors
            .iter()
            .filter(|(name, _)| name.contains(".attn.indexer."))
            .filter_map(|(_, located)| located.layer);
        there.chain(configured.copied()).collect()
    }

    fn missing(&self, indexed: &BTreeSet<u32>) -> Vec<String> {
        let here: BTreeSet<u32> = self
            .found
            .tensors
            .values()
            .filter(|located| located.group != Group::SharedExpert)
            .filter_map(|l| l.layer)
            .collect();
        let mut expected = Vec::new();
        for &layer in &here {
            expected.extend(layers::missing_parts(&self.found, layer));
            expected.extend(Site::ALL.map(|site| norm_name(Some((layer, site)))));
            // V4.1 shares indexers between layers, so that no layer must have all its parts.
            if indexed.contains(&layer) && self.model.family != Family::V41Flash {
                expected.extend(INDEXER_PARTS.map(|part| indexer_name(layer, part)));
            }
        }
        if self.model.family != Family::V41Flash {
            expected.extend(HC_PARTS.map(head_name));
        }
        expected.push(norm_name(None));
        for (name, located) in &self.found.tensors {
            if located.group != Group::SharedExpert
                && located.dtype == StoredType::F8E4M3.name()
                && located
                    .layer
                    .is_none_or(|l| located.group != Group::Indexer || indexed.contains(&l))
                && let Some(stem) = name.strip_suffix(".weight")
            {
                expected.push(format!("{stem}.scale"));
            }
        }
        expected.retain(|name| self.tensor(name).is_none());
        expected
    }
}

impl Item {
    fn new(official: &str, located: &Located, mtp: bool) -> Self {
        Self {
            layer: located.layer,
            mtp,
            group: located.group,
            official: official.to_owned(),
            stored: located.stored.clone(),
            dtype: located.dtype.clone(),
            shape: located.shape.clone(),
            file: located.file.clone(),
        }
    }
}
