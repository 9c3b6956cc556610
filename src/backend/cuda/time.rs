//! How long the projection takes on a device, and how long it would if only memory counted.
//!
//! A measurement replays a CUDA graph that runs the kernels once over each of several copies of their
//! inputs, together larger than any cache, and divides. CUDA events take the time; of several replays the
//! median counts. The limit is the time to read x and the fp32 weight once at the rate of a copy measured
//! in the same process, whose bytes count twice, read and written.

use cudarc::driver::{
    CudaSlice,
    sys::{CUevent_flags, CUgraphInstantiate_flags, CUstreamCaptureMode},
};

use super::{
    blas::{Blas, Product, Sizes},
    device::{Device, done},
    error::CudaError,
    mix::{MixOnDevice, Streams},
    options::Stored,
};
use crate::{backend::MixInputs, recipe::MixRecipe};

/// Bytes of inputs to go round: several times the largest second-level cache.
const ROUND: usize = 512 << 20;
/// Most copies of the inputs.
const MOST_COPIES: usize = 64;
/// Replays that count.
const REPLAYS: usize = 21;
/// Bytes of the copy that the limit is taken from.
const COPY: usize = 2 << 30;

/// A measured time and what it amounts to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// Median time of one run, in microseconds.
    pub microseconds: f64,
    /// Bytes of x and of the fp32 weight.
    pub bytes: usize,
}

impl Timing {
    /// Bytes read per second, in GB/s.
    #[must_use]
    pub fn gigabytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.microseconds / 1e3
    }
}

/// Copies of one set of inputs.
struct Inputs {
    x: Vec<Streams>,
    bytes: usize,
}

impl Inputs {
    fn new(device: &Device, inputs: &MixInputs<'_>, stored: Stored) -> Result<Self, CudaError> {
        let x = inputs.x.as_standard_layout();
        let values = x.as_slice().unwrap_or_default();
        let element = match stored {
            Stored::Bf16 => size_of::<u16>(),
            Stored::F32 => size_of::<f32>(),
        };
        let bytes = values.len() * element + inputs.function.len() * size_of::<f32>();
        let copies = ROUND.div_ceil(bytes).clamp(2, MOST_COPIES);
        let x = (0..copies)
            .map(|_| Streams::upload(device, values, stored))
            .collect::<Result<_, _>>()?;
        Ok(Self { x, bytes })
    }
}

/// The rate of a copy on the device, in GB/s of bytes read and written.
///
/// # Errors
/// The device fails.
pub fn copy_rate(device: &Device) -> Result<f64, CudaError> {
    let from: CudaSlice<u32> = device.zeros("a copy", COPY / size_of::<u32>())?;
    let mut to: CudaSlice<u32> = device.zeros("a copy", COPY / size_of::<u32>())?;
    let mut times = Vec::with_capacity(REPLAYS);
    for _ in 0..REPLAYS {
        times.push(elapsed(device, || {
            done("copying", device.stream().memcpy_dtod(&from, &mut to))
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
    let copies = Inputs::new(device, inputs, stored)?;
    let mixes = copies
        .x
        .iter()
        .map(|_| MixOnDevice::new(device, recipe, inputs, stored))
        .collect::<Result<Vec<_>, _>>()?;
    // The RMS factor is there before a recipe that normalises first asks for it.
    for (mix, x) in mixes.iter().zip(&copies.x) {
        mix.run(x)?;
    }
    let microseconds = replayed(device, copies.x.len(), |copy| {
        mixes[copy].project(&copies.x[copy])
    })?;
    Ok(Timing {
        microseconds,
        bytes: copies.bytes,
    })
}

/// The time of cuBLAS on the same inputs; what it takes to widen or to round an operand is not in it.
///
/// # Errors
/// The device fails, or there is no cuBLAS.
pub fn cublas(
    device: &Device,
    product: Product,
    inputs: &MixInputs<'_>,
) -> Result<Timing, CudaError> {
    let stored = match product {
        Product::Bf16 => Stored::Bf16,
        Product::Fp32Pedantic | Product::Tf32 => Stored::F32,
    };
    let copies = Inputs::new(device, inputs, stored)?;
    let function = inputs.function.as_standard_layout();
    let values = function.as_slice().unwrap_or_default();
    let weights = copies
        .x
        .iter()
        .map(|_| Streams::upload(device, values, stored))
        .collect::<Result<Vec<_>, _>>()?;
    let sizes = Sizes {
        tokens: inputs.x.nrows(),
        outputs: inputs.function.nrows(),
        depth: inputs.x.ncols(),
    };
    let dot = device.zeros("dot", sizes.tokens * sizes.outputs)?;
    let blas = Blas::new(device)?;
    let run = |copy: usize| blas.multiply(product, &copies.x[copy], &weights[copy], &dot, sizes);
    // Outside the graph first: the library sets itself up.
    run(0)?;
    device.wait()?;
    Ok(Timing {
        microseconds: replayed(device, copies.x.len(), run)?,
        bytes: copies.bytes,
    })
}

/// Captures `run` over all copies as one graph; the median time of one copy, in microseconds.
fn replayed(
    device: &Device,
    copies: usize,
    run: impl Fn(usize) -> Result<(), CudaError>,
) -> Result<f64, CudaError> {
    let stream = device.stream();
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    done("starting a graph", stream.begin_capture(mode))?;
    let captured = (0..copies).try_for_each(&run);
    let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = done("ending a graph", stream.end_capture(flags))?;
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
    let flags = Some(CUevent_flags::CU_EVENT_DEFAULT);
    let start = done("marking the time", stream.record_event(flags))?;
    work()?;
    let end = done("marking the time", stream.record_event(flags))?;
    let milliseconds = done("reading the time", start.elapsed_ms(&end))?;
    Ok(1e3 * f64::from(milliseconds))
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
