//! `ulpdrift doctor`: what is here, what is missing, and what that means for `run`.

use std::{env, path::PathBuf, process::ExitCode, thread};

use clap::Args;

use super::{environment, exit, kernel_cache, print};
use crate::{
    backend::cuda::{
        error::CudaError,
        nvrtc::{Nvrtc, Source},
        probe::{self, DeviceFacts, Driver, VISIBLE_DEVICES},
    },
    report::{printable, wrap},
};

/// Columns of the labels.
const LABEL: usize = 13;
/// Columns of a line.
const WIDTH: usize = 80;

/// The least that shows whether a compiler is complete.
const TRIAL: Source<'_> = Source {
    name: "trial.cu",
    text: "extern \"C\" __global__ void trial() {}",
    headers: &[],
};

/// Show what is here and what each missing piece means.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Exits 0 whatever it finds.

Examples:
  ulpdrift doctor
  ulpdrift doctor --nvrtc /usr/local/cuda/lib64/libnvrtc.so.13")]
pub struct DoctorArgs {
    /// The NVRTC library to try, a libnvrtc.so.* [default: the one the loader finds].
    #[arg(long, value_name = "PATH")]
    pub nvrtc: Option<PathBuf>,
}

/// Prints what was found: exit code 0 whatever that is. Each line when it is known, and the label of what may hang before
/// it is asked.
///
/// # Errors
/// stdout cannot be written.
pub fn run(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let mut page = Page::default();
    print::result(concat!("ulpdrift ", env!("CARGO_PKG_VERSION"), "\n\n"))?;
    processor(&mut page)?;
    page.begin("driver")?;
    let driver = probe::probe();
    driver_and_devices(&mut page, &driver)?;
    page.begin("NVRTC")?;
    let compiler = Compiler::find(args, &driver);
    compiler.describe(&mut page)?;
    page.line("kernel cache", &cache())?;
    page.begin("cuBLAS")?;
    cublas(&mut page)?;
    environment(&mut page)?;
    print::result("\n")?;
    page.line("run", &conclusion(&driver, &compiler))?;
    Ok(ExitCode::from(exit::GOOD))
}

/// Lines of a label and a text, on 80 columns, written one by one.
#[derive(Default)]
struct Page {
    /// Whether the next line's label stands there already.
    has_label: bool,
}

impl Page {
    /// The label of the next line.
    fn begin(&mut self, label: &str) -> anyhow::Result<()> {
        self.has_label = true;
        print::result(&format!("{label:LABEL$}"))
    }

    fn line(&mut self, label: &str, text: &str) -> anyhow::Result<()> {
        if !self.has_label {
            self.begin(label)?;
        }
        self.has_label = false;
        let text = wrap(&printable(text), WIDTH - LABEL, "");
        let text = text.replace('\n', &format!("\n{:LABEL$}", ""));
        print::result(&format!("{text}\n"))
    }
}

fn processor(page: &mut Page) -> anyhow::Result<()> {
    let features = features();
    let features = if features.is_empty() {
        "none of the vector extensions that matter here".to_owned()
    } else {
        features.join(", ")
    };
    page.line("processor", &format!("{}: {features}", env::consts::ARCH))?;
    let level = match environment::level() {
        Ok(level) => format!("{level}: decides speed, never a number"),
        Err(error) => format!("{error:#}"),
    };
    page.line("vectors", &level)?;
    page.line("threads", &threads())
}

/// Read, not started: this command has to work where too many were asked for.
fn threads() -> String {
    let here = thread::available_parallelism().map_or_else(
        |error| format!("unknown ({error})"),
        |count| count.to_string(),
    );
    match env::var_os(environment::THREADS_VARIABLE) {
        Some(asked) => format!(
            "{here}; {}={} asks for others",
            environment::THREADS_VARIABLE,
            asked.display()
        ),
        None => here,
    }
}

/// The processor's extensions that the emulator has code for.
fn features() -> Vec<&'static str> {
    #[cfg(target_arch = "x86_64")]
    {
        let all = [
            ("avx2", is_x86_feature_detected!("avx2")),
            ("fma", is_x86_feature_detected!("fma")),
            ("avx512f", is_x86_feature_detected!("avx512f")),
            ("avx512bw", is_x86_feature_detected!("avx512bw")),
            ("avx512dq", is_x86_feature_detected!("avx512dq")),
            ("avx512vl", is_x86_feature_detected!("avx512vl")),
        ];
        all.into_iter()
            .filter_map(|(name, here)| here.then_some(name))
            .collect()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        Vec::new()
    }
}

fn driver_and_devices(page: &mut Page, driver: &Result<Driver, CudaError>) -> anyhow::Result<()> {
    let driver = match driver {
        Ok(driver) => driver,
        Err(error) => return page.line("driver", &error.to_string()),
    };
    let (major, minor) = driver.version;
    page.line("driver", &format!("supports CUDA {major}.{minor}"))?;
    for device in &driver.devices {
        let label = format!("device {}", device.ordinal);
        page.line(&label, &describe(device))?;
        if let Err(error) = device.arch() {
            page.line("", &error.to_string())?;
        }
    }
    Ok(())
}

