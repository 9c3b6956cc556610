//! A device at work: its stream, its compiler, and the kernels compiled for it so far.
#![allow(unsafe_code)]

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use cudarc::{
    driver::{
        CudaContext, CudaFunction, CudaModule, CudaSlice, CudaStream, DeviceRepr, DriverError,
        LaunchConfig, PushKernelArg, ValidAsZeroBits,
        sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
    },
    nvrtc::Ptx,
};

use super::{
    cache::{Cache, Key},
    error::CudaError,
    nvrtc::{self, Compiled, Nvrtc, Source},
    options::{Build, Grid},
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
    /// Whole numbers.
    Ints(&'a CudaSlice<i32>),
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
        let key = Module {
            kernel: build.kernel,
            options: build.options.clone(),
        };
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

    /// Launches a kernel.
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
        let mut launch = self.stream.launch_builder(function);
        for argument in arguments {
            match *argument {
                Argument::Codes(buffer) => launch.arg(buffer),
                Argument::Floats(buffer) => launch.arg(buffer),
                Argument::Ints(buffer) => launch.arg(buffer),
                Argument::Words(buffer) => launch.arg(buffer),
                Argument::Float(value) => launch.arg(value),
                Argument::Int(value) => launch.arg(value),
            };
        }
        let narrow = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let config = LaunchConfig {
            grid_dim: (narrow(grid.blocks.0), narrow(grid.blocks.1), 1),
            block_dim: (narrow(grid.threads), 1, 1),
            shared_mem_bytes: narrow(grid.shared),
        };
        // SAFETY: the arguments are those at the head of the kernel's source, buffers of the sizes that
        // stand there. A user's own kernel promises the same by taking the file's place.
        let launched = unsafe { launch.launch(config) };
        done(&format!("launching {name}"), launched.map(|_| ()))
    }
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
