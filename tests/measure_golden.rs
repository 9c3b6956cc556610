//! Error measures against `NumPy`: `tests/data/measure_golden.py` wrote the expected figures.

use serde::Deserialize;
use serde_json::{Map, Value};
use ulpdrift::{
    format::Format,
    measure::error::{ErrorMeasures, Stage},
};
use ulpdrift_reference::simd::Level;

/// What both sides must agree to, relative.
const TOLERANCE: f64 = 1e-9;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    tokens: usize,
    width: usize,
    seed: u64,
    operand: f64,
    arithmetic: f64,
    shrink: f64,
    format: String,
    zeros: bool,
    checksum: String,
    measures: Map<String, Value>,
}

struct Inputs {
    got: Vec<f32>,
    reference: Vec<f64>,
    exact: Vec<f64>,
}

/// The generator of the Python side, operation by operation.
struct Noise(u64);

impl Noise {
    fn uniform(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 * 2.0_f64.powi(-53)
    }
}

impl Case {
    fn inputs(&self) -> Inputs {
        let mut noise = Noise(self.seed);
        let mut inputs = Inputs {
            got: Vec::new(),
            reference: Vec::new(),
            exact: Vec::new(),
        };
        for index in 0..self.tokens * self.width {
            let fraction = noise.uniform() - 0.5;
            let exponent = (noise.uniform() * 12.0).floor() as i32 - 6;
            let mut r = fraction * 2.0_f64.powi(exponent);
            let e = r * (1.0 + self.operand * (noise.uniform() - 0.5));
            let wide = e * (1.0 + self.arithmetic * (noise.uniform() - 0.5));
            let mut g = (wide - self.shrink * wide) as f32;
            if self.format == "bf16" {
                g = f32::from_bits(g.to_bits() & 0xffff_0000);
            }
            if self.zeros && index % 97 == 5 {
                r = 0.0;
                g = (f64::from(g) * 2.0_f64.powi(-30)) as f32;
            }
            if index % 97 == 6 {
                g = r as f32;
            }
            inputs.got.push(g);
            inputs.reference.push(r);
            inputs.exact.push(e);
        }
        inputs
    }

    fn stage<'a>(&self, inputs: &'a Inputs) -> Stage<'a> {
        Stage {
            got: &inputs.got,
            reference: &inputs.reference,
            exact: Some(&inputs.exact),
            other: None,
            tokens: self.tokens,
            format: match self.format.as_str() {
                "bf16" => Format::Bf16,
                _ => Format::F32,
            },
        }
    }

    fn measure(&self, inputs: &Inputs) -> ErrorMeasures {
        let measured = self.stage(inputs).measure();
        measured.expect("the case is well formed").errors
    }
}

fn checksum(inputs: &Inputs) -> String {
    let sum = inputs
        .got
        .iter()
        .map(|&g| f64::from(g))
        .chain(inputs.reference.iter().copied())
        .chain(inputs.exact.iter().copied())
        .fold(0_u64, |sum, x| {
            sum.wrapping_mul(31).wrapping_add(x.to_bits())
        });
    format!("{sum:016x}")
}

fn cases() -> Vec<Case> {
    serde_json::from_str(include_str!("data/measure_golden.json")).expect("the golden file parses")
}

#[test]
fn every_measure_agrees_with_numpy() {
    for case in cases() {
        let inputs = case.inputs();
        assert_eq!(
            checksum(&inputs),
            case.checksum,
            "{}: other inputs",
            case.name
        );
        let got = serde_json::to_value(case.measure(&inputs)).expect("measures serialise");
        for (name, expected) in &case.measures {
            let (got, expected) = (got[name].as_f64(), expected.as_f64());
            let (Some(got), Some(expected)) = (got, expected) else {
                panic!("{}: {name} is {got:?}, expected {expected:?}", case.name);
            };
            let limit = TOLERANCE * expected.abs();
            assert!(
                (got - expected).abs() <= limit,
                "{}: {name} is {got:e}, expected {expected:e}",
                case.name
            );
        }
    }
}

#[test]
fn f64_storage_changes_nothing() {
    for case in cases() {
        let inputs = case.inputs();
        let expected = case.measure(&inputs);
        let wide: Vec<f64> = inputs.got.iter().map(|&g| f64::from(g)).collect();
        let narrow = case.stage(&inputs);
        let stage = Stage {
            got: &wide,
            reference: narrow.reference,
            exact: narrow.exact,
            other: None,
            tokens: narrow.tokens,
            format: narrow.format,
        };
        let measured = stage.measure().expect("the case is well formed");
        assert_eq!(measured.errors, expected, "{}", case.name);
    }
}

/// Any vector width, and blocks shared out to any threads.
#[test]
fn every_level_gives_the_same_bits() {
    for case in cases() {
        let inputs = case.inputs();
        let stage = case.stage(&inputs);
        let expected = stage.measure_at(Level::Portable).expect("well formed");
        for level in Level::ALL {
            let measured = stage.measure_at(level).expect("well formed");
            assert_eq!(measured, expected, "{}: {level:?}", case.name);
        }
    }
}

/// Pins bits, not figures: a reduction that changed its order would pass at 1e-9.
#[test]
fn the_reduction_tree_is_pinned() {
    let case = cases().swap_remove(2);
    let measures = case.measure(&case.inputs());
    let bits = [
        measures.rel_l2.0,
        measures.cosine_gap.0,
        measures.ulp_mean.0,
        measures.slope.expect("r is not zero").0,
    ]
    .map(f64::to_bits);
    let pinned = [
        0x3f52_66e8_bf9e_aaa0,
        0x3ea5_29fd_88ba_2a33,
        0x40c7_c914_51a6_ca98,
        0x3ed2_de6a_f618_5743,
    ];
    assert_eq!(bits, pinned, "{bits:#018x?}");
}
