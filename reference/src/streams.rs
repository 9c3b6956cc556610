//! A chain of layers whose streams stay in f64 from the first to the last.
//!
//! With hc streams of d values per token (X `[T, hc·d]`, stream-major: index j·d + c), one site does
//! ```text
//! dot     = X·fnᵀ                                   project
//! y[t,c]  = Σ_j pre_j·X[t, j·d+c]                   collapse; pre by mix::split_sinkhorn
//! u[t,c]  = weight_c·y[t,c] / sqrt( mean_c y[t,c]² + eps )                        rms_norm
//! X'[t, k·d+c] = post_k·f[t,c] + Σ_j comb[j,k]·X[t, j·d+c]                        recombine
//! ```
//! with f the sublayer's output for u. The first index of comb is contracted: out stream k takes column
//! k, whose weights sum to 1. At the model's end the streams are collapsed by
//! ```text
//! pre_j   = sigmoid( m_j·scale + base_j ) + eps                                   head_gates
//! ```
//! whose m are `dot·r` of the head's own fn `[hc, hc·d]`: one scale for all, no post, no comb.
//!
//! Everything is dimensionless but X, y and f, which share their unit; u has that of the norm's weight. All
//! orders are fixed: the same bits at every vector level and thread count. Only f64 rounds. Source: the
//! published model definition.

use ndarray::{Array2, ArrayView2, Zip};

pub use crate::mix::collapse;
use crate::{
    dot,
    mix::{STRETCH, rms_factor, sigmoid},
    simd::{Level, Task, run},
    squares::squares64,
};

/// `x·wᵀ` of streams in f64: x `[T, K]`, w `[N, K]`, result `[T, N]`. Every level gives the same bits.
///
/// The order is that of [`crate::dot`]; a product is rounded before it is added. Error bound:
/// `(1 + min(K, 128) + ⌈K/128⌉)·2⁻⁵³·Σ|x·w|` to first order, as long as no product is below f64's
/// normal range. NaN and infinities propagate as IEEE has it, every NaN being the canonical one.
///
/// # Panics
/// If x and w differ in K.
#[must_use]
pub fn project(level: Level, x: ArrayView2<f64>, w: ArrayView2<f32>) -> Array2<f64> {
    dot::project(level, x, w)
}

/// The sublayer's input: `(y[t,c]·r_t)·weight_c` with `r_t = 1/sqrt(mean_c y[t,c]² + eps)`; y `[T, d]`,
/// weight `[d]`, result `[T, d]`.
///
/// # Panics
/// If weight is not as long as a row of y.
#[must_use]
pub fn rms_norm(y: ArrayView2<f64>, weight: &[f32], eps: f64) -> Array2<f64> {
    assert_eq!(
        y.ncols(),
        weight.len(),
        "the norm needs one weight per value"
    );
    let factors = rms_factor(squares64(Level::detect(), y).view(), y.ncols(), eps);
    let mut normed = y.to_owned();
    Zip::from(normed.rows_mut())
        .and(&factors)
        .par_for_each(|row, &factor| {
            for (value, &weight) in row.into_iter().zip(weight) {
                *value = *value * factor * f64::from(weight);
            }
        });
    normed
}

/// The streams after a sublayer: `X'[t, k·d+c] = post[t,k]·f[t,c] + Σ_j comb[t, hc·j+k]·x[t, j·d+c]`, j
/// ascending after the sublayer's term; x and result `[T, hc·d]`, f `[T, d]`, post `[T, hc]`, comb
/// `[T, hc·hc]`. x is what the site began with. Every level gives the same bits.
///
/// # Panics
/// If the shapes do not belong together.
#[must_use]
pub fn recombine(
    level: Level,
    x: ArrayView2<f64>,
    f: ArrayView2<f64>,
    post: ArrayView2<f64>,
    comb: ArrayView2<f64>,
) -> Array2<f64> {
    let (tokens, hc, d) = (x.nrows(), post.ncols(), f.ncols());
    assert_eq!(
        [x.dim(), f.dim(), post.dim(), comb.dim()],
        [
            (tokens, hc * d),
            (tokens, d),
            (tokens, hc),
            (tokens, hc * hc)
        ],
        "x, f, post and comb must be of the same tokens, streams and width"
    );
    let mut out = Array2::zeros((tokens, hc * d));
    let [x, f, post, comb] = [&x, &f, &post, &comb].map(|rows| rows.as_standard_layout());
    Zip::from(out.rows_mut())
        .and(x.rows())
        .and(f.rows())
        .and(post.rows())
        .and(comb.rows())
        .par_for_each(|mut out, x, f, post, comb| {
            // Rows of standard layout are contiguous.
            if let (Some(out), Some(x), Some(f), Some(post), Some(comb)) = (
                out.as_slice_mut(),
                x.as_slice(),
                f.as_slice(),
                post.as_slice(),
                comb.as_slice(),
            ) {
                let token = Recombine {
                    x,
                    f,
                    post,
                    comb,
                    out,
                };
                run(level, token);
            }
        });
    out
}

/// One token's new streams.
struct Recombine<'a> {
    x: &'a [f64],
    f: &'a [f64],
    post: &'a [f64],
    comb: &'a [f64],
    out: &'a mut [f64],
}

impl Task for Recombine<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let (hc, d) = (self.post.len(), self.f.len());
        for start in (0..d).step_by(STRETCH) {
            let width = STRETCH.min(d - start);
            let f = &self.f[start..][..width];
            for (k, &post) in self.post.iter().enumerate() {
                let out = &mut self.out[k * d + start..][..width];
                for (out, &f) in out.iter_mut().zip(f) {
                    *out = post * f;
                }
                for j in 0..hc {
                    let weight = self.comb[hc * j + k];
                    let x = &self.x[j * d + start..][..width];
                    for (out, &x) in out.iter_mut().zip(x) {
                        *out += weight * x;
                    }
                }
            }
        }
    }
}

/// The weights of the streams in the head's input: `sigmoid(m·scale + base_j) + eps`; mixes `[T, hc]`, base
/// `[hc]`, result `[T, hc]`.
///
/// # Panics
/// If base is not as long as a row of mixes.
#[must_use]
pub fn head_gates(mixes: ArrayView2<f64>, scale: f64, base: &[f64], eps: f64) -> Array2<f64> {
    assert_eq!(
        mixes.ncols(),
        base.len(),
        "the head needs one base per stream"
    );
    Array2::from_shape_fn(mixes.dim(), |(token, stream)| {
        sigmoid(mixes[[token, stream]] * scale + base[stream]) + eps
    })
}

#[cfg(test)]
mod tests;
