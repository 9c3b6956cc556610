//! `inspect A --against B`: two checkpoints of one model side by side.

use std::process::Command;

use crate::{
    spellings::{as_is, is_hc, map, official, spellings, store, write},
    support::Directory,
};

/// Exit code and what was printed.
fn against(a: &str, b: &str, more: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_ulpdrift"))
        .args(["inspect", a, "--against", b])
        .args(more)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    println!("{stdout}{stderr}");
    for line in stdout.lines().skip(2) {
        assert!(line.chars().count() <= 80, "too wide: {line}");
    }
    (output.status.code().unwrap(), stdout, stderr)
}

#[test]
fn the_same_model_in_another_spelling_does_not_differ() {
    let directory = Directory::tiny();
    let model = official(&directory);
    let a = write(&directory, "a", &model, as_is);
    for (place, spell) in spellings() {
        let b = write(&directory, place, &model, spell);
        let (code, text, _) = against(&a, &b, &[]);
        assert_eq!(code, 0);
        assert!(text.contains("\n0 tensors differ, "), "{text}");
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("0 are only in A, 0 only in B"), "{text}");
        assert!(
            !text.contains("tensors that differ") && !text.contains("selection"),
            "{text}"
        );
    }
}

#[test]
fn a_cast_to_bf16_moves_the_mixes_and_nothing_else() {
    let directory = Directory::tiny();
    let mut cast = official(&directory);
    let b = {
        map(&mut cast, is_hc, |tensor| {
            store(tensor, "BF16", |value| value);
        });
        write(&directory, "b", &cast, as_is)
    };
    // The one that was not rounded first.
    let a = directory.spec("ckpt");
    let (code, text, _) = against(&a, &b, &[]);
    assert_eq!(code, 0);
    let sites: Vec<Vec<&str>> = text
        .lines()
        .skip_while(|line| !line.starts_with("site "))
        .skip(1)
        .take_while(|line| line.starts_with('L'))
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(sites.len(), 8, "{text}");
    for site in &sites {
        let moved: f64 = site[1].parse().unwrap();
        assert!((1e-3..2.5e-3).contains(&moved), "{moved}");
    }
    let (worst, comb) = (sites[0][0], sites[0][5]);
    let summary =
        format!("B's weights move comb of {worst} by {comb} rel_l2, the most of 8 sites.");
    assert!(text.contains(&summary), "{text}");
    let rows: Vec<Vec<&str>> = text
        .lines()
        .skip_while(|line| !line.starts_with("tensors that differ"))
        .skip(1)
        .take_while(|line| line.starts_with("layers."))
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert!(rows.len() >= 8, "{text}");
    assert!(
        rows.iter()
            .all(|row| row[0].contains(".hc_") && row[1..3] == ["F32", "BF16"])
    );
    let rel_l2 = |row: &Vec<&str>| row[3].parse::<f64>().unwrap();
    assert!(rows.is_sorted_by(|x, y| rel_l2(x) >= rel_l2(y)), "{text}");
    let (_, text, _) = against(&a, &b, &["--only", "indexer"]);
    assert!(
        text.contains("\n0 tensors differ, ") && !text.contains("mixes"),
        "{text}"
    );
}

#[test]
fn another_indexer_selects_other_keys() {
    let directory = Directory::tiny();
    let mut model = official(&directory);
    let a = write(&directory, "a", &model, as_is);
    map(
        &mut model,
        |name| name.contains("indexer.wq_b.scale"),
        |tensor| tensor.bytes[0] += 1,
    );
    map(
        &mut model,
        |name| name.contains("indexer.compressor.wkv"),
        |tensor| {
            store(tensor, "BF16", |value| value * 1.07 + 0.003);
        },
    );
    model.remove("hc_head_base");
    let b = write(&directory, "b", &model, as_is);
    let (code, text, _) = against(&a, &b, &[]);
    assert_eq!(code, 0);
    assert!(
        text.contains("layers.2.attn.indexer.compressor.wkv.weight\n"),
        "{text}"
    );
    assert!(
        text.contains("Of the keys that A's indexer of layer 2 selects, B's selects"),
        "{text}"
    );
    assert!(text.contains("only in A: hc_head_base"), "{text}");
    assert!(!text.contains("mixes and gates"), "{text}");
}

