//! The pinned compiler of the test environment, and what is no compiler.

use std::{fs, path::Path, process::Command};

use super::*;
use crate::{backend::cuda::testing::pinned_nvrtc, tensor_core::Arch};

const KERNEL: &str = r#"
extern "C" __global__ void fused(float* out, float a, float b, float c) { out[0] = fmaf(a, b, c); }
extern "C" __global__ void apart(float* out, float a, float b, float c) { out[0] = a * b + c; }
"#;

const fn source(text: &str) -> Source<'_> {
    Source {
        name: "trial.cu",
        text,
        headers: &[],
    }
}

fn pinned() -> Option<Nvrtc> {
    Some(Nvrtc::open(Some(&pinned_nvrtc()?)).unwrap())
}

#[test]
fn it_says_what_it_is() {
    let Some(nvrtc) = pinned() else { return };
    assert_eq!(nvrtc.version(), (13, 5));
    assert_eq!(nvrtc.path().file_name(), Some(OsStr::new("libnvrtc.so.13")));
    assert_eq!(
        nvrtc.archs(),
        [75, 80, 86, 87, 88, 89, 90, 100, 103, 107, 110, 120, 121]
    );
}

/// Known fault I6: machine code for the real arch, never `compute_XX`. A CUBIN is an ELF file; the PTX names its
/// target; the log tells registers.
#[test]
fn i6_it_compiles_for_every_arch_without_a_device() {
    let Some(nvrtc) = pinned() else { return };
    for arch in Arch::ALL {
        let arch = arch.to_string();
        let compiled = nvrtc.compile(&source(KERNEL), &[], &arch).unwrap();
        assert_eq!(&compiled.cubin[..4], b"\x7fELF");
        let target = format!("--gpu-architecture={arch}");
        assert_eq!(compiled.options[0], target);
        assert!(
            compiled
                .options
                .iter()
                .all(|option| !option.contains("compute_"))
        );
        assert!(compiled.ptx.contains(&format!(".target {arch}")), "{arch}");
        assert!(!compiled.ptx.contains('\0'));
        let registers = compiled.log.matches("registers").count();
        assert_eq!(registers, 2, "{}", compiled.log);
    }
}

/// Known fault I11, its second half.
#[test]
fn i11_products_and_sums_are_fused_only_where_the_kernel_says_so() {
    let Some(nvrtc) = pinned() else { return };
    let ptx = nvrtc.compile(&source(KERNEL), &[], "sm_90").unwrap().ptx;
    let (fused, apart) = ptx.split_once(".entry apart").unwrap();
    assert!(fused.contains("fma.rn.f32"), "{ptx}");
    assert!(
        apart.contains("mul.rn.f32") || apart.contains("mul.f32"),
        "{ptx}"
    );
    assert!(!apart.contains("fma."), "{ptx}");
}

#[test]
fn options_come_after_our_own_and_are_told() {
    let Some(nvrtc) = pinned() else { return };
    let options = ["-DTILE=8".to_owned()];
    let text = "extern \"C\" __global__ void k(int* out) { out[0] = TILE; }";
    let compiled = nvrtc.compile(&source(text), &options, "sm_120").unwrap();
    assert_eq!(
        compiled.options.join(" "),
        "--gpu-architecture=sm_120 --std=c++17 --fmad=false -lineinfo --ptxas-options=-v -DTILE=8"
    );

    let unknown = ["--no-such-option".to_owned()];
    let refused = nvrtc
        .compile(&source(KERNEL), &unknown, "sm_120")
        .unwrap_err();
    let sentence = refused.to_string();
    assert!(
        sentence.contains(
            " failed while compiling trial.cu for sm_120: error 5 (NVRTC_ERROR_INVALID_OPTION): "
        ),
        "{sentence}"
    );
    assert!(sentence.contains("no-such-option"), "{sentence}");
    assert!(refused.is_absence());
}

#[test]
fn headers_are_found_by_name() {
    let Some(nvrtc) = pinned() else { return };
    let text =
        "#include \"inner/tile.cuh\"\nextern \"C\" __global__ void k(int* out) { out[0] = TILE; }";
    let with = Source {
        headers: &[("inner/tile.cuh", "#define TILE 8\n")],
        ..source(text)
    };
    assert!(nvrtc.compile(&with, &[], "sm_80").is_ok());
    let refused = nvrtc.compile(&source(text), &[], "sm_80").unwrap_err();
    assert!(refused.to_string().contains("inner/tile.cuh"), "{refused}");
}

#[test]
fn a_wrong_kernel_is_named_with_its_line_and_keeps_the_whole_log() {
    let Some(nvrtc) = pinned() else { return };
    let text = "__global__ void k() {\n  int unused;\n  first();\n  second();\n}\n";
    let refused = nvrtc.compile(&source(text), &[], "sm_90").unwrap_err();
    let sentence = refused.to_string();
    let start = "kernel 'trial.cu' does not compile for sm_90: trial.cu(3): error: ";
    assert!(sentence.starts_with(start), "{sentence}");
    assert!(sentence.contains("first"), "{sentence}");
    assert_eq!(sentence.lines().count(), 1);
    let CudaError::Compile { log, .. } = refused else {
        panic!("{refused:?}");
    };
    assert!(log.contains("trial.cu(4)"), "{log}");
}

