//! Every recipe against chains written one scalar operation at a time.

use super::*;
use crate::{
    format::{bf16, f16, tf32},
    random::{Key, Purpose, Stream},
    recipe::{
        Contraction, Mean, OperandRounding, Rsqrt, SquareSum, Unit,
        catalogue::builtin,
        splits::{Boundaries, Launch, SplitCount, SplitRule},
    },
    tensor_core::scalar,
};

const NORM_EPS: f64 = 1e-6;
const SMS: usize = 188;
const OUTPUTS: usize = 5;

fn normals(label: u32, rows: usize, k: usize, scale: f32) -> Array2<f32> {
    let mut stream = Stream::new(Key {
        seed: 5,
        purpose: Purpose::Weight,
        layer: label,
        token: 0,
    });
    let mut values = Array2::zeros((rows, k));
    for mut row in values.rows_mut() {
        stream.fill_normal(row.as_slice_mut().expect("fresh rows are contiguous"));
    }
    values.mapv(|value: f32| value * scale)
}

/// x as it is stored: exact in bf16; one row of wide exponents where there is room for it.
fn streams(tokens: usize, k: usize) -> Array2<f32> {
    let mut x = normals(1, tokens, k, 1.0).mapv(|v| bf16::round_f32(v, Rounding::NearestEven));
    if tokens > 1 {
        for (index, value) in x.row_mut(1).iter_mut().enumerate() {
            *value *= 2f32.powi((index as i32 * 7) % 61 - 30);
        }
    }
    x
}

fn round(rounding: OperandRounding, value: f32) -> f32 {
    match rounding {
        OperandRounding::F32 => value,
        OperandRounding::Tf32Nearest => tf32::round_f32(value, Rounding::NearestEven),
        OperandRounding::Tf32Away => tf32::round_f32(value, Rounding::NearestAway),
        OperandRounding::Tf32Truncate => f32::from_bits(value.to_bits() & 0xffff_e000),
        OperandRounding::Bf16 => bf16::round_f32(value, Rounding::NearestEven),
        OperandRounding::F16 => f16::round_f32(value, Rounding::NearestEven),
    }
}

fn parts(rounding: OperandRounding, value: f32, count: usize) -> Vec<f32> {
    let mut rest = value;
    (0..count)
        .map(|_| {
            let part = round(rounding, rest);
            rest -= part;
            part
        })
        .collect()
}

/// Products as (x part, weight part), smallest first, as the catalogue's entries are described.
fn products(projection: &Projection) -> &'static [(usize, usize)] {
    match (projection.x_parts, projection.weight_parts) {
        (1, 1) => &[(0, 0)],
        (1, 2) => &[(0, 1), (0, 0)],
        (1, 3) => &[(0, 2), (0, 1), (0, 0)],
        (2, 2) => &[(1, 0), (0, 1), (0, 0)],
        other => panic!("no such recipe here: {other:?}"),
    }
}

fn ranges(order: Order, k: usize, launch: Launch) -> Vec<Range<usize>> {
    let Order::Chains { splits, .. } = order else {
        return std::iter::once(0..k).collect();
    };
    let count = match splits.count {
        SplitCount::Fixed(count) => count,
        SplitCount::Engine => (launch.sms / launch.tokens.div_ceil(64))
            .min(k / 64 / 4)
            .max(1),
        SplitCount::Tilelang => 32,
    };
    let mut ends: Vec<usize> = match splits.boundaries {
        Boundaries::Triton => (1..=count).map(|s| s * k.div_ceil(count)).collect(),
        Boundaries::Deepgemm => {
            let blocks = k.div_ceil(64);
            let sizes = (0..count).map(|s| blocks / count + usize::from(s < blocks % count));
            sizes
                .scan(0, |end, size| {
                    *end += size * 64;
                    Some(*end)
                })
                .collect()
        }
    };
    ends.iter_mut().for_each(|end| *end = (*end).min(k));
    ends.dedup();
    let starts = std::iter::once(0).chain(ends.iter().copied());
    starts
        .zip(ends.iter())
        .map(|(start, &end)| start..end)
        .filter(|r| !r.is_empty())
        .collect()
}

