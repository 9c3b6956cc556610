//! Activations recorded from a real forward pass, in one safetensors file.

use std::{
    collections::BTreeMap,
    ops::Range,
    path::{Path, PathBuf},
};

use ndarray::Array2;

use super::{ActivationsError, IndexSource};
use crate::checkpoint::{
    Digests, Model, Site, StoredType,
    shard::{Entry, Shard},
};

/// A file of recorded activations, its header checked.
#[derive(Debug)]
pub(super) struct Recorded {
    path: PathBuf,
    shard: Shard,
    sites: BTreeMap<(u32, Site), Tensor>,
    shared: Option<Tensor>,
    width: usize,
    hidden: usize,
    /// The rank of the indexer's queries, where the model has an indexer.
    rank: Option<usize>,
}

/// The recorded inputs of a layer's indexer.
struct IndexTensors {
    hidden: Tensor,
    latent: Option<Tensor>,
}

/// One site's x, or another tensor with a row per token.
#[derive(Clone, Debug)]
struct Tensor {
    name: String,
    tokens: usize,
    stored: StoredType,
}

impl Recorded {
    /// Opens a file and checks every tensor of activations against the model.
    pub(super) fn open(path: &Path, model: &Model) -> Result<Self, ActivationsError> {
        let shard = Shard::open(path, &|name| name == "x" || name.starts_with("layers."))?;
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
            let stored = stored_type(path, name, entry)?;
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
        let is_hidden = |name: &String| name.ends_with(".indexer.hidden_states");
        let indexed = shard.entries.keys().any(is_hidden);
        if sites.is_empty() && shared.is_none() && !indexed {
            let tensors = shard.total;
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
            hidden: model.hidden,
            rank: model.indexer.map(|indexer| indexer.rank),
        })
    }

    /// What tells this file from another of the same name.
    pub(super) fn fingerprint(&self) -> Result<String, ActivationsError> {
        let mut samples = Digests::default();
        for (name, entry) in &self.shard.entries {
            self.shard.sample((name, entry), name, &mut samples)?;
        }
        Ok(samples.whole())
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
        self.rows(tensor, self.width, tokens, "--tokens").map(Some)
    }

    /// What a sublayer made of the first `tokens` tokens. Only a chain asks for it, so it is checked here.
    pub(super) fn output(
        &self,
        layer: u32,
        site: Site,
        tokens: usize,
    ) -> Result<Array2<f32>, ActivationsError> {
        let name = format!("layers.{layer}.{site}.f");
        let Some(entry) = self.shard.entries.get(&name) else {
            return Err(ActivationsError::NoOutput {
                path: self.path.clone(),
                tensor: name,
            });
        };
        let tensor = match entry.shape[..] {
            [tokens, hidden] if hidden == self.hidden => Tensor {
                tokens,
                stored: stored_type(&self.path, &name, entry)?,
                name,
            },
            _ => {
                return Err(ActivationsError::OutputShape {
                    path: self.path.clone(),
                    tensor: name,
                    found: entry.shape.clone(),
                    hidden: self.hidden,
                });
            }
        };
        let rows = self.rows(&tensor, self.hidden, 0..tokens, "--tokens")?;
        let is_odd = |(_, value): &((usize, usize), &f32)| !value.is_finite();
        match rows.indexed_iter().find(is_odd) {
            None => Ok(rows),
            Some(((token, _), &value)) => Err(ActivationsError::NonFiniteOutput {
                path: self.path.clone(),
                tensor: tensor.name,
                token,
                value,
            }),
        }
    }

    /// What was recorded for a layer's indexer, which has its own suites alone: it is checked here.
    fn index_tensors(&self, layer: u32) -> Result<Option<IndexTensors>, ActivationsError> {
        let hidden = self.index_tensor(layer, "hidden_states", self.hidden, "hidden size")?;
        let (Some(hidden), Some(rank)) = (hidden, self.rank) else {
            return Ok(None);
        };
        let latent = self.index_tensor(layer, "q_residual", rank, "query rank")?;
        match latent {
            Some(latent) if latent.tokens != hidden.tokens => Err(ActivationsError::OtherTokens {
                path: self.path.clone(),
                tensor: latent.name,
                found: latent.tokens,
                hidden: hidden.tokens,
            }),
            latent => Ok(Some(IndexTensors { hidden, latent })),
        }
    }

    /// A tensor of [tokens, `width`], if it is there.
    fn index_tensor(
        &self,
        layer: u32,
        part: &str,
        width: usize,
        what: &'static str,
    ) -> Result<Option<Tensor>, ActivationsError> {
        let name = index_name(layer, part);
        let Some(entry) = self.shard.entries.get(&name) else {
            return Ok(None);
        };
        match entry.shape[..] {
            [tokens, found] if tokens > 0 && found == width => Ok(Some(Tensor {
                tokens,
                stored: stored_type(&self.path, &name, entry)?,
                name,
            })),
            _ => Err(ActivationsError::IndexShape {
                path: self.path.clone(),
                tensor: name,
                found: entry.shape.clone(),
                width,
                what,
            }),
        }
    }

    pub(super) fn index_source(&self, layer: u32) -> Result<Option<IndexSource>, ActivationsError> {
        let tensors = self.index_tensors(layer)?;
        Ok(tensors.map(|IndexTensors { hidden, latent }| IndexSource {
            tokens: hidden.tokens,
            normed: true,
            hidden: hidden.stored,
            latent: latent.map(|latent| latent.stored),
        }))
    }

    pub(super) fn index_hidden(
        &self,
        layer: u32,
        tokens: Range<usize>,
    ) -> Result<Array2<f32>, ActivationsError> {
        let Some(tensors) = self.index_tensors(layer)? else {
            return Err(ActivationsError::NoHidden {
                path: self.path.clone(),
                tensor: index_name(layer, "hidden_states"),
            });
        };
        self.index_rows(&tensors.hidden, self.hidden, tokens)
    }

    /// Rows of an indexer's input, all of them numbers.
    fn index_rows(
        &self,
        tensor: &Tensor,
        width: usize,
        tokens: Range<usize>,
    ) -> Result<Array2<f32>, ActivationsError> {
        let first = tokens.start;
        let rows = self.rows(tensor, width, tokens, "--context")?;
        match rows.indexed_iter().find(|(_, value)| !value.is_finite()) {
            None => Ok(rows),
            Some(((row, channel), &value)) => Err(ActivationsError::NonFiniteIndex {
                path: self.path.clone(),
                tensor: tensor.name.clone(),
                token: first + row,
                channel,
                value,
            }),
        }
    }

    pub(super) fn index_latent(
        &self,
        layer: u32,
        tokens: Range<usize>,
    ) -> Result<Option<Array2<f32>>, ActivationsError> {
        let tensors = self.index_tensors(layer)?;
        let latent = tensors.and_then(|tensors| tensors.latent);
        match (latent, self.rank) {
            (Some(latent), Some(rank)) => self.index_rows(&latent, rank, tokens).map(Some),
            _ => Ok(None),
        }
    }

    /// Rows of `width` values; `flag` is what asks for so many tokens.
    fn rows(
        &self,
        tensor: &Tensor,
        width: usize,
        tokens: Range<usize>,
        flag: &'static str,
    ) -> Result<Array2<f32>, ActivationsError> {
        if tokens.end > tensor.tokens {
            return Err(ActivationsError::TooFewTokens {
                path: self.path.clone(),
                tensor: tensor.name.clone(),
                found: tensor.tokens,
                wanted: tokens.end,
                flag,
            });
        }
        // A tensor is made of the entry of its name.
        let Some(entry) = self.shard.entries.get(&tensor.name) else {
            return Ok(Array2::default((0, 0)));
        };
        let row = width * tensor.stored.bytes();
        let mut bytes = vec![0_u8; tokens.len() * row];
        self.shard
            .read_at(&tensor.name, entry, (tokens.start * row) as u64, &mut bytes)?;
        let mut values = Vec::with_capacity(tokens.len() * width);
        tensor.stored.decode_into(&bytes, &mut values);
        // The header's check of shape against bytes makes the length right.
        Ok(Array2::from_shape_vec((tokens.len(), width), values).unwrap_or_default())
    }
}

/// The type of a tensor, if it is one that activations have.
fn stored_type(path: &Path, name: &str, entry: &Entry) -> Result<StoredType, ActivationsError> {
    StoredType::from_name(&entry.dtype)
        .filter(|stored| stored.is_plain_float())
        .ok_or_else(|| ActivationsError::WrongType {
            path: path.to_owned(),
            tensor: name.to_owned(),
            found: entry.dtype.clone(),
        })
}

/// The site of `layers.N.attn.x` or `layers.N.ffn.x`.
fn site_of(name: &str) -> Option<(u32, Site)> {
    let (layer, site) = name
        .strip_prefix("layers.")?
        .strip_suffix(".x")?
        .split_once('.')?;
    Some((layer.parse().ok()?, site.parse().ok()?))
}

/// The name of a recorded input of a layer's indexer.
fn index_name(layer: u32, part: &str) -> String {
    format!("layers.{layer}.indexer.{part}")
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
