//! A device at work: its stream, its compiler, and the kernels compiled for it so far.
#![allow(unsafe_code)]

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ffi::c_void,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use cudarc::driver::{
    DeviceRepr, ValidAsZeroBits,
    sys::{
        CUdeviceptr, CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue, CUlaunchConfig,
    },
};
use rayon::prelude::*;

use super::{
    cache::{Cache, Key},
    error::{CudaError, Refusal},
    nvrtc::{self, Compiled, Nvrtc, Source},
    options::{Build, Grid, Target},
    probe::{self, DeviceFacts, Opened},
    source::{Kernel, Sources},
    stream::{Buffer, Function, Module, Stream},
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
    stream: Arc<Stream>,
    modules: Mutex<HashMap<Compilation, Arc<Module>>>,
}

/// An argument of a kernel.
#[derive(Clone, Copy)]
pub enum Argument<'a> {
    /// 16-bit codes.
    Codes(&'a Buffer<u16>),
    /// fp32 values.
    Floats(&'a Buffer<f32>),
    /// Raw words.
    Words(&'a Buffer<u32>),
    /// One fp32 value.
    Float(&'a f32),
    /// One whole number.
    Int(&'a i32),
}

/// What a compiled file is known by: the device and its compiler are one and the same.
#[derive(PartialEq, Eq, Hash)]
struct Compilation {
    kernel: Kernel,
    options: Vec<String>,
}

fn key(build: &Build) -> Compilation {
    Compilation {
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
        let Opened {
            driver,
            basics,
            functions,
        } = probe::open()?;
        let facts = driver.device(ordinal)?.clone();
        let arch = facts.arch()?;
        let nvrtc = Nvrtc::open(nvrtc)?;
        nvrtc.knows(&facts.compile_arch())?;
        // It is there, so its number is no larger than what the driver counts in.
        let number = i32::try_from(ordinal).unwrap_or(i32::MAX);
        let stream = done(
            "opening the device",
            Stream::open(&basics, functions, number),
        )?;
        Ok(Self {
            facts,
            arch,
            driver: driver.version,
            nvrtc,
            sources,
            cache: Cache::default(),
            stream,
            modules: Mutex::default(),
        })
    }

    /// Keeps what it compiles in `cache`, and takes from there what was compiled before.
    #[must_use]
    pub fn with_cache(self, cache: Cache) -> Self {
        cache.tidy();
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
    pub fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Makes the device the current one of this thread.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn bind(&self) -> Result<(), CudaError> {
        done("turning to the device", self.stream.bind())
    }

    /// Kernel `name` of a build, compiled at most once.
    ///
    /// # Errors
    /// The source does not compile, or has no such kernel.
    pub fn function(&self, build: &Build, name: &str) -> Result<Function, CudaError> {
        let module = self.module(build)?;
        let function = done(
            &format!("looking for {name} in {}", build.kernel.file()),
            module.function(name),
        )?;
        if build.grid.shared > UNASKED_SHARED {
            let bytes = i32::try_from(build.grid.shared).unwrap_or(i32::MAX);
            done(
                &format!("asking for {bytes} bytes of shared memory for {name}"),
                function.allow_shared(bytes),
            )?;
        }
        Ok(function)
    }

    fn module(&self, build: &Build) -> Result<Arc<Module>, CudaError> {
        // What is in the map is whole even if another thread panicked.
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        let key = key(build);
        if let Some(module) = modules.get(&key) {
            return Ok(module.clone());
        }
        let module = done(
            &format!("loading {}", build.kernel.file()),
            self.stream.load(&self.code(build)?),
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
            let module = done("loading kernels", self.stream.load(&code))?;
            modules.insert(key, module);
        }
        Ok(())
    }

    /// Machine code of a build, compiled now or earlier.
    fn code(&self, build: &Build) -> Result<Vec<u8>, CudaError> {
        let arch = self.facts.compile_arch();
        let options = [
            nvrtc::own_options(&build.target(&arch)),
            build.options.clone(),
        ]
        .concat();
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
        for Compilation { kernel, options } in modules.keys() {
            let of_file = macros.entry(kernel.file()).or_default();
            of_file.insert(options.join(" "));
        }
        macros
    }

    /// Copies values to the device.
    ///
    /// # Errors
    /// The driver refuses: memory, most likely.
    pub fn upload<T: DeviceRepr>(&self, what: &str, values: &[T]) -> Result<Buffer<T>, CudaError> {
        let copied = self.stream.upload(values);
        done(&format!("copying {what} to the device"), copied)
    }

    /// Copies values from the device, once everything before is done.
    ///
    /// # Errors
    /// The driver refuses, or a kernel before it failed.
    pub fn download<T: DeviceRepr + Clone + Default>(
        &self,
        what: &str,
        values: &Buffer<T>,
    ) -> Result<Vec<T>, CudaError> {
        let copied = self.stream.download(values);
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
    ) -> Result<Buffer<T>, CudaError> {
        let zeros = self.stream.zeros(count.max(1));
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
        function: &Function,
        grid: Grid,
        name: &str,
        arguments: &[Argument<'_>],
    ) -> Result<(), CudaError> {
        let mut words: Vec<Word> = arguments.iter().map(Argument::word).collect();
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
            hStream: self.stream.raw(),
            attrs: &raw mut early,
            numAttrs: u32::from(
                grid.waits && self.facts.capability.0 >= 9 && !self.has_users_kernels(),
            ),
        };
        // SAFETY: the arguments are those at the head of the kernel's source, buffers of the sizes that
        // stand there. A user's own kernel promises the same by taking the file's place.
        let launched = unsafe { self.stream.launch(&config, function, &mut pointers) };
        done(&format!("launching {name}"), launched)
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
    fn word(&self) -> Word {
        match *self {
            Argument::Codes(buffer) => pointer(buffer),
            Argument::Floats(buffer) => pointer(buffer),
            Argument::Words(buffer) => pointer(buffer),
            Argument::Float(&float) => Word { float },
            Argument::Int(&int) => Word { int },
        }
    }
}

fn pointer<T>(buffer: &Buffer<T>) -> Word {
    let pointer = buffer.pointer();
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
    nvrtc.compile(&source, &build.options, &build.target(arch))
}

fn source<'a>(sources: &'a Sources, kernel: Kernel, headers: &'a [(&str, &str)]) -> Source<'a> {
    Source {
        name: kernel.file(),
        text: sources.text(kernel),
        headers,
    }
}

/// What the driver, or another of the vendor's libraries, said, with what was being done.
pub fn done<T>(doing: &str, result: Result<T, Refusal>) -> Result<T, CudaError> {
    result.map_err(|refusal| CudaError::Driver {
        doing: doing.to_owned(),
        message: refusal.to_string(),
    })
}
