//! The hyper-connection mixing after the projection, in fp64.
//!
//! With hc streams of d values per token (x `[T, hc·d]`, stream-major: index j·d + c), and
//! `dot = x·fnᵀ` of `[T, (2 + hc)·hc]`:
//! ```text
//! r_t     = 1 / sqrt( mean_k x[t,k]² + norm_eps )                  the mean over all hc·d values
//! m       = dot · r                                                packed [pre hc | post hc | comb hc·hc]
//! pre_j   = sigmoid( m_j·scale₀ + base_j ) + eps
//! post_j  = 2·sigmoid( m_{hc+j}·scale₁ + base_{hc+j} )             no eps
//! comb    = sinkhorn( m_{2hc+hc·j+k}·scale₂ + base_{2hc+hc·j+k} )  j the row
//! y[t,c]  = Σ_j pre_j·x[t, j·d+c]                                  x as stored, not normalised
//! ```
//! Sinkhorn: softmax over each row, then + eps on every element; a column step; then iters − 1 times
//! a row step and a column step; a step divides by (sum + eps). It ends on columns, so columns sum to
//! 1 within about eps and rows only approximately. The first index of comb is the one that is later
//! contracted with the streams.
//!
//! Everything is dimensionless but x and y, which share their unit. Accuracy: each function rounds
//! in f64 only, and the whole chain stays within about 1e-14 of exact arithmetic (tested against 50
//! decimal digits); `exp` is libm's, so the bits are the same on every machine. Source: the published
//! model definition.

use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis, Zip};

use crate::simd::{Level, Task, run};

/// Constants of the split: those of the model's configuration and those of one site.
#[derive(Clone, Debug, PartialEq)]
pub struct SplitParams {
    /// Residual streams (`hc_mult`).
    pub hc: usize,
    /// Factors of the logits: pre, post, comb (`hc_*_scale`).
    pub scale: [f64; 3],
    /// Offsets of the logits, packed as the mixes are: (2 + hc)·hc values (`hc_*_base`).
    pub base: Vec<f64>,
    /// Column steps (`hc_sinkhorn_iters`); 0 acts as 1, as in the official loop.
    pub iters: u32,
    /// Added to the gates and in the Sinkhorn divisions (`hc_eps`), as its decimal value.
    pub eps: f64,
}

impl SplitParams {
    /// Mixes per token: (2 + hc)·hc.
    #[must_use]
    pub fn width(&self) -> usize {
        (2 + self.hc) * self.hc
    }
}

/// What the mixes of each token are split into.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// Weights of the streams in the layer's input, `[T, hc]`.
    pub pre: Array2<f64>,
    /// Weights of the layer's output in the streams, `[T, hc]`.
    pub post: Array2<f64>,
    /// Stream-to-stream weights, `[T, hc·hc]`, row-major.
    pub comb: Array2<f64>,
}

/// `1/sqrt(mean(x²) + norm_eps)` of each row, from its sum of squares ([`crate::squares`]) `[T]` over
/// `k` values. k = 0 gives NaN, the mean of nothing.
#[must_use]
pub fn rms_factor(squares: ArrayView1<f64>, k: usize, norm_eps: f64) -> Array1<f64> {
    squares.mapv(|squares| 1.0 / (squares / k as f64 + norm_eps).sqrt())
}

/// The mixes: each row of `dot` `[T, N]` times its rms factor `[T]`.
///
/// # Panics
/// If `dot` and `r` differ in T.
#[must_use]
pub fn mixes(dot: ArrayView2<f64>, r: ArrayView1<f64>) -> Array2<f64> {
    assert_eq!(
        dot.nrows(),
        r.len(),
        "dot and r must have the same number of tokens"
    );
    &dot * &r.insert_axis(Axis(1))
}

/// Splits mixes `[T, (2 + hc)·hc]` into gates and the Sinkhorn-normalised comb.
///
/// # Panics
/// If the mixes' or the base's width is not (2 + hc)·hc.
#[must_use]
pub fn split_sinkhorn(mixes: ArrayView2<f64>, params: &SplitParams) -> Split {
    let (tokens, hc) = (mixes.nrows(), params.hc);
    assert_eq!(
        mixes.ncols(),
        params.width(),
        "mixes must be (2 + hc)*hc wide"
    );
    assert_eq!(
        params.base.len(),
        params.width(),
        "base must be (2 + hc)*hc long"
    );
    let mut split = Split {
        pre: Array2::zeros((tokens, hc)),
        post: Array2::zeros((tokens, hc)),
        comb: Array2::zeros((tokens, hc * hc)),
    };
    let base = ArrayView1::from(&params.base);
    Zip::from(mixes.rows())
        .and(split.pre.rows_mut())
        .and(split.post.rows_mut())
        .and(split.comb.rows_mut())
        .par_for_each(|mixes, mut pre, mut post, mut comb| {
            let logit = |index: usize, part: usize| mixes[index] * params.scale[part] + base[index];
            for j in 0..hc {
                pre[j] = sigmoid(logit(j, 0)) + params.eps;
                post[j] = 2.0 * sigmoid(logit(hc + j, 1));
            }
            for (index, value) in comb.iter_mut().enumerate() {
                *value = logit(2 * hc + index, 2);
            }
            if let Some(comb) = comb.as_slice_mut() {
                sinkhorn(comb, params);
            }
        });
    split
}

/// `1/(1 + exp(−z))`, by the form whose exponential cannot overflow.
pub(crate) fn sigmoid(z: f64) -> f64 {
    if z < 0.0 {
        let e = libm::exp(z);
        e / (1.0 + e)
    } else {
        1.0 / (1.0 + libm::exp(-z))
    }
}

