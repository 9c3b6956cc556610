//! Oracles: recorded vectors and worked examples for both forms of the rule; the scalar rule for the
//! vector form on inputs that nobody recorded.
#![expect(
    clippy::single_range_in_vec_init,
    reason = "a list of ranges may hold one"
)]

mod chains;
mod words;

use std::{fs, path::PathBuf};

use ndarray::{Array2, Array3};
use proptest::prelude::*;
use ulpdrift_reference::simd::Level;

use super::*;
use crate::suite::vectors::{Vectors, replay_file};

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures")
        .join(name)
}

/// Every recorded output, by the scalar rule and by the vector form at every level.
#[test]
fn recorded_vectors_have_no_mismatch() {
    let mut outputs = 0;
    for entry in fs::read_dir(fixture("vectors")).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "safetensors")
        {
            let replay = replay_file(&path, None, &Level::ALL).unwrap();
            assert_eq!(replay.mismatches(), 0, "{path:?}: {:x?}", replay.categories);
            outputs += replay.outputs();
        }
    }
    assert_eq!(outputs, 8 * 98_304 + 4 * 26_624 + 3 * 11_520 + 24_576);
}

/// The check can fail: a rule that is off by the least amount does not get through.
#[test]
fn wrong_rules_are_found_out() {
    for (file, least) in [
        ("h200_sm_90_bf16", 1000),
        ("h200_sm_90_tf32", 1000),
        ("h200_sm_90_f16", 1000),
        ("h200_sm_90_wgmma_e4m3", 1000),
        ("model_sm_80_bf16", 200),
        ("model_sm_80_tf32", 200),
    ] {
        let bytes = fs::read(fixture("vectors").join(file).with_extension("safetensors")).unwrap();
        let vectors = Vectors::from_bytes(&bytes).unwrap();
        let arch = if file.starts_with("h200") {
            Arch::Sm90
        } else {
            Arch::Sm80
        };
        let rule = arch.rule(vectors.instruction).unwrap();
        for wrong in [
            Rule {
                fraction_bits: rule.fraction_bits - 1,
                ..rule
            },
            Rule {
                fraction_bits: rule.fraction_bits + 1,
                ..rule
            },
            Rule {
                block_len: rule.block_len / 2,
                ..rule
            },
        ] {
            let found = |levels| -> usize {
                vectors
                    .compare(&wrong, levels)
                    .iter()
                    .map(|category| category.mismatches)
                    .sum()
            };
            assert!(found(&[]) >= least, "{file} passes as {wrong:?}");
            // The vector form is wrong in the same places, also where it must hand over.
            assert_eq!(found(&[]), found(&Level::ALL), "{file} as {wrong:?}");
        }
    }
}

struct Example {
    rule: Rule,
    case: String,
    a: Vec<u32>,
    b: Vec<u32>,
    c: u32,
    d: u32,
}

fn worked_examples() -> Vec<Example> {
    let bits = |text: &str| u32::from_str_radix(text, 16).unwrap();
    let family = |text: &str| {
        [Family::MmaSync, Family::Wgmma, Family::Tcgen05]
            .into_iter()
            .find(|family| family.to_string() == text)
            .unwrap()
    };
    let mut rows = csv::Reader::from_path(fixture("worked_examples.csv")).unwrap();
    let examples = rows.records().map(|row| {
        let row = row.unwrap();
        let instruction = Instruction {
            family: family(&row[4]),
            operand: row[0].parse().unwrap(),
            k: row[5].parse().unwrap(),
        };
        Example {
            rule: row[3].parse::<Arch>().unwrap().rule(instruction).unwrap(),
            case: row.iter().take(5).collect::<Vec<_>>().join(" "),
            a: row[6].split(' ').map(bits).collect(),
            b: row[7].split(' ').map(bits).collect(),
            c: bits(&row[8]),
            d: bits(&row[9]),
        }
    });
    examples.collect()
}

#[test]
fn worked_examples_hold_in_both_forms() {
    let examples = worked_examples();
    assert_eq!(examples.len(), 596);
    for Example {
        rule,
        case,
        a,
        b,
        c,
        d,
    } in examples
    {
        assert_eq!(scalar::mma(&rule, &a, &b, c), d, "{case}");
        for level in Level::ALL {
            let got = Gemm::dot(rule, a.clone(), b.clone(), c).run(level, &[0..a.len()]);
            assert_eq!(got, [d], "{case} {level}");
        }
    }
}

