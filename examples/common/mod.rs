//! What the programs for a machine with a GPU share.

use std::{collections::BTreeMap, path::PathBuf};

use ulpdrift::backend::cuda::{Cuda, source::Sources};

/// Device 0, compiled for by what `ULPDRIFT_NVRTC` names or the loader finds; says so where there is none.
/// Kernels in the folder `ULPDRIFT_KERNELS` stand in for the built-in ones, as with `run --kernels`.
pub fn open() -> Option<Cuda> {
    let path = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let nvrtc = path("ULPDRIFT_NVRTC");
    let mut replaced = BTreeMap::new();
    if let Some(folder) = path("ULPDRIFT_KERNELS") {
        for name in Sources::names_of_run() {
            let text = std::fs::read_to_string(folder.join(name));
            replaced.extend(text.ok().map(|text| (name.to_owned(), text)));
        }
        assert!(!replaced.is_empty(), "no kernels in {}", folder.display());
    }
    Cuda::open(0, nvrtc.as_deref(), Sources::with(replaced))
        .map_err(|reason| println!("skipped: no device ({reason})"))
        .ok()
}
