mod hostile;
mod indexers;

use super::*;
use crate::{
    measure::value::Value,
    recipe::{RecombineRecipe, catalogue},
    report::{
        Class, NonFinite, Records, Verdict,
        fixtures::{self, record},
    },
};

/// Everything that is said, in one text.
fn text(blocks: &[Block]) -> String {
    let mut text = String::new();
    for block in blocks {
        text.push_str(&block.title);
        text.push('\n');
        for paragraph in &block.paragraphs {
            let (Paragraph::Text(said) | Paragraph::Command(said)) = paragraph;
            text.push_str("  ");
            text.push_str(said);
            text.push('\n');
        }
    }
    text
}

#[track_caller]
fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
}

/// A variant's errors at one site: mixes in its two parts, post, comb, y and y_bf16.
struct Errors {
    operand: f64,
    arith: f64,
    post: f64,
    comb: f64,
    y: f64,
    y_bf16: f64,
}

const fn errors(operand: f64, arith: f64, handed_on: [f64; 4]) -> Errors {
    let [post, comb, y, y_bf16] = handed_on;
    Errors {
        operand,
        arith,
        post,
        comb,
        y,
        y_bf16,
    }
}

fn rows_of(variant: &str, layer: u32, errors: &Errors) -> Vec<Record> {
    let mut mixes = fixtures::mixes(variant, layer, "ffn", errors.operand, errors.arith);
    mixes.measures.slope = Some(Value(-errors.operand * 0.8));
    let row = |stage, rel_l2| record(variant, layer, "ffn", stage, rel_l2);
    vec![
        mixes,
        row("post", errors.post),
        row("comb", errors.comb),
        row("y", errors.y),
        row("y_bf16", errors.y_bf16),
    ]
}

fn with_recipes(mut report: Report) -> Report {
    for recipe in catalogue::builtin() {
        if report.recipes.contains_key(&recipe.name) {
            let described = serde_json::to_value(&recipe).unwrap();
            report.recipes.insert(recipe.name, described);
        }
    }
    report
}

/// fp32 shows the rounding (1.7e-3 beside a y of 1e-7); tf32 is off by at most 2e-4 (comb), bf16 by 9e-4, bf16-prenorm by
/// 2e-3 at one site.
fn mixing() -> Report {
    let mut rows = Vec::new();
    for layer in [0, 17] {
        for (variant, errors) in [
            ("fp32", errors(0.0, 3e-7, [1e-7, 2e-7, 1e-7, 1.7e-3])),
            ("tf32", errors(2e-4, 5e-7, [1e-4, 2e-4, 5e-5, 1.71e-3])),
            ("bf16", errors(1.6e-3, 2e-7, [8e-4, 9e-4, 4e-4, 1.75e-3])),
            (
                "bf16-prenorm",
                errors(
                    2e-3,
                    1.5e-3,
                    [8e-4, 1e-3 * (1.0 + f64::from(layer) / 17.0), 6e-4, 1.8e-3],
                ),
            ),
        ] {
            rows.extend(rows_of(variant, layer, &errors));
        }
    }
    with_recipes(fixtures::report(rows))
}

fn verdict(variant: &str, class: Class, suite: &str) -> Verdict {
    Verdict {
        variant: variant.to_owned(),
        verdict: class,
        sentence: String::new(),
        suites: vec![suite.to_owned()],
        not_run: Vec::new(),
    }
}

fn explained(report: &Report, conditions: &[&str]) -> String {
    let conditions: Vec<String> = conditions.iter().map(|&text| text.to_owned()).collect();
    text(&rows(report, &conditions).unwrap())
}

fn refused(report: &Report, conditions: &[&str]) -> String {
    let conditions: Vec<String> = conditions.iter().map(|&text| text.to_owned()).collect();
    rows(report, &conditions).unwrap_err().to_string()
}

