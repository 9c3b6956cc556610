//! NVIDIA's libraries under the names and in the versions that faults are known of (section I): which are found,
//! what an old compiler is told of a new device, and what reaches the driver. The libraries are stubs.

use std::{fs, process::Command};

use crate::{
    doctor::{doctor, says},
    scene::{Outcome, Scene},
    stubs::{Driver, FAILS, function, library, pinned_nvrtc, skipped},
};

const RUN: &str = "run synthetic:tiny --backend cuda --tokens 3 --layers 0 --sites attn";

/// A compiler of one version that knows some archs and compiles nothing.
fn compiler(scene: &Scene, name: &str, (major, minor): (i32, i32), archs: &[i32]) {
    let functions = [
        (
            "nvrtcVersion",
            "major: *mut i32, minor: *mut i32",
            format!("unsafe {{ *major = {major}; *minor = {minor} }}; 0"),
        ),
        (
            "nvrtcGetNumSupportedArchs",
            "to: *mut i32",
            format!("unsafe {{ *to = {} }}; 0", archs.len()),
        ),
        (
            "nvrtcGetSupportedArchs",
            "to: *mut i32",
            format!(
                "for (i, arch) in {archs:?}.into_iter().enumerate() {{ unsafe {{ *to.add(i) = arch }} }}; 0"
            ),
        ),
    ];
    let nothing = [
        "CreateProgram",
        "DestroyProgram",
        "CompileProgram",
        "GetProgramLogSize",
        "GetProgramLog",
        "GetCUBINSize",
        "GetCUBIN",
        "GetPTXSize",
        "GetPTX",
    ];
    let working = functions
        .iter()
        .map(|(name, arguments, body)| function(name, arguments, body));
    let failing = nothing.map(|name| function(&format!("nvrtc{name}"), "", "11"));
    let text = "#[unsafe(no_mangle)]\npub extern \"C\" fn nvrtcGetErrorString(_: i32) -> *const u8 \
                { b\"NVRTC_ERROR_OF_THE_STUB\\0\".as_ptr() }\n";
    let all: String = working.chain(failing).collect();
    library(scene, name, &(all + text + FAILS));
}

/// Where the loader looks into the scene's folder first.
pub fn beside<'a>(scene: &'a Scene, line: &str, more: &[(&str, &str)]) -> Outcome<'a> {
    let folder = scene.path("");
    let mut env = vec![
        ("LD_LIBRARY_PATH", folder.to_str().unwrap()),
        ("ULPDRIFT_CACHE", "off"),
    ];
    env.extend(more);
    scene.ulpdrift_with(line, &env)
}

/// Whether doctor says so of this machine.
fn is_absent(said: &str) -> bool {
    doctor(&Scene::new(), "", &[]).contains(said)
}

/// Known faults I1, I2: the compiler by the names of CUDA 12 and of CUDA 13, with no link that has no version, and by
/// that link alone.
#[test]
fn i1_i2_a_compiler_by_each_of_its_names() {
    if !is_absent("NVRTC no NVRTC is here") {
        return skipped("an NVRTC is here, and may be found instead");
    }
    for (name, version, said) in [
        ("libnvrtc.so.12", (12, 8), "NVRTC 12.8, "),
        ("libnvrtc.so.13", (13, 0), "NVRTC 13.0, "),
        ("libnvrtc.so", (12, 9), "NVRTC 12.9, "),
    ] {
        let scene = Scene::new();
        compiler(&scene, name, version, &[80, 90]);
        let place = format!("/{name} compiles for sm_ 80 90");
        says(&doctor(&scene, "", &[]), &[said, &place]);
    }
}

/// Known fault I1 where the search ends: a sentence and exit code 3.
#[test]
fn i1_no_compiler_by_any_name() {
    if !is_absent("NVRTC no NVRTC is here") {
        return skipped("an NVRTC is here, and is found");
    }
    let scene = Scene::new();
    Driver::default().put_into(&scene);
    let absent = "no NVRTC is here, the compiler of the kernels: the loader finds no libnvrtc.so;";
    beside(&scene, RUN, &[])
        .exits_with(3)
        .prints_nothing()
        .remarks(absent);
}

