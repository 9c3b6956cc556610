//! ulpdrift: how far is this kernel from the truth, on your weights?
//!
//! Data flows one way: [`checkpoint`] → case → [`suite`] → [`measure`] → [`report`] → [`gate`].
//! Numerics ([`mod@format`], [`tensor_core`], [`recipe`], [`backend`], [`measure`]) know nothing of
//! files or the terminal; [`cli`] knows nothing of numerics.

pub mod activations;
pub mod backend;
pub mod checkpoint;
pub mod cli;
pub mod diff;
pub mod explain;
pub mod files;
pub mod format;
pub mod gate;
pub mod hub;
pub mod job;
pub mod measure;
pub mod random;
pub mod ranking;
pub mod recipe;
pub mod report;
pub mod suite;
pub mod tensor_core;
pub mod verdict;
