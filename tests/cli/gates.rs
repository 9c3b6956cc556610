//! Run, report, gate: what passes, what fails, and whether the printed command reproduces it.

use serde_json::{Value, json};

use crate::{
    checkpoints,
    refusals::refused,
    scene::{Outcome, Scene},
};

const GOOD: &str = r#"
[[limit]]
suite = "mix"
stage = "mixes"
variant = "tf32*"
measure = "rel_l2"
max = 5e-4

[[limit]]
measure = "bound_ratio"
stage = "mixes"
max = 1
"#;

const BREACHED: &str = r#"
[[limit]]
suite = "mix"
stage = "mixes"
variant = "tf32"
measure = "rel_l2"
max = 1e-4
"#;

pub const RECIPES: &str = r#"
[[mix]]
name = "mine"
summary = "bf16 weight, 8 ranges"
[mix.projection]
unit = "mma-bf16-k16"
weight = "bf16"
square-sum = "chains"
order = { chains = { splits = { count = { fixed = 8 } } } }
"#;

/// The lines of a failed gate that are commands.
pub fn commands(outcome: &Outcome<'_>) -> Vec<String> {
    let lines = outcome.stdout.lines().map(str::trim_start);
    lines
        .filter(|line| line.starts_with("ulpdrift run "))
        .map(str::to_owned)
        .collect()
}

/// The record of a report that has the key fields of another.
fn same_row<'a>(report: &'a Value, row: &Value) -> &'a Value {
    let fields = [
        "suite",
        "layer",
        "site",
        "stage",
        "variant",
        "fault",
        "tokens",
        "splits",
        "sms",
        "source",
        "direction",
    ];
    let rows = report["records"].as_array().unwrap();
    let mut rows = rows.iter().filter(|other| {
        let is_same = |field: &&str| other[*field] == row[*field];
        fields.iter().all(is_same)
    });
    let found = rows.next().expect("the row is there");
    assert!(rows.next().is_none(), "one row only");
    found
}

/// Runs with flags and a limit that every row of the measure breaks, and asserts that each printed
/// command yields the same row, bit for bit.
pub fn assert_reproduced(scene: &Scene, flags: &str, limit: &str) {
    scene.put("limit.toml", limit);
    let run = scene.ulpdrift(&format!("run {flags} --out out --gate limit.toml"));
    let run = run.exits_with(1).prints("FAIL").prints("is above max");
    let report = scene.json("out/report.json");
    let breaches = report["gates"][0]["breaches"].as_array().unwrap();
    let commands = commands(&run);
    assert_eq!(commands.len(), breaches.len());
    assert!(!commands.is_empty());
    for (command, breach) in commands.iter().zip(breaches) {
        assert_eq!(breach["reproduce"].as_str(), Some(command.as_str()));
        let alone = scene
            .shell(&format!("{command} --format json"))
            .exits_with(0);
        let alone: Value = serde_json::from_str(&alone.stdout).unwrap();
        let before = same_row(&report, &breach["key"]);
        assert_eq!(same_row(&alone, &breach["key"]), before, "{command}");
        assert_eq!(before["rel_l2"], breach["value"]);
    }
}

#[test]
fn good_limits_pass_in_the_run_and_after_it() {
    let scene = Scene::new().file("good.toml", GOOD);
    let run = scene
        .ulpdrift("run synthetic:tiny --out out --gate good.toml")
        .exits_with(0);
    let gate = scene
        .ulpdrift("gate out/report.json --thresholds good.toml")
        .exits_with(0);
    let gate = gate
        .prints("2 checks, all passed")
        .fits_80_columns()
        .remarks_nothing();
    let checks = gate.stdout.split_once('\n').unwrap().1;
    let (shown, _) = run.stdout.rsplit_once("\nNext: ").unwrap();
    assert!(shown.ends_with(checks), "{run}");
}

#[test]
fn a_breach_fails_with_limit_value_and_command_in_the_run_and_after_it() {
    let scene = Scene::new().file("breached.toml", BREACHED);
    let flags = "--layers 2 --sites ffn --variants tf32,fp32";
    let line = format!("run synthetic:tiny {flags} --out out --gate breached.toml");
    let run = scene.ulpdrift(&line).exits_with(1);
    let gate = scene
        .ulpdrift("gate out/report.json --thresholds breached.toml")
        .exits_with(1);
    let gate = gate
        .prints("FAIL  suite=mix stage=mixes variant=tf32: rel_l2 max 1e-4 (1 of 1 failed)")
        .prints("mix L2.ffn mixes tf32: rel_l2 2.")
        .prints("is above max 1e-4")
        .prints("1 check, 1 failed")
        .remarks_nothing();
    let checks = gate.stdout.split_once('\n').unwrap().1;
    let (shown, _) = run.stdout.rsplit_once("\nNext: ").unwrap();
    assert!(shown.ends_with(checks), "{run}");
    let report = scene.json("out/report.json");
    assert_eq!(report["gates"][0]["passed"], false);
    assert_eq!(report["gates"][0]["breaches"][0]["limit"], 1e-4);
    assert_eq!(commands(&run), commands(&gate));
}

