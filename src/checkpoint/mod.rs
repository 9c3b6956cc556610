//! Checkpoints: finding and reading the few tensors the tool needs, by family, out of shards that
//! may be hundreds of gigabytes; and making them up where there is no checkpoint.
//!
//! What lives here: names and shapes, safetensors headers and positional reads, the synthetic
//! generator and its writer. What may not: any arithmetic on the weights beyond their statistics.
//!
//! | file | what it says |
//! |---|---|
//! | `locate`, `hub_cache` | from what the user names to files |
//! | `gather` | from files to tensors of interest |
//! | `index`, `shard`, `header`, `entry`, `config`, `json` | the formats, distrustful of what was downloaded |
//! | `names` | three spellings, one official name |
//! | `family` | dimensions and constants of the model |
//! | `layers`, `hc` | which layers are complete; a site's weights |
//! | `norm`, `head`, `embedding`, `shared_expert` | the other weights of a chain of layers |
//! | `indexer`, `indexer_model`, `rope` | a layer's indexer: weights, dimensions, rotary embedding |
//! | `values` | a tensor of plain floats, checked and read whole |
//! | `matrix` | a matrix of plain floats, FP8 or FP4 codes, dequantised |
//! | `dtype` | stored types, decoded without loss to f32 |
//! | `synthetic` | weights with the published statistics |
//! | `write` | a synthetic checkpoint on disk |
//! | `inventory`, `stats`, `dense` | what `inspect` shows |

pub(crate) mod config;
mod dense;
mod digest;
mod dtype;
mod embedding;
mod entry;
mod error;
mod family;
mod gather;
mod hc;
mod head;
pub(crate) mod header;
mod hub_cache;
pub(crate) mod index;
mod indexer;
mod indexer_model;
mod inventory;
mod json;
mod layers;
mod locate;
mod matrix;
mod names;
mod norm;
mod rope;
pub(crate) mod shard;
mod shared_expert;
mod site;
mod stats;
mod synthetic;
mod values;
mod write;

pub use dense::Content;
pub use digest::Digests;
pub use dtype::StoredType;
pub use embedding::Vocabulary;
pub use error::CheckpointError;
pub use family::{Family, Model};
pub use hc::HcWeights;
pub use head::HeadWeights;
pub use indexer::IndexerWeights;
pub use indexer_model::IndexerModel;
pub use inventory::{Inventory, Item};
pub use layers::ranges;
pub use matrix::{Fp8Blocks, Linear};
pub use names::Group;
pub(crate) use names::{IDS_SUFFIX, ROWS_SUFFIX, TOKENS_SUFFIX, is_embedding, is_mtp};
pub use rope::{Rope, Yarn};
pub use shared_expert::SharedExpert;
pub use site::{NonFinite, Site, WeightKind};
pub use stats::{ReadBuffers, TensorStats};
pub use synthetic::SyntheticModel;
pub(crate) use write::vacant;
pub use write::{Written, parse_layers, write_synthetic};

/// What a checkpoint is made of, by itself and in memory: for the fuzz targets and the replay of what they found
/// (`fuzz/`), and no part of the interface.
#[doc(hidden)]
pub mod formats {
    pub use super::{
        config::Config,
        entry::Entry,
        header::Header,
        index::Index,
        rope::RopeConfig,
        shard::{START, SYNTHETIC_KEY, header_length},
    };
}

use std::path::PathBuf;

use sha2::Digest;

use layers::{evidence, set_mtp_aside};
use locate::{Found, Located, Place, Strictness};
use names::HC_PARTS;
use synthetic::Generator;

#[cfg(test)]
mod tests;

/// The prefix of a checkpoint that needs no disk.
const SYNTHETIC_PREFIX: &str = "synthetic:";

/// Bytes per read: a multiple of every element size, so that no element is cut, and few enough to be
/// in cache still when they are decoded. Memory stays at this whatever the tensor's size.
const PIECE: usize = 1 << 18;

/// An open checkpoint: its model is known, its headers are checked, its tensors are not yet read.
#[derive(Debug)]
pub struct Checkpoint {
    source: String,
    kind: WeightKind,
    model: Model,
    layers: Vec<u32>,
    found: Found,
    generator: Option<Generator>,
}

impl Checkpoint {
    /// Opens a directory with an index or `.safetensors` files, such files with commas between, `ORG/MODEL` or
    /// `ORG/MODEL@REVISION` of the local Hugging Face cache, or `synthetic:flash|pro|v4.1|tiny`.
    ///
    /// # Errors
    ///
    /// Any defect of the hyper-connection tensors. Defects of others are notes.
    pub fn open(spec: &str) -> Result<Self, CheckpointError> {
        Self::open_with(spec, Strictness::Strict)
    }

    /// Opens what can be opened: defects are notes as long as one layer can be read.
    ///
    /// # Errors
    ///
    /// Where there is nothing to inspect.
    pub fn open_for_inspection(spec: &str) -> Result<Self, CheckpointError> {
        Self::open_with(spec, Strictness::Lenient)
    }

    /// A synthetic checkpoint in memory.
    ///
    /// # Errors
    ///
    /// None for the models there are; the checks are those of a checkpoint on disk.
    pub fn synthetic(model: SyntheticModel, seed: u64) -> Result<Self, CheckpointError> {
        let generator = Generator::new(model, seed);
        Self::conclude(
            format!("{SYNTHETIC_PREFIX}{model}"),
            generator.found()?,
            Some(generator),
            Strictness::Strict,
        )
    }

