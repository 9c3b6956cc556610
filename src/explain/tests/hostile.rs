use super::*;
use crate::report::Measures;

#[test]
fn rows_that_are_not_meant_are_refused_with_those_that_are() {
    let report = mixing();
    for (conditions, parts) in [
        (vec!["mixes"], vec!["--row 'mixes' is no condition"]),
        (vec!["stage="], vec!["--row 'stage=' is no condition"]),
        (
            vec!["staje=mixes"],
            vec!["'staje=mixes'", "fields are suite, layer, site"],
        ),
        (
            vec!["layer=3", "variant=tf32", "stage=mixes"],
            vec![
                "layer=3,variant=tf32,stage=mixes means no row",
                "layer there is 0, 17",
            ],
        ),
        (
            vec!["layer=3", "variant=nope"],
            vec!["layer is one of 0, 17; variant is one of fp32, tf32, bf16, bf16-prenorm"],
        ),
        (vec!["context=64"], vec!["no row has a context"]),
        (
            vec!["variant=tf32"],
            vec![
                "means 10 rows, and at most 4",
                "layer (0, 17)",
                "stage (mixes, post, comb, y, y_bf16)",
            ],
        ),
    ] {
        let message = refused(&report, &conditions);
        for part in parts {
            assert!(message.contains(part), "no {part:?} in {message}");
        }
        assert!(!message.contains('\n'));
    }
    let empty = fixtures::report(Vec::new());
    says(&refused(&empty, &["layer=3"]), &["no rows at all"]);
}

#[test]
fn rows_of_a_bug_are_meant_by_its_name_only() {
    let mut report = mixing();
    let mut rows = report.records.to_vec();
    let mut faulty = rows[0].clone();
    faulty.key.fault = Some("transposed-comb".to_owned());
    rows.push(faulty);
    report.records = Records::new(rows).unwrap();
    let conditions = ["variant=fp32", "layer=0", "stage=mixes"];
    assert!(!explained(&report, &conditions).contains("transposed-comb"));
    let named = explained(&report, &["fault=transposed*"]);
    says(&named, &["The known bug transposed-comb was built into it"]);
}

/// Whatever somebody wrote into a report that still reads: it is said, and nothing panics.
#[test]
fn hostile_reports_are_explained() {
    let empty = fixtures::report(Vec::new());
    says(
        &text(&overview(&empty)),
        &["There is nothing to explain: the report has no rows."],
    );

    let mut bare = mixing();
    let mut rows = bare.records.to_vec();
    for row in &mut rows {
        row.measures = Measures::default();
    }
    bare.records = Records::new(rows.clone()).unwrap();
    says(
        &text(&overview(&bare)),
        &["no rows of suite mix at stages y and y_bf16"],
    );
    assert!(
        explained(&bare, &["variant=tf32", "layer=0", "stage=mixes"])
            .contains("To measure this row")
    );

    let mut nan = mixing();
    for row in &mut rows {
        let nan = Some(Value(f64::NAN));
        row.measures = Measures {
            rel_l2: nan,
            operand_rel_l2: nan,
            arith_rel_l2: nan,
            slope: nan,
            bound_ratio: nan,
            nan_got: Some(7),
            worst_index: Some(3),
            worst_got: nan,
            worst_ref: nan,
            ..Measures::default()
        };
    }
    nan.records = Records::new(rows.clone()).unwrap();
    let all = text(&overview(&nan));
    says(&all, &["off by NaN"]);
    assert!(!all.contains("The cheapest variant"), "{all}");
    let row = explained(&nan, &["variant=tf32", "layer=0", "stage=mixes"]);
    says(
        &row,
        &[
            "rel_l2 NaN",
            "7 NaN where the variant computed them",
            "No rounding explains that",
        ],
    );

    let mut unknown = mixing();
    for row in &mut rows {
        row.key.variant = format!("v {}", row.key);
        row.key.suite = "\u{1b}[2J".to_owned();
        row.key.stage = Some("elsewhere".to_owned());
    }
    unknown.records = Records::new(rows).unwrap();
    unknown.recipes.clear();
    says(&text(&overview(&unknown)), &["without a verdict"]);
    let row = explained(&unknown, &["variant=*layer=0 *stage=y variant=tf32*"]);
    says(
        &row,
        &[
            "knows nothing about",
            "which the report describes no further",
        ],
    );
}
