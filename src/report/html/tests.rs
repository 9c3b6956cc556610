use std::collections::BTreeMap;

use super::*;
use crate::{
    measure::value::Value,
    report::{
        Breach, Class, Diagnosis, FaultFinding, GateOutcome, Growth, HeldOut, Key, Measures,
        NonFinite, Record, Records, Skipped, Timing, Verdict, fixtures,
    },
};

/// A name that tries to be markup, a second line, and a line that turns round.
const HOSTILE: &str = "<script>alert(\"1\")</script>\n'é漢' & \u{1}</style>";

fn row(suite: &str, variant: &str, key: Key, measures: Measures) -> Record {
    let base = fixtures::record(variant, 0, "attn", "", 0.0).key;
    Record {
        key: Key {
            suite: suite.to_owned(),
            inputs: base.inputs,
            token_class: base.token_class,
            tokens: base.tokens,
            backend: base.backend,
            arch: base.arch,
            variant: variant.to_owned(),
            ..key
        },
        measures,
    }
}

fn error(rel_l2: f64) -> Measures {
    Measures {
        rel_l2: Some(Value(rel_l2)),
        ..Measures::default()
    }
}

fn at(layer: u32, site: &str, stage: &str) -> Key {
    Key {
        layer: Some(layer),
        site: Some(site.to_owned()),
        depth: Some(layer + u32::from(site == "ffn")),
        stage: Some(stage.to_owned()),
        ..Key::default()
    }
}

fn chain(variant: &str, scale: f64) -> Vec<Record> {
    let key = |layer| Key {
        residual: Some("bf16".to_owned()),
        layer_io: Some("bf16".to_owned()),
        sublayer: Some("rms-norm".to_owned()),
        sites_on: Some("all".to_owned()),
        ..at(layer, "ffn", "streams")
    };
    let error_at = |layer: u32| error(scale * libm::sqrt(f64::from(layer + 1)));
    (0..8)
        .map(|layer| row("chain", variant, key(layer), error_at(layer)))
        .collect()
}

fn budget(variant: &str) -> Vec<Record> {
    let source = |source: &str, share: Option<f64>| {
        let key = Key {
            source: Some(source.to_owned()),
            ..at(0, "attn", "mixes")
        };
        let measures = Measures {
            share: share.map(Value),
            explained: share.is_none().then_some(Value(1.01)),
            ..error(1e-3)
        };
        row("budget", variant, key, measures)
    };
    vec![
        source("total", None),
        source("weight", Some(0.7)),
        source("output", Some(0.3)),
    ]
}

fn gains(variant: &str) -> Vec<Record> {
    let perturbed = |layer: u32| {
        let key = Key {
            direction: Some(format!("common {variant}")),
            layer: Some(layer),
            ..Key::default()
        };
        let measures = Measures {
            gain: Some(Value(1.0 / f64::from(layer + 1))),
            ..Measures::default()
        };
        row("gains", variant, key, measures)
    };
    let one_site = |layer| row("gains", variant, at(layer, "attn", "streams"), error(1e-5));
    (0..3)
        .flat_map(|layer| [perturbed(layer), one_site(layer)])
        .collect()
}

fn indexer(variant: &str, contexts: &[u64]) -> Vec<Record> {
    let selection = |context: u64| {
        let key = Key {
            layer: Some(2),
            stage: Some("top_k".to_owned()),
            context: Some(context),
            query_set: Some("all".to_owned()),
            k: Some(16),
            ..Key::default()
        };
        let measures = Measures {
            recall: Some(Value(0.97)),
            recall_worst: Some(Value(0.9)),
            margin_over_error: Some(Value(1e3 / context as f64)),
            ..Measures::default()
        };
        row("indexer", variant, key, measures)
    };
    contexts.iter().copied().map(selection).collect()
}

fn needle(variant: &str) -> Vec<Record> {
    let planted = |(margin, found): (&str, f64)| {
        let key = Key {
            layer: Some(2),
            context: Some(256),
            k: Some(16),
            needle_margin: Some(margin.to_owned()),
            needle_depth: Some("50".to_owned()),
            ..Key::default()
        };
        let measures = Measures {
            found: Some(Value(found)),
            ..Measures::default()
        };
        row("needle", variant, key, measures)
    };
    [("1", 0.5), ("4", 1.0), ("rank:3", 1.0)]
        .map(planted)
        .to_vec()
}

