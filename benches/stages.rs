//! Where the time of a run goes: every stage of suite `mix` on one full-size site, one after another.
//!
//! `cargo bench --bench stages [-- TOKENS]` prints, per stage, the median seconds for one site, what
//! that makes for the 86 sites of `synthetic:flash`, and its share. Stages are timed alone, with all
//! threads; a run overlaps the inputs of the next layer with the rest.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use ulpdrift::{
    activations::{Activations, Inputs},
    backend::emulate::Emulate,
    checkpoint::{Checkpoint, NonFinite, Site, SyntheticModel},
    recipe::{MixRecipe, catalogue, splits::Launch},
    suite::{
        Plan,
        case::{Case, References},
        mix::{
            Candidate, layer_input,
            projected::Projected,
            rows::{self, Rows},
        },
    },
    tensor_core::Arch,
};
use ulpdrift_reference::simd::Level;

const TOKENS: usize = 2048;
/// Tokens per slice of the suite.
const SLICE: usize = 512;
const ROUNDS: usize = 5;
const SITES: f64 = 86.0;

/// A stage's times, one per round.
struct Line {
    stage: &'static str,
    seconds: Vec<f64>,
}

#[derive(Default)]
struct Table(Vec<Line>);

impl Table {
    fn time<T>(&mut self, stage: &'static str, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = black_box(work());
        self.add(stage, start.elapsed());
        result
    }

    fn add(&mut self, stage: &'static str, elapsed: Duration) {
        let seconds = elapsed.as_secs_f64();
        match self.0.iter_mut().find(|line| line.stage == stage) {
            Some(line) => line.seconds.push(seconds),
            None => self.0.push(Line {
                stage,
                seconds: vec![seconds],
            }),
        }
    }

    fn print(mut self) {
        let median = |line: &mut Line| {
            line.seconds.sort_by(f64::total_cmp);
            line.seconds[line.seconds.len() / 2]
        };
        let rows: Vec<(&str, f64)> = self
            .0
            .iter_mut()
            .map(|line| (line.stage, median(line)))
            .collect();
        let total: f64 = rows.iter().map(|(_, seconds)| seconds).sum();
        println!("| stage | one site, ms | 86 sites, s | share |");
        println!("|---|---|---|---|");
        for (stage, seconds) in rows.into_iter().chain([("all", total)]) {
            println!(
                "| {stage} | {:.1} | {:.1} | {:.0} % |",
                1e3 * seconds,
                SITES * seconds,
                100.0 * seconds / total
            );
        }
    }
}

fn main() {
    let mut numbers = std::env::args().filter_map(|arg| arg.parse().ok());
    let tokens = numbers.next_back().unwrap_or(TOKENS);
    let checkpoint = Checkpoint::synthetic(SyntheticModel::Flash, 0).expect("a synthetic model");
    let level = Level::detect();
    let backend = Emulate::new(Arch::Sm120, level);
    let is_bf16 = |recipe: &MixRecipe| recipe.name == "bf16";
    let recipes: Vec<MixRecipe> = catalogue::builtin().into_iter().filter(is_bf16).collect();
    let inputs = Inputs::Normal;
    let activations = Activations::open(&inputs, 0, checkpoint.model()).expect("drawn inputs");
    let plan = Plan {
        checkpoint: &checkpoint,
        backend: &backend,
        recipes: &recipes,
        faults: &[],
        products: &[],
        time: false,
        repeat: 1,
        against: &catalogue::fp32(),
        layers: &[0],
        sites: &[Site::Attn],
        inputs: &inputs,
        activations: &activations,
        tokens: Some(tokens),
        seed: 0,
        sms: 188,
        nonfinite: NonFinite::Refuse,
        level,
    };
    println!(
        "{tokens} tokens, K = 16384, N = 24, variant bf16 against fp32; {} threads, {level}; \
         median of {ROUNDS}\n",
        rayon::current_num_threads()
    );
    let mut table = Table::default();
    for _ in 0..ROUNDS {
        round(&plan, tokens, &mut table);
    }
    table.print();
}

/// The suite's stages in the suite's order.
fn round(plan: &Plan<'_>, tokens: usize, table: &mut Table) {
    // Both sites of a layer share their inputs.
    let start = Instant::now();
    let x = plan.activations.tokens(0, Site::Attn, 0..tokens);
    let x = x.expect("drawn").expect("present").into_shared();
    table.add("inputs", start.elapsed() / 2);
    let case = table.time("weights", || {
        Case::with_inputs(plan, 0, Site::Attn, x).expect("weights")
    });
    let launch = Launch {
        tokens,
        sms: plan.sms,
    };
    let recipe = &plan.recipes[0];
    let mut sums = Sums::default();
    for start in (0..tokens).step_by(SLICE) {
        let slice = case.tokens(start..(start + SLICE).min(tokens));
        sums.add(plan, &slice, launch, recipe);
    }
    table.add("truth and recipe-exact", sums.references);
    table.add("emulation, bf16", sums.emulation);
    table.add("emulation, fp32 (against)", sums.against);
    table.add("prefix bound", sums.bound);
    table.add("split and Sinkhorn, fp64", sums.tail);
    let projected = Projected::run(plan, &case, launch).expect("the recipe runs");
    let measured = table.time("layer input: collapse and measures", || {
        layer_input::measure(plan, &case, &projected).expect("an emulator")
    });
    table.time("other measures", || {
        let rows = Rows {
            plan,
            case: &case,
            projected: &projected,
        };
        rows.records(recipe.into(), &projected.candidates[0], &measured[0])
            .expect("records")
    });
}

/// What the slices of one case took.
#[derive(Default)]
struct Sums {
    references: Duration,
    emulation: Duration,
    against: Duration,
    bound: Duration,
    tail: Duration,
}

impl Sums {
    fn add(&mut self, plan: &Plan<'_>, slice: &Case, launch: Launch, recipe: &MixRecipe) {
        let mut last = Instant::now();
        let mut lap = |sum: &mut Duration| {
            *sum += last.elapsed();
            last = Instant::now();
        };
        let references = References::new(plan.level, slice, launch, &[recipe]);
        let exact = references.exact(0, recipe);
        lap(&mut self.references);
        let run = |recipe| Candidate::run(plan.backend, recipe, slice, launch).expect("runs");
        black_box(run(plan.against.into()));
        lap(&mut self.against);
        black_box(run(recipe.into()));
        lap(&mut self.emulation);
        let truth = &references.truth;
        black_box(rows::bounds(plan, slice, launch, truth, recipe, &exact).expect("bounds"));
        lap(&mut self.bound);
        black_box(exact.stages(slice, &recipe.projection, truth));
        lap(&mut self.tail);
    }
}
