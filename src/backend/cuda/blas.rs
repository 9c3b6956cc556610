//! The vendor's matrix product: `dot = x·hc_fnᵀ` by cuBLAS, for comparison.
//!
//! Called through `cublasGemmEx` with the compute type said, because the safe wrappers choose one (for fp32 the
//! handle's default, in cublasLt's case TF32). What order it sums in is the library's secret, and depends on
//! the shape, the device and the version.
#![allow(unsafe_code)]

use std::ffi::c_void;

use cudarc::{
    cublas::{
        result::{self, CublasError},
        sys::{
            cublasComputeType_t, cublasComputeType_t::*, cublasGemmAlgo_t, cublasHandle_t,
            cublasOperation_t, cudaDataType, cudaDataType_t,
        },
    },
    driver::{CudaSlice, DevicePtr},
};

use super::{device::Device, error::CudaError, mix::Streams};

/// What cuBLAS is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    /// fp32 operands, fp32 arithmetic.
    Fp32Pedantic,
    /// fp32 operands that the library may round to TF32.
    Tf32,
    /// bf16 operands, fp32 sums.
    Bf16,
}

impl Product {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Fp32Pedantic, Self::Tf32, Self::Bf16];

    /// What it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fp32Pedantic => "cublas-fp32-pedantic",
            Self::Tf32 => "cublas-tf32",
            Self::Bf16 => "cublas-bf16",
        }
    }

    fn compute(self) -> cublasComputeType_t {
        match self {
            Self::Fp32Pedantic => CUBLAS_COMPUTE_32F_PEDANTIC,
            Self::Tf32 => CUBLAS_COMPUTE_32F_FAST_TF32,
            Self::Bf16 => CUBLAS_COMPUTE_32F,
        }
    }
}

/// A handle of the library on a device's stream.
pub struct Blas<'a> {
    device: &'a Device,
    handle: cublasHandle_t,
}

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

impl<'a> Blas<'a> {
    /// Loads the library.
    ///
    /// # Errors
    /// It is not there, or does not start.
    pub fn new(device: &'a Device) -> Result<Self, CudaError> {
        // SAFETY: looks for the library and loads it, nothing else.
        if !unsafe { cudarc::cublas::sys::is_culib_present() } {
            return Err(CudaError::Driver {
                doing: "looking for cuBLAS".to_owned(),
                message: "the loader finds no libcublas.so".to_owned(),
            });
        }
        let handle = blas("starting cuBLAS", result::create_handle())?;
        let blas_handle = Self { device, handle };
        let stream = device.stream().cu_stream() as *mut _;
        // SAFETY: handle and stream are alive, and the stream outlives the handle.
        blas("giving cuBLAS a stream", unsafe {
            result::set_stream(handle, stream)
        })?;
        Ok(blas_handle)
    }

    /// `dot [T, N] = x [T, K] · weight [N, K]ᵀ`; x and weight both bf16 or both fp32.
    ///
    /// # Errors
    /// The library refuses.
    pub fn multiply(
        &self,
        product: Product,
        x: &Streams,
        weight: &Streams,
        dot: &CudaSlice<f32>,
        sizes: Sizes,
    ) -> Result<(), CudaError> {
        let stream = self.device.stream();
        let (x, x_type) = operand(x, stream);
        let (weight, weight_type) = operand(weight, stream);
        let dot = dot.device_ptr(stream).0 as *mut c_void;
        let (one, zero) = (1.0_f32, 0.0_f32);
        let narrow = |size: usize| i32::try_from(size).unwrap_or(i32::MAX);
        let (tokens, outputs) = (narrow(sizes.tokens), narrow(sizes.outputs));
        let depth = narrow(sizes.depth);
        // SAFETY: column-major, dotᵀ [N, T] = (weight as [K, N])ᵀ · (x as [K, T]); the buffers have these sizes.
        let multiplied = unsafe {
            result::gemm_ex(
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
                product.compute(),
                cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        };
        blas("multiplying by cuBLAS", multiplied)
    }
}

impl Drop for Blas<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is ours and is not used again. What it says on its way out helps nobody.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}

fn operand(
    streams: &Streams,
    stream: &cudarc::driver::CudaStream,
) -> (*const c_void, cudaDataType) {
    match streams {
        Streams::Bf16(codes) => (
            codes.device_ptr(stream).0 as *const c_void,
            cudaDataType_t::CUDA_R_16BF,
        ),
        Streams::F32(values) => (
            values.device_ptr(stream).0 as *const c_void,
            cudaDataType_t::CUDA_R_32F,
        ),
    }
}

fn blas<T>(doing: &str, result: Result<T, CublasError>) -> Result<T, CudaError> {
    result.map_err(|error| CudaError::Driver {
        doing: doing.to_owned(),
        message: format!("{:?}", error.0),
    })
}
