//! The device against the emulator over the whole list of fixtures/crosscheck.csv: `scripts/device-check`
//! runs it on a machine with a GPU.
//!
//! Each row of the list is a K, a batch, a split rule and a kind of input, and meets every recipe of the
//! catalogue. The rows are such that any two values of different axes meet in one of them, and small batches
//! meet everything (scripts/make_crosscheck_list.py). Prints a line per row and recipe whose bits differ where
//! none may, and a table at the end; exit code 1 if any do.
//!
//!   device_check                               the list, and every recipe twenty times
//!   device_check DEPTH TOKENS SPLITS INPUTS SMS    one row, such as 16384 64 3 normal, the kernels laid out
//!                                                  for so many multiprocessors: few, and a small batch runs
//!                                                  what fills the device by a large one

mod common;

use std::{collections::BTreeMap, process::ExitCode, sync::Arc, time::Instant};

use ndarray::{Array2, s};
use rayon::prelude::*;
use ulpdrift::{
    backend::{
        Backend, RecombineInputs,
        cuda::{
            Cuda,
            options::{Mixing, Shape, Stored},
        },
        emulate::Emulate,
    },
    checkpoint::{HcWeights, Site, StoredType},
    format::{Format, Rounding, bf16},
    random::{Key, Purpose, Stream},
    recipe::{
        MixRecipe, Order, Recombine, SplitRule,
        catalogue::builtin,
        splits::{Boundaries, Launch, SplitCount},
    },
    suite::{
        case::Case,
        crosscheck::{self, COMPARED, Compared, Difference},
        mix::{STAGES, Stage},
    },
};
use ulpdrift_reference::{simd::Level, squares::squares};

const LIST: &str = include_str!("../fixtures/crosscheck.csv");
const OUTPUTS: usize = 24;
const STREAMS: usize = 4;

/// One row of the list.
#[derive(Debug, serde::Deserialize)]
struct Row {
    depth: usize,
    tokens: usize,
    splits: String,
    inputs: String,
}

