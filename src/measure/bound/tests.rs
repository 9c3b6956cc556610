//! The bound against exact block arithmetic, on random and on hostile operands.

use ndarray::Array2;

use crate::format::Format;

use super::{Addition, BoundError, BoundOutput, Chains, Operands, Order, Rule, bound_ratio, drift};
use oracle::{UNITS, Unit};
use ulpdrift_reference::simd::Level;

mod definition;
mod oracle;

/// A small generator of its own, so that these tests lean on nothing of the tool.
pub(super) struct Noise(u64);

impl Noise {
    fn bits(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    /// In [0, 1).
    fn uniform(&mut self) -> f64 {
        self.bits() as f64 / 2_147_483_648.0
    }

    fn sign(&mut self) -> f64 {
        if self.bits() & 4096 == 0 { 1.0 } else { -1.0 }
    }

    /// Roughly normal, variance 1.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}

/// How operands are drawn; each aims at one term of the bound.
#[derive(Clone, Copy, Debug)]
enum Category {
    Normal,
    AllPositive,
    WideExponents,
    Tiny,
    Huge,
    AllOnes,
    Sparse,
    Cancelling,
    OneLarge,
    Descending,
}

const CATEGORIES: [Category; 10] = [
    Category::Normal,
    Category::AllPositive,
    Category::WideExponents,
    Category::Tiny,
    Category::Huge,
    Category::AllOnes,
    Category::Sparse,
    Category::Cancelling,
    Category::OneLarge,
    Category::Descending,
];

impl Category {
    fn draw(self, unit: &Unit, noise: &mut Noise, k: usize) -> f32 {
        let low = unit.rule.operand_min_exponent - unit.operand_bits;
        let high = unit.largest_exponent;
        let at =
            |exponent: f64| 2.0_f64.powf(exponent.clamp(f64::from(low), f64::from(high) - 0.5));
        let span = f64::from(high - low);
        let value = match self {
            Self::Normal | Self::Cancelling => noise.normal().clamp(-6.0, 6.0),
            Self::AllPositive => noise.normal().abs().min(6.0),
            Self::WideExponents => {
                noise.sign()
                    * at(f64::from(low) + span.min(80.0) * noise.uniform() + (span - 80.0).max(0.0))
            }
            Self::Tiny => noise.sign() * at(f64::from(low) + 8.0 * noise.uniform()),
            Self::Huge => noise.sign() * at(f64::from(high) - 4.0 * noise.uniform()),
            Self::AllOnes => noise.sign() * (2.0 - 2.0_f64.powi(-unit.operand_bits)),
            Self::Sparse if noise.uniform() < 0.8 => 0.0,
            Self::Sparse => noise.normal().clamp(-6.0, 6.0),
            Self::OneLarge if k == 3 => 1.9 * at(7.0),
            Self::OneLarge => noise.sign() * at(-2.0 - 4.0 * noise.uniform()),
            Self::Descending => noise.sign() * 1.99 * at(6.0 - k as f64 / 8.0),
        };
        unit.operand(value)
    }

    fn matrix(self, unit: &Unit, noise: &mut Noise, rows: usize, k: usize) -> Array2<f32> {
        let mut matrix = Array2::from_shape_fn((rows, k), |(_, k)| self.draw(unit, noise, k));
        if matches!(self, Self::Cancelling) {
            // The second half undoes the first but for one element per row.
            for mut row in matrix.rows_mut() {
                for at in k / 2..k - 1 {
                    row[at] = row[at - k / 2];
                }
            }
        }
        matrix
    }
}

fn chain_of(unit: &Unit, x: &Array2<f32>, w: &Array2<f32>, order: &Order) -> Vec<f32> {
    let mut got = Vec::new();
    for a in x.rows() {
        for b in w.rows() {
            let (a, b) = (
                a.as_slice().expect("contiguous"),
                b.as_slice().expect("contiguous"),
            );
            let mut partial: Vec<f32> = order
                .chains
                .iter()
                .map(|ranges| {
                    ranges.iter().fold(0.0, |c, range| {
                        unit.chain(&a[range.clone()], &b[range.clone()], c)
                    })
                })
                .collect();
            for &Addition { into, from } in &order.additions {
                partial[into] += partial[from];
            }
            got.push(partial[0]);
        }
    }
    got
}

fn bound_of(rule: Rule, x: &Array2<f32>, w: &Array2<f32>, order: &Order) -> BoundOutput {
    let terms = [Operands {
        x: x.view(),
        weight: w.view(),
    }];
    let chains = Chains {
        rule,
        terms: &terms,
        order,
    };
    chains.evaluate(Level::detect()).expect("shapes fit")
}

fn ratio(got: &[f32], output: &BoundOutput) -> f64 {
    let slice = |array: &Array2<f64>| array.as_slice().expect("contiguous").to_vec();
    bound_ratio(got, &slice(&output.exact), &slice(&output.bound)).expect("lengths agree")
}

/// `count` splits of `k`, as even as they go.
fn even_splits(k: usize, count: usize) -> Order {
    let ranges: Vec<_> = (0..count)
        .map(|s| s * k / count..(s + 1) * k / count)
        .collect();
    Order::splits(&ranges, Format::F32)
}

#[test]
fn no_tensor_core_exceeds_its_bound() {
    const TOKENS: usize = 33; // not a multiple of the tile
    const OUTPUTS: usize = 32;
    let mut noise = Noise(1);
    let mut outputs = 0;
    for unit in &UNITS {
        let mut worst = 0.0_f64;
        for category in CATEGORIES {
            let k = 72 + 8 * (noise.bits() as usize % 5) + noise.bits() as usize % 3;
            let x = category.matrix(unit, &mut noise, TOKENS, k);
            // Against ordinary weights, tiny x gives results among the subnormals.
            let weights = match category {
                Category::Tiny => Category::Normal,
                other => other,
            };
            let mut w = weights.matrix(unit, &mut noise, OUTPUTS, k);
            if matches!(category, Category::Cancelling) {
                w.slice_mut(ndarray::s![.., k / 2..]).mapv_inplace(|w| -w);
            }
            let order = even_splits(k, 1 + outputs % 3);
            let got = chain_of(unit, &x, &w, &order);
            let output = bound_of(Rule::TensorCore(unit.rule), &x, &w, &order);
            let ratio = ratio(&got, &output);
            assert!(ratio <= 1.0, "{} {category:?}: {ratio}", unit.name);
            worst = worst.max(ratio);
            outputs += got.len();
        }
        assert!(
            worst > 0.05,
            "{}: a bound this loose ({worst}) finds nothing",
            unit.name
        );
    }
    assert!(outputs >= 100_000, "{outputs} outputs");
}

#[test]
fn one_long_chain_stays_within_its_bound_and_drifts_as_predicted() {
    let k = 16_384;
    for unit in [UNITS[1], UNITS[2], UNITS[4]] {
        let mut noise = Noise(2);
        let x = Array2::from_shape_fn((8, k), |_| UNITS[1].operand(noise.normal()));
        let w = Array2::from_shape_fn((6, k), |_| unit.operand(0.039 * noise.normal()));
        let order = even_splits(k, 1);
        let got = chain_of(&unit, &x, &w, &order);
        let output = bound_of(Rule::TensorCore(unit.rule), &x, &w, &order);
        assert!(ratio(&got, &output) <= 1.0, "{}", unit.name);

        let predicted = drift_of(&got, &output);
        let exact: Vec<f64> = output.exact.iter().copied().collect();
        let energy: f64 = exact.iter().map(|e| e * e).sum();
        let along: f64 = got
            .iter()
            .zip(&exact)
            .map(|(&g, e)| (f64::from(g) - e) * e)
            .sum();
        let share = along / energy / predicted.drift;
        assert!((share - 1.0).abs() < 0.05, "{} {share}", unit.name);
        // A unit that rounds to nearest would stand much farther from the prediction.
        let undrifted = drift_of(&exact, &output);
        assert!(
            predicted.drift_z < 0.6 * undrifted.drift_z,
            "{predicted:?} {undrifted:?}"
        );
    }
}

fn drift_of<G: super::super::sample::Sample>(got: &[G], output: &BoundOutput) -> super::Drift {
    drift(got, output)
        .expect("lengths agree")
        .expect("not zero")
}

#[test]
fn a_compensated_chain_stays_within_its_bound() {
    let (unit, k) = (UNITS[4], 512);
    let mut noise = Noise(3);
    let x = Array2::from_shape_fn((9, k), |_| unit.operand(noise.normal()));
    let full = Array2::from_shape_fn((5, k), |_| noise.normal());
    let high = full.mapv(|w| unit.operand(w));
    let low = Array2::from_shape_fn((5, k), |at| unit.operand(full[at] - f64::from(high[at])));
    let terms = [&low, &high].map(|weight| Operands {
        x: x.view(),
        weight: weight.view(),
    });
    let order = even_splits(k, 1);
    let output = Chains {
        rule: Rule::TensorCore(unit.rule),
        terms: &terms,
        order: &order,
    }
    .evaluate(Level::detect())
    .expect("shapes fit");
    let mut got = Vec::new();
    for a in x.rows() {
        for n in 0..5 {
            let a = a.as_slice().expect("contiguous");
            let row = |weight: &Array2<f32>| weight.row(n).to_vec();
            let small = unit.chain(a, &row(&low), 0.0);
            got.push(unit.chain(a, &row(&high), small));
        }
    }
    let ratio = ratio(&got, &output);
    assert!(ratio > 0.0 && ratio <= 1.0, "{ratio}");
}

#[test]
fn fp32_chains_split_and_strided_stay_within_their_bound() {
    let k = 1000;
    let mut noise = Noise(4);
    for (scale, order) in [
        (1.0, even_splits(k, 1)),
        (1e-21, even_splits(k, 7)), // products among fp32's subnormals
        (1.0, Order::strided(k, 96)),
        (1.0, even_splits(k, 64)),
    ] {
        let mut draw = |_| (scale * noise.normal()) as f32;
        let x = Array2::from_shape_fn((10, k), &mut draw);
        let w = Array2::from_shape_fn((8, k), &mut draw);
        let mut got = Vec::new();
        for a in x.rows() {
            for b in w.rows() {
                let mut partial: Vec<f32> = order
                    .chains
                    .iter()
                    .map(|chain| {
                        let mut indices = chain.iter().cloned().flatten();
                        indices.by_ref().fold(0.0, |c, k| a[k].mul_add(b[k], c))
                    })
                    .collect();
                for addition in &order.additions {
                    partial[addition.into] += partial[addition.from];
                }
                got.push(partial[0]);
            }
        }
        let ratio = ratio(&got, &bound_of(Rule::Fma32, &x, &w, &order));
        assert!(ratio > 1e-3 && ratio <= 1.0, "{ratio}");
    }
}

/// The operands of the mixing projection, its weight in full precision.
fn mixing(k: usize) -> (Array2<f32>, Array2<f64>) {
    let mut noise = Noise(5);
    let x = Array2::from_shape_fn((8, k), |_| UNITS[1].operand(noise.normal()));
    let w = Array2::from_shape_fn((24, k), |_| 0.039 * noise.normal());
    (x, w)
}

#[test]
fn a_bf16_weight_passed_off_as_tf32_breaches() {
    let (tf32, bf16, k) = (UNITS[4], UNITS[1], 16_384);
    let (x, full) = mixing(k);
    let stated = full.mapv(|w| tf32.operand(w));
    let smuggled = full.mapv(|w| bf16.operand(w));
    let order = even_splits(k, 1);
    let output = bound_of(Rule::TensorCore(tf32.rule), &x, &stated, &order);
    assert!(ratio(&chain_of(&tf32, &x, &stated, &order), &output) <= 1.0);
    let breach = ratio(&chain_of(&tf32, &x, &smuggled, &order), &output);
    assert!(breach > 1.0, "{breach}");
}

#[test]
fn a_dropped_split_out_of_64_breaches() {
    let (unit, k) = (UNITS[4], 16_384);
    let (x, full) = mixing(k);
    let w = full.mapv(|w| unit.operand(w));
    let mut order = even_splits(k, 64);
    let output = bound_of(Rule::TensorCore(unit.rule), &x, &w, &order);
    assert!(ratio(&chain_of(&unit, &x, &w, &order), &output) <= 1.0);
    order.additions.remove(20);
    let breach = ratio(&chain_of(&unit, &x, &w, &order), &output);
    assert!(breach > 100.0, "{breach}");
}

#[test]
fn output_rounding_and_the_rms_factor_are_covered() {
    let (unit, k) = (UNITS[1], 256);
    let (x, full) = mixing(k);
    let w = full.mapv(|w| unit.operand(w));
    let order = even_splits(k, 4);
    let dot = chain_of(&unit, &x, &w, &order);
    let plain = bound_of(Rule::TensorCore(unit.rule), &x, &w, &order);
    let bf16 = |x: f32| half::bf16::from_f32(x).to_f32();
    let patched: Vec<f32> = dot.iter().map(|&dot| bf16(dot)).collect();
    let patched_bound = plain.clone().rounded_to(Format::Bf16);
    assert!(ratio(&patched, &plain) > 1.0);
    assert!(ratio(&patched, &patched_bound) <= 1.0);

    let factors: Vec<f64> = (0..8)
        .map(|token| 1.0 / (1.1 + f64::from(token)).sqrt())
        .collect();
    let scaled: Vec<f32> = dot
        .iter()
        .enumerate()
        .map(|(index, &dot)| dot * factors[index / 24] as f32)
        .collect();
    let bound = plain
        .clone()
        .times(&factors, 2.0_f64.powi(-24), Format::F32);
    assert!(ratio(&scaled, &bound.expect("a factor per token")) <= 1.0);
    let missing = plain.times(&factors[1..], 0.0, Format::F32);
    assert!(missing.is_err());
}

#[test]
fn every_level_and_thread_count_gives_the_same_bits() {
    let (unit, k) = (UNITS[4], 333);
    let mut noise = Noise(6);
    let x = Category::WideExponents.matrix(&unit, &mut noise, 21, k);
    let w = Category::Normal.matrix(&unit, &mut noise, 5, k);
    let terms = [Operands {
        x: x.view(),
        weight: w.view(),
    }];
    for (rule, order) in [
        (Rule::TensorCore(unit.rule), even_splits(k, 3)),
        (Rule::Fma32, Order::strided(k, 32)),
    ] {
        let chains = Chains {
            rule,
            terms: &terms,
            order: &order,
        };
        let portable = chains.evaluate(Level::Portable).expect("shapes fit");
        for level in Level::ALL {
            assert_eq!(
                chains.evaluate(level).expect("shapes fit"),
                portable,
                "{level}"
            );
        }
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(1)
            .build()
            .expect("a pool of one");
        let alone = pool.install(|| chains.evaluate(Level::detect()));
        assert_eq!(alone.expect("shapes fit"), portable);
    }
}

#[test]
fn what_is_not_finite_has_no_bound() {
    let unit = UNITS[1];
    let mut x = Array2::from_elem((2, 32), 1.0_f32);
    x[[0, 5]] = f32::INFINITY;
    let w = Array2::from_elem((1, 32), 1.0_f32);
    let output = bound_of(Rule::TensorCore(unit.rule), &x, &w, &even_splits(32, 1));
    assert!(output.bound[[0, 0]].is_nan() && output.drift[[0, 0]].is_nan());
    assert!(output.bound[[1, 0]] > 0.0);
    assert!(ratio(&[f32::INFINITY, 32.0], &output) <= 1.0);
    assert!(ratio(&[f32::NAN, 32.0], &output).is_nan());
    assert!(ratio(&[7.0, 32.0], &output).is_nan());
    assert!(ratio(&[f32::INFINITY, f32::INFINITY], &output).is_nan());
}

#[test]
fn ratio_conventions() {
    let ratio = |g: f64, e, b| bound_ratio(&[g], &[e], &[b]).expect("lengths agree");
    assert_eq!(ratio(0.0, 0.0, 0.0), 0.0);
    assert_eq!(ratio(1.0, 0.0, 0.0), f64::INFINITY);
    assert_eq!(ratio(1.5, 1.0, 0.25), 2.0);
    assert!(ratio(1.0, 1.0, f64::NAN).is_nan());
    assert!(ratio(f64::NAN, f64::NAN, f64::NAN).is_nan());
    assert!(ratio(f64::INFINITY, f64::INFINITY, f64::NAN).is_nan());
    let beside_a_number =
        bound_ratio(&[f64::NAN, 1.0], &[f64::NAN, 1.0], &[f64::NAN, 0.5]).expect("lengths agree");
    assert_eq!(beside_a_number, 0.0);
    assert!(ratio(f64::INFINITY, f64::NEG_INFINITY, 1.0).is_nan());
    assert!(bound_ratio::<f32>(&[], &[], &[]).is_err());
    assert!(bound_ratio(&[1.0_f32], &[1.0], &[]).is_err());
}

#[test]
fn shapes_and_orders_that_do_not_fit_are_refused() {
    let unit = UNITS[1];
    let (x, w) = (Array2::zeros((2, 16)), Array2::zeros((3, 8)));
    let evaluate = |x: &Array2<f32>, w: &Array2<f32>, order: &Order| {
        let terms = [Operands {
            x: x.view(),
            weight: w.view(),
        }];
        Chains {
            rule: Rule::TensorCore(unit.rule),
            terms: &terms,
            order,
        }
        .evaluate(Level::Portable)
    };
    assert!(matches!(
        evaluate(&x, &w, &even_splits(8, 1)),
        Err(BoundError::Shape { .. })
    ));
    let w = Array2::zeros((3, 16));
    for order in [
        Order::splits(&[], Format::F32),
        even_splits(17, 1),
        Order {
            stored: Format::F32,
            chains: vec![vec![0..16]],
            additions: vec![Addition { into: 0, from: 1 }],
        },
    ] {
        assert!(matches!(
            evaluate(&x, &w, &order),
            Err(BoundError::Order { .. })
        ));
    }
    assert!(evaluate(&x, &w, &even_splits(16, 1)).is_ok());
    // No token at all is an empty result, not a panic.
    let none = evaluate(&Array2::zeros((0, 16)), &w, &even_splits(16, 1)).expect("fits");
    assert_eq!(none.bound.dim(), (0, 3));
}
