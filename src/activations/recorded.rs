//! Activations recorded from a real forward pass, in one safetensors file.

use std::{
    collections::BTreeMap,
    ops::Range,
    path::{Path, PathBuf},
};

use ndarray::Array2;

use super::ActivationsError;
use crate::checkpoint::{Model, Site, StoredType, shard::Shard};

/// A file of recorded activations, its header checked.
#[derive(Debug)]
pub(super) struct Recorded {
    path: PathBuf,
    shard: Shard,
    sites: BTreeMap<(u32, Site), Tensor>,
    shared: Option<Tensor>,
    width: usize,
}

/// One site's x.
#[derive(Clone, Debug)]
struct Tensor {
    name: String,
    tokens: usize,
    stored: StoredType,
}

impl Recorded {
    /// Opens a file and checks every tensor of activations against the model.
    pub(super) fn open(path: &Path, model: &Model) -> Result<Self, ActivationsError> {
        let shard = Shard::open(path)?;
        let mut sites = BTreeMap::new();
        let mut shared = None;
        for (name, entry) in &shard.entries {
            let site = site_of(name);
            if site.is_none() && name != "x" {
                continue;
            }
            let [tokens, hc, hidden] = entry.shape[..] else {
                return Err(wrong_shape(path, name, &entry.shape, model));
            };
            if tokens == 0 || (hc, hidden) != (model.hc, model.hidden) {
                return Err(wrong_shape(path, name, &entry.shape, model));
            }
            let stored = StoredType::from_name(&entry.dtype)
                .filter(|stored| stored.is_plain_float())
                .ok_or_else(|| ActivationsError::WrongType {
                    path: path.to_owned(),
                    tensor: name.clone(),
                    found: entry.dtype.clone(),
                })?;
            let tensor = Tensor {
                name: name.clone(),
                tokens,
                stored,
            };
            match site {
                Some(site) => drop(sites.insert(site, tensor)),
                None => shared = Some(tensor),
            }
        }
        if sites.is_empty() && shared.is_none() {
            let tensors = shard.entries.len();
            return Err(ActivationsError::NoTensor {
                path: path.to_owned(),
                tensors,
            });
        }
        Ok(Self {
            path: path.to_owned(),
            shard,
            sites,
            shared,
            width: model.width(),
        })
    }

    fn tensor(&self, layer: u32, site: Site) -> Option<&Tensor> {
        self.sites.get(&(layer, site)).or(self.shared.as_ref())
    }

    pub(super) fn available(&self, layer: u32, site: Site) -> Option<usize> {
        self.tensor(layer, site).map(|tensor| tensor.tokens)
    }

    pub(super) fn exact_in(&self, layer: u32, site: Site) -> Option<StoredType> {
        self.tensor(layer, site).map(|tensor| tensor.stored)
    }

    pub(super) fn tokens(
        &self,
        layer: u32,
        site: Site,
        tokens: Range<usize>,
    ) -> Result<Option<Array2<f32>>, ActivationsError> {
        let Some(tensor) = self.tensor(layer, site) else {
            return Ok(None);
        };
        if tokens.end > tensor.tokens {
            return Err(ActivationsError::TooFewTokens {
                path: self.path.clone(),
                tensor: tensor.name.clone(),
                found: tensor.tokens,
                wanted: tokens.end,
            });
        }
        let Some(entry) = self.shard.entries.get(&tensor.name) else {
            return Ok(None);
        };
        let row = self.width * tensor.stored.bytes();
        let mut bytes = vec![0_u8; tokens.len() * row];
        self.shard
            .read_at(&tensor.name, entry, (tokens.start * row) as u64, &mut bytes)?;
        let mut values = Vec::with_capacity(tokens.len() * self.width);
        tensor.stored.decode_into(&bytes, &mut values);
        let rows = Array2::from_shape_vec((tokens.len(), self.width), values);
        // The header's check of shape against bytes makes the length right.
        Ok(rows.ok())
    }
}

/// The site of `layers.N.attn.x` or `layers.N.ffn.x`.
fn site_of(name: &str) -> Option<(u32, Site)> {
    let (layer, site) = name
        .strip_prefix("layers.")?
        .strip_suffix(".x")?
        .split_once('.')?;
    Some((layer.parse().ok()?, site.parse().ok()?))
}

fn wrong_shape(path: &Path, name: &str, found: &[usize], model: &Model) -> ActivationsError {
    ActivationsError::WrongShape {
        path: path.to_owned(),
        tensor: name.to_owned(),
        found: found.to_vec(),
        hc: model.hc,
        hidden: model.hidden,
    }
}