/// A GEMM in codes, to be run in either form.
#[derive(Clone, Debug)]
struct Gemm {
    rule: Rule,
    a: Vec<Vec<u32>>,
    b: Vec<Vec<u32>>,
    /// Row-major `[tokens, outputs]`, the same for every range.
    c: Vec<u32>,
}

impl Gemm {
    fn dot(rule: Rule, a: Vec<u32>, b: Vec<u32>, c: u32) -> Self {
        Self {
            rule,
            a: vec![a],
            b: vec![b],
            c: vec![c],
        }
    }

    fn values(&self, codes: &[Vec<u32>]) -> Array2<f32> {
        Array2::from_shape_fn((codes.len(), codes[0].len()), |(row, k)| {
            // A tf32 register keeps its dirty low bits until the unit reads it.
            match self.rule.operand {
                Operand::Tf32 => f32::from_bits(codes[row][k]),
                operand => operand.from_code(codes[row][k]),
            }
        })
    }

    fn run(&self, level: Level, ranges: &[std::ops::Range<usize>]) -> Vec<u32> {
        let (x, w) = (self.values(&self.a), self.values(&self.b));
        let weights = PackedWeights::new(self.rule.operand, w.view());
        let (tokens, outputs) = (self.a.len(), self.b.len());
        let mut acc = Array3::from_shape_fn((ranges.len(), tokens, outputs), |(_, t, n)| {
            f32::from_bits(self.c[t * outputs + n])
        });
        chains(&self.rule, level, x.view(), &weights, ranges, &mut acc);
        acc.iter().map(|d| d.to_bits()).collect()
    }

    fn run_scalar(&self, ranges: &[std::ops::Range<usize>]) -> Vec<u32> {
        let mut results = Vec::new();
        for range in ranges {
            for (t, a) in self.a.iter().enumerate() {
                for (n, b) in self.b.iter().enumerate() {
                    let c = self.c[t * self.b.len() + n];
                    let (a, b) = (&a[range.clone()], &b[range.clone()]);
                    results.push(scalar::mma(&self.rule, a, b, c));
                }
            }
        }
        results
    }

    fn assert_forms_agree(&self, ranges: &[std::ops::Range<usize>]) {
        let want = self.run_scalar(ranges);
        for level in Level::ALL {
            let got = self.run(level, ranges);
            if let Some(at) = (0..want.len()).find(|&i| got[i] != want[i]) {
                panic!(
                    "{level} {:?}: output {at} is {:08x}, by the scalar rule {:08x}",
                    self.rule, got[at], want[at]
                );
            }
        }
    }
}

/// Every different rule of the table.
fn rules() -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    for arch in Arch::ALL {
        for instruction in arch.instructions() {
            let rule = arch.rule(instruction).unwrap();
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
    }
    rules
}

/// What kind of codes a test draws.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Raw bits: every exponent, NaN and infinity.
    Bits,
    /// Within a few binades of one.
    Near,
    /// Anything finite.
    Finite,
    /// Subnormals and the smallest normals.
    Tiny,
    /// Mostly zeros.
    Sparse,
    /// Near the top of the range, one sign: sums that overflow.
    Huge,
}

const KINDS: [Kind; 6] = [
    Kind::Bits,
    Kind::Near,
    Kind::Finite,
    Kind::Tiny,
    Kind::Sparse,
    Kind::Huge,
];

/// A code of a format with the given exponent and fraction widths, made of random bits.
fn code(kind: Kind, exponent_bits: u32, fraction_bits: u32, random: u64) -> u32 {
    let bias = (1_u32 << (exponent_bits - 1)) - 1;
    let all = 2 * bias + 1;
    let fraction = random as u32 & ((1 << fraction_bits) - 1);
    let sign = (random >> 32) as u32 & 1;
    let draw = (random >> 40) as u32;
    let finite = draw % all;
    let (sign, exponent, fraction) = match kind {
        Kind::Bits => (sign, draw % (all + 1), fraction),
        Kind::Near => (sign, bias - 3 + draw % 6, fraction),
        Kind::Finite => (sign, finite, fraction),
        Kind::Tiny => (sign, draw % 3, fraction),
        Kind::Sparse if draw.is_multiple_of(8) => (sign, finite, fraction),
        Kind::Sparse => (sign, 0, 0),
        Kind::Huge => (0, bias + bias / 2 + draw % 3, fraction),
    };
    (sign << exponent_bits | exponent) << fraction_bits | fraction
}

