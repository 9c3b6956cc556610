//! The same command gives the same bytes, whatever the machine does it with.

use serde_json::Value;
use ulpdrift_reference::simd::Level;

use crate::scene::Scene;

/// A report's JSON without what names the machine.
fn comparable(mut report: Value) -> Value {
    let top = report.as_object_mut().unwrap();
    assert!(top.remove("host").is_some());
    let run = top["run"].as_object_mut().unwrap();
    assert!(run.remove("command").is_some());
    report
}

#[test]
fn threads_and_vector_instructions_do_not_change_a_byte() {
    let mut first: Option<(String, Value, Vec<u8>)> = None;
    for level in Level::ALL {
        if !level.is_available() {
            println!("SKIPPED: this processor has no {level}");
            continue;
        }
        for threads in ["1", "2"] {
            let scene = Scene::new();
            let name = level.to_string();
            let env = [
                ("ULPDRIFT_SIMD", name.as_str()),
                ("RAYON_NUM_THREADS", threads),
            ];
            let line = "run synthetic:tiny --variants '*' --tokens 70 --out out --dump dump";
            scene.ulpdrift_with(line, &env).exits_with(0);
            let report = scene.json("out/report.json");
            assert_eq!(report["host"]["simd"], name);
            assert_eq!(report["host"]["threads"].to_string(), threads);
            let dump = scene.files()["dump/L3.ffn.safetensors"].clone();
            let found = (scene.read("out/report.csv"), comparable(report), dump);
            let expected = first.get_or_insert_with(|| found.clone());
            assert!(found.0 == expected.0, "CSV with {level}, {threads} threads");
            assert_eq!(found.1, expected.1, "JSON with {level}, {threads} threads");
            assert!(
                found.2 == expected.2,
                "dump with {level}, {threads} threads"
            );
        }
    }
}

#[test]
fn a_report_does_not_say_where_the_program_is_installed() {
    let scene = Scene::new();
    scene
        .ulpdrift("run synthetic:tiny --layers 0 --variants fp32 --out out")
        .exits_with(0);
    let command = &scene.json("out/report.json")["run"]["command"];
    // Nor where the report goes.
    let words = "ulpdrift run synthetic:tiny --layers 0 --variants fp32";
    let expected: Vec<&str> = words.split(' ').collect();
    assert_eq!(command, &serde_json::json!(expected));
}

#[test]
fn files_and_stdout_hold_the_same_report() {
    let scene = Scene::new();
    let run = "run synthetic:tiny --layers 0 --variants fp32,tf32";
    scene.ulpdrift(&format!("{run} --out out")).exits_with(0);
    let printed = scene
        .ulpdrift(&format!("{run} --format csv"))
        .exits_with(0)
        .remarks_nothing();
    assert_eq!(printed.stdout, scene.read("out/report.csv"));
    let printed = scene
        .ulpdrift(&format!("{run} --format json"))
        .exits_with(0)
        .remarks_nothing();
    let printed: Value = serde_json::from_str(&printed.stdout).unwrap();
    assert_eq!(
        comparable(printed),
        comparable(scene.json("out/report.json"))
    );
    // Named twice is written once; one format alone writes no other.
    let twice = scene
        .ulpdrift(&format!("{run} --format csv,csv --out twice"))
        .exits_with(0);
    assert_eq!(twice.stderr, "wrote twice/report.csv\n");
    assert!(!scene.path("twice/report.json").exists());
}
