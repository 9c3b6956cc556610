//! What a person reads, on 80 columns.

use crate::scene::Scene;

#[test]
fn the_table_of_a_run() {
    let run = Scene::new()
        .ulpdrift("run synthetic:tiny")
        .exits_with(0)
        .fits_80_columns()
        .stdout;
    assert!(run.starts_with("SYNTHETIC weights"));
    insta::assert_snapshot!(run);
}

#[test]
fn a_verbose_run_has_a_row_per_stage() {
    let line = "run synthetic:tiny --layers 2 --sites attn --variants tf32,bf16-patch -v";
    let run = Scene::new()
        .ulpdrift(line)
        .exits_with(0)
        .fits_80_columns()
        .stdout;
    insta::assert_snapshot!(run);
}

#[test]
fn a_sweep_has_a_row_per_point() {
    let line = "run synthetic:tiny --sweep tokens=1,64,4096 --sms 132,188 --variants tf32,tf32-rz";
    let run = Scene::new()
        .ulpdrift(line)
        .exits_with(0)
        .fits_80_columns()
        .stdout;
    insta::assert_snapshot!(run);
}

#[test]
fn the_list_of_variants() {
    let scene = Scene::new();
    let list = scene
        .ulpdrift("variants")
        .exits_with(0)
        .fits_80_columns()
        .remarks_nothing();
    insta::assert_snapshot!(list.stdout);
}

#[test]
fn one_variant_step_by_step() {
    let scene = Scene::new();
    let steps = scene
        .ulpdrift("variants tf32-rz")
        .exits_with(0)
        .fits_80_columns();
    insta::assert_snapshot!(steps.stdout);
}

#[test]
fn every_variant_fits_80_columns() {
    Scene::new()
        .ulpdrift("variants '*'")
        .exits_with(0)
        .fits_80_columns()
        .prints("bf16x3: ")
        .prints("recombine transformers: ");
}

#[test]
fn what_a_checkpoint_holds() {
    let line = "inspect synthetic:tiny --only hc";
    let scene = Scene::new();
    let seen = scene
        .ulpdrift(line)
        .exits_with(0)
        .fits_80_columns()
        .remarks_nothing();
    insta::assert_snapshot!(seen.stdout);
}

#[test]
fn a_gate_that_fails() {
    let limits = "[[limit]]\nstage = \"mixes\"\nmeasure = \"rel_l2\"\nmax = 3e-4\n";
    let scene = Scene::new().file("limits.toml", limits);
    let run = "run synthetic:tiny --layers 0 --variants tf32,tf32-rz --out out";
    scene.ulpdrift(run).exits_with(0);
    let gate = scene
        .ulpdrift("gate out/report.json --thresholds limits.toml")
        .exits_with(1);
    insta::assert_snapshot!(gate.stdout);
}

#[test]
fn help_and_version_go_to_stdout() {
    let scene = Scene::new();
    for command in [
        "",
        "run",
        "inspect",
        "gate",
        "variants",
        "synth",
        "mma",
        "mma verify",
    ] {
        let help = scene
            .ulpdrift(&format!("{command} --help"))
            .exits_with(0)
            .remarks_nothing();
        let usage = format!("Usage: ulpdrift {command}");
        let help = help.prints(usage.trim_end());
        let widest = help.stdout.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(100), "{help}");
        let version = scene
            .ulpdrift(&format!("{command} --version"))
            .exits_with(0);
        let name = ["ulpdrift", &command.replace(' ', "-")].join("-");
        let expected = format!(
            "{} {}\n",
            name.trim_end_matches('-'),
            env!("CARGO_PKG_VERSION")
        );
        assert_eq!(version.stdout, expected);
    }
}

#[test]
fn quiet_says_nothing_beside_the_result() {
    let scene = Scene::new();
    let run = "run synthetic:tiny --layers 0 --variants fp32 --out out";
    let plain = scene.ulpdrift(run).exits_with(0);
    // Without a terminal there is no progress bar either way, and no colour.
    assert_eq!(
        plain.stderr,
        "wrote out/report.csv\nwrote out/report.json\n"
    );
    let quiet = scene
        .ulpdrift(&format!("{run} --quiet"))
        .exits_with(0)
        .remarks_nothing();
    assert_eq!(quiet.stdout, plain.stdout);
    assert!(!plain.stdout.contains('\u{1b}'));
    let error = scene.ulpdrift("run synthetic:tiny --layers 9 --quiet");
    error.must_be_refused_saying(&["--layers 9"]);
}

