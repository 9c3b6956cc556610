//! What a gate comes to, as CI sees it: a report, limits, a baseline, and the exit code and sentence of each.

use serde_json::{Value, json};

use crate::scene::Scene;

const RUN: &str = "run synthetic:tiny --suite mix --layers 0 --sites attn --variants tf32,bf16 --tokens 4 --out out";

const MAX: &str = "[[limit]]\nstage = 'mixes'\nvariant = 'tf32'\nmeasure = 'rel_l2'\nmax = 3e-4";
const MIN: &str = "[[limit]]\nstage = 'mixes'\nvariant = 'tf32'\nmeasure = 'cosine'\nmin = 0.999";
const RATIO: &str = "[[limit]]\nstage = 'mixes'\nvariant = 'tf32'\nmeasure = 'rel_l2'\nmax_ratio = 1.1\nfloor = 1e-6";
const ALLOW_ROWS: &str = "[[limit]]\nstage = 'mixes'\nvariant = 'tf32'\nmeasure = 'rel_l2'\nmax_ratio = 1.1\n\
     [baseline]\nallow = ['rows']";
const ALLOW_DIGEST: &str = "[[limit]]\nstage = 'mixes'\nvariant = 'tf32'\nmeasure = 'rel_l2'\nmax_ratio = 1.1\n\
     [baseline]\nallow = ['digest']";

/// What is on the disk before the gate runs.
type Edit = fn(&mut Value);

struct Case {
    name: &'static str,
    /// The thresholds file; empty for a gate without one.
    limits: &'static str,
    report: Edit,
    /// `None` for a gate without a baseline.
    baseline: Option<Edit>,
    code: i32,
    /// A part of the sentence: on stdout of a check, on stderr of a refusal.
    says: &'static str,
}

fn same(_: &mut Value) {}

fn mixes(report: &mut Value) -> &mut Value {
    let records = report["records"].as_array_mut().unwrap();
    let is_it = |row: &&mut Value| row["stage"] == "mixes" && row["variant"] == "tf32";
    records.iter_mut().find(is_it).unwrap()
}

fn set(report: &mut Value, measure: &str, value: Value) {
    mixes(report)[measure] = value;
}

fn drop_stage(report: &mut Value, stage: &str) {
    let records = report["records"].as_array_mut().unwrap();
    records.retain(|row| row["stage"] != stage);
}

fn case(
    name: &'static str,
    limits: &'static str,
    report: Edit,
    baseline: Option<Edit>,
    code: i32,
    says: &'static str,
) -> Case {
    Case {
        name,
        limits,
        report,
        baseline,
        code,
        says,
    }
}

/// One report against limits.
#[rustfmt::skip]
fn against_limits() -> Vec<Case> {
    vec![
        case("good", MAX, same, None, 0, "1 check, passed"),
        case("good, from below", MIN, same, None, 0, "1 check, passed"),
        case("equal to the limit", MAX, |r| set(r, "rel_l2", json!(3e-4)), None, 0, "1 check, passed"),
        case("an ulp above", MAX, |r| set(r, "rel_l2", json!(3e-4_f64.next_up())), None, 1, "rel_l2 3.0000000000000003e-4 is above max 3e-4"),
        case("breach", MAX, |r| set(r, "rel_l2", json!(0.5)), None, 1, "rel_l2 0.5 is above max 3e-4"),
        case("breach from below", MIN, |r| set(r, "cosine", json!(0.99)), None, 1, "cosine 0.99 is below min 0.999"),
        case("NaN value", MAX, |r| set(r, "rel_l2", json!("NaN")), None, 1, "rel_l2 is NaN"),
        case("NaN value from below", MIN, |r| set(r, "cosine", json!("NaN")), None, 1, "cosine is NaN"),
        case("Inf value", MAX, |r| set(r, "rel_l2", json!("Infinity")), None, 1, "rel_l2 is inf"),
        case("-Inf value", MAX, |r| set(r, "rel_l2", json!("-Infinity")), None, 1, "rel_l2 is -inf"),
        case("measure missing", MAX, |r| { mixes(r).as_object_mut().unwrap().remove("rel_l2"); }, None, 1, "the row has no rel_l2"),
        case("beyond its bound, whatever the limits", MAX, |r| set(r, "bound_ratio", json!(1.5)), None, 1, "FAIL"),
        case("NaN limit", "[[limit]]\nmeasure = 'rel_l2'\nmax = nan", same, None, 2, "max = nan is no bound"),
        case("infinite limit", "[[limit]]\nmeasure = 'rel_l2'\nmax = inf", same, None, 2, "has to be finite"),
        case("unmatched limit", "[[limit]]\nvariant = 'tf23'\nmeasure = 'rel_l2'\nmax = 1", same, None, 2, "matches no record"),
        case("row gone that a limit names", MAX, |r| drop_stage(r, "mixes"), None, 2, "matches no record"),
        case("unknown measure", "[[limit]]\nmeasure = 'rel_l3'\nmax = 1", same, None, 2, "unknown measure 'rel_l3'"),
        case("unknown key", "[[limit]]\nmeasure = 'rel_l2'\nmaks = 1", same, None, 2, "unknown key 'maks'"),
        case("thresholds that are no TOML", "[[limit", same, None, 2, "not a thresholds file"),
        case("thresholds without a limit", "# nothing", same, None, 2, "never passes on nothing"),
        case("ratio without a baseline", RATIO, same, None, 2, "give one with --baseline"),
        case("no rows at all", MAX, |r| r["records"] = json!([]), None, 2, "matches no record"),
        case("neither limits nor a baseline", "", same, None, 2, "never passes on nothing"),
        case("newer report", MAX, |r| r["schema_version"] = json!(99), None, 2, "has report layout 99"),
        case("report with a field of its own", MAX, |r| r["mood"] = json!("good"), None, 2, "unknown field `mood`"),
        case("one row twice", MAX, |r| { let row = mixes(r).clone(); r["records"].as_array_mut().unwrap().push(row); }, None, 2, "two records have the key"),
    ]
}

