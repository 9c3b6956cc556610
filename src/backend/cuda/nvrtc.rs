//! NVRTC, the compiler of the kernels: source in, machine code for one arch out.
//!
//! A wrapper of our own, because cudarc's gives PTX only, drops the log of what compiled, panics
//! where a library or a function is missing, and takes an unversioned `libnvrtc.so` before the one
//! asked for. Kernels are compiled to a CUBIN for the device's own arch, so that the driver's PTX
//! compiler, which may be older, has no say in the bits. NVRTC may be called by several threads at
//! once, each with a program of its own.
#![allow(unsafe_code)]

mod api;

use std::{
    ffi::{CString, NulError, OsStr, c_char, c_int},
    fs::{self, Metadata},
    path::{Path, PathBuf},
    ptr,
    time::UNIX_EPOCH,
};

use libloading::Library;

use self::api::{Api, CopyOf, Handle, SUCCESS, SizeOf};
use super::{
    error::CudaError,
    library::{self, Missing},
};

/// What the loader is asked for, newest first. A file without a version is a developer's link to
/// whatever was installed last.
const NAMES: [&str; 3] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];

/// `NVRTC_ERROR_COMPILATION`: the source is wrong, where every other code is the compiler's own failure.
const WRONG_SOURCE: c_int = 6;
/// `NVRTC_ERROR_BUILTIN_OPERATION_FAILURE`: `libnvrtc-builtins` did not load.
const NO_BUILTINS: c_int = 7;

/// More than any log, PTX or machine code.
const LARGEST: usize = 1 << 28;
/// How machine code begins, which is an ELF file.
const ELF: &[u8] = b"\x7fELF";

/// A kernel's source and the headers it may include.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Its name in messages, such as `mix.cu`.
    pub name: &'a str,
    /// CUDA C++.
    pub text: &'a str,
    /// Headers by the name they are included by: name, text.
    pub headers: &'a [(&'a str, &'a str)],
}

/// A compiled kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// Machine code for the one arch.
    pub cubin: Vec<u8>,
    /// The same as PTX, to be read.
    pub ptx: String,
    /// What the compiler and the assembler said: registers and spills of each kernel.
    pub log: String,
    /// All options, in the order they were passed.
    pub options: Vec<String>,
}

/// A loaded NVRTC.
#[derive(Debug)]
pub struct Nvrtc {
    api: Api,
    path: PathBuf,
    version: (i32, i32),
    archs: Vec<i32>,
    /// Holds the functions of `api` in place.
    _library: Library,
}

impl Nvrtc {
    /// Loads the library at `path`, or the one that the loader finds.
    ///
    /// # Errors
    /// There is none, or it does not work.
    pub fn open(path: Option<&Path>) -> Result<Self, CudaError> {
        let (library, name) = match path {
            Some(path) => (load_file(path)?, path.to_path_buf()),
            None => find()?,
        };
        let api = Api::of(&library, &name)?;
        let path = match path {
            Some(path) => path.to_path_buf(),
            None => library::path_of(api.version as usize).unwrap_or(name),
        };
        let version = api.version(&path)?;
        let archs = api.archs(&path)?;
        Ok(Self {
            api,
            path,
            version,
            archs,
            _library: library,
        })
    }

    /// Where the library is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its version: major, minor.
    #[must_use]
    pub fn version(&self) -> (i32, i32) {
        self.version
    }

    /// What tells it from another build: its version, and the size and the time of its file, because
    /// builds of one version differ.
    #[must_use]
    pub fn identity(&self) -> String {
        let about = fs::metadata(&self.path);
        let size = about.as_ref().map_or(0, Metadata::len);
        let modified = about.and_then(|about| about.modified());
        let since_epoch = modified.map(|time| time.duration_since(UNIX_EPOCH).unwrap_or_default());
        let (major, minor) = self.version;
        format!(
            "NVRTC {major}.{minor} {size} {}",
            since_epoch.unwrap_or_default().as_nanos()
        )
    }

    /// The archs it compiles for, oldest first: 90 for `sm_90`.
    #[must_use]
    pub fn archs(&self) -> &[i32] {
        &self.archs
    }

