//! `mma verify` and `mma record` where no device is, or none that works: exit code 3, one sentence, no
//! file, and never the emulator in its place unasked.

use ulpdrift::{
    backend::cuda::{error::CudaError, probe},
    tensor_core::Arch,
};

use crate::{
    scene::{Outcome, Scene},
    stubs::{Driver, pinned_nvrtc, skipped},
};

const RECORD: &str = "mma record new.safetensors --instruction mma-bf16-k16";

fn fixture(name: &str) -> String {
    let root = env!("CARGO_MANIFEST_DIR");
    format!("{root}/fixtures/vectors/{name}.safetensors")
}

fn on_device(flags: &str) -> String {
    let file = fixture("h200_sm_90_bf16");
    format!("mma verify {file} --backend cuda {flags}")
}

/// Exit code 3, nothing on stdout, one sentence that holds the part, and no new file.
#[track_caller]
fn is_absent(scene: &Scene, outcome: Outcome<'_>, part: &str) {
    let outcome = outcome.exits_with(3).prints_nothing().remarks(part);
    assert_eq!(outcome.stderr.lines().count(), 1, "{outcome}");
    assert!(!scene.path("new.safetensors").exists(), "{outcome}");
}

/// Beside a driver that the loader finds in the scene.
fn beside<'a>(scene: &'a Scene, line: &str) -> Outcome<'a> {
    let folder = scene.path("");
    scene.ulpdrift_with(line, &[("LD_LIBRARY_PATH", folder.to_str().unwrap())])
}

#[test]
fn without_a_driver_a_device_is_missed_and_auto_emulates() {
    if !matches!(probe::probe(), Err(CudaError::NoDriver { .. })) {
        return skipped("a driver is here");
    }
    let scene = Scene::new();
    let sentence = "error: no NVIDIA driver is here: the loader finds no libcuda.so.1";
    for line in [&on_device(""), RECORD] {
        is_absent(&scene, scene.ulpdrift(line), sentence);
    }
    let file = fixture("h200_sm_90_wgmma_bf16");
    let auto = scene.ulpdrift(&format!("mma verify {file} --backend auto"));
    auto.exits_with(0)
        .remarks_nothing()
        .prints(", emulated as sm_90")
        .prints("0 of 98304 outputs differ");
    let named = format!("mma verify {file} --backend auto --device 1 --nvrtc x.so");
    scene
        .ulpdrift(&named)
        .exits_with(0)
        .remarks("--device, --nvrtc not used: no NVIDIA driver is here: ");
}

/// A flag that names a device is never passed over in silence.
#[test]
fn flags_that_name_nothing_are_told_so() {
    let scene = Scene::new();
    let file = fixture("model_sm_80_tf32");
    for (flags, remark) in [
        (
            "--device 0",
            "--device not used: the emulator takes no device; the emulator runs\n",
        ),
        (
            "--nvrtc x.so --backend auto --arch sm_80",
            "--nvrtc not used: --arch names what is emulated; the emulator runs\n",
        ),
    ] {
        let line = format!("mma verify {file} {flags}");
        let outcome = scene.ulpdrift(&line).exits_with(0);
        assert_eq!(outcome.stderr, remark);
    }
    // There is a device, and another one is asked for.
    Driver::default().put_into(&scene);
    let line = format!("mma verify {file} --backend auto --device 1");
    is_absent(
        &scene,
        beside(&scene, &line),
        "--device 1: there is only device 0",
    );
}

#[test]
fn a_driver_that_does_not_work_is_missed_and_auto_says_so() {
    let scene = Scene::new();
    let broken = Driver {
        init: 999,
        ..Driver::default()
    };
    broken.put_into(&scene);
    let sentence = "the NVIDIA driver does not work: cuInit returned error 999";
    // Only who can emulate is told to.
    let advice = "; check it with nvidia-smi";
    for (line, end) in [
        (
            on_device(""),
            format!("{advice}, or use --backend emulate\n"),
        ),
        (RECORD.to_owned(), format!("{advice}\n")),
    ] {
        is_absent(&scene, beside(&scene, &line).remarks(&end), sentence);
    }
    let auto = beside(
        &scene,
        &format!("mma verify {} --backend auto", fixture("model_sm_80_tf32")),
    );
    auto.exits_with(0)
        .remarks(sentence)
        .remarks("; the emulator runs")
        .prints(", emulated as sm_80");
}

