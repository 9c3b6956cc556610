//! A device at work: its stream, its compiler, and the kernels compiled for it so far.
#![allow(unsafe_code)]

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ffi::c_void,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use cudarc::{
    driver::{
        CudaContext, CudaFunction, CudaModule, CudaSlice, CudaStream, DevicePtr, DeviceRepr,
        DriverError, ValidAsZeroBits,
        sys::{
            self, CUdeviceptr,
            CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
            CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue, CUlaunchConfig,
        },
    },
    nvrtc::Ptx,
};
use rayon::prelude::*;

use super::{
    cache::{Cache, Key},
    error::CudaError,
    nvrtc::{self, Compiled, Nvrtc, Source},
    options::{Build, Grid, Target},
    probe::{self, DeviceFacts, Driver},
    source::{Kernel, Sources},
};
use crate::tensor_core::Arch;

/// Shared memory that a block may take without asking.
const UNASKED_SHARED: usize = 48 << 10;

/// One device of a driver that works.
pub struct Device {
    /// What it is.
    pub facts: DeviceFacts,
    /// The arch whose arithmetic it has.
    pub arch: Arch,
    driver: (u32, u32),
    nvrtc: Nvrtc,
    sources: Sources,
    cache: Cache,
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    modules: Mutex<HashMap<Module, Arc<CudaModule>>>,
}

