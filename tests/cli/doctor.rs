//! `doctor` beside drivers and compilers that are absent, broken, too old, or work: exit code 0, a
//! sentence for each, never a panic. The drivers are stubs.

use std::{
    io::Read,
    process::{Command, Stdio},
};

use ulpdrift::backend::cuda::{error::CudaError, probe};

use crate::{
    scene::{BINARY, Scene},
    stubs::{Driver, library, pinned_nvrtc, skipped},
};

const EMULATOR: &str = "run uses the emulator";

impl Driver {
    /// What `doctor FLAGS` says beside it, its line breaks and columns apart.
    fn doctor(&self, flags: &str) -> String {
        let scene = Scene::new();
        self.put_into(&scene);
        doctor(&scene, flags, &[])
    }
}

/// What `doctor FLAGS` says where the loader looks into the scene's folder first.
pub fn doctor(scene: &Scene, flags: &str, env: &[(&str, &str)]) -> String {
    let folder = scene.path("");
    let mut env = env.to_vec();
    env.push(("LD_LIBRARY_PATH", folder.to_str().unwrap()));
    let outcome = scene.ulpdrift_with(&format!("doctor {flags}"), &env);
    words(&outcome.exits_with(0).remarks_nothing().stdout)
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[track_caller]
pub fn says(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "no {part:?} in {said:?}");
    }
}

#[test]
fn no_driver() {
    let here = probe::probe();
    if !matches!(here, Err(CudaError::NoDriver { .. })) {
        return skipped("a driver is here");
    }
    let said = doctor(&Scene::new(), "", &[]);
    let sentence = "driver no NVIDIA driver is here: the loader finds no libcuda.so.1; install the \
                    driver";
    says(&said, &[sentence, EMULATOR, "see the driver above"]);
}

#[test]
fn a_driver_that_is_no_library() {
    let scene = Scene::new()
        .file("libcuda.so.1", "text")
        .file("libcuda.so", "text");
    if !matches!(probe::probe(), Err(CudaError::NoDriver { .. })) {
        return skipped("a driver is here, and is found instead");
    }
    let said = doctor(&scene, "", &[]);
    says(
        &said,
        &[
            "driver the NVIDIA driver does not load (",
            "; reinstall the driver",
            EMULATOR,
        ],
    );
}

#[test]
fn a_driver_without_a_function() {
    for lacks in [
        "cuInit",
        "cuGetExportTable",
        "cuDeviceGetCount",
        "cuDeviceTotalMem_v2",
        "cuEventElapsedTime_v2",
    ] {
        let said = Driver {
            lacks,
            ..Driver::default()
        }
        .doctor("");
        let sentence = format!("has no function {lacks}; reinstall the driver");
        says(
            &said,
            &[
                "driver the NVIDIA driver is broken: libcuda.so",
                &sentence,
                EMULATOR,
            ],
        );
    }
}

#[test]
fn a_driver_that_returns_an_error() {
    let said = Driver {
        init: 999,
        ..Driver::default()
    }
    .doctor("");
    let sentence = "driver the NVIDIA driver does not work: cuInit returned error 999 \
                    (CUDA_ERROR_OF_THE_STUB); check it with nvidia-smi";
    says(&said, &[sentence, EMULATOR]);
    let driver = Driver {
        init: 3,
        lacks: "cuGetErrorName",
        ..Driver::default()
    };
    says(&driver.doctor(""), &["cuInit returned error 3; check it"]);
}

#[test]
fn a_driver_without_devices() {
    for driver in [
        Driver {
            count: 0,
            ..Driver::default()
        },
        Driver {
            init: 100,
            ..Driver::default()
        },
    ] {
        let said = driver.doctor("");
        says(
            &said,
            &[
                "driver the NVIDIA driver finds no device; make one visible",
                EMULATOR,
            ],
        );
    }
}

#[test]
fn devices_that_the_environment_hides() {
    let scene = Scene::new();
    let source = Driver {
        init: 100,
        ..Driver::default()
    }
    .source();
    library(&scene, "libcuda.so", &source);
    let env = [("CUDA_VISIBLE_DEVICES", "7"), ("NVIDIA_TF32_OVERRIDE", "1")];
    let said = doctor(&scene, "", &env);
    says(
        &said,
        &[
            "finds no device, and CUDA_VISIBLE_DEVICES='7' hides all that it does not list;",
            "environment CUDA_VISIBLE_DEVICES=7: hides",
            "environment NVIDIA_TF32_OVERRIDE=1: changes what the cublas-* variants compute",
        ],
    );
}

