//! Oracles: worked examples and vectors of a published simulator for both forms of the rule; the scalar
//! rule for the vector form on inputs that nobody computed elsewhere.

use std::{fs, path::PathBuf};

use ndarray::{Array2, s};
use proptest::prelude::*;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use ulpdrift_reference::simd::Level;

use super::{super::Family, *};
use crate::{suite::vectors::ScaledVectors, tensor_core::Arch};

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures")
        .join(name)
}

fn rule(kind: Kind) -> ScaledRule {
    let family = Family::MmaSync;
    Arch::Sm120
        .scaled_rule(ScaledInstruction { family, kind })
        .unwrap()
}

/// A GEMM in codes, to be run in either form.
#[derive(Clone, Debug)]
struct Gemm {
    a: ScaledRows,
    b: ScaledRows,
    /// `[rows of a, rows of b]`.
    c: Array2<u32>,
}

impl Gemm {
    fn run(&self, rule: &ScaledRule, level: Level) -> Array2<u32> {
        let mut acc = self.c.mapv(f32::from_bits);
        chains(rule, level, &self.a, &PackedRows::new(&self.b), &mut acc);
        acc.mapv(f32::to_bits)
    }

    fn run_scalar(&self, rule: &ScaledRule) -> Array2<u32> {
        Array2::from_shape_fn(self.c.dim(), |(m, n)| {
            scalar::mma(rule, &self.a, m, &self.b, n, self.c[[m, n]])
        })
    }

    /// Returns the outputs compared, at each level.
    fn assert_forms_agree(&self, rule: &ScaledRule) -> usize {
        let want = self.run_scalar(rule);
        for level in Level::ALL {
            let got = self.run(rule, level);
            for ((at, got), want) in got.indexed_iter().zip(&want) {
                assert_eq!(
                    got, want,
                    "{level} {rule:?}: output {at:?} is {got:08x}, by the scalar rule {want:08x}"
                );
            }
        }
        want.len()
    }
}

/// The worked examples, once per architecture that has the instruction.
#[test]
fn worked_examples_hold_in_both_forms() {
    let word = |text: &str| u32::from_str_radix(text, 16).unwrap();
    let bytes = |text: &str| -> Vec<u8> {
        let pairs = text.as_bytes().chunks(2);
        pairs
            .map(|pair| word(std::str::from_utf8(pair).unwrap()) as u8)
            .collect()
    };
    let mut rows = csv::Reader::from_path(fixture("worked_examples_scaled.csv")).unwrap();
    let mut examples = [0; 3];
    for row in rows.records() {
        let row = row.unwrap();
        let case = row.iter().take(5).collect::<Vec<_>>().join(" ");
        let index = Kind::ALL
            .iter()
            .position(|kind| kind.to_string() == row[0])
            .unwrap();
        let kind = Kind::ALL[index];
        examples[index] += 1;
        let family = [Family::MmaSync, Family::Tcgen05]
            .into_iter()
            .find(|family| family.to_string() == row[4])
            .unwrap();
        let arch: Arch = row[3].parse().unwrap();
        let rule = arch
            .scaled_rule(ScaledInstruction { family, kind })
            .unwrap();
        let operand = |codes: &str, scales: &str| {
            let codes = match kind {
                Kind::Mxf8f6f4 => bytes(codes),
                // Two codes per byte, that of the even k in the low half.
                _ => bytes(codes).iter().flat_map(|b| [b & 15, b >> 4]).collect(),
            };
            let row = |bytes: Vec<u8>| Array2::from_shape_vec((1, bytes.len()), bytes).unwrap();
            ScaledRows::new(kind, row(codes).view(), row(bytes(scales)).view())
        };
        let gemm = Gemm {
            a: operand(&row[5], &row[7]),
            b: operand(&row[6], &row[8]),
            c: Array2::from_elem((1, 1), word(&row[9])),
        };
        let want = Array2::from_elem((1, 1), word(&row[10]));
        assert_eq!(gemm.run_scalar(&rule), want, "{case}");
        for level in Level::ALL {
            assert_eq!(gemm.run(&rule, level), want, "{case} {level}");
        }
    }
    assert_eq!(examples, [40, 24, 24]);
}