#[test]
fn every_printed_command_reproduces_its_row() {
    let scene = Scene::new();
    let flags = "synthetic:tiny --layers 1-2 --sites ffn --tokens 33 --seed 7 --inputs scaled:3 \
                 --sms 132 --arch sm_90 --against tf32 --variants 'tf32*,bf16'";
    assert_reproduced(
        &scene,
        flags,
        &BREACHED.replace("\"tf32\"", "\"*\"").replace("1e-4", "0"),
    );
}

#[test]
fn names_that_a_shell_would_take_apart_are_quoted() {
    let scene = Scene::new().file("it's mine; $(x).toml", RECIPES);
    scene.ulpdrift("synth \"a 'b' $c/d\"").exits_with(2);
    scene
        .ulpdrift("synth \"a 'b' \\$c\" --layers 1")
        .exits_with(0);
    let flags =
        "\"a 'b' \\$c\" --recipes \"it's mine; \\$(x).toml\" --variants mine --against mine";
    let limit = BREACHED
        .replace("\"tf32\"", "\"mine\"")
        .replace("1e-4", "0");
    assert_reproduced(&scene, flags, &limit);
}

#[test]
fn a_row_of_a_sweep_is_reproduced_too() {
    let scene = Scene::new();
    let limit = "[[limit]]\nmeasure = \"rel_l2\"\nmax = 0\n";
    let flags = "synthetic:tiny --sweep tokens=1,64,512 --sms 132,188 --variants tf32,tf32-rz";
    assert_reproduced(&scene, flags, limit);
}

#[test]
fn recorded_inputs_are_reproduced_too() {
    let fixture = format!("{}/fixtures/transformers_tiny", env!("CARGO_MANIFEST_DIR"));
    let scene = Scene::new();
    let flags = format!(
        "{fixture} --inputs file:{fixture}/captured.safetensors --variants tf32 --layers 0-2"
    );
    assert_reproduced(&scene, &flags, &BREACHED.replace("1e-4", "0"));
}

#[test]
fn rows_of_a_chain_are_reproduced_too() {
    let limit =
        "[[limit]]\nsuite = \"chain\"\nstage = \"streams\"\nmeasure = \"rel_l2\"\nmax = 0\n";
    let scene = Scene::new();
    let flags = "synthetic:tiny --suite chain --variants tf32 --tokens 5 --seed 3 --inputs embedding --sublayer shared-expert";
    assert_reproduced(&scene, flags, limit);
    let sites = ["attn", "ffn"].map(|site| format!("layers.0.{site}.f"));
    let sites = sites.each_ref().map(String::as_str);
    scene.put("f.safetensors", checkpoints::outputs(&sites, 9, 256));
    let flags = "synthetic:tiny --suite chain --variants tf32 --layers 0 --inputs file:f.safetensors --sublayer file";
    assert_reproduced(&scene, flags, limit);
}

#[test]
fn a_report_passes_beside_itself_and_fails_beside_a_better_one() {
    let scene = Scene::new()
        .file("good.toml", GOOD)
        .file("breached.toml", BREACHED);
    let run = "run synthetic:tiny --layers 0 --variants tf32,bf16";
    scene.ulpdrift(&format!("{run} --out old")).exits_with(0);
    let same = format!("{run} --baseline old/report.json");
    scene
        .ulpdrift(&same)
        .exits_with(0)
        .prints("pass  baseline: same recipes");
    scene
        .ulpdrift("gate old/report.json --baseline old/report.json")
        .exits_with(0);

    let mut better = scene.json("old/report.json");
    let records = better["records"].as_array_mut().unwrap();
    let mixes = |row: &&mut Value| row["stage"] == "mixes" && row["variant"] == "bf16";
    records.iter_mut().find(mixes).unwrap()["rel_l2"] = 1e-4.into();
    scene.put("better.json", better.to_string());
    for line in [
        format!("{run} --baseline better.json"),
        "gate old/report.json --baseline better.json".to_owned(),
        // Limits that hold do not make up for it.
        format!("{run} --baseline better.json --gate good.toml"),
    ] {
        let outcome = scene.ulpdrift(&line).exits_with(1);
        outcome
            .prints("mix L0.attn mixes bf16: rel_l2 0.0015")
            .prints("is worse");
    }
    // Nor does a baseline for limits that do not hold.
    let both = scene
        .ulpdrift(&format!("{same} --gate breached.toml"))
        .exits_with(1);
    both.prints("pass  baseline: no row vanished")
        .prints("is above max 1e-4");
    let fewer = run.replace("tf32,bf16", "tf32");
    let fewer = scene
        .ulpdrift(&format!("{fewer} --baseline old/report.json"))
        .exits_with(1);
    fewer.prints("the baseline has this row, the report has not");
    let other = format!("{run} --arch sm_90 --baseline old/report.json");
    let parts = [
        "no row that report and baseline both have",
        "arch is sm_90",
        "sm_120",
    ];
    scene.ulpdrift(&other).must_be_refused_saying(&parts);
}

