//! Journals, parts and what keeps them apart.

mod journal;

use super::{
    assemble,
    join::{Source, join},
};
use crate::{
    checkpoint::Digests,
    report::{
        Found, Host, Report, Skipped, fixtures,
        part::{CaseName, Finished, Head, Share},
    },
    verdict::VerdictLimits,
};

fn case(place: &str) -> CaseName {
    CaseName {
        suite: "mix".to_owned(),
        place: place.to_owned(),
    }
}

fn head() -> Head {
    let report = fixtures::report(Vec::new());
    Head {
        tool: report.tool,
        run: report.run,
        flags: [("--seed".to_owned(), "3".to_owned())].into(),
        fingerprints: [("the checkpoint".to_owned(), "sha256:00".to_owned())].into(),
        recipes: report.recipes,
        skipped: vec![Skipped {
            what: "suite chain".to_owned(),
            why: "gaps".to_owned(),
        }],
        cases: ["L0.attn", "L0.ffn", "L1.attn", "L1.ffn"].map(case).into(),
    }
}

/// A case with two rows and a weight of its own.
fn finished(place: &str) -> Finished {
    let (layer, site) = place[1..].split_once('.').unwrap();
    let layer = layer.parse().unwrap();
    let records = vec![
        fixtures::record("fp32", layer, site, "mixes", 1e-7),
        fixtures::record("bf16", layer, site, "mixes", f64::from(layer + 1) * 1e-3),
    ];
    let mut found = Found {
        yardstick: records[..1].to_vec(),
        records,
        ..Found::default()
    };
    found.read.digests.add(place, "F32", &[1], |_| {});
    found.read.stored_as("BF16");
    Finished {
        case: case(place),
        seconds: 0.5.into(),
        rows: 2,
        compiled: Default::default(),
        found,
    }
}

fn host() -> Host {
    Host {
        platform: "linux x86_64".to_owned(),
        threads: 2,
        simd: "avx2".to_owned(),
        seconds: Some(1.0.into()),
    }
}

fn whole(places: &[&str]) -> Report {
    let finished = places.iter().map(|place| finished(place)).collect();
    let limits = VerdictLimits::default();
    assemble::whole(head(), finished, &limits, Some(host())).unwrap()
}

fn part(number: u64, of: u64, done: &[&str], missing: &[&str]) -> Source {
    part_of(head(), number, of, done, missing)
}

fn part_of(head: Head, number: u64, of: u64, done: &[&str], missing: &[&str]) -> Source {
    let done = done.iter().map(|place| finished(place)).collect();
    let missing = missing.iter().map(|place| case(place)).collect();
    let share = Share { number, of };
    Source {
        name: format!("p{number}.json"),
        report: assemble::part(head, share, done, missing, Some(host())).unwrap(),
    }
}

const ALL: [&str; 4] = ["L0.attn", "L0.ffn", "L1.attn", "L1.ffn"];

#[test]
fn parts_joined_are_the_whole_but_for_the_time() {
    let sources = vec![
        part(2, 2, &["L1.attn", "L1.ffn"], &[]),
        part(1, 2, &["L0.attn", "L0.ffn"], &[]),
    ];
    let joined = join(sources, &VerdictLimits::default()).unwrap();
    let expected = Report {
        host: Some(Host {
            seconds: Some(2.0.into()),
            ..host()
        }),
        ..whole(&ALL)
    };
    assert_eq!(joined, expected);
    assert_eq!(joined.verdicts.len(), 2);
    assert_eq!(joined.records.len(), 8);
    let notes = &joined.run.checkpoint.notes;
    assert!(notes.iter().any(|note| note.contains("stored as BF16")));
}

#[test]
fn a_part_reaches_no_verdict_and_says_what_it_is() {
    let own = part(2, 4, &["L1.attn"], &["L1.ffn"]).report;
    assert!(own.verdicts.is_empty());
    let carried = own.part.unwrap();
    assert_eq!(
        carried.headline(),
        "PART 2 of 4, INTERRUPTED after 1 of 2 cases"
    );
    assert!(carried.finished[0].found.records.is_empty());
    let interrupted = part(1, 1, &["L0.attn"], &["L0.ffn", "L1.attn", "L1.ffn"]).report;
    let headline = interrupted.part.unwrap().headline();
    assert_eq!(headline, "INTERRUPTED after 1 of 4 cases");
}

#[track_caller]
fn assert_not_joined(sources: Vec<Source>, parts: &[&str]) {
    let error = join(sources, &VerdictLimits::default()).expect_err("refused");
    let said = error.to_string();
    assert!(!said.contains('\n'), "{said}");
    for part in parts {
        assert!(said.contains(part), "no {part:?} in {said:?}");
    }
}

#[test]
fn what_is_missing_is_said() {
    assert_not_joined(
        vec![part(1, 4, &["L0.attn"], &[]), part(3, 4, &["L1.attn"], &[])],
        &[
            "2 of 4 cases are missing",
            "mix L0.ffn, mix L1.ffn",
            "parts 2/4, 4/4 are not among the reports",
        ],
    );
    assert_not_joined(
        vec![
            part(1, 2, &["L0.attn", "L0.ffn"], &[]),
            part(2, 2, &["L1.attn"], &["L1.ffn"]),
        ],
        &["1 of 4 cases", "p2.json was interrupted", "--resume"],
    );
    assert_not_joined(Vec::new(), &["no report is named"]);
}