fn sweep(variant: &str) -> Vec<Record> {
    let batch = |tokens: u64| {
        let mut record = row("sweep", variant, at(0, "attn", "mixes"), error(1e-4));
        record.key.tokens = tokens;
        record.key.splits = Some(4);
        record.measures.row0_changed = Some(tokens);
        record
    };
    [0, 1, 64].map(|tokens| batch(tokens + 1)).to_vec()
}

/// A report with rows of every suite, for two variants each; of mix, tf32 has some already.
fn whole(first: &str) -> Report {
    let mut records = fixtures::mix_report().records.to_vec();
    for variant in [first, "bf16"] {
        for layer in [0, 17] {
            let mut dot = row("mix", variant, at(layer, "attn", "dot"), error(1e-3));
            dot.measures.time_us = Some(Value(12.5));
            records.push(dot);
            if variant != "tf32" {
                records.push(fixtures::mixes(variant, layer, "attn", 1e-3, 1e-6));
            }
        }
        records.push(fixtures::recombined(variant, "attn", "streams", 1e-7));
        records.push(fixtures::recombined(variant, "attn", "streams_bf16", 2e-3));
        records.extend(chain(variant, 2e-3));
        records.extend(budget(variant));
        records.extend(gains(variant));
        records.extend(indexer(variant, &[64, 8192]));
        records.extend(needle(variant));
        records.extend(sweep(variant));
    }
    let mut report = fixtures::report(records);
    report.verdicts = vec![
        verdict("bf16", Class::Noise),
        verdict(first, Class::Structural),
    ];
    report.timing = Some(Timing {
        copy_gb_per_s: Value(4190.0),
        inputs_of: vec!["L0.attn".to_owned()],
    });
    report.growth = vec![Growth {
        variant: first.to_owned(),
        fitted: 8,
        depth: 61,
        laws: vec!["2.00e-3·L^0.50".to_owned()],
        held_out: vec![HeldOut {
            law: "power".to_owned(),
            error: Value(1e-9),
        }],
        low: Some(Value(1.5e-2)),
        median: Some(Value(1.56e-2)),
        high: Some(Value(1.6e-2)),
        measured: None,
    }];
    fail(&mut report);
    report
}

fn verdict(variant: &str, class: Class) -> Verdict {
    Verdict {
        variant: variant.to_owned(),
        verdict: class,
        sentence: format!("{variant} is {}: for a test.", class.word()),
        suites: vec!["mix".to_owned()],
        not_run: Vec::new(),
    }
}

/// Gives a report one of everything that can go wrong.
fn fail(report: &mut Report) {
    let key = report.records[0].key.clone();
    report.gates = vec![GateOutcome {
        check: "suite=mix: rel_l2 max 1e-4".to_owned(),
        passed: false,
        matched: 24,
        breaches: vec![Breach {
            key: Some(key),
            value: Some(Value(f64::NAN)),
            limit: Some(Value(1e-4)),
            sentence: "rel_l2 NaN is not at most 1e-4".to_owned(),
            reproduce: Some("ulpdrift run 'a b'".to_owned()),
        }],
        improved: Vec::new(),
    }];
    report.failures = vec!["budget of fp32 does not add up".to_owned()];
    report.skipped = vec![Skipped {
        what: "mxfp4".to_owned(),
        why: "no such unit".to_owned(),
    }];
    report.non_finite = vec![NonFinite {
        variant: "f16".to_owned(),
        place: "L3.ffn".to_owned(),
        depth: 4,
        stage: "y".to_owned(),
        token: 7,
        value: Value(f64::INFINITY),
        came_with: Value(7e4),
        largest: Value(6e4),
    }];
    report.faults = vec![FaultFinding {
        fault: "transposed-comb".to_owned(),
        variant: "fp32".to_owned(),
        suite: "mix".to_owned(),
        place: "L0.ffn".to_owned(),
        stage: "comb".to_owned(),
        rel_l2: Value(0.3),
        without: None,
        worst_variant: "bf16".to_owned(),
        worst_rel_l2: Value(2e-3),
        times: Value(150.0),
    }];
    report.diagnoses = vec![Diagnosis {
        suite: "indexer".to_owned(),
        variant: "fp8-f32scale".to_owned(),
        fault: Some("keys-shifted".to_owned()),
        drawn: None,
        layer: 2,
        context: 256,
        k: 16,
        verdict: Some(Class::Structural),
        certificates: 3,
        bound_ratio: Value(3.5e7),
        cause: Some("keys shifted by 1".to_owned()),
        is_named: Some(true),
        is_recipe: false,
        recall: Value(1.0),
        misfit: None,
        next: "nothing".to_owned(),
        next_recall: Value(0.2),
        next_misfit: None,
        sentence: "matches keys shifted by 1".to_owned(),
    }];
}

