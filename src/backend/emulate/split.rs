//! Split and Sinkhorn in fp32, in the kernels' order.
//!
//! ```text
//! pre_j  = σ(m_j·s₀ + b_j) + ε        post_j = 2·σ(m_{4+j}·s₁ + b_{4+j})
//! C_jk   = m_{8+4j+k}·s₂ + b_{8+4j+k}
//! c = exp(C − rowmax);  c = c/rowsum + ε;  c = c/(colsum + ε);  19 × { rows, columns }
//! ```
//!
//! Sums of hc elements ascend. `exp` is correctly rounded; a GPU's own differs by up to 2 ulp.

use ndarray::{Array2, ArrayViewMut2, Axis};
use rayon::prelude::*;
use ulpdrift_reference::simd::Level;

use super::lanes::{self, LANES, Lane, Task, Vector};
use crate::{
    backend::{Split, SplitInputs},
    recipe::{Contraction, Epilogue, Sigmoid, SinkhornDivision, SinkhornEps},
};

/// Runs the split of every token, 16 at a time.
pub fn split_sinkhorn<'a>(level: Level, epilogue: &'a Epilogue, inputs: &SplitInputs<'a>) -> Split {
    let (tokens, hc) = (inputs.mixes.nrows(), inputs.hc);
    let mut split = Split {
        pre: Array2::zeros((tokens, hc)),
        post: Array2::zeros((tokens, hc)),
        comb: Array2::zeros((tokens, hc * hc)),
    };
    let kernel = Kernel::new(level, epilogue, *inputs);
    let gates = split.pre.axis_chunks_iter_mut(Axis(0), LANES);
    gates
        .into_par_iter()
        .zip(split.post.axis_chunks_iter_mut(Axis(0), LANES))
        .zip(split.comb.axis_chunks_iter_mut(Axis(0), LANES))
        .enumerate()
        .for_each(|(tile, ((pre, post), comb))| {
            let tile = kernel.tile(tile * LANES);
            scatter(&tile.pre, pre);
            scatter(&tile.post, post);
            scatter(&tile.comb, comb);
        });
    split
}

/// Lanes [column] into rows [token, column].
fn scatter(lanes: &[Lane], mut rows: ArrayViewMut2<'_, f32>) {
    for ((token, column), value) in rows.indexed_iter_mut() {
        *value = lanes[column][token];
    }
}

/// The outputs of 16 tokens.
struct Tile {
    pre: Vec<Lane>,
    post: Vec<Lane>,
    comb: Vec<Lane>,
}

struct Kernel<'a> {
    level: Level,
    epilogue: &'a Epilogue,
    inputs: SplitInputs<'a>,
    eps: f32,
}

impl<'a> Kernel<'a> {
    fn new(level: Level, epilogue: &'a Epilogue, inputs: SplitInputs<'a>) -> Self {
        #[allow(clippy::cast_possible_truncation)]
        let eps = inputs.eps as f32;
        Self {
            level,
            epilogue,
            inputs,
            eps,
        }
    }

    /// The tokens from `first` on; past the end the last one stands in.
    fn tile(&self, first: usize) -> Tile {
        let hc = self.inputs.hc;
        let pre = |j| self.logit(first, j, 0).map(|z| self.sigmoid(z) + self.eps);
        let post = |j| self.logit(first, hc + j, 1).map(|z| 2.0 * self.sigmoid(z));
        let comb = |index| self.logit(first, 2 * hc + index, 2);
        let mut comb: Vec<Lane> = (0..hc * hc).map(comb).collect();
        for row in comb.chunks_mut(hc) {
            self.exponentials(row);
        }
        let sinkhorn = Sinkhorn {
            comb: &mut comb,
            hc,
            iters: self.inputs.iters,
            eps: self.eps,
            epilogue: self.epilogue,
        };
        lanes::run(self.level, sinkhorn);
        Tile {
            pre: (0..hc).map(pre).collect(),
            post: (0..hc).map(post).collect(),
            comb,
        }
    }

    fn logit(&self, first: usize, index: usize, group: usize) -> Lane {
        let (mixes, last) = (self.inputs.mixes, self.inputs.mixes.nrows() - 1);
        let (scale, base) = (self.inputs.scale[group], self.inputs.base[index]);
        std::array::from_fn(|lane| {
            let mix = mixes[[(first + lane).min(last), index]];
            match self.epilogue.affine {
                Contraction::Fma => mix.mul_add(scale, base),
                Contraction::MulAdd => mix * scale + base,
            }
        })
    }

