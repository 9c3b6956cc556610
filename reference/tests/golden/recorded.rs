//! Recorded tensors, and how near a result must be to them.

use std::path::Path;

use ndarray::Array2;
use safetensors::{Dtype, SafeTensors};

/// A recorded file, held whole.
pub struct Recorded(Vec<u8>);

impl Recorded {
    /// A file of `tests/data`.
    pub fn open(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/data")
            .join(name);
        Self(std::fs::read(path).expect("the recorded file is part of the repository"))
    }

    /// A tensor as a matrix in f64 (exact for BF16, F32, F64 and small I64); a vector becomes one row.
    pub fn f64(&self, name: &str) -> Array2<f64> {
        let file = SafeTensors::deserialize(&self.0).expect("a safetensors file");
        let tensor = file.tensor(name).expect("the tensor is in the file");
        let values: Vec<f64> = match tensor.dtype() {
            Dtype::BF16 => {
                let wide =
                    |bytes: &[u8; 2]| f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16);
                tensor
                    .data()
                    .as_chunks()
                    .0
                    .iter()
                    .map(|bytes| f64::from(wide(bytes)))
                    .collect()
            }
            Dtype::F32 => tensor
                .data()
                .as_chunks()
                .0
                .iter()
                .map(|bytes| f64::from(f32::from_le_bytes(*bytes)))
                .collect(),
            Dtype::F64 => tensor
                .data()
                .as_chunks()
                .0
                .iter()
                .map(|bytes| f64::from_le_bytes(*bytes))
                .collect(),
            Dtype::I64 => tensor
                .data()
                .as_chunks()
                .0
                .iter()
                .map(|bytes| i64::from_le_bytes(*bytes) as f64)
                .collect(),
            other => panic!("no test tensor is {other}"),
        };
        let columns = *tensor.shape().last().expect("no test tensor is a scalar");
        Array2::from_shape_vec((values.len() / columns, columns), values)
            .expect("a whole number of rows")
    }

    /// The same in f32, for what is stored so.
    pub fn f32(&self, name: &str) -> Array2<f32> {
        self.f64(name).mapv(|value| value as f32)
    }
}

/// Fails unless `|got − expected| ≤ limit·|expected|` everywhere; a NaN fails.
pub fn assert_close(what: &str, got: &Array2<f64>, expected: &Array2<f64>, limit: f64) {
    assert_eq!(got.dim(), expected.dim(), "{what}: shape");
    for ((place, got), expected) in got.indexed_iter().zip(expected) {
        let close = (got - expected).abs() <= limit * expected.abs();
        assert!(
            close,
            "{what} at {place:?}: got {got:e}, expected {expected:e}"
        );
    }
}

/// Fails unless `max|got − expected| ≤ limit·max|expected|`, for tensors whose small elements cancel.
pub fn assert_close_to_scale(what: &str, got: &Array2<f64>, expected: &Array2<f64>, limit: f64) {
    assert_eq!(got.dim(), expected.dim(), "{what}: shape");
    let scale = expected
        .iter()
        .fold(0.0, |most: f64, value| most.max(value.abs()));
    for ((place, got), expected) in got.indexed_iter().zip(expected) {
        let close = (got - expected).abs() <= limit * scale;
        assert!(
            close,
            "{what} at {place:?}: got {got:e}, expected {expected:e}"
        );
    }
}
