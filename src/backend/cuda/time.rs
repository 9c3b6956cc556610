//! How long the projection takes on a device, and how long it would if only memory counted.
//!
//! A measurement replays a CUDA graph that runs the kernels once over each of several copies of their
//! inputs, together larger than any cache, and divides. CUDA events take the time; of several replays the
//! median counts. Weights are packed before, as an engine packs them when it loads a model. The limit is the time to read x and the fp32 weight once at the rate of a copy measured
//! in the same process, whose bytes count twice, read and written.

use super::{
    blas::{Blas, Sizes, operand},
    device::{Device, done},
    error::CudaError,
    mix::{MixOnDevice, Streams},
    options::Stored,
    stream::Buffer,
};
use crate::{
    backend::{MixInputs, hardware::Timing},
    recipe::{MixRecipe, library::LibraryProduct},
};

/// Bytes of inputs to go round: several times the largest second-level cache.
const ROUND: usize = 512 << 20;
/// Most copies of the inputs.
const MOST_COPIES: usize = 64;
/// Replays that count.
const REPLAYS: usize = 21;
/// Bytes of the copy that the limit is taken from.
const COPY: usize = 2 << 30;

/// Bytes of x, stored so, and of the fp32 weight.
fn bytes(inputs: &MixInputs<'_>, stored: Stored) -> usize {
    let element = match stored {
        Stored::Bf16 => size_of::<u16>(),
        Stored::F32 => size_of::<f32>(),
    };
    inputs.x.len() * element + inputs.function.len() * size_of::<f32>()
}

/// Copies of values in the device's memory.
fn copies(
    device: &Device,
    values: &[f32],
    stored: Stored,
    round: usize,
) -> Result<Vec<Streams>, CudaError> {
    (0..round)
        .map(|_| Streams::upload(device, values, stored))
        .collect()
}

/// How many copies of the inputs to go round, x stored so.
fn round(inputs: &MixInputs<'_>, stored: Stored) -> usize {
    ROUND
        .div_ceil(bytes(inputs, stored).max(1))
        .clamp(2, MOST_COPIES)
}

/// The rate of a copy on the device, in GB/s of bytes read and written.
///
/// # Errors
/// The device fails.
pub fn copy_rate(device: &Device) -> Result<f64, CudaError> {
    let from: Buffer<u32> = device.zeros("a copy", COPY / size_of::<u32>())?;
    let mut to: Buffer<u32> = device.zeros("a copy", COPY / size_of::<u32>())?;
    let mut times = Vec::with_capacity(REPLAYS);
    for _ in 0..REPLAYS {
        times.push(elapsed(device, || {
            done("copying", device.stream().copy(&from, &mut to))
        })?);
    }
    Ok(2.0 * COPY as f64 / median(times) / 1e3)
}

/// The time of a recipe's projection and of the sum of its splits.
///
/// # Errors
/// The device fails.
pub fn recipe(
    device: &Device,
    recipe: &MixRecipe,
    inputs: &MixInputs<'_>,
    stored: Stored,
) -> Result<Timing, CudaError> {
    let x = inputs.x.as_standard_layout();
    let x = x.as_slice().unwrap_or_default();
    let copies = copies(device, x, stored, round(inputs, stored))?;
    let mixes = copies
        .iter()
        .map(|_| MixOnDevice::new(device, recipe, inputs, stored))
        .collect::<Result<Vec<_>, _>>()?;
    // The RMS factor is there before a recipe that normalises first asks for it.
    for (mix, x) in mixes.iter().zip(&copies) {
        mix.run(x)?;
    }
    let microseconds = replayed(device, copies.len(), |copy| {
        mixes[copy].project(&copies[copy])
    })?;
    Ok(Timing {
        microseconds,
        bytes: bytes(inputs, stored),
    })
}

/// The time of cuBLAS on the same inputs; what it takes to widen or to round an operand is not in it, and
/// the bytes are those of x as stored.
///
/// # Errors
/// The device fails.
pub fn cublas(
    device: &Device,
    blas: &Blas,
    product: LibraryProduct,
    inputs: &MixInputs<'_>,
) -> Result<Timing, CudaError> {
    let operands = Stored::for_format(product.operands().format());
    let round = round(inputs, operands);
    let weights = copies(device, &operand(product, inputs.function), operands, round)?;
    let copies = copies(device, &operand(product, inputs.x), operands, round)?;
    let sizes = Sizes::of(inputs);
    let dot = device.zeros("dot", sizes.tokens * sizes.outputs)?;
    let run = |copy: usize| blas.multiply(product, &copies[copy], &weights[copy], &dot, sizes);
    // Outside the graph first: the library sets itself up.
    run(0)?;
    device.wait()?;
    Ok(Timing {
        microseconds: replayed(device, copies.len(), run)?,
        bytes: bytes(inputs, Stored::for_format(inputs.x_exact_in)),
    })
}

/// Captures `run` over all copies as one graph; the median time of one copy, in microseconds.
fn replayed(
    device: &Device,
    copies: usize,
    run: impl Fn(usize) -> Result<(), CudaError>,
) -> Result<f64, CudaError> {
    let stream = device.stream();
    done("starting a graph", stream.begin_capture())?;
    let captured = (0..copies).try_for_each(&run);
    let graph = done("ending a graph", stream.end_capture())?;
    captured?;
    let Some(graph) = graph else {
        return Err(CudaError::Driver {
            doing: "ending a graph".to_owned(),
            message: "it is empty".to_owned(),
        });
    };
    // Once untimed: the first replay brings the graph over.
    done("replaying a graph", graph.launch())?;
    device.wait()?;
    let mut times = Vec::with_capacity(REPLAYS);
    for _ in 0..REPLAYS {
        times.push(elapsed(device, || {
            done("replaying a graph", graph.launch())
        })?);
    }
    Ok(median(times) / copies as f64)
}

/// The time between two events around `work`, in microseconds.
fn elapsed(
    device: &Device,
    work: impl FnOnce() -> Result<(), CudaError>,
) -> Result<f64, CudaError> {
    let stream = device.stream();
    let start = done("marking the time", stream.mark())?;
    work()?;
    let end = done("marking the time", stream.mark())?;
    let milliseconds = done("reading the time", start.milliseconds_until(&end))?;
    microseconds(milliseconds)
}

/// A time in milliseconds as the driver gives it; one that is not above zero is none.
fn microseconds(milliseconds: f32) -> Result<f64, CudaError> {
    if milliseconds.is_finite() && milliseconds > 0.0 {
        return Ok(1e3 * f64::from(milliseconds));
    }
    Err(CudaError::Driver {
        doing: "reading the time".to_owned(),
        message: format!("{milliseconds} ms found, expected more than 0"),
    })
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_is_none_is_no_measurement() {
        for none in [0.0, -0.0, -15.6, f32::NAN, f32::INFINITY] {
            let refused = microseconds(none).unwrap_err().to_string();
            assert!(refused.contains("expected more than 0"), "{refused}");
        }
        assert_eq!(microseconds(0.5).unwrap(), 500.0);
    }
}