    fn sigmoid(&self, z: f32) -> f32 {
        let exp = match self.epilogue.sigmoid {
            Sigmoid::Exp => exp(-z),
            Sigmoid::Exp2 => exp2(-z * std::f32::consts::LOG2_E),
        };
        1.0 / (1.0 + exp)
    }

    /// The numerators of a row's softmax.
    fn exponentials(&self, row: &mut [Lane]) {
        for lane in 0..LANES {
            // fmaxf, which prefers a number to a NaN: the NaN then comes back through exp.
            let shift = if self.epilogue.skip_row_max {
                0.0
            } else {
                row.iter()
                    .map(|values| values[lane])
                    .fold(f32::NEG_INFINITY, f32::max)
            };
            for values in &mut *row {
                values[lane] = exp(values[lane] - shift);
            }
        }
    }
}

/// From the numerators of the softmax on: all that is left is sums and quotients.
struct Sinkhorn<'a> {
    comb: &'a mut [Lane],
    hc: usize,
    iters: u32,
    eps: f32,
    epilogue: &'a Epilogue,
}

/// Places of a row or column in comb.
#[derive(Clone, Copy)]
struct Line {
    start: usize,
    step: usize,
}

impl Task for Sinkhorn<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(mut self, vector: V) {
        let (hc, eps) = (self.hc, vector.splat(self.eps));
        for row in 0..hc {
            let line = self.row(row);
            let sum = self.sum(vector, line, vector.splat(0.0));
            self.divide(vector, line, sum);
            for index in line.places(hc) {
                let value = vector.load(&self.comb[index]);
                vector.store(vector.add(value, eps), &mut self.comb[index]);
            }
        }
        self.normalise_columns(vector);
        for _ in 1..self.iters {
            for row in 0..hc {
                self.normalise(vector, self.row(row));
            }
            self.normalise_columns(vector);
        }
    }
}

impl Line {
    #[inline(always)]
    fn places(self, count: usize) -> impl Iterator<Item = usize> {
        (self.start..).step_by(self.step).take(count)
    }
}

impl Sinkhorn<'_> {
    #[inline(always)]
    fn row(&self, row: usize) -> Line {
        Line {
            start: row * self.hc,
            step: 1,
        }
    }

    #[inline(always)]
    fn normalise_columns<V: Vector>(&mut self, vector: V) {
        for start in 0..self.hc {
            let step = self.hc;
            self.normalise(vector, Line { start, step });
        }
    }

    /// Divides a line by its guarded sum.
    #[inline(always)]
    fn normalise<V: Vector>(&mut self, vector: V, line: Line) {
        let (zero, eps) = (vector.splat(0.0), vector.splat(self.eps));
        let sum = match self.epilogue.eps {
            SinkhornEps::AddAfterSum => vector.add(self.sum(vector, line, zero), eps),
            SinkhornEps::StartSum => self.sum(vector, line, eps),
            SinkhornEps::Clamp => vector.at_least(self.sum(vector, line, zero), eps),
        };
        self.divide(vector, line, sum);
    }

    /// `start` and then the line's values, added ascending.
    #[inline(always)]
    fn sum<V: Vector>(&self, vector: V, line: Line, start: V::Real) -> V::Real {
        let mut sum = start;
        for index in line.places(self.hc) {
            sum = vector.add(sum, vector.load(&self.comb[index]));
        }
        sum
    }

    #[inline(always)]
    fn divide<V: Vector>(&mut self, vector: V, line: Line, sum: V::Real) {
        let by = match self.epilogue.division {
            SinkhornDivision::Divide => sum,
            SinkhornDivision::Reciprocal => vector.divide(vector.splat(1.0), sum),
        };
        for index in line.places(self.hc) {
            let value = vector.load(&self.comb[index]);
            let quotient = match self.epilogue.division {
                SinkhornDivision::Divide => vector.divide(value, by),
                SinkhornDivision::Reciprocal => vector.multiply(value, by),
            };
            vector.store(quotient, &mut self.comb[index]);
        }
    }
}

/// exp, correctly rounded to fp32: a scan of all fp32 arguments found none whose fp64 value is too
/// close to a rounding boundary to decide it (the closest are in the tests).
#[allow(clippy::cast_possible_truncation)]
pub(super) fn exp(value: f32) -> f32 {
    libm::exp(f64::from(value)) as f32
}

/// exp2, rounded from fp64. Of all fp32 arguments two (bits `3b429d37` and `bcf3a937`) lie so close to
/// a rounding boundary that the fp64 value falls on its other side: there the result is the
/// neighbour of the correctly rounded one.
#[allow(clippy::cast_possible_truncation)]
fn exp2(value: f32) -> f32 {
    libm::exp2(f64::from(value)) as f32
}

#[cfg(test)]
mod tests;
