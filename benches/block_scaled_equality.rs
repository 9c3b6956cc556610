//! Bits of the vectorised block-scaled rule against the scalar one, on as many random blocks as asked for:
//!
//! ```text
//! cargo bench --bench block_scaled_equality -- 100000000
//! ```
//!
//! Exits 1 if a bit differs. A million blocks per kind and level if no number is given.

use std::process::ExitCode;

use ndarray::Array2;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use ulpdrift::tensor_core::{
    Arch, Family,
    block_scaled::{Kind, PackedRows, ScaledInstruction, ScaledRows, chains, scalar},
};
use ulpdrift_reference::simd::Level;

/// Blocks drawn together: rows of one operand by rows of the other.
const ROWS: usize = 16;
const COLS: usize = 64;

/// One block of k of `rows` rows. Codes are raw bits, in half of the draws mostly zero; scales are raw
/// bytes, or within eight of `centre`, so that no term is always too small to count.
fn operand(kind: Kind, rows: usize, centre: Option<u8>, random: &mut ChaCha8Rng) -> ScaledRows {
    let sparse = random.random_ratio(1, 2);
    let codes = Array2::from_shape_simple_fn((rows, kind.k()), || {
        let code: u8 = random.random();
        match code {
            _ if sparse && !random.random_ratio(1, 8) => 0,
            _ if kind.is_code(code) => code,
            _ => code & 15,
        }
    });
    let blocks = (rows, kind.k() / kind.scale_block());
    let scales = Array2::from_shape_simple_fn(blocks, || match centre {
        Some(centre) => centre.saturating_add(random.random_range(0..16)),
        None => random.random(),
    });
    ScaledRows::new(kind, codes.view(), scales.view())
}

/// Compares [`ROWS`]·[`COLS`] random blocks at every level; returns how many differ at each.
fn differing(kind: Kind, levels: &[Level], seed: u64) -> Vec<u64> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let rule = Arch::Sm120.scaled_rule(ScaledInstruction {
        family: Family::MmaSync,
        kind,
    });
    let rule = rule.expect("sm_120 has all three");
    let centre = random.random_ratio(3, 4).then(|| random.random());
    let a = operand(kind, ROWS, centre, &mut random);
    // The other operand's scales mirrored, so that their products come near the accumulators.
    let b = operand(kind, COLS, centre.map(|c: u8| !c), &mut random);
    let near = random.random_ratio(1, 2);
    let c = Array2::from_shape_simple_fn((ROWS, COLS), || {
        let bits = random.next_u32();
        if near {
            bits & 0x807f_ffff | random.random_range(80_u32..160) << 23
        } else {
            bits
        }
    });
    let want = Array2::from_shape_fn((ROWS, COLS), |(m, n)| {
        scalar::mma(&rule, &a, m, &b, n, c[[m, n]])
    });
    let packed = PackedRows::new(&b);
    let differing = levels.iter().map(|&level| {
        let mut acc = c.mapv(f32::from_bits);
        chains(&rule, level, &a, &packed, &mut acc);
        let pairs = acc.iter().zip(&want);
        pairs.filter(|(got, want)| got.to_bits() != **want).count() as u64
    });
    differing.collect()
}

fn main() -> ExitCode {
    let blocks: usize = std::env::args()
        .find_map(|arg| arg.parse().ok())
        .unwrap_or(1_000_000);
    let draws = blocks.div_ceil(ROWS * COLS) as u64;
    let levels: Vec<Level> = Level::ALL
        .into_iter()
        .filter(|level| level.is_available())
        .collect();
    let mut equal = true;
    for kind in Kind::ALL {
        let none = || vec![0; levels.len()];
        let found = (0..draws)
            .into_par_iter()
            .map(|seed| differing(kind, &levels, seed))
            .reduce(none, |a, b| a.iter().zip(&b).map(|(a, b)| a + b).collect());
        for (level, found) in levels.iter().zip(&found) {
            println!(
                "{kind} {level}: {found} of {} blocks differ",
                draws * (ROWS * COLS) as u64
            );
            equal &= *found == 0;
        }
    }
    ExitCode::from(u8::from(!equal))
}
