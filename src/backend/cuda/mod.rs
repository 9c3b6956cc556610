//! Runs recipes on a CUDA device. Every library is loaded at run time, so the tool builds and starts
//! on any machine.
//!
//! * [`error`]: each way in which a device, a driver or a compiler can be missing, in one sentence.
//! * `functions`: a library's functions as tables, with cudarc's types and C's results; `driver` and `cublas`: those
//!   of the two libraries.
//! * [`probe`]: what is here.
//! * [`nvrtc`]: the run-time compiler; [`cache`]: what it made, kept on disk.
//! * [`source`]: the kernels' sources; [`options`]: a recipe as their macros.
//! * `stream`: what a device keeps for us; [`device`]: a device at work; `mix`, `epilogue` and `index`: the operations; `tiles`: one
//!   instruction at a time.
//! * [`blas`]: the vendor's library; [`time`]: how long things take; `hardware`: both, as a suite asks
//!   for them.
//!
//! Of the indexer a device makes the logits and the exact selection. Everything upstream (linears, norms, rope,
//! pooling, quantisers) is the emulator's whatever the backend, on the FP8 unit of the device's arch, so that both are
//! handed the same operands.

pub mod blas;
pub mod cache;
mod cublas;
pub mod device;
mod driver;
mod epilogue;
pub mod error;
mod functions;
mod hardware;
mod index;
mod library;
pub mod mix;
pub mod nvrtc;
pub mod options;
pub mod probe;
pub mod source;
mod stream;
#[cfg(test)]
pub mod testing;
mod tiles;
pub mod time;

use std::{path::Path, sync::Mutex};

use ndarray::{Array2, ArrayView2};

use self::{
    blas::Blas,
    cache::Cache,
    device::Device,
    error::CudaError,
    mix::{MixOnDevice, Streams},
    options::Stored,
    source::Sources,
};
use super::{
    Backend, BackendError, BackendInfo, DeviceInfo, LayerInput, Mix, MixInputs, RecombineInputs,
    Split, SplitInputs, hardware::Hardware,
};
use crate::{
    format::Format,
    recipe::{
        Epilogue, MixRecipe, Recombine,
        indexer::{IndexRecipe, Operands, QueryOperands, Selector},
    },
};

/// The kernels on one device.
pub struct Cuda {
    device: Device,
    /// The vendor's library, loaded when it is first asked for.
    blas: Mutex<Option<Blas>>,
}

impl Cuda {
    /// Device number `ordinal`, with the compiler at `nvrtc` or the one that the loader finds.
    ///
    /// # Errors
    /// Something is missing, or does not work.
    pub fn open(ordinal: usize, nvrtc: Option<&Path>, sources: Sources) -> Result<Self, CudaError> {
        Ok(Self {
            device: Device::open(ordinal, nvrtc, sources)?,
            blas: Mutex::default(),
        })
    }

    /// Keeps compiled kernels in `cache`.
    #[must_use]
    pub fn with_cache(self, cache: Cache) -> Self {
        Self {
            device: self.device.with_cache(cache),
            ..self
        }
    }

    /// Lays its kernels out for so many multiprocessors, see [`Device::laid_out_for`].
    #[must_use]
    pub fn laid_out_for(self, sms: usize) -> Self {
        Self {
            device: self.device.laid_out_for(sms),
            ..self
        }
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }
}

impl Backend for Cuda {
    fn info(&self) -> BackendInfo {
        let (major, minor) = self.device.driver_version();
        let nvrtc = self.device.nvrtc();
        BackendInfo {
            name: "cuda",
            arch: self.device.arch,
            device: Some(DeviceInfo {
                name: self.device.facts.name.clone(),
                driver: format!("CUDA {major}.{minor}"),
                nvrtc: format!("{}.{}", nvrtc.version().0, nvrtc.version().1),
                replaced: self
                    .device
                    .sources()
                    .replaced()
                    .map(str::to_owned)
                    .collect(),
            }),
        }
    }

    fn hardware(&self) -> Option<&dyn Hardware> {
        Some(self)
    }

    fn mix(&self, recipe: &MixRecipe, inputs: &MixInputs<'_>) -> Result<Mix, BackendError> {
        self.device.bind()?;
        let stored = Stored::for_format(inputs.x_exact_in);
        let x = inputs.x.as_standard_layout();
        let streams = Streams::upload(&self.device, x.as_slice().unwrap_or_default(), stored)?;
        let mix = MixOnDevice::new(&self.device, recipe, inputs, stored)?;
        mix.run(&streams)?;
        Ok(mix.results()?)
    }

    fn split_sinkhorn<'a>(
        &self,
        epilogue: &'a Epilogue,
        inputs: &SplitInputs<'a>,
    ) -> Result<Split, BackendError> {
        self.device.bind()?;
        Ok(epilogue::split_sinkhorn(&self.device, epilogue, inputs)?)
    }

    fn collapse<'a>(
        &'a self,
        epilogue: &'a Epilogue,
        pre: ArrayView2<'a, f32>,
        x: ArrayView2<'a, f32>,
        x_exact_in: Format,
    ) -> Result<LayerInput<'a>, BackendError> {
        self.device.bind()?;
        let stored = Stored::for_format(x_exact_in);
        let y = epilogue::collapse(&self.device, epilogue, pre, x, stored)?;
        Ok(LayerInput::Whole(y))
    }

    fn recombine(
        &self,
        recombine: &Recombine,
        inputs: &RecombineInputs<'_>,
    ) -> Result<Array2<f32>, BackendError> {
        self.device.bind()?;
        Ok(epilogue::recombine(&self.device, recombine, inputs)?)
    }

    fn index_logits(
        &self,
        recipe: &IndexRecipe,
        queries: &QueryOperands,
        keys: &Operands,
    ) -> Result<Array2<f32>, BackendError> {
        self.device.bind()?;
        index::logits(&self.device, recipe, queries, keys)
    }

    fn top_k(
        &self,
        selector: Selector,
        logits: ArrayView2<'_, f32>,
        visible: &[usize],
        k: usize,
    ) -> Result<Vec<Vec<u32>>, BackendError> {
        if selector != Selector::Exact {
            let what = format!("selector {}", selector.name());
            return Err(BackendError::NoKernel { what });
        }
        self.device.bind()?;
        Ok(index::top_k(&self.device, logits, visible, k)?)
    }
}