fn main() -> ExitCode {
    let Some(mut cuda) = common::open() else {
        return ExitCode::from(3);
    };
    let info = cuda.info();
    println!("{info:?}");
    let emulate = Emulate::new(info.arch, Level::detect());
    let mut totals: BTreeMap<(String, &'static str), Total> = BTreeMap::new();
    let mut batches: BTreeMap<(usize, usize), Batch> = BTreeMap::new();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let one = match arguments.as_slice() {
        [] => None,
        [depth, tokens, splits, inputs, sms] => {
            cuda = cuda.laid_out_for(sms.parse().expect("a number of multiprocessors"));
            Some(format!("{depth},{tokens},{splits},{inputs}"))
        }
        _ => panic!("either no arguments or DEPTH TOKENS SPLITS INPUTS SMS"),
    };
    let list = one.as_ref().map_or_else(
        || LIST.to_owned(),
        |row| format!("depth,tokens,splits,inputs\n{row}\n"),
    );
    let mut rows: Vec<Row> = csv::Reader::from_reader(list.as_bytes())
        .deserialize()
        .collect::<Result<_, _>>()
        .expect("rows of numbers and names");
    // Rows of one K and one kind share x.
    rows.sort_by(|a, b| (a.depth, &a.inputs, a.tokens).cmp(&(b.depth, &b.inputs, b.tokens)));
    prepare(&cuda, &rows);
    for of_kind in rows.chunk_by(|a, b| (a.depth, &a.inputs) == (b.depth, &b.inputs)) {
        let (since, mut differing_of_kind) = (Instant::now(), 0);
        let most = &of_kind[of_kind.len() - 1];
        let whole = x(&most.inputs, most.tokens, most.depth);
        for row in of_kind {
            let started = Instant::now();
            let case = case(whole.slice(s![..row.tokens, ..]).to_owned(), row);
            let differing = check(&emulate, &cuda, &case, row, &mut totals);
            let batch = batches.entry((row.depth, row.tokens)).or_default();
            batch.rows += 1;
            batch.differing += differing;
            differing_of_kind += differing;
            batch.seconds += started.elapsed().as_secs_f64();
        }
        // A run that is cut short has said this much.
        println!(
            "K={} {}: {} rows, {} bits differ that must not, {:.1} s",
            most.depth,
            most.inputs,
            of_kind.len(),
            differing_of_kind,
            since.elapsed().as_secs_f64()
        );
    }
    println!();
    for ((depth, tokens), batch) in &batches {
        println!(
            "K={depth} tokens={tokens}: {} rows, {} bits differ that must not, {:.1} s",
            batch.rows, batch.differing, batch.seconds
        );
    }
    let repeated = one.is_some() || repeats(&cuda);
    let agrees = report(&totals, rows.len());
    ExitCode::from(u8::from(!(agrees && repeated)))
}

/// What was found of the rows of one K and one batch.
#[derive(Default)]
struct Batch {
    rows: usize,
    differing: u64,
    seconds: f64,
}

/// Every recipe on one row; how many elements differ that must not.
fn check(
    emulate: &Emulate,
    cuda: &Cuda,
    case: &Case,
    row: &Row,
    totals: &mut BTreeMap<(String, &'static str), Total>,
) -> u64 {
    let mut differing = 0;
    for (number, recipe) in builtin().iter().enumerate() {
        let recipe = with_splits(recipe, &row.splits);
        let found = crosscheck::compare(
            emulate,
            cuda,
            &recipe,
            case,
            launch(row),
            stages(row, number),
        )
        .expect("both backends run every recipe");
        for found in found {
            if found.stage.is_exact() && found.differing > 0 {
                differing += found.differing;
                println!(
                    "DIFFERS {} {row:?} at {}: {} of {}, first {:?}",
                    recipe.name,
                    found.stage.name(),
                    found.differing,
                    found.elements,
                    found.first
                );
            }
            let key = (recipe.name.clone(), found.stage.name());
            totals.entry(key).or_default().add(&found);
        }
    }
    differing
}

/// What is compared: the stages after the projection do not depend on its splits, and X', the largest of all
/// outputs, hardly on the recipe.
fn stages(row: &Row, recipe: usize) -> &'static [Compared] {
    const PROJECTION: [Compared; 2] = [Compared::DOT, Compared::Mix(Stage::Mixes)];
    const MIX: [Compared; STAGES.len()] = mix_stages();
    match (row.splits == "7" && row.tokens <= 1000, recipe) {
        (false, _) => &PROJECTION,
        (true, 0) => &COMPARED,
        (true, _) => &MIX,
    }
}

const fn mix_stages() -> [Compared; STAGES.len()] {
    let mut stages = [Compared::DOT; STAGES.len()];
    let mut index = 0;
    while index < stages.len() {
        stages[index] = Compared::Mix(STAGES[index]);
        index += 1;
    }
    stages
}

fn launch(row: &Row) -> Launch {
    Launch {
        tokens: row.tokens,
        sms: 188,
    }
}

/// Compiles everything at once: one after the other takes longer than all the rest.
fn prepare(cuda: &Cuda, rows: &[Row]) {
    let device = cuda.device();
    let started = Instant::now();
    let mut builds = Vec::new();
    for row in rows {
        let stored = Stored::for_format(exact_in(row));
        for recipe in builtin() {
            let recipe = with_splits(&recipe, &row.splits);
            let sizes = (row.tokens, OUTPUTS, row.depth);
            let shape = Shape::new(
                &recipe.projection,
                sizes,
                launch(row),
                stored,
                device.target(),
            );
            builds.extend(Mixing::of(&recipe, &shape).builds().cloned());
        }
    }
    device.bind().expect("the device is there");
    device.prepare(&builds).expect("the kernels compile");
    println!("compiled in {:.1} s", started.elapsed().as_secs_f64());
}

/// A format that holds every value of a row's x.
fn exact_in(row: &Row) -> Format {
    match row.inputs.as_str() {
        "hostile-f32" => Format::F32,
        _ => Format::Bf16,
    }
}

/// Every recipe on one case and both recombinations, time and again: whether the bits are the same each time.
fn repeats(cuda: &Cuda) -> bool {
    const TIMES: usize = 20;
    let row = Row {
        depth: 16384,
        tokens: 1000,
        splits: "7".to_owned(),
        inputs: "normal".to_owned(),
    };
    let case = case(x(&row.inputs, row.tokens, row.depth), &row);
    let launch = launch(&row);
    let mut same = true;
    for recipe in builtin() {
        same &= repeats_itself(&recipe.name, TIMES, || {
            let mix = cuda.mix(&recipe, &case.mix_inputs(launch)).expect("mix");
            let inputs = case.split_inputs(mix.mixes.view());
            let split = cuda
                .split_sinkhorn(&recipe.epilogue, &inputs)
                .expect("split");
            let y = cuda
                .collapse(
                    &recipe.epilogue,
                    split.pre.view(),
                    case.x.view(),
                    case.x_exact_in,
                )
                .expect("collapse");
            let y = y.rows(0..row.tokens).into_owned();
            let stages = [
                &mix.dot,
                &mix.mixes,
                &split.pre,
                &split.post,
                &split.comb,
                &y,
            ];
            let bits = stages.iter().flat_map(|stage| stage.iter().copied());
            bits.map(f32::to_bits).collect()
        });
    }
    // Anything will do for the gates and the sublayer's output.
    let width = row.depth / STREAMS;
    let inputs = RecombineInputs {
        x: case.x.view(),
        x_exact_in: case.x_exact_in,
        f: case.x.slice(s![.., ..width]),
        f_exact_in: case.x_exact_in,
        post: case.x.slice(s![.., ..STREAMS]),
        comb: case.x.slice(s![.., ..STREAMS * STREAMS]),
    };
    for (name, recombine) in [
        ("recombine", Recombine::FP32),
        ("recombine_bf16", Recombine::TRANSFORMERS),
    ] {
        same &= repeats_itself(name, TIMES, || {
            let next = cuda.recombine(&recombine, &inputs).expect("recombine");
            next.iter().map(|value| value.to_bits()).collect()
        });
    }
    println!(
        "{TIMES} repeats of every recipe and recombination at 1000 tokens: {}",
        if same {
            "bits identical"
        } else {
            "BITS DIFFER"
        }
    );
    same
}

/// Whether the bits are the same each time.
fn repeats_itself(name: &str, times: usize, bits: impl Fn() -> Vec<u32>) -> bool {
    let first = bits();
    let differing = (1..times).filter(|_| bits() != first).count();
    if differing > 0 {
        println!("{name}: {differing} of {times} repeats differ");
    }
    differing == 0
}

/// What was found of a recipe at a stage.
#[derive(Default)]
struct Total {
    elements: u64,
    differing: u64,
    ulps: f64,
}

impl Total {
    fn add(&mut self, found: &Difference) {
        self.elements += found.elements;
        self.differing += found.differing;
        if found.ulps > self.ulps {
            self.ulps = found.ulps;
        }
    }
}

/// Prints the table; whether no element differs that must not.
fn report(totals: &BTreeMap<(String, &'static str), Total>, rows: usize) -> bool {
    println!("\n{rows} rows, elements that differ of all (largest difference in ulps of fp32)\n");
    println!("| variant | {} |", COMPARED.map(Compared::name).join(" | "));
    println!("|---{}|", "|---".repeat(COMPARED.len()));
    let mut differing = 0;
    for recipe in builtin() {
        let cells = COMPARED.map(|stage| {
            let Some(total) = totals.get(&(recipe.name.clone(), stage.name())) else {
                return "not compared".to_owned();
            };
            if stage.is_exact() {
                differing += total.differing;
            }
            match total.differing {
                0 => format!("0 of {}", total.elements),
                count => format!("{count} of {} ({})", total.elements, total.ulps),
            }
        });
        println!("| {} | {} |", recipe.name, cells.join(" | "));
    }
    println!("\n{differing} elements differ that must not");
    differing == 0
}

/// The recipe with the split rule of a row; the strided order has no splits.
fn with_splits(recipe: &MixRecipe, splits: &str) -> MixRecipe {
    let mut recipe = recipe.clone();
    if let Order::Chains { partials, .. } = recipe.projection.order {
        let (count, boundaries) = match splits {
            "engine" => (SplitCount::Engine, Boundaries::Deepgemm),
            "tilelang" => (SplitCount::Tilelang, Boundaries::Deepgemm),
            "triton-7" => (SplitCount::Fixed(7), Boundaries::Triton),
            count => (
                SplitCount::Fixed(count.parse().expect("a number")),
                Boundaries::Deepgemm,
            ),
        };
        recipe.projection.order = Order::Chains {
            splits: SplitRule { count, boundaries },
            partials,
        };
    }
    recipe
}

fn case(x: Array2<f32>, row: &Row) -> Case {
    let function = weights(&row.inputs, row.depth);
    Case {
        layer: 0,
        site: Site::Attn,
        x: x.into_shared(),
        x_exact_in: exact_in(row),
        function_squares: squares(Level::detect(), function.view()).into_shared(),
        weights: Arc::new(HcWeights {
            base: vec![0.1; OUTPUTS],
            function,
            scale: [0.1, 0.15, 0.7],
            dtype: StoredType::F32,
        }),
        hc: STREAMS,
        norm_eps: 1e-6,
        hc_eps: 1e-6,
        iters: 20,
    }
}

fn stream(item: u64) -> Stream {
    Stream::new(Key {
        seed: 4,
        purpose: Purpose::Activations,
        layer: 0,
        token: item,
    })
}

/// Inputs by name; all but `hostile-f32` are exact in bf16.
fn x(inputs: &str, tokens: usize, depth: usize) -> Array2<f32> {
    let mut x = Array2::zeros((tokens, depth));
    x.outer_iter_mut()
        .into_par_iter()
        .enumerate()
        .for_each(|(token, mut row)| {
            let mut random = stream(token as u64);
            for value in &mut row {
                *value = random.normal() as f32;
            }
            match inputs {
                "outlier" if token == 0 => {
                    for channel in [3, 1000, 2047] {
                        row[channel] = 3e4;
                    }
                }
                "copies" => {
                    let width = depth / STREAMS;
                    for index in width..depth {
                        row[index] = row[index % width] + 0.01 * row[index];
                    }
                }
                "scaled:1e-3" => row.mapv_inplace(|value| 1e-3 * value),
                "scaled:7e4" => row.mapv_inplace(|value| 7e4 * value),
                "hostile" | "hostile-f32" => {
                    for (k, value) in row.iter_mut().enumerate() {
                        *value = hostile(token, k, *value);
                    }
                }
                _ => {}
            }
            if inputs != "hostile-f32" {
                row.mapv_inplace(|value| bf16::round_f32(value, Rounding::NearestEven));
            }
        });
    x
}

/// Subnormals, the largest numbers, zeros of both signs, and in some tokens infinities and NaN: eight tokens
/// of every 64, because the emulator takes its slow path for them.
fn hostile(token: usize, k: usize, normal: f32) -> f32 {
    match (token % 64, k % 97) {
        (0, 5) => f32::from_bits(1 + (k as u32)),
        (0 | 1, 11) => -0.0,
        (1, 13) => f32::MAX,
        (1, 40) => -f32::MAX,
        (2, _) if k < 2048 => normal * 1e-38,
        (3, _) => normal * 1e30,
        (4, 17) if k > 5000 => f32::INFINITY,
        (5, 19) if k > 9000 => f32::NEG_INFINITY,
        (5, 23) if k > 12000 => f32::INFINITY,
        (6, 29) if k > 8000 => f32::NAN,
        (7, _) if k.is_multiple_of(2) => 0.0,
        _ => normal,
    }
}

fn weights(inputs: &str, depth: usize) -> Array2<f32> {
    let mut weights = Array2::zeros((OUTPUTS, depth));
    for (output, mut row) in weights.outer_iter_mut().enumerate() {
        let mut random = stream(1 << 40 | output as u64);
        for (k, value) in row.iter_mut().enumerate() {
            *value = 0.02 * random.normal() as f32;
            if inputs.starts_with("hostile") {
                *value = match (output % 6, k % 1009) {
                    (1, 7) => f32::from_bits(1 + k as u32),
                    (2, 3) => f32::MAX,
                    (3, _) if k < 2048 => *value * 1e-36,
                    (4, 31) if k > 10000 => f32::INFINITY,
                    (5, 37) if k > 14000 => f32::from_bits(0x7f80_0001),
                    _ => *value,
                };
            }
        }
    }
    weights
}
