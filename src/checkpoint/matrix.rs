//! A matrix as a layer multiplies with it, dequantised without loss.
//!
//! | stored as | a value is | scale tensor |
//! |---|---|---|
//! | F32, BF16, F16 | as stored | none |
//! | F8_E4M3 | code · scale | F8_E8M0 (or F32, BF16, F16 of the same values), one per block of `weight_block_size` (128×128; V4.1 32×32), ragged at the edges |
//! | I8 | code · scale, two E2M1 codes per byte, the lower four bits first | the same, one per 32 values of a row |
//!
//! A scale is a power of two, so that every product is exact in f32, down to 2⁻⁹·2⁻¹²⁷; what lies beyond its
//! largest value is infinite, and counts as such.

use ndarray::Array2;
use rayon::prelude::*;

use super::{
    Checkpoint, CheckpointError, StoredType,
    error::shape_text,
    locate::Located,
    values::{self, Reading},
};
use crate::format::{e2m1, e4m3, ue8m0};

/// Values of a row that share a scale of a packed FP4 weight.
const FP4_BLOCK: usize = 32;

/// How packed FP4 is spelled in a header.
const PACKED: &str = "I8";

/// A matrix, and the codes that it was dequantised from.
#[derive(Clone, Debug, PartialEq)]
pub struct Linear {
    /// [outputs, inputs].
    pub values: Array2<f32>,
    /// The codes of an FP8 weight.
    pub fp8: Option<Fp8Blocks>,
}

/// An FP8 weight as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fp8Blocks {
    /// E4M3, [outputs, inputs].
    pub codes: Array2<u8>,
    /// UE8M0, one per block, ragged ones included.
    pub scales: Array2<u8>,
    /// Rows and columns of a block.
    pub block: [usize; 2],
}

/// How a matrix may be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accepted {
    /// Plain floats and FP8.
    UpToFp8,
    /// Packed FP4 as well.
    UpToFp4,
}

/// Where a group of matrices is looked for.
pub(super) struct Matrices<'a, 's> {
    pub(super) checkpoint: &'a Checkpoint,
    pub(super) accepted: Accepted,
    /// The sentence of a tensor, by its official name, that is not there.
    pub(super) absent: &'s dyn Fn(&str) -> CheckpointError,
    /// What to do about a type that is not accepted.
    pub(super) advice: &'static str,
}

/// A matrix that is there, and of the right type and shape.
pub(super) struct Matrix<'a> {
    /// The official name, without `.weight` or `.scale`.
    stem: String,
    pub(super) weight: &'a Located,
    /// Rows and columns, unpacked.
    shape: [usize; 2],
    storage: Storage<'a>,
}

/// What a matrix consists of.
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
    stored: StoredType,
    /// Rows and columns of the matrix that share one.
    block: [usize; 2],
    /// What to do about a value that is no scale.
    advice: &'static str,
}

impl<'a> Matrices<'a, '_> {
    /// Finds a matrix by its official name without `.weight`; `because` says what its shape follows from.
    pub(super) fn find(
        &self,
        stem: String,
        shape: [usize; 2],
        because: &str,
    ) -> Result<Matrix<'a>, CheckpointError> {
        let weight = self.tensor(&format!("{stem}.weight"))?;
        let scales = |block| self.scales(&stem, shape, block);
        let storage = match StoredType::from_name(&weight.dtype) {
            Some(plain) if plain.is_plain_float() => {
                values::check_shape_for(weight, &shape, because)?;
                Storage::Plain
            }
            Some(StoredType::F8E4M3) => {
                values::check_shape_for(weight, &shape, because)?;
                Storage::Fp8(scales(self.checkpoint.model.weight_block)?)
            }
            _ if weight.dtype == PACKED && self.accepted == Accepted::UpToFp4 => {
                check_packing(weight, shape)?;
                Storage::Fp4(scales([1, FP4_BLOCK])?)
            }
            _ => {
                return Err(self.wrong_type(
                    weight,
                    match self.accepted {
                        Accepted::UpToFp8 => "F8_E4M3, BF16, F16 or F32",
                        Accepted::UpToFp4 => "F8_E4M3, I8 (packed FP4), BF16, F16 or F32",
                    },
                ));
            }
        };
        Ok(Matrix {
            stem,
            weight,
            shape,
            storage,
        })
    }

    fn scales(
        &self,
        stem: &str,
        [rows, columns]: [usize; 2],
        block: [usize; 2],
    ) -> Result<Scales<'a>, CheckpointError> {
        let located = self.tensor(&format!("{stem}.scale"))?;
        let stored = StoredType::from_name(&located.dtype)
            .filter(|stored| stored.is_plain_float() || *stored == StoredType::F8E8M0);
        let Some(stored) = stored else {
            return Err(self.wrong_type(located, "F8_E8M0, or F32, BF16 or F16 of powers of two"));
        };
        let [high, wide] = block;
        let expected = [rows.div_ceil(high), columns.div_ceil(wide)];
        let because = format!("a weight of {rows}×{columns} with a scale per {high}×{wide}");
        values::check_shape_for(located, &expected, &because)?;
        Ok(Scales {
            located,
            stored,
            block,
            advice: self.advice,
        })
    }

    /// A tensor by its official name.
    pub(super) fn tensor(&self, name: &str) -> Result<&'a Located, CheckpointError> {
        self.checkpoint
            .tensor(name)
            .ok_or_else(|| (self.absent)(name))
    }

    fn wrong_type(&self, located: &Located, expected: &'static str) -> CheckpointError {
        CheckpointError::MatrixType {
            tensor: located.stored.clone(),
            file: located.file.clone(),
            found: located.dtype.clone(),
            expected,
            advice: self.advice,
        }
    }
}

