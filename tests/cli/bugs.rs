//! Known bugs as a shell sees them: both kernels' by one flag, and what explains the indexer's.

use crate::scene::Scene;

#[test]
fn all_are_listed_with_what_and_where() {
    Scene::new()
        .ulpdrift("variants --faults")
        .exits_with(0)
        .prints("transposed-comb")
        .prints("keys-shifted")
        .prints("tie-overflow")
        .prints("issue 1507");
}

#[test]
fn a_bug_of_the_indexer_is_explained_and_fails_nothing() {
    let scene = Scene::new();
    let bugs = "keys-shifted,mask-filled-with-zero,channel-sign-flipped";
    scene
        .ulpdrift(&format!(
            "run synthetic:tiny --suite indexer --variants fp32 --context 2048 --fault {bugs} --out out"
        ))
        .exits_with(0)
        .fits_80_columns()
        .prints("Known bugs of the indexer")
        .prints("matches keys shifted by")
        .prints("structural, cause");
    let report = scene.json("out/report.json");
    let diagnoses = report["diagnoses"].as_array().unwrap();
    assert_eq!(diagnoses.len(), 3);
    for found in diagnoses {
        let verdict = found["verdict"].as_str().unwrap();
        assert!(["structural", "broken"].contains(&verdict), "{found}");
    }
    // A bug that the diagnosis has no hypothesis for comes out as such.
    for found in diagnoses {
        let is_known = found["fault"] != "channel-sign-flipped";
        assert_eq!(found["is_named"], is_known, "{found}");
    }
    assert!(report["recipes"]["indexer fp8-f32scale"].is_object());
    let rows = report["records"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["fault"] == "keys-shifted"));
    let verdicts = report["verdicts"].as_array().unwrap();
    assert_eq!(verdicts.len(), 1, "a bug has no verdict of its own");
}

#[test]
fn a_bug_needs_its_suite() {
    for (flags, needs) in [
        ("--suite mix --fault keys-shifted", "add --suite indexer"),
        (
            "--suite indexer --fault transposed-comb",
            "add --suite mix,chain",
        ),
        ("--layers 0 --fault keys-shifted", "--suite indexer"),
    ] {
        Scene::new()
            .ulpdrift(&format!("run synthetic:tiny {flags}"))
            .must_be_refused_saying(&["--fault", needs]);
    }
}
