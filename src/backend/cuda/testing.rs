//! What the tests of the CUDA backend share.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

/// Says that a test did not test anything, past the test harness, which hides what passing tests
/// print; the number counts them.
pub fn skipped(why: &str) {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed) + 1;
    let thread = thread::current();
    let test = thread.name().unwrap_or("a test");
    let _ = writeln!(io::stderr(), "skipped: {why}: {test} ({count} so far)");
}

/// The NVRTC of the test environment (`scripts/test` installs it), or a counted skip.
pub fn pinned_nvrtc() -> Option<PathBuf> {
    let lib = Path::new(env!("CARGO_MANIFEST_DIR")).join(".venv/lib");
    let found = fs::read_dir(lib).ok().and_then(|pythons| {
        pythons
            .flatten()
            .map(|python| {
                python
                    .path()
                    .join("site-packages/nvidia/cu13/lib/libnvrtc.so.13")
            })
            .find(|library| library.is_file())
    });
    if found.is_none() {
        skipped("no NVRTC in .venv");
    }
    found
}