/// The factor of one row.
fn rms_oracle(projection: &Projection, x: &[f32], ranges: &[Range<usize>]) -> f32 {
    let chain = |x: &mut dyn Iterator<Item = f32>| x.fold(0.0f32, |sum, v| v.mul_add(v, sum));
    let sum = match (projection.square_sum, projection.order) {
        (SquareSum::Chains, _) => {
            let partials = ranges
                .iter()
                .map(|r| chain(&mut x[r.clone()].iter().copied()));
            partials.fold(0.0, |sum, partial| sum + partial)
        }
        (SquareSum::Lanes4, _) => ranges
            .iter()
            .map(|r| butterfly(&x[r.clone()]))
            .fold(0.0, |sum, partial| sum + partial),
        (SquareSum::Interleave4, _) => {
            let chains = (0..4).map(|c| chain(&mut x.iter().copied().skip(c).step_by(4)));
            chains.fold(0.0, |sum, partial| sum + partial)
        }
        (SquareSum::ThreadStrided, Order::ThreadStrided { threads }) => tree(
            (0..threads)
                .map(|t| chain(&mut x.iter().copied().skip(t).step_by(threads)))
                .collect(),
        ),
        other => panic!("no such recipe: {other:?}"),
    };
    let mean = match projection.mean {
        Mean::Divide => sum / x.len() as f32,
        Mean::Reciprocal => sum * (1.0 / x.len() as f64) as f32,
    };
    let argument = mean + NORM_EPS as f32;
    match projection.rsqrt {
        Rsqrt::Rounded => (1.0 / f64::from(argument).sqrt()) as f32,
        Rsqrt::SqrtThenDivide => 1.0 / argument.sqrt(),
    }
}

/// DeepGEMM's four lanes of one row: each lane looks at its partner by xor 2, then by xor 1.
fn butterfly(x: &[f32]) -> f32 {
    let at = |k: usize| x.get(k).copied().unwrap_or(0.0);
    let mut lanes = [0.0f32; 4];
    for (c, lane) in lanes.iter_mut().enumerate() {
        for g in 0..x.len().div_ceil(8) {
            let (first, second) = (at(8 * g + c), at(8 * g + c + 4));
            *lane += first.mul_add(first, second * second);
        }
    }
    for partner in [2, 1] {
        let before = lanes;
        for (c, lane) in lanes.iter_mut().enumerate() {
            *lane = before[c] + before[c ^ partner];
        }
    }
    lanes[0]
}

fn tree(mut threads: Vec<f32>) -> f32 {
    while threads.len() > 1 {
        let half = threads.len() / 2;
        threads = (0..half).map(|t| threads[t] + threads[t + half]).collect();
    }
    threads[0]
}

/// One output of the projection, before it is stored.
fn dot_oracle(
    arch: Arch,
    recipe: &MixRecipe,
    x: &[f32],
    w: &[f32],
    rms: f32,
    launch: Launch,
) -> f32 {
    let projection = &recipe.projection;
    let x_rounding = match (projection.x, projection.unit) {
        (Some(rounding), _) => rounding,
        (None, Unit::FmaF32) => OperandRounding::F32,
        (None, _) => projection.weight,
    };
    let fed = |x: f32| {
        if projection.norm == NormPlacement::Before {
            x * rms
        } else {
            x
        }
    };
    let x: Vec<Vec<f32>> = x
        .iter()
        .map(|&x| parts(x_rounding, fed(x), projection.x_parts))
        .collect();
    let w: Vec<Vec<f32>> = w
        .iter()
        .map(|&w| parts(projection.weight, w, projection.weight_parts))
        .collect();
    match projection.order {
        Order::ThreadStrided { threads } => {
            let mut sums = vec![0.0f32; threads];
            for &(i, j) in products(projection) {
                for k in 0..x.len() {
                    sums[k % threads] = x[k][i].mul_add(w[k][j], sums[k % threads]);
                }
            }
            tree(sums)
        }
        Order::Chains { partials, .. } => {
            let chain = |range: Range<usize>| {
                let mut sum = 0.0f32;
                for &(i, j) in products(projection) {
                    let pairs = range.clone().map(|k| (x[k][i], w[k][j]));
                    sum = chain_oracle(arch, projection.unit, pairs.collect(), sum);
                }
                match partials {
                    Storage::F32 => sum,
                    Storage::Bf16 => bf16::round_f32(sum, Rounding::NearestEven),
                }
            };
            let mut sums = ranges(projection.order, x.len(), launch)
                .into_iter()
                .map(chain);
            let first = sums.next().expect("a range");
            sums.fold(first, |sum, partial| sum + partial)
        }
    }
}

fn chain_oracle(arch: Arch, unit: Unit, pairs: Vec<(f32, f32)>, start: f32) -> f32 {
    let Some(operand) = unit.operand() else {
        return pairs.iter().fold(start, |sum, (x, w)| x.mul_add(*w, sum));
    };
    let instruction = Instruction {
        family: Family::MmaSync,
        operand,
        k: unit.k(),
    };
    let rule = arch.rule(instruction).expect("the arch has it");
    let (a, b): (Vec<u32>, Vec<u32>) = pairs
        .iter()
        .map(|&(x, w)| (operand.to_code(x), operand.to_code(w)))
        .unzip();
    f32::from_bits(scalar::mma(&rule, &a, &b, start.to_bits()))
}

