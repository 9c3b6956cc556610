//! The shared expert of a layer: three matrices, dequantised without loss.
//!
//! | stored as | a value is | scale tensor |
//! |---|---|---|
//! | F32, BF16, F16 | as stored | none |
//! | F8_E4M3 | code · scale | F8_E8M0, one per block of `weight_block_size` (128×128; V4.1 32×32), ragged at the edges |
//! | I8 | code · scale, two E2M1 codes per byte, the lower four bits first | F8_E8M0, one per 32 values of a row |
//!
//! A scale is a power of two, so that every product is exact in f32, down to 2⁻⁹·2⁻¹²⁷; what lies beyond its
//! largest value is infinite, and counts as such.

use ndarray::Array2;
use rayon::prelude::*;
use sha2::{Digest, Sha256};

use super::{
    Checkpoint, CheckpointError, NonFinite, StoredType,
    error::{quoted, shape_text},
    locate::Located,
    names::{EXPERT_PARTS, expert_name},
    values,
};
use crate::format::{e2m1, e4m3};

/// Values of a row that share a scale of a packed FP4 weight.
const FP4_BLOCK: usize = 32;

/// How packed FP4 is spelled in a header.
const PACKED: &str = "I8";

/// What a layer's shared expert multiplies with.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedExpert {
    /// w1, [inter, d].
    pub gate: Array2<f32>,
    /// w2, [d, inter].
    pub down: Array2<f32>,
    /// w3, [inter, d].
    pub up: Array2<f32>,
    /// SHA-256 of the official names, types, shapes and stored bytes of all that was read: what enters a digest of
    /// weights, behind those of the layer's ffn site.
    pub digest: [u8; 32],
}

/// A matrix that is there and of the right shape.
struct Matrix<'a> {
    name: String,
    weight: &'a Located,
    /// Rows and columns, unpacked.
    shape: [usize; 2],
    storage: Storage<'a>,
}

/// How a matrix is stored.
enum Storage<'a> {
    /// Plain floats.
    Plain,
    /// FP8 codes.
    Fp8(Scales<'a>),
    /// Two FP4 codes per byte.
    Fp4(Scales<'a>),
}

/// The scales of a matrix.
struct Scales<'a> {
    located: &'a Located,
    /// Rows and columns of the matrix that share one.
    block: [usize; 2],
}

impl Checkpoint {
    /// Whether a layer's shared expert is there, of types and shapes that can be read; reads none of it.
    ///
    /// # Errors
    ///
    /// The first tensor that is not.
    pub fn check_shared_expert(&self, layer: u32) -> Result<(), CheckpointError> {
        self.expert_matrices(layer).map(drop)
    }

    /// Reads a layer's shared expert.
    ///
    /// # Errors
    ///
    /// As [`Self::check_shared_expert`], and if a tensor cannot be read or holds NaN or infinities and
    /// `nonfinite` refuses them.
    pub fn shared_expert(
        &self,
        layer: u32,
        nonfinite: NonFinite,
    ) -> Result<SharedExpert, CheckpointError> {
        let needed = format!("layer {layer} ffn");
        let mut digest = Sha256::new();
        let matrices = self.expert_matrices(layer)?;
        let mut read = |matrix: &Matrix<'_>| matrix.read(self, &needed, nonfinite, &mut digest);
        let [gate, down, up] = &matrices;
        Ok(SharedExpert {
            gate: read(gate)?,
            down: read(down)?,
            up: read(up)?,
            digest: digest.finalize().into(),
        })
    }

    fn expert_matrices(&self, layer: u32) -> Result<[Matrix<'_>; 3], CheckpointError> {
        self.require_layer(layer)?;
        let hidden = self.model.hidden;
        let [gate, down, up] = EXPERT_PARTS;
        let name = expert_name(layer, gate, "weight");
        // The gate's rows say how wide the hidden layer is.
        let inter = self.expert_tensor(layer, &name)?.shape.first().copied();
        let inter = inter.unwrap_or(0).max(1);
        Ok([
            self.expert_matrix(layer, gate, [inter, hidden])?,
            self.expert_matrix(layer, down, [hidden, inter])?,
            self.expert_matrix(layer, up, [inter, hidden])?,
        ])
    }

    fn expert_matrix(
        &self,
        layer: u32,
        part: &str,
        shape: [usize; 2],
    ) -> Result<Matrix<'_>, CheckpointError> {
        let name = expert_name(layer, part, "weight");
        let weight = self.expert_tensor(layer, &name)?;
        let whole = format!(
            "hidden size {} and as many hidden units as w1 has rows",
            self.model.hidden
        );
        let scales = |block| self.expert_scales(layer, part, shape, block);
        let storage = match StoredType::from_name(&weight.dtype) {
            Some(plain) if plain.is_plain_float() => {
                check_shape(weight, shape, &whole)?;
                Storage::Plain
            }
            Some(StoredType::F8E4M3) => {
                check_shape(weight, shape, &whole)?;
                Storage::Fp8(scales(self.model.weight_block)?)
            }
            _ if weight.dtype == PACKED => {
                check_packing(weight, shape)?;
                Storage::Fp4(scales([1, FP4_BLOCK])?)
            }
            _ => {
                let expected = "F8_E4M3, I8 (packed FP4), BF16, F16 or F32";
                return Err(wrong_type(weight, expected));
            }
        };
        Ok(Matrix {
            name,
            weight,
            shape,
            storage,
        })
    }

    fn expert_scales(
        &self,
        layer: u32,
        part: &str,
        [rows, columns]: [usize; 2],
        block: [usize; 2],
    ) -> Result<Scales<'_>, CheckpointError> {
        let located = self.expert_tensor(layer, &expert_name(layer, part, "scale"))?;
        if located.dtype != StoredType::F8E8M0.name() {
            return Err(wrong_type(located, "F8_E8M0"));
        }
        let [high, wide] = block;
        let expected = [rows.div_ceil(high), columns.div_ceil(wide)];
        let because = format!("a weight of {rows}×{columns} with a scale per {high}×{wide}");
        check_shape(located, expected, &because)?;
        Ok(Scales { located, block })
    }

    fn expert_tensor(&self, layer: u32, name: &str) -> Result<&Located, CheckpointError> {
        self.tensor(name).ok_or_else(|| {
            let known = self.found.absent_experts.get(&layer).cloned();
            CheckpointError::NoSharedExpert {
                found: known.unwrap_or_else(|| format!("{} lacks {name}", quoted(&self.source))),
                layer,
            }
        })
    }

    /// All bytes of a tensor, which its name, type and shape enter a digest with.
    fn digested(
        &self,
        located: &Located,
        name: &str,
        digest: &mut Sha256,
    ) -> Result<Vec<u8>, CheckpointError> {
        // One value per byte is the most that is stored.
        let mut bytes = Vec::with_capacity(located.shape.iter().product());
        self.visit(located, &mut Vec::new(), |piece| {
            bytes.extend_from_slice(piece);
        })?;
        digest.update(format!("{name}\n{}\n{:?}\n", located.dtype, located.shape));
        digest.update(&bytes);
        Ok(bytes)
    }
}

