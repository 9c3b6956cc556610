//! The table of cases: a gate, a report, a baseline, and what they have to come to.

use super::*;

/// A harness that only tests `error > limit` lets most of these through: of {finite ok, NaN, +Inf, −Inf, out of range} the first passes.
#[test]
fn only_a_finite_value_inside_the_limit_passes() {
    run(vec![
        case!("finite, inside max", MAX, same, Pass),
        case!("equal to max", MAX, |r| rel_l2(r, 2.5e-4), Pass),
        case!(
            "NaN against max",
            MAX,
            |r| rel_l2(r, f64::NAN),
            Fail("rel_l2 is NaN")
        ),
        case!(
            "negative NaN against max",
            MAX,
            |r| rel_l2(r, -f64::NAN),
            Fail("rel_l2 is NaN")
        ),
        case!(
            "+Inf against max",
            MAX,
            |r| rel_l2(r, f64::INFINITY),
            Fail("rel_l2 is inf")
        ),
        case!(
            "-Inf against max",
            MAX,
            |r| rel_l2(r, f64::NEG_INFINITY),
            Fail("rel_l2 is -inf")
        ),
        case!(
            "out of range",
            MAX,
            |r| rel_l2(r, 1.0),
            Fail("rel_l2 1 is above max 2.5e-4")
        ),
        case!(
            "missed by an ulp",
            MAX,
            |r| rel_l2(r, 2.5e-4_f64.next_up()),
            Fail("2.5000000000000006e-4 is above")
        ),
        case!("finite, inside min", MIN, same, Pass),
        case!(
            "NaN against min",
            MIN,
            |r| change(r, |m| m.cosine = Some(Value(f64::NAN))),
            Fail("cosine is NaN")
        ),
        case!(
            "+Inf against min",
            MIN,
            |r| change(r, |m| m.cosine = Some(Value(f64::INFINITY))),
            Fail("cosine is inf")
        ),
        case!(
            "-Inf against min",
            MIN,
            |r| change(r, |m| m.cosine = Some(Value(f64::NEG_INFINITY))),
            Fail("is -inf")
        ),
        case!(
            "below min",
            MIN,
            |r| change(r, |m| m.cosine = Some(Value(0.5))),
            Fail("cosine 0.5 is below min 0.9")
        ),
        case!(
            "measure absent",
            MAX,
            |r| change(r, |m| m.rel_l2 = None),
            Fail("measure absent: the row has no rel_l2")
        ),
        case!("measure never measured", SQNR, same, Fail("measure absent")),
    ]);
}