/// Known fault I4, where it begins: drivers of the 550 series are refused before anything is compiled.
#[test]
fn i4_a_driver_that_is_too_old() {
    let said = Driver {
        version: 12040,
        ..Driver::default()
    }
    .doctor("");
    let sentence = "driver the NVIDIA driver is too old: it supports CUDA 12.4, expected 12.8 or \
                    newer; update the driver";
    says(&said, &[sentence, EMULATOR]);
    let said = Driver {
        version: 12080,
        ..Driver::default()
    }
    .doctor("");
    says(&said, &["driver supports CUDA 12.8", "device 0"]);
}

#[test]
fn a_device_without_a_compiler() {
    let said = Driver::default().doctor("--nvrtc absent.so");
    says(
        &said,
        &[
            "driver supports CUDA 13.0",
            r"device 0 Stub \u{1b}[31m card, sm_90, 132 SMs, 80.0 GiB",
            "NVRTC no NVRTC is here, the compiler of the kernels: 'absent.so' does not exist;",
            EMULATOR,
            "see NVRTC above",
        ],
    );
}

#[test]
fn a_device_that_is_not_modelled() {
    let said = Driver {
        capability: (7, 5),
        ..Driver::default()
    }
    .doctor("");
    says(
        &said,
        &[
            "has compute capability 7.5, whose",
            EMULATOR,
            "see device 0 above",
        ],
    );
}

#[test]
fn a_device_and_a_compiler() {
    let Some(folder) = pinned_nvrtc() else { return };
    let flags = format!("--nvrtc '{}'", folder.join("libnvrtc.so.13").display());
    let said = Driver::default().doctor(&flags);
    says(
        &said,
        &[
            "NVRTC 13.5, ",
            "compiles for sm_ 75 80 86 87 88 89 90 100",
            "compiled a trial kernel for sm_90",
            "run uses the CUDA backend on device 0, unless told --backend emulate",
        ],
    );

    let newer = Driver {
        capability: (12, 9),
        ..Driver::default()
    };
    let refused = "NVRTC 13.5 does not compile for sm_129: it knows sm_75, sm_80,";
    says(
        &newer.doctor(&flags),
        &[refused, EMULATOR, "see NVRTC above"],
    );
}

/// NVRTC calls the driver itself, and one without this function brings it down.
#[test]
fn a_compiler_beside_a_broken_driver() {
    let Some(folder) = pinned_nvrtc() else { return };
    let flags = format!("--nvrtc '{}'", folder.join("libnvrtc.so.13").display());
    let driver = Driver {
        lacks: "cuGetExportTable",
        ..Driver::default()
    };
    let said = driver.doctor(&flags);
    says(
        &said,
        &[
            "NVRTC 13.5, ",
            "not tried beside a driver that does not work",
            EMULATOR,
        ],
    );
}

/// Known fault I2: the loader's own search, where the file has CUDA 13's name and no link without a version.
#[test]
fn i2_a_compiler_that_the_loader_finds() {
    let Some(folder) = pinned_nvrtc() else { return };
    let env = [("LD_LIBRARY_PATH", folder.to_str().unwrap())];
    let scene = Scene::new();
    let said = scene
        .ulpdrift_with("doctor", &env)
        .exits_with(0)
        .remarks_nothing()
        .stdout;
    says(
        &words(&said),
        &[
            "NVRTC 13.5, ",
            "/libnvrtc.so.13 compiles for",
            "compiled a trial",
        ],
    );
}

/// Known fault I9.
#[test]
fn i9_a_compiler_without_its_builtins() {
    let Some(folder) = pinned_nvrtc() else { return };
    let scene = Scene::new();
    let alone = scene.path("libnvrtc.so.13");
    std::os::unix::fs::symlink(folder.join("libnvrtc.so.13"), alone).unwrap();
    let said = doctor(&scene, "--nvrtc libnvrtc.so.13", &[]);
    says(
        &said,
        &[
            "the NVRTC at libnvrtc.so.13 is incomplete: ",
            "; put libnvrtc-builtins of the same version beside it",
        ],
    );
}

#[test]
fn a_compiler_without_functions() {
    let scene = Scene::new();
    library(&scene, "libnvrtc.so.13", "");
    let broken = "NVRTC the NVRTC at libnvrtc.so.13 is broken: it has no function nvrtcVersion;";
    says(&doctor(&scene, "--nvrtc libnvrtc.so.13", &[]), &[broken]);
    says(&doctor(&scene, "", &[]), &[broken]);
}

