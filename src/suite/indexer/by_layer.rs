//! A suite that is a case per layer with an indexer.

use super::IndexPlan;
use crate::{
    report::{Found, Skipped},
    suite::{Plan, SuiteError, ledger::Ledger},
};

/// Such a suite.
pub struct ByLayer<'a> {
    /// What its rows have for a suite.
    pub suite: &'static str,
    /// The name of a layer's case.
    pub place: fn(u32) -> String,
    /// What it runs on.
    pub plan: &'a Plan<'a>,
    /// The layers.
    pub own: &'a IndexPlan,
    /// What is wrong where no layer lacks anything, and none has a row.
    pub without_a_row: &'static str,
}

impl ByLayer<'_> {
    /// Runs `case` on the layers whose cases the ledger wants.
    ///
    /// # Errors
    /// Those of `case` and of the ledger; [`SuiteError::NothingToRun`] where no layer of the plan had a row.
    pub fn run(
        &self,
        ledger: &mut dyn Ledger,
        mut case: impl FnMut(u32, &mut Found) -> Result<(), SuiteError>,
    ) -> Result<(), SuiteError> {
        let all = &self.own.layers;
        let wanted: Vec<u32> = all
            .iter()
            .copied()
            .filter(|&layer| ledger.wants(&(self.place)(layer)))
            .collect();
        let (mut has_run, mut skipped) = (false, None);
        for (done, &layer) in wanted.iter().enumerate() {
            let place = (self.place)(layer);
            let mut found = Found::default();
            match lacking(self.plan, self.own, layer, &place)? {
                Some(lacking) => found.read.skip(lacking),
                None => case(layer, &mut found)?,
            }
            has_run |= found.records.iter().any(|row| row.key.fault.is_none());
            skipped = skipped.or_else(|| found.read.skipped.first().cloned());
            ledger.keep(&place, found)?;
            ledger.step(done + 1, wanted.len(), &place)?;
        }
        // What another part or another process has run had rows, or ended there.
        if has_run || wanted.len() < all.len() {
            return Ok(());
        }
        let why = skipped.map_or_else(
            || self.without_a_row.to_owned(),
            |skip| format!("{}: {}", skip.what, skip.why),
        );
        Err(SuiteError::NothingToRun(format!(
            "suite {} has nothing to run: {why}",
            self.suite
        )))
    }
}

/// Why a layer cannot be run on these inputs, if it cannot.
pub fn lacking(
    plan: &Plan<'_>,
    own: &IndexPlan,
    number: u32,
    place: &str,
) -> Result<Option<Skipped>, SuiteError> {
    let skip = |why| {
        Some(Skipped {
            what: place.to_owned(),
            why,
        })
    };
    let Some(source) = plan.activations.index_source(number)? else {
        return Ok(skip(format!("{} has no hidden states for it", plan.inputs)));
    };
    let least = own.contexts.iter().min().copied().unwrap_or_default();
    Ok(match source.tokens < least {
        true => skip(format!(
            "{} has {} tokens of it, fewer than the context of {least}",
            plan.inputs, source.tokens
        )),
        false => None,
    })
}