fn describe(device: &DeviceFacts) -> String {
    let gib = device.memory_bytes as f64 / f64::from(1 << 30);
    format!(
        "{}, {}, {} SMs, {gib:.1} GiB",
        device.name,
        device.compile_arch(),
        device.sms
    )
}

/// The compiler, and whether it compiles.
struct Compiler {
    nvrtc: Result<Nvrtc, CudaError>,
    /// What came of a kernel that does nothing: the arch it was compiled for. `None` beside a driver
    /// that does not work, because NVRTC calls that driver and does not expect it to be broken.
    trial: Option<Result<String, CudaError>>,
}

impl Compiler {
    /// Tries it on the first device's arch, or on the newest it knows where there is no device.
    fn find(args: &DoctorArgs, driver: &Result<Driver, CudaError>) -> Self {
        let nvrtc = Nvrtc::open(args.nvrtc.as_deref());
        let trial = match (driver, &nvrtc) {
            (Ok(driver), Ok(nvrtc)) => Some(
                driver
                    .device(0)
                    .and_then(|device| try_out(nvrtc, device.compile_arch())),
            ),
            (Err(CudaError::NoDriver { .. }), Ok(nvrtc)) => {
                let newest = nvrtc.archs().last().copied().unwrap_or_default();
                Some(try_out(nvrtc, format!("sm_{newest}")))
            }
            _ => None,
        };
        Self { nvrtc, trial }
    }

    fn describe(&self, page: &mut Page) -> anyhow::Result<()> {
        let nvrtc = match &self.nvrtc {
            Ok(nvrtc) => nvrtc,
            Err(error) => return page.line("NVRTC", &error.to_string()),
        };
        let (major, minor) = nvrtc.version();
        let path = nvrtc.path().display();
        page.line("NVRTC", &format!("{major}.{minor}, {path}"))?;
        let archs: Vec<String> = nvrtc.archs().iter().map(ToString::to_string).collect();
        page.line("", &format!("compiles for sm_ {}", archs.join(" ")))?;
        match &self.trial {
            Some(Ok(arch)) => page.line("", &format!("compiled a trial kernel for {arch}")),
            Some(Err(error)) => page.line("", &error.to_string()),
            None => page.line("", "not tried beside a driver that does not work"),
        }
    }
}

/// Compiles a kernel that does nothing.
fn try_out(nvrtc: &Nvrtc, arch: String) -> Result<String, CudaError> {
    nvrtc.compile(&TRIAL, &[], &arch)?;
    Ok(arch)
}

/// Where compiled kernels are kept, and how many bytes of them.
fn cache() -> String {
    let cache = match kernel_cache::open() {
        Ok(cache) => cache,
        Err(error) => return format!("{error:#}"),
    };
    let Some(folder) = cache.folder() else {
        return format!(
            "none: {}=off, or neither XDG_CACHE_HOME nor HOME says where",
            kernel_cache::CACHE_VARIABLE
        );
    };
    let holdings = cache.holdings();
    let kernels = match holdings.entries {
        1 => "1 kernel".to_owned(),
        entries => format!("{entries} kernels"),
    };
    let (folder, bytes) = (folder.display(), holdings.bytes);
    let held = format!("{folder}: {kernels} compiled, {bytes} bytes");
    match cache.check_writable() {
        Ok(()) => held,
        Err(error) => format!(
            "{held}; it cannot be written ({error}), so every run compiles its kernels again: make it writable, or name \
             another folder by XDG_CACHE_HOME"
        ),
    }
}

fn cublas(page: &mut Page) -> anyhow::Result<()> {
    let found = match probe::cublas() {
        Ok(()) => "is here, for the cublas-* variants".to_owned(),
        Err(error) => error.to_string(),
    };
    page.line("cuBLAS", &found)
}

fn environment(page: &mut Page) -> anyhow::Result<()> {
    for (name, meaning) in [
        (
            "NVIDIA_TF32_OVERRIDE",
            "changes what the cublas-* variants compute; unset it to measure them as they are",
        ),
        (
            VISIBLE_DEVICES,
            "hides the devices it does not list, and numbers the others",
        ),
    ] {
        if let Some(value) = env::var_os(name) {
            let value = value.to_string_lossy();
            page.line("environment", &format!("{name}={value}: {meaning}"))?;
        }
    }
    Ok(())
}

/// What `run` does here when no backend is asked for.
fn conclusion(driver: &Result<Driver, CudaError>, compiler: &Compiler) -> String {
    let missing = match driver {
        Err(_) => "the driver",
        Ok(driver) if driver.device(0).and_then(DeviceFacts::arch).is_err() => "device 0",
        Ok(_) if !matches!(compiler.trial, Some(Ok(_))) => "NVRTC",
        Ok(_) => {
            return "uses the CUDA backend on device 0, unless told --backend emulate".to_owned();
        }
    };
    format!(
        "uses the emulator, which gives a device's bits on any processor; the CUDA backend does not \
         run here: see {missing} above"
    )
}
