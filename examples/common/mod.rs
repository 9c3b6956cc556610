//! What the programs for a machine with a GPU share.

use ulpdrift::backend::cuda::{Cuda, source::Sources};

/// Device 0, compiled for by what `ULPDRIFT_NVRTC` names or the loader finds; says so where there is none.
pub fn open() -> Option<Cuda> {
    let nvrtc = std::env::var_os("ULPDRIFT_NVRTC").map(std::path::PathBuf::from);
    Cuda::open(0, nvrtc.as_deref(), Sources::default())
        .map_err(|reason| println!("skipped: no device ({reason})"))
        .ok()
}
