//! Codes that a library returns and nobody has heard of, as those of a later version are: a sentence with the number and
//! exit code 3, whichever function returns it. The libraries are stubs.

use crate::{
    doctor::{doctor, says},
    libraries::beside,
    scene::Scene,
    stubs::{Driver, FAILS, UNHEARD_OF, function, library, pinned_nvrtc},
};

const RUN: &str =
    "run synthetic:tiny --backend cuda --tokens 3 --layers 0 --sites attn --variants fp32";

/// A driver all of whose functions succeed, and that has memory pools if it is told so.
const WORKING: &[(&str, &str, &str)] = &[
    (
        "cuDeviceGetAttribute",
        "to: *mut i32, which: i32, _: i32",
        "unsafe { *to = match which { 16 => 132, 75 => 9, 115 => std::env::var(\"STUB_POOLS\").is_ok().into(), _ => 0 } }; 0",
    ),
    (
        "cuDevicePrimaryCtxRetain",
        "to: *mut usize, _: i32",
        "unsafe { *to = 1 }; 0",
    ),
    ("cuDevicePrimaryCtxRelease_v2", "", "0"),
    ("cuCtxGetCurrent", "to: *mut usize", "unsafe { *to = 0 }; 0"),
    ("cuCtxSetCurrent", "", "0"),
    ("cuStreamCreate", "to: *mut usize", "unsafe { *to = 2 }; 0"),
    ("cuStreamDestroy_v2", "", "0"),
    ("cuStreamSynchronize", "", "0"),
    ("cuStreamBeginCapture_v2", "", "0"),
    (
        "cuStreamEndCapture",
        "_: usize, to: *mut usize",
        "unsafe { *to = 3 }; 0",
    ),
    (
        "cuMemAlloc_v2",
        "to: *mut usize",
        "unsafe { *to = 4096 }; 0",
    ),
    (
        "cuMemAllocAsync",
        "to: *mut usize",
        "unsafe { *to = 4096 }; 0",
    ),
    ("cuMemFree_v2", "", "0"),
    ("cuMemFreeAsync", "", "0"),
    ("cuMemsetD8Async", "", "0"),
    ("cuMemcpyHtoDAsync_v2", "", "0"),
    ("cuMemcpyDtoHAsync_v2", "", "0"),
    ("cuMemcpyDtoDAsync_v2", "", "0"),
    (
        "cuModuleLoadData",
        "to: *mut usize",
        "unsafe { *to = 4 }; 0",
    ),
    ("cuModuleUnload", "", "0"),
    (
        "cuModuleGetFunction",
        "to: *mut usize",
        "unsafe { *to = 5 }; 0",
    ),
    ("cuFuncSetAttribute", "", "0"),
    ("cuLaunchKernelEx", "", "0"),
    ("cuEventCreate", "to: *mut usize", "unsafe { *to = 6 }; 0"),
    ("cuEventDestroy_v2", "", "0"),
    ("cuEventRecord", "", "0"),
    ("cuEventSynchronize", "", "0"),
    (
        "cuEventElapsedTime_v2",
        "to: *mut f32",
        "unsafe { *to = 1.0 }; 0",
    ),
    (
        "cuGraphInstantiateWithFlags",
        "to: *mut usize",
        "unsafe { *to = 7 }; 0",
    ),
    ("cuGraphLaunch", "", "0"),
    ("cuGraphExecDestroy", "", "0"),
    ("cuGraphDestroy", "", "0"),
];

/// A scene with that driver, and how to run beside it: the flags, and where compiled kernels are kept, so that the
/// compiler runs once.
fn scene() -> Option<(Scene, String)> {
    let folder = pinned_nvrtc()?;
    let scene = Scene::new();
    let driver = Driver {
        more: WORKING,
        ..Driver::default()
    };
    driver.put_into(&scene);
    let nvrtc = folder.join("libnvrtc.so.13");
    Some((scene, format!("{RUN} --nvrtc '{}'", nvrtc.display())))
}

/// Exit code 3 and a sentence with the code, where `call` is what fails.
#[track_caller]
fn is_said(scene: &Scene, line: &str, call: &str, more: &[(&str, &str)]) {
    let cache = scene.path("cache");
    let mut env = vec![
        ("STUB_FAILS", call),
        ("ULPDRIFT_CACHE", ""),
        ("XDG_CACHE_HOME", cache.to_str().unwrap()),
    ];
    env.extend(more);
    let said = format!(": {call} returned error {UNHEARD_OF}; ");
    let outcome = beside(scene, line, &env).exits_with(3).prints_nothing();
    let outcome = outcome.remarks(&said);
    assert_eq!(outcome.stderr.lines().count(), 1, "{outcome}");
}