#[test]
fn drivers_and_devices_that_are_no_use_have_their_sentences() {
    for (driver, part) in [
        (
            Driver {
                lacks: "cuLaunchKernelEx",
                ..Driver::default()
            },
            "has no function cuLaunchKernelEx",
        ),
        (
            Driver {
                count: 0,
                ..Driver::default()
            },
            "finds no device; make one visible",
        ),
        (
            Driver {
                version: 12040,
                ..Driver::default()
            },
            "is too old: it supports CUDA 12.4",
        ),
        (
            Driver {
                capability: (7, 5),
                ..Driver::default()
            },
            "has compute capability 7.5",
        ),
    ] {
        let scene = Scene::new();
        driver.put_into(&scene);
        for line in [&on_device(""), RECORD] {
            is_absent(&scene, beside(&scene, line), part);
        }
    }
}

#[test]
fn a_device_without_a_compiler_is_no_use() {
    let scene = Scene::new();
    Driver::default().put_into(&scene);
    let absent = "no NVRTC is here, the compiler of the kernels: 'absent.so' does not exist";
    for line in [
        on_device("--nvrtc absent.so"),
        format!("{RECORD} --nvrtc absent.so"),
    ] {
        is_absent(&scene, beside(&scene, &line), absent);
    }
    let line = on_device("--device 1 --nvrtc absent.so");
    let absent = "--device 1: there is only device 0";
    is_absent(&scene, beside(&scene, &line), absent);
}

/// A driver that answers the probe and fails at work.
#[test]
fn a_device_that_fails_at_work_leaves_no_file() {
    let Some(folder) = pinned_nvrtc() else { return };
    let scene = Scene::new();
    Driver::default().put_into(&scene);
    let nvrtc = format!("--nvrtc '{}'", folder.join("libnvrtc.so.13").display());
    let part = "the CUDA device failed while opening the device";
    for line in [on_device(&nvrtc), format!("{RECORD} {nvrtc}")] {
        is_absent(&scene, beside(&scene, &line), part);
    }
}

#[test]
fn wrong_flags_are_refused() {
    let scene = Scene::new();
    let record = |flags: &str, parts: &[&str]| {
        scene
            .ulpdrift(&format!("mma record new.safetensors {flags}"))
            .must_be_refused_saying(parts);
    };
    let help = "`ulpdrift mma record --help`";
    record("", &["--instruction <NAME>", help]);
    record(
        "--instruction wgmma",
        &["'wgmma'", "expected one of mma-tf32-k8", "cvt", help],
    );
    record(
        "--instruction cvt --seed -1",
        &["--seed", "expected a whole number", help],
    );
    record(
        "--instruction cvt --device x",
        &["--device", "expected a whole number", help],
    );
    scene
        .ulpdrift("mma record --instruction cvt")
        .must_be_refused_saying(&["<FILE>", help]);
    scene
        .ulpdrift(&format!(
            "mma verify {} --backend gpu",
            fixture("h200_sm_90_cvt")
        ))
        .must_be_refused_saying(&["'gpu'", "--backend", "auto, emulate, cuda"]);
}

/// On a machine with a device: what was just recorded is what the emulator computes, and the recordings
/// here are what the device computes.
#[test]
fn device_and_emulator_agree() {
    let driver = match probe::probe() {
        Ok(driver) if driver.devices[0].arch().is_ok() => driver,
        _ => return skipped("no device"),
    };
    let arch = driver.devices[0].arch().unwrap();
    let nvrtc = pinned_nvrtc().map_or_else(String::new, |folder| {
        format!("--nvrtc '{}'", folder.join("libnvrtc.so.13").display())
    });
    let scene = Scene::new();
    for name in [
        "tf32-k8", "tf32-k4", "bf16-k16", "bf16-k8", "f16-k16", "f16-k8",
    ] {
        let line = format!("mma record {name} --instruction mma-{name} --seed 3 {nvrtc}");
        scene
            .ulpdrift(&line)
            .exits_with(0)
            .prints("outputs recorded on ");
        let emulated = scene.ulpdrift(&format!("mma verify {name}")).exits_with(0);
        emulated.prints(&format!("emulated as {arch}"));
        let again = scene.ulpdrift(&format!("mma verify {name} --backend cuda {nvrtc}"));
        again.exits_with(0).prints(", run on ");
    }
    let all = fixture("h200_sm_90_*");
    let line = format!("ulpdrift mma verify {all} --backend cuda {nvrtc}");
    let outcome = scene.shell(&line).exits_with(0);
    if arch == Arch::Sm90 {
        outcome.prints("4 of 9 files skipped");
    }
}
