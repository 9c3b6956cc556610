//! Suite chain from the command line: what stands in for its sublayers, and what it begins with.

use crate::{
    checkpoints::{self, inputs, outputs},
    scene::Scene,
};

const CHAIN: &str = "--suite chain --variants fp32,tf32 --tokens 5";

/// Asserts that `run CHECKPOINT FLAGS` is refused, with folders for results asked for.
#[track_caller]
fn refused(scene: &Scene, checkpoint: &str, flags: &str, parts: &[&str]) {
    let line = format!("run {checkpoint} {flags} --out out --dump dump");
    scene.ulpdrift(&line).must_be_refused_saying(parts);
}

#[test]
fn a_shared_expert_stands_in_and_is_named() {
    let scene = Scene::new();
    let run = |checkpoint: &str, out: &str| {
        let flags = "--sublayer shared-expert --inputs embedding -v";
        let line = format!("run {checkpoint} {CHAIN} {flags} --out {out}");
        scene.ulpdrift(&line).exits_with(0).fits_80_columns();
        scene.json(&format!("{out}/report.json"))
    };
    let report = run("synthetic:tiny", "memory");
    for record in report["records"].as_array().unwrap() {
        assert_eq!(record["sublayer"], "shared-expert");
        assert_eq!(record["inputs"], "embedding");
    }
    scene.ulpdrift("synth ckpt --model tiny").exits_with(0);
    let written = run("ckpt", "disk");
    assert_eq!(written["records"], report["records"]);
    let digest = |report: &serde_json::Value| report["run"]["checkpoint"]["digest"].to_string();
    assert_eq!(digest(&written), digest(&report));
    let line = format!("run ckpt {CHAIN} --sublayer shared-expert --out other");
    scene.ulpdrift(&line).exits_with(0);
    let other = scene.json("other/report.json");
    assert_ne!(digest(&other), digest(&report), "without the embeddings");
}

#[test]
fn an_absent_or_broken_expert_is_one_sentence_before_anything_runs() {
    let scene = Scene::new();
    scene
        .ulpdrift("synth flash --model flash --layers 1")
        .exits_with(0);
    // Mix would run first, for a while.
    for suite in ["chain", "mix,chain"] {
        let flags = format!("--suite {suite} --sublayer shared-expert");
        let parts = [
            "--sublayer shared-expert",
            "'flash' lacks layers.0.ffn.shared_experts.w1.weight",
            "layer 0 ffn",
            "choose --sublayer rms-norm",
        ];
        refused(&scene, "flash", &flags, &parts);
    }
    scene.ulpdrift("synth ckpt --model tiny").exits_with(0);
    checkpoints::poke_nan(&scene, "ckpt", "layers.1.ffn.shared_experts.w3.weight", 6);
    let flags = format!("{CHAIN} --sublayer shared-expert");
    let parts = [
        "layers.1.ffn.shared_experts.w3.weight",
        "holds 1 non-finite values of 32768 (the first at index 27)",
        "layer 1 ffn",
        "--allow-nonfinite",
    ];
    refused(&scene, "ckpt", &flags, &parts);
    let allowed = format!("run ckpt {flags} --allow-nonfinite");
    let allowed = scene.ulpdrift(&allowed).exits_with(1);
    allowed.prints("fp32 is broken").prints("L1.ffn");
}

#[test]
fn recorded_outputs_stand_in() {
    let sites = ["layers.0.attn.f", "layers.0.ffn.f"];
    let more = ["layers.1.attn.f", "layers.1.ffn.f"];
    let all = [sites, more].concat();
    let scene = Scene::new()
        .file("x.safetensors", inputs(&["layers.0.attn.x"], 9, 256))
        .file("one.safetensors", outputs(&sites, 9, 256))
        .file("all.safetensors", outputs(&all, 9, 256))
        .file("few.safetensors", outputs(&all, 4, 256))
        .file("wide.safetensors", outputs(&all, 9, 512));
    let flags = |file: &str, layers: &str| {
        format!(
            "--suite chain --variants fp32 --sublayer file --inputs file:{file}.safetensors --layers {layers}"
        )
    };
    for (file, layers, tokens) in [("all", "0-1", 9), ("one", "0", 9)] {
        let line = format!("run synthetic:tiny {} --out {file}", flags(file, layers));
        scene.ulpdrift(&line).exits_with(0);
        let report = scene.json(&format!("{file}/report.json"));
        assert_eq!(report["records"][0]["tokens"], tokens);
        assert_eq!(report["records"][0]["sublayer"], "file");
    }
    for (file, parts) in [
        (
            "x",
            [
                "x.safetensors",
                "holds no \"layers.0.attn.f\"",
                "another --sublayer",
            ],
        ),
        (
            "one",
            [
                "one.safetensors",
                "holds no \"layers.1.attn.f\"",
                "record it",
            ],
        ),
        (
            "few",
            [
                "few.safetensors",
                "holds 4 tokens, 5 are asked for",
                "--tokens",
            ],
        ),
        (
            "wide",
            ["wide.safetensors", "[9, 512], expected [tokens, 256]", ""],
        ),
    ] {
        let flags = format!("{} --tokens 5", flags(file, "0-1"));
        refused(&scene, "synthetic:tiny", &flags, &parts);
    }
    let parts = ["--sublayer file", "inputs are normal", "--inputs file:PATH"];
    refused(
        &scene,
        "synthetic:tiny",
        &format!("{CHAIN} --sublayer file"),
        &parts,
    );
}

#[test]
fn embeddings_are_where_a_chain_begins_and_nowhere_else() {
    let scene = Scene::new();
    for flags in [
        "--inputs embedding",
        "--inputs embedding --suite mix,chain",
        "--inputs embedding --crosscheck",
        "--inputs embedding --sweep tokens=1,2",
    ] {
        let parts = [
            "--inputs embedding",
            "only suites chain and gains begin with them",
            "--suite chain",
        ];
        let line = format!("run synthetic:tiny {flags}");
        scene.ulpdrift(&line).must_be_refused_saying(&parts);
    }
    let flags = format!("{CHAIN} --inputs embedding --layers 1-2");
    refused(
        &scene,
        "synthetic:tiny",
        &flags,
        &["before layer 0, not before layer 1", "--layers"],
    );
    checkpoints::without_embedding(&scene, "bare.safetensors");
    let flags = format!("{CHAIN} --inputs embedding");
    let parts = [
        "'bare.safetensors' lacks embed.weight",
        "choose other --inputs",
    ];
    refused(&scene, "bare.safetensors", &flags, &parts);
}

#[test]
fn flags_of_the_chain_do_nothing_elsewhere() {
    let scene = Scene::new();
    let parts = ["--sublayer", "suites chain", "add --suite chain"];
    let flags = "--suite mix --sublayer shared-expert";
    refused(&scene, "synthetic:tiny", flags, &parts);
    let parts = ["'moe'", "rms-norm, shared-expert, file"];
    refused(
        &scene,
        "synthetic:tiny",
        "--suite chain --sublayer moe",
        &parts,
    );
}