#[test]
fn colour_is_where_it_is_asked_for() {
    let scene = Scene::new();
    let run = "run synthetic:tiny --layers 0 --sites attn --variants fp32 --suite mix";
    let plain = scene.ulpdrift(run).exits_with(0).stdout;
    let strip = |text: &str| ulpdrift::report::style::plain(text);
    let force = [("CLICOLOR_FORCE", "1")];
    let always = scene.ulpdrift(&format!("{run} --color always"));
    let forced = scene.ulpdrift_with(run, &force);
    for coloured in [always, forced] {
        let coloured = coloured.exits_with(0).stdout;
        assert!(
            coloured.starts_with("\u{1b}[33mSYNTHETIC\u{1b}[0m"),
            "{coloured:?}"
        );
        assert!(
            coloured.contains("\u{1b}[32mexact\u{1b}[0m"),
            "{coloured:?}"
        );
        assert_eq!(strip(&coloured), plain);
    }
    for outcome in [
        scene.ulpdrift_with(&format!("--color never {run}"), &force),
        scene.ulpdrift_with(run, &[("NO_COLOR", "1")]),
    ] {
        assert_eq!(outcome.exits_with(0).stdout, plain);
    }
    let csv = scene.ulpdrift(&format!("{run} --color always --format csv"));
    assert!(!csv.exits_with(0).stdout.contains('\u{1b}'));
    let error = scene.ulpdrift("--color always run synthetic:tiny --layers 9");
    let error = error.exits_with(2).prints_nothing().stderr;
    assert!(
        error.starts_with("\u{1b}[1m\u{1b}[31merror:\u{1b}[0m --layers 9"),
        "{error:?}"
    );
}

#[test]
fn the_last_line_says_what_to_do_next() {
    let scene = Scene::new();
    let run = "run synthetic:tiny --layers 0 --sites attn --variants tf32 --suite mix";
    let last = |line: &str, code| {
        let stdout = scene.ulpdrift(line).exits_with(code).stdout;
        stdout.lines().last().unwrap_or_default().to_owned()
    };
    assert_eq!(
        last(run, 0),
        "Next: these weights are made up; ulpdrift run CHECKPOINT measures your own"
    );
    let limit =
        |max: &str| format!("[[limit]]\nstage = \"mixes\"\nmeasure = \"rel_l2\"\nmax = {max}\n");
    scene.put("good.toml", limit("1"));
    scene.put("bad.toml", limit("1e-9"));
    assert_eq!(
        last(&format!("{run} --gate good.toml"), 0),
        "Next: nothing: every check passed"
    );
    let failed = last(&format!("{run} --gate bad.toml"), 1);
    let command = failed.strip_prefix("Next: look at what fails: ulpdrift ");
    let command = command.unwrap_or_else(|| panic!("{failed}"));
    scene.ulpdrift(command).exits_with(0).prints("tf32");
    // Real as far as the tool can know: nothing calls this checkpoint synthetic.
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/transformers_tiny");
    let real = format!("run {fixture} --layers 0 --sites attn --variants fp32,tf32 --suite mix");
    let keep = last(&real, 0);
    let expected =
        "Next: run again with --out report, then ulpdrift gate report/report.json --init";
    assert_eq!(keep, expected);
    let kept = last(&format!("{real} --out report"), 0);
    assert_eq!(
        kept,
        "Next: limits for CI: ulpdrift gate report/report.json --init"
    );
    scene
        .ulpdrift("gate report/report.json --init")
        .exits_with(0)
        .prints("[[limit]]");
}

#[test]
fn a_run_that_repeats_says_that_nothing_changed() {
    let scene = Scene::new();
    let run = "run synthetic:tiny --layers 0 --sites attn --variants tf32 --suite mix --repeat 2";
    scene
        .ulpdrift(run)
        .exits_with(0)
        .prints("Repeated: the same bits every time in 7 rows.");
    for (flags, parts) in [
        ("--repeat 0", ["--repeat 0", "expected 1 to 1000"]),
        ("--repeat 2 --sweep tokens=1,2", ["--repeat", "--sweep"]),
        ("--repeat 2 --suite gains", ["--repeat 2", "gains"]),
    ] {
        scene
            .ulpdrift(&format!("run synthetic:tiny {flags}"))
            .must_be_refused_saying(&parts);
    }
}

/// The fenced blocks of a language in the README.
fn readme_blocks(language: &str) -> Vec<String> {
    let readme = include_str!("../../README.md");
    let fence = format!("```{language}\n");
    let blocks = readme.split(&fence).skip(1);
    blocks
        .filter_map(|block| block.split("\n```").next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_recipe_of_the_readme_runs_beside_the_defaults() {
    let blocks = readme_blocks("toml");
    let recipe = blocks.iter().find(|block| block.contains("[[mix]]"));
    let scene = Scene::new().file("mine.toml", recipe.expect("a recipe"));
    scene
        .ulpdrift("run synthetic:tiny --layers 0 --sites attn --recipes mine.toml")
        .exits_with(0)
        .prints("my-kernel")
        .prints("bf16-prenorm");
}

#[test]
fn the_limit_of_the_readme_fails_on_truncation_alone() {
    let blocks = readme_blocks("toml");
    let limit = blocks.iter().find(|block| block.contains("[[limit]]"));
    let scene = Scene::new().file("limits.toml", limit.expect("a limit"));
    scene
        .ulpdrift("run synthetic:tiny --gate limits.toml")
        .exits_with(1)
        .prints("(8 of 16 failed)")
        .prints("--variants tf32-rz");
}
