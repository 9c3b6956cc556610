//! What must hold of any input, a law per format that the program reads.
//!
//! `fuzz_targets/` holds them against what libFuzzer makes up, `tests/corpus.rs` against what was kept of that. A law
//! calls what the program calls, on bytes in memory, and panics where it is broken: that nothing else panics is only the
//! least of it.

mod checkpoint_index;
mod model_config;
mod recipe_toml;
mod refusal;
mod report_json;
mod safetensors_header;
mod thresholds;

pub use self::{
    checkpoint_index::checkpoint_index, model_config::model_config, recipe_toml::recipe_toml,
    report_json::report_json, safetensors_header::safetensors_header, thresholds::thresholds,
};

/// What the program made of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It took it.
    Accepted,
    /// It refused it in a sentence.
    Refused,
}

/// A law, which panics where it is broken.
pub type Law = fn(&[u8]) -> Outcome;

/// All of them, by the names of their targets.
#[allow(dead_code, reason = "a fuzz target is one of them, the replay is all")]
pub const LAWS: [(&str, Law); 6] = [
    ("safetensors_header", safetensors_header),
    ("checkpoint_index", checkpoint_index),
    ("model_config", model_config),
    ("recipe_toml", recipe_toml),
    ("thresholds", thresholds),
    ("report_json", report_json),
];

/// Whether a costly part of a law is to be looked at for this input: for one in so many, always the same ones.
fn sometimes(input: impl AsRef<[u8]>, one_in: u64) -> bool {
    let hash = input
        .as_ref()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    (hash >> 32).is_multiple_of(one_in)
}
