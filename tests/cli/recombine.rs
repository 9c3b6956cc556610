//! Suite recombine as a shell sees it: names, files, limits, and the command that a breach prints.

use serde_json::Value;

use crate::scene::Scene;

const RUN: &str = "run synthetic:tiny --layers 0-1 --tokens 9";

fn rows<'a>(report: &'a Value, suite: &str, variant: &str) -> Vec<&'a Value> {
    let rows = report["records"].as_array().unwrap().iter();
    rows.filter(|row| row["suite"] == suite && row["variant"] == variant)
        .collect()
}

#[test]
fn it_writes_rows_recipes_and_tensors() {
    let scene = Scene::new();
    scene
        .ulpdrift(&format!("{RUN} --suite recombine --out out --dump dump"))
        .exits_with(0)
        .fits_80_columns()
        .prints("Recombination after the sublayer")
        .prints("recombine transformers is noise");
    let report = scene.json("out/report.json");
    assert_eq!(report["records"].as_array().unwrap().len(), 4 * 4 * 2);
    let arithmetic = &report["recipes"]["recombine transformers"]["arithmetic"];
    assert_eq!(arithmetic["gates"], "bf16");
    let table = scene.read("out/report.csv");
    assert_eq!(table.lines().count(), 1 + 4 * 4 * 2);
    let dumps: Vec<String> = scene
        .files()
        .into_keys()
        .filter(|name| name.ends_with(".safetensors"))
        .collect();
    let last = "dump/recombine.L1.ffn.safetensors".to_owned();
    assert_eq!((dumps.len(), dumps.last()), (4, Some(&last)));
}

#[test]
fn every_suite_takes_the_names_that_it_knows() {
    let scene = Scene::new();
    let line = format!("{RUN} --suite mix,recombine --variants tf32,fp32,transformers --out out");
    scene
        .ulpdrift(&line)
        .exits_with(0)
        .prints("fp32 is exact: mixes")
        .prints("recombine fp32 is exact: streams");
    let report = scene.json("out/report.json");
    for (suite, variant, stages) in [
        ("mix", "tf32", 7),
        ("mix", "fp32", 7),
        ("mix", "transformers", 0),
        ("recombine", "tf32", 0),
        ("recombine", "fp32", 2),
        ("recombine", "transformers", 2),
    ] {
        let found = rows(&report, suite, variant).len();
        assert_eq!(found, 4 * stages, "{suite} {variant}");
    }
    assert_eq!(report["verdicts"].as_array().unwrap().len(), 4);
}

#[test]
fn names_and_flags_that_say_nothing_are_refused() {
    let scene = Scene::new().file("mine.toml", crate::gates::RECIPES);
    for (flags, parts) in [
        (
            "--suite recombine --variants tf32",
            [
                "suite recombine has no variant 'tf32'",
                "suites mix, chain, budget and gains have",
            ],
        ),
        (
            "--suite mix --variants transformers",
            [
                "suite mix has no variant 'transformers'",
                "suite recombine has",
            ],
        ),
        (
            "--suite mix,recombine --variants nosuch",
            ["suite mix, recombine has no variant 'nosuch'", "lists them"],
        ),
        (
            "--suite mix,recombine --variants tf32",
            [
                "none of these is a variant of suite recombine",
                "leave the suite out",
            ],
        ),
        (
            "--suite recombine --against tf32",
            [
                "--against: suite recombine has no variant 'tf32'",
                "lists them",
            ],
        ),
        (
            "--suite recombine --sweep tokens=1,2",
            ["--suite recombine does not go with --sweep", "drop one"],
        ),
        (
            "--suite recombine --crosscheck",
            [
                "--suite recombine does not go with --crosscheck",
                "drop one",
            ],
        ),
        (
            "--suite recombine --time",
            ["--time times what suite mix measures", "leave --time out"],
        ),
        (
            "--suite recombine --residual fp32",
            ["are of suites chain, budget and gains", "add --suite chain"],
        ),
        (
            "--suite recombine --recipes mine.toml",
            [
                "--recipes holds variants of the mixing kernel",
                "leave --recipes out",
            ],
        ),
    ] {
        scene
            .ulpdrift(&format!("{RUN} {flags} --out out"))
            .must_be_refused_saying(&parts);
    }
}

#[test]
fn a_limit_holds_it_and_its_command_reproduces_the_row() {
    let limit = |max: &str| {
        format!(
            "[[limit]]\nsuite = \"recombine\"\nstage = \"streams\"\nvariant = \"transformers\"\n\
             measure = \"rel_l2\"\nmax = {max}\n"
        )
    };
    let scene = Scene::new()
        .file("good.toml", limit("3e-3"))
        .file("tight.toml", limit("1e-5"));
    let run = format!("{RUN} --suite mix,recombine --against mul-add --out out");
    scene
        .ulpdrift(&format!("{run} --gate good.toml"))
        .exits_with(0);
    let failed = scene
        .ulpdrift(&format!("{run} --gate tight.toml"))
        .exits_with(1);
    let mut lines = failed.stdout.lines().map(str::trim_start);
    let command = lines
        .find_map(|line| line.strip_prefix("ulpdrift run"))
        .expect("a command");
    let named = "--suite recombine --variants transformers";
    assert!(command.contains(named), "{command}");
    assert!(command.ends_with("--against mul-add"), "{command}");
    let whole = scene.json("out/report.json");
    scene
        .ulpdrift(&format!("run {command} --out again"))
        .exits_with(0);
    let again = scene.json("again/report.json");
    let there = rows(&whole, "recombine", "transformers");
    let found = rows(&again, "recombine", "transformers");
    assert_eq!(found.len(), 2, "one site");
    for row in found {
        assert!(there.contains(&row), "{row}");
    }
    scene
        .ulpdrift("gate out/report.json --thresholds tight.toml")
        .exits_with(1)
        .prints("--suite recombine");
}

#[test]
fn the_same_bytes_whatever_the_machine_does_it_with() {
    let files = |env: &[(&str, &str)]| {
        let scene = Scene::new();
        let line = format!("{RUN} --suite recombine --inputs outlier --out out --dump dump");
        scene.ulpdrift_with(&line, env).exits_with(0);
        let dump = scene.files()["dump/recombine.L1.ffn.safetensors"].clone();
        (scene.read("out/report.csv"), dump)
    };
    let expected = files(&[]);
    for threads in ["1", "3"] {
        let env = [
            ("ULPDRIFT_SIMD", "portable"),
            ("RAYON_NUM_THREADS", threads),
        ];
        assert!(files(&env) == expected, "{threads} threads");
    }
}
