//! The reference against two oracles that are not our code: 50 decimal digits, and another project's reference.
//!
//! `data/golden.safetensors` is written by `golden.py`, `data/captured.safetensors` by `captured.py`; both
//! scripts stand in the folder above and say how to run them.

mod mix;
mod recorded;
mod streams;