#[test]
fn a_thresholds_file_that_would_never_fail_is_refused() {
    run(vec![
        case!("empty file", "", same, Refused("never passes on nothing")),
        case!(
            "only settings",
            "[baseline]\nallow = []",
            same,
            Refused("no [[limit]]")
        ),
        case!(
            "only what is allowed, without a baseline",
            "[baseline]\nallow = ['digest']",
            same,
            Refused("gate.toml has no [[limit]] and there is no baseline")
        ),
        case!(
            "only verdicts, without a baseline",
            "[verdict]\nnoise_cosine_gap = 1e-4",
            same,
            Refused("give --baseline REPORT.json")
        ),
        case!("not TOML", "limit = [", same, Refused("line 1")),
        case!(
            "semicolons",
            "[[limit]]\nmeasure = 'rel_l2'; max = 1",
            same,
            Refused("line 2: not a thresholds file")
        ),
        case!(
            "unknown section",
            "[limits]\nmax = 1",
            same,
            Refused("unknown field `limits`")
        ),
        case!(
            "unknown key",
            "[[limit]]\nmeasure = 'rel_l2'\nmaks = 1",
            same,
            Refused("line 1: unknown key 'maks'")
        ),
        case!(
            "field that no row has",
            "limit = [{ window = 512, measure = 'rel_l2', max = 1 }]",
            same,
            Refused("unknown key 'window'")
        ),
        case!(
            "unknown measure",
            "\n\n[[limit]]\nmeasure = 'rel_l3'\nmax = 1",
            same,
            Refused("line 3: unknown measure 'rel_l3'")
        ),
        case!(
            "measure of a wrong type",
            "limit = [{ measure = 3, max = 1 }]",
            same,
            Refused("unknown measure '3'")
        ),
        case!(
            "no measure",
            "limit = [{ max = 1 }]",
            same,
            Refused("without measure")
        ),
        case!(
            "no bound",
            "limit = [{ measure = 'rel_l2' }]",
            same,
            Refused("limits nothing")
        ),
        case!(
            "NaN limit",
            "limit = [{ measure = 'rel_l2', max = nan }]",
            same,
            Refused("max = nan is no bound")
        ),
        case!(
            "infinite limit",
            "limit = [{ measure = 'rel_l2', max = inf }]",
            same,
            Refused("has to be finite")
        ),
        case!(
            "-Inf limit",
            "limit = [{ measure = 'rel_l2', min = -inf }]",
            same,
            Refused("has to be finite")
        ),
        case!(
            "text limit",
            "limit = [{ measure = 'rel_l2', max = '1e-4' }]",
            same,
            Refused("it is not a number")
        ),
        case!(
            "min above max",
            "limit = [{ measure = 'rel_l2', min = 2, max = 1 }]",
            same,
            Refused("no value can pass")
        ),
        case!(
            "floor alone",
            "limit = [{ measure = 'rel_l2', max = 1, floor = 1 }]",
            same,
            Refused("floor belongs to max_ratio")
        ),
        case!(
            "ratio below 1",
            "limit = [{ measure = 'rel_l2', max_ratio = 0.9 }]",
            same,
            Refused("max_ratio = 0.9")
        ),
        case!(
            "negative floor",
            "limit = [{ measure = 'rel_l2', max_ratio = 2, floor = -1 }]",
            same,
            Refused("floor = -1")
        ),
        case!(
            "ratio of an index",
            "limit = [{ measure = 'worst_index', max_ratio = 2 }]",
            same,
            Refused("max_ratio on worst_index")
        ),
        case!(
            "empty list",
            "limit = [{ layer = [], measure = 'rel_l2', max = 1 }]",
            same,
            Refused("layer = []")
        ),
        case!(
            "boolean field",
            "limit = [{ layer = true, measure = 'rel_l2', max = 1 }]",
            same,
            Refused("layer = true")
        ),
        case!(
            "NaN verdict limit",
            "limit = [{ measure = 'rel_l2', max = 1 }]\n[verdict]\nbroken_cosine = nan",
            same,
            Refused("broken_cosine = NaN")
        ),
        case!(
            "NaN verdict limit of an indexer",
            "limit = [{ measure = 'rel_l2', max = 1 }]\n[verdict]\nnoise_kept_at_2k = nan",
            same,
            Refused("noise_kept_at_2k = NaN")
        ),
        case!(
            "negative gap",
            "limit = [{ measure = 'rel_l2', max = 1 }]\n[verdict]\nnoise_cosine_gap = -1",
            same,
            Refused("noise_cosine_gap = -1")
        ),
        case!(
            "cosine above 1",
            "limit = [{ measure = 'rel_l2', max = 1 }]\n[verdict]\nbroken_cosine = 1.5",
            same,
            Refused("from -1 to 1")
        ),
        case!(
            "percent for a share",
            "limit = [{ measure = 'rel_l2', max = 1 }]\n[verdict]\nnoise_kept_at_2k = 99",
            same,
            Refused("from 0 to 1")
        ),
        case!(
            "negative share of the bound",
            "limit = [{ measure = 'rel_l2', max = 1 }]\n[verdict]\nbound_ratio = -1",
            same,
            Refused("bound_ratio = -1")
        ),
        case!(
            "unknown verdict limit",
            "limit = [{ measure = 'rel_l2', max = 1 }]\n[verdict]\nnoise = 1",
            same,
            Refused("unknown field `noise`")
        ),
        case!(
            "unknown allowance",
            "limit = [{ measure = 'rel_l2', max = 1 }]\n[baseline]\nallow = ['all']",
            same,
            Refused("unknown variant `all`")
        ),
        case!(
            "matches no record",
            "[[limit]]\nvariant = 'tf23*'\nmeasure = 'rel_l2'\nmax = 1",
            same,
            Refused("'variant=tf23*: rel_l2 max 1' matches no record")
        ),
        case!(
            "field the rows lack",
            "limit = [{ splits = '*', measure = 'rel_l2', max = 1 }]",
            same,
            Refused("matches no record")
        ),
        case!(
            "report without rows",
            MAX,
            |r| keep(r, |_| false),
            Refused("matches no record")
        ),
        case!(
            "ratio without baseline",
            RATIO,
            same,
            Refused("give one with --baseline")
        ),
    ]);
}

