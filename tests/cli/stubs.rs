//! Libraries of NVIDIA's, made here of a few lines of Rust, the real compiler where it is installed, and tests that
//! need more than is here.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use ulpdrift::backend::cuda::probe::CALLED_LATER;

use crate::scene::Scene;

/// Says past the test harness, which hides what passing tests print, that nothing was tested; the number
/// counts such tests.
pub fn skipped(why: &str) {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed) + 1;
    let thread = thread::current();
    let test = thread.name().unwrap_or("a test");
    let _ = writeln!(io::stderr(), "skipped: {why}: {test} ({count} so far)");
}

/// Makes a shared library of Rust source.
pub fn library(scene: &Scene, name: &str, text: &str) {
    scene.put("stub.rs", text);
    let made = Command::new("rustc")
        .args(["--edition=2024", "--crate-type=cdylib", "-o"])
        .args([scene.path(name), scene.path("stub.rs")])
        .status();
    assert!(made.unwrap().success());
}

/// A code that no version of a library has.
pub const UNHEARD_OF: i32 = 12345;

/// A function of a stub, which returns that code if it is the one that `STUB_FAILS` names.
pub fn function(name: &str, arguments: &str, body: &str) -> String {
    format!(
        "#[unsafe(no_mangle)]\npub extern \"C\" fn {name}({arguments}) -> i32 {{ \
         if fails(\"{name}\") {{ return {UNHEARD_OF} }} {body} }}\n"
    )
}

/// What such functions ask.
pub const FAILS: &str = "fn fails(name: &str) -> bool { std::env::var(\"STUB_FAILS\").is_ok_and(|which| which == name) }\n";

/// A driver that answers, unless told otherwise, with one H100 and CUDA 13.0.
pub struct Driver {
    pub init: i32,
    pub version: i32,
    pub count: i32,
    pub capability: (i32, i32),
    pub lacks: &'static str,
    /// More functions, or others in their place: name, arguments and body.
    pub more: &'static [(&'static str, &'static str, &'static str)],
}

impl Default for Driver {
    fn default() -> Self {
        Self {
            init: 0,
            version: 13000,
            count: 1,
            capability: (9, 0),
            lacks: "",
            more: &[],
        }
    }
}

impl Driver {
    /// Its functions by name, each with its arguments and body.
    fn functions(&self) -> Vec<(&str, &str, String)> {
        let Self {
            init,
            version,
            count,
            capability: (major, minor),
            ..
        } = self;
        vec![
            ("cuInit", "_: u32", format!("{init}")),
            ("cuDriverGetVersion", "to: *mut i32", format!("unsafe {{ *to = {version} }}; 0")),
            ("cuDeviceGetCount", "to: *mut i32", format!("unsafe {{ *to = {count} }}; 0")),
            ("cuDeviceGet", "to: *mut i32, n: i32", "unsafe { *to = n }; 0".to_owned()),
            (
                "cuDeviceGetName",
                "to: *mut u8, _: i32, _: i32",
                "for (i, b) in b\"Stub \\x1b[31m card\\0\".iter().enumerate() { unsafe { *to.add(i) = *b } }; 0"
                    .to_owned(),
            ),
            (
                "cuDeviceGetAttribute",
                "to: *mut i32, which: i32, _: i32",
                format!("unsafe {{ *to = match which {{ 16 => 132, 75 => {major}, 76 => {minor}, _ => 0 }} }}; 0"),
            ),
            ("cuDeviceTotalMem_v2", "to: *mut usize, _: i32", "unsafe { *to = 80 << 30 }; 0".to_owned()),
            (
                "cuGetErrorName",
                "code: i32, to: *mut *const u8",
                format!(
                    "if code == {UNHEARD_OF} {{ return 1 }} unsafe {{ *to = b\"CUDA_ERROR_OF_THE_STUB\\0\".as_ptr() }}; 0"
                ),
            ),
            ("cuGetExportTable", "", "999".to_owned()),
        ]
    }

    /// In Rust.
    pub fn source(&self) -> String {
        let mut own = self.functions();
        let more = self.more.iter();
        own.retain(|(name, ..)| more.clone().all(|(other, ..)| other != name));
        own.extend(more.map(|&(name, arguments, body)| (name, arguments, body.to_owned())));
        let rest = CALLED_LATER
            .iter()
            .filter(|name| own.iter().all(|(known, ..)| known != *name))
            .map(|name| (*name, "", "999".to_owned()));
        let all = own.iter().cloned().chain(rest);
        let all = all.filter(|(name, ..)| *name != self.lacks);
        all.map(|(name, arguments, body)| function(name, arguments, &body))
            .collect::<String>()
            + FAILS
    }

    /// Makes it the driver of a loader that looks into the scene's folder first.
    pub fn put_into(&self, scene: &Scene) {
        library(scene, "libcuda.so.1", &self.source());
        // A machine with a driver may have the other name too, which is looked for first.
        fs::copy(scene.path("libcuda.so.1"), scene.path("libcuda.so")).unwrap();
    }
}

/// The NVRTC of the test environment, which `scripts/test` installs.
pub fn pinned_nvrtc() -> Option<PathBuf> {
    let lib = Path::new(env!("CARGO_MANIFEST_DIR")).join(".venv/lib");
    let found = fs::read_dir(lib).ok().and_then(|pythons| {
        pythons
            .flatten()
            .map(|python| python.path().join("site-packages/nvidia/cu13/lib"))
            .find(|folder| folder.join("libnvrtc.so.13").is_file())
    });
    if found.is_none() {
        skipped("no NVRTC in .venv");
    }
    found
}
