//! The sums of products and of squares, in the orders of the kernels.

use ulpdrift_reference::simd::Level;

use super::{LANES, Lane, Task, Vector, run};
use crate::recipe::Contraction;

/// Outputs whose chains share the lanes of x: enough to hide the latency of an FMA behind the others'.
pub const GROUP: usize = 12;

/// The same where a group's accumulators do not all fit the registers.
const HALF: usize = GROUP / 2;

/// A sum per output of a group.
pub type Sums = [Lane; GROUP];

/// Continues `sums.len()` chains per output of a group over a panel: `sum = fma(x, weight, sum)`, k
/// ascending. Chain t meets the columns t, t + `sums.len()`, … of the panel, and the weights at t,
/// t + `stride`, …; of a lane of weights output n takes value n.
pub fn chains(level: Level, panel: &[Lane], weights: &[Lane], stride: usize, sums: &mut [Sums]) {
    let chains = Chains {
        panel,
        weights,
        stride,
        sums,
    };
    run(level, chains);
}

struct Chains<'a> {
    panel: &'a [Lane],
    weights: &'a [Lane],
    stride: usize,
    sums: &'a mut [Sums],
}

impl Task for Chains<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self, vector: V) {
        let width = self.sums.len();
        for (t, sums) in self.sums.iter_mut().enumerate() {
            let columns = self.panel.get(t..).unwrap_or_default().iter();
            let weights = self.weights.get(t..).unwrap_or_default().iter();
            let terms = columns.step_by(width).zip(weights.step_by(self.stride));
            if V::ACCUMULATORS >= GROUP {
                continue_chains(vector, terms, 0, sums);
                continue;
            }
            for (half, sums) in sums.as_chunks_mut::<HALF>().0.iter_mut().enumerate() {
                continue_chains(vector, terms.clone(), half * HALF, sums);
            }
        }
    }
}

/// The chains of the outputs from `first` on.
#[inline(always)]
fn continue_chains<'a, V: Vector, const OUTPUTS: usize>(
    vector: V,
    terms: impl Iterator<Item = (&'a Lane, &'a Lane)>,
    first: usize,
    sums: &mut [Lane; OUTPUTS],
) {
    let mut chains = [vector.splat(0.0); OUTPUTS];
    for (chain, sum) in chains.iter_mut().zip(&*sums) {
        *chain = vector.load(sum);
    }
    for (x, weights) in terms {
        let x = vector.load(x);
        for (chain, &weight) in chains.iter_mut().zip(&weights[first..]) {
            *chain = vector.fma(x, vector.splat(weight), *chain);
        }
    }
    for (sum, chain) in sums.iter_mut().zip(chains) {
        vector.store(chain, sum);
    }
}

/// Continues `sums.len()` FMA chains over x²: chain t takes columns t, t + `sums.len()`, … of the
/// panel.
pub fn square_chains(level: Level, panel: &[Lane], sums: &mut [Lane]) {
    run(level, SquareChains { panel, sums });
}

struct SquareChains<'a> {
    panel: &'a [Lane],
    sums: &'a mut [Lane],
}

impl Task for SquareChains<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self, vector: V) {
        let width = self.sums.len();
        for (t, sum) in self.sums.iter_mut().enumerate() {
            let mut chain = vector.load(sum);
            for x in self
                .panel
                .get(t..)
                .unwrap_or_default()
                .iter()
                .step_by(width)
            {
                let x = vector.load(x);
                chain = vector.fma(x, x, chain);
            }
            vector.store(chain, sum);
        }
    }
}

/// Lanes of a row in `DeepGEMM`'s squared sum.
pub const ROW_LANES: usize = 4;

/// The columns they share out per step.
const STEP: usize = 2 * ROW_LANES;

/// Continues `DeepGEMM`'s squared sum: of eight columns a step, lane c adds fma(x₀, x₀, x₁·x₁) of columns
/// c and c + 4. Only a range's last panel may end within a step.
pub fn square_lanes(level: Level, panel: &[Lane], sums: &mut [Lane; ROW_LANES]) {
    run(level, SquareLanes { panel, sums });
}

struct SquareLanes<'a> {
    panel: &'a [Lane],
    sums: &'a mut [Lane; ROW_LANES],
}

impl Task for SquareLanes<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self, vector: V) {
        let mut lanes = [vector.splat(0.0); ROW_LANES];
        for (lane, sum) in lanes.iter_mut().zip(&*self.sums) {
            *lane = vector.load(sum);
        }
        let (steps, rest) = self.panel.as_chunks();
        for step in steps {
            add_step(vector, step, &mut lanes);
        }
        if !rest.is_empty() {
            // A ragged end is filled with zeros, whose squares change no lane.
            let mut last = [[0.0; LANES]; STEP];
            last[..rest.len()].copy_from_slice(rest);
            add_step(vector, &last, &mut lanes);
        }
        for (sum, lane) in self.sums.iter_mut().zip(lanes) {
            vector.store(lane, sum);
        }
    }
}

#[inline(always)]
fn add_step<V: Vector>(vector: V, step: &[Lane; STEP], lanes: &mut [V::Real; ROW_LANES]) {
    for (c, lane) in lanes.iter_mut().enumerate() {
        let (first, second) = (vector.load(&step[c]), vector.load(&step[c + ROW_LANES]));
        let square = vector.multiply(second, second);
        *lane = vector.add(*lane, vector.fma(first, first, square));
    }
}

/// `sums[i] += terms[i]`.
pub fn add(level: Level, sums: &mut [Lane], terms: &[Lane]) {
    run(level, Add { sums, terms });
}

struct Add<'a> {
    sums: &'a mut [Lane],
    terms: &'a [Lane],
}

impl Task for Add<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self, vector: V) {
        for (sum, term) in self.sums.iter_mut().zip(self.terms) {
            let total = vector.add(vector.load(sum), vector.load(term));
            vector.store(total, sum);
        }
    }
}

/// `y[c] = Σ_j pre[j]·x[j·d + c]`, streams ascending, one token.
pub fn collapse(level: Level, contraction: Contraction, pre: &[f32], x: &[f32], y: &mut [f32]) {
    let collapse = Collapse {
        contraction,
        pre,
        x,
        y,
    };
    run(level, collapse);
}

/// Elements of y at a time.
const STRETCH: usize = 1024;

struct Collapse<'a> {
    contraction: Contraction,
    pre: &'a [f32],
    x: &'a [f32],
    y: &'a mut [f32],
}

impl Task for Collapse<'_> {
    type Output = ();

    /// Plain loops over stretches of y that stay in cache: the compiler makes vectors of them.
    #[inline(always)]
    fn run<V: Vector>(self, _: V) {
        let width = self.y.len();
        for (stretch, y) in self.y.chunks_mut(STRETCH).enumerate() {
            for (stream, &gate) in self.pre.iter().enumerate() {
                let x = &self.x[stream * width + stretch * STRETCH..][..y.len()];
                match (stream, self.contraction) {
                    (0, _) => {
                        for (y, x) in y.iter_mut().zip(x) {
                            *y = gate * x;
                        }
                    }
                    (_, Contraction::Fma) => {
                        for (y, x) in y.iter_mut().zip(x) {
                            *y = x.mul_add(gate, *y);
                        }
                    }
                    (_, Contraction::MulAdd) => {
                        for (y, x) in y.iter_mut().zip(x) {
                            *y += gate * x;
                        }
                    }
                }
            }
        }
    }
}
