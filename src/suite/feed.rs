//! Cases read ahead: while one layer is computed, the weights and inputs of the next are read or
//! drawn. The inputs of three layers are in memory at most (read ahead, computed, written), however many
//! the model has.

use std::{sync::mpsc, thread};

use ndarray::{ArcArray2, Array2};

use super::{Plan, SuiteError, case::Case};
use crate::{checkpoint::Site, report::Skipped};

/// What became of one site.
pub enum Fed {
    /// Its weights and inputs.
    Case(Case),
    /// The inputs lack it.
    Skipped(Skipped),
}

/// Hands these sites of the plan to `take`, layer by layer.
///
/// # Errors
/// Weights or inputs that cannot be read; whatever `take` gives up for.
pub fn feed(
    plan: &Plan<'_>,
    places: &[(u32, Site)],
    mut take: impl FnMut(Fed) -> Result<(), SuiteError>,
) -> Result<(), SuiteError> {
    thread::scope(|scope| {
        // Without room in between, the reader starts on a layer when the one before is taken.
        let (sender, layers) = mpsc::sync_channel(0);
        spawn(scope, "reader", move || {
            let mut reader = Reader {
                plan,
                handed_out: Vec::new(),
            };
            for places in places.chunk_by(|a, b| a.0 == b.0) {
                let read = reader.read(places);
                let failed = read.is_err();
                if sender.send(read).is_err() || failed {
                    return;
                }
            }
        })?;
        for layer in layers {
            for fed in layer? {
                take(fed)?;
            }
        }
        Ok(())
    })
}

/// Starts a thread of `scope`.
///
/// # Errors
/// The system has no thread left.
pub fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<thread::ScopedJoinHandle<'scope, T>, SuiteError> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn_scoped(scope, work)
        .map_err(SuiteError::Thread)
}

/// Reads layers, into the memory of those that are done with.
struct Reader<'a> {
    plan: &'a Plan<'a>,
    /// x of the layers before; what nobody else holds any more is free to be used again.
    handed_out: Vec<ArcArray2<f32>>,
}

impl Reader<'_> {
    /// Some sites of one layer.
    fn read(&mut self, places: &[(u32, Site)]) -> Result<Vec<Fed>, SuiteError> {
        let plan = self.plan;
        let mut shared: Option<ArcArray2<f32>> = None;
        let mut fed = Vec::with_capacity(places.len());
        for &(layer, site) in places {
            let x = match shared.clone() {
                Some(x) => Some(x),
                None => self.inputs(layer, site)?,
            };
            if plan.activations.shared_by_sites() {
                shared.clone_from(&x);
            }
            fed.push(match x {
                Some(x) => Fed::Case(Case::with_inputs(plan, layer, site, x)?),
                None => Fed::Skipped(Skipped::site(plan, layer, site)),
            });
        }
        // Only drawn inputs are put into memory that was used before.
        self.handed_out.extend(shared);
        Ok(fed)
    }

    fn inputs(&mut self, layer: u32, site: Site) -> Result<Option<ArcArray2<f32>>, SuiteError> {
        let tokens = 0..self.plan.tokens_at(layer, site);
        let spare = self.spare();
        let x = self
            .plan
            .activations
            .tokens_into(layer, site, tokens, spare)?;
        Ok(x.map(Array2::into_shared))
    }

    /// The memory of a layer that is done with.
    fn spare(&mut self) -> Option<Array2<f32>> {
        let (mut spare, mut held) = (None, Vec::new());
        for x in self.handed_out.drain(..) {
            match x.try_into_owned_nocopy() {
                Ok(free) => spare = Some(free),
                Err(x) => held.push(x),
            }
        }
        self.handed_out = held;
        spare
    }
}