fn check_shape(
    located: &Located,
    expected: [usize; 2],
    because: &str,
) -> Result<(), CheckpointError> {
    if located.shape == expected {
        return Ok(());
    }
    Err(CheckpointError::WrongShape {
        tensor: located.stored.clone(),
        file: located.file.clone(),
        found: shape_text(&located.shape),
        expected: shape_text(&expected),
        because: format!(" for {because}"),
    })
}

/// Two values to a byte, and no row that ends within one.
fn check_packing(weight: &Located, [rows, columns]: [usize; 2]) -> Result<(), CheckpointError> {
    let because = format!("{columns} packed FP4 values in a row, two per byte");
    check_shape(weight, [rows, columns / 2], &because)?;
    if columns % 2 == 0 {
        return Ok(());
    }
    Err(CheckpointError::OddPacking {
        tensor: weight.stored.clone(),
        file: weight.file.clone(),
        columns,
    })
}

fn wrong_type(located: &Located, expected: &'static str) -> CheckpointError {
    CheckpointError::ExpertType {
        tensor: located.stored.clone(),
        file: located.file.clone(),
        found: located.dtype.clone(),
        expected,
    }
}

impl Matrix<'_> {
    fn read(
        &self,
        checkpoint: &Checkpoint,
        needed: &str,
        nonfinite: NonFinite,
        digest: &mut Sha256,
    ) -> Result<Array2<f32>, CheckpointError> {
        let bytes = checkpoint.digested(self.weight, &self.name, digest)?;
        let refuse = |values: &[f32], located: &Located| match nonfinite {
            NonFinite::Refuse => values::refuse_nonfinite(values, located, needed),
            NonFinite::Allow => Ok(()),
        };
        let mut scaled = |scales: &Scales<'_>| {
            let name = self.name.replace(".weight", ".scale");
            let codes = checkpoint.digested(scales.located, &name, digest)?;
            let mut values = Vec::with_capacity(codes.len());
            StoredType::F8E8M0.decode_into(&codes, &mut values);
            refuse(&values, scales.located)?;
            Ok::<_, CheckpointError>(values)
        };
        let columns = self.shape[1];
        let values = match &self.storage {
            Storage::Plain => {
                let mut values = Vec::with_capacity(self.shape.iter().product());
                values::plain_float(self.weight)?.decode_into(&bytes, &mut values);
                values
            }
            Storage::Fp8(scales) => {
                let decoded = std::array::from_fn(|code| [e4m3::from_bits(code as u8)]);
                dequantise(&decoded, &bytes, columns, scales.block, &scaled(scales)?)
            }
            Storage::Fp4(scales) => {
                let decoded = std::array::from_fn(|pair| {
                    [pair & 15, pair >> 4].map(|code| e2m1::from_bits(code as u8))
                });
                dequantise(&decoded, &bytes, columns, scales.block, &scaled(scales)?)
            }
        };
        refuse(&values, self.weight)?;
        let [rows, columns] = self.shape;
        Array2::from_shape_vec((rows, columns), values).map_err(|_| CheckpointError::WrongShape {
            tensor: self.weight.stored.clone(),
            file: self.weight.file.clone(),
            found: shape_text(&self.weight.shape),
            expected: shape_text(&self.shape),
            because: String::new(),
        })
    }
}

/// The values of `codes`, N to a byte, each times the scale of its `block`. All are row-major; `columns` and the
/// block's width are multiples of N.
fn dequantise<const N: usize>(
    decoded: &[[f32; N]; 256],
    codes: &[u8],
    columns: usize,
    block: [usize; 2],
    scales: &[f32],
) -> Vec<f32> {
    let per_row = columns.div_ceil(block[1]);
    let mut values = vec![0.0; codes.len() * N];
    values
        .par_chunks_mut(columns)
        .zip(codes.par_chunks(columns / N))
        .enumerate()
        .for_each(|(row, (values, codes))| {
            let scales = &scales[row / block[0] * per_row..][..per_row];
            let blocks = values.chunks_mut(block[1]).zip(codes.chunks(block[1] / N));
            for ((values, codes), scale) in blocks.zip(scales) {
                for (values, &code) in values.chunks_mut(N).zip(codes) {
                    for (value, decoded) in values.iter_mut().zip(decoded[usize::from(code)]) {
                        *value = decoded * scale;
                    }
                }
            }
        });
    values
}
