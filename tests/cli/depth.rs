//! Suites budget and gains, and known bugs, from the command line: tables, files, limits and what reproduces a row.

use serde_json::Value;

use crate::{
    gates::{assert_reproduced, commands},
    scene::Scene,
};

const RUN: &str = "run synthetic:tiny --suite budget,gains --variants bf16 --tokens 8";

#[test]
fn tables_and_columns() {
    let scene = Scene::new();
    scene
        .ulpdrift(&format!("{RUN} --out out"))
        .exits_with(0)
        .fits_80_columns()
        .prints("Budget: the error of each source alone")
        .prints("A variant at one site only")
        .prints("Plain gain");
    let table = scene.read("out/report.csv");
    let header: Vec<&str> = table.lines().next().expect("a header").split(',').collect();
    let filled = |name: &str| {
        let at = header.iter().position(|column| *column == name);
        let at = at.unwrap_or_else(|| panic!("no column {name}"));
        let cells = table.lines().skip(1).map(|line| line.split(',').nth(at));
        cells.filter(|cell| *cell != Some("")).count()
    };
    let rows = table.lines().count() - 1;
    assert_eq!(filled("rel_l2"), rows - filled("cross"));
    assert_eq!(filled("direction"), 2 * 4);
    assert_eq!(filled("gain"), 2 * 4);
    // Eight sites at five stages, and four depths.
    assert_eq!(filled("explained"), 8 * 5 + 4);
    assert_eq!(filled("source"), rows - 8 - 2 * 4);
    assert!(filled("share") > filled("explained") && filled("cross") > 0);
}

#[test]
fn each_suite_runs_alone_with_its_default_variants() {
    for (suite, table) in [("budget", "Budget:"), ("gains", "Plain gain")] {
        let line = format!("run synthetic:tiny --suite {suite} --tokens 2 --layers 0-1");
        let scene = Scene::new();
        let run = scene.ulpdrift(&line).exits_with(0).prints(table);
        assert!(run.stdout.contains("bf16-patch"), "{run}");
    }
}

#[test]
fn what_does_not_go_with_them_is_one_sentence() {
    let scene = Scene::new();
    for (flags, parts) in [
        (
            "--suite gains --layers 0,2",
            ["--layers 0,2", "suite gains", "without gaps"],
        ),
        (
            "--suite gains --sites attn",
            ["--sites attn", "suite gains", "both sites"],
        ),
        (
            "--suite budget --variants mul-add",
            ["suite budget", "'mul-add'", "suite recombine has"],
        ),
        (
            "--suite budget --variants cublas-*",
            ["suite budget alone", "cublas-*", "mix,budget"],
        ),
        (
            "--suite budget --sweep tokens=1",
            ["--suite budget", "--sweep", "drop one"],
        ),
        (
            "--suite gains --sublayer file",
            ["--sublayer file", "inputs are normal", "--inputs file:PATH"],
        ),
    ] {
        let line = format!("run synthetic:tiny {flags} --out out");
        scene.ulpdrift(&line).must_be_refused_saying(&parts);
    }
}

/// A limit that no row of some keeps.
fn limit(of: &str) -> String {
    format!("[[limit]]\n{of}\nmeasure = \"rel_l2\"\nmax = 0\n")
}

#[test]
fn commands_of_a_budget_reproduce_its_rows() {
    let around = "--residual fp32 --layer-io bf16 --layers 1-3 --seed 3 --against tf32 --sms 132";
    let flags = format!("synthetic:tiny --suite budget --variants bf16-patch --tokens 8 {around}");
    for of in [
        "stage = \"streams\"\nsource = \"weight\"",
        "stage = \"y_bf16\"\nsource = \"total\"\nsite = \"ffn\"",
    ] {
        assert_reproduced(&Scene::new(), &flags, &limit(of));
    }
}

#[test]
fn commands_of_gains_reproduce_their_rows() {
    let around = "--residual fp32 --layers 1-3 --seed 3 --against tf32 --sms 132";
    let flags = format!("synthetic:tiny --suite gains --variants bf16-patch --tokens 9 {around}");
    for of in [
        "variant = \"bf16-patch\"\nlayer = 2",
        "variant = \"perturbation\"\nlayer = 2",
    ] {
        assert_reproduced(&Scene::new(), &flags, &limit(of));
    }
}

/// Every kind of row at once, and the command of each.
#[test]
fn no_command_names_what_is_no_variant() {
    let scene = Scene::new().file("limit.toml", limit("tokens = 8"));
    let run = scene
        .ulpdrift(&format!("{RUN} --gate limit.toml --out out"))
        .exits_with(1);
    let commands = commands(&run);
    assert!(!commands.is_empty());
    for command in &commands {
        assert!(!command.contains("perturbation"), "{command}");
    }
}

#[test]
fn commands_of_known_bugs_reproduce_their_rows() {
    let flags = "synthetic:tiny --variants bf16 --tokens 5 --inputs scaled:1e-3 --against tf32";
    for (suite, fault, of) in [
        ("chain", "transposed-comb", "stage = \"streams\"\nlayer = 1"),
        ("mix", "eps-outside-root", "stage = \"mixes\"\nlayer = 1"),
    ] {
        let flags = format!("{flags} --suite {suite} --fault {fault}");
        let limit = limit(&format!("{of}\nfault = \"{fault}\""));
        let scene = Scene::new();
        assert_reproduced(&scene, &flags, &limit);
        let report: Value = scene.json("out/report.json");
        assert!(
            report["gates"][0]["breaches"]
                .as_array()
                .is_some_and(|all| all.len() == 2)
        );
    }
}

#[test]
fn a_known_bug_is_refused_where_it_cannot_be() {
    let scene = Scene::new();
    for (flags, parts) in [
        (
            "--fault eps-outside-root --against bf16-prenorm",
            vec!["--fault eps-outside-root", "compare with another"],
        ),
        (
            "--fault transposed-comb --sweep tokens=1,2",
            vec!["--fault", "--sweep"],
        ),
        (
            "--fault transposed-comb --suite budget",
            vec!["--fault", "add --suite mix,chain"],
        ),
        ("--fault upside-down", vec!["upside-down"]),
    ] {
        let line = format!("run synthetic:tiny --variants fp32 {flags} --out out");
        scene.ulpdrift(&line).must_be_refused_saying(&parts);
    }
}
