//! `config.json`.

use std::path::Path;

use ulpdrift::checkpoint::formats::{Config, RopeConfig};
use ulpdrift_reference::indexer::{Rope, Yarn};

use super::{Outcome, refusal::refused};

/// Dimensions that turn where a configuration does not say, and up to how many are looked at.
const DIMS: usize = 64;
const MOST_DIMS: usize = 256;

/// Whatever arithmetic depends on is in its range, and so is what follows from it.
pub fn model_config(text: &[u8]) -> Outcome {
    let path = Path::new("config.json");
    let config = match Config::parse(path, text) {
        Ok(config) => config,
        Err(error) => return refused(error),
    };
    let again = Config::parse(path, text).expect("it is the same text");
    assert_eq!(format!("{config:?}"), format!("{again:?}"));

    for (size, largest) in [
        (config.hidden_size, 1 << 20),
        (config.hc_mult, 1 << 10),
        (config.layers, 1 << 16),
        (config.sinkhorn_iters.map(|iters| iters as usize), 1000),
        (config.index_topk, 1 << 30),
        (config.index_heads, 1 << 20),
        (config.index_head_dim, 1 << 20),
        (config.q_lora_rank, 1 << 24),
        (config.weight_block.map(|[rows, _]| rows), 1 << 20),
        (config.weight_block.map(|[_, columns]| columns), 1 << 20),
    ] {
        assert!(size.is_none_or(|size| (1..=largest).contains(&size)));
    }
    assert!(config.mtp_layers <= 1 << 10);
    for eps in [config.hc_eps, config.norm_eps].into_iter().flatten() {
        assert!((0.0..1.0).contains(&eps));
    }
    assert!(
        config
            .swiglu_limit
            .is_none_or(|limit| (0.0..=1e6).contains(&limit))
    );
    assert!(config.indexer_layers.is_sorted_by(|a, b| a < b));
    if let Some(rope) = config.rope {
        turns(rope);
    }
    Outcome::Accepted
}

/// Every pair of a head turns by a number.
fn turns(rope: RopeConfig) {
    let dims = rope.dims.unwrap_or(DIMS);
    assert!((2..=1 << 20).contains(&dims) && dims.is_multiple_of(2));
    let theta = rope.theta.unwrap_or(160_000.0);
    assert!(theta > 1.0 && theta <= 1e15);
    let yarn = rope.yarn.map(|yarn| Yarn {
        factor: yarn.factor,
        original_positions: yarn.original_positions,
        beta_fast: yarn.beta_fast,
        beta_slow: yarn.beta_slow,
    });
    let turned = Rope::new(theta, dims.min(MOST_DIMS), yarn);
    for &frequency in turned.frequencies() {
        assert!(
            frequency.is_finite() && frequency >= 0.0,
            "a pair turns by {frequency}: {rope:?}"
        );
    }
}
