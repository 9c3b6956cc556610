//! The indexer's kernels against the emulator: logits and exact selections, every bit of them.
//!
//! Every recipe of the catalogue, and recipes of the switches that none of it has, on few and many queries and keys,
//! with ordinary operands and with hostile ones: subnormals, the largest numbers, zeros of both signs, infinities, NaN.
//! Selections also of rows that logits rarely are: all equal, all NaN, −∞ among numbers, 2²⁰ keys. Prints a line per
//! recipe; exit code 1 if a bit differs. `scripts/device-check` runs it on a machine with a GPU.
//!
//!   index_device_check           everything
//!   index_device_check NAME      the recipes whose names hold that, such as "e4m3 blocks"

mod common;

use std::{process::ExitCode, time::Instant};

use ndarray::{Array2, ArrayView2};
use ulpdrift::{
    backend::{
        Backend, BackendError,
        cuda::{
            Cuda,
            options::{self, Dot, IndexShape},
        },
        emulate::Emulate,
    },
    random::{Key, Purpose, Stream},
    recipe::{
        Contraction, Storage,
        indexer::{
            DotUnit, HeadOrder, Held, IndexRecipe, Linears, Operands, Quantiser, QueryOperands,
            Reduce, Reduction, Relu, ScaleFormat, ScalePosition, Scaling, Selector,
            catalogue::{builtin, fp32},
        },
    },
};
use ulpdrift_reference::simd::Level;

/// A launch.
#[derive(Clone, Copy, Debug)]
struct Shape {
    queries: usize,
    keys: usize,
    heads: usize,
    width: usize,
}

const fn shape(queries: usize, keys: usize, heads: usize, width: usize) -> Shape {
    Shape {
        queries,
        keys,
        heads,
        width,
    }
}

const SHAPES: [Shape; 14] = [
    shape(1, 1, 64, 128),
    shape(16, 1, 64, 128),
    shape(1, 63, 64, 128),
    shape(16, 63, 64, 128),
    shape(1, 64, 64, 128),
    shape(16, 64, 64, 128),
    shape(1, 1000, 64, 128),
    shape(16, 1000, 64, 128),
    shape(3, 200, 8, 128),
    shape(3, 200, 5, 128),
    shape(1, 16384, 64, 128),
    shape(16, 16384, 64, 128),
    shape(3, 200, 64, 32),
    shape(3, 200, 64, 64),
];

fn main() -> ExitCode {
    let Some(cuda) = common::open() else {
        return ExitCode::from(3);
    };
    println!("{:?}", cuda.info());
    let emulate = Emulate::new(cuda.info().arch, Level::detect());
    let backends = Backends { cuda, emulate };
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let mut all = Found::default();
    let mut recipes: Vec<IndexRecipe> = builtin().into_iter().chain(switches()).collect();
    recipes.retain(|recipe| recipe.name.contains(&wanted));
    backends.prepare(&recipes);
    for recipe in &recipes {
        all.add(backends.check(recipe));
    }
    if wanted.is_empty() {
        all.add(backends.check_rows());
    }
    println!("\n{all}");
    ExitCode::from(u8::from(all.differing() > 0))
}

/// What was compared, and how much of it differs.
#[derive(Default)]
struct Found {
    logits: [usize; 2],
    keys: [usize; 2],
}

impl Found {
    fn add(&mut self, other: Self) {
        for (sum, more) in self.logits.iter_mut().zip(other.logits) {
            *sum += more;
        }
        for (sum, more) in self.keys.iter_mut().zip(other.keys) {
            *sum += more;
        }
    }

    fn differing(&self) -> usize {
        self.logits[0] + self.keys[0]
    }
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ([logits, of_logits], [keys, of_keys]) = (self.logits, self.keys);
        write!(
            f,
            "logits {logits} of {of_logits} differ, selected keys {keys} of {of_keys}"
        )
    }
}