/// The anchors of all elements of a kind, in the order of the page.
fn anchors<'a>(page: &'a str, tag: &str) -> Vec<&'a str> {
    let start = format!("<{tag} id=\"");
    let ids = page.split(&start).skip(1);
    ids.map(|rest| rest.split('"').next().unwrap_or_default())
        .collect()
}

fn count(page: &str, part: &str) -> usize {
    page.matches(part).count()
}

#[test]
fn a_report_of_every_suite_has_every_heading_figure_and_table() {
    let page = render(&whole("tf32"));
    let sections = [
        "verdicts",
        "checks",
        "depth",
        "heat",
        "budget",
        "gains",
        "recombine",
        "time",
        "sweep",
        "indexer",
        "needle",
        "bugs",
        "worst",
        "provenance",
    ];
    assert_eq!(anchors(&page, "section"), sections);
    let figures = [
        "figure-depth",
        "figure-heat",
        "figure-budget-mixes",
        "figure-gains-site",
        "figure-gains-plain",
        "figure-recombine",
        "figure-time",
        "figure-sweep",
        "figure-recall-16",
        "figure-margins",
        "figure-needle-256-16",
    ];
    assert_eq!(anchors(&page, "figure"), figures);
    let figures = count(&page, "<figure ");
    assert_eq!(
        count(&page, "role=\"img\""),
        2 * figures,
        "one for each width"
    );
    assert!(count(&page, "<table>") >= figures);
    assert_eq!(count(&page, "<table>"), count(&page, "<caption>"));
    assert_eq!(
        count(&page, "<th"),
        count(&page, " scope=\"") + count(&page, "<thead>")
    );
}

#[test]
fn what_ran_is_the_first_line_and_the_worst_verdict_the_first_verdict() {
    let page = render(&whole("tf32"));
    assert!(page.contains(
        "<h1><span class=\"kind synthetic\">SYNTHETIC</span> weights · emulate sm_120 · 64 tokens · inputs normal · seed 0</h1>\
         <p>synthetic:flash: flash, 43 layers, hidden 4096, 4 streams</p>"
    ));
    let verdicts: Vec<usize> = ["tf32 is structural", "bf16 is noise"]
        .map(|sentence| page.find(sentence).expect("a verdict"))
        .to_vec();
    assert!(verdicts.is_sorted());
    let mut real = fixtures::mix_report();
    real.run.checkpoint.kind = WeightKind::Real;
    real.run.backend.name = "cuda".to_owned();
    real.run.backend.device = Some("H200".to_owned());
    let page = render(&real);
    assert!(page.contains("<span class=\"kind real\">REAL</span> weights · cuda sm_120 · H200 ·"));
}

#[test]
fn the_page_asks_nobody_for_anything_and_stays_the_same() {
    let page = render(&whole("tf32"));
    for part in [
        "http:", "https:", "//www", "src=", "url(", "<link", "<img", "@import", "style=\"",
    ] {
        assert!(!page.contains(part), "{part}");
    }
    assert!(page.contains("content=\"default-src 'none'; style-src 'sha256-"));
    assert_eq!(page, render(&whole("tf32")));
    let same = serde_json::to_string(&whole("tf32")).expect("a report is JSON");
    let back: Report = serde_json::from_str(&same).expect("and reads back");
    assert_eq!(page, render(&back));
}

