//! Everything that can be wrong with a command line or with what it names: exit code 2, one
//! sentence, nothing written.

use crate::{checkpoints, scene::Scene};

const TINY: &str = "synthetic:tiny";

/// Asserts that `run synthetic:tiny FLAGS` is refused, with a folder for results asked for.
#[track_caller]
pub fn refused(scene: &Scene, flags: &str, parts: &[&str]) {
    let line = format!("run {TINY} --layers 0 --variants fp32 {flags} --out out");
    scene.ulpdrift(&line).must_be_refused_saying(parts);
}

#[test]
fn what_is_no_checkpoint_is_refused() {
    let scene = Scene::new()
        .folder("empty")
        .file("notes/readme.txt", "hello")
        .file(
            "text.safetensors",
            "this is a text, long enough to have a length",
        )
        .file("short.safetensors", "short")
        .file("none.safetensors", checkpoints::without_hyper_connections())
        .file("new\nline/readme.txt", "");
    let expected = "a directory with model.safetensors.index.json";
    for (name, parts) in [
        (
            "empty",
            [
                "'empty' is not a checkpoint",
                "the directory is empty",
                expected,
            ],
        ),
        (
            "notes",
            ["'notes' is not a checkpoint", "holds no weights", expected],
        ),
        (
            "absent",
            [
                "'absent' is not a checkpoint",
                "no such file or directory",
                expected,
            ],
        ),
        (
            "'new\nline'",
            ["is not a checkpoint", "holds no weights", expected],
        ),
        (
            "text.safetensors",
            ["'text.safetensors'", "not a safetensors file", ""],
        ),
        (
            "short.safetensors",
            ["'short.safetensors'", "5 bytes", "download"],
        ),
        (
            "none.safetensors",
            [
                "'none.safetensors' has no hyper-connection tensors",
                "2 tensors",
                "",
            ],
        ),
        (
            "synthetic:huge",
            ["synthetic model 'huge'", "flash, pro, v4.1 and tiny", ""],
        ),
    ] {
        for out in ["", "--out out", "--dump dump"] {
            let line = format!("run {name} {out}");
            scene.ulpdrift(&line).must_be_refused_saying(&parts);
        }
        scene
            .ulpdrift(&format!("inspect {name}"))
            .must_be_refused_saying(&parts);
    }
}

#[test]
fn layers_sites_and_tokens_that_do_not_exist_are_refused() {
    let scene = Scene::new();
    let run = |flags: &str, parts: &[&str]| {
        let line = format!("run {TINY} {flags} --out out --dump dump");
        scene.ulpdrift(&line).must_be_refused_saying(parts);
    };
    run(
        "--layers 99",
        &["--layers 99", "not there", "layers 0-3", "choose"],
    );
    run("--layers 0-4", &["--layers 0-4", "layer 4", "layers 0-3"]);
    for bad in ["x", "3-1", "''", "0,,1", "1.5", "-1", "0x1"] {
        run(
            &format!("--layers {bad}"),
            &["--layers '", "expected all, a number or"],
        );
    }
    run("--sites mlp", &["--sites", "'mlp'", "attn, ffn"]);
    run("--sites ''", &["--sites", "attn, ffn"]);
    run("--tokens 0", &["--tokens 0", "expected 1 to"]);
    run("--tokens 99999999", &["--tokens 99999999", "expected 1 to"]);
    for bad in ["-1", "1e3", "many", "99999999999999999999"] {
        let parts = [
            bad,
            "--tokens <N>",
            "expected a whole number",
            "ulpdrift run --help",
        ];
        run(&format!("--tokens {bad}"), &parts);
    }
    run(
        "--seed -1",
        &["'-1'", "--seed <SEED>", "expected a whole number"],
    );
}

#[test]
fn variants_and_recipes_that_do_not_exist_are_refused() {
    let scene = Scene::new()
        .file("broken.toml", "[[mix]]\nname = \"a\"\n[[mix")
        .file("unknown.toml", "[[mix]]\nname = \"a\"\nspeed = 3")
        .file("empty.toml", "")
        .file("binary.toml", [0xff, 0xfe, 0x00]);
    let run = |flags: &str, parts: &[&str]| {
        let line = format!("run {TINY} {flags} --out out");
        scene.ulpdrift(&line).must_be_refused_saying(parts);
    };
    run(
        "--variants tf33",
        &["--variants", "'tf33'", "`ulpdrift variants`"],
    );
    run("--variants fp32,", &["--variants", "''"]);
    run(
        "--against nothing",
        &["--against", "'nothing'", "`ulpdrift variants`"],
    );
    run(
        "--suite mix --against 'bf16*'",
        &["--against 'bf16*'", "6 variants", "exactly one"],
    );
    run(
        "--recipes absent.toml",
        &["--recipes absent.toml", "No such file", "check the path"],
    );
    run(
        "--recipes broken.toml",
        &["--recipes broken.toml", "line 3"],
    );
    run(
        "--recipes unknown.toml",
        &["--recipes unknown.toml", "line 3", "`speed`"],
    );
    run(
        "--recipes empty.toml",
        &["--recipes empty.toml", "[[mix]]", "at least one"],
    );
    run("--recipes binary.toml", &["--recipes binary.toml", "UTF-8"]);
    scene
        .ulpdrift("variants tf33")
        .must_be_refused_saying(&["'tf33'"]);
    let line = "variants --recipes broken.toml";
    scene
        .ulpdrift(line)
        .must_be_refused_saying(&["--recipes broken.toml", "line 3"]);
}

