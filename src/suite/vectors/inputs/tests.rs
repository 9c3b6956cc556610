//! Every category holds what it is named for, and shows the rule that it is there for.

use std::collections::BTreeSet;

use super::*;
use crate::{
    suite::vectors::recording::Subject,
    tensor_core::{Arch, Rule, scalar},
};

fn instructions() -> impl Iterator<Item = Instruction> {
    Subject::all()
        .into_iter()
        .filter_map(|subject| match subject {
            Subject::Mma(instruction) => Some(instruction),
            Subject::Conversions => None,
        })
}

/// A tile with its instruction, read back from the inputs.
struct Read<'a> {
    operand: Operand,
    k: usize,
    a: &'a [u32],
    b: &'a [u32],
    c: &'a [u32],
}

impl Read<'_> {
    fn column(&self, col: usize) -> Vec<u32> {
        self.b[col..].iter().copied().step_by(COLS).collect()
    }

    fn output(&self, rule: &Rule, at: usize) -> u32 {
        let row = &self.a[at / COLS * self.k..][..self.k];
        scalar::mma(rule, row, &self.column(at % COLS), self.c[at])
    }

    fn outputs(&self, rule: &Rule) -> Vec<u32> {
        (0..ROWS * COLS).map(|at| self.output(rule, at)).collect()
    }

    fn values(&self) -> impl Iterator<Item = f32> {
        let codes = self.a.iter().chain(self.b);
        codes.map(|&code| self.operand.from_code(code))
    }

    fn a_values(&self) -> impl Iterator<Item = f32> {
        self.a.iter().map(|&code| self.operand.from_code(code))
    }
}

fn tiles<'a>(inputs: &'a TileInputs, instruction: Instruction, name: &str) -> Vec<Read<'a>> {
    let Instruction { operand, k, .. } = instruction;
    let number = inputs.categories.iter().position(|&known| known == name);
    let number = number.unwrap_or_else(|| panic!("no category {name}"));
    let of =
        (0..inputs.category.len()).filter(|&tile| usize::from(inputs.category[tile]) == number);
    of.map(|tile| Read {
        operand,
        k,
        a: &inputs.a[tile * ROWS * k..][..ROWS * k],
        b: &inputs.b[tile * k * COLS..][..k * COLS],
        c: &inputs.c[tile * ROWS * COLS..][..ROWS * COLS],
    })
    .collect()
}

#[test]
fn every_category_has_its_tiles_in_every_format() {
    for instruction in instructions() {
        let inputs = TileInputs::new(instruction, 1);
        let Instruction { operand, k, .. } = instruction;
        let expected = CATEGORIES.len() - usize::from(operand != Operand::Tf32);
        assert_eq!(inputs.categories.len(), expected, "{instruction}");
        let names: BTreeSet<_> = inputs.categories.iter().collect();
        assert_eq!(names.len(), expected, "{instruction}");
        let tiles = expected * TILES;
        assert_eq!(inputs.category.len(), tiles);
        assert_eq!(inputs.a.len(), tiles * ROWS * k);
        assert_eq!(inputs.b.len(), tiles * k * COLS);
        assert_eq!(inputs.c.len(), tiles * ROWS * COLS);
        let codes = inputs.a.iter().chain(&inputs.b);
        let widest = codes.max().unwrap();
        assert!(
            u64::from(*widest) < 1 << (8 * operand.code_bytes()),
            "{instruction}"
        );
    }
}

#[test]
fn the_seed_decides_and_nothing_else() {
    let instruction = instructions().next().unwrap();
    let of = |seed| TileInputs::new(instruction, seed);
    assert_eq!(of(7), of(7));
    assert_ne!(of(7), of(8));
    assert_eq!(words(7), words(7));
    assert_ne!(words(7), words(8));
}

#[test]
fn categories_hold_what_they_are_named_for() {
    for instruction in instructions() {
        let inputs = TileInputs::new(instruction, 3);
        let of = |name: &str| tiles(&inputs, instruction, name);
        let (operand, k) = (instruction.operand, instruction.k);
        let format = operand.format();
        let least = f64::from(format.min_exponent());
        let is_subnormal = |x: f32| x != 0.0 && f64::from(x).abs() < libm::exp2(least);

        for tile in of("normal") {
            assert!(tile.values().all(|x| x.abs() < 8.0), "{instruction}");
        }
        for tile in of("from_zero") {
            assert!(tile.c.iter().all(|&c| c == 0));
        }
        for tile in of("outliers") {
            let large = format.largest().min(1024.0) as f32 / 2.0;
            assert!(tile.a_values().any(|x| x.abs() >= large), "{instruction}");
        }
        for tile in of("subnormal") {
            assert!(tile.a_values().all(is_subnormal), "{instruction}");
            assert!(tile.c.iter().any(|&c| f32::from_bits(c).is_subnormal()));
        }
        for (name, apart) in [("cancelling", false), ("nearly_cancelling", true)] {
            for tile in of(name) {
                for pair in tile.a.chunks(2) {
                    assert_eq!(operand.from_code(pair[0]), -operand.from_code(pair[1]));
                }
                let pairs = tile
                    .b
                    .chunks(2 * COLS)
                    .flat_map(|two| (0..COLS).map(|col| (two[col], two[col + COLS])));
                assert!(
                    pairs
                        .into_iter()
                        .all(|(first, second)| (first != second) == apart)
                );
            }
        }
        for tile in of("signed_zeros") {
            let zeros = tile.a_values().filter(|&x| x == 0.0).count();
            assert!(zeros * 8 >= 7 * tile.a.len(), "{instruction}: {zeros}");
            assert!(tile.c.iter().all(|&c| c << 1 == 0));
        }
        for tile in of("zero_times_huge") {
            let huge = tile.column(0)[0];
            assert!(f64::from(operand.from_code(huge).abs()) > format.largest() / 2.1);
            assert!(tile.a.chunks(k).all(|row| operand.from_code(row[0]) == 0.0));
        }
        for tile in of("largest_significands") {
            let full = (1 << format.fraction_bits()) - 1;
            let fraction = |x: f32| x.to_bits() >> (23 - format.fraction_bits()) & full;
            assert!(tile.values().all(|x| x > 0.0 && fraction(x) == full));
            assert!(tile.c.iter().all(|&c| c & 0x807f_ffff == 0x7f_ffff));
        }
        let special = of("special_values");
        let specials = || special.iter().flat_map(Read::values);
        assert!(specials().any(f32::is_nan), "{instruction}");
        assert_eq!(specials().any(f32::is_infinite), operand != Operand::E4m3);
        let raw: BTreeSet<u32> = of("raw_bits")
            .iter()
            .flat_map(|tile| tile.a.to_vec())
            .collect();
        let enough = if operand == Operand::E4m3 { 256 } else { 1000 };
        assert!(raw.len() >= enough, "{instruction}: {}", raw.len());
    }
}

