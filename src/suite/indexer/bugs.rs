//! Candidates with a known bug, and the diagnosis of what no rounding explains.

use ndarray::Array2;

use super::{
    Asked, Candidate, IndexPlan, Layer, Plan, Rows, SuiteError,
    diagnosis::{Cause, Observed, diagnose, steps},
    fault::{IndexFault, Size, trigger::Trigger},
    note_skip,
};
use crate::{
    measure::{fold::nan_max, value::Value},
    recipe::indexer::IndexRecipe,
    report::{Diagnosis, Found, Record, Skipped},
};

/// A layer and context whose candidates are looked at.
pub struct Scene<'a> {
    pub plan: &'a Plan<'a>,
    pub own: &'a IndexPlan,
    pub layer: &'a Layer,
    pub asked: &'a Asked,
}

/// What a recipe gives on these queries, rightly and wrongly.
pub struct Expected {
    right: Array2<f32>,
    computed: Vec<steps::Computed>,
}

/// What the rows of a candidate hold against it.
#[derive(Clone, Copy, Debug)]
pub struct Charge {
    certificates: u64,
    bound_ratio: f64,
}

impl Charge {
    /// Of the rows of one candidate.
    pub fn of(records: &[Record]) -> Self {
        let of_all = records
            .iter()
            .filter(|row| row.key.query_set.as_deref() == Some("all"));
        let (mut certificates, mut bound_ratio) = (0, 0.0);
        for row in of_all {
            certificates += row.measures.certificates.unwrap_or_default();
            let ratio = row.measures.bound_ratio.map_or(0.0, |ratio| ratio.0);
            bound_ratio = nan_max(bound_ratio, ratio);
        }
        Self {
            certificates,
            bound_ratio,
        }
    }

    /// Whether rounding may be all there is.
    pub fn is_rounding(self) -> bool {
        self.certificates == 0 && self.bound_ratio <= 1.0
    }
}

impl<'a> Scene<'a> {
    /// Every hypothesis that has to be computed.
    pub fn expected(&self, recipe: &IndexRecipe) -> Result<Expected, SuiteError> {
        let Self {
            plan, layer, asked, ..
        } = self;
        Ok(Expected {
            right: steps::right(plan, layer, asked, recipe)?,
            computed: steps::Computed::all(plan, layer, asked, recipe)?,
        })
    }

    /// What explains a candidate, at the model's own number of keys.
    pub fn diagnosis(
        &self,
        candidate: &Candidate,
        expected: &Expected,
        charge: Charge,
    ) -> Diagnosis {
        let k = self.own.model_k;
        let queries = 0..self.asked.positions.len();
        let observed = Observed {
            logits: Some(candidate.logits.view()),
            selected: queries.map(|query| candidate.keys_at(k, query)).collect(),
            k,
            visible: self.asked.visible(),
            right: expected.right.view(),
        };
        let finding = diagnose(&observed, &expected.computed);
        let is_explained = finding.is_explained && !charge.is_rounding();
        let sentence = match charge.is_rounding() {
            true => "nothing that rounding could not explain was found".to_owned(),
            false => finding.to_string(),
        };
        let drawn = candidate.fault.map(|fault| fault.to_string());
        Diagnosis {
            suite: "indexer".to_owned(),
            variant: candidate.recipe.name.clone(),
            fault: candidate.fault.map(|fault| fault.kind().name().to_owned()),
            drawn: drawn.filter(|drawn| !drawn.is_empty()),
            layer: self.layer.number,
            context: self.asked.context as u64,
            k: u32::try_from(k).unwrap_or(u32::MAX),
            verdict: None,
            certificates: charge.certificates,
            bound_ratio: Value(charge.bound_ratio),
            cause: is_explained.then(|| finding.best.cause.to_string()),
            is_named: candidate
                .fault
                .map(|fault| is_explained && finding.best.cause.is_that_of(fault)),
            is_recipe: is_explained && matches!(finding.best.cause, Cause::Recipe(_)),
            recall: Value(finding.best.recall),
            misfit: finding.best.misfit.map(Value),
            next: finding.next.cause.to_string(),
            next_recall: Value(finding.next.recall),
            next_misfit: finding.next.misfit.map(Value),
            sentence,
        }
    }

    /// Every known bug asked for: its rows and what explains it.
    pub fn bugs(&self, found: &mut Found) -> Result<(), SuiteError> {
        let mut triggers: Vec<Trigger> = Vec::new();
        for fault in &self.own.faults {
            let trigger = fault.trigger(self.own.model_k);
            if !triggers.contains(&trigger) {
                triggers.push(trigger);
            }
        }
        for trigger in triggers {
            let of_trigger = |fault: &&IndexFault| fault.trigger(self.own.model_k) == trigger;
            let faults: Vec<IndexFault> =
                self.own.faults.iter().filter(of_trigger).copied().collect();
            if trigger == Trigger::default() {
                self.bugs_on_input(&faults, found)?;
            } else {
                let (context, queries) = (self.asked.context, self.own.queries);
                let asked = Asked::new(self.plan, self.layer, context, queries, trigger)?;
                let scene = Scene {
                    asked: &asked,
                    ..*self
                };
                scene.bugs_on_input(&faults, found)?;
            }
        }
        Ok(())
    }

    fn bugs_on_input(&self, faults: &[IndexFault], found: &mut Found) -> Result<(), SuiteError> {
        let Self {
            plan,
            own,
            layer,
            asked,
        } = *self;
        let recipe = &own.charged;
        let claimed = match Candidate::run(plan, layer, asked, recipe, &[]) {
            Err(error) => return note_skip(&mut found.read, recipe, error),
            Ok(claimed) => claimed,
        };
        let against = Candidate::run(plan, layer, asked, &own.against, &[])?;
        let rows = Rows::new(plan, own, layer, asked);
        let expected = self.expected(recipe)?;
        let size = Size {
            keys: asked.keys(),
            heads: layer.model.heads,
            width: layer.model.width,
        };
        for &bug in faults {
            let fault = match bug.draw(plan.seed, layer.number, size) {
                Ok(fault) => fault,
                Err(why) => {
                    found.read.skip(Skipped {
                        what: format!("known bug {}", bug.name()),
                        why: why.to_owned(),
                    });
                    continue;
                }
            };
            let depths = own.depths();
            let candidate = Candidate::spoilt(plan, layer, asked, &claimed, fault, &depths)?;
            let records = rows.records(&candidate, &against)?;
            let charge = Charge::of(&records);
            let diagnosis = self.diagnosis(&candidate, &expected, charge);
            found.diagnoses.push(diagnosis);
            found.records.extend(records);
        }
        Ok(())
    }
}
