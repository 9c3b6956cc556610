//! The weights of one layer's indexer, V4's: what leads from hidden states to queries, keys and head weights.
//!
//! | weight | official name behind `layers.N.` | shape | stored as |
//! |---|---|---|---|
//! | `attn_norm` | `attn_norm.weight` | [d] | BF16, F16, F32 |
//! | `wq_a` | `attn.wq_a` | [R, d] | those, or FP8 with scales |
//! | `q_norm` | `attn.q_norm.weight` | [R] | BF16, F16, F32 |
//! | `wq_b` | `attn.indexer.wq_b` | [H·W, R] | those, or FP8 with scales |
//! | `weights_proj` | `attn.indexer.weights_proj.weight` | [H, d] | BF16, F16, F32 |
//! | `wkv`, `wgate` | `attn.indexer.compressor.{wkv,wgate}.weight` | [2W, d] | BF16, F16, F32 |
//! | `ape` | `attn.indexer.compressor.ape` | [4, 2W] | BF16, F16, F32 |
//! | `k_norm` | `attn.indexer.compressor.norm.weight` | [W] | BF16, F16, F32 |
//!
//! The first W columns of a window go to the key behind it, the others to its own: hence 2W.

use std::collections::BTreeMap;

use ndarray::Array2;

use super::{
    Checkpoint, CheckpointError, Digests, Family, IndexerModel, NonFinite, Site, StoredType,
    error::{quoted, shape_text},
    layers,
    locate::Located,
    matrix::{Accepted, Linear, Matrices, Matrix},
    names::{Group, INDEXER_PARTS, indexer_name, norm_name},
    values::{self, Reading},
};

/// What a layer's indexer multiplies with; every value exactly as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexerWeights {
    /// Of the norm before attention, `[d]`.
    pub attn_norm: Vec<f32>,
    /// The query projection down to the rank, which attention shares, [R, d].
    pub wq_a: Linear,
    /// Of the norm behind it, `[R]`.
    pub q_norm: Vec<f32>,
    /// The query projection up, [H·W, R], head by head.
    pub wq_b: Linear,
    /// The heads' weights, [H, d].
    pub weights_proj: Array2<f32>,
    /// The keys' values, [2W, d].
    pub wkv: Array2<f32>,
    /// The scores by which the values of a window are averaged, [2W, d].
    pub wgate: Array2<f32>,
    /// What is added to the scores by place in the window, [ratio, 2W].
    pub ape: Array2<f32>,
    /// Of the norm of keys, `[W]`.
    pub k_norm: Vec<f32>,
    /// How each weight is stored, by its name within the layer: `indexer.wq_b` → F8_E4M3.
    pub stored: BTreeMap<&'static str, StoredType>,
    /// Of all that was read, scales included.
    pub digests: Digests,
}

/// A tensor of plain floats that is there, and of the right type and shape.
struct Plain<'a> {
    name: String,
    located: &'a Located,
}

impl Plain<'_> {
    fn read(&self, reading: &mut Reading<'_>) -> Result<Vec<f32>, CheckpointError> {
        reading.plain(self.located, &self.name)
    }

    fn read_matrix(&self, reading: &mut Reading<'_>) -> Result<Array2<f32>, CheckpointError> {
        let values = self.read(reading)?;
        let shape = match self.located.shape[..] {
            [rows, columns] => [rows, columns],
            _ => [1, values.len()],
        };
        // The header's check of shape against bytes makes the length right.
        Ok(Array2::from_shape_vec(shape, values).unwrap_or_default())
    }
}

/// An indexer's tensors, located and checked.
struct Parts<'a> {
    attn_norm: Plain<'a>,
    wq_a: Matrix<'a>,
    q_norm: Plain<'a>,
    wq_b: Matrix<'a>,
    weights_proj: Plain<'a>,
    wkv: Plain<'a>,
    wgate: Plain<'a>,
    ape: Plain<'a>,
    k_norm: Plain<'a>,
}

impl Parts<'_> {
    /// How each of them is stored.
    fn stored(&self) -> BTreeMap<&'static str, StoredType> {
        let located = [
            ("attn_norm", self.attn_norm.located),
            ("wq_a", self.wq_a.weight),
            ("q_norm", self.q_norm.located),
            ("indexer.wq_b", self.wq_b.weight),
            ("indexer.weights_proj", self.weights_proj.located),
            ("indexer.compressor.wkv", self.wkv.located),
            ("indexer.compressor.wgate", self.wgate.located),
            ("indexer.compressor.ape", self.ape.located),
            ("indexer.compressor.norm", self.k_norm.located),
        ];
        let stored = |(name, located): (_, &Located)| {
            // Another type would not have got through the checks.
            Some((name, StoredType::from_name(&located.dtype)?))
        };
        located.into_iter().filter_map(stored).collect()
    }
}