struct Backends {
    cuda: Cuda,
    emulate: Emulate,
}

impl Backends {
    /// Compiles everything at once: one after the other takes longer than all the rest.
    fn prepare(&self, recipes: &[IndexRecipe]) {
        let device = self.cuda.device();
        let started = Instant::now();
        let mut builds = Vec::new();
        for recipe in recipes {
            for shape in SHAPES {
                let (queries, keys) = ((shape.queries, shape.heads), (shape.keys, shape.width));
                let shape = IndexShape::of(recipe, queries, keys);
                let dot = Dot::of(recipe, device.arch).ok();
                let build = |dot| options::index_logits(recipe, device.arch, dot, shape);
                builds.extend(dot.map(build));
            }
        }
        device.bind().expect("the device is there");
        device.prepare(&builds).expect("the kernels compile");
        println!("compiled in {:.1} s", started.elapsed().as_secs_f64());
    }

    /// A recipe on every shape, with both kinds of operands.
    fn check(&self, recipe: &IndexRecipe) -> Found {
        let started = Instant::now();
        let (mut found, mut on_device) = (Found::default(), 0.0);
        for shape in SHAPES {
            for hostile in [false, true] {
                let (queries, keys) = operands(recipe, shape, hostile);
                // What compiles the kernel does not count.
                let once = self.cuda.index_logits(recipe, &queries, &keys);
                let since = Instant::now();
                let twice = self.cuda.index_logits(recipe, &queries, &keys);
                on_device = since.elapsed().as_secs_f64();
                let got = match once {
                    Err(
                        reason @ (BackendError::Unsupported { .. } | BackendError::NoKernel { .. }),
                    ) => {
                        println!("{}: skipped: {reason}", recipe.name);
                        return Found::default();
                    }
                    got => got.expect("the device works"),
                };
                let again = twice.expect("the device works");
                assert_eq!(
                    got.mapv(bits),
                    again.mapv(bits),
                    "{}: repeated",
                    recipe.name
                );
                let expected = self.emulate.index_logits(recipe, &queries, &keys);
                let expected = expected.expect("the emulator runs what the device runs");
                let pairs = got.iter().zip(&expected);
                let mut of_shape = Found {
                    logits: differing(pairs.map(|(&a, &b)| (bits(a), bits(b)))),
                    ..Found::default()
                };
                if of_shape.logits[0] > 0 {
                    let mut pairs = got.indexed_iter().zip(&expected);
                    let first = pairs.find(|((_, a), b)| bits(**a) != bits(**b));
                    println!(
                        "DIFFERS {} {shape:?} hostile {hostile}: {first:?}",
                        recipe.name
                    );
                }
                let visible: Vec<usize> = (0..shape.queries)
                    .map(|query| shape.keys - query % shape.keys)
                    .collect();
                of_shape.add(self.select(expected.view(), &visible, 512));
                found.add(of_shape);
            }
        }
        println!(
            "{}: {found}; {:.1} s, of the last {:.2} ms with its copies on the device",
            recipe.name,
            started.elapsed().as_secs_f64(),
            1e3 * on_device
        );
        found
    }

    /// Selections of rows that need care.
    fn check_rows(&self) -> Found {
        let mut all = Found::default();
        for (name, row, k) in rows() {
            let logits = Array2::from_shape_vec((1, row.len()), row).expect("one row");
            let found = self.select(logits.view(), &[logits.ncols()], k);
            let count = logits.ncols();
            println!("top {k} of {count} logits, {name}: {found}");
            all.add(found);
        }
        all
    }

    /// The exact selection on both.
    fn select(&self, logits: ArrayView2<'_, f32>, visible: &[usize], k: usize) -> Found {
        let of = |backend: &dyn Backend| {
            backend
                .top_k(Selector::Exact, logits, visible, k)
                .expect("a selection")
        };
        let (got, expected) = (of(&self.cuda), of(&self.emulate));
        let mut found = Found::default();
        for (got, expected) in got.iter().zip(&expected) {
            let [wrong, all] = differing(got.iter().copied().zip(expected.iter().copied()));
            found.keys[0] += wrong + got.len().abs_diff(expected.len());
            found.keys[1] += all;
        }
        found
    }
}