/// Known fault I2: cuBLAS too has CUDA 13's name, and CUDA 12's.
#[test]
fn i2_a_cublas_by_each_of_its_names() {
    if !is_absent("the loader finds no libcublas.so") {
        return skipped("a cuBLAS is here, and may be found instead");
    }
    for name in ["libcublas.so.12", "libcublas.so.13"] {
        let scene = Scene::new();
        let all = [
            "Create_v2",
            "Destroy_v2",
            "GemmEx",
            "GetVersion_v2",
            "SetStream_v2",
        ];
        let text = all.map(|name| function(&format!("cublas{name}"), "", "0"));
        library(&scene, name, &(text.concat() + FAILS));
        says(
            &doctor(&scene, "", &[]),
            &["cuBLAS is here, for the cublas-*"],
        );
    }
}

/// A library that the loader finds and that would end the process, or keep it waiting for ever, if it were loaded: one
/// that ends early, as a download that broke off does, and a pipe.
#[test]
fn what_the_loader_finds_has_to_be_whole() {
    let (scene, place) = (Scene::new(), Scene::new());
    Driver::default().put_into(&place);
    let names = ["libcuda.so", "libcuda.so.1"].map(|name| place.path(name));
    let folder = place.path("");
    let env = [("LD_LIBRARY_PATH", folder.to_str().unwrap())];
    let refused = |reason: &str| {
        let first = names[0].display();
        scene
            .ulpdrift_with(RUN, &env)
            .exits_with(3)
            .prints_nothing()
            .remarks(&format!(
                "the NVIDIA driver does not load ({first}: {reason}); reinstall the driver, or use --backend emulate\n"
            ));
    };
    let whole = fs::read(&names[0]).unwrap();
    let (half, all) = (whole.len() / 2, whole.len());
    for name in &names {
        fs::write(name, &whole[..half]).unwrap();
    }
    refused(&format!("it ends after {half} bytes, {all} expected"));
    for name in &names {
        fs::remove_file(name).unwrap();
        let made = Command::new("mkfifo").arg(name).status();
        assert!(made.unwrap().success());
    }
    refused("it is no regular file");
}

/// Known fault I7: a compiler older than the device.
#[test]
fn i7_a_compiler_older_than_the_device() {
    for (version, archs, capability, sentence) in [
        (
            (11, 2),
            &[52, 80, 86][..],
            (8, 9),
            "NVRTC 11.2 does not compile for sm_89: it knows sm_52, sm_80, sm_86; name another version by --nvrtc",
        ),
        (
            (12, 4),
            &[80, 89, 90],
            (12, 0),
            "NVRTC 12.4 does not compile for sm_120: it knows sm_80, sm_89, sm_90; name another version",
        ),
        (
            (12, 8),
            &[90, 100, 120],
            (12, 1),
            "NVRTC 12.8 does not compile for sm_121: it knows sm_90, sm_100, sm_120; name another version",
        ),
    ] {
        let scene = Scene::new();
        let driver = Driver {
            capability,
            ..Driver::default()
        };
        driver.put_into(&scene);
        compiler(&scene, "libnvrtc.so.12", version, archs);
        let flags = "--nvrtc libnvrtc.so.12";
        says(
            &doctor(&scene, flags, &[]),
            &[sentence, "run uses the emulator"],
        );
        beside(&scene, &format!("{RUN} {flags}"), &[])
            .exits_with(3)
            .prints_nothing()
            .remarks(sentence);
    }
}

/// A driver that works until a module is loaded, and tells machine code from PTX: `CUDA_ERROR_NO_BINARY_FOR_GPU` and
/// `CUDA_ERROR_UNSUPPORTED_PTX_VERSION`.
const LOADER: &[(&str, &str, &str)] = &[
    (
        "cuDevicePrimaryCtxRetain",
        "to: *mut usize, _: i32",
        "unsafe { *to = 1 }; 0",
    ),
    ("cuDevicePrimaryCtxRelease_v2", "", "0"),
    ("cuCtxGetCurrent", "to: *mut usize", "unsafe { *to = 1 }; 0"),
    ("cuCtxSetCurrent", "", "0"),
    ("cuStreamCreate", "to: *mut usize", "unsafe { *to = 2 }; 0"),
    ("cuStreamDestroy_v2", "", "0"),
    ("cuStreamSynchronize", "", "0"),
    (
        "cuMemAlloc_v2",
        "to: *mut usize",
        "unsafe { *to = 4096 }; 0",
    ),
    ("cuMemFree_v2", "", "0"),
    ("cuMemcpyHtoDAsync_v2", "", "0"),
    ("cuMemsetD8Async", "", "0"),
    (
        "cuGetErrorString",
        "_: i32, to: *mut *const u8",
        "unsafe { *to = b\"what the stub says\\0\".as_ptr() }; 0",
    ),
    (
        "cuModuleLoadData",
        "_: usize, image: *const u8",
        "if unsafe { std::slice::from_raw_parts(image, 4) } == b\"\\x7fELF\" { 209 } else { 222 }",
    ),
];

