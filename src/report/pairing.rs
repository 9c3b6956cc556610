//! Which row of one report is the same experiment as a row of another.
//!
//! Two rows are a pair if their keys are alike, fields apart that are left out because they are known to differ.

use std::collections::HashMap;

use super::{Key, Record};

/// The rows of a report by what has to be alike.
#[derive(Debug)]
pub struct Rows<'a> {
    without: Vec<&'static str>,
    by_key: HashMap<Key, &'a Record>,
}

impl<'a> Rows<'a> {
    /// Takes the rows of one report.
    ///
    /// # Errors
    /// If nothing but a field of `without` tells two of them apart: one of the two.
    pub fn new(records: &'a [Record], without: &[&'static str]) -> Result<Self, &'a Record> {
        let mut by_key = HashMap::with_capacity(records.len());
        for record in records {
            if by_key.insert(record.key.without(without), record).is_some() {
                return Err(record);
            }
        }
        Ok(Self {
            without: without.to_vec(),
            by_key,
        })
    }

    /// The row that is the same experiment.
    #[must_use]
    pub fn partner(&self, record: &Record) -> Option<&'a Record> {
        let key = record.key.without(&self.without);
        self.by_key.get(&key).copied()
    }
}
