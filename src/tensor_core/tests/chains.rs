//! Chains as long as a projection's, values that stop the fast path wherever they may stand, and sums that
//! leave their words. Oracle: the scalar rule.

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{Gemm, Kind, code, gemm, operand_code, rules};
use crate::{format::Rounding, tensor_core::*};

const DEPTH: usize = 28_672;

/// Rows of codes of values that `draw` makes, rounded to the operand's format.
fn rows(rule: &Rule, rows: usize, mut draw: impl FnMut(usize) -> f32) -> Vec<Vec<u32>> {
    let format = rule.operand.format();
    let mut code = |k| {
        rule.operand
            .to_code(format.round_f32(draw(k), Rounding::NearestEven))
    };
    (0..rows)
        .map(|_| (0..DEPTH).map(&mut code).collect())
        .collect()
}

/// Near enough to a normal distribution to have its exponents.
fn normal(random: &mut ChaCha8Rng) -> f32 {
    (0..12).map(|_| random.random_range(-0.5_f32..0.5)).sum()
}

#[test]
fn long_chains_of_likely_and_of_extreme_inputs_agree() {
    let random = &mut ChaCha8Rng::seed_from_u64(1);
    for rule in rules() {
        let b = rows(&rule, 2, |_| 0.02 * normal(random));
        let inputs = [
            rows(&rule, 2, |_| normal(random)),
            rows(&rule, 2, |k| match k % 4096 {
                7 => 7e4,
                8 => -3e3,
                _ => normal(random),
            }),
            rows(&rule, 2, |_| 1e-3 * normal(random)),
            rows(&rule, 2, |_| 7e4 * normal(random)),
        ];
        for a in inputs {
            let gemm = Gemm {
                rule,
                a,
                b: b.clone(),
                c: vec![0; 4],
            };
            gemm.assert_forms_agree(&[0..DEPTH, 0..448, 448..DEPTH]);
        }
    }
}

#[test]
fn infinities_and_nans_agree_wherever_they_stand() {
    const SPECIAL: [f32; 3] = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    let shape = [18, 5, 600];
    for rule in rules() {
        for (seed, k) in [0, 1, 14, 15, 16, 255, 256, 511, 512, 598, 599]
            .into_iter()
            .enumerate()
        {
            for special in SPECIAL.into_iter().filter(|&x| rule.operand.holds(x)) {
                let special = rule.operand.to_code(special);
                let plain = gemm(rule, shape, [Kind::Near; 3], seed as u64);
                let mut in_a = plain.clone();
                in_a.a[seed % 18][k] = special;
                in_a.assert_forms_agree(&[0..600, 3..599]);
                let mut in_b = plain.clone();
                in_b.b[seed % 5][k] = special;
                // NaN where zeros meet infinity.
                in_b.a[3] = vec![0; 600];
                in_b.assert_forms_agree(&[0..600, 3..599]);
            }
        }
        let mut in_c = gemm(rule, shape, [Kind::Near; 3], 99);
        for (c, special) in in_c
            .c
            .iter_mut()
            .step_by(7)
            .zip(SPECIAL.into_iter().cycle())
        {
            *c = special.to_bits();
        }
        in_c.assert_forms_agree(&[0..600]);
    }
}

#[test]
fn tokens_of_zeros_agree() {
    for rule in rules() {
        let mut gemm = gemm(rule, [18, 9, 600], [Kind::Near; 3], 4);
        for t in [0, 5, 17] {
            gemm.a[t] = vec![0; 600];
        }
        gemm.a[11] = vec![operand_code(&rule, Kind::Tiny, 1 << 32) & !1; 600];
        // Chains that start at zero, at its negative, and elsewhere, among outputs that go together.
        for (n, c) in [
            (0, 0),
            (1, 0x8000_0000),
            (2, 1),
            (4, 0),
            (5, 0),
            (6, 0),
            (7, 0),
        ] {
            for t in [0, 5, 17] {
                gemm.c[t * 9 + n] = c;
            }
        }
        gemm.assert_forms_agree(&[0..600, 300..512, 7..8]);
        gemm.c.fill(0);
        gemm.assert_forms_agree(&[0..600, 0..256, 7..8]);
        gemm.b[2][100] = operand_code(&rule, Kind::Bits, u64::MAX);
        gemm.assert_forms_agree(&[0..600]);
    }
}

