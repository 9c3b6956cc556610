//! A run, case by case: which cases there are, which part of the run has which, what is finished of it, and the
//! report that all of it makes.
//!
//! ```text
//! head (what was asked for, every case by name)
//!   │ split        the share of part i of n
//!   ▼
//! cases ──► finished ──► journal        a line per case: what a killed run has finished
//!              │  └────► part           a report that carries what its cases found
//!              ▼            ▼
//!           assemble ◄── join           the one report, whichever way its cases came
//! ```
//! A report is a function of the head and of what every case found, in the order of the head: a run that was
//! interrupted and taken up again, or split and joined, ends in the bytes of one that was not. What may not live here:
//! printing, flags, numerics.

pub mod assemble;
pub mod dump;
pub mod identity;
pub mod join;
pub mod journal;
pub mod split;
#[cfg(test)]
mod tests;