#[test]
fn names_from_outside_are_text() {
    let mut report = whole(HOSTILE);
    report.run.backend.device = Some(HOSTILE.to_owned());
    report.run.checkpoint.source = HOSTILE.to_owned();
    report.run.checkpoint.notes = vec![HOSTILE.to_owned()];
    report.run.command = vec![HOSTILE.to_owned()];
    report.failures.push(HOSTILE.to_owned());
    report.skipped[0].why = HOSTILE.to_owned();
    report.gates[0].check = HOSTILE.to_owned();
    report.gates[0].breaches[0].reproduce = Some(HOSTILE.to_owned());
    report.diagnoses[0].sentence = HOSTILE.to_owned();
    report.recipes = BTreeMap::from([(HOSTILE.to_owned(), serde_json::json!({ "a": HOSTILE }))]);
    let page = render(&report);
    assert_eq!(count(&page, "<script>"), 1, "its own");
    assert_eq!(count(&page, "</style>"), 1, "its own");
    assert!(!page.contains('\u{1}'));
    assert!(
        page.contains("&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;\\n'é漢' &amp; \\u{1}")
    );
}

#[test]
fn what_is_no_number_is_shown_as_such() {
    let mut records = whole("tf32").records.to_vec();
    let mut numbers = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0]
        .into_iter()
        .cycle();
    for record in &mut records {
        let measures = &mut record.measures;
        for measure in [
            &mut measures.rel_l2,
            &mut measures.share,
            &mut measures.gain,
            &mut measures.recall,
            &mut measures.recall_worst,
            &mut measures.margin_over_error,
            &mut measures.found,
            &mut measures.time_us,
            &mut measures.bound_ratio,
        ] {
            *measure = measure.and(numbers.next().map(Value));
        }
    }
    let mut report = whole("tf32");
    report.records = Records::new(records).expect("the keys are as they were");
    let page = render(&report);
    assert!(
        page.contains(">NaN</td>") && page.contains(">inf</td>") && page.contains(">-inf</td>")
    );
    let drawings = page.split("<svg").skip(1);
    for drawing in drawings {
        let drawing = drawing.split_once("</svg>").expect("a drawing ends").0;
        for attribute in ["x", "y", "cx", "cy", "points", "width", "height"] {
            for start in ["NaN", "inf"] {
                assert!(!drawing.contains(&format!(" {attribute}=\"{start}")));
            }
        }
    }
}

#[test]
fn what_was_not_run_has_no_section() {
    let headings = |report: &Report| count(&render(report), "<h2 ");
    let nothing = fixtures::report(Vec::new());
    assert_eq!(headings(&nothing), 1, "provenance alone");
    let page = render(&fixtures::mix_report());
    for id in ["heat", "worst", "provenance"] {
        assert_eq!(count(&page, &format!("<section id=\"{id}\"")), 1, "{id}");
        assert_eq!(count(&page, &format!("href=\"#{id}\"")), 1, "{id}");
    }
    for id in [
        "verdicts", "checks", "depth", "budget", "time", "indexer", "needle", "bugs",
    ] {
        assert!(!page.contains(&format!("#{id}\"")), "{id}");
    }
}

#[test]
fn one_context_is_a_row_per_variant() {
    let records = indexer("fp8", &[8192]);
    let page = render(&fixtures::report(records));
    assert!(page.contains("Recall at k = 16, context 8192."));
    assert!(!page.contains("by tokens of context"));
}

#[test]
fn every_worst_case_has_its_command() {
    let report = whole("tf32");
    let page = render(&report);
    let worst = page
        .split_once("<section id=\"worst\"")
        .expect("worst cases")
        .1;
    let worst = worst.split_once("</section>").expect("that end").0;
    assert_eq!(
        count(worst, "<li>"),
        count(
            worst,
            "<code class=\"command\">ulpdrift run synthetic:flash"
        )
    );
    assert!(count(worst, "<li>") >= 12);
}
