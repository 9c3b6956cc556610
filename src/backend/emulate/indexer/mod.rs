//! The indexer under a recipe, from the hidden states to the logits.
//!
//! ```text
//! u = norm(y)          qr = norm(wq_a·u)       q = rope(wq_b·qr, t)       w = weights_proj·u
//! k = rope(norm(pool(wkv·u, wgate·u)), 4i)     S = kscale · Σ_h w_h · relu(q_h · k)
//! ```
//!
//! What a recipe decides is said in [`recipe::indexer`](crate::recipe::indexer). The rest binds every backend, bit for
//! bit; all of it is IEEE fp32, one rounding per operation unless it says "fma":
//!
//! | step | order and rounding | module |
//! |---|---|---|
//! | norm | s = Σ x² ascending, product rounded, then added; r = rsqrt(s/d + ε), correctly rounded; (x·r)·w | [`norm`] |
//! | FP8 linear | activations to e4m3 by blocks of 128 with ue8m0 scales; per block one chain of the arch's FP8 unit from 0; acc + part·(s_a·s_w), blocks ascending; to bf16 | [`linear`] |
//! | other linears | one fma chain over ascending k; to bf16 where the recipe's linears are FP8 | [`linear`] |
//! | pooling | softmax over eight rows per channel, exp correctly rounded, sums ascending | [`pool`](mod@pool) |
//! | rope | angle, cos and sin in f64, rounded once to fp32; a·c − b·s, each product rounded | [`rope`] |
//! | rotation | Hadamard stages of stride 1, 2, …, W/2, then · f32(W^-½) | [`hadamard`] |
//! | dot | one chain over ascending k from 0 on the recipe's unit; where scales change along k one chain per block, acc = fma(part, s_q·s_k, acc) | `dots` |
//! | heads | [`recipe::indexer::reduce`](crate::recipe::indexer::reduce) | `heads` |
//!
//! u is bf16; wq_a's norm gives bf16 where the linears are FP8, else fp32.
//!
//! A query's way is [`project`], [`IndexPath::queries`], [`IndexPath::query_operands`]; a key's [`Pool::push`],
//! [`IndexPath::keys`], [`IndexPath::key_operands`]. The middle ones give what the truth's q and k compare with:
//! behind rope, before the rotation and the quantiser. [`index_logits`] does the rest. Bits depend on neither threads
//! nor vector level.

mod dots;
pub mod hadamard;
mod heads;
pub mod linear;
mod logits;
pub mod norm;
mod path;
pub mod pool;
mod project;
mod query;
pub mod rope;

#[cfg(test)]
mod tests;

pub use self::{
    linear::{Fp8Weight, Linear},
    logits::index_logits,
    norm::hidden,
    path::IndexPath,
    pool::Pool,
    project::FmaLinear,
    query::{Latent, Projected, QueryWeights, project},
    rope::RopeHalf,
};

/// What no recipe changes but known bugs do: where rope turns, and which tokens a key is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Key i is turned as position `rope_stride`·i.
    pub rope_stride: usize,
    /// The channels that rope turns.
    pub rope_half: RopeHalf,
    /// Whether a key's window reaches back over the four tokens before its own.
    pub overlap: bool,
}

impl Default for Geometry {
    /// The model's.
    fn default() -> Self {
        Self {
            rope_stride: 4,
            rope_half: RopeHalf::Last,
            overlap: true,
        }
    }
}