#[test]
fn parts_that_do_not_belong_together_are_refused() {
    let first = || part(1, 2, &["L0.attn", "L0.ffn"], &[]);
    let second = |head| part_of(head, 2, 2, &["L1.attn", "L1.ffn"], &[]);
    let mut other_seed = head();
    other_seed.flags.insert("--seed".to_owned(), "4".to_owned());
    let mut no_flag = head();
    no_flag.flags.clear();
    let mut other_tool = head();
    other_tool.tool.version = "9.9.9".to_owned();
    let mut other_weights = head();
    let changed = ("the checkpoint".to_owned(), "sha256:11".to_owned());
    other_weights.fingerprints = [changed].into();
    let mut other_source = head();
    other_source.run.checkpoint.source = "elsewhere".to_owned();
    let mut other_arch = head();
    other_arch.run.backend.arch = "sm_80".to_owned();
    let mut other_recipe = head();
    other_recipe.recipes.insert("mine".to_owned(), 1.into());
    let mut other_cases = head();
    other_cases.cases.push(case("L2.attn"));
    for (head, said) in [
        (other_seed, "--seed is '3' here and '4' there"),
        (no_flag, "--seed is '3' here and not given there"),
        (other_tool, "the version is"),
        (other_weights, "the checkpoint has changed"),
        (other_source, "'elsewhere'"),
        (other_arch, "the backend is"),
        (other_recipe, "recipe 'mine' is another"),
        (other_cases, "it has mix L2.attn besides"),
    ] {
        assert_not_joined(
            vec![first(), second(head)],
            &["p2.json is a part of another run than p1.json", said],
        );
    }
    assert_not_joined(
        vec![first(), part(2, 3, &["L1.attn"], &[])],
        &["p2.json is part 2 of 3, and p1.json is part 1 of 2"],
    );
    assert_not_joined(
        vec![first(), part(2, 2, &["L0.ffn", "L1.attn"], &[])],
        &["p2.json has mix L0.ffn, which p1.json has as well"],
    );
    assert_not_joined(
        vec![first(), part(2, 2, &["L7.attn"], &[])],
        &["mix L7.attn, which is no case of its run"],
    );
    assert_not_joined(
        vec![first(), part(3, 2, &["L1.attn"], &[])],
        &["p3.json says that it is part 3 of 2"],
    );
    let plain = Source {
        name: "p2.json".to_owned(),
        report: whole(&ALL),
    };
    assert_not_joined(
        vec![first(), plain],
        &["p2.json is the report of a whole run"],
    );
}

#[test]
fn rows_and_weights_have_to_be_those_of_the_cases() {
    let first = || part(1, 2, &["L0.attn", "L0.ffn"], &[]);
    let mut fewer = part(2, 2, &["L1.attn", "L1.ffn"], &[]);
    fewer.report.part.as_mut().unwrap().finished[0].rows = 1;
    assert_not_joined(vec![first(), fewer], &["4 rows, and its cases have 3"]);

    let mut other = part(2, 2, &["L1.attn", "L1.ffn"], &[]);
    let cases = &mut other.report.part.as_mut().unwrap().finished;
    let mut digests = Digests::default();
    digests.add("L0.attn", "F16", &[1], |_| {});
    cases[0].found.read.digests = digests;
    assert_not_joined(vec![first(), other], &["another checkpoint", "L0.attn"]);
}

#[test]
fn a_suite_without_a_row_ends_like_a_run_in_one_go() {
    let left_out = |mut source: Source| {
        let part = source.report.part.as_mut().unwrap();
        for one in &mut part.finished {
            one.rows = 0;
            one.found = Found::default();
            one.found.read.skip(Skipped {
                what: one.case.place.clone(),
                why: "no x".to_owned(),
            });
        }
        source.report.records = Default::default();
        source
    };
    let sources = vec![
        left_out(part(1, 2, &["L0.attn", "L0.ffn"], &[])),
        left_out(part(2, 2, &["L1.attn", "L1.ffn"], &[])),
    ];
    assert_not_joined(sources, &["suite mix has nothing to run: L0.attn: no x"]);
}

#[test]
fn weights_that_change_within_a_run_make_no_report() {
    let mut later = finished("L0.ffn");
    later.found.read.digests = Digests::default();
    later.found.read.digests.add("L0.attn", "F16", &[1], |_| {});
    let cases = vec![finished("L0.attn"), later];
    let error = assemble::whole(head(), cases, &VerdictLimits::default(), None).unwrap_err();
    let said = error.to_string();
    assert!(
        said.contains("L0.attn was not the same when mix L0.ffn"),
        "{said}"
    );
}

/// What `run --part 1/1` writes.
#[test]
fn the_only_part_is_the_whole() {
    let lone = Source {
        name: "p1.json".to_owned(),
        report: whole(&ALL),
    };
    assert_eq!(
        join(vec![lone], &VerdictLimits::default()).unwrap(),
        whole(&ALL)
    );
}

/// A thresholds file moves the verdicts of such a report as it does those of parts.
#[test]
fn the_only_part_is_judged_by_the_limits_given() {
    let limits = VerdictLimits {
        noise_cosine_gap: 0.0,
        ..VerdictLimits::default()
    };
    let lone = Source {
        name: "p1.json".to_owned(),
        report: whole(&ALL),
    };
    let parts = vec![
        part(1, 2, &["L0.attn", "L0.ffn"], &[]),
        part(2, 2, &["L1.attn", "L1.ffn"], &[]),
    ];
    let judged = join(vec![lone], &limits).unwrap().verdicts;
    assert_eq!(judged, join(parts, &limits).unwrap().verdicts);
    assert_ne!(judged, whole(&ALL).verdicts);
}