fn launch(tokens: usize) -> Launch {
    Launch { tokens, sms: SMS }
}

fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

/// Holds every output of `recipe` against the scalar operations.
fn check(arch: Arch, recipe: &MixRecipe, x: &Array2<f32>, w: &Array2<f32>) {
    let launch = launch(x.nrows());
    let inputs = MixInputs {
        x: x.view(),
        function: w.view(),
        norm_eps: NORM_EPS,
        launch,
    };
    let got = Emulate::new(arch, Level::detect())
        .mix(recipe, &inputs)
        .expect("runs");
    let stored = |value: f32, storage: Storage| match storage {
        Storage::F32 => value,
        Storage::Bf16 => bf16::round_f32(value, Rounding::NearestEven),
    };
    let ranges = ranges(recipe.projection.order, x.ncols(), launch);
    assert_eq!(got.splits, ranges.len());
    for (t, x) in x.rows().into_iter().enumerate() {
        let x = x.to_slice().expect("contiguous");
        let rms = rms_oracle(&recipe.projection, x, &ranges);
        let name = format!("{} on {arch}, K = {}, token {t}", recipe.name, x.len());
        assert!(
            same(got.rms[t], rms),
            "rms of {name}: {} for {rms}",
            got.rms[t]
        );
        for (n, w) in w.rows().into_iter().enumerate() {
            let w = w.to_slice().expect("contiguous");
            let dot = stored(dot_oracle(arch, recipe, x, w, rms, launch), recipe.output);
            assert!(
                same(got.dot[[t, n]], dot),
                "dot {n} of {name}: {} for {dot}",
                got.dot[[t, n]]
            );
            let mixes = match recipe.projection.norm {
                NormPlacement::Before => dot,
                NormPlacement::After => stored(dot * rms, recipe.scaled),
            };
            assert!(same(got.mixes[[t, n]], mixes), "mixes {n} of {name}");
        }
    }
}

#[test]
fn every_built_in_runs_the_operations_its_order_names() {
    for recipe in builtin() {
        for (tokens, k) in [(1, 1000), (13, 200), (17, 77)] {
            let w = normals(2, OUTPUTS, k, 0.04);
            check(Arch::Sm120, &recipe, &streams(tokens, k), &w);
            check(Arch::Sm80, &recipe, &streams(tokens, k), &w);
        }
    }
}

#[test]
fn hostile_split_counts_and_boundaries_run_the_ranges_they_name() {
    let names = ["fp32", "tf32", "bf16x2"];
    for template in builtin()
        .iter()
        .filter(|recipe| names.contains(&&*recipe.name))
    {
        for boundaries in [Boundaries::Deepgemm, Boundaries::Triton] {
            for (index, count) in [1, 2, 3, 7, 16, 32, 64, 112, 256, 257]
                .into_iter()
                .enumerate()
            {
                let mut recipe = template.clone();
                let splits = SplitRule {
                    count: SplitCount::Fixed(count),
                    boundaries,
                };
                let partials = [Storage::F32, Storage::Bf16][index % 2];
                recipe.projection.order = Order::Chains { splits, partials };
                check(
                    Arch::Sm120,
                    &recipe,
                    &streams(2, 1000),
                    &normals(2, OUTPUTS, 1000, 0.04),
                );
            }
        }
    }
}

#[test]
fn every_squared_sum_mean_and_root_runs_as_described() {
    let template = builtin().remove(0);
    let strided = builtin().remove(1);
    for mean in [Mean::Divide, Mean::Reciprocal] {
        for rsqrt in [Rsqrt::Rounded, Rsqrt::SqrtThenDivide] {
            for square_sum in [SquareSum::Chains, SquareSum::Lanes4, SquareSum::Interleave4] {
                let mut recipe = template.clone();
                recipe.projection = Projection {
                    square_sum,
                    mean,
                    rsqrt,
                    ..recipe.projection
                };
                for k in [7, 77, 1000] {
                    check(
                        Arch::Sm120,
                        &recipe,
                        &streams(3, k),
                        &normals(2, 1, k, 0.04),
                    );
                }
            }
            let mut recipe = strided.clone();
            recipe.projection = Projection {
                mean,
                rsqrt,
                ..recipe.projection
            };
            check(
                Arch::Sm120,
                &recipe,
                &streams(3, 1000),
                &normals(2, 1, 1000, 0.04),
            );
        }
    }
}