#[test]
fn dirty_registers_hold_hidden_nans_and_hidden_subnormals() {
    for k in [8, 4] {
        let instruction = Instruction {
            operand: Operand::Tf32,
            k,
            ..instructions().next().unwrap()
        };
        let inputs = TileInputs::new(instruction, 3);
        let tiles = tiles(&inputs, instruction, "dirty_low_bits");
        let words: Vec<u32> = tiles
            .iter()
            .flat_map(|tile| [tile.a, tile.b].concat())
            .collect();
        let has = |wanted: fn(u32) -> bool| words.iter().any(|&word| wanted(word));
        assert!(
            has(|word| word > 0x7f80_0000 && word & !UNREAD == 0x7f80_0000),
            "hidden NaN"
        );
        assert!(
            has(|word| word != 0 && word & !UNREAD == 0),
            "hidden subnormal"
        );
        assert!(words.iter().filter(|&&word| word & UNREAD != 0).count() * 10 > words.len() * 9);
    }
}

/// What the words are for: a conversion that cuts, or that breaks ties the other way, is found out.
#[test]
fn words_lie_at_ties_at_the_end_and_beyond() {
    let words = words(3);
    let has = |wanted: fn(u32) -> bool| words.iter().any(|&word| wanted(word));
    assert!(
        has(|word| word & 0x3fff == 0x1000 && (word >> 23) & 0xff != 0xff),
        "tie of tf32, even below"
    );
    assert!(
        has(|word| word & 0x1_ffff == 0x8000 && (word >> 23) & 0xff != 0xff),
        "tie of bf16, even below"
    );
    assert!(has(
        |word| word & 0x7fff_ffff > 0x7f7f_f000 && word & 0x7fff_ffff < 0x7f80_0000
    ));
    assert!(has(|word| word & 0x7fff_ffff == 0x7f80_0000));
    assert!(has(|word| word & 0x7fff_ffff == 0x7f80_0001), "hidden NaN");
    assert!(has(|word| f32::from_bits(word).is_subnormal()));
}

/// A recording has to tell a rule from its neighbours; each category is named that does it for one.
#[test]
fn each_parameter_of_the_rule_shows_in_its_category() {
    for instruction in instructions() {
        let inputs = TileInputs::new(instruction, 3);
        let rule = Arch::Sm120.rule(instruction).unwrap();
        let shows = |name: &str, other: &Rule| {
            let tiles = tiles(&inputs, instruction, name);
            let differ = tiles
                .iter()
                .any(|tile| tile.outputs(&rule) != tile.outputs(other));
            assert!(
                differ,
                "{instruction}: {name} does not tell {rule:?} from {other:?}"
            );
        };
        for apart in [-1, 1] {
            let other = Rule {
                fraction_bits: rule.fraction_bits + apart,
                ..rule
            };
            for name in ["window_edge", "large_accumulator", "nearly_cancelling"] {
                shows(name, &other);
            }
        }
        let blocks = Rule {
            block_len: rule.block_len / 2,
            ..rule
        };
        for name in ["normal", "window_edge"] {
            shows(name, &blocks);
        }
        // Only formats with the exponents of fp32 get down to where the floor decides.
        if matches!(instruction.operand, Operand::Tf32 | Operand::Bf16) {
            shows(
                "underflow",
                &Rule {
                    exponent_floor: rule.exponent_floor + 8,
                    ..rule
                },
            );
        }
    }
}

#[test]
fn results_reach_the_ends_of_fp32() {
    for instruction in instructions() {
        let inputs = TileInputs::new(instruction, 3);
        let rule = Arch::Sm120.rule(instruction).unwrap();
        let any = |name: &str, wanted: fn(f32) -> bool| {
            let tiles = tiles(&inputs, instruction, name);
            let found = tiles
                .iter()
                .flat_map(|tile| tile.outputs(&rule))
                .any(|d| wanted(f32::from_bits(d)));
            assert!(found, "{instruction}: {name}");
        };
        any("special_values", f32::is_nan);
        any("special_values", f32::is_finite);
        any("special_values", f32::is_infinite);
        any("cancelling", |d| d != 0.0 && d.abs() < 1e-3);
        any("signed_zeros", |d| d.to_bits() == 0);
        if matches!(instruction.operand, Operand::Tf32 | Operand::Bf16) {
            any("underflow", f32::is_subnormal);
            any("overflow", f32::is_infinite);
            any("overflow", f32::is_finite);
        }
    }
}
