//! The known bugs by name, those of the mixing kernel and those of the indexer.

use clap::{ValueEnum, builder::PossibleValue};

use crate::suite::{fault::Fault, indexer::fault::IndexFault};

/// A known bug of either kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Of the mixing kernel and what follows it.
    Mixing(Fault),
    /// Of the indexer.
    Indexer(IndexFault),
}

/// Every bug, the mixing kernel's first.
const ALL: [Bug; Fault::ALL.len() + IndexFault::ALL.len()] = {
    let mut all = [Bug::Mixing(Fault::TransposedComb); Fault::ALL.len() + IndexFault::ALL.len()];
    let mut at = 0;
    while at < all.len() {
        all[at] = match at < Fault::ALL.len() {
            true => Bug::Mixing(Fault::ALL[at]),
            false => Bug::Indexer(IndexFault::ALL[at - Fault::ALL.len()]),
        };
        at += 1;
    }
    all
};

impl Bug {
    /// What users call it, what goes wrong, and where it was.
    pub const fn words(self) -> [&'static str; 3] {
        match self {
            Self::Mixing(fault) => [fault.name(), fault.what(), fault.origin()],
            Self::Indexer(fault) => {
                let entry = fault.entry();
                [entry.name, entry.what, entry.origin]
            }
        }
    }
}

impl ValueEnum for Bug {
    fn value_variants<'a>() -> &'a [Self] {
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let [name, what, _] = self.words();
        Some(PossibleValue::new(name).help(what))
    }
}
