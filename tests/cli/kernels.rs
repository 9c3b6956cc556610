//! `run --kernels`: a user's own kernels, and wrong ones among them.

#[path = "../../examples/common/wrong_kernels.rs"]
mod wrong_kernels;

use std::{collections::BTreeMap, fs};

use ulpdrift::{
    backend::cuda::{
        device,
        nvrtc::Nvrtc,
        options::{self, Build, Shape, Stored, Target},
        probe,
        source::Sources,
    },
    recipe::{catalogue::builtin, splits::Launch},
    tensor_core::Arch,
};

use crate::{
    scene::{BINARY, Scene},
    stubs::{pinned_nvrtc, skipped},
};
use wrong_kernels::{Tool, WrongKernel};

/// What the variant of a wrong kernel is compiled to on an H200.
fn builds(wrong: &WrongKernel) -> Vec<Build> {
    let mut all = builtin().into_iter();
    let recipe = all.find(|recipe| recipe.name == wrong.variant);
    let recipe = recipe.expect("a variant of the catalogue");
    let target = Target {
        arch: Arch::Sm90,
        sms: 132,
        may_finish: true,
    };
    let launch = Launch {
        tokens: wrong.tokens,
        sms: 132,
    };
    let sizes = (wrong.tokens, 24, 16384);
    let shape = Shape::new(&recipe.projection, sizes, launch, Stored::Bf16, target);
    let stores = (recipe.output, recipe.scaled);
    let project = options::projection(&recipe.projection, stores, &shape);
    let pack = options::pack(&recipe.projection, &shape);
    let finish = options::finish(&recipe.projection, stores, &shape);
    let mut builds = vec![options::rms(&recipe.projection, &shape).0, project.build];
    builds.extend((!project.is_whole).then_some(finish));
    builds.extend(pack.map(|(build, _)| build));
    builds
}

/// The instructions of some builds; places in the source apart.
fn instructions(nvrtc: &Nvrtc, sources: &Sources, builds: &[Build]) -> Vec<String> {
    let compile = |build| {
        let compiled = device::compile(nvrtc, sources, build, "sm_90").expect("compiles");
        let lines = compiled.ptx.lines().map(str::trim);
        let is_instruction = |line: &&str| line.ends_with(';');
        lines.filter(is_instruction).collect::<Vec<_>>().join("\n")
    };
    builds.iter().map(compile).collect()
}

/// Without a device: each text is there to be replaced, and what takes its place compiles to another program of the
/// variant that is to show it.
#[test]
fn wrong_kernels_are_programs_of_their_own() {
    let Some(folder) = pinned_nvrtc() else { return };
    let nvrtc = Nvrtc::open(Some(&folder.join("libnvrtc.so.13"))).unwrap();
    for wrong in wrong_kernels::all().unwrap() {
        let builds = builds(&wrong);
        let replaced = BTreeMap::from([(wrong.file.clone(), wrong.text().unwrap())]);
        let right = instructions(&nvrtc, &Sources::default(), &builds);
        assert!(right.iter().all(|program| !program.is_empty()));
        let wrong_ones = instructions(&nvrtc, &Sources::with(replaced), &builds);
        assert!(right != wrong_ones, "{}, {}", wrong.name, wrong.what);
    }
}

/// On a machine with a device.
#[test]
fn wrong_kernels_are_noticed_and_right_ones_accepted() {
    if !probe::probe().is_ok_and(|driver| driver.devices[0].arch().is_ok()) {
        return skipped("no device");
    }
    let nvrtc = pinned_nvrtc().map(|folder| folder.join("libnvrtc.so.13"));
    let tool = Tool {
        binary: BINARY.into(),
        nvrtc,
    };
    for wrong in wrong_kernels::all().unwrap() {
        wrong.check(&tool).unwrap();
    }
}

/// Whatever stands in the folder is measured or refused: a kernel that is not would be taken for ours.
#[test]
fn a_file_that_would_not_be_measured_is_refused() {
    let scene = Scene::new();
    let elsewhere = tempfile::tempdir().unwrap();
    let folder = elsewhere.path();
    let line = format!("run synthetic:tiny --kernels {}", folder.display());
    let refused = |parts: &[&str]| scene.ulpdrift(&line).must_be_refused_saying(parts);
    refused(&["none of", "finish.cu"]);
    for name in ["rmss.cu", "convert.cu", "mma_tiles.cu"] {
        fs::write(folder.join(name), "").unwrap();
        refused(&["a run has no file of kernels", name]);
        fs::remove_file(folder.join(name)).unwrap();
    }
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("nowhere", folder.join("rms.cu")).unwrap();
        refused(&["rms.cu is no regular file"]);
        fs::remove_file(folder.join("rms.cu")).unwrap();
        let fifo = std::process::Command::new("mkfifo")
            .arg(folder.join("rms.cu"))
            .status();
        assert!(fifo.unwrap().success());
        refused(&["rms.cu is no regular file"]);
    }
    scene
        .ulpdrift("run synthetic:tiny --kernels absent")
        .must_be_refused_saying(&["--kernels absent: "]);
}

/// Set to nothing is not set.
#[test]
fn an_empty_variable_leaves_the_cache_where_it_is() {
    let scene = Scene::new();
    let line = "run synthetic:tiny --layers 0 --tokens 1 --variants fp32";
    scene
        .ulpdrift_with(line, &[("ULPDRIFT_CACHE", "")])
        .exits_with(0);
}
