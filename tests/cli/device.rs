//! What `run` can only do on a device: times and a library's products. Refused where no device can be meant,
//! exit code 3 where one is missing, never done in another way.

use ulpdrift::backend::cuda::{error::CudaError, probe};

use crate::{scene::Scene, stubs::skipped};

const TINY: &str = "run synthetic:tiny --tokens 3 --layers 0 --sites attn";

#[test]
fn the_emulator_is_not_asked_for_what_only_a_device_can_do() {
    let scene = Scene::new();
    for (flags, what) in [
        ("--time", "with --time,"),
        ("--variants cublas-tf32", "with cublas-tf32,"),
        (
            "--variants 'fp32,cublas-b*' --time",
            "with --time, cublas-bf16,",
        ),
    ] {
        let line = format!("{TINY} --backend emulate {flags}");
        scene.ulpdrift(&line).must_be_refused_saying(&[
            "--backend emulate does not go ",
            what,
            "leave out the one or the other",
        ]);
    }
}

#[test]
fn flags_that_contradict_each_other_are_refused_whatever_is_here() {
    let scene = Scene::new();
    for (flags, parts) in [
        (
            "--time --crosscheck",
            ["--time does not go with --crosscheck", "drop one"],
        ),
        (
            "--suite needle --crosscheck",
            ["--suite needle does not go with --crosscheck", "drop one"],
        ),
        (
            "--suite indexer --sweep tokens=1,2",
            ["--suite indexer does not go with --sweep", "drop one"],
        ),
        (
            "--time --sweep tokens=1,2",
            ["--time does not go with --sweep", "drop one"],
        ),
        (
            "--sweep tokens=1 --variants fp32,cublas-tf32",
            [
                "--sweep does not go with cublas-tf32",
                "name other variants",
            ],
        ),
        (
            "--crosscheck --variants 'cublas-*'",
            [
                "--crosscheck: cublas-fp32-pedantic, cublas-tf32, cublas-bf16 can be measured",
                "name other variants",
            ],
        ),
        (
            "--variants cublas",
            ["variant 'cublas' matches no recipe", "lists them"],
        ),
        (
            "--against cublas-tf32",
            ["--against cublas-tf32", "no recipe to compare with"],
        ),
    ] {
        scene
            .ulpdrift(&format!("{TINY} {flags}"))
            .must_be_refused_saying(&parts);
    }
    let recipe = r#"
        [[mix]]
        name = "cublas-tf32"
        summary = "mine"
        [mix.projection]
        unit = "fma-f32"
        weight = "f32"
        square-sum = "chains"
        order = { chains = { splits = { count = { fixed = 8 } } } }
    "#;
    let scene = scene.file("mine.toml", recipe);
    scene
        .ulpdrift(&format!("{TINY} --recipes mine.toml"))
        .must_be_refused_saying(&["recipe 'cublas-tf32' is already defined"]);
    let env = [("ULPDRIFT_CACHE", "on")];
    scene
        .ulpdrift_with(TINY, &env)
        .must_be_refused_saying(&["ULPDRIFT_CACHE: 'on' found, expected off"]);
}

#[test]
fn without_a_driver_a_device_is_missed() {
    if !matches!(probe::probe(), Err(CudaError::NoDriver { .. })) {
        return skipped("a driver is here");
    }
    let scene = Scene::new();
    for flags in [
        "--time",
        "--time --backend cuda",
        "--variants cublas-bf16",
        "--variants '*,cublas-*'",
    ] {
        scene
            .ulpdrift(&format!("{TINY} {flags}"))
            .exits_with(3)
            .prints_nothing()
            .remarks("error: no NVIDIA driver is here: the loader finds no libcuda.so.1; install the driver\n");
    }
    // Where the emulator would do, it is named.
    scene
        .ulpdrift(&format!("{TINY} --backend cuda"))
        .exits_with(3)
        .remarks("; install the driver, or use --backend emulate\n");
    for (flags, remark) in [
        (
            "--device 0",
            "--device not used: no NVIDIA driver is here: ",
        ),
        (
            "--nvrtc x.so",
            "--nvrtc not used: no NVIDIA driver is here: ",
        ),
        (
            "--nvrtc x.so --device 2 --backend emulate",
            "--device, --nvrtc not used: the emulator takes no device; the emulator runs",
        ),
        (
            "--device 2 --arch sm_90",
            "--device not used: --arch names what is emulated; the emulator runs",
        ),
    ] {
        let line = format!("{TINY} --variants fp32 {flags}");
        scene.ulpdrift(&line).exits_with(0).remarks(remark);
        let quiet = scene.ulpdrift(&format!("{line} --quiet"));
        quiet.exits_with(0).remarks_nothing();
    }
    // A pattern that matches recipes as well is content with them.
    let all = scene
        .ulpdrift(&format!("{TINY} --variants '*fp32*'"))
        .exits_with(0);
    assert!(!all.stdout.contains("cublas"), "{all}");
}

#[test]
fn products_are_explained_like_variants() {
    let scene = Scene::new();
    scene
        .ulpdrift("variants cublas-tf32")
        .exits_with(0)
        .fits_80_columns()
        .prints("cublas-tf32: fp32 x and weight, which the library may round to TF32")
        .prints("CUBLAS_COMPUTE_32F_FAST_TF32");
    let both = scene.ulpdrift("variants '*bf16'").exits_with(0);
    let both = both.prints("bf16: bf16 x and weight, fp32 result\n");
    both.prints("\ncublas-bf16: ");
}

/// On a machine with a device: a time and a share for every variant, recipe or not.
#[test]
fn a_device_takes_time() {
    if !probe::probe().is_ok_and(|driver| driver.devices[0].arch().is_ok()) {
        return skipped("no device");
    }
    let scene = Scene::new();
    let flags = "--time --variants fp32,tf32 --out out --format json";
    let run = scene.ulpdrift(&format!("{TINY} {flags}")).exits_with(0);
    run.prints("GB/s verdict").prints("Timed once");
    let report = scene.json("out/report.json");
    assert!(report["timing"]["copy_gb_per_s"].as_f64().unwrap() > 0.0);
    assert!(report["compiled"]["finish.cu"].is_array(), "{report}");
    let rows = report["records"].as_array().unwrap();
    let timed = rows.iter().filter(|row| row["stage"] == "dot");
    let times: Vec<f64> = timed.map(|row| row["time_us"].as_f64().unwrap()).collect();
    assert_eq!(times.len(), 2);
    assert!(times.iter().all(|&time| time > 0.0), "{times:?}");
}

/// On a machine with a device and cuBLAS.
#[test]
fn a_device_measures_its_library() {
    if !probe::probe().is_ok_and(|driver| driver.devices[0].arch().is_ok()) {
        return skipped("no device");
    }
    if probe::cublas().is_err() {
        return skipped("no cuBLAS");
    }
    let scene = Scene::new();
    let flags = "--variants 'cublas-*' --out out --format json";
    scene.ulpdrift(&format!("{TINY} {flags}")).exits_with(0);
    let report = scene.json("out/report.json");
    let probed = &report["run"]["backend"]["probed"];
    let as_handed_over = "takes its fp32 operands as handed over";
    assert_eq!(probed["cublas-fp32-pedantic"], as_handed_over);
    assert_eq!(
        probed["cublas-bf16"],
        "takes its bf16 operands as handed over"
    );
    assert!(probed["cublas-tf32"].is_string(), "{probed}");
}
