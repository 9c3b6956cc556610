//! The query side: hidden states, the latent, index queries and the weights of their heads.

use ndarray::{Array2, Array3, ArrayView2, Axis};
use rayon::prelude::*;

use super::{Rope, Weights};
use crate::{
    simd::Level,
    streams::{project, rms_norm},
};

/// What a layer asks of the keys from Q positions.
#[derive(Clone, Debug, PartialEq)]
pub struct Queries {
    /// Index queries after rope, `[Q, H, W]`.
    pub q: Array3<f64>,
    /// Weights of the heads, the scale W^-½·H^-½ in them, `[Q, H]`.
    pub weights: Array2<f64>,
    /// How many keys each query sees: those below this index.
    pub visible: Vec<usize>,
}

/// The hidden states u `[T, d]` after the layer's norm, from y `[T, d]` before it; y itself where the
/// weights have no such norm.
#[must_use]
pub fn hidden(y: ArrayView2<f32>, weights: &Weights) -> Array2<f64> {
    let y = y.mapv(f64::from);
    match weights.attn_norm {
        Some(norm) => rms_norm(y.view(), norm, weights.norm_eps),
        None => y,
    }
}

/// The query's latent `[T, R]` after its norm, from u `[T, d]`.
#[must_use]
pub fn latent(level: Level, u: ArrayView2<f64>, weights: &Weights) -> Array2<f64> {
    let latent = project(level, u, weights.wq_a);
    rms_norm(latent.view(), weights.q_norm, weights.norm_eps)
}

/// The queries of the tokens whose hidden states are u `[Q, d]` and whose latents are qr `[Q, R]`, one
/// position each.
///
/// # Panics
/// If the shapes do not belong together.
#[must_use]
pub fn queries(
    level: Level,
    u: ArrayView2<f64>,
    qr: ArrayView2<f64>,
    positions: &[usize],
    weights: &Weights,
    rope: &Rope,
) -> Queries {
    let size = weights.dimensions();
    assert_eq!(
        [u.nrows(), qr.nrows()],
        [positions.len(); 2],
        "one row of u and of qr per position"
    );
    let mut q = project(level, qr, weights.wq_b);
    q.axis_iter_mut(Axis(0))
        .into_par_iter()
        .zip(positions)
        .for_each(|(mut row, &position)| {
            // A row of a new matrix is contiguous.
            if let Some(row) = row.as_slice_mut() {
                for head in row.chunks_mut(size.width) {
                    rope.rotate(head, position);
                }
            }
        });
    let scale = 1.0 / ((size.width * size.heads) as f64).sqrt();
    let shape = (positions.len(), size.heads, size.width);
    Queries {
        q: q.into_shape_with_order(shape)
            .expect("wq_b has a row per head and value"),
        weights: project(level, u, weights.weights_proj) * scale,
        visible: positions.iter().map(|t| (t + 1) / size.ratio).collect(),
    }
}
