//! The command line: clap types, one file per command. Knows nothing of numerics.

pub mod mma;