#[test]
fn inputs_that_do_not_exist_or_do_not_fit_are_refused() {
    let scene = Scene::new()
        .file("empty.safetensors", "")
        .file(
            "other.safetensors",
            checkpoints::without_hyper_connections(),
        )
        .file(
            "x.safetensors",
            checkpoints::inputs(&["layers.0.attn.x", "layers.1.attn.x"], 5, 256),
        )
        .file("wide.safetensors", checkpoints::inputs(&["x"], 5, 512));
    let run = |inputs: &str, parts: &[&str]| {
        let line = format!("run {TINY} --inputs {inputs} --out out --dump dump");
        scene.ulpdrift(&line).must_be_refused_saying(parts);
    };
    for bad in [
        "scaled:0",
        "scaled:nan",
        "scaled:inf",
        "scaled:-1",
        "scaled:",
        "scaled:8e4",
    ] {
        run(bad, &["--inputs", bad, "1e-3 to 7e4"]);
    }
    for bad in ["uniform", "file:", "''", "Normal"] {
        run(
            bad,
            &[
                "--inputs",
                "there are no inputs",
                "choose normal, outlier, copies",
            ],
        );
    }
    run(
        "file:absent",
        &["--inputs", "'absent'", "does not exist", "check the path"],
    );
    run(
        "file:empty.safetensors",
        &["--inputs", "empty.safetensors", "it is empty"],
    );
    run(
        "file:other.safetensors",
        &["--inputs", "other.safetensors", "layers.N.attn.x"],
    );
    run(
        "file:wide.safetensors",
        &["--inputs", "[5, 4, 512]", "[tokens, 4, 256]"],
    );
    let parts = [
        "layers.0.attn.x",
        "x.safetensors",
        "5 tokens",
        "6 are asked for",
        "--tokens",
    ];
    run("file:x.safetensors --tokens 6", &parts);
    run(
        "file:x.safetensors --layers 2-3",
        &["has no x for any of the 4 sites", "--layers"],
    );
    let sweep = format!("run {TINY} --inputs file:x.safetensors --sweep tokens=1,6 --out out");
    scene
        .ulpdrift(&sweep)
        .must_be_refused_saying(&["5 tokens", "6 are asked for"]);
}

#[test]
fn a_sweep_over_recorded_inputs_takes_the_tokens_that_are_there() {
    let scene = Scene::new().file("x.safetensors", checkpoints::inputs(&["x"], 5, 256));
    let line = format!("run {TINY} --inputs file:x.safetensors --sweep splits=1,4 --variants tf32");
    scene.ulpdrift(&line).exits_with(0).prints("5 tokens");
}

#[test]
fn devices_and_sweeps_that_do_not_exist_are_refused() {
    let scene = Scene::new();
    refused(
        &scene,
        "--arch sm_75",
        &["--arch", "'sm_75'", "sm_80, sm_86"],
    );
    refused(&scene, "--sms 0", &["--sms: 0 found"]);
    refused(
        &scene,
        "--sms 132,188",
        &["--sms: 2 values", "--sweep tokens="],
    );
    refused(
        &scene,
        "--sms 132,188 --sweep splits=1",
        &["--sms: 2 values"],
    );
    refused(
        &scene,
        "--sms many",
        &["--sms <N>", "'many'", "expected a whole number"],
    );
    for bad in [
        "tokens",
        "tokens=",
        "tokens=0",
        "tokens=1,1",
        "splits=x",
        "k=1",
        "=",
        "",
    ] {
        refused(&scene, &format!("--sweep '{bad}'"), &["--sweep"]);
    }
    refused(
        &scene,
        "--sweep tokens=1 --dump dump",
        &["--dump", "--sweep", "drop one"],
    );
    refused(
        &scene,
        "--suite chian",
        &["'chian'", "--suite <SUITES>", "mix"],
    );
    refused(
        &scene,
        "--backend gpu",
        &["'gpu'", "--backend", "auto, emulate"],
    );
    let line = format!("run {TINY}");
    for level in ["foo", "", "AVX2"] {
        let said = ["ULPDRIFT_SIMD", "portable, avx2, avx512"];
        let env = [("ULPDRIFT_SIMD", level)];
        scene
            .ulpdrift_with(&line, &env)
            .must_be_refused_saying(&said);
        let verify = "mma verify file.safetensors";
        scene
            .ulpdrift_with(verify, &env)
            .must_be_refused_saying(&said);
    }
}

