//! The built binary, as a shell sees it: exit codes, one sentence per error, and files that are
//! whole or not there.

mod attacks;
mod bugs;
mod chain;
mod checkpoints;
mod codes;
mod depth;
mod device;
mod diff;
mod disk;
mod doctor;
mod explain;
mod formats;
mod gate_table;
mod gates;
mod interrupted;
mod kernels;
mod killed;
mod libraries;
mod mma;
mod recombine;
mod refusals;
mod reproducible;
mod scene;
mod stubs;
mod text;
