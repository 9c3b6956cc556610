//! NVRTC's functions, as C has them.
#![allow(unsafe_code)]

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    path::Path,
};

use libloading::Library;

use super::broken;
use crate::backend::cuda::error::CudaError;

/// `NVRTC_SUCCESS`.
pub const SUCCESS: c_int = 0;

/// More archs than any compiler knows.
const MOST_ARCHS: usize = 1000;

/// A program in the compiler's hands: `nvrtcProgram`.
pub type Handle = *mut c_void;

pub type SizeOf = unsafe extern "C" fn(Handle, *mut usize) -> c_int;
pub type CopyOf = unsafe extern "C" fn(Handle, *mut c_char) -> c_int;

/// The library's functions, by the name they have after `nvrtc`.
#[derive(Clone, Copy, Debug)]
pub struct Api {
    pub version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int,
    pub get_num_supported_archs: unsafe extern "C" fn(*mut c_int) -> c_int,
    pub get_supported_archs: unsafe extern "C" fn(*mut c_int) -> c_int,
    pub get_error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    pub create_program: unsafe extern "C" fn(
        *mut Handle,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> c_int,
    pub destroy_program: unsafe extern "C" fn(*mut Handle) -> c_int,
    pub compile_program: unsafe extern "C" fn(Handle, c_int, *const *const c_char) -> c_int,
    pub get_program_log_size: SizeOf,
    pub get_program_log: CopyOf,
    pub get_cubin_size: SizeOf,
    pub get_cubin: CopyOf,
    pub get_ptx_size: SizeOf,
    pub get_ptx: CopyOf,
}

impl Api {
    pub fn of(library: &Library, path: &Path) -> Result<Self, CudaError> {
        fn function<F: Copy>(library: &Library, path: &Path, name: &str) -> Result<F, CudaError> {
            // SAFETY: `F` is the type of a field of `Api`, which is the function's C type by NVRTC's
            // reference; `Nvrtc` keeps the library as long as the pointer.
            unsafe { library.get::<F>(name.as_bytes()) }
                .map(|function| *function)
                .map_err(|_| broken(path, format!("it has no function {name}")))
        }
        Ok(Self {
            version: function(library, path, "nvrtcVersion")?,
            get_num_supported_archs: function(library, path, "nvrtcGetNumSupportedArchs")?,
            get_supported_archs: function(library, path, "nvrtcGetSupportedArchs")?,
            get_error_string: function(library, path, "nvrtcGetErrorString")?,
            create_program: function(library, path, "nvrtcCreateProgram")?,
            destroy_program: function(library, path, "nvrtcDestroyProgram")?,
            compile_program: function(library, path, "nvrtcCompileProgram")?,
            get_program_log_size: function(library, path, "nvrtcGetProgramLogSize")?,
            get_program_log: function(library, path, "nvrtcGetProgramLog")?,
            get_cubin_size: function(library, path, "nvrtcGetCUBINSize")?,
            get_cubin: function(library, path, "nvrtcGetCUBIN")?,
            get_ptx_size: function(library, path, "nvrtcGetPTXSize")?,
            get_ptx: function(library, path, "nvrtcGetPTX")?,
        })
    }

    pub fn version(&self, path: &Path) -> Result<(i32, i32), CudaError> {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: it writes two ints.
        let code = unsafe { (self.version)(&raw mut major, &raw mut minor) };
        self.works(code, "nvrtcVersion", path)?;
        Ok((major, minor))
    }

    pub fn archs(&self, path: &Path) -> Result<Vec<i32>, CudaError> {
        let mut count = 0;
        // SAFETY: it writes one int.
        let code = unsafe { (self.get_num_supported_archs)(&raw mut count) };
        self.works(code, "nvrtcGetNumSupportedArchs", path)?;
        let known = usize::try_from(count)
            .ok()
            .filter(|&count| count <= MOST_ARCHS);
        let count =
            known.ok_or_else(|| broken(path, format!("it claims to know {count} archs")))?;
        let mut archs = vec![0; count];
        // SAFETY: it writes as many ints as the function above says.
        let code = unsafe { (self.get_supported_archs)(archs.as_mut_ptr()) };
        self.works(code, "nvrtcGetSupportedArchs", path)?;
        archs.sort_unstable();
        Ok(archs)
    }

    fn works(&self, code: c_int, call: &str, path: &Path) -> Result<(), CudaError> {
        if code == SUCCESS {
            return Ok(());
        }
        Err(broken(
            path,
            format!("{call} returned {}", self.name_of(code)),
        ))
    }

    pub fn name_of(&self, code: c_int) -> String {
        // SAFETY: any code is allowed; the answer is a static string.
        let name = unsafe { (self.get_error_string)(code) };
        if name.is_null() {
            return format!("error {code}");
        }
        // SAFETY: not null, and ended by NUL.
        let name = unsafe { CStr::from_ptr(name) };
        format!("error {code} ({})", name.to_string_lossy())
    }
}