    /// Whether it compiles for `arch`.
    ///
    /// # Errors
    /// It does not, or `arch` is no `sm_XY`.
    pub fn knows(&self, arch: &str) -> Result<(), CudaError> {
        let number = arch.strip_prefix("sm_").unwrap_or_default();
        // sm_90a: the same arch, with instructions that no other has.
        let number = number.strip_suffix(['a', 'f']).unwrap_or(number);
        let known = number
            .parse()
            .is_ok_and(|number| self.archs.contains(&number));
        if known {
            return Ok(());
        }
        let known: Vec<String> = self.archs.iter().map(|arch| format!("sm_{arch}")).collect();
        Err(CudaError::UnknownArch {
            arch: arch.to_owned(),
            version: self.version,
            known: known.join(", "),
        })
    }

    /// Compiles `source` for `arch`, such as `sm_90`, with `options` after [our own](own_options).
    ///
    /// # Errors
    /// The arch is unknown, the source is wrong, or the compiler does not work.
    pub fn compile(
        &self,
        source: &Source<'_>,
        options: &[String],
        arch: &str,
    ) -> Result<Compiled, CudaError> {
        self.knows(arch)?;
        let all = [&own_options(arch), options].concat();

        let wrong = |reason: String, log: String| CudaError::Compile {
            kernel: source.name.to_owned(),
            arch: arch.to_owned(),
            reason,
            log,
        };
        let failed = |reason: String| CudaError::NvrtcFailed {
            path: self.path.display().to_string(),
            kernel: source.name.to_owned(),
            arch: arch.to_owned(),
            reason,
        };
        let texts = Texts::of(source, &all).map_err(|reason| wrong(reason, String::new()))?;
        let program = Program::new(&self.api, &texts).map_err(failed)?;
        let outcome = program.compile();
        let log = program.log();
        let said = log.as_ref().ok().and_then(|log| first_error(log));
        match outcome {
            Ok(()) => {}
            Err(WRONG_SOURCE) => {
                let reason = said.unwrap_or_else(|| self.api.name_of(WRONG_SOURCE));
                return Err(wrong(reason, log.unwrap_or_default()));
            }
            Err(NO_BUILTINS) => {
                return Err(CudaError::NoBuiltins {
                    path: self.path.display().to_string(),
                    reason: said.unwrap_or_else(|| self.api.name_of(NO_BUILTINS)),
                });
            }
            Err(code) => {
                let name = self.api.name_of(code);
                return Err(failed(match said {
                    Some(said) => format!("{name}: {said}"),
                    None => name,
                }));
            }
        }
        let log = log.map_err(failed)?;
        let cubin = program.cubin().map_err(failed)?;
        let ptx = program.ptx().map_err(failed)?;
        Ok(Compiled {
            cubin,
            ptx,
            log,
            options: all,
        })
    }
}

/// What every source is compiled with for `arch`: no contraction of `a*b + c` (a kernel that fuses says
/// `fmaf`), and the resources of each kernel in the log.
#[must_use]
pub fn own_options(arch: &str) -> Vec<String> {
    [
        &format!("--gpu-architecture={arch}"),
        "--std=c++17",
        "--fmad=false",
        "-lineinfo",
        "--ptxas-options=-v",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// The first line of a log that reports an error, or the first line at all.
fn first_error(log: &str) -> Option<String> {
    let lines = || log.lines().map(str::trim).filter(|line| !line.is_empty());
    let is_error = |line: &&str| {
        let line = line.to_lowercase();
        line.contains("error") || line.contains("fatal")
    };
    lines()
        .find(is_error)
        .or_else(|| lines().next())
        .map(str::to_owned)
}

/// Loads the library the user named.
fn load_file(path: &Path) -> Result<Library, CudaError> {
    // A name without a folder would send the loader to its own places.
    let exact = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    library::load(exact.as_os_str()).map_err(|missing| match missing {
        Missing::NotFound => CudaError::NoNvrtc {
            path: Some(path.to_path_buf()),
        },
        Missing::Unloadable(reason) => broken(path, reason),
    })
}

/// Loads the first library that the loader finds.
fn find() -> Result<(Library, PathBuf), CudaError> {
    let mut unloadable = None;
    for name in NAMES {
        match library::load(OsStr::new(name)) {
            Ok(library) => return Ok((library, PathBuf::from(name))),
            Err(Missing::NotFound) => {}
            Err(Missing::Unloadable(reason)) => {
                unloadable.get_or_insert_with(|| broken(Path::new(name), reason));
            }
        }
    }
    Err(unloadable.unwrap_or(CudaError::NoNvrtc { path: None }))
}

fn broken(path: &Path, reason: String) -> CudaError {
    CudaError::NvrtcBroken {
        path: path.display().to_string(),
        reason,
    }
}

/// A source and its options as C strings.
struct Texts {
    name: CString,
    text: CString,
    header_names: Vec<CString>,
    header_texts: Vec<CString>,
    options: Vec<CString>,
}

impl Texts {
    /// Refused is a text with a NUL in it, which C would end there.
    fn of(source: &Source<'_>, options: &[String]) -> Result<Self, String> {
        let holds_nul = |what: &str| {
            let what = what.to_owned();
            move |nul: NulError| {
                format!(
                    "{what} holds a NUL character at byte {}",
                    nul.nul_position()
                )
            }
        };
        let header = |name: &str, text: &str| {
            let names = CString::new(name).map_err(holds_nul("a header's name"))?;
            let texts = CString::new(text).map_err(holds_nul(name))?;
            Ok::<_, String>((names, texts))
        };
        let headers: Vec<(CString, CString)> = source
            .headers
            .iter()
            .map(|(name, text)| header(name, text))
            .collect::<Result<_, _>>()?;
        let (header_names, header_texts) = headers.into_iter().unzip();
        Ok(Self {
            name: CString::new(source.name).map_err(holds_nul("the kernel's name"))?,
            text: CString::new(source.text).map_err(holds_nul("the source"))?,
            header_names,
            header_texts,
            options: options
                .iter()
                .map(|option| CString::new(option.as_str()).map_err(holds_nul("an option")))
                .collect::<Result<_, _>>()?,
        })
    }
}

fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).collect()
}