#[test]
fn outputs_that_cannot_be_written_are_refused_before_anything_is_measured() {
    let scene = Scene::new()
        .file("file", "in the way")
        .folder("taken/report.csv");
    let run = |flags: &str, parts: &[&str]| {
        // All of a large model: a test that had to wait for it would not pass.
        scene
            .ulpdrift(&format!("run {flags}"))
            .must_be_refused_saying(parts);
    };
    run("--out file", &["--out", "file", "name another"]);
    run(
        "--out file/below",
        &["--out", "file/below", "Not a directory"],
    );
    run(
        "--out new/deep --dump file",
        &["--dump", "file", "name another"],
    );
    run(
        "--out taken",
        &["--out", "taken/report.csv is a folder", "move it away"],
    );
    run("--out /proc/ulpdrift", &["--out", "/proc/ulpdrift"]);
    run(
        "--dump file/below",
        &["--dump", "file/below", "Not a directory"],
    );
    run("--dump /proc/ulpdrift", &["--dump", "/proc/ulpdrift"]);
    run(
        "--format csv,json",
        &["--format", "2 formats without --out"],
    );
    run(
        "--format xml --out out",
        &["'xml'", "--format", "csv, json"],
    );
}

#[test]
fn usage_errors_are_one_sentence_too() {
    let scene = Scene::new();
    for (line, parts) in [
        ("inspekt x", ["'inspekt'", "'inspect'", "`ulpdrift --help`"]),
        (
            "run --frobnicate",
            ["'--frobnicate'", "unexpected", "`ulpdrift run --help`"],
        ),
        ("run a b", ["'b'", "unexpected", "`ulpdrift run --help`"]),
        (
            "run --seed",
            [
                "--seed <SEED>",
                "a value is required",
                "`ulpdrift run --help`",
            ],
        ),
        (
            "run --seed 1 --seed 2",
            ["--seed", "multiple times", "`ulpdrift run --help`"],
        ),
        (
            "inspect",
            ["<CHECKPOINT>", "required", "`ulpdrift inspect --help`"],
        ),
        ("gate", ["<REPORT>", "required", "`ulpdrift gate --help`"]),
        (
            "mma verify",
            ["<FILE>", "required", "`ulpdrift mma verify --help`"],
        ),
        (
            "synth d --model v5",
            [
                "'v5'",
                "flash, pro, v4.1 and tiny",
                "`ulpdrift synth --help`",
            ],
        ),
    ] {
        scene.ulpdrift(line).must_be_refused_saying(&parts);
    }
}

#[test]
fn nothing_asked_for_is_answered_with_help_and_code_2() {
    let scene = Scene::new();
    for line in ["", "mma"] {
        let outcome = scene.ulpdrift(line).exits_with(2).prints_nothing();
        outcome.remarks("Usage: ulpdrift");
    }
}

#[test]
fn tensors_are_not_dumped_among_the_weights() {
    let scene = Scene::new();
    scene.ulpdrift("synth ckpt --layers 2").exits_with(0);
    for line in [
        "run ckpt --dump ckpt",
        "run ckpt/ --out out --resume --dump ./ckpt",
    ] {
        scene.ulpdrift(line).must_be_refused_saying(&[
            "--dump",
            "the checkpoint's own folder",
            "another",
        ]);
    }
}

#[test]
fn a_non_finite_weight_is_refused_unless_allowed() {
    let scene = Scene::new();
    scene.ulpdrift("synth ckpt --layers 2").exits_with(0);
    checkpoints::poke_nan(&scene, "ckpt", "layers.1.hc_ffn_fn", 7);
    scene
        .ulpdrift("run ckpt --out out --dump dump")
        .must_be_refused_saying(&[
            "'layers.1.hc_ffn_fn'",
            "1 non-finite values of 24576",
            "index 7",
            "`ulpdrift inspect`",
            "--allow-nonfinite",
        ]);
    // A layer without it is none the worse.
    scene.ulpdrift("run ckpt --layers 0").exits_with(0);
    let allowed = scene.ulpdrift("run ckpt --allow-nonfinite --out out --variants fp32,tf32");
    let allowed = allowed.exits_with(1).fits_80_columns();
    allowed.prints("fp32 is broken").prints("tf32 is broken");
    let report = scene.json("out/report.json");
    assert_eq!(report["run"]["repeat_flags"][0], "--allow-nonfinite");
    // A sweep has no verdict and does not pass either.
    let sweep = "run ckpt --allow-nonfinite --sweep tokens=1 --layers 1 --sites ffn";
    scene.ulpdrift(sweep).exits_with(1);
    let shown = scene.ulpdrift("inspect ckpt --only hc").exits_with(0);
    shown.prints("non-finite: layers.1.hc_ffn_fn in model-");
}