/// Products of the largest significands, one exponent and one sign, and C near the same exponent.
#[test]
fn sums_that_leave_an_i32_agree() {
    let mut beyond = 0;
    for rule in rules() {
        let one = rule.operand.to_code(1.0);
        let nearly_two = match rule.operand {
            Operand::Tf32 => 0x3fff_ffff,
            Operand::Bf16 => 0x3fff,
            Operand::F16 => 0x3fff,
            Operand::E4m3 => 0x3f,
        };
        for sign in [0, 0x8000_0000] {
            let step = rule.step();
            // Each token has one factor less than the last that is nearly two.
            let a: Vec<Vec<u32>> = (0..=step)
                .map(|ones| {
                    let mut row = vec![nearly_two; step];
                    row[..ones].fill(one);
                    row
                })
                .collect();
            let b = vec![
                vec![
                    if sign == 0 {
                        nearly_two
                    } else {
                        negative(rule, nearly_two)
                    };
                    step
                ];
                5
            ];
            let c: Vec<u32> = (0..a.len())
                .flat_map(|_| [0x3fff_ffff, 0x3f80_0000, 0x3f00_0001, 0x3e80_0000, 0])
                .map(|c| sign | c)
                .collect();
            let gemm = Gemm { rule, a, b, c };
            let all = 0..step;
            gemm.assert_forms_agree(std::slice::from_ref(&all));
            // In units of 2^(e_max - F), e_max being zero.
            let unit = f32::exp2(rule.fraction_bits as f32);
            let results = gemm.run_scalar(std::slice::from_ref(&all));
            beyond += results
                .iter()
                .filter(|&&d| f32::from_bits(d).abs() * unit >= 2_147_483_648.0)
                .count();
        }
    }
    assert!(beyond > 50, "the test reaches sums beyond 2^31: {beyond}");
}

fn negative(rule: Rule, code: u32) -> u32 {
    rule.operand.to_code(-rule.operand.from_code(code))
}

/// Exponents that lie together anywhere in the range: there the vector form has few blocks to hand over.
#[test]
fn forms_agree_around_any_exponent() {
    let random = &mut ChaCha8Rng::seed_from_u64(2);
    for rule in rules() {
        let (exponent_bits, fraction_bits) = match rule.operand {
            Operand::Bf16 => (8, 7),
            Operand::F16 => (5, 10),
            Operand::Tf32 => (8, 23),
            Operand::E4m3 => (4, 3),
        };
        let bias = (1 << (exponent_bits - 1)) - 1;
        for _ in 0..60 {
            let width = random.random_range(1..16);
            let (a, b) = (
                random.random_range(-bias..=bias),
                random.random_range(-bias..=bias),
            );
            let mut rows = |rows: usize, centre: i32| -> Vec<Vec<u32>> {
                let mut code = || {
                    let exponent = centre + random.random_range(-width..=width);
                    let field = (exponent + bias).clamp(0, 2 * bias) as u32;
                    let kept = operand_code(&rule, Kind::Bits, random.next_u64());
                    let cleared = kept & !((2 * bias as u32 + 1) << fraction_bits);
                    cleared | field << fraction_bits
                };
                (0..rows)
                    .map(|_| (0..64).map(|_| code()).collect())
                    .collect()
            };
            let (rows_a, rows_b) = (rows(16, a), rows(6, b));
            let c = (0..16 * 6)
                .map(|_| {
                    let field = (a + b + 127 + random.random_range(-9..9)).clamp(0, 254) as u32;
                    code(Kind::Near, 8, 23, random.next_u64()) & 0x807f_ffff | field << 23
                })
                .collect();
            let gemm = Gemm {
                rule,
                a: rows_a,
                b: rows_b,
                c,
            };
            gemm.assert_forms_agree(&[0..64, 0..rule.step(), 5..60]);
        }
    }
}