/// By hand: bf16 takes one product at 16 values of k per instruction, tf32 one at 8, fp32 one at 1; bf16-prenorm, as cheap
/// as bf16, is off by 2e-3 in comb of layer 17, above 1.7e-3.
#[test]
fn the_cheapest_that_the_layers_own_rounding_hides_is_named() {
    let text = text(&overview(&mixing()));
    says(
        &text,
        &[
            "(fp32 makes y to 1.00e-7 and y_bf16 to 1.70e-3",
            "is bf16, bf16 x and weight, fp32 result: 1 product, 16 values of k per matrix instruction. What it hands on is off \
             by at most 9.00e-4 (comb of L0.ffn) beside 1.70e-3.",
            "Below it as well, by cost: tf32 (1 product, 8 values of k per matrix instruction; 2.00e-4 (comb of L0.ffn) beside \
             1.70e-3), fp32 (1 product, one value of k at a time on the CUDA cores; 2.00e-7",
            "Not below it: bf16-prenorm (2.00e-3 (comb of L17.ffn) beside 1.70e-3).",
        ],
    );
}

#[test]
fn times_decide_where_all_are_timed() {
    let timed = |skip: &str| {
        let mut report = mixing();
        let mut rows = report.records.to_vec();
        let times = [
            ("fp32", 20.0),
            ("tf32", 5.0),
            ("bf16", 7.0),
            ("bf16-prenorm", 6.0),
        ];
        for (variant, time) in times.into_iter().filter(|(name, _)| *name != skip) {
            let mut row = record(variant, 0, "ffn", "dot", 1e-4);
            row.measures.time_us = Some(Value(time));
            rows.push(row);
        }
        report.records = Records::new(rows).unwrap();
        text(&overview(&report))
    };
    says(
        &timed(""),
        &[
            "by the projection's median time (time_us), is tf32",
            "5.00 us",
        ],
    );
    says(&timed("fp32"), &["is bf16, bf16 x and weight"]);
}

#[test]
fn what_is_a_bug_or_has_no_recipe_is_no_advice() {
    let mut report = mixing();
    report.verdicts = vec![verdict("bf16", Class::Structural, "mix")];
    says(
        &text(&overview(&report)),
        &["that is hidden, by the number", "is tf32, weight to TF32"],
    );
    report
        .recipes
        .insert("tf32".to_owned(), serde_json::json!({"name": 3}));
    says(
        &text(&overview(&report)),
        &["is fp32, fp32 operands", "tf32 (cost not known;"],
    );
}

#[test]
fn where_none_is_hidden_the_command_that_measures_some_is_named() {
    let mut rows = Vec::new();
    for (variant, errors) in [
        ("fp32", errors(0.0, 3e-7, [2e-3, 2e-7, 1e-7, 1.7e-3])),
        (
            "bf16",
            errors(1.6e-3, 2e-7, [8e-4, f64::NAN, 4e-4, 1.75e-3]),
        ),
    ] {
        rows.extend(rows_of(variant, 0, &errors));
    }
    let text = text(&overview(&with_recipes(fixtures::report(rows))));
    says(
        &text,
        &[
            "No variant of this report is hidden: fp32 has 2.00e-3 (post of L0.ffn) beside 1.70e-3, bf16 has NaN (comb of L0.ffn)",
            "ulpdrift run synthetic:flash --suite mix --variants 'tf32x2,tf32x3,bf16x2,bf16x3' --tokens 64",
        ],
    );
    assert!(!text.contains("The cheapest variant"), "{text}");
}

#[test]
fn a_rounding_that_cannot_be_told_is_not_made_up() {
    let alone = rows_of(
        "bf16",
        0,
        &errors(1.6e-3, 2e-7, [8e-4, 9e-4, 4e-4, 1.75e-3]),
    );
    let blurred = text(&overview(&with_recipes(fixtures::report(alone.clone()))));
    says(
        &blurred,
        &[
            "cannot be told from the variants' own errors: the best y is 4.00e-4 (bf16), its y_bf16 1.75e-3",
            "--variants 'fp32,bf16'",
        ],
    );
    let lacking = fixtures::report(alone[..1].to_vec());
    says(
        &text(&overview(&lacking)),
        &[
            "no rows of suite mix at stages y and y_bf16",
            "--variants 'fp32,bf16'",
        ],
    );
}