fn operand_code(rule: &Rule, kind: Kind, random: u64) -> u32 {
    match rule.operand {
        Operand::Bf16 => code(kind, 8, 7, random),
        Operand::F16 => code(kind, 5, 10, random),
        Operand::Tf32 => code(kind, 8, 10, random) << 13 | (random >> 20) as u32 & 0x1fff,
        Operand::E4m3 => code(kind, 4, 3, random),
    }
}

fn gemm(rule: Rule, shape: [usize; 3], kinds: [Kind; 3], seed: u64) -> Gemm {
    use rand::{Rng, SeedableRng};
    let [tokens, outputs, depth] = shape;
    let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    let mut rows = |rows: usize, kind| -> Vec<Vec<u32>> {
        let mut row = || {
            (0..depth)
                .map(|_| operand_code(&rule, kind, random.next_u64()))
                .collect()
        };
        (0..rows).map(|_| row()).collect()
    };
    let (a, b) = (rows(tokens, kinds[0]), rows(outputs, kinds[1]));
    let c = (0..tokens * outputs)
        .map(|_| code(kinds[2], 8, 23, random.next_u64()))
        .collect();
    Gemm { rule, a, b, c }
}

fn kind() -> impl Strategy<Value = Kind> {
    prop::sample::select(KINDS.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn forms_agree(
        rule in prop::sample::select(rules()),
        tokens in 1_usize..20,
        outputs in 1_usize..7,
        depth in 1_usize..100,
        kinds in [kind(), kind(), kind()],
        cuts in [0.0..1.0, 0.0..1.0],
        seed in any::<u64>(),
    ) {
        let [mut from, mut to] = cuts.map(|cut: f64| (cut * depth as f64) as usize);
        if from > to {
            std::mem::swap(&mut from, &mut to);
        }
        // Ragged, overlapping and empty ranges.
        let ranges = [0..depth, from..to, from..depth, to..to];
        gemm(rule, [tokens, outputs, depth], kinds, seed).assert_forms_agree(&ranges);
    }
}

#[test]
fn forms_agree_over_every_kind_and_rule() {
    for (index, rule) in rules().into_iter().enumerate() {
        for x in KINDS {
            for w in KINDS {
                for (seed, c) in KINDS.into_iter().enumerate() {
                    let seed = (index * KINDS.len() + seed) as u64;
                    let gemm = gemm(rule, [3, 5, 72], [x, w, c], seed);
                    gemm.assert_forms_agree(&[0..72, 3..40]);
                }
            }
        }
    }
}

/// Sums that grow until they overflow, and stay infinite or become NaN.
#[test]
fn long_chains_agree_up_to_overflow() {
    for rule in rules() {
        let kinds = [
            [Kind::Huge, Kind::Huge, Kind::Huge],
            [Kind::Near, Kind::Near, Kind::Near],
            [Kind::Finite, Kind::Finite, Kind::Near],
        ];
        for (seed, kinds) in kinds.into_iter().enumerate() {
            let gemm = gemm(rule, [2, 5, 4096], kinds, seed as u64);
            gemm.assert_forms_agree(&[0..4096, 1..1000]);
        }
    }
    let rule = Arch::Sm90
        .rule("mma.m16n8k16.f32.bf16".parse().unwrap())
        .unwrap();
    let huge = gemm(rule, [1, 1, 4096], [Kind::Huge; 3], 0).run_scalar(&[0..4096]);
    assert_eq!(huge, [0x7f80_0000], "the test reaches overflow");
}

#[test]
fn continuing_a_chain_is_the_same_as_not_interrupting_it() {
    let rule = Arch::Sm120
        .rule("mma.m16n8k8.f32.tf32".parse().unwrap())
        .unwrap();
    let whole = gemm(rule, [17, 6, 640], [Kind::Near; 3], 7);
    let first = whole.run(Level::detect(), &[0..320]);
    let rest = Gemm {
        c: first,
        ..whole.clone()
    }
    .run(Level::detect(), &[320..640]);
    assert_eq!(rest, whole.run(Level::detect(), &[0..640]));
}

#[test]
fn threads_and_memory_order_do_not_matter() {
    let rule = Arch::Sm120
        .rule("mma.m16n8k16.f32.bf16".parse().unwrap())
        .unwrap();
    let gemm = gemm(rule, [50, 9, 300], [Kind::Near; 3], 3);
    let ranges = [0..100, 100..200, 200..300];
    let many = gemm.run(Level::detect(), &ranges);
    let one = rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .build()
        .unwrap();
    assert_eq!(one.install(|| gemm.run(Level::detect(), &ranges)), many);

    // x and acc as transposed views of other arrays.
    let (x, w) = (gemm.values(&gemm.a), gemm.values(&gemm.b));
    let x = Array2::from_shape_fn((300, 50), |(k, t)| x[[t, k]]);
    let weights = PackedWeights::new(rule.operand, w.view());
    let c = |n: usize, t: usize| f32::from_bits(gemm.c[t * 9 + n]);
    let acc = Array3::from_shape_fn((3, 9, 50), |(_, n, t)| c(n, t));
    let mut acc = acc.permuted_axes([0, 2, 1]);
    chains(&rule, Level::detect(), x.t(), &weights, &ranges, &mut acc);
    assert!(acc.iter().map(|d| d.to_bits()).eq(many));
}

#[test]
fn all_sums_of_the_table_fit_the_vector_form() {
    for rule in rules() {
        assert!(vector::fits(&rule), "{rule:?}");
    }
    let rule = Arch::Sm90
        .rule("mma.m16n8k16.f32.f16".parse().unwrap())
        .unwrap();
    assert!(
        !vector::fits(&Rule {
            fraction_bits: 26,
            ..rule
        }),
        "one bit more does not fit"
    );
}

#[test]
fn an_instruction_that_is_not_there_is_named_with_its_alternatives() {
    let instruction: Instruction = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16"
        .parse()
        .unwrap();
    assert_eq!(
        Arch::Sm120.rule(instruction).unwrap_err().to_string(),
        "sm_120 has no wgmma bf16 k16 instruction whose arithmetic is known; for bf16 operands use \
         mma.sync bf16 k16 or mma.sync bf16 k8"
    );
    let fp8: Instruction = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
        .parse()
        .unwrap();
    assert_eq!(
        Arch::Sm86.rule(fp8).unwrap_err().to_string(),
        "sm_86 has no mma.sync e4m3 k32 instruction whose arithmetic is known; it multiplies no e4m3 \
         operands"
    );
    for text in [
        "",
        "mma",
        "mma.m16n8k16.f32",
        "mma.m16n8.f32.bf16",
        "hmma.m16n8k16.f32.bf16",
        "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16",
        "mma.m16n8k16.f32.bf16.f16.f32",
    ] {
        assert!(text.parse::<Instruction>().is_err(), "{text}");
    }
    for arch in Arch::ALL {
        assert_eq!(arch.to_string().parse(), Ok(arch));
    }
}

#[test]
fn operand_exponents_are_those_of_the_alignment() {
    assert_eq!(
        Operand::F16.exponent(f32::from_bits(0x3380_0000)),
        Some(-14),
        "an f16 subnormal"
    );
    assert_eq!(
        Operand::E4m3.exponent(0.001_953_125),
        Some(-6),
        "an e4m3 subnormal"
    );
    assert_eq!(
        Operand::Bf16.exponent(f32::from_bits(0x0001_0000)),
        Some(-126)
    );
    assert_eq!(
        Operand::Tf32.exponent(f32::from_bits(0x0000_1fff)),
        None,
        "read as zero"
    );
    assert_eq!(Operand::Tf32.exponent(1.999), Some(0));
    for x in [0.0, -0.0, f32::INFINITY, f32::NAN] {
        assert_eq!(Operand::Bf16.exponent(x), None);
    }
    let product_bits = Operand::ALL.map(Operand::product_fraction_bits);
    assert_eq!(product_bits, [14, 20, 20, 6]);
}