/// A sweep's rows have no verdict that would say so.
#[test]
fn a_row_of_a_sweep_that_is_of_no_use_fails_whatever_the_limits() {
    let limits = "[[limit]]\nmeasure = 'rel_l2'\nmax = 1";
    let scene = Scene::new().file("gate.toml", limits);
    scene
        .ulpdrift("run synthetic:tiny --sweep tokens=1,64 --variants tf32 --out out")
        .exits_with(0);
    let gate = "gate out/report.json --thresholds gate.toml";
    scene.ulpdrift(gate).exits_with(0);
    let path = scene.path("out/report.json");
    let mut report: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    for (cosine, code) in [(json!(0.98), 1), (json!("NaN"), 1), (json!(1.0), 0)] {
        report["records"][1]["cosine"] = cosine;
        std::fs::write(&path, report.to_string()).unwrap();
        let outcome = scene.ulpdrift(gate).exits_with(code);
        if code == 1 {
            outcome
                .prints("FAIL  sweep")
                .prints("is of no use")
                .prints("--sweep");
        }
    }
}

#[test]
fn a_gate_on_nothing_does_not_pass() {
    let scene = Scene::new().file("good.toml", GOOD).file("empty.toml", "");
    scene
        .ulpdrift("run synthetic:tiny --layers 0 --variants fp32 --out out")
        .exits_with(0);
    let gate = |flags: &str| scene.ulpdrift(&format!("gate out/report.json {flags}"));
    gate("").must_be_refused_saying(&["--thresholds FILE", "--baseline REPORT"]);
    gate("--thresholds empty.toml").must_be_refused_saying(&["empty.toml", "no [[limit]]"]);
    // No variant tf32 was run, so its limit looks at nothing.
    gate("--thresholds good.toml").must_be_refused_saying(&["good.toml, line 2", "no record"]);
    // A folder stands for the report in it.
    scene
        .ulpdrift("gate out --thresholds good.toml")
        .must_be_refused_saying(&["good.toml, line 2", "no record"]);
    scene
        .ulpdrift("gate out/report.csv --thresholds good.toml")
        .must_be_refused_saying(&["out/report.csv is not a report"]);
}

/// A known bug is there to be seen: it fails neither the run nor a limit that does not name it.
#[test]
fn a_known_bug_fails_only_what_names_it() {
    let own =
        "[[limit]]\nsuite = \"chain\"\nstage = \"streams\"\nmeasure = \"rel_l2\"\nmax = 1e-2\n";
    let named = own.replace("stage", "fault = \"transposed-comb\"\nstage");
    let scene = Scene::new().file("own.toml", own).file("named.toml", named);
    let run =
        "run synthetic:tiny --suite mix,chain --variants fp32 --fault transposed-comb --tokens 4";
    let shown = scene.ulpdrift(run).exits_with(0);
    shown
        .prints("Known bugs, built into fp32")
        .fits_80_columns();
    scene
        .ulpdrift(&format!("{run} --gate own.toml"))
        .exits_with(0);
    scene
        .ulpdrift(&format!("{run} --gate named.toml"))
        .exits_with(1)
        .prints("--fault transposed-comb");
}

/// A limit that can match nothing is found out before an hour of measuring, not after.
#[test]
fn a_limit_of_a_suite_that_does_not_run_is_refused_at_once() {
    let limit = "[[limit]]\nsuite = \"budget\"\nmeasure = \"explained\"\nmax = 1.1\n";
    let scene = Scene::new().file("limits.toml", limit);
    let line = "run synthetic:tiny --suite mix --gate limits.toml --out out";
    scene.ulpdrift(line).must_be_refused_saying(&[
        "suite=budget",
        "no suite that runs (mix)",
        "--suite",
    ]);
}

