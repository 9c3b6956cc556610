//! The budget of a chain: chains in fp64, each with one source of error and nothing else.
//!
//! What the mixing kernel's sources are off by at a site is taken on the streams of the fp64 chain, stored as the
//! candidate's are, and added to the mixes (gates, layer input, streams) of the chain that has this source:
//! ```text
//! m = mixes(X) + (state after − state before)             X that chain's own streams
//! ```
//! Storage of streams and layer inputs is rounded on the chain's own values; stored as fp32, what the kernels make in
//! fp32 is not rounded once more, so that only the stand-in for the sublayer is. The candidate with all sources runs
//! beside them, and what they come to is held against it: that they add up is measured, not so by construction.

use ndarray::{Array2, ArrayView2, Zip};
use rayon::prelude::*;
use ulpdrift_reference::mix::split_sinkhorn;

use super::{offsets::Offsets, source::Source};
use crate::{
    format::{Format, Rounding},
    measure::contributions::Products,
    recipe::{MixRecipe, splits::Launch},
    suite::{
        Plan, SuiteError,
        chain::{
            Around, Order,
            link::{Link, Start},
            truth::Truth,
        },
    },
};

/// The chains of one variant.
pub struct Strands<'a> {
    plan: &'a Plan<'a>,
    around: &'a Around,
    truth: Truth,
    strands: Vec<(Source, Truth)>,
}

impl<'a> Strands<'a> {
    /// The chains before their first site.
    pub fn new(plan: &'a Plan<'a>, around: &'a Around, start: &Start, order: Order) -> Self {
        let truth = Truth::new(plan.level, start, order);
        let mut strands = vec![(Source::LayerIo, truth.clone())];
        if around.residual != Format::F32 {
            let mut stored = truth.clone();
            stored.x = round(truth.x.view(), around.residual);
            strands.push((Source::Residual, stored));
        }
        Self {
            plan,
            around,
            truth,
            strands,
        }
    }

    /// Goes through one site.
    ///
    /// # Errors
    /// The backend cannot run the recipe.
    pub fn pass(&mut self, link: &Link, recipe: &MixRecipe) -> Result<(), SuiteError> {
        let (plan, around) = (self.plan, self.around);
        let launch = Launch {
            tokens: self.truth.x.nrows(),
            sms: plan.sms,
        };
        let offsets = Offsets::of(plan, around, &self.truth, link, recipe, launch)?;
        let arithmetic = [
            Source::Epilogue,
            Source::Sinkhorn,
            Source::Collapse,
            Source::Recombine,
        ];
        let by_mixes = offsets.mixes.iter().map(|(source, _)| *source);
        for source in by_mixes.chain(arithmetic) {
            if self.strands.iter().all(|(known, _)| *known != source) {
                // It was not off by anything before.
                self.strands.push((source, self.truth.clone()));
            }
        }
        self.strands
            .par_iter_mut()
            .for_each(|(source, strand)| advance(*source, strand, link, around, &offsets));
        self.truth.pass(link);
        Ok(())
    }

    /// The sources, in their order, and what their chains are off by; the candidate's streams are `got`.
    pub fn budget(&self, got: ArrayView2<'_, f32>) -> (Vec<Source>, Products) {
        let mut strands: Vec<&(Source, Truth)> = self.strands.iter().collect();
        strands.sort_by_key(|(source, _)| *source);
        let rows: Vec<Products> = (0..self.truth.x.nrows())
            .into_par_iter()
            .map(|token| {
                let mut products = Products::new(strands.len());
                let truth = self.truth.x.row(token).to_vec();
                let off = |row: &[f64]| -> Vec<f64> {
                    row.iter().zip(&truth).map(|(a, b)| a - b).collect()
                };
                let errors: Vec<Vec<f64>> = strands
                    .iter()
                    .map(|(_, strand)| off(&strand.x.row(token).to_vec()))
                    .collect();
                let errors: Vec<&[f64]> = errors.iter().map(Vec::as_slice).collect();
                products.add(&truth, &errors);
                let got: Vec<f64> = got.row(token).iter().copied().map(f64::from).collect();
                products.add_measured(off(&got).iter().map(|error| error * error).sum());
                products
            })
            .collect();
        let mut whole = Products::new(strands.len());
        for row in &rows {
            whole.append(row);
        }
        let sources = strands.iter().map(|(source, _)| *source).collect();
        (sources, whole)
    }
}

/// Takes the chain that has one source through one site.
fn advance(source: Source, strand: &mut Truth, link: &Link, around: &Around, offsets: &Offsets) {
    let mut mixes = strand.mixes(&link.site);
    if let Some((_, off)) = offsets.mixes.iter().find(|(of, _)| *of == source) {
        mixes += off;
    }
    let mut split = split_sinkhorn(mixes.view(), &link.site.split_params());
    match source {
        Source::Epilogue => {
            split.pre += &offsets.pre;
            split.post += &offsets.post;
        }
        Source::Sinkhorn => split.comb += &offsets.comb,
        _ => {}
    }
    let pre = strand.gates(&split);
    let mut y = strand.collapse(pre.view());
    if source == Source::Collapse {
        y += &offsets.y;
    }
    let f = match source {
        Source::LayerIo => link.rounded_sublayer(strand.level(), y.view(), around.layer_io),
        _ => link.sublayer(strand.level(), y.view()),
    };
    let mut next = strand.recombine(f.view(), &split);
    match source {
        Source::Recombine => next += &offsets.next,
        Source::Residual => next = round(next.view(), around.residual),
        _ => {}
    }
    strand.x = next;
    strand.carried = split.pre;
}

/// Values as a format holds them.
fn round(values: ArrayView2<'_, f64>, format: Format) -> Array2<f64> {
    let mut rounded = values.to_owned();
    Zip::from(&mut rounded).par_for_each(|value| {
        *value = f64::from(format.round_f64(*value, Rounding::NearestEven));
    });
    rounded
}