/// Replaces the logits of one token, row-major, by their Sinkhorn-normalised weights.
fn sinkhorn(comb: &mut [f64], params: &SplitParams) {
    for row in comb.chunks_mut(params.hc.max(1)) {
        softmax(row);
        for value in row {
            *value += params.eps;
        }
    }
    column_step(comb, params);
    for _ in 1..params.iters {
        row_step(comb, params);
        column_step(comb, params);
    }
}

/// Softmax with the row's maximum taken out first: the largest exponential is 1, so the sum is at least 1.
fn softmax(row: &mut [f64]) {
    let most = row.iter().fold(
        f64::NEG_INFINITY,
        |most, &value| if value > most { value } else { most },
    );
    let mut sum = 0.0;
    for value in row.iter_mut() {
        *value = libm::exp(*value - most);
        sum += *value;
    }
    for value in row {
        *value /= sum;
    }
}

fn row_step(comb: &mut [f64], params: &SplitParams) {
    for row in comb.chunks_mut(params.hc.max(1)) {
        let sum: f64 = row.iter().sum();
        for value in row {
            *value /= sum + params.eps;
        }
    }
}

fn column_step(comb: &mut [f64], params: &SplitParams) {
    for column in 0..params.hc {
        let sum: f64 = comb.iter().skip(column).step_by(params.hc).sum();
        for value in comb.iter_mut().skip(column).step_by(params.hc) {
            *value /= sum + params.eps;
        }
    }
}

/// The layer's input before rounding: `y[t,c] = Σ_j pre[t,j]·x[t, j·d+c]`, j ascending from +0; `[T, d]`,
/// from streams in f32 or f64. Every level gives the same bits.
///
/// # Panics
/// If pre and x differ in T, or x is not a whole number of streams wide.
#[must_use]
pub fn collapse<X: Copy + Into<f64> + Sync>(
    level: Level,
    pre: ArrayView2<f64>,
    x: ArrayView2<X>,
) -> Array2<f64> {
    assert_eq!(
        pre.nrows(),
        x.nrows(),
        "pre and x must have the same number of tokens"
    );
    let d = x.ncols() / pre.ncols().max(1);
    assert_eq!(
        d * pre.ncols(),
        x.ncols(),
        "x must hold one stream of equal width per gate"
    );
    let mut y = Array2::zeros((x.nrows(), d));
    let (pre, x) = (pre.as_standard_layout(), x.as_standard_layout());
    Zip::from(y.rows_mut())
        .and(pre.rows())
        .and(x.rows())
        .par_for_each(|mut y, pre, x| {
            // Rows of standard layout are contiguous.
            if let (Some(y), Some(pre), Some(x)) = (y.as_slice_mut(), pre.as_slice(), x.as_slice())
            {
                run(level, Collapse { pre, x, y });
            }
        });
    y
}

/// Elements of a stream at a time: few enough to stay in cache from stream to stream.
pub(crate) const STRETCH: usize = 1024;

/// One token's streams added up.
struct Collapse<'a, X> {
    pre: &'a [f64],
    x: &'a [X],
    y: &'a mut [f64],
}

impl<X: Copy + Into<f64>> Task for Collapse<'_, X> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let width = self.y.len();
        for (stretch, y) in self.y.chunks_mut(STRETCH).enumerate() {
            for (stream, &weight) in self.pre.iter().enumerate() {
                let x = &self.x[stream * width + stretch * STRETCH..][..y.len()];
                for (y, &value) in y.iter_mut().zip(x) {
                    let value: f64 = value.into();
                    *y += weight * value;
                }
            }
        }
    }
}

/// How far comb is from doubly stochastic: the largest `|sum − 1|` over all tokens; NaN if any sum is NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SumDeviation {
    /// Over the rows of every comb.
    pub rows: f64,
    /// Over the columns of every comb.
    pub columns: f64,
}

/// Sums of each comb's rows: comb `[T, hc·hc]`, result `[T, hc]`, added left to right.
///
/// # Panics
/// If comb is not hc·hc wide.
#[must_use]
pub fn row_sums(comb: ArrayView2<f64>, hc: usize) -> Array2<f64> {
    sums(comb, hc, |row, step| hc * row + step)
}

/// Sums of each comb's columns: comb `[T, hc·hc]`, result `[T, hc]`, added top to bottom.
///
/// # Panics
/// If comb is not hc·hc wide.
#[must_use]
pub fn column_sums(comb: ArrayView2<f64>, hc: usize) -> Array2<f64> {
    sums(comb, hc, |column, step| hc * step + column)
}

fn sums(comb: ArrayView2<f64>, hc: usize, place: impl Fn(usize, usize) -> usize) -> Array2<f64> {
    assert_eq!(comb.ncols(), hc * hc, "comb must be hc*hc wide");
    Array2::from_shape_fn((comb.nrows(), hc), |(token, line)| {
        (0..hc).map(|step| comb[[token, place(line, step)]]).sum()
    })
}

/// The deviation of comb `[T, hc·hc]` from doubly stochastic.
///
/// # Panics
/// If comb is not hc·hc wide.
#[must_use]
pub fn sum_deviation(comb: ArrayView2<f64>, hc: usize) -> SumDeviation {
    let worst = |sums: Array2<f64>| {
        sums.iter()
            .map(|sum| (sum - 1.0).abs())
            .fold(0.0, |most: f64, gap| {
                if most.is_nan() || gap <= most {
                    most
                } else {
                    gap
                }
            })
    };
    SumDeviation {
        rows: worst(row_sums(comb, hc)),
        columns: worst(column_sums(comb, hc)),
    }
}

#[cfg(test)]
mod tests;
