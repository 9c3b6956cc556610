//! From what was measured of a variant to its records.

use super::{
    operands::Operands,
    streams::{Found, block},
};
use crate::{
    measure::{deviation::sum_deviation, error::Worst, stages::Measured, value::Value},
    recipe::RecombineRecipe,
    report::{Key, Measures, Record},
    suite::{Plan, SuiteError, case::Case, record_key},
};

/// What the variants of one site share.
pub struct Rows<'a> {
    /// The run.
    pub plan: &'a Plan<'a>,
    /// The site.
    pub case: &'a Case,
    /// What is multiplied.
    pub operands: &'a Operands,
}

impl Rows<'_> {
    /// A record per stage: before storage, then as deployed.
    pub fn records(
        &self,
        recipe: &RecombineRecipe,
        found: &Found,
    ) -> Result<[Record; 2], SuiteError> {
        let mut streams = self.measures(found.streams);
        streams.bound_ratio = Some(Value(found.bound_ratio));
        let tokens = 0..self.case.x.nrows();
        let [_, comb] = self.operands.gates(recipe.arithmetic.gates, tokens);
        let as_made = self.operands.comb.mapv(f64::from);
        let sums = sum_deviation(&comb.view(), &as_made.view(), self.case.hc)?;
        streams.row_sum_dev = Some(sums.row_sum_dev);
        streams.col_sum_dev = Some(sums.col_sum_dev);
        streams.row_sum_dev_ref = Some(sums.row_sum_dev_ref);
        streams.col_sum_dev_ref = Some(sums.col_sum_dev_ref);
        let record = |stage: &str, measures| Record {
            key: Key {
                suite: "recombine".to_owned(),
                stage: Some(stage.to_owned()),
                ..record_key(self.plan, self.case, recipe.name, None)
            },
            measures,
        };
        Ok([
            record("streams", streams),
            record("streams_bf16", self.measures(found.streams_bf16)),
        ])
    }

    /// With the condition numbers of the worst elements.
    fn measures(&self, mut measured: Measured) -> Measures {
        let errors = &mut measured.errors;
        for worst in [&mut errors.worst, &mut errors.worst_rel]
            .into_iter()
            .flatten()
        {
            worst.condition = self.condition(worst).map(Value);
        }
        measured.into()
    }

    /// Σ|products| / |Σ products| of one element, with the gates as they were made.
    fn condition(&self, worst: &Worst) -> Option<f64> {
        let index = usize::try_from(worst.index).ok()?;
        let (width, hc) = (self.operands.f.ncols(), self.case.hc);
        let (token, element) = (index / (hc * width), index % (hc * width));
        let (k, column) = (element / width, element % width);
        let tokens = token..token + 1;
        let of_token = |values| block(values, &tokens);
        let [x, f, post, comb] = [
            of_token(self.case.x.view()),
            of_token(self.operands.f.view()),
            of_token(self.operands.post.view()),
            of_token(self.operands.comb.view()),
        ];
        let product = |weight: f32, value: f32| f64::from(weight) * f64::from(value);
        let spread = product(*post.get(k)?, *f.get(column)?);
        let (mut sum, mut magnitudes) = (spread, spread.abs());
        for j in 0..hc {
            let product = product(*comb.get(j * hc + k)?, *x.get(j * width + column)?);
            sum += product;
            magnitudes += product.abs();
        }
        Some(magnitudes / sum.abs())
    }
}
