//! The tensors behind the rows of one layer and context, in a file of their own: `L2.indexer`, with the context behind
//! it where there are several.
//!
//! | name | what |
//! |---|---|
//! | `L2.indexer.hidden_states` | [T, d]: y, or u where it was recorded |
//! | `L2.indexer.positions` | [Q, 1]: who asks |
//! | `L2.indexer.logits.reference` | [Q, N], F64: the truth; −∞ where a key is out of sight |
//! | `L2.indexer.logits.mxfp4`, `L2.indexer.logits.mxfp4.exact` | what the variant got, and its recipe-exact value, F64 |
//! | `L2.indexer.top_k.mxfp4` | [Q, k], I64: the largest selection asked for; −1 where fewer keys are in sight |

use ndarray::Array2;

use super::{Asked, Candidate, IndexPlan, Layer, Plan};
use crate::{
    checkpoint::StoredType,
    suite::tensors::{NamedTensor, Stored, Tensors, Values},
};

/// The tensors of one layer and context.
pub struct LayerTensors<'a> {
    pub plan: &'a Plan<'a>,
    pub own: &'a IndexPlan,
    pub layer: &'a Layer,
    pub asked: &'a Asked,
    /// In the order of the plan.
    pub candidates: Vec<Kept>,
}

/// What is kept of a candidate to be written.
pub struct Kept {
    name: String,
    logits: Array2<f32>,
    exact: Array2<f64>,
    top_k: Array2<i64>,
}

impl Kept {
    /// Of a candidate; `k` is the largest number of keys asked for.
    pub fn of(candidate: &Candidate, asked: &Asked, k: usize) -> Self {
        let queries = asked.positions.len();
        let top_k = Array2::from_shape_fn((queries, k), |(query, slot)| {
            candidate.keys_at(k, query).get(slot).copied().unwrap_or(-1)
        });
        let mut exact = candidate.intervals.exact.clone();
        hide(&mut exact, asked);
        Self {
            name: candidate.recipe.name.clone(),
            logits: candidate.logits.clone(),
            exact,
            top_k,
        }
    }
}

fn hide(rows: &mut Array2<f64>, asked: &Asked) {
    for (mut row, &visible) in rows.rows_mut().into_iter().zip(asked.visible()) {
        row.slice_mut(ndarray::s![visible..])
            .fill(f64::NEG_INFINITY);
    }
}

impl Tensors for LayerTensors<'_> {
    fn place(&self) -> String {
        let place = format!("L{}.indexer", self.layer.number);
        match self.own.contexts.len() {
            1 => place,
            _ => format!("{place}.{}", self.asked.context),
        }
    }

    fn named(&self) -> Vec<NamedTensor<'_>> {
        let name = |what: &str| format!("L{}.indexer.{what}", self.layer.number);
        let queries = self.asked.positions.len();
        let mut tensors = vec![
            self.hidden_states(name("hidden_states")),
            NamedTensor::made(name("positions"), Stored::I64, [queries, 1], move || {
                let positions = self.asked.positions.iter().map(|&position| position as i64);
                let column = Array2::from_shape_vec((queries, 1), positions.collect());
                Ok(Values::I64(column.unwrap_or_default().into()))
            }),
            NamedTensor::made(
                name("logits.reference"),
                Stored::F64,
                self.asked.logits.dim().into(),
                || {
                    let mut logits = self.asked.logits.clone();
                    hide(&mut logits, self.asked);
                    Ok(Values::F64(logits.into()))
                },
            ),
        ];
        for kept in &self.candidates {
            let logits = name(&format!("logits.{}", kept.name));
            let top_k = name(&format!("top_k.{}", kept.name));
            tensors.push(NamedTensor::fp64(
                format!("{logits}.exact"),
                kept.exact.view(),
            ));
            tensors.push(NamedTensor::fp32(logits, Stored::F32, kept.logits.view()));
            tensors.push(NamedTensor::int64(top_k, kept.top_k.view()));
        }
        tensors
    }
}

impl LayerTensors<'_> {
    fn hidden_states(&self, name: String) -> NamedTensor<'_> {
        let (layer, tokens) = (self.layer.number, self.asked.context);
        let shape = [tokens, self.plan.checkpoint.model().hidden];
        let stored = match self.layer.source.hidden {
            StoredType::Bf16 => Stored::Bf16,
            _ => Stored::F32,
        };
        NamedTensor::made(name, stored, shape, move || {
            let rows = self.plan.activations.hidden_states(layer, 0..tokens)?;
            Ok(Values::F32(rows.into()))
        })
    }
}
