//! The query path's linears: from u, and by way of the latent qr, to q and the head weights.

use ndarray::{Array2, ArrayView2};
use ulpdrift_reference::simd::Level;

use super::{
    linear::{Linear, LinearUnit},
    norm::rms_norm,
};
use crate::{backend::BackendError, recipe::indexer::IndexRecipe, tensor_core::Arch};

/// The weights of the query path of one layer.
#[derive(Clone, Copy, Debug)]
pub struct QueryWeights<'a> {
    /// `wq_a` [R, d].
    pub wq_a: Linear<'a>,
    /// `q_norm` `[R]`.
    pub q_norm: &'a [f32],
    /// ε inside the root of the norms.
    pub norm_eps: f64,
    /// `indexer.wq_b` [H·W, R].
    pub wq_b: Linear<'a>,
    /// `indexer.weights_proj` [H, d].
    pub weights_proj: Linear<'a>,
}

/// Where the latent comes from.
#[derive(Clone, Copy, Debug)]
pub enum Latent<'a> {
    /// The norm of `wq_a·u`.
    Projected,
    /// Recorded qr [Q, R], taken as it is.
    Recorded(ArrayView2<'a, f32>),
}

/// What the linears give. It depends on the recipe's linears and on nothing else of it, so that recipes can share it.
#[derive(Clone, Debug, PartialEq)]
pub struct Projected {
    /// q before rope, the heads of a query one after the other [Q·H, W].
    pub q: Array2<f32>,
    /// Head weights [Q, H] before any constant.
    pub weights: Array2<f32>,
}

/// Runs the linears of `recipe` on u [Q, d].
///
/// # Errors
/// The arch lacks an FP8 unit that the recipe's linears need.
///
/// # Panics
/// Shapes contradict each other.
pub fn project(
    level: Level,
    arch: Arch,
    recipe: &IndexRecipe,
    weights: &QueryWeights<'_>,
    u: ArrayView2<'_, f32>,
    latent: Latent<'_>,
) -> Result<Projected, BackendError> {
    let unit = LinearUnit {
        level,
        arch,
        recipe,
    };
    let head_weights = unit.run(u, &weights.weights_proj)?;
    let q = match latent {
        Latent::Recorded(latent) => unit.run(latent, &weights.wq_b)?,
        Latent::Projected => {
            let latent = unit.run(u, &weights.wq_a)?;
            let (weight, eps) = (weights.q_norm, weights.norm_eps);
            let latent = rms_norm(latent, weight, eps, unit.output());
            unit.run(latent.view(), &weights.wq_b)?
        }
    };
    let heads = head_weights.ncols().max(1);
    let (rows, width) = (q.nrows() * heads, q.ncols() / heads);
    Ok(Projected {
        q: q.into_shape_with_order((rows, width))
            .expect("wq_b has one row per channel of every head"),
        weights: head_weights,
    })
}
