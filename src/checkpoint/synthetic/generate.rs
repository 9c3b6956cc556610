//! The values of a synthetic tensor, determined by seed, layer, site and role alone.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use half::{bf16, f16};
use rayon::prelude::*;

use super::blueprint::{HC, Role, SyntheticModel, TensorSpec};
use crate::{
    checkpoint::{
        CheckpointError, Site, StoredType,
        config::Config,
        locate::{Found, Located, Place},
    },
    format::{Rounding, e4m3, ue8m0},
    random::{Key, Purpose, Stream},
};

/// The published rms of `hc_fn`.
const FUNCTION_RMS: f64 = 0.039;

/// The published range of the largest magnitude of `hc_fn`.
const FUNCTION_MAX: std::ops::RangeInclusive<f32> = 0.6..=1.0;

/// The share of wide entries, and how much wider they are: the mixture's kurtosis is 27.
const WIDE_SHARE: f64 = 0.01;
const WIDE_FACTOR: f64 = 6.4;

/// The standard deviations of comb logits: in all, and of the part that the base adds.
const COMB_STD: f64 = 4.0;
const COMB_BASE_STD: f64 = 2.0;

/// The standard deviation of embeddings.
const EMBEDDING_STD: f64 = 0.02;

/// Makes the tensors of one synthetic model.
#[derive(Clone, Debug)]
pub(in super::super) struct Generator {
    pub(in super::super) model: SyntheticModel,
    pub(in super::super) seed: u64,
    /// Scales of weights that were asked for before their scales were: a scale follows from all
    /// values of its weight, and making those twice is half the work of a whole checkpoint.
    scales: Arc<Mutex<BTreeMap<Weight, Vec<u8>>>>,
}

/// A block-scaled weight: its layer and role.
type Weight = (Option<u32>, u8);

impl Generator {
    pub(in super::super) fn new(model: SyntheticModel, seed: u64) -> Self {
        Self {
            model,
            seed,
            scales: Arc::default(),
        }
    }

    /// What a directory written by `synth` would hold, without a disk.
    pub(in super::super) fn found(&self) -> Result<Found, CheckpointError> {
        let specs = (0..self.model.dims().layers)
            .flat_map(|layer| {
                let experts = self.model.expert_tensors(layer);
                self.model.layer_tensors(layer).into_iter().chain(experts)
            })
            .chain(self.model.closing_tensors());
        let tensors: BTreeMap<String, Located> = specs
            .map(|spec| {
                let located = Located {
                    layer: spec.layer,
                    group: spec.group,
                    stored: spec.name.clone(),
                    dtype: spec.dtype.name().to_owned(),
                    shape: spec.shape.clone(),
                    file: "synthetic".to_owned(),
                    place: Place::Synthetic(spec),
                };
                (located.stored.clone(), located)
            })
            .collect();
        let config = Config::of(Path::new("config.json"), &self.model.config(self.seed))?;
        let total = tensors.len();
        Ok(Found {
            tensors,
            total,
            config: Some(config),
            ..Found::default()
        })
    }

    /// The bytes of `tensor` as a safetensors file holds them.
    pub(in super::super) fn bytes(&self, tensor: &TensorSpec) -> Vec<u8> {
        let weight: Weight = (tensor.layer, tensor.role as u8);
        let scales = || self.scales.lock().unwrap_or_else(PoisonError::into_inner);
        if tensor.dtype == StoredType::F8E8M0
            && let Some(scales) = scales().remove(&weight)
        {
            return scales;
        }
        let values = self.values(tensor);
        let block = self.model.block();
        match tensor.dtype {
            StoredType::F32 => little_endian(&values, f32::to_le_bytes),
            StoredType::Bf16 => little_endian(&values, |v| bf16::from_f32(v).to_le_bytes()),
            StoredType::F16 => little_endian(&values, |v| f16::from_f32(v).to_le_bytes()),
            StoredType::F8E4M3 => {
                let codes = block_scales(&values, tensor.shape[1], block);
                scales().insert(weight, codes.clone());
                encode_blocks(&values, tensor.shape[1], block, &codes)
            }
            StoredType::F8E8M0 => block_scales(&values, tensor.shape[1] * block, block),
        }
    }

    /// The bytes of one row of the embedding, `tensor`, as [`Self::bytes`] has them.
    pub(in super::super) fn embedding_row(&self, tensor: &TensorSpec, row: usize) -> Vec<u8> {
        let mut values = vec![0.0; tensor.shape[1]];
        self.normal_row(tensor, row, (0.0, EMBEDDING_STD), &mut values);
        little_endian(&values, |v| bf16::from_f32(v).to_le_bytes())
    }