/// A program, destroyed when it is done with. It may refer to its texts until then.
struct Program<'a> {
    api: &'a Api,
    texts: &'a Texts,
    handle: Handle,
    _headers: [Vec<*const c_char>; 2],
}

impl<'a> Program<'a> {
    fn new(api: &'a Api, texts: &'a Texts) -> Result<Self, String> {
        let headers = pointers(&texts.header_texts);
        let names = pointers(&texts.header_names);
        let mut handle = ptr::null_mut();
        // SAFETY: both arrays are as long as is said, and they and the strings live as long as the
        // program.
        let code = unsafe {
            (api.create_program)(
                &raw mut handle,
                texts.text.as_ptr(),
                texts.name.as_ptr(),
                headers.len() as c_int,
                headers.as_ptr(),
                names.as_ptr(),
            )
        };
        succeeded(code).map_err(|code| api.name_of(code))?;
        Ok(Self {
            api,
            texts,
            handle,
            _headers: [headers, names],
        })
    }

    fn compile(&self) -> Result<(), c_int> {
        let options = pointers(&self.texts.options);
        // SAFETY: the program is alive, and so are the options, as many as is said.
        succeeded(unsafe {
            (self.api.compile_program)(self.handle, options.len() as c_int, options.as_ptr())
        })
    }

    fn log(&self) -> Result<String, String> {
        let log = self.bytes(self.api.get_program_log_size, self.api.get_program_log)?;
        Ok(text_of(&log))
    }

    fn ptx(&self) -> Result<String, String> {
        let ptx = self.bytes(self.api.get_ptx_size, self.api.get_ptx)?;
        Ok(text_of(&ptx))
    }

    fn cubin(&self) -> Result<Vec<u8>, String> {
        let cubin = self.bytes(self.api.get_cubin_size, self.api.get_cubin)?;
        if cubin.starts_with(ELF) {
            return Ok(cubin);
        }
        Err(format!("its CUBIN of {} bytes is no ELF file", cubin.len()))
    }

    fn bytes(&self, size_of: SizeOf, copy_of: CopyOf) -> Result<Vec<u8>, String> {
        let named = |code| self.api.name_of(code);
        let mut size = 0;
        // SAFETY: the program is alive, and it writes one size_t.
        succeeded(unsafe { size_of(self.handle, &raw mut size) }).map_err(named)?;
        if size > LARGEST {
            return Err(format!(
                "a result of {size} bytes, expected at most {LARGEST}"
            ));
        }
        let mut bytes = vec![0u8; size];
        // SAFETY: it writes as many bytes as it just said.
        succeeded(unsafe { copy_of(self.handle, bytes.as_mut_ptr().cast()) }).map_err(named)?;
        Ok(bytes)
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle came from nvrtcCreateProgram and is not used again. There is nothing to
        // do about a failure.
        let _ = unsafe { (self.api.destroy_program)(&raw mut self.handle) };
    }
}

fn succeeded(code: c_int) -> Result<(), c_int> {
    if code == SUCCESS { Ok(()) } else { Err(code) }
}

/// The text before the NUL that ends it.
fn text_of(bytes: &[u8]) -> String {
    let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

#[cfg(test)]
mod tests;