/// One report beside another.
#[rustfmt::skip]
fn against_a_baseline() -> Vec<Case> {
    vec![
        case("equal", "", same, Some(same), 0, "all passed"),
        case("equal, with a ratio", RATIO, same, Some(same), 0, "all passed"),
        case("improved", RATIO, same, Some(|b| set(b, "rel_l2", json!(1e-2))), 0, "better: mix L0.attn mixes tf32"),
        case("worse", RATIO, |r| set(r, "rel_l2", json!(2e-3)), Some(same), 1, "rel_l2 0.002 is worse than the baseline's"),
        case("worse, no limits", "", |r| set(r, "rel_l2", json!(2e-3)), Some(same), 1, "is worse than the baseline's"),
        case("worse, limits without a ratio", MAX, |r| set(r, "rel_l2", json!(2.9e-4)), Some(|b| set(b, "rel_l2", json!(1e-4))), 1, "is worse than the baseline's"),
        case("worse within the ratio", RATIO, |r| set(r, "rel_l2", json!(1.09e-4)), Some(|b| set(b, "rel_l2", json!(1e-4))), 0, "all passed"),
        case("worse within the floor", RATIO, |r| set(r, "rel_l2", json!(9e-7)), Some(|b| set(b, "rel_l2", json!(1e-9))), 0, "all passed"),
        case("zero baseline, within the floor", RATIO, |r| set(r, "rel_l2", json!(9e-7)), Some(|b| set(b, "rel_l2", json!(0.0))), 0, "all passed"),
        case("zero baseline", RATIO, same, Some(|b| set(b, "rel_l2", json!(0.0))), 1, "the baseline's 0 "),
        case("NaN now", RATIO, |r| set(r, "rel_l2", json!("NaN")), Some(same), 1, "rel_l2 is NaN"),
        case("NaN before", RATIO, same, Some(|b| set(b, "rel_l2", json!("NaN"))), 1, "NaN in the baseline"),
        case("NaN in both", RATIO, |r| set(r, "rel_l2", json!("NaN")), Some(|b| set(b, "rel_l2", json!("NaN"))), 1, "rel_l2 is NaN"),
        case("missing row", RATIO, |r| drop_stage(r, "comb"), Some(same), 1, "the baseline has this row, the report has not"),
        case("missing row, allowed", ALLOW_ROWS, |r| drop_stage(r, "comb"), Some(same), 0, "differs, which is allowed"),
        case("extra row", RATIO, same, Some(|b| drop_stage(b, "comb")), 0, "2 new rows, not compared"),
        case("changed digest", RATIO, |r| r["run"]["checkpoint"]["digest"] = json!("sha256:ff"), Some(same), 1, "digest of the tensors read is sha256:ff"),
        case("changed digest, allowed", ALLOW_DIGEST, |r| r["run"]["checkpoint"]["digest"] = json!("sha256:ff"), Some(same), 0, "differs, which is allowed"),
        case("changed recipe", RATIO, |r| r["recipes"]["tf32"]["output"] = json!("bf16"), Some(same), 1, "recipe tf32 is not what it was"),
        case("baseline without rows", RATIO, same, Some(|b| b["records"] = json!([])), 2, "the baseline has no records"),
        case("newer baseline", RATIO, same, Some(|b| b["schema_version"] = json!(99)), 2, "before.json has report layout 99"),
        case("baseline of something else", RATIO, same, Some(|b| *b = json!({"rows": 3})), 2, "before.json is not a report"),
    ]
}

#[test]
fn every_case_has_its_exit_code_and_sentence() {
    let scene = Scene::new();
    scene.ulpdrift(RUN).exits_with(0);
    let report = scene.json("out/report.json");
    for case in against_limits().into_iter().chain(against_a_baseline()) {
        let mut line = "gate now.json".to_owned();
        let mut now = report.clone();
        (case.report)(&mut now);
        scene.put("now.json", now.to_string());
        if !case.limits.is_empty() {
            scene.put("limits.toml", case.limits);
            line.push_str(" --thresholds limits.toml");
        }
        if let Some(edit) = case.baseline {
            let mut before = report.clone();
            edit(&mut before);
            scene.put("before.json", before.to_string());
            line.push_str(" --baseline before.json");
        }
        println!("{}", case.name);
        let outcome = scene.ulpdrift(&line);
        match case.code {
            2 => outcome.must_be_refused_saying(&[case.says]),
            code => drop(outcome.exits_with(code).prints(case.says).remarks_nothing()),
        }
    }
}

#[test]
fn a_file_that_is_not_there_is_no_baseline() {
    let scene = Scene::new().file("limits.toml", MAX).folder("empty");
    scene.ulpdrift(RUN).exits_with(0);
    for (flags, part) in [
        ("--baseline gone.json", "gone.json"),
        ("--thresholds gone.toml", "gone.toml"),
        (
            "--thresholds limits.toml --baseline empty",
            "empty/report.json",
        ),
    ] {
        let line = format!("gate out/report.json {flags}");
        scene.ulpdrift(&line).must_be_refused_saying(&[part]);
    }
    let line = "gate gone.json --thresholds limits.toml";
    scene.ulpdrift(line).must_be_refused_saying(&["gone.json"]);
}