#[test]
fn a_processor_told_to_do_what_it_cannot() {
    let said = doctor(&Scene::new(), "", &[("ULPDRIFT_SIMD", "sse9")]);
    says(&said, &["vectors ULPDRIFT_SIMD: ", "threads "]);
    let threads = [("RAYON_NUM_THREADS", "100000000")];
    let said = doctor(&Scene::new(), "", &threads);
    says(&said, &["; RAYON_NUM_THREADS=100000000 asks for others"]);
}

#[test]
fn where_compiled_kernels_are_kept() {
    let scene = Scene::new().file("caches/ulpdrift/0f.cubin", "123");
    let scene = scene.file("caches/ulpdrift/other", "12345");
    let (home, caches) = (scene.path("home"), scene.path("caches"));
    let home = ("HOME", home.to_str().unwrap());
    let said = |env: &[(&str, &str)]| doctor(&scene, "", env);
    let in_home = format!(
        "kernel cache {}/.cache/ulpdrift: 0 kernels compiled, 0 bytes",
        home.1
    );
    // Empty or relative: as if it were not there.
    says(&said(&[home, ("XDG_CACHE_HOME", "")]), &[&in_home]);
    says(&said(&[home, ("XDG_CACHE_HOME", "caches")]), &[&in_home]);
    let caches = caches.to_str().unwrap();
    let there = format!("kernel cache {caches}/ulpdrift: 1 kernel compiled, 3 bytes");
    let xdg = ("XDG_CACHE_HOME", caches);
    says(&said(&[home, xdg]), &[&there]);
    let none = "kernel cache none: ULPDRIFT_CACHE=off, or neither";
    says(&said(&[home, xdg, ("ULPDRIFT_CACHE", "off")]), &[none]);
    says(&said(&[("HOME", ""), ("XDG_CACHE_HOME", "")]), &[none]);
    let wrong = "kernel cache ULPDRIFT_CACHE: 'no' found, expected off;";
    says(&said(&[("ULPDRIFT_CACHE", "no")]), &[wrong]);
}

/// Exit code 0 all the same. Root may write anywhere, so a file stands in the folder's place.
#[test]
fn a_cache_that_cannot_be_written() {
    let scene = Scene::new().file("caches", "");
    let caches = scene.path("caches");
    let said = doctor(&scene, "", &[("XDG_CACHE_HOME", caches.to_str().unwrap())]);
    let faulty = "caches/ulpdrift: 0 kernels compiled, 0 bytes; it cannot be written (";
    says(&said, &[faulty, "so every run compiles its kernels again"]);
}

/// What is known is printed before a driver is asked, which may never answer.
#[test]
fn a_driver_that_hangs_leaves_a_trace() {
    let scene = Scene::new();
    let driver = Driver {
        more: &[(
            "cuInit",
            "_: u32",
            "std::thread::sleep(std::time::Duration::from_secs(60)); 999",
        )],
        ..Driver::default()
    };
    driver.put_into(&scene);
    let mut child = Command::new(BINARY)
        .arg("doctor")
        .env("LD_LIBRARY_PATH", scene.path(""))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut said, mut chunk) = (String::new(), [0; 1024]);
    let mut out = child.stdout.take().unwrap();
    while !said.contains("\ndriver       ") {
        let count = out.read(&mut chunk).unwrap();
        assert_ne!(count, 0, "{said}");
        said += std::str::from_utf8(&chunk[..count]).unwrap();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(said.ends_with("\ndriver       "), "{said}");
    says(&said, &["processor ", "vectors ", "threads "]);
}

#[test]
fn a_cublas_that_is_none() {
    let scene = Scene::new();
    library(&scene, "libcublas.so", "");
    let lacking = "cuBLAS the cublas-* variants need cuBLAS, and libcublas.so has no function \
                   cublasCreate_v2; install it";
    says(&doctor(&scene, "", &[]), &[lacking]);
    let scene = Scene::new();
    let functions = ["cublasCreate_v2", "cublasDestroy_v2", "cublasGemmEx"];
    let more = ["cublasGetVersion_v2", "cublasSetStream_v2"];
    let function =
        |name: &&str| format!("#[unsafe(no_mangle)]\npub extern \"C\" fn {name}() {{}}\n");
    let text: String = functions.iter().chain(&more).map(function).collect();
    library(&scene, "libcublas.so", &text);
    says(
        &doctor(&scene, "", &[]),
        &["cuBLAS is here, for the cublas-*"],
    );
}