/// Every NaN as one.
fn bits(x: f32) -> u32 {
    if x.is_nan() { u32::MAX } else { x.to_bits() }
}

fn differing(pairs: impl Iterator<Item = (u32, u32)>) -> [usize; 2] {
    pairs.fold([0, 0], |[wrong, all], (a, b)| {
        [wrong + usize::from(a != b), all + 1]
    })
}

fn stream(item: u64) -> Stream {
    Stream::new(Key {
        seed: 6,
        purpose: Purpose::Activations,
        layer: 0,
        token: item,
    })
}

/// Operands of a recipe's formats.
fn operands(recipe: &IndexRecipe, shape: Shape, hostile: bool) -> (QueryOperands, Operands) {
    let Shape {
        queries,
        keys,
        heads,
        width,
    } = shape;
    let rows = |count: usize, first: u64| {
        let mut rows = Array2::zeros((count, width));
        for (number, mut row) in rows.rows_mut().into_iter().enumerate() {
            let mut random = stream(first + number as u64);
            for (k, value) in row.iter_mut().enumerate() {
                *value = random.normal() as f32;
                if hostile {
                    *value = spoiled(number, k, *value);
                }
            }
        }
        rows
    };
    let q = recipe.query.format.quantise(rows(queries * heads, 1 << 40));
    let k = recipe.key.format.quantise(rows(keys, 0));
    let mut random = stream(2 << 40);
    let scales = q.row_scales(recipe.unit);
    let weights = Array2::from_shape_fn((queries, heads), |(query, head)| {
        let scale = scales.map_or(1.0, |scales| scales[query * heads + head]);
        let weight = 0.1 * random.normal() as f32 * scale;
        match hostile && head % 31 == 7 {
            true => weight * 1e-38,
            false => weight,
        }
    });
    (QueryOperands { q, weights }, k)
}

/// Hostile values in two rows of every 32.
fn spoiled(row: usize, k: usize, normal: f32) -> f32 {
    match (row % 256, k % 64) {
        (3, 5) => f32::from_bits(1 + k as u32),
        (3 | 35, 11) => -0.0,
        (35, 13) => f32::MAX,
        (35, 40) => -f32::MAX,
        (67, _) => normal * 1e-38,
        (99, _) => normal * 1e30,
        (131, 17) => f32::INFINITY,
        (163, 19) => f32::NEG_INFINITY,
        (163, 23) => f32::INFINITY,
        (195, 29) => f32::NAN,
        (227, _) => 0.0,
        (4, _) if k.is_multiple_of(2) => 0.0,
        (36, _) => normal * 1e-42,
        (68, _) => normal * 1e4,
        _ => normal,
    }
}