/// What the compiler passes and the assembler does not: an instruction that the arch lacks.
#[test]
fn an_instruction_that_the_arch_lacks_is_a_sentence() {
    let Some(nvrtc) = pinned() else { return };
    let text = "extern \"C\" __global__ void k() { asm volatile(\"tcgen05.fence::before_thread_sync;\"); }";
    let refused = nvrtc.compile(&source(text), &[], "sm_80").unwrap_err();
    assert!(matches!(refused, CudaError::Compile { .. }), "{refused:?}");
    let sentence = refused.to_string();
    assert!(sentence.contains("tcgen05"), "{sentence}");
    assert_eq!(sentence.lines().count(), 1, "{sentence}");
}

/// Known faults I6, I7: an older compiler with a newer device, the reverse, and what is no real arch.
#[test]
fn i6_i7_an_arch_it_does_not_know_is_refused_before_it_compiles() {
    let Some(nvrtc) = pinned() else { return };
    for arch in ["sm_70", "sm_130", "compute_90", "sm_", "sm_90x", "", "90"] {
        let refused = nvrtc.compile(&source("not C++"), &[], arch).unwrap_err();
        let sentence = refused.to_string();
        let found = format!("NVRTC 13.5 does not compile for {arch}: it knows sm_75, sm_80, ");
        assert!(sentence.starts_with(&found), "{sentence}");
    }
    assert_eq!(nvrtc.knows("sm_90a"), Ok(()));
}

#[test]
fn a_nul_does_not_cut_a_source_short() {
    let Some(nvrtc) = pinned() else { return };
    let refused = nvrtc
        .compile(&source("int a;\0int b;"), &[], "sm_90")
        .unwrap_err();
    let sentence = refused.to_string();
    assert!(
        sentence.contains("the source holds a NUL character at byte 6"),
        "{sentence}"
    );
}

/// Programs of several threads do not disturb each other.
#[test]
fn threads_compile_at_once_to_the_same_code() {
    let Some(nvrtc) = pinned() else { return };
    let compile = || nvrtc.compile(&source(KERNEL), &[], "sm_90").unwrap().cubin;
    let alone = compile();
    std::thread::scope(|scope| {
        let both = [scope.spawn(compile), scope.spawn(compile)];
        for other in both {
            assert!(other.join().unwrap() == alone);
        }
    });
}

#[test]
fn what_is_no_library_is_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |path: &Path| Nvrtc::open(Some(path)).unwrap_err().to_string();
    let absent = dir.path().join("libnvrtc.so.13");
    let sentence = refused(&absent);
    assert!(
        sentence.contains("libnvrtc.so.13' does not exist; install it"),
        "{sentence}"
    );

    fs::write(&absent, "text").unwrap();
    let sentence = refused(&absent);
    assert!(
        sentence.contains("libnvrtc.so.13 is broken: "),
        "{sentence}"
    );
    assert!(sentence.contains("; name another by --nvrtc"), "{sentence}");

    let sentence = refused(dir.path());
    assert!(sentence.contains(" is broken: "), "{sentence}");
}

#[test]
fn a_library_without_the_functions_is_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let library = stub(dir.path(), "");
    let sentence = Nvrtc::open(Some(&library)).unwrap_err().to_string();
    assert!(
        sentence.contains("stub.so is broken: it has no function nvrtcVersion; name another"),
        "{sentence}"
    );
}

/// What a stub of a compiler answers, each thing in one way of being wrong or right.
struct Answers {
    outcome: i32,
    log: &'static str,
    log_size: &'static str,
    ptx_size: &'static str,
    cubin: &'static str,
    cubin_size: &'static str,
    archs: i32,
}

/// A compiler that works.
const WORKING: Answers = Answers {
    outcome: 0,
    log: "",
    log_size: "1",
    ptx_size: "1",
    cubin: "\\x7fELF",
    cubin_size: "4",
    archs: 1,
};

