//! From a candidate's outputs to records: what is measured at each stage.

use std::ops::Range;

use ndarray::ArrayView2;
use ulpdrift_reference::certify::condition;

use super::{
    candidate::{Candidate, STAGES, Stage},
    layer_input::LayerInput,
    projected::{Outputs, Projected},
};
use crate::{
    backend::matrix_rule,
    format::Format,
    measure::{
        bound::{self, BoundOutput, ChainRule, Chains},
        deviation::sum_deviation,
        error::{self, ErrorMeasures},
        stages::Measured,
        value::Value,
    },
    recipe::{MixRecipe, NormPlacement, Order, Projection, SquareSum, Storage, splits::Launch},
    report::{Key, Measures, Record},
    suite::{
        Plan, SuiteError,
        case::{Case, Exact, Truth},
        fault::Variant,
        record_key,
    },
    tensor_core::Rule,
};

/// Half an ulp of fp32, relative.
const HALF_ULP_F32: f64 = 1.0 / (1u64 << 24) as f64;
/// Half the spacing of fp32's subnormals, 2^-150.
const HALF_LAST_PLACE_F32: f64 = f64::from_bits((1023 - 150) << 52);

/// What the candidates of one site share.
pub struct Rows<'a> {
    /// The run.
    pub plan: &'a Plan<'a>,
    /// Weights and inputs.
    pub case: &'a Case,
    /// What was computed of them.
    pub projected: &'a Projected,
}

/// A whole tensor as a slice; every tensor here is allocated in standard layout.
pub fn slice<T>(values: ArrayView2<'_, T>) -> &[T] {
    values.to_slice().unwrap_or_default()
}