/// The check can fail: a rule that is off by the least amount does not get through.
#[test]
fn wrong_rules_are_found_out() {
    for kind in Kind::ALL {
        let file = format!("vectors/model_sm_120_{kind}.safetensors");
        let vectors = ScaledVectors::from_bytes(&fs::read(fixture(&file)).unwrap()).unwrap();
        let right = rule(kind);
        let mut wrong = vec![ScaledRule {
            fraction_bits: right.fraction_bits - 1,
            ..right
        }];
        if kind != Kind::Mxf8f6f4 {
            // Its sums leave no room for a bit more.
            wrong.push(ScaledRule {
                fraction_bits: right.fraction_bits + 1,
                ..right
            });
        }
        if kind.scale() == ScaleFormat::Ue8m0 {
            // A floor matters only where its last place is above that of a subnormal result, and UE4M3
            // scales do not reach down to it.
            wrong.push(ScaledRule {
                exponent_floor: right.exponent_floor + 40,
                ..right
            });
        }
        for wrong in wrong {
            let found = |levels| -> usize {
                let categories = vectors.compare(&wrong, levels);
                categories.iter().map(|category| category.mismatches).sum()
            };
            assert!(
                found(&[]) >= 100,
                "{kind} passes as {wrong:?}: {}",
                found(&[])
            );
            // The vector form is wrong in the same places.
            assert_eq!(found(&[]), found(&Level::ALL), "{kind} as {wrong:?}");
        }
    }
}

/// What kind of codes, scales and accumulators a test draws.
#[derive(Clone, Copy, Debug)]
enum Draw {
    /// Raw bits: NaN and infinity among them.
    Bits,
    /// Any number.
    Finite,
    /// Scales and accumulators within some binades of one.
    Near,
    /// Mostly zero codes, zero or least scales, zero accumulators.
    Sparse,
    /// The least numbers.
    Tiny,
    /// The largest, of one sign: sums that overflow.
    Huge,
}

const DRAWS: [Draw; 6] = [
    Draw::Bits,
    Draw::Finite,
    Draw::Near,
    Draw::Sparse,
    Draw::Tiny,
    Draw::Huge,
];

fn code(kind: Kind, draw: Draw, random: &mut ChaCha8Rng) -> u8 {
    let bits = random.random::<u8>();
    let (mask, sign) = match kind {
        Kind::Mxf8f6f4 => (0xff, 0x80),
        Kind::Mxf4 | Kind::Mxf4nvf4 => (0xf, 8),
    };
    let number = if bits & 0x7f == 0x7f { 0x40 } else { bits } & mask;
    match draw {
        Draw::Bits => bits & mask,
        Draw::Finite | Draw::Near => number,
        Draw::Sparse if random.random_ratio(1, 8) => number,
        Draw::Sparse => number & sign,
        Draw::Tiny => number & (sign | 1),
        Draw::Huge => number & (sign - 1) | sign >> 1,
    }
}

fn scale(kind: Kind, draw: Draw, random: &mut ChaCha8Rng) -> u8 {
    let bits = random.random::<u8>();
    let below = |end: u8| bits % end;
    match (kind.scale(), draw) {
        (_, Draw::Bits) => bits,
        (ScaleFormat::Ue8m0, Draw::Finite) => below(255),
        (ScaleFormat::Ue4m3, Draw::Finite) => below(127) | bits & 0x80,
        (ScaleFormat::Ue8m0, Draw::Near) => 120 + below(16),
        (ScaleFormat::Ue4m3, Draw::Near) => 0x28 + below(32),
        (_, Draw::Sparse) => below(2) * 0x38,
        (ScaleFormat::Ue8m0, Draw::Tiny) => 44 + below(24),
        (ScaleFormat::Ue4m3, Draw::Tiny) => below(9),
        (ScaleFormat::Ue8m0, Draw::Huge) => 184 + below(8),
        (ScaleFormat::Ue4m3, Draw::Huge) => 0x76 + below(9),
    }
}

