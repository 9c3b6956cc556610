//! Bits of the vectorised rule against the scalar one, on as many random blocks as asked for:
//!
//! ```text
//! cargo bench --bench bit_equality -- 100000000
//! ```
//!
//! Every rule of the table takes that many blocks (10⁸ if no number is given), at every vector level
//! that this machine has. Exits 1 if a bit differs, or if a rule that is off by one bit goes unnoticed.

use std::{array, process::ExitCode};

use ndarray::{Array2, Array3};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use ulpdrift::tensor_core::{Arch, Lowering, Operand, PackedWeights, Rule, chains, scalar};
use ulpdrift_reference::simd::Level;

const BLOCKS: u64 = 100_000_000;

/// Blocks drawn together: tokens by outputs, of one step each.
const TOKENS: usize = 16;
const OUTPUTS: usize = 64;
const TOGETHER: u64 = (TOKENS * OUTPUTS) as u64;

/// Draws between two lines of progress.
const LAP: u64 = 10_000;

/// A floating-point layout: the widths of its fields.
#[derive(Clone, Copy)]
struct Layout {
    exponent_bits: u32,
    fraction_bits: u32,
}

const F32: Layout = Layout {
    exponent_bits: 8,
    fraction_bits: 23,
};

impl Layout {
    /// The layout whose codes an operand's register holds, dirty low bits of tf32 included.
    const fn of(operand: Operand) -> Self {
        let (exponent_bits, fraction_bits) = match operand {
            Operand::Bf16 => (8, 7),
            Operand::F16 => (5, 10),
            Operand::Tf32 => (8, 23),
            Operand::E4m3 => (4, 3),
        };
        Self {
            exponent_bits,
            fraction_bits,
        }
    }

    fn bias(self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    /// A code with this exponent, as near as the format has it, and all else random.
    fn code(self, exponent: i32, random: &mut ChaCha8Rng) -> u32 {
        let largest = (1 << self.exponent_bits) - 1;
        let field = (exponent + self.bias()).clamp(0, largest) as u32;
        let bits = random.next_u32();
        let fraction = match bits >> 28 {
            0 => 0,
            1 => u32::MAX,
            _ => bits,
        };
        let sign = (bits >> 27 & 1) << (self.exponent_bits + self.fraction_bits);
        sign | field << self.fraction_bits | fraction & ((1 << self.fraction_bits) - 1)
    }

    /// Any code at all.
    fn any(self, random: &mut ChaCha8Rng) -> u32 {
        random.next_u32() >> (31 - self.exponent_bits - self.fraction_bits)
    }

    /// Any exponent of the format.
    fn exponent(self, random: &mut ChaCha8Rng) -> i32 {
        random.random_range(-self.bias()..=self.bias())
    }
}

/// How the exponents of one operand lie.
#[derive(Clone, Copy)]
struct Spread {
    layout: Layout,
    centre: i32,
    width: i32,
    /// One in so many is zero; none if it is zero.
    zeros: u32,
    /// All codes alike, NaN and infinity among them.
    raw: bool,
}

impl Spread {
    fn draw(layout: Layout, random: &mut ChaCha8Rng) -> Self {
        Self {
            layout,
            centre: layout.exponent(random),
            width: random.random_range(0..16),
            zeros: [0, 0, 8, 2][random.random_range(0..4)],
            raw: random.random_ratio(1, 8),
        }
    }

    fn code(&self, random: &mut ChaCha8Rng) -> u32 {
        if self.raw {
            return self.layout.any(random);
        }
        if self.zeros != 0 && random.random_ratio(1, self.zeros) {
            return 0;
        }
        let away = random.random_range(-self.width..=self.width);
        self.layout.code(self.centre + away, random)
    }
}

/// Blocks of one draw.
struct Draw {
    rule: Rule,
    a: Array2<u32>,
    b: Array2<u32>,
    c: Array2<u32>,
}

impl Draw {
    /// Exponents are drawn around centres from anywhere in the range, those of C around the products'.
    fn new(rule: Rule, seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let layout = Layout::of(rule.operand);
        let (a, b) = (
            Spread::draw(layout, &mut random),
            Spread::draw(layout, &mut random),
        );
        let c = Spread {
            centre: a.centre + b.centre + random.random_range(-8..=8),
            ..Spread::draw(F32, &mut random)
        };
        let k = rule.step();
        Self {
            rule,
            a: Array2::from_shape_simple_fn((TOKENS, k), || a.code(&mut random)),
            b: Array2::from_shape_simple_fn((OUTPUTS, k), || b.code(&mut random)),
            c: Array2::from_shape_simple_fn((TOKENS, OUTPUTS), || c.code(&mut random)),
        }
    }