impl Rows<'_> {
    /// A record per stage.
    pub fn records(
        &self,
        variant: Variant<'_>,
        outputs: &Outputs,
        layer_input: &LayerInput,
    ) -> Result<Vec<Record>, SuiteError> {
        let recipe = variant.recipe;
        let candidate = &outputs.candidate;
        STAGES
            .iter()
            .map(|&stage| {
                let mut measures = match stage {
                    Stage::Y => layer_input.y.into(),
                    Stage::YBf16 => layer_input.y_bf16.into(),
                    _ => self.stage(stage, recipe, outputs)?,
                };
                let bounds = outputs.model.as_ref().map(|model| &model.bounds);
                match (stage, bounds) {
                    (Stage::Dot, Some(bounds)) => {
                        add_bound(&mut measures, candidate.dot.view(), &bounds.dot)?;
                    }
                    (Stage::Mixes, Some(bounds)) => {
                        add_bound(&mut measures, candidate.mixes.view(), &bounds.mixes)?;
                    }
                    (Stage::Comb, _) => self.add_deviation(&mut measures, candidate)?,
                    _ => {}
                }
                let key = Key {
                    suite: "mix".to_owned(),
                    stage: Some(stage.name().to_owned()),
                    fault: variant.fault.map(|fault| fault.to_string()),
                    ..record_key(self.plan, self.case, &recipe.name, candidate.splits)
                };
                Ok(Record { key, measures })
            })
            .collect()
    }

    /// What fp32 has at `mixes`: what the verdict `exact` is measured by.
    pub fn yardstick(&self, fp32: &MixRecipe) -> Result<Record, SuiteError> {
        let yardstick = &self.projected.yardstick;
        let key = Key {
            suite: "mix".to_owned(),
            stage: Some(Stage::Mixes.name().to_owned()),
            ..record_key(self.plan, self.case, &fp32.name, yardstick.splits)
        };
        let stage = error::Stage {
            got: slice(yardstick.mixes.view()),
            reference: slice(self.projected.truth.stages.mixes.view()),
            exact: None,
            other: None,
            tokens: self.case.x.nrows(),
            format: Stage::Mixes.format(fp32),
        };
        Ok(Record {
            key,
            measures: stage.measure_at(self.plan.level)?.into(),
        })
    }

    /// A stage before the layer input.
    fn stage(
        &self,
        stage: Stage,
        recipe: &MixRecipe,
        outputs: &Outputs,
    ) -> Result<Measures, SuiteError> {
        let norm = recipe.projection.norm;
        let compared = error::Stage {
            got: stage.got(&outputs.candidate).map_or(&[], slice),
            reference: stage
                .fp64(&self.projected.truth.stages, norm)
                .map_or(&[], slice),
            exact: outputs
                .model
                .as_ref()
                .and_then(|model| stage.fp64(&model.exact, norm))
                .map(slice),
            other: self.comparable(stage, norm),
            tokens: self.case.x.nrows(),
            format: stage.format(recipe),
        };
        let Measured {
            mut errors,
            against,
        } = compared.measure_at(self.plan.level)?;
        self.add_condition(stage, &mut errors);
        Ok(Measured { errors, against }.into())
    }

    /// What the `--against` variant has where this one, which normalises as `norm` says, has `stage`.
    /// At `dot` one that normalises first holds what another only has after the RMS factor.
    fn comparable(&self, stage: Stage, norm: NormPlacement) -> Option<&[f32]> {
        let stage = match (stage, norm, self.plan.against.projection.norm) {
            (Stage::Dot, NormPlacement::Before, NormPlacement::After) => Stage::Mixes,
            (Stage::Dot, NormPlacement::After, NormPlacement::Before) => return None,
            _ => stage,
        };
        stage.got(&self.projected.against).map(slice)
    }

    /// The condition number of the worst element, where the stage is a sum of products of inputs.
    fn add_condition(&self, stage: Stage, errors: &mut ErrorMeasures) {
        if !matches!(stage, Stage::Dot | Stage::Mixes) {
            return;
        }
        let outputs = self.case.weights.function.nrows();
        for worst in [&mut errors.worst, &mut errors.worst_rel]
            .into_iter()
            .flatten()
        {
            let Ok(index) = usize::try_from(worst.index) else {
                continue;
            };
            let x = self.case.x.row(index / outputs);
            let weight = self.case.weights.function.row(index % outputs);
            if let (Some(x), Some(weight)) = (x.to_slice(), weight.to_slice()) {
                worst.condition = Some(Value(condition(x, weight)));
            }
        }
    }

    fn add_deviation(
        &self,
        measures: &mut Measures,
        candidate: &Candidate,
    ) -> Result<(), SuiteError> {
        let truth = &self.projected.truth.stages.comb.view();
        let sums = sum_deviation(&candidate.comb.view(), truth, self.case.hc)?;
        measures.row_sum_dev = Some(sums.row_sum_dev);
        measures.col_sum_dev = Some(sums.col_sum_dev);
        measures.row_sum_dev_ref = Some(sums.row_sum_dev_ref);
        measures.col_sum_dev_ref = Some(sums.col_sum_dev_ref);
        Ok(())
    }
}

/// The prefix bounds of `dot` and `mixes`.
pub fn bounds(
    plan: &Plan<'_>,
    case: &Case,
    launch: Launch,
    truth: &Truth,
    recipe: &MixRecipe,
    exact: &Exact<'_>,
) -> Result<Bounds, SuiteError> {
    let projection = &recipe.projection;
    let k = case.x.ncols();
    let ranges = projection.order.ranges(k, launch);
    let order = match projection.order {
        Order::Chains { partials, .. } => bound::Order::splits(&ranges, partials.format()),
        Order::ThreadStrided { threads } => bound::Order::strided(k, threads),
    };
    let terms: Vec<bound::Operands<'_>> = projection
        .products()
        .iter()
        .map(|product| bound::Operands {
            x: exact.operands.x[product.x].view(),
            weight: exact.operands.weights[product.weight].view(),
        })
        .collect();
    let rule = matrix_rule(plan.backend.info().arch, recipe)?;
    let chains = Chains {
        rule: rule.map_or(bound::Rule::Fma32, |rule| {
            bound::Rule::TensorCore(chain_rule(&rule))
        }),
        terms: &terms,
        order: &order,
    };
    let accumulated = chains.evaluate(plan.level)?;
    let dot = match recipe.output {
        Storage::F32 => accumulated,
        Storage::Bf16 => accumulated.rounded_to(recipe.output.format()),
    };
    let mixes = match projection.norm {
        NormPlacement::Before => dot.clone(),
        NormPlacement::After => {
            let factors = truth.rms.to_vec();
            let error = rms_relative_error(projection, k, &ranges, &factors);
            // The product is an fp32 one, whatever it is stored in afterwards.
            let product = dot.clone().times(&factors, error, Format::F32)?;
            match recipe.scaled {
                Storage::F32 => product,
                Storage::Bf16 => product.rounded_to(recipe.scaled.format()),
            }
        }
    };
    Ok(Bounds { dot, mixes })
}

