//! From a candidate to its records.

use std::ops::Range;

use ndarray::{ArrayView2, Axis, s};

use super::{
    Asked, Candidate, IndexPlan, Layer, Plan, QuerySet, SuiteError, index_key, plain::Plain,
};
use crate::{
    format::Format,
    measure::{
        error::{MeasureError, Stage},
        fold::nan_max,
        interval::Interval,
        select::quantile,
        selection::{Chosen, Selection, Spread, Summary, Truth},
        value::Value,
    },
    ranking::Ranking,
    report::{Key, Measures, Record},
};

/// What the variants of one layer and context share.
pub struct Rows<'a> {
    plan: &'a Plan<'a>,
    own: &'a IndexPlan,
    layer: &'a Layer,
    asked: &'a Asked,
    /// The truth's logits of the keys that each query sees, ranked.
    truth: Vec<Truth<'a>>,
}

/// What a candidate is by name.
pub struct Named<'a> {
    /// The variant.
    pub variant: &'a str,
    /// The bug that is built into it.
    pub fault: Option<&'a str>,
}

impl<'a> Rows<'a> {
    pub fn new(plan: &'a Plan<'a>, own: &'a IndexPlan, layer: &'a Layer, asked: &'a Asked) -> Self {
        let deepest = own.depths().last().copied().unwrap_or_default();
        let rows = asked.logits.rows().into_iter().zip(asked.visible());
        let truth = rows.map(|(row, &visible)| {
            let row = row.to_slice().unwrap_or_default();
            Truth::new(&row[..visible], deepest)
        });
        Self {
            plan,
            own,
            layer,
            asked,
            truth: truth.collect(),
        }
    }

    /// The records of a candidate: operands, logits and selections of every query set that sees a key.
    pub fn records(
        &self,
        candidate: &Candidate,
        against: &Candidate,
    ) -> Result<Vec<Record>, SuiteError> {
        let name = Named {
            variant: &candidate.recipe.name,
            fault: candidate.fault.map(|fault| fault.kind().name()),
        };
        let plain = Plain::of(candidate);
        let mut records = Vec::new();
        let sets = QuerySet::ALL
            .into_iter()
            .map(|set| (set, self.asked.of(set)))
            .filter(|(_, queries)| {
                self.asked.visible()[queries.clone()]
                    .iter()
                    .any(|&seen| seen > 0)
            });
        for (set, queries) in sets {
            let number = |k: Option<usize>| k.and_then(|k| u32::try_from(k).ok());
            let mut add = |stage: &str, [k, k_at]: [Option<usize>; 2], measures| {
                records.push(Record {
                    key: Key {
                        stage: Some(stage.to_owned()),
                        k: number(k),
                        k_at: number(k_at),
                        ..self.key(&name, set)
                    },
                    measures,
                });
            };
            let none = [None, None];
            add("q", none, self.queries(&plain, queries.clone())?);
            if set == QuerySet::All {
                add("k", none, self.keys(&plain)?);
            }
            add(
                "logits",
                none,
                self.logits(candidate, against, queries.clone())?,
            );
            for &k in &self.own_depths() {
                let selection = self.selection(candidate, k, queries.clone());
                add("top_k", [Some(k), None], selection);
                for &deeper in self.own.top_k.iter().filter(|&&deeper| deeper > k) {
                    let kept = self.kept(candidate, k, deeper, queries.clone());
                    let kept = kept.map(Measures::of_kept_at).unwrap_or_default();
                    add("kept_at", [Some(k), Some(deeper)], kept);
                }
            }
        }
        Ok(records)
    }

    /// The numbers of keys that get a row: those asked for, and the model's own.
    fn own_depths(&self) -> Vec<usize> {
        let mut depths = self.own.top_k.clone();
        if !depths.contains(&self.own.model_k) {
            depths.push(self.own.model_k);
            depths.sort_unstable();
        }
        depths
    }

    fn key(&self, name: &Named<'_>, set: QuerySet) -> Key {
        Key {
            suite: "indexer".to_owned(),
            fault: name.fault.map(str::to_owned),
            tokens: self.asked.of(set).len() as u64,
            query_set: Some(set.name().to_owned()),
            ..index_key(self.plan, self.layer, self.asked, name.variant)
        }
    }

    /// The queries that multiply, brought back to what the truth's are.
    fn queries(&self, plain: &Plain, queries: Range<usize>) -> Result<Measures, MeasureError> {
        let heads = self.layer.model.heads;
        let rows = queries.start * heads..queries.end * heads;
        let got = plain.q.slice(s![rows, ..]);
        let truth = self.asked.truth.q.slice(s![queries.clone(), .., ..]);
        self.operand(got, truth.iter().copied().collect(), queries.len())
    }

    fn keys(&self, plain: &Plain) -> Result<Measures, MeasureError> {
        let truth = self.asked.keys_of(self.layer.truth.view());
        let keys = truth.nrows();
        self.operand(plain.k.view(), truth.into_iter().collect(), keys)
    }

