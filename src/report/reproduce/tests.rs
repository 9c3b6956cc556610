//! Commands that reproduce a row: the same words in a shell, and no others.

use std::process::Command;

use super::*;
use crate::report::{Measures, Record, Records, fixtures};

#[test]
fn the_command_survives_a_shell() {
    let mut report = fixtures::mix_report();
    let source = "/data/it's \"ours\"/$(date)\n`id` Ω*";
    report.run.checkpoint.source = source.to_owned();
    report.run.repeat_flags = vec!["--recipes".to_owned(), "my recipes;.toml".to_owned()];
    let mut key = report.records[0].key.clone();
    key.variant = "a b".to_owned();
    key.inputs = "file:/x y.safetensors".to_owned();
    let hostile = "\u{1b}[2J\u{202e}it's %s \\n $(date)\n\n";
    key.site = Some(hostile.to_owned());
    let command = reproduce(&report, &key);
    let drives = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
    assert!(!command.contains(drives), "{command:?}");
    let output = Command::new("sh")
        .arg("-c")
        .arg(format!("printf '%s\\0' {command}"))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let words: Vec<&str> = text.trim_end_matches('\0').split('\0').collect();
    assert_eq!(words[..3], ["ulpdrift", "run", source]);
    assert!(words.contains(&hostile), "{words:?}");
    assert!(words.contains(&"a b") && words.contains(&"file:/x y.safetensors"));
    assert_eq!(words[words.len() - 2..], ["--recipes", "my recipes;.toml"]);
}

/// Whoever pastes the command of a report that somebody sent writes no file by it.
#[test]
fn no_name_in_a_command_is_taken_for_a_flag() {
    let mut report = fixtures::mix_report();
    report.run.checkpoint.source = "--out=victim".to_owned();
    report.run.repeat_flags = [
        "--dump",
        "victim",
        "--against",
        "--out=victim",
        "--allow-nonfinite",
    ]
    .map(str::to_owned)
    .into();
    report
        .recipes
        .insert("--out=victim".to_owned(), serde_json::json!({}));
    let mut key = report.records[0].key.clone();
    key.variant = "--out=victim".to_owned();
    let command = reproduce(&report, &key);
    let words = shlex::split(&command).unwrap();
    assert_eq!(words[words.len() - 2..], ["--", "--out=victim"]);
    let flags = &words[..words.len() - 2];
    let of_the_victim = flags.iter().filter(|word| word.contains("victim"));
    let of_the_victim: Vec<&String> = of_the_victim.collect();
    assert_eq!(
        of_the_victim,
        ["--variants=--out=victim", "--against=--out=victim"]
    );
    let has = |flag: &str| words.iter().any(|word| word == flag);
    assert!(has("--allow-nonfinite") && !has("--dump"), "{words:?}");
}

/// What is repeated is what says something to the row's own suite.
#[test]
fn a_recombination_is_reproduced_without_the_flags_of_the_mixing_kernel() {
    let mix = fixtures::record("tf32", 3, "attn", "mixes", 2e-4);
    let row = fixtures::recombined("transformers", "ffn", "streams", 2e-3);
    let mut report = fixtures::report(vec![mix, row]);
    for title in ["recombine fp32", "recombine mul-add"] {
        let recipe = serde_json::json!({});
        report.recipes.insert(title.to_owned(), recipe);
    }
    let with = |report: &mut Report, flags: &[&str]| {
        report.run.repeat_flags = flags.iter().map(ToString::to_string).collect();
        [0, 1].map(|row: usize| {
            let command = reproduce(report, &report.records[row].key);
            let (_, behind) = command.split_once(" --arch sm_120").expect("an arch");
            behind.to_owned()
        })
    };
    let flags = [
        "--recipes",
        "mine.toml",
        "--against",
        "tf*2",
        "--time",
        "--allow-nonfinite",
    ];
    let commands = with(&mut report, &flags);
    let of_mix = " --recipes mine.toml --against 'tf*2' --time --allow-nonfinite";
    assert_eq!(commands, [of_mix, " --allow-nonfinite"]);
    let commands = with(&mut report, &["--against", "mul-add"]);
    assert_eq!(commands, ["", " --against mul-add"]);
    let command = reproduce(&report, &report.records[1].key);
    let wanted = "--suite recombine --variants transformers --layers 3 --sites ffn --tokens 64";
    assert!(command.contains(wanted), "{command}");
}

