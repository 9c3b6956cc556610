//! Which driver and which devices are here, found out before cudarc makes its first call.
//!
//! cudarc looks every function up when it is first called, and panics where the library or the
//! function is missing; even to print an error it calls the driver. So the library that cudarc will
//! load is loaded here first, and each function it will call is looked up by name.
#![allow(unsafe_code)]

use std::{
    env,
    ffi::{CStr, OsStr, c_char, c_int, c_uint},
    mem, ptr,
};

use libloading::Library;

use super::{
    error::CudaError,
    library::{self, Missing},
};
use crate::tensor_core::Arch;

/// The oldest driver, by the CUDA version it supports: the first with `sm_120` and with
/// `cuEventElapsedTime_v2`, which times kernels.
pub const OLDEST_DRIVER: (u32, u32) = (12, 8);

/// Hides devices from the driver.
pub const VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";

/// What the loader is said to lack if it finds no driver under any name.
const USUAL_NAME: &str = "libcuda.so.1";

/// `CUDA_SUCCESS`.
const SUCCESS: c_int = 0;
/// `CUDA_ERROR_NO_DEVICE`.
const NO_DEVICE: c_int = 100;

/// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`.
const SMS: c_int = 16;
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR`.
const CAPABILITY_MAJOR: c_int = 75;
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR`.
const CAPABILITY_MINOR: c_int = 76;

/// What cudarc calls on our behalf, the functions of the probe apart, and `cuGetExportTable`: NVRTC
/// calls `cuInit` and, if that succeeds, this one without asking whether it is there.
pub const CALLED_LATER: &[&str] = &[
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventElapsedTime_v2",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuFuncGetAttribute",
    "cuFuncSetAttribute",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGetExportTable",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuGraphUpload",
    "cuLaunchKernelEx",
    "cuMemAllocAsync",
    "cuMemAlloc_v2",
    "cuMemFreeAsync",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuStreamBeginCapture_v2",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamEndCapture",
    "cuStreamIsCapturing",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
];

/// A driver that works, and what it drives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    /// The CUDA version it supports: major, minor.
    pub version: (u32, u32),
    /// At least one device, by number.
    pub devices: Vec<DeviceFacts>,
}

impl Driver {
    /// Device number `ordinal`.
    ///
    /// # Errors
    /// There are fewer.
    pub fn device(&self, ordinal: usize) -> Result<&DeviceFacts, CudaError> {
        self.devices.get(ordinal).ok_or(CudaError::NoSuchDevice {
            asked: ordinal,
            count: self.devices.len(),
        })
    }
}

/// A device, as the driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    /// Its number, from 0, among the visible ones.
    pub ordinal: usize,
    /// Its marketing name.
    pub name: String,
    /// Its compute capability: major, minor.
    pub capability: (u32, u32),
    /// Streaming multiprocessors.
    pub sms: usize,
    /// Bytes of its memory.
    pub memory_bytes: u64,
}

impl DeviceFacts {
    /// The arch whose arithmetic the device has.
    ///
    /// # Errors
    /// There is no table for its matrix unit.
    pub fn arch(&self) -> Result<Arch, CudaError> {
        match self.capability {
            (8, 0) => Ok(Arch::Sm80),
            (8, 6) => Ok(Arch::Sm86),
            (8, 9) => Ok(Arch::Sm89),
            (9, 0) => Ok(Arch::Sm90),
            (10, _) => Ok(Arch::Sm100),
            (12, _) => Ok(Arch::Sm120),
            capability => Err(CudaError::UnknownCapability {
                ordinal: self.ordinal,
                name: self.name.clone(),
                capability,
            }),
        }
    }

    /// The target that NVRTC has to compile for: the device's own, which may be newer than the
    /// [`arch`](Self::arch) it computes like (`sm_103` computes like `sm_100`).
    #[must_use]
    pub fn compile_arch(&self) -> String {
        let (major, minor) = self.capability;
        format!("sm_{major}{minor}")
    }
}

/// Asks the driver what is here.
///
/// # Errors
/// There is no driver that works, is new enough and drives a device.
pub fn probe() -> Result<Driver, CudaError> {
    let loaded = Loaded::open()?;
    loaded.start()?;
    let version = loaded.version()?;
    if version < OLDEST_DRIVER {
        return Err(CudaError::TooOld { found: version });
    }
    let count = loaded.device_count()?;
    let devices = (0..count)
        .map(|ordinal| loaded.device(ordinal))
        .collect::<Result<_, _>>()?;
    for &symbol in CALLED_LATER {
        loaded.function::<unsafe extern "C" fn()>(symbol)?;
    }
    Ok(Driver { version, devices })
}

