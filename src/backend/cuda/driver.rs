//! The driver's library, and what is called of it.
#![allow(unsafe_code)]

use std::{
    ffi::{OsStr, c_char, c_int, c_uint, c_ulonglong, c_void},
    ptr,
};

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUfunction_attribute, CUgraph,
    CUgraphExec, CUlaunchConfig, CUmodule, CUstream, CUstreamCaptureMode,
};

use super::{
    error::{CudaError, Refusal},
    functions::{Library, SUCCESS, functions, text},
    library::{self, Missing},
};

/// What the loader is said to lack if it finds no driver under any name.
const USUAL_NAME: &str = "libcuda.so.1";

/// What NVRTC calls if `cuInit` succeeds, without asking whether it is there.
const CALLED_BY_NVRTC: &str = "cuGetExportTable";

functions! {
    /// What every driver has: enough to find out what is here.
    Basics {
        cuInit(flags: c_uint);
        cuDriverGetVersion(version: *mut c_int);
        cuDeviceGetCount(count: *mut c_int);
        cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
        cuDeviceGetName(name: *mut c_char, length: c_int, device: CUdevice);
        cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: CUdevice);
        cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
    }
}

functions! {
    /// What a device at work takes.
    Functions {
        cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
        cuDevicePrimaryCtxRelease_v2(device: CUdevice);
        cuCtxGetCurrent(context: *mut CUcontext);
        cuCtxSetCurrent(context: CUcontext);
        cuStreamCreate(stream: *mut CUstream, flags: c_uint);
        cuStreamDestroy_v2(stream: CUstream);
        cuStreamSynchronize(stream: CUstream);
        cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode);
        cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph);
        cuMemAlloc_v2(pointer: *mut CUdeviceptr, bytes: usize);
        cuMemAllocAsync(pointer: *mut CUdeviceptr, bytes: usize, stream: CUstream);
        cuMemFree_v2(pointer: CUdeviceptr);
        cuMemFreeAsync(pointer: CUdeviceptr, stream: CUstream);
        cuMemsetD8Async(to: CUdeviceptr, byte: u8, bytes: usize, stream: CUstream);
        cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream);
        cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream);
        cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream);
        cuModuleLoadData(module: *mut CUmodule, image: *const c_void);
        cuModuleUnload(module: CUmodule);
        cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
        cuFuncSetAttribute(function: CUfunction, attribute: CUfunction_attribute, value: c_int);
        cuLaunchKernelEx(
            config: *const CUlaunchConfig,
            function: CUfunction,
            arguments: *mut *mut c_void,
            extra: *mut *mut c_void,
        );
        cuEventCreate(event: *mut CUevent, flags: c_uint);
        cuEventDestroy_v2(event: CUevent);
        cuEventRecord(event: CUevent, stream: CUstream);
        cuEventSynchronize(event: CUevent);
        cuEventElapsedTime_v2(milliseconds: *mut f32, start: CUevent, end: CUevent);
        cuGraphInstantiateWithFlags(graph: *mut CUgraphExec, from: CUgraph, flags: c_ulonglong);
        cuGraphLaunch(graph: CUgraphExec, stream: CUstream);
        cuGraphExecDestroy(graph: CUgraphExec);
        cuGraphDestroy(graph: CUgraph);
    }
}

/// The driver's library.
pub struct Loaded {
    library: Library,
    /// The name it was found by.
    name: String,
}

impl Loaded {
    /// Loads the first of the driver's names that the loader finds.
    ///
    /// # Errors
    /// There is none, or it does not load.
    pub fn open() -> Result<Self, CudaError> {
        let mut unloadable = None;
        for name in cudarc::get_lib_name_candidates("cuda") {
            match library::load(OsStr::new(&name)) {
                Ok(library) => {
                    let library = Library::keep(library, meaning);
                    return Ok(Self { library, name });
                }
                Err(Missing::NotFound) => {}
                Err(Missing::Unloadable(reason)) => {
                    unloadable.get_or_insert(CudaError::Unloadable { reason });
                }
            }
        }
        Err(unloadable.unwrap_or(CudaError::NoDriver {
            library: USUAL_NAME,
        }))
    }

    /// What finds out more.
    ///
    /// # Errors
    /// It lacks a function.
    pub fn basics(&self) -> Result<Basics, CudaError> {
        Basics::of(self.library).map_err(|symbol| self.lacks(symbol))
    }

    /// What works, of a driver that is new enough.
    ///
    /// # Errors
    /// It lacks a function.
    pub fn functions(&self) -> Result<Functions, CudaError> {
        // SAFETY: only whether there is such a function is asked, it is not called.
        unsafe {
            self.library
                .function::<unsafe extern "C" fn()>(CALLED_BY_NVRTC)
        }
        .ok_or_else(|| self.lacks(CALLED_BY_NVRTC))?;
        Functions::of(self.library).map_err(|symbol| self.lacks(symbol))
    }

    fn lacks(&self, symbol: &'static str) -> CudaError {
        CudaError::Broken {
            library: self.name.clone(),
            symbol,
        }
    }
}

/// The driver's name for a code, and what it says about it.
fn meaning(library: &Library, code: c_int) -> Option<String> {
    let said = |symbol| {
        type Describe = unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int;
        // SAFETY: the type of cuGetErrorName and of cuGetErrorString.
        let describe = unsafe { library.function::<Describe>(symbol) }?;
        let mut said = ptr::null();
        // SAFETY: it writes a pointer to a static string, or a null pointer for a code it does not know.
        let is_known = unsafe { describe(code, &raw mut said) } == SUCCESS;
        // SAFETY: null, or a string that the driver ends by NUL.
        is_known.then(|| unsafe { text(said) }).flatten()
    };
    let name = said("cuGetErrorName")?;
    Some(match said("cuGetErrorString") {
        Some(text) => format!("{name}: {text}"),
        None => name,
    })
}