/// Recipes of the switches that the catalogue does not turn.
fn switches() -> Vec<IndexRecipe> {
    let mut all = Vec::new();
    let mut switched = |name: &str, switch: &dyn Fn(&mut IndexRecipe)| {
        let mut recipe = fp32();
        recipe.linears = Linears::Fp32;
        recipe.name = format!("fp32, {name}");
        switch(&mut recipe);
        assert_eq!(recipe.problem(), None, "{}", recipe.name);
        all.push(recipe);
    };
    for (name, order) in [
        ("four lanes", HeadOrder::FourLanes),
        ("four chains", HeadOrder::FourChains),
        ("chunks", HeadOrder::ChunksOfEight),
        ("tree", HeadOrder::Tree),
    ] {
        for sum in [Storage::F32, Storage::Bf16] {
            switched(&format!("{name}, sums in {sum:?}"), &|recipe| {
                recipe.reduction = Reduction::Steps(Reduce {
                    order,
                    sum,
                    contraction: Contraction::Fma,
                    ..Reduce::default()
                });
            });
        }
    }
    for relu in [Relu::MaxKeepsNan, Relu::HalfSum, Relu::Absent] {
        switched(&format!("{relu:?}, bf16 sums"), &|recipe| {
            recipe.reduction = Reduction::Steps(Reduce {
                relu,
                sum: Storage::Bf16,
                contraction: Contraction::Fma,
                ..Reduce::default()
            });
        });
    }
    switched("f16 unit", &|recipe| {
        (recipe.query.format, recipe.key.format) = (Quantiser::F16, Quantiser::F16);
        recipe.unit = DotUnit::MmaF16K16;
    });
    let codes = |scale, block| Quantiser::E4m3 {
        scale,
        block,
        scaling: Scaling::Reciprocal,
        held: Held::Codes,
    };
    for unit in [
        DotUnit::FmaF32,
        DotUnit::MmaTf32K8,
        DotUnit::MmaBf16K16,
        DotUnit::MmaF16K16,
        DotUnit::Fp8K32,
    ] {
        for block in [32, 64] {
            switched(&format!("e4m3 blocks of {block} on {unit:?}"), &|recipe| {
                let format = codes(ScaleFormat::F32, block);
                (recipe.query.format, recipe.key.format) = (format, format);
                recipe.unit = unit;
            });
        }
        for scale in [
            ScalePosition::BeforeRelu,
            ScalePosition::BeforeLanes,
            ScalePosition::Last,
        ] {
            switched(&format!("e4m3 on {unit:?}, scale {scale:?}"), &|recipe| {
                let format = codes(ScaleFormat::F32, 128);
                (recipe.query.format, recipe.key.format) = (format, format);
                recipe.unit = unit;
                recipe.reduction = Reduction::Steps(Reduce {
                    scale,
                    order: HeadOrder::FourLanes,
                    relu: Relu::HalfSum,
                    product: Storage::Bf16,
                    ..Reduce::default()
                });
            });
        }
    }
    all
}

/// Rows of logits that need care, with a k each.
fn rows() -> Vec<(&'static str, Vec<f32>, usize)> {
    let mut random = stream(3 << 40);
    let mut row = |count: usize, of: &dyn Fn(usize, f32) -> f32| -> Vec<f32> {
        (0..count).map(|i| of(i, random.normal() as f32)).collect()
    };
    let special = [
        f32::NAN,
        -f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        0.0,
        -0.0,
        1e-45,
        -1e-45,
        f32::MAX,
        f32::MIN,
    ];
    let mut rows = Vec::new();
    for k in [1, 2, 512, 1024, 5000, 16384, 20000] {
        rows.push(("normal", row(16384, &|_, x| x), k));
        rows.push(("all equal", row(16384, &|_, _| 0.25), k));
        rows.push(("all NaN", row(16384, &|_, _| f32::NAN), k));
        rows.push(("all -inf", row(16384, &|_, _| f32::NEG_INFINITY), k));
        rows.push((
            "zeros of both signs",
            row(16384, &|i, _| if i % 3 == 0 { 0.0 } else { -0.0 }),
            k,
        ));
        rows.push(("few values", row(16384, &|_, x| x.round()), k));
        rows.push((
            "100 winners and zeros",
            row(8320, &|i, x| if i % 83 == 1 { x.abs() } else { 0.0 }),
            k,
        ));
        rows.push((
            "special",
            row(10007, &|i, x| {
                if i % 3 == 0 { special[i / 3 % 10] } else { x }
            }),
            k,
        ));
        rows.push((
            "any bits",
            row(16384, &|i, _| {
                f32::from_bits((i as u32).wrapping_mul(0x9e37_79b9))
            }),
            k,
        ));
        rows.push(("a million", row(1 << 20, &|_, x| x), k));
        rows.push(("one key", row(1, &|_, x| x), k));
    }
    rows
}