/// By hand: of 2e-4² + 5e-7² the first is 99.9994 %; a slope of −0.8·2e-4 is 64 % of the square of the error; 1/2.0e-4 is
/// 5000.
#[test]
fn a_row_says_which_part_is_which_rounding() {
    let report = mixing();
    let text = explained(&report, &["variant=tf32", "layer=17", "stage=mixes"]);
    says(
        &text,
        &[
            "mix L17.ffn mixes tf32\n",
            "Variant tf32: weight to TF32, nearest-even; engines' split formula.",
            "SYNTHETIC weights, emulate on sm_120, 64 tokens, inputs normal, seed 0.",
            "rel_l2 2.00e-4, an error of 1 part in 5000 of the truth",
            "rounding the operands costs 2.00e-4 (operand_rel_l2)",
            "Of the square of the two, more than 99.9 % is the operands'.",
            "everything comes out 1.60e-4 too small (slope), which is 64.0 % of its square",
            "takes 0.11 of what this recipe's arithmetic can be off by",
            "off by 5.00e-5 before it is rounded to bf16 and by 1.71e-3 after (y, y_bf16)",
            "ulpdrift run synthetic:flash --suite mix --variants tf32 --layers 17 --sites ffn",
            "tf32 itself stays below the rounding of the layer input to bf16 at every site: at most 2.00e-4",
            "What tf32 does, step by step",
            "tensor core m16n8k8 TF32",
        ],
    );
}

/// By hand: bf16-prenorm's operands are 2e-3² of 2e-3² + 1.5e-3² = 64 %.
#[test]
fn two_roundings_of_like_size_are_weighed() {
    let text = explained(
        &mixing(),
        &["variant=bf16-prenorm", "layer=0", "stage=mixes"],
    );
    says(
        &text,
        &["Of the square of the two, 64.0 % is the operands'."],
    );
    says(
        &text,
        &["bf16-prenorm itself does not stay below the rounding"],
    );
}

#[test]
fn a_budget_is_told_source_by_source() {
    let mut report = mixing();
    let mut rows = report.records.to_vec();
    for (source, share, rel_l2) in [
        ("unit", 0.01, 2e-5),
        ("weight", 0.99, 1.99e-4),
        ("total", 1.0, 2e-4),
    ] {
        let mut row = record("tf32", 17, "ffn", "mixes", rel_l2);
        row.key.suite = "budget".to_owned();
        row.key.source = Some(source.to_owned());
        match source {
            "total" => row.measures.explained = Some(Value(1.002)),
            _ => row.measures.share = Some(Value(share)),
        }
        rows.push(row);
    }
    report.records = Records::new(rows).unwrap();
    let text = explained(
        &report,
        &["suite=mix", "variant=tf32", "layer=17", "stage=mixes"],
    );
    says(
        &text,
        &[
            "rounding hc_fn 99.0 % (weight, 1.99e-4), the multiply unit's own sums 1.00 % (unit, 2.00e-5). Together they come to \
           1.002 times what is measured",
        ],
    );
    let own = explained(&report, &["suite=budget", "source=weight"]);
    says(
        &own,
        &[
            "Source weight: rounding hc_fn, alone.",
            "99.0 % of the square of all sources",
        ],
    );
}

fn chain(variant: &str, depth: u32, rel_l2: f64) -> Record {
    let mut row = record(variant, depth - 1, "ffn", "streams", rel_l2);
    row.key.suite = "chain".to_owned();
    row.key.residual = Some("bf16".to_owned());
    row.key.layer_io = Some("bf16".to_owned());
    row.measures.against_rel_l2 = Some(Value(5.7e-3));
    row.measures.changed = Some(Value(0.25));
    row
}

