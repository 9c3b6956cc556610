//! Streams kept in f64 against 50 decimal digits, and against the documented order bit for bit.

use ndarray::{Array2, Axis};
use ulpdrift_reference::{
    simd::Level,
    squares::squares64,
    streams::{collapse, head_gates, project, recombine, rms_norm},
};

use crate::recorded::{Recorded, assert_close, assert_close_to_scale};

/// Every stage but the head's gates, from the recorded inputs.
fn stages(golden: &Recorded, level: Level) -> [(&'static str, Array2<f64>); 5] {
    let given = |name: &str| golden.f64(&format!("streams.{name}"));
    let x = given("x");
    let y = collapse(level, given("pre").view(), x.view());
    let weight = golden.f32("streams.weight");
    let u = rms_norm(y.view(), weight.as_slice().expect("one row"), 1e-6);
    let streams = recombine(
        level,
        x.view(),
        given("f").view(),
        given("post").view(),
        given("comb").view(),
    );
    let squares = squares64(level, x.view()).insert_axis(Axis(0));
    let dot = project(level, x.view(), golden.f32("streams.fn").view());
    [
        ("dot", dot),
        ("squares", squares),
        ("y", y),
        ("u", u),
        ("streams", streams),
    ]
}

#[test]
fn every_stage_agrees_with_fifty_digits() {
    let golden = Recorded::open("golden.safetensors");
    for (name, got) in stages(&golden, Level::detect()) {
        let expected = golden.f64(&format!("streams.{name}.result"));
        if name == "squares" {
            assert_close(name, &got, &expected, 1e-15);
            continue;
        }
        // Row by row: they differ by 200 decades.
        for (got, expected) in got.rows().into_iter().zip(expected.rows()) {
            let row = |row: ndarray::ArrayView1<f64>| row.to_owned().insert_axis(Axis(0));
            assert_close_to_scale(name, &row(got), &row(expected), 1e-15);
        }
    }
}

#[test]
fn every_stage_keeps_the_documented_order() {
    let golden = Recorded::open("golden.safetensors");
    for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
        for (name, got) in stages(&golden, level) {
            let expected = golden.f64(&format!("streams.{name}.result_ordered"));
            assert_eq!(
                got.mapv(f64::to_bits),
                expected.mapv(f64::to_bits),
                "{name} at {level}"
            );
        }
    }
}

#[test]
fn the_heads_gates_agree_with_fifty_digits() {
    let golden = Recorded::open("golden.safetensors");
    let (mixes, base) = (
        golden.f64("streams.head_mixes"),
        golden.f64("streams.head_base"),
    );
    let gates = head_gates(mixes.view(), 0.7, base.as_slice().expect("one row"), 1e-6);
    assert_close("gates", &gates, &golden.f64("streams.head.result"), 2e-14);
}