impl Checkpoint {
    /// The layers that have all tensors of V4's indexer, ascending. That they are of the right types and shapes is
    /// for [`Self::check_indexer`].
    #[must_use]
    pub fn indexer_layers(&self) -> Vec<u32> {
        if self.model.family == Family::V41Flash {
            return Vec::new();
        }
        let indexed = self.indexed_layers().into_iter();
        indexed
            .filter(|&layer| self.missing_of_indexer(layer).is_empty())
            .collect()
    }

    /// Why no layer is one of [`Self::indexer_layers`], naming the checkpoint; `None` where one is.
    #[must_use]
    pub fn why_no_indexer(&self) -> Option<String> {
        if !self.indexer_layers().is_empty() {
            return None;
        }
        let source = quoted(&self.source);
        if self.model.family == Family::V41Flash {
            return Some(format!(
                "{source} has the indexer of V4.1 (shared by layers, blocks selected before keys), where that of V4 is \
                 covered"
            ));
        }
        Some(match self.indexed_layers().first() {
            None => {
                format!("{source} has no indexer (layers.N.attn.indexer.wq_b.weight and the like)")
            }
            Some(&layer) => {
                let missing = self.missing_of_indexer(layer).join(", ");
                let instead = match self.other_forms(layer) {
                    None => String::new(),
                    Some(found) => format!(
                        ", but holds {found}, a fused, packed or renamed form that ulpdrift does not read"
                    ),
                };
                format!(
                    "{source} has no layer with a whole indexer: layer {layer} lacks {missing}{instead}"
                )
            }
        })
    }

    /// Whether a layer's indexer is there, of types and shapes that can be read; reads none of it.
    ///
    /// # Errors
    ///
    /// The first tensor that is not, or all that are missing.
    pub fn check_indexer(&self, layer: u32) -> Result<(), CheckpointError> {
        self.indexer_parts(layer).map(drop)
    }

    /// Reads a layer's indexer.
    ///
    /// # Errors
    ///
    /// As [`Self::check_indexer`], and if a tensor cannot be read or holds NaN or infinities and `nonfinite` refuses
    /// them.
    pub fn indexer(
        &self,
        layer: u32,
        nonfinite: NonFinite,
    ) -> Result<IndexerWeights, CheckpointError> {
        let parts = self.indexer_parts(layer)?;
        let mut reading = Reading::new(self, needed(layer), nonfinite);
        let from = &mut reading;
        Ok(IndexerWeights {
            attn_norm: parts.attn_norm.read(from)?,
            wq_a: parts.wq_a.read(from)?,
            q_norm: parts.q_norm.read(from)?,
            wq_b: parts.wq_b.read(from)?,
            weights_proj: parts.weights_proj.read_matrix(from)?,
            wkv: parts.wkv.read_matrix(from)?,
            wgate: parts.wgate.read_matrix(from)?,
            ape: parts.ape.read_matrix(from)?,
            k_norm: parts.k_norm.read(from)?,
            stored: parts.stored(),
            digests: reading.digests(),
        })
    }

