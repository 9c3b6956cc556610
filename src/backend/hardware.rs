//! What only a device can do: run a vendor's library, and take time.

use std::collections::{BTreeMap, BTreeSet};

use ndarray::{Array2, ArrayView2};

use super::{BackendError, MixInputs};
use crate::{
    format::Format,
    recipe::{
        MixRecipe,
        library::{InputRounding, InputRoundings, LibraryProduct},
        splits::Launch,
    },
};

/// A projection that is timed.
#[derive(Clone, Copy, Debug)]
pub enum Timed<'a> {
    /// A recipe's, with the sum of its splits.
    Recipe(&'a MixRecipe),
    /// A library's; what it takes to widen or to round an operand is not in it.
    Library(LibraryProduct),
}

impl Timed<'_> {
    /// The variant's name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Recipe(recipe) => &recipe.name,
            Self::Library(product) => product.name(),
        }
    }
}

/// A measured time and what it amounts to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// Median time of one run, in microseconds.
    pub microseconds: f64,
    /// Bytes of x as stored and of the fp32 weight.
    pub bytes: usize,
}

impl Timing {
    /// Bytes read per second, in GB/s.
    #[must_use]
    pub fn gigabytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.microseconds / 1e3
    }
}

/// A device, as far as it is more than an executor of recipes.
pub trait Hardware: Sync {
    /// The vendor's library: name and version.
    ///
    /// # Errors
    /// It is not here.
    fn library(&self) -> Result<String, BackendError>;

    /// `x·hc_fnᵀ` [T, N] by the library.
    ///
    /// # Errors
    /// The library is not here, or the device fails.
    fn product(
        &self,
        product: LibraryProduct,
        inputs: &MixInputs<'_>,
    ) -> Result<Array2<f32>, BackendError>;

    /// The rate of a copy on the device, in GB/s of bytes read and written.
    ///
    /// # Errors
    /// The device fails.
    fn copy_rate(&self) -> Result<f64, BackendError>;

    /// The time of a projection from x and the fp32 weight, the inputs rotated so that no cache answers.
    ///
    /// # Errors
    /// The library is not here, or the device fails.
    fn time(&self, timed: Timed<'_>, inputs: &MixInputs<'_>) -> Result<Timing, BackendError>;

    /// The options that every file of kernels is compiled with.
    fn options(&self) -> Vec<String>;

    /// The macros that each file of kernels has been compiled with so far, a set per compilation.
    fn macros(&self) -> BTreeMap<&'static str, BTreeSet<String>>;
}

/// Most tokens of a probe.
const PROBE_TOKENS: usize = 512;

/// What a product does to its operands in products of the shape of `inputs` (with at most 512 tokens: a
/// library takes other paths for other shapes).
///
/// # Errors
/// The library is not here, or the device fails.
pub fn input_roundings(
    hardware: &dyn Hardware,
    product: LibraryProduct,
    inputs: &MixInputs<'_>,
) -> Result<InputRoundings, BackendError> {
    let depth = inputs.x.ncols();
    let tokens = inputs.x.nrows().min(PROBE_TOKENS);
    let outputs = inputs.function.nrows();
    let multiply = |x: ArrayView2<'_, f32>, function: ArrayView2<'_, f32>| {
        let launch = Launch {
            tokens,
            ..inputs.launch
        };
        let probing = MixInputs {
            x,
            x_exact_in: Format::F32,
            function,
            norm_eps: inputs.norm_eps,
            launch,
        };
        hardware.product(product, &probing)
    };
    let ones = |rows| first_column(rows, depth, &vec![1.0; rows]);
    let (mut of_x, mut of_weight) = (Vec::new(), Vec::new());
    let probes: Vec<f32> = product
        .probes()
        .iter()
        .copied()
        .map(f32::from_bits)
        .collect();
    let weight = ones(outputs);
    for probes in probes.chunks(tokens.max(1)) {
        let x = first_column(tokens, depth, probes);
        let dot = multiply(x.view(), weight.view())?;
        let firsts = dot
            .outer_iter()
            .map(|row| row.first().map(|dot| dot.to_bits()));
        of_x.extend(firsts.take(probes.len()).flatten());
    }
    let x = ones(tokens);
    for probes in probes.chunks(outputs.max(1)) {
        let weight = first_column(outputs, depth, probes);
        let dot = multiply(x.view(), weight.view())?;
        of_weight.extend(dot.iter().take(probes.len()).map(|dot| dot.to_bits()));
    }
    Ok(InputRoundings {
        x: InputRounding::of(product.probes(), &of_x),
        weight: InputRounding::of(product.probes(), &of_weight),
    })
}

/// Zeros but for what stands in the first column.
fn first_column(rows: usize, depth: usize, values: &[f32]) -> Array2<f32> {
    let mut array = Array2::zeros((rows, depth));
    array
        .column_mut(0)
        .iter_mut()
        .zip(values)
        .for_each(|(to, &value)| *to = value);
    array
}

#[cfg(test)]
pub(crate) mod tests;
