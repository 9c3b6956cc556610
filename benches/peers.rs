//! One side of `scripts/compare-peers`: a JSON line with the seconds that each job took.
//!
//! `cargo bench --bench peers` runs every job once on all threads, after one warm-up; the script runs it
//! in turn with the other side and takes medians.

use std::{hint::black_box, time::Instant};

use ndarray::{Array2, Array3};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value};
use ulpdrift::{
    format::{Format, Rounding},
    tensor_core::{Arch, Family, Instruction, Operand, PackedWeights, chains},
};
use ulpdrift_reference::{
    certify::{Rows, certify},
    dot::dot,
    simd::Level,
    squares::squares,
};

/// The GEMM of the comparison with `NumPy`: [512, 16384] x [16384, 24].
const TOKENS: usize = 512;
const DEPTH: usize = 16384;
const OUTPUTS: usize = 24;

fn normal_like(rows: usize, seed: u64) -> Array2<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    Array2::from_shape_simple_fn((rows, DEPTH), || {
        (0..4).map(|_| rng.random_range(-0.9_f32..0.9)).sum()
    })
}

fn seconds<T>(mut work: impl FnMut() -> T) -> Value {
    // The first run finds caches cold and threads asleep.
    black_box(work());
    let mut times = [(); 5].map(|()| {
        let start = Instant::now();
        black_box(work());
        start.elapsed().as_secs_f64()
    });
    times.sort_by(f64::total_cmp);
    times[times.len() / 2].into()
}

fn emulation(operand: Operand, k: usize, level: Level) -> Value {
    let instruction = Instruction {
        family: Family::MmaSync,
        operand,
        k,
    };
    let rule = Arch::Sm120.rule(instruction).expect("sm_120 has it");
    let round = |x| operand.format().round_f32(x, Rounding::NearestEven);
    let x = normal_like(TOKENS, 1).mapv(round);
    let w = PackedWeights::new(operand, normal_like(OUTPUTS, 2).mapv(round).view());
    let ranges: Vec<_> = (0..64).map(|i| i * 256..(i + 1) * 256).collect();
    seconds(|| {
        let mut acc = Array3::zeros((ranges.len(), TOKENS, OUTPUTS));
        chains(&rule, level, x.view(), &w, &ranges, &mut acc);
        acc
    })
}

fn main() {
    let level = Level::detect();
    let bf16 = |x| Format::Bf16.round_f32(x, Rounding::NearestEven);
    let x = normal_like(TOKENS, 1).mapv(bf16);
    let function = normal_like(OUTPUTS, 2);
    let rounded = function.mapv(bf16);
    let both = ndarray::concatenate(ndarray::Axis(0), &[function.view(), rounded.view()]);
    let both = both.expect("one K");
    let truth = dot(level, x.view(), function.view());
    // The RMS factor needs these anyway.
    let squares_of_x = squares(level, x.view());
    // Taken once for any number of inputs.
    let squares_of_function = squares(level, function.view());
    let mut line = Map::new();
    line.insert("threads".into(), rayon::current_num_threads().into());
    line.insert("level".into(), level.to_string().into());
    line.insert(
        "truth".into(),
        seconds(|| dot(level, x.view(), function.view())),
    );
    line.insert(
        "truth_and_recipe_exact".into(),
        seconds(|| dot(level, x.view(), both.view())),
    );
    line.insert(
        "certification".into(),
        seconds(|| {
            let x = Rows {
                values: x.view(),
                squares: squares_of_x.view(),
            };
            let function = Rows {
                values: function.view(),
                squares: squares_of_function.view(),
            };
            certify(level, x, function, truth.view())
        }),
    );
    for (operand, k) in [
        (Operand::Bf16, 16),
        (Operand::Tf32, 8),
        (Operand::F16, 16),
        (Operand::E4m3, 32),
    ] {
        line.insert(operand.to_string(), emulation(operand, k, level));
    }
    println!("{}", Value::Object(line));
}
