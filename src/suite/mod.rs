//! An experiment: which operations, on which cases, compared where.