    fn indexer_parts(&self, layer: u32) -> Result<Parts<'_>, CheckpointError> {
        let model = self.indexer_model(layer)?;
        let (hidden, rank) = (self.model.hidden, model.rank);
        let because = model.because(hidden);
        let absent = |name: &str| self.lacks_of_indexer(layer, name.to_owned());
        let matrices = Matrices {
            checkpoint: self,
            accepted: Accepted::UpToFp8,
            absent: &absent,
            advice: "convert it",
        };
        let linear = |part: &str, shape| matrices.find(indexer_name(layer, part), shape, &because);
        let plain = |name: String, shape: &[usize]| {
            let located = matrices.tensor(&name)?;
            values::check_shape_for(located, shape, &because)?;
            values::plain_float(located)?;
            Ok::<_, CheckpointError>(Plain { name, located })
        };
        let attn = |part: &str, shape: &[usize]| plain(indexer_name(layer, part), shape);
        let both = 2 * model.width;
        let rows = model.heads * model.width;
        Ok(Parts {
            attn_norm: plain(norm_name(Some((layer, Site::Attn))), &[hidden])?,
            wq_a: linear("wq_a", [rank, hidden])?,
            q_norm: attn("q_norm.weight", &[rank])?,
            wq_b: linear("indexer.wq_b", [rows, rank])?,
            weights_proj: attn("indexer.weights_proj.weight", &[model.heads, hidden])?,
            wkv: attn("indexer.compressor.wkv.weight", &[both, hidden])?,
            wgate: attn("indexer.compressor.wgate.weight", &[both, hidden])?,
            ape: attn("indexer.compressor.ape", &[model.ratio, both])?,
            k_norm: attn("indexer.compressor.norm.weight", &[model.width])?,
        })
    }

    /// The dimensions, if this layer has an indexer with all its tensors.
    fn indexer_model(&self, layer: u32) -> Result<&IndexerModel, CheckpointError> {
        if self.model.family == Family::V41Flash || self.indexed_layers().is_empty() {
            let why = self.why_no_indexer().unwrap_or_default();
            return Err(CheckpointError::Unindexed { layer, why });
        }
        if !self.indexed_layers().contains(&layer) {
            return Err(CheckpointError::NoIndexer {
                layer,
                spec: self.source.clone(),
                have: layers::ranges(&self.indexer_layers()),
            });
        }
        let missing = self.missing_of_indexer(layer);
        if !missing.is_empty() {
            return Err(self.lacks_of_indexer(layer, missing.join(", ")));
        }
        let unsupported = |found: &str, expected: String| {
            let query = self.tensor(&indexer_name(layer, "indexer.wq_b.weight"));
            let shape = query.map_or_else(String::new, |query| shape_text(&query.shape));
            CheckpointError::Unsupported {
                tensor: query.map_or_else(String::new, |query| query.stored.clone()),
                found: format!("has shape {shape}, {found}"),
                expected,
            }
        };
        let Some(model) = &self.model.indexer else {
            return Err(unsupported(
                "which is not rows of as many heads as indexer.weights_proj.weight has rows",
                "expected [heads·width, rank] beside [heads, hidden]".to_owned(),
            ));
        };
        if model.rope.dims > model.width {
            let found = format!("which is heads of width {}", model.width);
            let dims = model.rope.dims;
            return Err(unsupported(
                &found,
                format!(
                    "expected at least the {dims} dimensions that turn with the position (qk_rope_head_dim)"
                ),
            ));
        }
        Ok(model)
    }

    /// The official names of what a layer's indexer lacks, block scales aside.
    fn missing_of_indexer(&self, layer: u32) -> Vec<String> {
        let parts = INDEXER_PARTS.map(|part| indexer_name(layer, part));
        let norm = norm_name(Some((layer, Site::Attn)));
        let needed = [norm].into_iter().chain(parts);
        needed.filter(|name| self.tensor(name).is_none()).collect()
    }

    /// The stored names of what a layer has of an indexer under names that are none of V4's: packed or fused weights,
    /// another writer's scales.
    fn other_forms(&self, layer: u32) -> Option<String> {
        const SCALED: [&str; 2] = ["wq_a.scale", "indexer.wq_b.scale"];
        let known = INDEXER_PARTS.iter().chain(&SCALED);
        let known: Vec<String> = known.map(|part| indexer_name(layer, part)).collect();
        let of_layer =
            self.found.tensors.iter().filter(|(_, located)| {
                located.group == Group::Indexer && located.layer == Some(layer)
            });
        let names: Vec<String> = of_layer
            .filter(|(name, _)| !known.contains(name))
            .map(|(_, located)| quoted(&located.stored))
            .collect();
        (!names.is_empty()).then(|| names.join(", "))
    }

    fn lacks_of_indexer(&self, layer: u32, missing: String) -> CheckpointError {
        if let Some(found) = self.other_forms(layer) {
            return CheckpointError::OtherIndexer {
                spec: self.source.clone(),
                missing,
                layer,
                found,
            };
        }
        CheckpointError::Lacking {
            spec: self.source.clone(),
            missing,
            needed: needed(layer),
            advice: "complete the checkpoint, or choose other layers",
        }
    }
}

/// Where it is needed, for messages.
fn needed(layer: u32) -> String {
    format!("layer {layer} indexer")
}
