//! All layers one after the other: does the error of the mixing kernel grow with depth?
//!
//! The streams of a batch start as copies of one row and go through every layer's attn and ffn site:
//! ```text
//! mixes, pre, post, comb = the mixing kernel on X       the candidate's recipe, on the candidate's own streams
//! y  = Σ_j pre_j·X_j                                    layer-io: rounded or not
//! u  = RMSNorm(y)·weight,   f = sublayer(u)             layer-io: rounded or not
//! X' = post·f + combᵀ·X                                 residual: as the streams are stored
//! ```
//! and through the head (`hc_head`: a collapse with gates of its own) at the end. V4.1 collapses with the `pre`
//! of the site before, the first site with stream 0 alone, and its head with the last `pre`.
//!
//! Every candidate walks beside a chain of its own in fp64 (`truth.rs`), which stores nothing. A candidate drifts
//! on its own streams: what a record shows at depth n is everything that happened up to there.
//!
//! | stage | shape | what |
//! |---|---|---|
//! | `y`, `y_bf16` | [T, d] | the layer input, before rounding and rounded to bf16 |
//! | `streams` | [T, hc·d] | X' as stored |
//! | `head` | [T, d] | what the final norm gets |
//!
//! The stand-in for a sublayer (`sublayer.rs`) is not under test: its arithmetic is fp64, rounded once to fp32.
//! Memory is bounded by one site's weights and the streams of every candidate.

pub(super) mod candidate;
mod finite;
pub mod forecast;
mod head;
pub(super) mod link;
pub mod rows;
pub(super) mod sublayer;
mod tensors;
#[cfg(test)]
mod tests;
pub(super) mod truth;

use std::fmt;

pub use self::sublayer::Sublayer;
use self::{
    candidate::{Passed, Walker},
    head::{Gates, Head},
    link::Link,
    rows::Rows,
    sublayer::StandIn,
    truth::Truth,
};
use super::{
    Plan, SuiteError,
    fault::Variant,
    ledger::Ledger,
    repeat::{Bits, Repeats, repeated},
    tensors::Sink,
};
use crate::{
    checkpoint::{Family, Site},
    format::Format,
    recipe::catalogue,
    report::{Found, Record, Skipped},
};

/// What lies around the mixing kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Around {
    /// What the streams are stored in.
    pub residual: Format,
    /// What y, u and f are rounded to.
    pub layer_io: Format,
    /// What stands in for attention and experts.
    pub sublayer: Sublayer,
    /// Where a candidate's recipe runs; elsewhere `fp32` does.
    pub sites_on: SitesOn,
}

/// The sites where a candidate's recipe runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SitesOn {
    /// Every site.
    All,
    /// One of the two of every layer.
    Of(Site),
    /// Both sites of one layer.
    Layer(u32),
}

impl SitesOn {
    fn includes(self, layer: u32, site: Site) -> bool {
        match self {
            Self::All => true,
            Self::Of(one) => one == site,
            Self::Layer(one) => one == layer,
        }
    }
}

impl fmt::Display for SitesOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.pad("all"),
            Self::Of(site) => site.fmt(f),
            Self::Layer(layer) => layer.fmt(f),
        }
    }
}

/// The order in which `pre` and collapse follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// A site collapses with its own `pre`.
    Own,
    /// With that of the site before: V4.1.
    Delayed,
}

impl Order {
    pub(super) fn of(family: Family) -> Self {
        match family {
            Family::V41Flash => Self::Delayed,
            _ => Self::Own,
        }
    }
}

/// The name of the one case, whose variants share the chain in fp64.
#[must_use]
pub fn place(seed: u64) -> String {
    format!("seed {seed}")
}

