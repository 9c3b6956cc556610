//! Which driver and which devices are here.
#![allow(unsafe_code)]

use std::{
    env,
    ffi::{CStr, c_int},
};

use super::{
    cublas,
    driver::{Basics, Functions, Loaded},
    error::{CudaError, Refusal},
};
use crate::tensor_core::Arch;

/// The oldest driver, by the CUDA version it supports: the first with `sm_120` and with
/// `cuEventElapsedTime_v2`, which times kernels.
pub const OLDEST_DRIVER: (u32, u32) = (12, 8);

/// Hides devices from the driver.
pub const VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";

/// `CUDA_ERROR_NO_DEVICE`.
const NO_DEVICE: c_int = 100;

/// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`.
const SMS: c_int = 16;
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR`.
const CAPABILITY_MAJOR: c_int = 75;
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR`.
const CAPABILITY_MINOR: c_int = 76;

/// What is called of the driver beyond the probe's own functions.
pub const CALLED_LATER: &[&str] = Functions::NAMES;

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
    Ok(open()?.driver)
}

/// A driver that works, and what is called of it.
pub(super) struct Opened {
    pub driver: Driver,
    pub basics: Basics,
    pub functions: Functions,
}

/// As [`probe`].
pub(super) fn open() -> Result<Opened, CudaError> {
    let library = Loaded::open()?;
    let basics = library.basics()?;
    // SAFETY: the only flags allowed are none.
    asked(unsafe { basics.cuInit(0) })?;
    let version = version(&basics)?;
    if version < OLDEST_DRIVER {
        return Err(CudaError::TooOld { found: version });
    }
    let devices = (0..device_count(&basics)?)
        .map(|ordinal| device(&basics, ordinal))
        .collect::<Result<_, _>>()?;
    Ok(Opened {
        driver: Driver { version, devices },
        basics,
        functions: library.functions()?,
    })
}

/// Whether cuBLAS, which only the vendor's own variants need, is here and has what is called of it.
///
/// # Errors
/// The loader finds none, or it lacks a function.
pub fn cublas() -> Result<(), CudaError> {
    cublas::load().map(|_| ())
}

fn visible_devices() -> Option<String> {
    env::var_os(VISIBLE_DEVICES).map(|value| value.to_string_lossy().into_owned())
}

fn version(basics: &Basics) -> Result<(u32, u32), CudaError> {
    let mut version = 0;
    // SAFETY: it writes one int.
    asked(unsafe { basics.cuDriverGetVersion(&raw mut version) })?;
    let version = version.unsigned_abs();
    Ok((version / 1000, version % 1000 / 10))
}

/// At least one.
fn device_count(basics: &Basics) -> Result<c_int, CudaError> {
    let mut count = 0;
    // SAFETY: it writes one int.
    asked(unsafe { basics.cuDeviceGetCount(&raw mut count) })?;
    if count < 1 {
        return Err(no_device());
    }
    Ok(count)
}

fn device(basics: &Basics, ordinal: c_int) -> Result<DeviceFacts, CudaError> {
    let (mut device, mut bytes) = (0, 0);
    // SAFETY: it writes one CUdevice, which is an int.
    asked(unsafe { basics.cuDeviceGet(&raw mut device, ordinal) })?;
    // SAFETY: it writes one size_t.
    asked(unsafe { basics.cuDeviceTotalMem_v2(&raw mut bytes, device) })?;
    Ok(DeviceFacts {
        ordinal: usize::try_from(ordinal).unwrap_or(0),
        name: device_name(basics, device)?,
        capability: (
            attribute(basics, device, CAPABILITY_MAJOR)?,
            attribute(basics, device, CAPABILITY_MINOR)?,
        ),
        sms: attribute(basics, device, SMS)? as usize,
        memory_bytes: bytes as u64,
    })
}

fn device_name(basics: &Basics, device: c_int) -> Result<String, CudaError> {
    let mut name = [0u8; 256];
    // SAFETY: it writes at most the 255 bytes it is told of, so the last one stays NUL.
    asked(unsafe { basics.cuDeviceGetName(name.as_mut_ptr().cast(), 255, device) })?;
    let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
    Ok(name.to_string_lossy().into_owned())
}

fn attribute(basics: &Basics, device: c_int, attribute: c_int) -> Result<u32, CudaError> {
    let mut value = 0;
    // SAFETY: it writes one int; the attribute's number is one of the driver's.
    asked(unsafe { basics.cuDeviceGetAttribute(&raw mut value, attribute, device) })?;
    Ok(value.unsigned_abs())
}

fn asked(outcome: Result<(), Refusal>) -> Result<(), CudaError> {
    outcome.map_err(|refusal| match refusal.code {
        NO_DEVICE => no_device(),
        _ => CudaError::Call(refusal),
    })
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