#[test]
fn a_baseline_finds_what_got_worse() {
    run(vec![
        case!("equal", RATIO, same, baseline same, Pass),
        case!("equal, no thresholds", "", same, baseline same, Pass),
        case!("worse, no thresholds", "", |r| rel_l2(r, 2.4e-4), baseline same, Fail("is worse than the baseline's")),
        case!("thresholds without ratio", MAX, |r| rel_l2(r, 2.4e-4), baseline same, Fail("is worse than the baseline's")),
        case!("worse within the ratio", RATIO, |r| rel_l2(r, 2.2e-4), baseline same, Pass),
        case!("worse", RATIO, |r| rel_l2(r, 4.2e-4), baseline same, Fail("rel_l2 4.2e-4 is worse than the baseline's")),
        case!(
            "worse by less than the floor",
            RATIO,
            |r| rel_l2(r, 5e-7),
            baseline | b | rel_l2(b, 1e-9),
            Pass
        ),
        case!(
            "zero baseline, within the floor",
            RATIO,
            |r| rel_l2(r, 5e-7),
            baseline | b | rel_l2(b, 0.0),
            Pass
        ),
        case!(
            "zero baseline, above the floor",
            RATIO,
            |r| rel_l2(r, 5e-6),
            baseline | b | rel_l2(b, 0.0),
            Fail("baseline's 0 ")
        ),
        case!("better", RATIO, |r| rel_l2(r, 1e-5), baseline same, Pass),
        case!("NaN now", RATIO, |r| rel_l2(r, f64::NAN), baseline same, Fail("rel_l2 is NaN")),
        case!(
            "NaN both",
            RATIO,
            |r| rel_l2(r, f64::NAN),
            baseline | b | rel_l2(b, f64::NAN),
            Fail("rel_l2 is NaN")
        ),
        case!(
            "NaN before",
            RATIO,
            same,
            baseline | b | rel_l2(b, f64::NAN),
            Fail("NaN in the baseline")
        ),
        case!(
            "Inf both",
            RATIO,
            |r| rel_l2(r, f64::INFINITY),
            baseline | b | rel_l2(b, f64::INFINITY),
            Fail("rel_l2 is inf")
        ),
        case!(
            "Inf before",
            RATIO,
            same,
            baseline | b | rel_l2(b, f64::INFINITY),
            Fail("rel_l2 is inf in the baseline")
        ),
        case!("measure gone", RATIO, |r| change(r, |m| m.rel_l2 = None), baseline same, Fail("measure absent")),
        case!("similarity fell", COSINE_RATIO, |r| change(r, |m| m.cosine = Some(Value(0.5))), baseline same, Fail("cosine 0.5 is worse")),
        case!(
            "similarity rose",
            COSINE_RATIO,
            same,
            baseline | b | change(b, |m| m.cosine = Some(Value(0.5))),
            Pass
        ),
    ]);
}

const ALLOW: &str = "limit = [{ measure = 'rel_l2', max_ratio = 1.05 }]\n[baseline]\nallow = ";

#[test]
fn a_baseline_of_something_else_is_no_baseline() {
    let allow = |what: &str| -> &'static str { format!("{ALLOW}['{what}']").leak() };
    let digest = |r: &mut Report| r.run.checkpoint.digest = "sha256:ff".to_owned();
    let worse = |r: &mut Report| {
        r.run.checkpoint.digest = "sha256:ff".to_owned();
        change(r, |measures| measures.rel_l2 = Some(Value(0.5)));
    };
    let recipe = |r: &mut Report| {
        r.recipes
            .insert("tf32".to_owned(), serde_json::json!({ "unit": "other" }));
    };
    run(vec![
        case!("other digest", RATIO, digest, baseline same, Fail("digest of the tensors read is sha256:ff, the baseline's is sha256:00")),
        case!("other digest, allowed", allow("digest"), digest, baseline same, Pass),
        case!("nothing but what is allowed", "[baseline]\nallow = ['digest']", digest, baseline same, Pass),
        case!("a change beside what is allowed", "[baseline]\nallow = ['digest']", worse, baseline same, Fail("rel_l2")),
        case!("other recipe", RATIO, recipe, baseline same, Fail("recipe tf32 is not what it was")),
        case!("other recipe, allowed", allow("recipes"), recipe, baseline same, Pass),
        case!("row vanished", RATIO, |r| keep(r, |k| k.layer != Some(0)), baseline same, Fail("the baseline has this row")),
        case!("row vanished, allowed", allow("rows"), |r| keep(r, |k| k.layer != Some(0)), baseline same, Pass),
        case!(
            "new row",
            RATIO,
            same,
            baseline | b | keep(b, |k| k.layer != Some(0)),
            Pass
        ),
        case!("other arch", allow("rows"), |r| rename_backend(r, "emulate", "sm_90"), baseline same, Refused("no row that report and baseline both have")),
        case!("other arch, allowed", allow("arch"), |r| rename_backend(r, "emulate", "sm_90"), baseline same, Pass),
        case!("other backend", "limit = [{ measure = 'rel_l2', max = 1 }]\n", |r| rename_backend(r, "cuda", "sm_120"), baseline same, Refused("both have")),
        case!("other backend, allowed", allow("backend"), |r| rename_backend(r, "cuda", "sm_120"), baseline same, Pass),
        case!(
            "nothing shared",
            RATIO,
            same,
            baseline | b | keep(b, |k| k.variant == "fp32"),
            Refused("no row that report and baseline both have")
        ),
        case!(
            "empty baseline",
            RATIO,
            same,
            baseline | b | keep(b, |_| false),
            Refused("the baseline has no records")
        ),
    ]);
}