#[test]
fn a_compensated_strided_recipe_keeps_one_accumulator_per_thread() {
    let mut recipe = builtin().remove(1);
    recipe.projection.weight = OperandRounding::Bf16;
    recipe.projection.weight_parts = 2;
    recipe.projection.order = Order::ThreadStrided { threads: 8 };
    check(
        Arch::Sm120,
        &recipe,
        &streams(3, 77),
        &normals(2, OUTPUTS, 77, 0.04),
    );
}

#[test]
fn an_x_the_unit_cannot_hold_is_rounded_as_the_recipe_says() {
    let x = normals(3, 3, 200, 1.0);
    for recipe in builtin() {
        check(Arch::Sm120, &recipe, &x, &normals(2, OUTPUTS, 200, 0.04));
    }
}

#[test]
fn every_level_and_layout_gives_the_same_bits() {
    let (x, w) = (streams(17, 1000), normals(2, 24, 1000, 0.04));
    // The same values, columns contiguous.
    let columns = |values: &Array2<f32>| values.t().as_standard_layout().into_owned();
    let (x_columns, w_columns) = (columns(&x), columns(&w));
    for recipe in builtin() {
        let run = |level, x: ArrayView2<'_, f32>, function: ArrayView2<'_, f32>| {
            let inputs = MixInputs {
                x,
                function,
                norm_eps: NORM_EPS,
                launch: launch(17),
            };
            let mix = Emulate::new(Arch::Sm120, level)
                .mix(&recipe, &inputs)
                .expect("runs");
            let bits = |values: Array2<f32>| values.mapv(f32::to_bits);
            (bits(mix.dot), bits(mix.mixes), mix.rms.mapv(f32::to_bits))
        };
        let portable = run(Level::Portable, x.view(), w.view());
        for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
            assert_eq!(
                run(level, x.view(), w.view()),
                portable,
                "{} {level}",
                recipe.name
            );
            let turned = run(level, x_columns.t(), w_columns.t());
            assert_eq!(turned, portable, "{} {level}", recipe.name);
        }
    }
}

/// Known fault C6: fused and separate collapses differ in their bits, which is no error of either.
#[test]
fn c6_the_collapse_contracts_as_the_recipe_says() {
    let (hc, d, tokens) = (4, 333, 3);
    let (x, pre) = (streams(tokens, hc * d), normals(4, tokens, hc, 0.5));
    let mut differing = 0;
    for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
        let run = |contraction| {
            let epilogue = Epilogue {
                collapse: contraction,
                ..Epilogue::default()
            };
            Emulate::new(Arch::Sm120, level).collapse(&epilogue, pre.view(), x.view())
        };
        let (fused, separate) = (run(Contraction::Fma), run(Contraction::MulAdd));
        for t in 0..tokens {
            for c in 0..d {
                let product = |j: usize| pre[[t, j]] * x[[t, j * d + c]];
                let fma =
                    (1..hc).fold(product(0), |y, j| x[[t, j * d + c]].mul_add(pre[[t, j]], y));
                let add = (1..hc).fold(product(0), |y, j| y + product(j));
                assert_eq!(fused[[t, c]].to_bits(), fma.to_bits(), "{level}");
                assert_eq!(separate[[t, c]].to_bits(), add.to_bits(), "{level}");
                differing += usize::from(fma.to_bits() != add.to_bits());
            }
        }
    }
    assert!(differing > 100, "{differing}");
}

#[test]
fn no_token_gives_no_row() {
    let (x, w) = (Array2::zeros((0, 64)), normals(2, 24, 64, 0.04));
    for recipe in builtin() {
        let inputs = MixInputs {
            x: x.view(),
            function: w.view(),
            norm_eps: NORM_EPS,
            launch: launch(0),
        };
        let mix = Emulate::new(Arch::Sm120, Level::detect())
            .mix(&recipe, &inputs)
            .expect("runs");
        assert_eq!(mix.mixes.dim(), (0, 24), "{}", recipe.name);
    }
}

#[test]
fn every_arch_has_the_instructions_of_the_catalogue() {
    let (x, w) = (streams(1, 64), normals(2, 24, 64, 0.04));
    let inputs = MixInputs {
        x: x.view(),
        function: w.view(),
        norm_eps: NORM_EPS,
        launch: launch(1),
    };
    for arch in Arch::ALL {
        for recipe in builtin() {
            let mix = Emulate::new(arch, Level::detect()).mix(&recipe, &inputs);
            assert!(mix.is_ok(), "{} on {arch}", recipe.name);
        }
    }
}
