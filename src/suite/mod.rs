//! An experiment: which operations, on which cases, compared where.

pub mod vectors;
