//! The indexer in fp64: from hidden states to the logits that decide which keys attention sees.
//!
//! With y `[T, d]` a layer's input before its norm, H index heads of W values and windows of
//! ratio tokens:
//! ```text
//! u     = attn_norm_c·y[t,c] / sqrt( mean_c y[t,c]² + eps )                          hidden
//! qr    = rms_norm( wq_a·u, q_norm )                                                  latent
//! q     = rope( wq_b·qr, t )                 [H, W], the last pairs rotated            queries
//! w     = weights_proj·u · W^-½·H^-½         [H]                                      queries
//! kv, s = wkv·u, wgate·u                     [2W] each; s gets ape[t mod ratio] added
//! k_i   = rope( rms_norm( Σ_r kv_r·softmax_r(s_r), k_norm ), ratio·i )                KeyStream
//! S[t,i] = Σ_h w[t,h]·max(0, q[t,h]·k_i)                                              Scorer
//! ```
//! Window i pools, per channel, 2·ratio rows: channels 0..W of the tokens ratio·(i−1)..ratio·i, then
//! channels W..2W of the tokens ratio·i..ratio·(i+1). Window 0 has no tokens before it and pools the second
//! half alone. Key i can be seen from position t on which its last token has been: i < ⌊(t+1)/ratio⌋.
//!
//! Everything after a norm is dimensionless. Stored weights are taken exactly; nothing is quantised and
//! nothing rotated but by rope, because an orthogonal transform of both q and k leaves their product as it
//! is. Only f64 rounds, in orders that depend on neither the vector level nor the thread count nor on
//! how the context is cut into blocks. Source: the published model definition.

mod certify;
mod keys;
mod logits;
mod query;
mod rope;
mod weights;

pub use self::{
    certify::certify,
    keys::KeyStream,
    logits::{Scorer, Scores, Signs},
    query::{Queries, hidden, latent, queries},
    rope::{Rope, Yarn},
    weights::{Dimensions, Weights},
};

#[cfg(test)]
mod tests;