fn accumulator(draw: Draw, random: &mut ChaCha8Rng) -> u32 {
    let bits = random.next_u32();
    let with_exponent = |field: u32| bits & 0x807f_ffff | field << 23;
    match draw {
        Draw::Bits => bits,
        Draw::Finite => with_exponent(random.random_range(0..255)),
        Draw::Near => with_exponent(random.random_range(80..150)),
        Draw::Sparse => bits & 0x8000_0000,
        Draw::Tiny => with_exponent(random.random_range(0..3)),
        Draw::Huge => with_exponent(random.random_range(250..255)) & 0x7fff_ffff,
    }
}

fn gemm(kind: Kind, shape: [usize; 3], draws: [Draw; 3], seed: u64) -> Gemm {
    let [rows, cols, depth] = shape;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut operand = |rows: usize| {
        let codes =
            Array2::from_shape_simple_fn((rows, depth), || code(kind, draws[0], &mut random));
        let blocks = (rows, depth.div_ceil(kind.scale_block()));
        let scales = Array2::from_shape_simple_fn(blocks, || scale(kind, draws[1], &mut random));
        ScaledRows::new(kind, codes.view(), scales.view())
    };
    let (a, b) = (operand(rows), operand(cols));
    let c = Array2::from_shape_simple_fn((rows, cols), || accumulator(draws[2], &mut random));
    Gemm { a, b, c }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn forms_agree(
        kind in prop::sample::select(Kind::ALL.to_vec()),
        // More than a strip of rows, more than a vector of columns, ragged depths.
        shape in [1_usize..20, 1_usize..70, 0_usize..200],
        draws in prop::array::uniform3(prop::sample::select(DRAWS.to_vec())),
        seed in any::<u64>(),
    ) {
        gemm(kind, shape, draws, seed).assert_forms_agree(&rule(kind));
    }
}

/// A million blocks, of every combination of draws.
#[test]
fn forms_agree_on_a_million_blocks() {
    let mut blocks = 0;
    for kind in Kind::ALL {
        for codes in DRAWS {
            for scales in DRAWS {
                for (seed, c) in DRAWS.into_iter().enumerate() {
                    let depth = 2 * kind.k();
                    let shape = [16, 64, depth];
                    let gemm = gemm(kind, shape, [codes, scales, c], seed as u64);
                    blocks += 2 * gemm.assert_forms_agree(&rule(kind));
                }
            }
        }
    }
    assert!(blocks >= 1_000_000, "{blocks}");
}

#[test]
fn long_chains_agree_up_to_overflow() {
    for kind in Kind::ALL {
        for draw in [Draw::Near, Draw::Finite, Draw::Huge] {
            gemm(kind, [2, 33, 28_672], [Draw::Finite, draw, Draw::Sparse], 1)
                .assert_forms_agree(&rule(kind));
        }
    }
    let huge = gemm(Kind::Mxf4, [1, 1, 28_672], [Draw::Huge; 3], 0);
    let end = huge.run_scalar(&rule(Kind::Mxf4))[[0, 0]];
    assert_eq!(end, 0x7f80_0000, "the test reaches overflow");
}

/// A chain over K is the chain over its first half continued over its second.
#[test]
fn continuing_a_chain_is_the_same_as_not_interrupting_it() {
    for kind in Kind::ALL {
        let whole = gemm(
            kind,
            [3, 40, 256],
            [Draw::Finite, Draw::Near, Draw::Near],
            5,
        );
        let part = |rows: &ScaledRows, range: std::ops::Range<usize>| {
            let scale_block = kind.scale_block();
            let all = Array2::from_shape_fn((rows.rows(), 256), |(r, k)| rows.codes(r)[k]);
            let scales = (rows.rows(), 256 / scale_block);
            let scales = Array2::from_shape_fn(scales, |(r, s)| rows.scales(r)[s]);
            let blocks = range.start / scale_block..range.end / scale_block;
            ScaledRows::new(kind, all.slice(s![.., range]), scales.slice(s![.., blocks]))
        };
        let half = |c, range: std::ops::Range<usize>| {
            let (a, b) = (part(&whole.a, range.clone()), part(&whole.b, range));
            Gemm { a, b, c }.run(&rule(kind), Level::detect())
        };
        let first = half(whole.c.clone(), 0..128);
        assert_ne!(first, whole.c);
        let want = whole.run(&rule(kind), Level::detect());
        assert_eq!(half(first, 128..256), want);
    }
}

