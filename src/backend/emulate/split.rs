//! Split and Sinkhorn in fp32, in the kernels' order.
//!
//! ```text
//! pre_j  = σ(m_j·s₀ + b_j) + ε        post_j = 2·σ(m_{4+j}·s₁ + b_{4+j})
//! C_jk   = m_{8+4j+k}·s₂ + b_{8+4j+k}
//! c = exp(C − rowmax);  c = c/rowsum + ε;  c = c/(colsum + ε);  19 × { rows, columns }
//! ```
//!
//! Sums of hc elements ascend. `exp` is correctly rounded; a GPU's own differs by up to 2 ulp.

use ndarray::{Array2, ArrayView1};

use crate::{
    backend::{Split, SplitInputs},
    recipe::{Contraction, Epilogue, Sigmoid, SinkhornDivision, SinkhornEps},
};

/// Runs the split of every token.
pub fn split_sinkhorn<'a>(epilogue: &'a Epilogue, inputs: &SplitInputs<'a>) -> Split {
    let (tokens, hc) = (inputs.mixes.nrows(), inputs.hc);
    let mut split = Split {
        pre: Array2::zeros((tokens, hc)),
        post: Array2::zeros((tokens, hc)),
        comb: Array2::zeros((tokens, hc * hc)),
    };
    let kernel = Kernel::new(epilogue, inputs);
    for (token, mixes) in inputs.mixes.rows().into_iter().enumerate() {
        for j in 0..hc {
            split.pre[[token, j]] = kernel.sigmoid(kernel.logit(mixes, j, 0)) + kernel.eps;
            split.post[[token, j]] = 2.0 * kernel.sigmoid(kernel.logit(mixes, hc + j, 1));
        }
        let mut comb = split.comb.row_mut(token);
        for (index, comb) in comb.iter_mut().enumerate() {
            *comb = kernel.logit(mixes, 2 * hc + index, 2);
        }
        kernel.sinkhorn(comb.as_slice_mut().unwrap_or_default());
    }
    split
}

struct Kernel<'a> {
    epilogue: &'a Epilogue,
    scale: [f32; 3],
    base: &'a [f32],
    hc: usize,
    iters: u32,
    eps: f32,
}

impl<'a> Kernel<'a> {
    fn new(epilogue: &'a Epilogue, inputs: &SplitInputs<'a>) -> Self {
        #[allow(clippy::cast_possible_truncation)]
        let eps = inputs.eps as f32;
        Self {
            epilogue,
            scale: inputs.scale,
            base: inputs.base,
            hc: inputs.hc,
            iters: inputs.iters,
            eps,
        }
    }

    fn logit(&self, mixes: ArrayView1<'_, f32>, index: usize, group: usize) -> f32 {
        let (mix, scale, base) = (mixes[index], self.scale[group], self.base[index]);
        match self.epilogue.affine {
            Contraction::Fma => mix.mul_add(scale, base),
            Contraction::MulAdd => mix * scale + base,
        }
    }

    fn sigmoid(&self, z: f32) -> f32 {
        let exp = match self.epilogue.sigmoid {
            Sigmoid::Exp => exp(-z),
            Sigmoid::Exp2 => exp2(-z * std::f32::consts::LOG2_E),
        };
        1.0 / (1.0 + exp)
    }

    fn sinkhorn(&self, comb: &mut [f32]) {
        for row in comb.chunks_exact_mut(self.hc) {
            self.softmax(row);
        }
        self.normalise_columns(comb);
        for _ in 1..self.iters {
            for row in comb.chunks_exact_mut(self.hc) {
                let sum = self.guarded_sum(row.iter().copied());
                row.iter_mut()
                    .for_each(|value| *value = self.divide(*value, sum));
            }
            self.normalise_columns(comb);
        }
    }

    fn softmax(&self, row: &mut [f32]) {
        // fmaxf, which prefers a number to a NaN: the NaN then comes back through exp.
        let shift = if self.epilogue.skip_row_max {
            0.0
        } else {
            row.iter().copied().fold(f32::NEG_INFINITY, f32::max)
        };
        row.iter_mut()
            .for_each(|value| *value = exp(*value - shift));
        let sum = ascending_sum(row.iter().copied(), 0.0);
        row.iter_mut()
            .for_each(|value| *value = self.divide(*value, sum) + self.eps);
    }

    fn normalise_columns(&self, comb: &mut [f32]) {
        for column in 0..self.hc {
            let values = comb.iter().skip(column).step_by(self.hc).copied();
            let sum = self.guarded_sum(values);
            for value in comb.iter_mut().skip(column).step_by(self.hc) {
                *value = self.divide(*value, sum);
            }
        }
    }

    fn guarded_sum(&self, values: impl Iterator<Item = f32>) -> f32 {
        match self.epilogue.eps {
            SinkhornEps::AddAfterSum => ascending_sum(values, 0.0) + self.eps,
            SinkhornEps::StartSum => ascending_sum(values, self.eps),
            SinkhornEps::Clamp => {
                let sum = ascending_sum(values, 0.0);
                // Written so that a NaN sum stays NaN.
                if sum < self.eps { self.eps } else { sum }
            }
        }
    }

    fn divide(&self, value: f32, sum: f32) -> f32 {
        match self.epilogue.division {
            SinkhornDivision::Divide => value / sum,
            SinkhornDivision::Reciprocal => value * (1.0 / sum),
        }
    }
}

fn ascending_sum(values: impl Iterator<Item = f32>, start: f32) -> f32 {
    values.fold(start, |sum, value| sum + value)
}

/// exp, correctly rounded to fp32: a scan of all fp32 arguments found none whose fp64 value is too
/// close to a rounding boundary to decide it (the closest are in the tests).
#[allow(clippy::cast_possible_truncation)]
fn exp(value: f32) -> f32 {
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
