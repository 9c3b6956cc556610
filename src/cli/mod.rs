//! The command line: clap types, one file per command. Knows nothing of numerics.

pub mod inspect;
mod output;
pub mod synth;