    /// The values before rounding to the stored type; a scale tensor's are its weight's.
    fn values(&self, tensor: &TensorSpec) -> Vec<f32> {
        let hidden = self.model.dims().hidden;
        match tensor.role {
            Role::HcFunction => self.function(tensor),
            Role::HcBase => self.base(tensor),
            Role::HcScale => self.scale(tensor, HC * hidden),
            Role::Norm | Role::QueryNorm | Role::IndexNorm => self.normals(tensor, 1.0, 0.1),
            Role::Embedding => self.normals(tensor, 0.0, EMBEDDING_STD),
            Role::IndexApe => self.normals(tensor, 0.0, 0.1),
            Role::IndexWeights | Role::IndexKey | Role::IndexGate => {
                self.normals(tensor, 0.0, 1.0 / (hidden as f64).sqrt())
            }
            Role::QueryDown
            | Role::IndexQuery
            | Role::ExpertGate
            | Role::ExpertDown
            | Role::ExpertUp => {
                let weight = match tensor.dtype {
                    StoredType::F8E8M0 => TensorSpec {
                        shape: tensor
                            .shape
                            .iter()
                            .map(|blocks| blocks * self.model.block())
                            .collect(),
                        ..tensor.clone()
                    },
                    _ => tensor.clone(),
                };
                let fan_in = weight.shape[1] as f64;
                self.normals(&weight, 0.0, 1.0 / fan_in.sqrt())
            }
        }
    }

    /// The stream of one row of a tensor; `attempt` counts the tensors thrown away.
    fn stream(&self, purpose: Purpose, tensor: &TensorSpec, attempt: u8, row: usize) -> Stream {
        let site = match tensor.site {
            None => 0_u64,
            Some(Site::Attn) => 1,
            Some(Site::Ffn) => 2,
        };
        let token = (tensor.role as u64) << 56 | site << 48 | u64::from(attempt) << 40 | row as u64;
        let layer = tensor.layer.unwrap_or(u32::MAX);
        Stream::new(Key {
            seed: self.seed,
            purpose,
            layer,
            token,
        })
    }

    /// mean + deviation·N, row by row.
    fn normals(&self, tensor: &TensorSpec, mean: f64, deviation: f64) -> Vec<f32> {
        let columns = tensor.shape.last().copied().unwrap_or(1);
        let mut values = vec![0.0_f32; tensor.shape.iter().product()];
        values
            .par_chunks_mut(columns)
            .enumerate()
            .for_each(|(row, values)| {
                self.normal_row(tensor, row, (mean, deviation), values);
            });
        values
    }

    /// One row of them, from (mean, deviation).
    fn normal_row(&self, tensor: &TensorSpec, row: usize, of: (f64, f64), values: &mut [f32]) {
        let (mean, deviation) = (of.0 as f32, of.1 as f32);
        self.stream(Purpose::Weight, tensor, 0, row)
            .fill_normal(values);
        values
            .iter_mut()
            .for_each(|value| *value = mean + deviation * *value);
    }

    fn function(&self, tensor: &TensorSpec) -> Vec<f32> {
        let variance_gain = 1.0 + WIDE_SHARE * (WIDE_FACTOR * WIDE_FACTOR - 1.0);
        let narrow = (FUNCTION_RMS / variance_gain.sqrt()) as f32;
        let columns = tensor.shape[1];
        let mut values = vec![0.0_f32; tensor.shape.iter().product()];
        // A head's fn or a tiny model's misses the range in one of three attempts, a full-size
        // one's in one of a hundred: 256 misses in a row do not happen.
        for attempt in 0..=u8::MAX {
            values
                .par_chunks_mut(columns)
                .enumerate()
                .for_each(|(row, values)| {
                    self.stream(Purpose::Weight, tensor, attempt, row)
                        .fill_normal(values);
                    values.iter_mut().for_each(|value| *value *= narrow);
                    let mut tail = self.stream(Purpose::WeightTail, tensor, attempt, row);
                    widen(values, &mut tail);
                });
            let largest = values
                .iter()
                .fold(0.0_f32, |largest, value| largest.max(value.abs()));
            if FUNCTION_MAX.contains(&largest) {
                break;
            }
        }
        values
    }

    fn scale(&self, tensor: &TensorSpec, width: usize) -> Vec<f32> {
        let mut stream = self.stream(Purpose::Weight, tensor, 0, 0);
        let pre = stream.uniform(0.08, 0.12);
        if tensor.shape == [1] {
            return vec![pre as f32];
        }
        let post = stream.uniform(0.1, 0.2);
        let mix_std = FUNCTION_RMS * (width as f64).sqrt();
        let from_token = (COMB_STD * COMB_STD - COMB_BASE_STD * COMB_BASE_STD).sqrt();
        let comb = from_token / mix_std * stream.uniform(0.95, 1.05);
        vec![pre as f32, post as f32, comb as f32]
    }

