//! What an attack on the finished program found, so that it stays fixed.

use std::fs;

use crate::{
    checkpoints::{inputs, poke_nan},
    scene::Scene,
};

const BOUND: &str = "[[limit]]\nsuite = 'mix'\nstage = ['dot', 'mixes']\n\
    measure = 'bound_ratio'\nmax = 1\n";

/// One NaN weight leaves other rows within their bound; no limit on them may call the report good.
#[test]
fn a_gate_fails_on_a_broken_variant_whatever_its_limits_overlook() {
    let scene = Scene::new().file("limits.toml", BOUND);
    scene.ulpdrift("synth ckpt").exits_with(0);
    poke_nan(&scene, "ckpt", "layers.0.hc_attn_fn", 0);
    let run = "run ckpt --layers 0 --sites attn --variants fp32,bf16 --allow-nonfinite --out out";
    scene.ulpdrift(run).exits_with(1);
    let gate = "gate out/report.json --thresholds limits.toml";
    scene
        .ulpdrift(gate)
        .exits_with(1)
        .prints("FAIL  bf16 is broken");

    // Nor may a report that was stripped of what the run concluded.
    let mut report = scene.json("out/report.json");
    report["verdicts"] = serde_json::json!([]);
    scene.put("out/report.json", report.to_string());
    scene
        .ulpdrift(gate)
        .exits_with(1)
        .prints("FAIL  bf16 is broken");
}

#[test]
fn moved_verdict_limits_decide_the_gate() {
    let strict = format!("{BOUND}[verdict]\nbound_ratio = 1e-6\n");
    let scene = Scene::new().file("strict.toml", strict);
    let run = "run synthetic:tiny --layers 0 --sites attn --variants tf32 --out out";
    scene.ulpdrift(run).exits_with(0);
    scene
        .ulpdrift("gate out/report.json --thresholds strict.toml")
        .exits_with(1)
        .prints("FAIL  tf32 is structural");
}

/// The dumped file of a site could be the very checkpoint or recording that is measured.
#[test]
fn a_dump_replaces_no_tensors() {
    let recording = inputs(&["x"], 4, 256);
    let scene = Scene::new().file("dump/L0.attn.safetensors", &recording);
    scene
        .ulpdrift("run synthetic:tiny --inputs file:dump/L0.attn.safetensors --dump dump")
        .must_be_refused_saying(&[
            "--dump dump",
            "L0.attn.safetensors",
            "name another directory",
        ]);
    let kept = fs::read(scene.path("dump/L0.attn.safetensors")).unwrap();
    assert_eq!(kept, recording);
}

#[test]
fn recordings_without_tokens_are_refused() {
    let scene = Scene::new().file("none.safetensors", inputs(&["layers.0.attn.x"], 0, 256));
    for sweep in ["", " --sweep splits=1,2"] {
        scene
            .ulpdrift(&format!(
                "run synthetic:tiny --inputs file:none.safetensors{sweep}"
            ))
            .must_be_refused_saying(&["none.safetensors", "layers.0.attn.x"]);
    }
}

#[test]
fn a_batch_that_would_not_fit_in_memory_is_refused() {
    Scene::new()
        .ulpdrift("run synthetic:tiny --tokens 16385")
        .must_be_refused_saying(&["--tokens 16385", "16384", "--sweep tokens"]);
}

#[test]
fn files_without_an_end_are_refused() {
    let scene = Scene::new();
    for line in [
        "run synthetic:tiny --gate /dev/zero",
        "run synthetic:tiny --recipes /dev/zero",
    ] {
        scene
            .ulpdrift(line)
            .must_be_refused_saying(&["/dev/zero", "more than 16777216 bytes"]);
    }
}

#[test]
fn worker_threads_that_cannot_start_are_one_sentence() {
    // The first stack already does not fit, which leaves memory to say so: with many small ones, threads that
    // did start may need the last of it.
    Scene::new()
        .shell(
            "ulimit -v 1000000; RUST_MIN_STACK=100000000000 RAYON_NUM_THREADS=2 ulpdrift variants",
        )
        .must_be_refused_saying(&["worker threads", "RAYON_NUM_THREADS"]);
}

#[test]
fn a_number_of_threads_that_is_none_or_far_too_many_is_refused() {
    let scene = Scene::new();
    for threads in ["two", "-1", "1.5", "100000", "18446744073709551616"] {
        scene
            .shell(&format!("RAYON_NUM_THREADS='{threads}' ulpdrift variants"))
            .must_be_refused_saying(&["RAYON_NUM_THREADS", "expected 1 to", "unset"]);
    }
    for threads in ["", "0"] {
        scene
            .shell(&format!("RAYON_NUM_THREADS={threads} ulpdrift variants"))
            .exits_with(0);
    }
}

/// Its name would read as a flag in the command that reproduces a row.
#[test]
fn a_recipe_named_like_a_flag_is_refused() {
    let recipe = "[[mix]]\nname = '-x'\nsummary = 's'\n[mix.projection]\nunit = 'fma-f32'\n\
        weight = 'f32'\nsquare-sum = 'lanes4'\n\
        order = { chains = { splits = { count = { fixed = 1 } } } }\n";
    Scene::new()
        .file("r.toml", recipe)
        .ulpdrift("variants --recipes r.toml")
        .must_be_refused_saying(&["--recipes r.toml", "starts with a letter or digit"]);
}
