//! The library cuBLAS, and what is called of it.
#![allow(unsafe_code)]

use std::ffi::{OsStr, c_char, c_int, c_void};

use cudarc::cublas::sys::{
    cublasComputeType_t, cublasGemmAlgo_t, cublasHandle_t, cublasOperation_t, cudaDataType,
};

use super::{
    error::{CudaError, Refusal},
    functions::{Library, functions, text},
    library::{self, Missing},
};

functions! {
    /// What a product takes.
    Functions {
        cublasCreate_v2(handle: *mut cublasHandle_t);
        cublasDestroy_v2(handle: cublasHandle_t);
        cublasGetVersion_v2(handle: cublasHandle_t, version: *mut c_int);
        cublasSetStream_v2(handle: cublasHandle_t, stream: *mut c_void);
        cublasGemmEx(
            handle: cublasHandle_t,
            a_operation: cublasOperation_t,
            b_operation: cublasOperation_t,
            m: c_int,
            n: c_int,
            k: c_int,
            alpha: *const c_void,
            a: *const c_void,
            a_type: cudaDataType,
            a_stride: c_int,
            b: *const c_void,
            b_type: cudaDataType,
            b_stride: c_int,
            beta: *const c_void,
            c: *mut c_void,
            c_type: cudaDataType,
            c_stride: c_int,
            compute_type: cublasComputeType_t,
            algorithm: cublasGemmAlgo_t,
        );
    }
}

/// Loads the first of the library's names that the loader finds.
///
/// # Errors
/// There is none, it does not load, or it lacks a function.
pub fn load() -> Result<Functions, CudaError> {
    let missing = |reason| CudaError::NoCublas { reason };
    let mut unloadable = None;
    for name in cudarc::get_lib_name_candidates("cublas") {
        match library::load(OsStr::new(&name)) {
            Ok(library) => {
                let functions = Functions::of(Library::keep(library, meaning));
                return functions
                    .map_err(|symbol| missing(format!("{name} has no function {symbol}")));
            }
            Err(Missing::NotFound) => {}
            Err(Missing::Unloadable(reason)) => {
                unloadable.get_or_insert(reason);
            }
        }
    }
    Err(missing(unloadable.unwrap_or_else(|| {
        "the loader finds no libcublas.so".to_owned()
    })))
}

/// The library's name for a code.
fn meaning(library: &Library, code: c_int) -> Option<String> {
    type Name = unsafe extern "C" fn(c_int) -> *const c_char;
    // SAFETY: the function's type, which every cuBLAS of CUDA 12 and 13 has.
    let name = unsafe { library.function::<Name>("cublasGetStatusName") }?;
    // SAFETY: any code is allowed; the answer is a static string, ended by NUL.
    unsafe { text(name(code)) }
}
