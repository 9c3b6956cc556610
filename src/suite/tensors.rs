//! The tensors behind rows, named so that anyone can check a row.
//!
//! A suite knows them, a [`Sink`] writes them. A tensor's values are had when they are asked for: what is cheaper to
//! make than to keep is made then, and gone when the next tensor is.

use ndarray::{ArrayView2, CowArray, Ix2};

use super::SuiteError;
use crate::format::{Format, Rounding, bf16};

/// What belongs together: the tensors of one file.
pub trait Tensors {
    /// What they are of, such as `L17.ffn`.
    fn place(&self) -> String;

    /// All of them.
    fn named(&self) -> Vec<NamedTensor<'_>>;
}

/// Receives the tensors behind the rows.
pub trait Sink: Send {
    /// Takes what belongs together.
    ///
    /// # Errors
    /// A sentence saying what could not be written.
    fn take(&mut self, tensors: &dyn Tensors) -> Result<(), String>;
}

/// Takes the tensors nowhere.
pub struct NoDump;

impl Sink for NoDump {
    fn take(&mut self, _: &dyn Tensors) -> Result<(), String> {
        Ok(())
    }
}

/// A tensor to be written.
pub struct NamedTensor<'a> {
    /// Its full name.
    pub name: String,
    /// Rows and columns.
    pub shape: [usize; 2],
    /// The format it is written in.
    pub stored: Stored,
    make: Box<dyn Fn() -> Result<Values<'a>, SuiteError> + 'a>,
}

/// The format a tensor is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// fp64.
    F64,
    /// fp32.
    F32,
    /// bfloat16, in which the values are exact.
    Bf16,
    /// Whole numbers.
    I64,
}

/// A tensor's values.
pub enum Values<'a> {
    /// fp32, or values that are exact in bfloat16.
    F32(CowArray<'a, f32, Ix2>),
    /// fp64.
    F64(CowArray<'a, f64, Ix2>),
    /// Whole numbers.
    I64(CowArray<'a, i64, Ix2>),
}

impl Stored {
    /// How a stage in this format is written.
    #[must_use]
    pub fn of(format: Format) -> Self {
        match format {
            Format::Bf16 => Self::Bf16,
            _ => Self::F32,
        }
    }

    /// How values are written that nothing is known of.
    #[must_use]
    pub fn holding(values: ArrayView2<'_, f32>) -> Self {
        let is_exact = values.iter().all(|&value| {
            bf16::round_f32(value, Rounding::NearestEven).to_bits() == value.to_bits()
        });
        if is_exact { Self::Bf16 } else { Self::F32 }
    }
}

impl<'a> NamedTensor<'a> {
    /// Values that are at hand.
    #[must_use]
    pub fn fp32(name: String, stored: Stored, values: ArrayView2<'a, f32>) -> Self {
        let shape = [values.nrows(), values.ncols()];
        Self::made(name, stored, shape, move || Ok(Values::F32(values.into())))
    }

    /// Values in fp64 that are at hand.
    #[must_use]
    pub fn fp64(name: String, values: ArrayView2<'a, f64>) -> Self {
        let shape = [values.nrows(), values.ncols()];
        Self::made(name, Stored::F64, shape, move || {
            Ok(Values::F64(values.into()))
        })
    }

    /// Whole numbers that are at hand.
    #[must_use]
    pub fn int64(name: String, values: ArrayView2<'a, i64>) -> Self {
        let shape = [values.nrows(), values.ncols()];
        Self::made(name, Stored::I64, shape, move || {
            Ok(Values::I64(values.into()))
        })
    }

    /// Values that are made when they are asked for.
    pub fn made(
        name: String,
        stored: Stored,
        shape: [usize; 2],
        make: impl Fn() -> Result<Values<'a>, SuiteError> + 'a,
    ) -> Self {
        Self {
            name,
            shape,
            stored,
            make: Box::new(make),
        }
    }

    /// Its values, made now if nobody keeps them.
    ///
    /// # Errors
    /// A device or a file that fails while they are made.
    pub fn values(&self) -> Result<Values<'a>, SuiteError> {
        (self.make)()
    }
}