/// Known faults I4, I6: what reaches the driver is machine code for the device's own arch, never PTX, whose version an
/// older driver would refuse.
#[test]
fn i4_i6_the_driver_gets_machine_code_and_no_ptx() {
    let Some(folder) = pinned_nvrtc() else { return };
    let scene = Scene::new();
    let driver = Driver {
        more: LOADER,
        ..Driver::default()
    };
    driver.put_into(&scene);
    let nvrtc = folder.join("libnvrtc.so.13");
    let line = format!("{RUN} --nvrtc '{}'", nvrtc.display());
    beside(&scene, &line, &[])
        .exits_with(3)
        .prints_nothing()
        .remarks("the CUDA device failed while loading ")
        .remarks(
            ": cuModuleLoadData returned error 209 (CUDA_ERROR_OF_THE_STUB: what the stub says)",
        );
}

/// Known fault I11: where no device is visible a device is missed, exit code 3, and nothing runs in its place; what
/// may choose says that the emulator runs, and its report too (I12).
#[test]
fn i11_i12_hidden_devices_are_missed_and_the_emulator_says_that_it_ran() {
    let scene = Scene::new();
    let driver = Driver {
        init: 100,
        ..Driver::default()
    };
    driver.put_into(&scene);
    let hidden = [("CUDA_VISIBLE_DEVICES", "")];
    let sentence = "finds no device, and CUDA_VISIBLE_DEVICES='' hides all that it does not list;";
    for flags in ["", "--crosscheck", "--time"] {
        beside(&scene, &format!("{RUN} {flags}"), &hidden)
            .exits_with(3)
            .prints_nothing()
            .remarks(sentence);
    }
    let auto = RUN.replace("--backend cuda", "--out out --format json");
    beside(&scene, &auto, &hidden)
        .exits_with(0)
        .remarks(sentence)
        .remarks("; the emulator runs")
        .prints(" · emulate sm_120 · ");
    let report = scene.json("out/report.json");
    assert_eq!(report["run"]["backend"]["name"], "emulate");
    let rows = report["records"].as_array().unwrap();
    assert!(!rows.is_empty());
    assert!(rows.iter().all(|row| row["backend"] == "emulate"));
}

/// Every test that tests/README.md names for a known fault is there, and each of its rows names one.
#[test]
fn the_table_of_known_faults_is_true() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap();
    let table = read("tests/README.md");
    let is_row = |line: &&str| {
        let name = line.strip_prefix("| ").unwrap_or_default();
        name.starts_with(char::is_uppercase) && name[1..].starts_with(|c: char| c.is_ascii_digit())
    };
    let mut seen = String::new();
    for line in table.lines().filter(is_row) {
        let cells: Vec<&str> = line.split('|').collect();
        let (rows, tests) = (cells[1].trim(), cells[3]);
        seen += &format!("{rows}, ");
        let mut named = 0;
        for place in tests.split(';') {
            let mut quoted = place.split('`').skip(1).step_by(2);
            let file = quoted.next().unwrap();
            let text = read(file);
            if !file.ends_with(".rs") {
                continue;
            }
            for test in quoted.take_while(|name| name.contains('_')) {
                named += 1;
                let head = format!("#[test]\nfn {test}(");
                let indented = format!("#[test]\n    fn {test}(");
                let is_there = text.contains(&head) || text.contains(&indented);
                assert!(is_there, "{file} has no test {test}");
            }
        }
        assert!(named > 0, "no test of {rows}");
    }
    let known = "D2, D4, D5, D7, I1, I2, I4, I6, I7, I9, I11, I12, A13, A15, F2, F3, F5, F7, F8, F10, F12, F13, \
        G2, G4, G5, G7, G9, H1, H3, H5, H6, H18, H8, H10, H11, H13, H15, H16, ";
    assert_eq!(seen, known);
}
