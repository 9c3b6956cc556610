//! Synthetic weights with the published statistics, tensor by tensor and without a disk.
//!
//! | tensor | values |
//! |---|---|
//! | `hc_*_fn`, `hc_head_fn` | normals of σ = 0.033, 1 % of them 6.4 times as wide: rms 0.039, heavy-tailed; a whole new tensor until its largest magnitude lies in 0.6–1.0 |
//! | `hc_*_scale` | pre U(0.08, 0.12); post U(0.1, 0.2); comb √(4² − 2²)/σ · U(0.95, 1.05) |
//! | `hc_*_base` | pre and post 0.5·N; comb 2·N |
//! | `hc_head_scale`, `hc_head_base` | U(0.08, 0.12); 0.5·N |
//! | norm weights | 1 + 0.1·N |
//! | `embed` | 0.02·N, 1024 rows |
//! | projections | N(0, 1/fan-in) |
//! | `ape` | 0.1·N |
//!
//! σ = 0.039·√K is the standard deviation of a mix for x of rms 1, so that comb logits have one
//! of about 4 whatever K is: a quarter of the variance is the base's and the rest the token's. With
//! that, most combs are near-permutations whose rows sum to 0.93–1.07. Public
//! figures: rms and largest magnitude of `hc_fn`, row sums of combs (one source each); scale, base,
//! indexer, norm and embedding weights are not published, and the choice here is ours: norms that are
//! positive and not all alike, as training leaves them, and embeddings as wide as they are commonly begun.
//!
//! FP8 weights are rounded to nearest even in blocks of 128×128 (V4.1: 32×32) with the scale 2^⌈log₂(amax/448)⌉.
//!
//! A shared expert is one gigabyte in all layers of Flash: it is drawn where it is asked for, and written to disk
//! with the tiny model only. For an input of rms 1 its output has one of about 0.6.

mod blueprint;
mod generate;

pub use blueprint::SyntheticModel;
pub(super) use blueprint::TensorSpec;
pub(super) use generate::Generator;