/// What moves most is named, be it gates that the mixes do not show.
#[test]
fn a_base_moves_gates_alone() {
    let directory = Directory::tiny();
    let mut model = official(&directory);
    let a = write(&directory, "a", &model, as_is);
    for layer in 0..3_u8 {
        let name = format!("layers.{layer}.hc_ffn_base");
        map(
            &mut model,
            |one| one == name,
            |tensor| {
                store(tensor, "F32", |value| {
                    value + 0.1 * (1.0 + f32::from(layer))
                });
            },
        );
    }
    let b = write(&directory, "b", &model, as_is);
    let (_, text, _) = against(&a, &b, &["--only", "hc"]);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, moved) = words.split_once("B's weights move ").expect("a summary");
    let mut moved = moved.split(' ');
    assert_ne!(moved.next(), Some("mixes"));
    assert_eq!([moved.next(), moved.next()], [Some("of"), Some("L2.ffn")]);
    let by: f64 = moved.nth(1).unwrap().parse().unwrap();
    assert!(by > 1e-3, "{text}");
}

#[test]
fn of_logits_that_are_no_numbers_nothing_is_said() {
    let directory = Directory::tiny();
    let mut model = official(&directory);
    let a = write(&directory, "a", &model, as_is);
    map(
        &mut model,
        |name| name == "layers.2.attn.indexer.weights_proj.weight",
        |tensor| store(tensor, "BF16", |_| f32::NAN),
    );
    let b = write(&directory, "b", &model, as_is);
    let (code, text, _) = against(&a, &b, &["--only", "indexer"]);
    assert_eq!(code, 0);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("nothing can be said of its selection"),
        "{text}"
    );
    assert!(!words.contains("B's selects"), "{text}");
}

#[test]
fn block_scales_that_are_not_there_are_named() {
    let directory = Directory::tiny();
    let mut model = official(&directory);
    let a = write(&directory, "a", &model, as_is);
    model
        .remove("layers.2.attn.indexer.wq_b.scale")
        .expect("block scales");
    let b = write(&directory, "b", &model, as_is);
    let (_, text, _) = against(&a, &b, &[]);
    assert!(text.contains("no block scales in B"), "{text}");
    let (_, text, _) = against(&b, &a, &[]);
    assert!(text.contains("no block scales in A"), "{text}");
}

/// A conversion that lost its YaRN has all tensors of the original.
#[test]
fn configurations_that_differ_are_told() {
    let directory = Directory::tiny();
    let model = official(&directory);
    let a = write(&directory, "a", &model, as_is);
    let b = write(&directory, "b", &model, as_is);
    let config = std::path::Path::new(&b).join("config.json");
    let text = std::fs::read_to_string(&config).unwrap();
    let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
    value["compress_rope_theta"] = 5000.into();
    value["rope_scaling"] = serde_json::Value::Null;
    std::fs::write(&config, value.to_string()).unwrap();
    let (_, text, _) = against(&a, &b, &[]);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("0 tensors differ"), "{text}");
    assert!(
        words.contains("theta 5000, no YaRN in B; A's is used for both"),
        "{text}"
    );
}

#[test]
fn what_does_not_compare_is_refused() {
    let directory = Directory::tiny();
    let spec = directory.spec("ckpt");
    for (a, b, phrases) in [
        (
            spec.as_str(),
            "absent",
            ["--against", "no such file or directory"],
        ),
        (
            "absent",
            spec.as_str(),
            ["'absent'", "no such file or directory"],
        ),
        (
            spec.as_str(),
            "synthetic:v4.1",
            ["has 4 streams of 5120", "name two checkpoints of one model"],
        ),
    ] {
        let (code, stdout, stderr) = against(a, b, &[]);
        assert_eq!((code, stdout.as_str()), (2, ""));
        for phrase in phrases {
            assert!(stderr.contains(phrase), "no {phrase}: {stderr}");
        }
    }
}
