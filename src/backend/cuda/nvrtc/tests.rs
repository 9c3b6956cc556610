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
        sentence.contains("'trial.cu' does not compile for sm_120"),
        "{sentence}"
    );
    assert!(sentence.contains("no-such-option"), "{sentence}");
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

/// A shared library made of Rust source.
fn stub(folder: &Path, text: &str) -> PathBuf {
    let source = folder.join("stub.rs");
    let library = folder.join("stub.so");
    fs::write(&source, text).unwrap();
    let made = Command::new("rustc")
        .args(["--edition=2024", "--crate-type=cdylib", "-o"])
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