/// A row of a device whose repeats were so far apart.
fn repeated(report: &mut Report, backend: &str, value: f64, spread: Option<f64>) {
    rename_backend(report, backend, "sm_120");
    change(report, |measures| {
        measures.rel_l2 = Some(Value(value));
        measures.rel_l2_spread = spread.map(Value);
    });
}

#[test]
fn what_lies_within_the_repeats_of_a_device_is_no_change() {
    run(vec![
        case!(
            "within the baseline's spread",
            RATIO,
            |r| repeated(r, "cuda", 2.9e-4, None),
            baseline | r | repeated(r, "cuda", 2e-4, Some(1e-4)),
            Pass
        ),
        case!(
            "within the report's spread",
            RATIO,
            |r| repeated(r, "cuda", 2.9e-4, Some(1e-4)),
            baseline | r | repeated(r, "cuda", 2e-4, Some(0.0)),
            Pass
        ),
        case!(
            "beyond floor and spread",
            RATIO,
            |r| repeated(r, "cuda", 3.2e-4, Some(1e-4)),
            baseline | r | repeated(r, "cuda", 2e-4, Some(1e-4)),
            Fail("by more than 1e-6 and the 1e-4 between repeats")
        ),
        case!(
            "no spread",
            RATIO,
            |r| repeated(r, "cuda", 2.9e-4, Some(0.0)),
            baseline | r | repeated(r, "cuda", 2e-4, Some(0.0)),
            Fail("by more than a factor 1.1 and by more than 1e-6")
        ),
        case!(
            "the emulator has no spread to speak of",
            RATIO,
            |r| repeated(r, "emulate", 2.9e-4, Some(1e-4)),
            baseline | r | repeated(r, "emulate", 2e-4, Some(1e-4)),
            Fail("is worse than the baseline's 2e-4")
        ),
    ]);
}

#[test]
fn a_spread_that_is_no_number_widens_nothing() {
    run(vec![
        case!(
            "NaN in the report",
            RATIO,
            |r| repeated(r, "cuda", 2e-4, Some(f64::NAN)),
            baseline | r | repeated(r, "cuda", 2e-4, Some(1e-4)),
            Fail("rel_l2 is NaN apart between repeats")
        ),
        case!(
            "NaN in the baseline",
            RATIO,
            |r| repeated(r, "cuda", 2e-4, Some(1e-4)),
            baseline | r | repeated(r, "cuda", 2e-4, Some(f64::NAN)),
            Fail("rel_l2 is NaN apart between repeats")
        ),
        case!(
            "infinite",
            RATIO,
            |r| repeated(r, "cuda", 2e-4, None),
            baseline | r | repeated(r, "cuda", 2e-4, Some(f64::INFINITY)),
            Fail("rel_l2 is inf apart between repeats")
        ),
        case!(
            "a bare baseline holds it too",
            "",
            |r| repeated(r, "cuda", 2e-4, Some(f64::NAN)),
            baseline | r | repeated(r, "cuda", 2e-4, None),
            Fail("rel_l2 is NaN apart between repeats")
        ),
    ]);
}