#[test]
fn a_code_of_the_driver_that_nobody_has_heard_of() {
    let Some((scene, line)) = scene() else { return };
    for call in [
        "cuInit",
        "cuDriverGetVersion",
        "cuDeviceGetCount",
        "cuDeviceGet",
        "cuDeviceGetName",
        "cuDeviceGetAttribute",
        "cuDeviceTotalMem_v2",
        "cuDevicePrimaryCtxRetain",
        "cuCtxGetCurrent",
        "cuCtxSetCurrent",
        "cuStreamCreate",
        "cuModuleLoadData",
        "cuModuleGetFunction",
        "cuMemAlloc_v2",
        "cuMemcpyHtoDAsync_v2",
        "cuMemsetD8Async",
        "cuLaunchKernelEx",
        "cuMemcpyDtoHAsync_v2",
        "cuStreamSynchronize",
    ] {
        is_said(&scene, &line, call, &[]);
    }
    is_said(&scene, &line, "cuMemAllocAsync", &[("STUB_POOLS", "1")]);
    let large = line.replace("--tokens 3", "--tokens 200");
    let large = large.replace("fp32", "tf32");
    is_said(&scene, &large, "cuFuncSetAttribute", &[]);
    let timed = format!("{line} --time");
    for call in [
        "cuMemcpyDtoDAsync_v2",
        "cuEventCreate",
        "cuEventRecord",
        "cuEventSynchronize",
        "cuEventElapsedTime_v2",
        "cuStreamBeginCapture_v2",
        "cuStreamEndCapture",
        "cuGraphInstantiateWithFlags",
        "cuGraphLaunch",
    ] {
        is_said(&scene, &timed, call, &[]);
    }
}

/// What is said on the way out helps nobody, and does no harm: the stub's zeros are no product, exit code 1.
#[test]
fn a_code_of_what_gives_back_is_passed_over() {
    let Some((scene, line)) = scene() else { return };
    let cache = scene.path("cache");
    for call in [
        "",
        "cuMemFree_v2",
        "cuModuleUnload",
        "cuEventDestroy_v2",
        "cuGraphExecDestroy",
        "cuGraphDestroy",
        "cuStreamDestroy_v2",
        "cuDevicePrimaryCtxRelease_v2",
    ] {
        let env = [
            ("STUB_FAILS", call),
            ("ULPDRIFT_CACHE", ""),
            ("XDG_CACHE_HOME", cache.to_str().unwrap()),
        ];
        beside(&scene, &format!("{line} --time -q"), &env)
            .exits_with(1)
            .prints(" · cuda sm_90 · ")
            .remarks_nothing();
    }
}

#[test]
fn a_code_of_cublas_that_nobody_has_heard_of() {
    let Some((scene, line)) = scene() else { return };
    let all = [
        function("cublasCreate_v2", "to: *mut usize", "unsafe { *to = 8 }; 0"),
        function("cublasDestroy_v2", "", "0"),
        function(
            "cublasGetVersion_v2",
            "_: usize, to: *mut i32",
            "unsafe { *to = 130_100 }; 0",
        ),
        function("cublasSetStream_v2", "", "0"),
        function("cublasGemmEx", "", "0"),
    ];
    let text = all.concat() + FAILS;
    for name in ["libcublas.so", "libcublas.so.13"] {
        library(&scene, name, &text);
    }
    let line = line.replace("fp32", "cublas-tf32");
    for call in [
        "cublasCreate_v2",
        "cublasSetStream_v2",
        "cublasGetVersion_v2",
        "cublasGemmEx",
    ] {
        is_said(&scene, &line, call, &[]);
    }
    let named = "#[unsafe(no_mangle)]\npub extern \"C\" fn cublasGetStatusName(_: i32) -> *const u8 \
                 { b\"CUBLAS_STATUS_OF_THE_STUB\\0\".as_ptr() }\n";
    for name in ["libcublas.so", "libcublas.so.13"] {
        library(&scene, name, &(text.clone() + named));
    }
    let said = "failed while multiplying by cuBLAS: cublasGemmEx returned error 12345 \
                (CUBLAS_STATUS_OF_THE_STUB); ";
    beside(&scene, &line, &[("STUB_FAILS", "cublasGemmEx")])
        .exits_with(3)
        .remarks(said);
}

#[test]
fn doctor_says_it_too() {
    let scene = Scene::new();
    Driver::default().put_into(&scene);
    let said = doctor(&scene, "", &[("STUB_FAILS", "cuDeviceGetName")]);
    says(
        &said,
        &["does not work: cuDeviceGetName returned error 12345; check it with nvidia-smi"],
    );
}