#[test]
fn threads_and_memory_order_do_not_matter() {
    let rule = rule(Kind::Mxf4nvf4);
    let draws = [Draw::Finite, Draw::Near, Draw::Near];
    let gemm = gemm(Kind::Mxf4nvf4, [50, 70, 128], draws, 3);
    let many = gemm.run(&rule, Level::detect());
    let one = rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .build()
        .unwrap();
    assert_eq!(one.install(|| gemm.run(&rule, Level::detect())), many);

    let transposed = gemm.c.t().as_standard_layout().into_owned();
    let mut acc = transposed.mapv(f32::from_bits).reversed_axes();
    let packed = PackedRows::new(&gemm.b);
    chains(&rule, Level::detect(), &gemm.a, &packed, &mut acc);
    assert_eq!(acc.mapv(f32::to_bits), many);
}

#[test]
fn instructions_are_read_by_their_ptx_names() {
    for (text, family, kind) in [
        (
            "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0",
            Family::MmaSync,
            Kind::Mxf8f6f4,
        ),
        (
            "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3",
            Family::MmaSync,
            Kind::Mxf4nvf4,
        ),
        (
            "tcgen05.m128n8k64.kind::mxf4.block_scale.f32.e2m1.e2m1.ue8m0",
            Family::Tcgen05,
            Kind::Mxf4,
        ),
    ] {
        assert_eq!(
            text.parse(),
            Ok(ScaledInstruction { family, kind }),
            "{text}"
        );
    }
    for text in [
        "",
        "mma.m16n8k64.block_scale.f32.e2m1.e2m1.ue8m0",
        "wgmma.m16n8k64.kind::mxf4.block_scale.f32.e2m1.e2m1.ue8m0",
        "mma.m16n8k32.kind::mxf4.block_scale.f32.e2m1.e2m1.ue8m0",
        "mma.m16n8k64.kind::mxf4.block_scale.f32.e2m1.e2m1.ue4m3",
        "mma.m16n8k64.kind::mxf4nvf4.block_scale.f32.e2m1.e2m1.ue8m0",
        "mma.m16n8k64.kind::mxf4.block_scale.f16.e2m1.e2m1.ue8m0",
        "mma.m16n8k32.kind::mxf8f6f4.block_scale.f32.e4m3.e5m2.ue8m0",
        "mma.m16n8k32.kind::mxf8f6f4.block_scale.f32.e2m1.e2m1.ue8m0",
    ] {
        assert!(text.parse::<ScaledInstruction>().is_err(), "{text}");
    }
}

#[test]
fn only_blackwell_has_them() {
    for arch in Arch::ALL {
        let kinds: Vec<Kind> = arch.scaled_instructions().map(|i| i.kind).collect();
        match arch {
            Arch::Sm100 | Arch::Sm120 => assert_eq!(kinds, Kind::ALL),
            _ => assert!(kinds.is_empty()),
        }
    }
    let fp4 = ScaledInstruction {
        family: Family::Wgmma,
        kind: Kind::Mxf4nvf4,
    };
    assert_eq!(
        Arch::Sm90.scaled_rule(fp4).unwrap_err().to_string(),
        "sm_90 has no block-scaled wgmma mxf4nvf4 k64 instruction: emulate sm_100 (tcgen05) or sm_120 \
         (mma.sync)"
    );
}

#[test]
#[should_panic(expected = "codes are not e2m1 codes, one per byte")]
fn two_codes_in_a_byte_are_refused() {
    let codes = Array2::from_elem((1, 32), 0x22_u8);
    let _ = ScaledRows::new(
        Kind::Mxf4,
        codes.view(),
        Array2::from_elem((1, 1), 127).view(),
    );
}

#[test]
#[should_panic(expected = "scales are [rows, ⌈K / 16⌉] for codes of [1, 32]")]
fn scales_of_another_block_are_refused() {
    let codes = Array2::from_elem((1, 32), 2_u8);
    let _ = ScaledRows::new(
        Kind::Mxf4nvf4,
        codes.view(),
        Array2::from_elem((1, 1), 0x38).view(),
    );
}