    fn operand(
        &self,
        got: ArrayView2<'_, f32>,
        reference: Vec<f64>,
        tokens: usize,
    ) -> Result<Measures, MeasureError> {
        let got: Vec<f32> = got.iter().copied().collect();
        let stage = Stage {
            got: &got,
            reference: &reference,
            exact: None,
            other: None,
            tokens,
            format: Format::F32,
        };
        Ok(stage.measure_at(self.plan.level)?.into())
    }

    /// The logits of the keys that the queries see.
    fn logits(
        &self,
        candidate: &Candidate,
        against: &Candidate,
        queries: Range<usize>,
    ) -> Result<Measures, MeasureError> {
        let got = self.seen(candidate.logits.view(), queries.clone());
        let reference = self.seen(self.asked.logits.view(), queries.clone());
        let exact = self.seen(candidate.intervals.exact.view(), queries.clone());
        let other = self.seen(against.logits.view(), queries.clone());
        let stage = Stage {
            got: &got,
            reference: &reference,
            exact: Some(&exact),
            other: Some(&other),
            tokens: 1,
            format: candidate.recipe.output.format(),
        };
        let mut measures: Measures = stage.measure_at(self.plan.level)?.into();
        let mut of_query = self.by_query(candidate, queries.clone())?;
        measures.token_rel_l2_max = Some(Value(of_query.iter().copied().fold(0.0, nan_max)));
        let mut keys: Vec<u64> = of_query.drain(..).map(f64::to_bits).collect();
        measures.token_rel_l2_p50 = Some(Value(quantile(&mut keys, 0.5)));
        measures.token_rel_l2_p99 = Some(Value(quantile(&mut keys, 0.99)));
        let [lo, hi] = [&candidate.intervals.lo, &candidate.intervals.hi]
            .map(|end| self.seen(end.view(), queries.clone()));
        let ends = lo.iter().zip(&hi).zip(&exact).zip(&got);
        let ratio = ends
            .map(|(((&lo, &hi), &exact), &got)| Interval { exact, lo, hi }.ratio(f64::from(got)));
        measures.bound_ratio = Some(Value(ratio.fold(0.0, nan_max)));
        let signs = self.asked.signs;
        measures.negative_share = Some(Value(signs.negative as f64 / signs.dots as f64));
        Ok(measures)
    }

    /// `rel_l2` of every query that sees a key.
    fn by_query(
        &self,
        candidate: &Candidate,
        queries: Range<usize>,
    ) -> Result<Vec<f64>, MeasureError> {
        queries
            .filter(|&query| self.asked.visible()[query] > 0)
            .map(|query| {
                let got = self.seen(candidate.logits.view(), query..query + 1);
                let reference = self.seen(self.asked.logits.view(), query..query + 1);
                let stage = Stage {
                    got: &got,
                    reference: &reference,
                    exact: None,
                    other: None,
                    tokens: 1,
                    format: Format::F32,
                };
                Ok(stage.measure_at(self.plan.level)?.errors.rel_l2.0)
            })
            .collect()
    }

    /// The visible part of some rows, one after the other.
    fn seen<T: Copy>(&self, rows: ArrayView2<'_, T>, queries: Range<usize>) -> Vec<T> {
        let rows = rows.slice(s![queries.clone(), ..]);
        let visible = &self.asked.visible()[queries];
        rows.axis_iter(Axis(0))
            .zip(visible)
            .flat_map(|(row, &visible)| row.slice(s![..visible]).to_vec())
            .collect()
    }

    /// What the queries select at k, how much of it twice as many would keep, and how much of it no rounding explains.
    fn selection(&self, candidate: &Candidate, k: usize, queries: Range<usize>) -> Measures {
        let of_query = |query: usize| {
            let visible = self.asked.visible()[query];
            let logits = candidate.logits.row(query);
            let logits = &logits.to_slice().unwrap_or_default()[..visible];
            let chosen = Chosen::new(candidate.keys_at(k, query), visible);
            self.truth[query].measure(k, &Ranking::new(logits, k), &chosen)
        };
        let found: Vec<Selection> = queries.clone().map(of_query).collect();
        let mut measures = Summary::over(&found).map_or_else(Measures::default, Measures::from);
        if let Some(kept) = self.kept(candidate, k, 2 * k, queries.clone()) {
            measures = measures.with_kept_at_2k(kept);
        }
        let findings = candidate.certificates(self.asked, k);
        let of_set = findings
            .iter()
            .filter(|found| queries.contains(&found.query));
        measures.certificates = Some(of_set.count() as u64);
        measures
    }

    /// The share of the truth's top k among the candidate's top `deeper`, over queries.
    fn kept(
        &self,
        candidate: &Candidate,
        k: usize,
        deeper: usize,
        queries: Range<usize>,
    ) -> Option<Spread> {
        candidate.selected.get(&deeper)?;
        let of_query = |query: usize| {
            let visible = self.asked.visible()[query];
            let chosen = Chosen::new(candidate.keys_at(deeper, query), visible);
            self.truth[query].kept(k, &chosen)
        };
        Spread::over(&queries.map(of_query).collect::<Vec<_>>())
    }
}
