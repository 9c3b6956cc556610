//! The end of the model: the collapse of the last streams with gates of its own (`hc_head`).
//!
//! ```text
//! pre = sigmoid( (fn·x)·r·scale + base ) + eps        fn [hc, hc·d]
//! y   = Σ_j pre_j·X_j                                 rounded as layer-io says
//! ```
//! That is the `pre` of a site whose other outputs are zero, and it is run as one. V4.1 has no such tensors: its
//! last `pre` collapses.

use ndarray::{Array2, s};
use ulpdrift_reference::mix::split_sinkhorn;

use super::{
    Around,
    candidate::{Walker, rounded},
    finite::Watch,
    link::Link,
    rows::{self, Compared},
    tensors::End,
    truth::Truth,
};
use crate::{
    checkpoint::{CheckpointError, Digests, HcWeights, HeadWeights},
    report::{Key, NonFinite, Record, Skipped},
    suite::{Plan, SuiteError, tensors::Sink},
};

/// What the head adds.
#[derive(Default)]
pub struct Head {
    /// A record per variant.
    pub records: Vec<Record>,
    /// Variants that ended here.
    pub non_finite: Vec<NonFinite>,
    /// Why there is none.
    pub skipped: Option<Skipped>,
}

/// The gates of the last collapse.
pub enum Gates {
    /// Those that its own weights make.
    Own(HeadWeights),
    /// The last `pre`.
    Carried,
    /// There are none.
    Absent(Skipped),
}

impl Gates {
    /// Reads them: before anything is computed, so that a tensor that cannot be read is found out first.
    ///
    /// # Errors
    /// Weights that cannot be read. Weights that are not there are no error.
    pub fn load(plan: &Plan<'_>) -> Result<Self, SuiteError> {
        match plan.checkpoint.head(plan.nonfinite) {
            Ok(Some(weights)) => Ok(Self::Own(weights)),
            Ok(None) => Ok(Self::Carried),
            Err(lacking @ CheckpointError::Lacking { .. }) => Ok(Self::Absent(Skipped {
                what: "stage head of suite chain".to_owned(),
                why: lacking.to_string(),
            })),
            Err(error) => Err(error.into()),
        }
    }

    /// Notes what was read.
    pub fn add_digests(&self, digests: &mut Digests) {
        if let Self::Own(weights) = self {
            weights.add_digests(digests);
        }
    }
}

/// Collapses the streams that every chain has ended with.
///
/// # Errors
/// A recipe that the backend cannot run.
pub fn pass(
    plan: &Plan<'_>,
    around: &Around,
    gates: &Gates,
    sink: &mut dyn Sink,
    truth: &Truth,
    walkers: &[Walker<'_>],
) -> Result<Head, SuiteError> {
    let mut head = Head::default();
    let link = match gates {
        Gates::Own(weights) => {
            let hc = plan.checkpoint.model().hc;
            Some(Link::of_head(plan, padded(weights, hc)))
        }
        Gates::Carried => None,
        Gates::Absent(skip) => {
            head.skipped = Some(skip.clone());
            return Ok(head);
        }
    };
    let reference = match &link {
        Some(link) => {
            let mixes = truth.mixes(&link.site);
            let split = split_sinkhorn(mixes.view(), &link.site.split_params());
            truth.collapse(split.pre.view())
        }
        None => truth.collapse(truth.carried.view()),
    };
    let mut other: Option<Array2<f32>> = None;
    let mut end = End {
        reference: &reference,
        variants: Vec::new(),
        stored: around.layer_io,
    };
    for (number, walker) in walkers.iter().enumerate() {
        let Some(y) = walker.head(link.as_ref())? else {
            continue;
        };
        let y = rounded(y.view(), around.layer_io);
        if let Some(link) = &link {
            let mut watch = Watch::new(walker.variant, link, walker.x.view());
            watch.see("head", y.view());
            head.non_finite.extend(watch.found());
        }
        if number == 0 {
            other = Some(y.clone());
        }
        if !rows::is_asked_for(plan, walker) {
            continue;
        }
        let key = Key {
            depth: plan.layers.last().map(|layer| layer + 1),
            ..rows::key(plan, around, walker)
        };
        let compared = Compared {
            stage: "head",
            got: y.view(),
            reference: reference.view(),
            other: other.as_ref().map(|other| other.view()),
            format: around.layer_io,
        };
        head.records.extend(rows::measure(plan, &key, &compared)?);
        end.variants.push((walker.variant, y));
    }
    sink.take(&end).map_err(SuiteError::Dump)?;
    Ok(head)
}

/// The head as a site: its rows are those of `pre`, the rest is zero.
fn padded(head: &HeadWeights, hc: usize) -> HcWeights {
    let outputs = (2 + hc) * hc;
    let mut function = Array2::zeros((outputs, head.function.ncols()));
    function.slice_mut(s![..hc, ..]).assign(&head.function);
    let mut base = head.base.clone();
    base.resize(outputs, 0.0);
    HcWeights {
        function,
        scale: [head.scale, 0.0, 0.0],
        base,
        dtype: head.dtype,
    }
}