/// Two values to a byte, and no row that ends within one.
fn check_packing(weight: &Located, [rows, columns]: [usize; 2]) -> Result<(), CheckpointError> {
    let because = format!("{columns} packed FP4 values in a row, two per byte");
    values::check_shape_for(weight, &[rows, columns / 2], &because)?;
    if columns % 2 == 0 {
        return Ok(());
    }
    Err(CheckpointError::OddPacking {
        tensor: weight.stored.clone(),
        file: weight.file.clone(),
        columns,
    })
}

impl Matrix<'_> {
    pub(super) fn read(&self, reading: &mut Reading<'_>) -> Result<Linear, CheckpointError> {
        let name = format!("{}.weight", self.stem);
        let (values, fp8) = match &self.storage {
            Storage::Plain => (reading.plain(self.weight, &name)?, None),
            Storage::Fp8(scales) => {
                let codes = reading.bytes(self.weight, &name)?;
                let decoded = std::array::from_fn(|code| [e4m3::from_bits(code as u8)]);
                let scale_codes = self.scale_codes(scales, reading)?;
                let values = self.dequantised(&decoded, &codes, scales, &scale_codes);
                let [high, wide] = scales.block;
                let [rows, columns] = self.shape;
                let blocks = [rows.div_ceil(high), columns.div_ceil(wide)];
                let fp8 = Fp8Blocks {
                    codes: self.shaped(self.shape, codes)?,
                    scales: self.shaped(blocks, scale_codes)?,
                    block: scales.block,
                };
                (values, Some(fp8))
            }
            Storage::Fp4(scales) => {
                let codes = reading.bytes(self.weight, &name)?;
                let decoded = std::array::from_fn(|pair| {
                    [pair & 15, pair >> 4].map(|code| e2m1::from_bits(code as u8))
                });
                let scale_codes = self.scale_codes(scales, reading)?;
                let values = self.dequantised(&decoded, &codes, scales, &scale_codes);
                (values, None)
            }
        };
        reading.refuse_nonfinite(&values, self.weight)?;
        Ok(Linear {
            values: self.shaped(self.shape, values)?,
            fp8,
        })
    }

    fn scale_codes(
        &self,
        scales: &Scales<'_>,
        reading: &mut Reading<'_>,
    ) -> Result<Vec<u8>, CheckpointError> {
        let bytes = reading.bytes(scales.located, &format!("{}.scale", self.stem))?;
        let mut values = Vec::with_capacity(bytes.len());
        scales.stored.decode_into(&bytes, &mut values);
        reading.refuse_nonfinite(&values, scales.located)?;
        if scales.stored == StoredType::F8E8M0 {
            return Ok(bytes);
        }
        let coded = values.iter().map(|&value| ue8m0::exact(value));
        coded
            .enumerate()
            .map(|(index, code)| {
                code.ok_or_else(|| CheckpointError::OddScale {
                    tensor: scales.located.stored.clone(),
                    file: scales.located.file.clone(),
                    value: values[index],
                    index,
                    advice: scales.advice,
                })
            })
            .collect()
    }

    fn dequantised<const N: usize>(
        &self,
        decoded: &[[f32; N]; 256],
        codes: &[u8],
        scales: &Scales<'_>,
        scale_codes: &[u8],
    ) -> Vec<f32> {
        let factors = decoded_scales(scale_codes);
        dequantise(decoded, codes, self.shape[1], scales.block, &factors)
    }

    /// The header's check of shape against bytes makes the length right.
    fn shaped<T>(&self, shape: [usize; 2], values: Vec<T>) -> Result<Array2<T>, CheckpointError> {
        Array2::from_shape_vec(shape, values).map_err(|_| CheckpointError::WrongShape {
            tensor: self.weight.stored.clone(),
            file: self.weight.file.clone(),
            found: shape_text(&self.weight.shape),
            expected: shape_text(&self.shape),
        })
    }
}

fn decoded_scales(codes: &[u8]) -> Vec<f32> {
    let mut values = Vec::with_capacity(codes.len());
    StoredType::F8E8M0.decode_into(codes, &mut values);
    values
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