/// A row of a chain needs the layers before it, and all of them both sites.
#[test]
fn a_chain_is_reproduced_from_its_first_layer_on() {
    let mut report = fixtures::mix_report();
    let mut key = report.records[0].key.clone();
    key.suite = "chain".to_owned();
    key.stage = Some("streams".to_owned());
    key.layer = Some(3);
    key.residual = Some("bf16".to_owned());
    key.layer_io = Some("fp32".to_owned());
    key.sublayer = Some("rms-norm".to_owned());
    key.sites_on = Some("attn".to_owned());
    let first = Key {
        layer: Some(1),
        ..key.clone()
    };
    let records = [first, key.clone()].map(|key| Record {
        key,
        measures: Measures::default(),
    });
    report.records = Records::new(records.to_vec()).expect("two keys");
    let command = reproduce(&report, &key);
    let wanted = "--suite chain --variants fp32 --layers 1-3 --residual bf16 --layer-io fp32 --sublayer rms-norm --sites-on attn --tokens";
    assert!(command.contains(wanted), "{command}");
    assert!(!command.contains("--sites "), "{command}");
    let other = Key {
        sublayer: Some("shared-expert".to_owned()),
        inputs: "embedding".to_owned(),
        ..key.clone()
    };
    let command = reproduce(&report, &other);
    assert!(
        command.contains("--sublayer shared-expert --sites-on attn"),
        "{command}"
    );
    assert!(command.contains("--inputs embedding"), "{command}");
    let head = Key {
        layer: None,
        site: None,
        ..key
    };
    assert!(reproduce(&report, &head).contains("--layers 1-3"));
}

/// What the end makes of an error needs all layers, and a perturbation is no variant's.
#[test]
fn a_gain_is_reproduced_to_the_last_layer() {
    let row = |variant: &str, layer, direction: Option<&str>| {
        let mut record = fixtures::record(variant, layer, "attn", "streams", 1e-3);
        record.key.suite = "gains".to_owned();
        record.key.direction = direction.map(str::to_owned);
        record.key.residual = Some("bf16".to_owned());
        record.key.layer_io = Some("fp32".to_owned());
        record.key.sublayer = Some("rms-norm".to_owned());
        record.key.sites_on = Some("all".to_owned());
        record
    };
    let mut report = fixtures::report(vec![
        row("tf32", 2, None),
        row("perturbation", 7, Some("common")),
    ]);
    report.run.repeat_flags = ["--against", "tf32"].map(str::to_owned).to_vec();
    let behind = "--layers 2-7 --residual bf16 --layer-io fp32 --sublayer rms-norm --sites-on all --tokens 64";
    for (record, variant) in report.records.iter().zip(["tf32", "fp32"]) {
        let command = reproduce(&report, &record.key);
        let wanted = format!("--suite gains --variants {variant} {behind}");
        assert!(command.contains(&wanted), "{command}");
        assert!(!command.contains("--against"), "{command}");
    }
}

#[test]
fn a_sweep_is_reproduced_with_the_batch_it_is_compared_with() {
    let row = |tokens| {
        let mut record = fixtures::record("tf32", 3, "attn", "mixes", 2e-4);
        record.key.suite = "sweep".to_owned();
        record.key.tokens = tokens;
        record.key.sms = Some(132);
        record
    };
    let report = fixtures::report(vec![row(1), row(768)]);
    let command = |row: usize| reproduce(&report, &report.records[row].key);
    assert!(
        command(0).contains("--sweep 'tokens=1' --sms 132"),
        "{}",
        command(0)
    );
    assert!(
        command(1).contains("--sweep 'tokens=1,768' --sms 132"),
        "{}",
        command(1)
    );
    assert!(!command(1).contains("--suite"), "{}", command(1));
}

#[test]
fn a_sweep_over_devices_is_reproduced_with_its_first_point() {
    let row = |sms, tokens| {
        let mut record = fixtures::record("tf32", 3, "attn", "mixes", 2e-4);
        record.key.suite = "sweep".to_owned();
        record.key.tokens = tokens;
        record.key.sms = Some(sms);
        record
    };
    let report = fixtures::report(vec![row(132, 1), row(132, 768), row(188, 1), row(188, 768)]);
    let flags = [
        "tokens=1' --sms 132",
        "tokens=1,768' --sms 132",
        "tokens=1' --sms '132,188'",
        "tokens=1,768' --sms '132,188'",
    ];
    for (record, flags) in report.records.iter().zip(flags) {
        let command = reproduce(&report, &record.key);
        assert!(
            command.contains(&format!("--sweep '{flags} --seed")),
            "{command}"
        );
    }
}

#[test]
fn a_sweep_over_splits_is_reproduced_with_its_first_count() {
    let row = |splits| {
        let mut record = fixtures::record("tf32x2", 3, "attn", "mixes", 2e-5);
        record.key.suite = "splits".to_owned();
        record.key.splits = Some(splits);
        record.key.sms = Some(188);
        record
    };
    let report = fixtures::report(vec![row(1), row(64)]);
    let command = |row: usize| reproduce(&report, &report.records[row].key);
    for (row, splits) in [(0, "1"), (1, "1,64")] {
        let flags = format!("--sweep 'splits={splits}' --tokens 64 --sms 188");
        assert!(command(row).contains(&flags), "{}", command(row));
        assert!(!command(row).contains("--suite"), "{}", command(row));
    }
}