#[test]
fn the_streams_stand_beside_those_of_the_other_variants() {
    let rows = vec![
        chain("fp32", 43, 8.22e-3),
        chain("tf32", 43, 8.18e-3),
        chain("bf16", 43, 8.21e-3),
        chain("tf32", 1, 2.5e-3),
    ];
    let report = with_recipes(fixtures::report(rows));
    let text = explained(&report, &["variant=tf32", "depth=43"]);
    says(
        &text,
        &[
            "after 43 layers, streams of tf32 is off by 8.18e-3; over the variants of this report it is 8.18e-3 (tf32) to \
             8.22e-3 (fp32).",
            "it is 5.70e-3 from fp32's (against_rel_l2); 25.0 % of the outputs have other bits",
            "The streams are stored in bf16",
        ],
    );
}

#[test]
fn where_a_chain_ends_is_told() {
    let mut report = with_recipes(fixtures::report(vec![chain("f16", 2, 1e-3)]));
    report.non_finite = vec![NonFinite {
        variant: "f16".to_owned(),
        place: "L2.attn".to_owned(),
        depth: 2,
        stage: "dot".to_owned(),
        token: 5,
        value: Value(f64::INFINITY),
        came_with: Value(70000.0),
        largest: Value(65504.0),
    }];
    report.verdicts = vec![verdict("f16", Class::Broken, "chain")];
    says(
        &text(&overview(&report)),
        &[
            "f16 is broken",
            "Its chain ends at L2.attn: dot of token 5 is inf; the streams that the token came with are at most 7.00e4.",
        ],
    );
}

#[test]
fn the_worst_verdict_stands_first() {
    let mut report = mixing();
    report.verdicts = vec![
        verdict("fp32", Class::Exact, "mix"),
        verdict("tf32", Class::Noise, "mix"),
        verdict("bf16", Class::Broken, "mix"),
    ];
    let blocks = overview(&report);
    let titles: Vec<&str> = blocks.iter().map(|block| block.title.as_str()).collect();
    assert_eq!(
        titles,
        [
            "SYNTHETIC weights",
            "bf16 is broken",
            "tf32 is noise",
            "fp32 is exact",
            "bf16-prenorm (without a verdict)",
            "What would help",
            "More"
        ]
    );
}

#[test]
fn a_recombination_stands_beside_the_storage_of_the_streams() {
    let mut rows = Vec::new();
    for (variant, streams, stored) in [("fp32", 5e-8, 1.7e-3), ("transformers", 1.9e-3, 2.6e-3)] {
        rows.push(fixtures::recombined(variant, "ffn", "streams", streams));
        rows.push(fixtures::recombined(variant, "ffn", "streams_bf16", stored));
    }
    let mut report = fixtures::report(rows);
    for recipe in RecombineRecipe::ALL {
        let title = RecombineRecipe::title(recipe.name);
        report
            .recipes
            .insert(title, serde_json::to_value(recipe).unwrap());
    }
    let text = explained(&report, &["variant=transformers", "stage=streams"]);
    says(
        &text,
        &[
            "Storing the streams in bf16 costs 1.70e-3 at worst whatever the kernel does (fp32 makes them to 5.00e-8 before \
             that). Below that at every site: fp32 (5.00e-8).",
            "Not below it: transformers (1.90e-3).",
            "What recombine transformers does, step by step",
        ],
    );
}

#[test]
fn a_report_in_words_as_it_is_read() {
    let mut report = mixing();
    report.verdicts = vec![
        verdict("fp32", Class::Exact, "mix"),
        verdict("tf32", Class::Noise, "mix"),
        verdict("bf16", Class::Noise, "mix"),
        verdict("bf16-prenorm", Class::Degraded, "mix"),
    ];
    insta::assert_snapshot!("overview", text(&overview(&report)));
    let row = explained(&report, &["variant=tf32", "layer=17", "stage=mixes"]);
    insta::assert_snapshot!("row", row);
}