    fn by_scalar_rule(&self, rule: &Rule) -> Vec<u32> {
        let rows = |codes: &Array2<u32>| -> Vec<Vec<u32>> {
            codes.rows().into_iter().map(|row| row.to_vec()).collect()
        };
        let (a, b) = (rows(&self.a), rows(&self.b));
        let outputs = self.c.indexed_iter();
        outputs
            .map(|((t, n), &c)| scalar::mma(rule, &a[t], &b[n], c))
            .collect()
    }

    fn by_vector_rule(&self, level: Level) -> Vec<u32> {
        let value = |&code: &u32| match self.rule.operand {
            Operand::Tf32 => f32::from_bits(code),
            operand => operand.from_code(code),
        };
        let weights = PackedWeights::new(self.rule.operand, self.b.map(value).view());
        let whole = 0..self.rule.step();
        let mut acc = Array3::from_shape_fn((1, TOKENS, OUTPUTS), |(_, t, n)| {
            f32::from_bits(self.c[[t, n]])
        });
        let ranges = std::slice::from_ref(&whole);
        let x = self.a.map(value);
        chains(&self.rule, level, x.view(), &weights, ranges, &mut acc);
        acc.iter().map(|d| d.to_bits()).collect()
    }
}

/// The vector levels of this machine.
fn levels() -> impl Iterator<Item = Level> {
    Level::ALL.into_iter().filter(|level| level.is_available())
}

fn differing(got: &[u32], want: &[u32]) -> u64 {
    got.iter()
        .zip(want)
        .filter(|(got, want)| got != want)
        .count() as u64
}

/// Counts of blocks whose bits differ.
#[derive(Clone, Copy, Default)]
struct Found {
    /// Per level.
    levels: [u64; Level::ALL.len()],
    /// Against a rule that keeps one bit less: what the check would notice.
    wrong_rule: u64,
}

impl Found {
    fn and(self, other: Self) -> Self {
        Self {
            levels: array::from_fn(|i| self.levels[i] + other.levels[i]),
            wrong_rule: self.wrong_rule + other.wrong_rule,
        }
    }

    fn in_draw(rule: Rule, seed: u64) -> Self {
        let draw = Draw::new(rule, seed);
        let want = draw.by_scalar_rule(&rule);
        let mut found = Self::default();
        for (level, found) in levels().zip(&mut found.levels) {
            *found = differing(&draw.by_vector_rule(level), &want);
        }
        if seed.is_multiple_of(LAP) {
            let wrong = Rule {
                fraction_bits: rule.fraction_bits - 1,
                ..rule
            };
            found.wrong_rule = differing(&want, &draw.by_scalar_rule(&wrong));
        }
        found
    }
}

/// The different rules of the table, each with the instructions that follow it.
fn rules() -> Vec<(Rule, String)> {
    let mut rules: Vec<(Rule, String)> = Vec::new();
    for arch in Arch::ALL {
        for instruction in arch.instructions() {
            let rule = arch
                .rule(instruction)
                .expect("the table has its own instructions");
            let name = format!("{arch} {instruction}");
            match rules.iter_mut().find(|(known, _)| *known == rule) {
                Some((_, names)) => *names = format!("{names}, {name}"),
                None => rules.push((rule, name)),
            }
        }
    }
    rules
}

fn main() -> ExitCode {
    let blocks = std::env::args()
        .find_map(|arg| arg.parse().ok())
        .unwrap_or(BLOCKS);
    let draws = blocks.div_ceil(TOGETHER);
    println!("rule\tblocks\tblocks that differ\tinstructions");
    let mut good = true;
    for (rule, names) in rules() {
        let mut found = Found::default();
        for start in (0..draws).step_by(LAP as usize) {
            let seeds = (start..draws.min(start + LAP)).into_par_iter();
            let lap = seeds.map(|seed| Found::in_draw(rule, seed));
            found = found.and(lap.reduce(Found::default, Found::and));
            eprint!("\r{:3} %", 100 * draws.min(start + LAP) / draws);
        }
        eprint!("\r      \r");
        let differ: Vec<String> = levels()
            .zip(found.levels)
            .map(|(level, found)| format!("{level} {found}"))
            .collect();
        let lowering = match rule.lowering {
            Lowering::Native => "",
            Lowering::F16Pair => " by f16 blocks",
        };
        println!(
            "{} L={} F={}{lowering}\t{}\t{}\t{names}",
            rule.operand,
            rule.block_len,
            rule.fraction_bits,
            draws * TOGETHER,
            differ.join(", ")
        );
        if found.wrong_rule == 0 {
            println!("a rule that keeps one bit less would not have been noticed");
        }
        good &= found.levels.iter().all(|&differ| differ == 0) && found.wrong_rule > 0;
    }
    ExitCode::from(u8::from(!good))
}