/// How far a recipe's unit may be from the recipe-exact value.
pub struct Bounds {
    /// Of the projection's stored output.
    pub dot: BoundOutput,
    /// Of the mixes.
    pub mixes: BoundOutput,
}

impl Bounds {
    /// Appends the tokens that follow.
    pub fn append(&mut self, later: &Self) {
        self.dot.append(&later.dot);
        self.mixes.append(&later.mixes);
    }
}

fn chain_rule(rule: &Rule) -> ChainRule {
    ChainRule {
        block_len: rule.block_len,
        fraction_bits: rule.fraction_bits,
        exponent_floor: rule.exponent_floor,
        output_bits: rule.output.fraction_bits(),
        product_fraction_bits: rule.operand.product_fraction_bits(),
        operand_min_exponent: rule.operand.format().min_exponent(),
    }
}

fn add_bound(
    measures: &mut Measures,
    got: ArrayView2<'_, f32>,
    bound: &BoundOutput,
) -> Result<(), SuiteError> {
    let ratio = bound::bound_ratio(
        slice(got),
        slice(bound.exact.view()),
        slice(bound.bound.view()),
    )?;
    measures.bound_ratio = Some(Value(ratio));
    if let Some(drift) = bound::drift(slice(got), bound)? {
        measures.drift = Some(Value(drift.drift));
        measures.drift_z = Some(Value(drift.drift_z));
    }
    Ok(())
}

/// Bound on the relative error of the fp32 RMS factor: all squares are positive, so n roundings on
/// the way to the sum cost at most γₙ; mean, 1/K and ε one half ulp each, and the sum with ε another;
/// the root halves what it gets and adds its own rounding, twice where it is two operations.
///
/// Squares among the subnormals lose up to half of fp32's last place each instead, the mean of them as
/// much, and so do mean and ε: that is relative to the smallest argument of the root, 1/r².
fn rms_relative_error(
    projection: &Projection,
    k: usize,
    ranges: &[Range<usize>],
    factors: &[f64],
) -> f64 {
    let longest = ranges.iter().map(ExactSizeIterator::len).max().unwrap_or(k);
    let roundings = match (projection.square_sum, projection.order) {
        (SquareSum::ThreadStrided, Order::ThreadStrided { threads }) => {
            k.div_ceil(threads) + threads.ilog2() as usize
        }
        (SquareSum::Interleave4, _) => k.div_ceil(4) + 3,
        (SquareSum::Lanes4, _) => longest.div_ceil(8) + 4 + ranges.len(),
        _ => longest + ranges.len(),
    };
    let least = factors
        .iter()
        .map(|factor| 1.0 / (factor * factor))
        .filter(|argument| *argument > 0.0)
        .fold(f64::INFINITY, f64::min);
    let underflow = 3.0 * HALF_LAST_PLACE_F32 / least;
    let sum = (roundings + 3) as f64 * HALF_ULP_F32 + underflow;
    let argument = sum / (1.0 - sum).max(0.0);
    let factor = 0.5 * argument / (1.0 - argument).max(0.0) + 2.0 * HALF_ULP_F32;
    // Where underflow leaves nothing of the argument, any finite factor is possible.
    factor.min(f64::from(f32::MAX))
}