    fn open_with(spec: &str, strictness: Strictness) -> Result<Self, CheckpointError> {
        if let Some(name) = spec.strip_prefix(SYNTHETIC_PREFIX) {
            return Self::synthetic(name.parse()?, 0);
        }
        Self::conclude(
            spec.to_owned(),
            locate::find(spec, strictness)?,
            None,
            strictness,
        )
    }

    /// Works out model, layers and kind from what was found.
    fn conclude(
        source: String,
        mut found: Found,
        generator: Option<Generator>,
        strictness: Strictness,
    ) -> Result<Self, CheckpointError> {
        let marked = found.config.as_ref().is_some_and(|config| config.synthetic)
            || found.shards.iter().any(|shard| shard.synthetic);
        let kind = match marked || generator.is_some() {
            true => WeightKind::Synthetic,
            false => WeightKind::Real,
        };
        set_mtp_aside(&mut found);
        let mut model = {
            let Some(evidence) = evidence(&found) else {
                return Err(layers::nothing_to_measure(source, &found));
            };
            family::conclude(&evidence, found.config.as_ref())?
        };
        let layers = layers::complete(&source, &model, &mut found, strictness)?;
        model.notes.append(&mut found.problems);
        model.notes.extend(layers::note_absent(&model, &found));
        Ok(Self {
            source,
            kind,
            model,
            layers,
            found,
            generator,
        })
    }

    /// The model's dimensions and constants.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Whether the weights are real or synthetic.
    #[must_use]
    pub fn kind(&self) -> WeightKind {
        self.kind
    }

    /// The checkpoint as the user named it.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The commit that the name stands for, where it was resolved in the Hugging Face cache.
    #[must_use]
    pub fn revision(&self) -> Option<&str> {
        self.found.commit.as_deref()
    }

    /// What tells this checkpoint from another of the same name, without reading all of it: a digest of the model's
    /// constants, and of name, type, shape and some bytes, from the first to the last, of every tensor of interest.
    ///
    /// # Errors
    ///
    /// If a tensor cannot be read.
    pub fn fingerprint(&self) -> Result<String, CheckpointError> {
        let mut samples = Digests::default();
        samples.add("config.json", "", &[], |digest| {
            digest.update(format!("{:?}", self.model));
        });
        for (name, located) in &self.found.tensors {
            if let Place::Shard(number) = located.place {
                let shard = self.found.shards.get(number);
                let entry = shard.and_then(|shard| shard.entries.get_key_value(&located.stored));
                if let (Some(shard), Some((stored, entry))) = (shard, entry) {
                    shard.sample((stored, entry), name, &mut samples)?;
                }
            }
        }
        Ok(samples.whole())
    }

    /// The layers with all their hyper-connection tensors, ascending; MTP layers never.
    #[must_use]
    pub fn layers(&self) -> &[u32] {
        &self.layers
    }

    /// Reads the hyper-connection weights of one site.
    ///
    /// # Errors
    ///
    /// If the layer or a tensor of it is not there, cannot be read, or holds NaN or infinities
    /// and `nonfinite` refuses them.
    pub fn hc(
        &self,
        layer: u32,
        site: Site,
        nonfinite: NonFinite,
    ) -> Result<HcWeights, CheckpointError> {
        self.require_layer(layer)?;
        hc::read(self, layer, site, nonfinite)
    }

    /// The layer must be complete.
    fn require_layer(&self, layer: u32) -> Result<(), CheckpointError> {
        if self.layers.contains(&layer) {
            return Ok(());
        }
        Err(match layers::missing_parts(&self.found, layer) {
            missing if missing.len() == 2 * HC_PARTS.len() => CheckpointError::MissingLayer {
                layer,
                spec: self.source.clone(),
                have: layers::ranges(&self.layers),
            },
            missing => CheckpointError::IncompleteLayer {
                layer,
                spec: self.source.clone(),
                missing: missing.join(", "),
            },
        })
    }

    /// Looks a tensor up by its official name.
    fn tensor(&self, name: &str) -> Option<&Located> {
        let found = &self.found;
        found.tensors.get(name).or_else(|| found.mtp.get(name))
    }

    /// Passes a tensor's bytes on in pieces of at most [`PIECE`] bytes, read into `buffer`.
    fn visit(
        &self,
        located: &Located,
        buffer: &mut Vec<u8>,
        mut visit: impl FnMut(&[u8]),
    ) -> Result<(), CheckpointError> {
        match (&located.place, &self.generator) {
            (Place::Synthetic(spec), Some(generator)) => {
                generator.bytes(spec).chunks(PIECE).for_each(visit);
                Ok(())
            }
            (Place::Shard(number), _) if *number < self.found.shards.len() => {
                let shard = &self.found.shards[*number];
                let Some(entry) = shard.entries.get(&located.stored) else {
                    return Err(nowhere(located));
                };
                let length = entry.end - entry.begin;
                buffer.resize(PIECE.min(length as usize), 0);
                let mut offset = 0;
                while offset < length {
                    let take = (length - offset).min(PIECE as u64) as usize;
                    shard.read_at(&located.stored, entry, offset, &mut buffer[..take])?;
                    visit(&buffer[..take]);
                    offset += take as u64;
                }
                Ok(())
            }
            // A place is made together with the shard or generator that it names.
            _ => Err(nowhere(located)),
        }
    }
}

/// A tensor that is not where it was found.
fn nowhere(located: &Located) -> CheckpointError {
    CheckpointError::TensorAbsent {
        tensor: located.stored.clone(),
        shard: PathBuf::from(&located.file),
    }
}
