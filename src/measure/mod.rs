//! Error and bound measures of got against truth: pure numerics, no files and no terminal.
//!
//! * [`error`]: every error measure of one stage's output against the fp64 reference.
//! * [`stages`]: the same for stages whose rows are made while they are measured.
//! * [`against`]: the distance of one variant to another, where truth plays no part.
//! * [`contributions`]: what several errors come to together, and how much of it each is.
//! * [`deviation`]: how far a Sinkhorn matrix is from doubly stochastic.
//! * [`growth`]: how a measure grows with depth, and what it comes to at another depth.
//! * [`bound`]: the a priori bound of a unit's own arithmetic, and the drift expected of it.
//! * [`interval`]: the recipe-exact logits of the indexer and the intervals that a recipe cannot leave.
//! * [`selection`]: which keys a candidate selects, against those of the truth.
//! * [`certificate`]: what no rounding can do to a selection.
//! * [`value`]: a measured number that survives JSON even when it is not finite.
//!
//! What may live here: functions from slices and arrays to numbers. What may not: anything that
//! knows of checkpoints, recipes, records or limits.
//!
//! Every sum runs over [`LANES`] interleaved partial sums joined by one fixed tree, so a measure
//! has the same bits on every machine, at every vector width and any thread count. Large stages are
//! summed a block of tokens at a time, blocks in order.

pub mod against;
pub mod bound;
pub mod certificate;
mod class;
pub mod contributions;
pub mod deviation;
pub mod error;
pub(crate) mod fold;
pub mod growth;
pub mod interval;
mod norm;
pub mod passes;
mod reduced;
mod rows;
pub mod sample;
pub(crate) mod select;
pub mod selection;
pub mod stages;
pub mod ulp;
pub mod value;

/// How many interleaved partial sums a reduction keeps. Part of the results' bits.
pub const LANES: usize = 8;
