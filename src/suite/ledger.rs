//! Who a suite reports to, case by case.
//!
//! A suite asks which of its cases are wanted, says how far it is, and hands over what a case found as soon as the
//! case is finished: what is handed over is safe, whatever becomes of the rest.

use super::SuiteError;
use crate::report::Found;

/// Keeps what is finished.
pub trait Ledger {
    /// Whether a case is to be run: it is of this part of the run, and not finished before.
    fn wants(&self, place: &str) -> bool;

    /// So many of the steps in all are done; the last was at `place`.
    ///
    /// # Errors
    /// [`SuiteError::Interrupted`] where the suite is to stop here.
    fn step(&mut self, done: usize, total: usize, place: &str) -> Result<(), SuiteError>;

    /// A case is finished, its tensors written.
    ///
    /// # Errors
    /// It cannot be kept.
    fn keep(&mut self, place: &str, found: Found) -> Result<(), SuiteError>;
}

/// All that a suite finds, for who wants every case and asks no more.
///
/// # Errors
/// Those of the suite.
pub fn whole(
    suite: impl FnOnce(&mut dyn Ledger) -> Result<(), SuiteError>,
) -> Result<Found, SuiteError> {
    #[derive(Default)]
    struct Whole(Found);

    impl Ledger for Whole {
        fn wants(&self, _: &str) -> bool {
            true
        }

        fn step(&mut self, _: usize, _: usize, _: &str) -> Result<(), SuiteError> {
            Ok(())
        }

        fn keep(&mut self, _: &str, found: Found) -> Result<(), SuiteError> {
            self.0.extend(found);
            Ok(())
        }
    }

    let mut whole = Whole::default();
    suite(&mut whole)?;
    Ok(whole.0)
}