impl Answers {
    /// What comes of compiling with it.
    fn compiled(&self) -> Result<Compiled, CudaError> {
        let dir = tempfile::tempdir().unwrap();
        let mut text = String::new();
        let mut function = |name: &str, arguments: &str, body: &str| {
            text += &format!(
                "#[unsafe(no_mangle)]\nunsafe extern \"C\" fn nvrtc{name}({arguments}) -> i32 {{ unsafe {{ {body} }} }}\n"
            );
        };
        let count = self.archs;
        function("Version", "a: *mut i32, b: *mut i32", "*a = 13; *b = 0; 0");
        function(
            "GetNumSupportedArchs",
            "to: *mut i32",
            &format!("*to = {count}; 0"),
        );
        function("GetSupportedArchs", "to: *mut i32", "*to = 90; 0");
        function("CreateProgram", "to: *mut usize", "*to = 1; 0");
        function("DestroyProgram", "", "0");
        function("CompileProgram", "", &self.outcome.to_string());
        for (name, size, bytes) in [
            ("ProgramLog", self.log_size, self.log),
            ("PTX", self.ptx_size, ""),
            ("CUBIN", self.cubin_size, self.cubin),
        ] {
            let size = format!("*to = {size}; 0");
            function(&format!("Get{name}Size"), "_: usize, to: *mut usize", &size);
            let copy = format!(
                "let all = b\"{bytes}\"; std::ptr::copy_nonoverlapping(all.as_ptr(), to, all.len()); 0"
            );
            function(&format!("Get{name}"), "_: usize, to: *mut u8", &copy);
        }
        text += "#[unsafe(no_mangle)]\nextern \"C\" fn nvrtcGetErrorString(_: i32) -> *const u8 \
                 { b\"NVRTC_ERROR_OF_THE_STUB\\0\".as_ptr() }\n";
        let library = stub(dir.path(), &text);
        Nvrtc::open(Some(&library))?.compile(&source(KERNEL), &[], "sm_90")
    }
}

/// The codes are those of NVRTC's reference: out of memory, program creation, builtin operation failure, internal error;
/// and one of no version.
#[test]
fn a_compiler_that_fails_is_not_a_source_that_is_wrong() {
    assert_eq!(WORKING.compiled().unwrap().cubin, b"\x7fELF");
    for outcome in [1, 2, 7, 11, 12345] {
        let failing = Answers { outcome, ..WORKING };
        let refused = failing.compiled().unwrap_err();
        assert!(refused.is_absence(), "{refused}");
        let sentence = refused.to_string();
        assert!(sentence.starts_with("the NVRTC at "), "{sentence}");
        let said = format!(": error {outcome} (NVRTC_ERROR_OF_THE_STUB); ");
        assert!(sentence.contains(&said), "{sentence}");
    }
    let wrong = Answers {
        outcome: 6,
        ..WORKING
    };
    assert!(!wrong.compiled().unwrap_err().is_absence());
    let wordy = Answers {
        outcome: 11,
        log: "an error",
        log_size: "9",
        ..WORKING
    };
    let sentence = wordy.compiled().unwrap_err().to_string();
    let said = "stub.so failed while compiling trial.cu for sm_90: error 11 (NVRTC_ERROR_OF_THE_STUB): an error; ";
    assert!(sentence.contains(said), "{sentence}");
}

#[test]
fn sizes_that_no_result_has() {
    const ALL: &str = "usize::MAX";
    let absurd = "a result of 18446744073709551615 bytes, expected at most 268435456; name another";
    let claims = "is broken: it claims to know 2147483647 archs; name another";
    let no_code = "its CUBIN of 0 bytes is no ELF file; name another";
    for (answers, said) in [
        (
            Answers {
                log_size: ALL,
                ..WORKING
            },
            absurd,
        ),
        (
            Answers {
                ptx_size: ALL,
                ..WORKING
            },
            absurd,
        ),
        (
            Answers {
                cubin_size: ALL,
                ..WORKING
            },
            absurd,
        ),
        (
            Answers {
                cubin_size: "0",
                cubin: "",
                ..WORKING
            },
            no_code,
        ),
        (
            Answers {
                archs: i32::MAX,
                ..WORKING
            },
            claims,
        ),
    ] {
        let refused = answers.compiled().unwrap_err();
        assert!(refused.is_absence(), "{refused}");
        assert!(refused.to_string().contains(said), "{refused}");
    }
    // A source that is wrong is wrong even if the log cannot be had.
    let wrong = Answers {
        outcome: 6,
        log_size: ALL,
        ..WORKING
    };
    assert!(!wrong.compiled().unwrap_err().is_absence());
}

/// A shared library made of Rust source.
fn stub(folder: &Path, text: &str) -> PathBuf {
    let source = folder.join("stub.rs");
    let library = folder.join("stub.so");
    fs::write(&source, text).unwrap();
    let made = Command::new("rustc")
        .args(["--edition=2024", "--crate-type=cdylib", "-Awarnings", "-o"])
        .args([&library, &source])
        .status();
    assert!(made.unwrap().success());
    library
}

#[test]
fn a_compiler_is_known_by_its_version_and_its_file() {
    let Some(path) = pinned_nvrtc() else { return };
    let nvrtc = Nvrtc::open(Some(&path)).unwrap();
    let (major, minor) = nvrtc.version();
    let size = fs::metadata(&path).unwrap().len();
    let identity = nvrtc.identity();
    let (known, modified) = identity.rsplit_once(' ').unwrap();
    assert_eq!(known, format!("NVRTC {major}.{minor} {size}"));
    assert!(modified.parse::<u128>().unwrap() > 0);
}