/// An argument of a kernel.
#[derive(Clone, Copy)]
pub enum Argument<'a> {
    /// 16-bit codes.
    Codes(&'a CudaSlice<u16>),
    /// fp32 values.
    Floats(&'a CudaSlice<f32>),
    /// Raw words.
    Words(&'a CudaSlice<u32>),
    /// One fp32 value.
    Float(&'a f32),
    /// One whole number.
    Int(&'a i32),
}

/// What a compiled file is known by: the device and its compiler are one and the same.
#[derive(PartialEq, Eq, Hash)]
struct Module {
    kernel: Kernel,
    options: Vec<String>,
}

fn key(build: &Build) -> Module {
    Module {
        kernel: build.kernel,
        options: build.options.clone(),
    }
}

impl Device {
    /// Takes device number `ordinal` and the compiler at `nvrtc`, or the one that the loader finds.
    ///
    /// # Errors
    /// The driver, the device or the compiler is missing or does not work.
    pub fn open(ordinal: usize, nvrtc: Option<&Path>, sources: Sources) -> Result<Self, CudaError> {
        let Driver { version, devices } = probe::probe()?;
        let driver = Driver { version, devices };
        let facts = driver.device(ordinal)?.clone();
        let arch = facts.arch()?;
        let nvrtc = Nvrtc::open(nvrtc)?;
        nvrtc.knows(&facts.compile_arch())?;
        let context = done("opening the device", CudaContext::new(ordinal))?;
        // SAFETY: everything runs on one stream, in whose order buffers are made, used and freed.
        unsafe { context.disable_event_tracking() };
        let stream = done("making a stream", context.new_stream())?;
        Ok(Self {
            facts,
            arch,
            driver: driver.version,
            nvrtc,
            sources,
            cache: Cache::default(),
            context,
            stream,
            modules: Mutex::default(),
        })
    }

    /// Keeps what it compiles in `cache`, and takes from there what was compiled before.
    #[must_use]
    pub fn with_cache(self, cache: Cache) -> Self {
        Self { cache, ..self }
    }

    /// Lays its kernels out for so many multiprocessors: fewer, and a small batch runs what a large one would.
    #[must_use]
    pub fn laid_out_for(mut self, sms: usize) -> Self {
        self.facts.sms = sms;
        self
    }

    /// The CUDA version that the driver supports: major, minor.
    #[must_use]
    pub fn driver_version(&self) -> (u32, u32) {
        self.driver
    }

    /// The compiler.
    #[must_use]
    pub fn nvrtc(&self) -> &Nvrtc {
        &self.nvrtc
    }

    /// What the projection's kernels are laid out for.
    #[must_use]
    pub fn target(&self) -> Target {
        Target {
            arch: self.arch,
            sms: self.facts.sms,
            may_finish: !self.sources.replaces(Kernel::Finish),
        }
    }

    /// The kernels' sources.
    #[must_use]
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// The stream everything runs on.
    #[must_use]
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// Makes the device the current one of this thread.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn bind(&self) -> Result<(), CudaError> {
        done("turning to the device", self.context.bind_to_thread())
    }

    /// Kernel `name` of a build, compiled at most once.
    ///
    /// # Errors
    /// The source does not compile, or has no such kernel.
    pub fn function(&self, build: &Build, name: &str) -> Result<CudaFunction, CudaError> {
        let module = self.module(build)?;
        let function = done(
            &format!("looking for {name} in {}", build.kernel.file()),
            module.load_function(name),
        )?;
        if build.grid.shared > UNASKED_SHARED {
            let bytes = i32::try_from(build.grid.shared).unwrap_or(i32::MAX);
            let attribute = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            done(
                &format!("asking for {bytes} bytes of shared memory for {name}"),
                function.set_attribute(attribute, bytes),
            )?;
        }
        Ok(function)
    }

    fn module(&self, build: &Build) -> Result<Arc<CudaModule>, CudaError> {
        // What is in the map is whole even if another thread panicked.
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        let key = key(build);
        if let Some(module) = modules.get(&key) {
            return Ok(module.clone());
        }
        let module = done(
            &format!("loading {}", build.kernel.file()),
            self.context
                .load_module(Ptx::from_binary(self.code(build)?)),
        )?;
        modules.insert(key, module.clone());
        Ok(module)
    }

    /// Compiles builds that are going to be asked for, several at once.
    ///
    /// # Errors
    /// A source does not compile.
    pub fn prepare<'a>(
        &self,
        builds: impl IntoIterator<Item = &'a Build>,
    ) -> Result<(), CudaError> {
        let wanted: HashMap<_, _> = builds
            .into_iter()
            .map(|build| (key(build), build))
            .collect();
        let wanted: Vec<_> = wanted.into_iter().collect();
        // NVRTC may be called by several threads at once, each with a program of its own.
        let codes = wanted
            .into_par_iter()
            .map(|(key, build)| Ok((key, self.code(build)?)));
        let codes = codes.collect::<Result<Vec<_>, CudaError>>()?;
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, code) in codes {
            let module = done(
                "loading kernels",
                self.context.load_module(Ptx::from_binary(code)),
            )?;
            modules.insert(key, module);
        }
        Ok(())
    }

    /// Machine code of a build, compiled now or earlier.
    fn code(&self, build: &Build) -> Result<Vec<u8>, CudaError> {
        let arch = self.facts.compile_arch();
        let options = [nvrtc::own_options(&arch), build.options.clone()].concat();
        let headers = self.sources.headers();
        let source = source(&self.sources, build.kernel, &headers);
        let key = Key::of(&self.nvrtc.identity(), &options, &source);
        self.cache.code(key, || {
            compile(&self.nvrtc, &self.sources, build, &arch).map(|compiled| compiled.cubin)
        })
    }

    /// The options that every file is compiled with.
    #[must_use]
    pub fn own_options(&self) -> Vec<String> {
        nvrtc::own_options(&self.facts.compile_arch())
    }

    /// The macros that each file has been compiled with so far, a set per compilation.
    #[must_use]
    pub fn macros(&self) -> BTreeMap<&'static str, BTreeSet<String>> {
        let modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        let mut macros: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for Module { kernel, options } in modules.keys() {
            let of_file = macros.entry(kernel.file()).or_default();
            of_file.insert(options.join(" "));
        }
        macros
    }

    /// Copies values to the device.
    ///
    /// # Errors
    /// The driver refuses: memory, most likely.
    pub fn upload<T: DeviceRepr>(
        &self,
        what: &str,
        values: &[T],
    ) -> Result<CudaSlice<T>, CudaError> {
        let copied = self.stream.clone_htod(values);
        done(&format!("copying {what} to the device"), copied)
    }

    /// Copies values from the device, once everything before is done.
    ///
    /// # Errors
    /// The driver refuses, or a kernel before it failed.
    pub fn download<T: DeviceRepr>(
        &self,
        what: &str,
        values: &CudaSlice<T>,
    ) -> Result<Vec<T>, CudaError> {
        let copied = self.stream.clone_dtoh(values);
        let copied = done(&format!("copying {what} from the device"), copied)?;
        self.wait()?;
        Ok(copied)
    }

    /// Room for `count` values, zero.
    ///
    /// # Errors
    /// There is no memory.
    pub fn zeros<T: DeviceRepr + ValidAsZeroBits>(
        &self,
        what: &str,
        count: usize,
    ) -> Result<CudaSlice<T>, CudaError> {
        let zeros = self.stream.alloc_zeros(count.max(1));
        done(&format!("making room for {what} on the device"), zeros)
    }

    /// Waits until the device has done everything.
    ///
    /// # Errors
    /// A kernel failed.
    pub fn wait(&self) -> Result<(), CudaError> {
        done("running the kernels", self.stream.synchronize())
    }

    /// Launches a kernel: where the device can, before the one ahead has ended, if `grid` says that its source
    /// waits for it.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn launch(
        &self,
        function: &CudaFunction,
        grid: Grid,
        name: &str,
        arguments: &[Argument<'_>],
    ) -> Result<(), CudaError> {
        let mut words: Vec<Word> = arguments
            .iter()
            .map(|argument| argument.word(&self.stream))
            .collect();
        let mut pointers: Vec<*mut c_void> = words
            .iter_mut()
            .map(|word| std::ptr::from_mut(word).cast())
            .collect();
        let mut early = CUlaunchAttribute {
            id: CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: CUlaunchAttributeValue {
                programmaticStreamSerializationAllowed: 1,
            },
        };
        let narrow = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let config = CUlaunchConfig {
            gridDimX: narrow(grid.blocks.0),
            gridDimY: narrow(grid.blocks.1),
            gridDimZ: 1,
            blockDimX: narrow(grid.threads),
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: narrow(grid.shared),
            hStream: self.stream.cu_stream(),
            attrs: &raw mut early,
            numAttrs: u32::from(
                grid.waits && self.facts.capability.0 >= 9 && !self.has_users_kernels(),
            ),
        };
        self.bind()?;
        // SAFETY: the arguments are those at the head of the kernel's source, buffers of the sizes that
        // stand there. A user's own kernel promises the same by taking the file's place. The driver copies
        // arguments and attributes before it returns.
        let launched = unsafe {
            sys::cuLaunchKernelEx(
                &raw const config,
                function.cu_function(),
                pointers.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        done(&format!("launching {name}"), launched.result())
    }

    /// Whether some kernel is a user's own: none of those is asked to wait for the one ahead by itself.
    fn has_users_kernels(&self) -> bool {
        self.sources.replaced().next().is_some()
    }
}

/// An argument as the driver copies it.
#[repr(C)]
union Word {
    pointer: CUdeviceptr,
    float: f32,
    int: i32,
}

impl Argument<'_> {
    fn word(&self, stream: &CudaStream) -> Word {
        match *self {
            Argument::Codes(buffer) => pointer(buffer, stream),
            Argument::Floats(buffer) => pointer(buffer, stream),
            Argument::Words(buffer) => pointer(buffer, stream),
            Argument::Float(&float) => Word { float },
            Argument::Int(&int) => Word { int },
        }
    }
}

fn pointer<T>(buffer: &CudaSlice<T>, stream: &CudaStream) -> Word {
    let (pointer, _) = buffer.device_ptr(stream);
    Word { pointer }
}

/// Compiles a build for `arch`; needs no device.
///
/// # Errors
/// The compiler does not know the arch, or refuses the source.
pub fn compile(
    nvrtc: &Nvrtc,
    sources: &Sources,
    build: &Build,
    arch: &str,
) -> Result<Compiled, CudaError> {
    let headers = sources.headers();
    let source = source(sources, build.kernel, &headers);
    nvrtc.compile(&source, &build.options, arch)
}

fn source<'a>(sources: &'a Sources, kernel: Kernel, headers: &'a [(&str, &str)]) -> Source<'a> {
    Source {
        name: kernel.file(),
        text: sources.text(kernel),
        headers,
    }
}

/// What the driver said, with what was being done.
pub fn done<T>(doing: &str, result: Result<T, DriverError>) -> Result<T, CudaError> {
    result.map_err(|error| CudaError::Driver {
        doing: doing.to_owned(),
        message: error.to_string(),
    })
}