/// What cudarc calls of cuBLAS on our behalf.
const CALLED_OF_CUBLAS: [&str; 5] = [
    "cublasCreate_v2",
    "cublasDestroy_v2",
    "cublasGemmEx",
    "cublasGetVersion_v2",
    "cublasSetStream_v2",
];

/// Whether cuBLAS, which only the vendor's own variants need, is here and has what cudarc will call:
/// like the driver it is looked at before.
///
/// # Errors
/// The loader finds none, or it lacks a function.
pub fn cublas() -> Result<(), CudaError> {
    let missing = |reason| CudaError::NoCublas { reason };
    let mut unloadable = None;
    for name in cudarc::get_lib_name_candidates("cublas") {
        match library::load(OsStr::new(&name)) {
            Ok(library) => {
                // Never unloaded: cudarc is about to load it again, and it is large.
                let library = mem::ManuallyDrop::new(library);
                for symbol in CALLED_OF_CUBLAS {
                    // SAFETY: only whether there is such a function is asked, it is not called.
                    unsafe { library.get::<unsafe extern "C" fn()>(symbol.as_bytes()) }
                        .map_err(|_| missing(format!("{name} has no function {symbol}")))?;
                }
                return Ok(());
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

fn visible_devices() -> Option<String> {
    env::var_os(VISIBLE_DEVICES).map(|value| value.to_string_lossy().into_owned())
}

/// The driver's library.
struct Loaded {
    /// Never unloaded: the driver runs threads of its own once it has been started.
    library: mem::ManuallyDrop<Library>,
    /// The name it was found by.
    name: String,
}

impl Loaded {
    /// Loads the library that cudarc will load: the first of its names that the loader finds.
    fn open() -> Result<Self, CudaError> {
        let mut unloadable = None;
        for name in cudarc::get_lib_name_candidates("cuda") {
            match library::load(OsStr::new(&name)) {
                Ok(library) => {
                    let library = mem::ManuallyDrop::new(library);
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

    /// The function `symbol`, as a pointer of type `F`.
    fn function<F: Copy>(&self, symbol: &'static str) -> Result<F, CudaError> {
        // SAFETY: `F` is the function's C type, which the callers below take from the driver API's
        // reference. The pointer stays valid because the library is never unloaded.
        unsafe { self.library.get::<F>(symbol.as_bytes()) }
            .map(|function| *function)
            .map_err(|_| CudaError::Broken {
                library: self.name.clone(),
                symbol,
            })
    }

    fn start(&self) -> Result<(), CudaError> {
        let call = "cuInit";
        let init = self.function::<unsafe extern "C" fn(c_uint) -> c_int>(call)?;
        // SAFETY: the only flags allowed are none.
        self.check(call, unsafe { init(0) })
    }

    fn version(&self) -> Result<(u32, u32), CudaError> {
        let call = "cuDriverGetVersion";
        let get = self.function::<unsafe extern "C" fn(*mut c_int) -> c_int>(call)?;
        let mut version = 0;
        // SAFETY: it writes one int.
        self.check(call, unsafe { get(&raw mut version) })?;
        let version = version.unsigned_abs();
        Ok((version / 1000, version % 1000 / 10))
    }

    /// At least one.
    fn device_count(&self) -> Result<c_int, CudaError> {
        let call = "cuDeviceGetCount";
        let get = self.function::<unsafe extern "C" fn(*mut c_int) -> c_int>(call)?;
        let mut count = 0;
        // SAFETY: it writes one int.
        self.check(call, unsafe { get(&raw mut count) })?;
        if count < 1 {
            return Err(no_device());
        }
        Ok(count)
    }

    fn device(&self, ordinal: c_int) -> Result<DeviceFacts, CudaError> {
        let call = "cuDeviceGet";
        let get = self.function::<unsafe extern "C" fn(*mut c_int, c_int) -> c_int>(call)?;
        let mut device = 0;
        // SAFETY: it writes one CUdevice, which is an int.
        self.check(call, unsafe { get(&raw mut device, ordinal) })?;
        Ok(DeviceFacts {
            ordinal: usize::try_from(ordinal).unwrap_or(0),
            name: self.device_name(device)?,
            capability: (
                self.attribute(device, CAPABILITY_MAJOR)?,
                self.attribute(device, CAPABILITY_MINOR)?,
            ),
            sms: self.attribute(device, SMS)? as usize,
            memory_bytes: self.memory_bytes(device)?,
        })
    }

    fn device_name(&self, device: c_int) -> Result<String, CudaError> {
        let call = "cuDeviceGetName";
        let get =
            self.function::<unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int>(call)?;
        let mut name = [0u8; 256];
        // SAFETY: it writes at most the 255 bytes it is told of, so the last one stays NUL.
        self.check(call, unsafe { get(name.as_mut_ptr().cast(), 255, device) })?;
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        Ok(name.to_string_lossy().into_owned())
    }

    fn attribute(&self, device: c_int, attribute: c_int) -> Result<u32, CudaError> {
        let call = "cuDeviceGetAttribute";
        let get = self.function::<unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int>(call)?;
        let mut value = 0;
        // SAFETY: it writes one int; the attribute's number is one of the driver's.
        self.check(call, unsafe { get(&raw mut value, attribute, device) })?;
        Ok(value.unsigned_abs())
    }

    fn memory_bytes(&self, device: c_int) -> Result<u64, CudaError> {
        let call = "cuDeviceTotalMem_v2";
        let get = self.function::<unsafe extern "C" fn(*mut usize, c_int) -> c_int>(call)?;
        let mut bytes = 0;
        // SAFETY: it writes one size_t.
        self.check(call, unsafe { get(&raw mut bytes, device) })?;
        Ok(bytes as u64)
    }

    fn check(&self, call: &'static str, code: c_int) -> Result<(), CudaError> {
        match code {
            SUCCESS => Ok(()),
            NO_DEVICE => Err(no_device()),
            code => Err(CudaError::Call {
                call,
                code,
                name: self.name_of(code),
            }),
        }
    }

    /// The driver's name for an error code, if it can tell.
    fn name_of(&self, code: c_int) -> Option<String> {
        let get = self
            .function::<unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int>("cuGetErrorName")
            .ok()?;
        let mut name = ptr::null();
        // SAFETY: it writes a pointer to a static string, or a null pointer for an unknown code.
        let known = unsafe { get(code, &raw mut name) } == SUCCESS && !name.is_null();
        if !known {
            return None;
        }
        // SAFETY: the pointer is not null, and the driver ends its strings by NUL.
        let name = unsafe { CStr::from_ptr(name) };
        Some(name.to_string_lossy().into_owned())
    }
}

fn no_device() -> CudaError {
    CudaError::NoDevice {
        visible: visible_devices(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(capability: (u32, u32)) -> DeviceFacts {
        DeviceFacts {
            ordinal: 0,
            name: "a card".to_owned(),
            capability,
            sms: 1,
            memory_bytes: 1,
        }
    }

    /// Source: NVIDIA's list of CUDA devices by compute capability.
    #[test]
    fn capabilities_and_the_archs_they_compute_like() {
        for (capability, arch, target) in [
            ((8, 0), Arch::Sm80, "sm_80"),
            ((8, 6), Arch::Sm86, "sm_86"),
            ((8, 9), Arch::Sm89, "sm_89"),
            ((9, 0), Arch::Sm90, "sm_90"),
            ((10, 0), Arch::Sm100, "sm_100"),
            ((10, 3), Arch::Sm100, "sm_103"),
            ((12, 0), Arch::Sm120, "sm_120"),
            ((12, 1), Arch::Sm120, "sm_121"),
        ] {
            assert_eq!(device(capability).arch(), Ok(arch));
            assert_eq!(device(capability).compile_arch(), target);
        }
        for capability in [(7, 5), (8, 7), (8, 8), (11, 0), (13, 0)] {
            let refused = device(capability).arch().unwrap_err().to_string();
            let (major, minor) = capability;
            let found = format!("device 0 (a card) has compute capability {major}.{minor}, ");
            assert!(refused.starts_with(&found), "{refused}");
            assert!(refused.contains("sm_80, sm_86, sm_89"), "{refused}");
        }
    }

    #[test]
    fn a_device_that_is_not_there() {
        let driver = Driver {
            version: OLDEST_DRIVER,
            devices: vec![device((9, 0))],
        };
        assert!(driver.device(0).is_ok());
        assert_eq!(
            driver.device(1).unwrap_err().to_string(),
            "--device 1: there is only device 0; `ulpdrift doctor` lists them"
        );
    }
}
