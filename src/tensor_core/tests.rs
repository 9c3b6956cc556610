use std::path::PathBuf;
use ulpdrift_reference::simd::Level;
#[test]
fn quick() {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/vectors");
    let mut bad = 0;
    for e in std::fs::read_dir(dir).unwrap() {
        let p = e.unwrap().path();
        if p.extension().is_none_or(|x| x != "safetensors") {
            continue;
        }
        let r = crate::suite::vectors::replay_file(&p, None, &Level::ALL).unwrap();
        println!("{p:?} {} {}", r.outputs(), r.mismatches());
        for c in &r.categories {
            if c.mismatches > 0 {
                println!("  {c:x?}");
            }
        }
        bad += r.mismatches();
    }
    assert_eq!(bad, 0);
}