/// Runs the suite over the layers of the plan, which follow each other. The rows of its case are in the order of site,
/// stage and variant; the head's are at the end.
///
/// # Errors
/// Weights or inputs that cannot be read, a recipe that the backend cannot run, a ledger that stops it.
pub fn run(
    plan: &Plan<'_>,
    around: &Around,
    sink: &mut dyn Sink,
    ledger: &mut dyn Ledger,
) -> Result<(), SuiteError> {
    if !ledger.wants(&place(plan.seed)) {
        return Ok(());
    }
    let start = link::start(plan)?;
    let order = Order::of(plan.checkpoint.model().family);
    let fp32 = catalogue::fp32();
    let mut truth = Truth::new(plan.level, &start, order);
    let set_out = || -> Vec<Walker<'_>> {
        variants(plan)
            .map(|variant| Walker::new(plan, around, variant, &fp32, &start, order))
            .collect()
    };
    let mut walkers = set_out();
    let mut again: Vec<Vec<Walker<'_>>> = (1..plan.repeat).map(|_| set_out()).collect();
    sink.take(&tensors::Begin(&start))
        .map_err(SuiteError::Dump)?;
    let mut found = Found::default();
    start.add_digests(plan, &mut found.read.digests);
    for product in plan.products {
        found.read.skip(Skipped {
            what: format!("{} in suite chain", product.name()),
            why: "it is a product alone, and a chain needs the whole kernel".to_owned(),
        });
    }
    let gates = Gates::load(plan)?;
    let total = plan.layers.len() * Site::ALL.len();
    let places = plan
        .layers
        .iter()
        .flat_map(|&layer| Site::ALL.map(|site| (layer, site)));
    for (done, (layer, site)) in places.enumerate() {
        let stand_in = StandIn::load(plan, around.sublayer, (layer, site), start.x.nrows())?;
        let link = Link::load(plan, layer, site, stand_in)?;
        link.note(plan, &mut found.read);
        let reference = truth.pass(&link);
        let passed = pass(&mut walkers, &link)?;
        found
            .non_finite
            .extend(passed.iter().filter_map(|passed| passed.non_finite.clone()));
        let rows = Rows {
            plan,
            around,
            link: &link,
        };
        let mut records = rows.records(&truth, &reference, &walkers, &passed)?;
        let tensors = tensors::Behind {
            plan,
            link: &link,
            truth: &truth,
            reference: &reference,
            walkers: &walkers,
            passed: &passed,
        };
        if !again.is_empty() {
            repeat(&mut again, &rows, &tensors, &mut records)?;
        }
        found.records.extend(records);
        sink.take(&tensors).map_err(SuiteError::Dump)?;
        ledger.step(done + 1, total, &link.place())?;
    }
    gates.add_digests(&mut found.read.digests);
    let mut head = Head::default();
    let mut teams = std::iter::once(&walkers).chain(&again);
    repeated(
        plan.repeat,
        sink,
        &mut head,
        |head| &mut head.records,
        &mut |sink, head| {
            let walkers = teams.next().map_or(&[][..], Vec::as_slice);
            *head = head::pass(plan, around, &gates, sink, &truth, walkers)?;
            Ok(())
        },
    )?;
    found.records.extend(head.records);
    found.non_finite.extend(head.non_finite);
    found.read.skipped.extend(head.skipped);
    ledger.keep(&place(plan.seed), found)
}

/// All of them through one site.
fn pass(walkers: &mut [Walker<'_>], link: &Link) -> Result<Vec<Passed>, SuiteError> {
    walkers.iter_mut().map(|walker| walker.pass(link)).collect()
}

/// Lets those who walk the same way again through a site, and adds what they differ in to the rows of the first.
fn repeat(
    again: &mut [Vec<Walker<'_>>],
    rows: &Rows<'_>,
    first: &tensors::Behind<'_>,
    records: &mut [Record],
) -> Result<(), SuiteError> {
    let mut repeats = Repeats::new(records, Bits::of(first)?);
    for walkers in again {
        let passed = pass(walkers, rows.link)?;
        let (truth, reference) = (first.truth, first.reference);
        let records = rows.records(truth, reference, walkers, &passed)?;
        let tensors = tensors::Behind {
            walkers,
            passed: &passed,
            ..*first
        };
        repeats.see(&records, &Bits::of(&tensors)?);
    }
    repeats.add_to(records);
    Ok(())
}

/// The variants that walk: the one that all are compared with first.
fn variants<'a>(plan: &Plan<'a>) -> impl Iterator<Item = Variant<'a>> {
    let against = Variant::from(plan.against);
    let others = plan.variants().filter(move |variant| *variant != against);
    std::iter::once(against).chain(others)
}
