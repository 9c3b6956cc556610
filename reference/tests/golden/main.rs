//! The reference against two oracles that are not our code: 50 decimal digits, and another project's reference.
//!
//! The files of `data` are written by `golden.py`, `captured.py`, `indexer.py` and `captured_indexer.py`, which
//! stand in the folder above and say how to run them.

mod indexer;
mod mix;
mod recorded;
mod streams;
