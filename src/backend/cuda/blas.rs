//! The vendor's matrix product: `dot = x·hc_fnᵀ` by cuBLAS, for comparison.
//!
//! Called through `cublasGemmEx` with the compute type said, because the safe wrappers choose one (for fp32 the
//! handle's default, in cublasLt's case TF32). What order it sums in is the library's secret, and depends on
//! the shape, the device and the version.
#![allow(unsafe_code)]

use std::{ffi::c_void, ptr, sync::Arc};

use cudarc::cublas::sys::{
    cublasComputeType_t, cublasComputeType_t::*, cublasGemmAlgo_t, cublasHandle_t,
    cublasOperation_t, cudaDataType, cudaDataType_t,
};
use ndarray::{Array2, ArrayView2};

use super::{
    cublas::{self, Functions},
    device::{Device, done},
    error::CudaError,
    mix::Streams,
    options::Stored,
    stream::{Buffer, Stream},
};
use crate::{
    backend::MixInputs,
    format::{Rounding, bf16},
    recipe::{Storage, library::LibraryProduct},
};

/// A handle of the library on a device's stream.
pub struct Blas {
    /// Outlives the handle, which works on it.
    stream: Arc<Stream>,
    functions: Functions,
    handle: cublasHandle_t,
}

// SAFETY: a handle may be used by any thread that has its device bound, one at a time.
unsafe impl Send for Blas {}

/// T, N and K of a product.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Tokens.
    pub tokens: usize,
    /// Outputs.
    pub outputs: usize,
    /// Products per output.
    pub depth: usize,
}

impl Sizes {
    /// Of the projection.
    #[must_use]
    pub fn of(inputs: &MixInputs<'_>) -> Self {
        Self {
            tokens: inputs.x.nrows(),
            outputs: inputs.function.nrows(),
            depth: inputs.x.ncols(),
        }
    }
}

/// The values of an operand as a product takes them: rounded to nearest even where its format is narrower.
#[must_use]
pub fn operand(product: LibraryProduct, values: ArrayView2<'_, f32>) -> Vec<f32> {
    match product.operands() {
        Storage::F32 => values.iter().copied().collect(),
        Storage::Bf16 => values
            .iter()
            .map(|&value| bf16::round_f32(value, Rounding::NearestEven))
            .collect(),
    }
}

impl Blas {
    /// Loads the library.
    ///
    /// # Errors
    /// It is not there, lacks a function, or does not start.
    pub fn new(device: &Device) -> Result<Self, CudaError> {
        let functions = cublas::load()?;
        let mut handle = ptr::null_mut();
        // SAFETY: it writes one handle.
        done("starting cuBLAS", unsafe {
            functions.cublasCreate_v2(&raw mut handle)
        })?;
        let started = Self {
            stream: device.stream().clone(),
            functions,
            handle,
        };
        let stream = started.stream.raw().cast();
        // SAFETY: handle and stream are alive, and the stream outlives the handle.
        done("giving cuBLAS a stream", unsafe {
            functions.cublasSetStream_v2(handle, stream)
        })?;
        Ok(started)
    }

    /// The library's version.
    ///
    /// # Errors
    /// The library does not tell.
    pub fn version(&self) -> Result<String, CudaError> {
        let mut version = 0;
        // SAFETY: the handle is alive, and it writes one int.
        done("asking cuBLAS for its version", unsafe {
            self.functions
                .cublasGetVersion_v2(self.handle, &raw mut version)
        })?;
        let (major, minor, patch) = (version / 10_000, version / 100 % 100, version % 100);
        Ok(format!("{major}.{minor}.{patch}"))
    }

    /// `x·hc_fnᵀ` [T, N], from and to the host.
    ///
    /// # Errors
    /// The library or the device fails.
    pub fn dot(
        &self,
        device: &Device,
        product: LibraryProduct,
        inputs: &MixInputs<'_>,
    ) -> Result<Array2<f32>, CudaError> {
        let stored = Stored::for_format(product.operands().format());
        let upload = |values| Streams::upload(device, &operand(product, values), stored);
        let (x, function) = (upload(inputs.x)?, upload(inputs.function)?);
        let sizes = Sizes::of(inputs);
        let dot = device.zeros("dot", sizes.tokens * sizes.outputs)?;
        self.multiply(product, &x, &function, &dot, sizes)?;
        let values = device.download("dot", &dot)?;
        Ok(Array2::from_shape_vec((sizes.tokens, sizes.outputs), values).unwrap_or_default())
    }

    /// `dot [T, N] = x [T, K] · weight [N, K]ᵀ`; x and weight both bf16 or both fp32.
    ///
    /// # Errors
    /// The library refuses.
    pub fn multiply(
        &self,
        product: LibraryProduct,
        x: &Streams,
        weight: &Streams,
        dot: &Buffer<f32>,
        sizes: Sizes,
    ) -> Result<(), CudaError> {
        let (x, x_type) = pointer(x);
        let (weight, weight_type) = pointer(weight);
        let dot = dot.pointer() as *mut c_void;
        let (one, zero) = (1.0_f32, 0.0_f32);
        let narrow = |size: usize| i32::try_from(size).unwrap_or(i32::MAX);
        let (tokens, outputs) = (narrow(sizes.tokens), narrow(sizes.outputs));
        let depth = narrow(sizes.depth);
        // SAFETY: column-major, dotᵀ [N, T] = (weight as [K, N])ᵀ · (x as [K, T]); the buffers have these sizes.
        let multiplied = unsafe {
            self.functions.cublasGemmEx(
                self.handle,
                cublasOperation_t::CUBLAS_OP_T,
                cublasOperation_t::CUBLAS_OP_N,
                outputs,
                tokens,
                depth,
                (&raw const one).cast(),
                weight,
                weight_type,
                depth,
                x,
                x_type,
                depth,
                (&raw const zero).cast(),
                dot,
                cudaDataType_t::CUDA_R_32F,
                outputs,
                compute_type(product),
                cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        };
        done("multiplying by cuBLAS", multiplied)
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        // SAFETY: the handle is ours and is not used again. What it says on its way out helps nobody.
        let _ = unsafe { self.functions.cublasDestroy_v2(self.handle) };
    }
}

fn compute_type(product: LibraryProduct) -> cublasComputeType_t {
    match product {
        LibraryProduct::Fp32Pedantic => CUBLAS_COMPUTE_32F_PEDANTIC,
        LibraryProduct::Tf32 => CUBLAS_COMPUTE_32F_FAST_TF32,
        LibraryProduct::Bf16 => CUBLAS_COMPUTE_32F,
    }
}

fn pointer(streams: &Streams) -> (*const c_void, cudaDataType) {
    match streams {
        Streams::Bf16(codes) => (
            codes.pointer() as *const c_void,
            cudaDataType_t::CUDA_R_16BF,
        ),
        Streams::F32(values) => (
            values.pointer() as *const c_void,
            cudaDataType_t::CUDA_R_32F,
        ),
    }
}