#[test]
fn gates_that_cannot_be_applied_are_refused() {
    let scene = Scene::new()
        .file("broken.toml", "[[limit]\n")
        .file("nan.toml", "[[limit]]\nmeasure = \"rel_l2\"\nmax = nan\n")
        .file("typo.toml", "[[limit]]\nmeasure = \"rel_l3\"\nmax = 1\n")
        .file("empty.toml", "")
        .file(
            "other.toml",
            "[[limit]]\nvariant = \"zzz\"\nmeasure = \"rel_l2\"\nmax = 1\n",
        )
        .file(
            "ratio.toml",
            "[[limit]]\nmeasure = \"rel_l2\"\nmax_ratio = 2\nfloor = 0.1\n",
        )
        .file("broken.json", "{\"schema_version\": 1,");
    for (flags, parts) in [
        (
            "--gate absent.toml",
            ["absent.toml", "No such file", "check the path"],
        ),
        (
            "--gate broken.toml",
            ["broken.toml, line 1", "not a thresholds file", ""],
        ),
        (
            "--gate nan.toml",
            ["nan.toml, line 1", "max = nan", "finite"],
        ),
        (
            "--gate typo.toml",
            ["typo.toml, line 1", "'rel_l3'", "measures are"],
        ),
        ("--gate empty.toml", ["empty.toml", "[[limit]]", "add one"]),
        (
            "--gate ratio.toml",
            ["ratio.toml, line 1", "max_ratio", "--baseline"],
        ),
        (
            "--baseline absent.json",
            ["absent.json", "No such file", "check the path"],
        ),
        (
            "--baseline broken.json",
            ["broken.json is not a report", "EOF", ""],
        ),
        ("--baseline nan.toml", ["nan.toml is not a report", "", ""]),
    ] {
        refused(&scene, flags, &parts);
        refused(&scene, &format!("{flags} --dump dump"), &parts);
    }
}

/// A limit that turns out to match nothing costs no measurement: what was measured is there for the corrected one.
#[test]
fn a_limit_that_matches_nothing_loses_nothing() {
    let limit = |variant: &str| {
        format!("[[limit]]\nvariant = \"{variant}\"\nmeasure = \"rel_l2\"\nmax = 1\n")
    };
    let scene = Scene::new().file("limits.toml", limit("zzz"));
    let line = "run synthetic:tiny --layers 0 --variants fp32 --gate limits.toml --out out";
    let parts = [
        "limits.toml, line 1",
        "matches no record",
        "correct it",
        "3 of 3 cases",
    ];
    scene
        .ulpdrift(line)
        .must_leave_only_its_journal("out", &parts);
    scene.put("limits.toml", limit("fp32"));
    let parts = ["has 3 finished cases", "--resume", "remove that file"];
    scene.ulpdrift(line).must_be_refused_saying(&parts);
    scene
        .ulpdrift(&format!("{line} --resume"))
        .exits_with(0)
        .remarks("--resume: 3 of 3 cases were finished");
    assert!(!scene.path("out/report.journal").exists());
}

/// `gate --init -o limits.toml` is easily typed again without `--init`.
#[test]
fn what_a_gate_reads_it_does_not_write_over() {
    let scene = Scene::new().file("limits.toml", GOOD);
    scene
        .ulpdrift("run synthetic:tiny --layers 0 --suite mix --variants fp32,tf32 -q --out out")
        .exits_with(0);
    std::os::unix::fs::symlink("limits.toml", scene.path("link.toml")).unwrap();
    let before = ["limits.toml", "out/report.json"].map(|name| std::fs::read(scene.path(name)));
    for line in [
        "gate out/report.json --thresholds limits.toml -o limits.toml",
        "gate out/report.json --thresholds limits.toml -o link.toml",
        "gate out/report.json --init -o ./out/report.json",
        "gate out --init -o out/report.json",
        "gate out --baseline out/report.json -o out/report.json",
        "report out -o out/report.json",
    ] {
        scene
            .ulpdrift(line)
            .must_be_refused_saying(&["it would take the place of", "name another file"]);
    }
    let after = ["limits.toml", "out/report.json"].map(|name| std::fs::read(scene.path(name)));
    for (before, after) in before.into_iter().zip(after) {
        assert_eq!(before.unwrap(), after.unwrap());
    }
    scene
        .ulpdrift("gate out --init -o limits.toml")
        .exits_with(0);
}