    /// The first 2·h entries belong to pre and post, the others to comb.
    fn base(&self, tensor: &TensorSpec) -> Vec<f32> {
        let mut values = self.normals(tensor, 0.0, 1.0);
        for (index, value) in values.iter_mut().enumerate() {
            *value *= if index < 2 * HC {
                0.5
            } else {
                COMB_BASE_STD as f32
            };
        }
        values
    }
}

/// The bytes of every value, in order.
fn little_endian<const N: usize>(values: &[f32], encode: impl Fn(f32) -> [u8; N]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(values.len() * N);
    for &value in values {
        bytes.extend_from_slice(&encode(value));
    }
    bytes
}

/// Widens each value with the chance [`WIDE_SHARE`], by drawing the distances between them.
fn widen(values: &mut [f32], stream: &mut Stream) {
    let per_log = 1.0 / libm::log(1.0 - WIDE_SHARE);
    let mut next_gap = || (libm::log(stream.unit()) * per_log) as usize;
    let mut position = next_gap();
    while let Some(value) = values.get_mut(position) {
        *value *= WIDE_FACTOR as f32;
        position += 1 + next_gap();
    }
}

/// The code of the least power of two not below amax/448, for each block of that side, in row-major
/// order of blocks.
fn block_scales(values: &[f32], columns: usize, side: usize) -> Vec<u8> {
    values
        .par_chunks(columns * side)
        .flat_map_iter(|rows| {
            let mut largest = vec![0.0_f32; columns.div_ceil(side)];
            for piece in rows
                .chunks(columns)
                .flat_map(|row| row.chunks(side).enumerate())
            {
                let (block, values) = piece;
                let amax = values
                    .iter()
                    .fold(largest[block], |amax, value| amax.max(value.abs()));
                largest[block] = amax;
            }
            largest.into_iter().map(|amax| ue8m0::ceil(amax / 448.0))
        })
        .collect()
}

/// E4M3 codes of `values` over the scales of their blocks of that side.
fn encode_blocks(values: &[f32], columns: usize, side: usize, scales: &[u8]) -> Vec<u8> {
    let mut codes = vec![0_u8; values.len()];
    let rows = codes
        .par_chunks_mut(columns)
        .zip(values.par_chunks(columns))
        .enumerate();
    rows.for_each(|(row, (codes, values))| {
        let scales = &scales[row / side * columns.div_ceil(side)..];
        let blocks = codes.chunks_mut(side).zip(values.chunks(side)).zip(scales);
        for ((codes, values), &scale) in blocks {
            let scale = ue8m0::from_bits(scale);
            for (code, &value) in codes.iter_mut().zip(values) {
                // The quotient by a power of two is exact.
                let scaled = e4m3::round_f32(value / scale, Rounding::NearestEven);
                *code = e4m3::to_bits(scaled);
            }
        }
    });
    codes
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 128;

    #[test]
    fn a_scale_is_the_same_before_and_after_its_weight() {
        let tensors = SyntheticModel::Tiny.layer_tensors(2);
        let of_type = |dtype| tensors.iter().filter(move |tensor| tensor.dtype == dtype);
        let generator = Generator::new(SyntheticModel::Tiny, 3);
        let scales = |generator: &Generator| -> Vec<Vec<u8>> {
            let scales = of_type(StoredType::F8E8M0);
            scales.map(|tensor| generator.bytes(tensor)).collect()
        };
        let before = scales(&generator);
        assert!(!before.is_empty());
        for weight in of_type(StoredType::F8E4M3) {
            generator.bytes(weight);
        }
        assert_eq!(scales(&generator), before);
        // The remembered ones are gone now.
        assert_eq!(scales(&generator), before);
    }

    #[test]
    fn block_scales_are_per_block() {
        let (rows, columns) = (2 * BLOCK, 3 * BLOCK);
        let mut values = vec![0.001_f32; rows * columns];
        values[0] = 448.0;
        values[columns * BLOCK + 2 * BLOCK] = -449.0;
        let small = 127 + (0.001_f32 / 448.0).log2().ceil() as i32;
        let scales = block_scales(&values, columns, BLOCK);
        assert_eq!(
            scales.iter().copied().map(i32::from).collect::<Vec<_>>(),
            [127, small, small, small, small, 128]
        );
        let codes = encode_blocks(&values, columns, BLOCK, &scales);
        assert_eq!(codes[0], 0x7e);
        assert_eq!(codes[columns * BLOCK + 2 * BLOCK], 0x80 | 0x76);
    }
}
