//! Which backend runs, and why.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, bail, ensure};
use sha2::Digest;

use super::{args::RunArgs, settings::Settings};
use crate::{
    backend::{
        Backend,
        cuda::{Cuda, source::Sources},
        emulate::Emulate,
    },
    checkpoint::Digests,
    cli::{
        device::{DeviceChoice, DeviceFlags},
        kernel_cache,
    },
    files,
    report::printable,
    tensor_core::Arch,
};

/// The arch that is emulated where none is named.
const DEFAULT_ARCH: Arch = Arch::Sm120;

/// The backend of a run.
pub enum Chosen {
    /// The emulator.
    Emulate(Emulate),
    /// A device.
    Cuda(Box<Cuda>),
}

impl Chosen {
    /// The backend that the flags ask for.
    ///
    /// # Errors
    /// A device is asked for and there is none, or flags contradict each other.
    pub fn new(args: &RunArgs, settings: &Settings) -> anyhow::Result<Self> {
        let (sources, cache) = (sources(args.kernels.as_deref())?, kernel_cache::open()?);
        let choice = DeviceChoice {
            backend: args.backend,
            arch: settings.arch,
            flags: DeviceFlags {
                device: args.device,
                nvrtc: args.nvrtc.as_deref(),
            },
            device_only: device_only(args, settings),
            quiet: args.quiet,
        };
        let open = || {
            let number = args.device.unwrap_or_default();
            let cuda = Cuda::open(number, args.nvrtc.as_deref(), sources)?;
            Ok(Box::new(cuda.with_cache(cache)))
        };
        Ok(match choice.device(open, |cuda| cuda.info().arch)? {
            Some(cuda) => Self::Cuda(cuda),
            None => {
                let arch = settings.arch.unwrap_or(DEFAULT_ARCH);
                Self::Emulate(Emulate::new(arch, settings.level))
            }
        })
    }

    /// It.
    pub fn get(&self) -> &dyn Backend {
        match self {
            Self::Emulate(emulate) => emulate,
            Self::Cuda(cuda) => cuda.as_ref(),
        }
    }
}

/// The flags and variants that only a device can do.
pub fn device_only(args: &RunArgs, settings: &Settings) -> Vec<&'static str> {
    let flags = [
        (args.kernels.is_some(), "--kernels"),
        (args.crosscheck, "--crosscheck"),
        (args.time, "--time"),
    ];
    let named = settings.products.named.iter();
    flags
        .into_iter()
        .filter_map(|(is_given, flag)| is_given.then_some(flag))
        .chain(named.map(|product| product.name()))
        .collect()
}

/// The built-in kernels, those that a directory holds replaced by it.
fn sources(directory: Option<&Path>) -> anyhow::Result<Sources> {
    match directory {
        None => Ok(Sources::default()),
        Some(directory) => replaced(directory).map(Sources::with),
    }
}

/// What tells the kernels of a directory from others of the same names.
pub fn fingerprint(directory: &Path) -> anyhow::Result<String> {
    let mut digests = Digests::default();
    for (name, text) in replaced(directory)? {
        digests.add(&name, "", &[], |digest| digest.update(text));
    }
    Ok(digests.whole())
}

/// The files of kernels in a directory: text by name.
fn replaced(directory: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let named = || format!("--kernels {}", directory.display());
    let entries = fs::read_dir(directory).with_context(named)?;
    let mut replaced = BTreeMap::new();
    for entry in entries {
        let path = entry.with_context(named)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !name.ends_with(".cu") && !name.ends_with(".cuh") {
            continue;
        }
        // A name that replaces nothing is a kernel that would not be measured.
        let Some(known) = Sources::names_of_run()
            .into_iter()
            .find(|known| *known == name)
        else {
            bail!(
                "{}: a run has no file of kernels '{}'; the names are {}",
                named(),
                printable(&name),
                Sources::names_of_run().join(", ")
            );
        };
        ensure!(
            path.is_file(),
            "{}: {known} is no regular file; put the kernel's source there, or take it away",
            named()
        );
        let text = files::read_text(&path, files::LARGEST_SETTINGS)
            .with_context(|| format!("cannot read {known}"))
            .with_context(named)?;
        replaced.insert(known.to_owned(), text);
    }
    ensure!(
        !replaced.is_empty(),
        "{}: none of {} is there; copy the file you want to change out of kernels/ and keep its name",
        named(),
        Sources::names_of_run().join(", ")
    );
    Ok(replaced)
}
