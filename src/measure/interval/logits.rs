//! The logits of sixteen keys: a head's dots as intervals, the sum over the heads, and the end of the way.

use std::ops::Range;

use ndarray::{ArrayView1, ArrayViewMut2};
use ulpdrift_reference::simd::{Level, Task};

use super::{
    LANES, ROWS,
    chain::{Chains, Sums},
    heads::{Ends, HeadSum, Singles, Steps},
    pack::{KeyTile, QueryRows},
    unit::Unit,
};
use crate::{
    format::{Format, Rounding},
    measure::bound::lanes,
    recipe::indexer::{
        Fold, IndexRecipe, Quantiser, Relu, ScalePosition,
        operands::{Operands, QueryOperands},
    },
    tensor_core::Arch,
};

type Doubles = [f64; LANES];

/// What all keys share.
pub(super) struct Logits<'a> {
    unit: Unit,
    steps: Steps,
    output: Format,
    queries: &'a QueryOperands,
    keys: &'a Operands,
    /// The keys' scales, where each has one.
    row_scales: Option<ArrayView1<'a, f32>>,
    /// q, the heads of a query in groups of [`ROWS`].
    rows: Vec<QueryRows>,
    /// The chains of a dot: more than one where scales change along it.
    chains: Vec<Chain>,
}

/// A chain, and what it is multiplied by.
struct Chain {
    places: Range<usize>,
    /// Columns of q's and k's scales.
    query: Option<usize>,
    key: Option<usize>,
}

impl<'a> Logits<'a> {
    /// Operands whose shapes belong together.
    pub(super) fn new(
        unit: Unit,
        arch: Arch,
        recipe: &IndexRecipe,
        queries: &'a QueryOperands,
        keys: &'a Operands,
    ) -> Self {
        let heads = queries.heads();
        let width = keys.values.ncols();
        let groups = (0..queries.weights.nrows()).flat_map(|query| {
            (0..heads)
                .step_by(ROWS)
                .map(move |head| (query * heads + head, (query + 1) * heads))
        });
        let row_scales = keys.row_scales(recipe.unit);
        let split = recipe.weights.fold == Fold::Split;
        Self {
            unit,
            steps: Steps {
                reduce: recipe.reduction.on(arch, row_scales.is_some()),
                dot_scale: split.then(|| (1.0 / (width as f64).sqrt()) as f32),
                dot: recipe.dot,
            },
            output: recipe.output.format(),
            rows: groups
                .map(|(first, end)| QueryRows::new(unit, &queries.q, first, end))
                .collect(),
            chains: chains(unit, recipe, queries, keys),
            queries,
            keys,
            row_scales,
        }
    }

    fn is_scaled(&self) -> bool {
        self.chains
            .iter()
            .any(|chain| chain.query.is_some() || chain.key.is_some())
    }

    /// The groups of one query.
    fn groups(&self) -> usize {
        self.queries.heads().div_ceil(ROWS)
    }
}

fn chains(
    unit: Unit,
    recipe: &IndexRecipe,
    queries: &QueryOperands,
    keys: &Operands,
) -> Vec<Chain> {
    let width = keys.values.ncols();
    let places = unit.places(width);
    // The scales that the unit does not take, and that change along a row.
    let block = |operands: &Operands, format: Quantiser| match unit.takes_scales() {
        true => None,
        false => operands.block_scales(recipe.unit).and(format.block()),
    };
    let query = block(&queries.q, recipe.query.format);
    let key = block(keys, recipe.key.format);
    let shortest = query.into_iter().chain(key).min().unwrap_or(usize::MAX);
    let starts = (0..width.max(1)).step_by(shortest);
    starts
        .map(|start| Chain {
            places: start..places.min(start.saturating_add(shortest)),
            query: query.map(|block| start / block),
            key: key.map(|block| start / block),
        })
        .collect()
}

/// Up to [`LANES`] keys, all queries.
pub(super) struct Tile<'a> {
    pub(super) level: Level,
    pub(super) logits: &'a Logits<'a>,
    /// The first key.
    pub(super) first: usize,
    /// The results, [Q, up to LANES].
    pub(super) exact: ArrayViewMut2<'a, f64>,
    pub(super) lo: ArrayViewMut2<'a, f64>,
    pub(super) hi: ArrayViewMut2<'a, f64>,
}

impl Task for Tile<'_> {
    type Output = ();

    #[inline(always)]
    fn run(mut self) {
        let keys = KeyTile::new(self.level, self.logits.unit, self.logits.keys, self.first);
        let scales = self.key_scales(self.logits.row_scales);
        for query in 0..self.exact.nrows() {
            let logit = self.logit(query, &keys, &scales);
            for lane in 0..self.exact.ncols() {
                let at = [query, lane];
                self.exact[at] = logit.exact[lane];
                [self.lo[at], self.hi[at]] = logit.ends(lane, self.logits.output);
            }
        }
    }
}

/// The logits of one query.
struct Logit {
    exact: Doubles,
    ends: Ends,
    /// The sum of the dots' P, infinite where one of them may leave the range.
    reach: Doubles,
}

impl Logit {
    /// lo and hi, as the format stores them and widened to hold e.
    #[inline(always)]
    fn ends(&self, lane: usize, output: Format) -> [f64; 2] {
        let stored = |x: f32| f64::from(output.round_f32(x, Rounding::NearestEven));
        let (lo, hi) = (stored(self.ends.lo[lane]), stored(self.ends.hi[lane]));
        let exact = self.exact[lane];
        if self.reach[lane].is_infinite() || lo.is_nan() != hi.is_nan() {
            return [f64::NEG_INFINITY, f64::INFINITY];
        }
        // Where one side is NaN, nothing is less than the other.
        [
            if exact < lo { exact } else { lo },
            if exact > hi { exact } else { hi },
        ]
    }
}

/// The dots of some heads.
struct Dots {
    exact: [Doubles; ROWS],
    ends: [Ends; ROWS],
    reach: Doubles,
}

impl Tile<'_> {
    /// These keys' scales, 1 where there are none.
    #[inline(always)]
    fn key_scales(&self, scales: Option<ArrayView1<'_, f32>>) -> Singles {
        let mut result = [1.0; LANES];
        if let Some(scales) = scales {
            let ours = scales.into_iter().skip(self.first);
            for (result, &scale) in result.iter_mut().zip(ours) {
                *result = scale;
            }
        }
        result
    }

    #[inline(always)]
    fn logit(&self, query: usize, keys: &KeyTile, scales: &Singles) -> Logit {
        let logits = self.logits;
        let heads = logits.queries.heads();
        let steps = logits.steps;
        let before_relu = steps.reduce.scale == ScalePosition::BeforeRelu;
        let factor = f64::from(steps.dot_scale.unwrap_or(1.0));
        let mut exact = [0.0; LANES];
        let mut reach = [0.0; LANES];
        let mut sum = HeadSum::new(steps, scales, heads);
        for group in 0..logits.groups() {
            let first = group * ROWS;
            let dots = self.dots(query * heads + first, query * logits.groups() + group, keys);
            for (reach, own) in reach.iter_mut().zip(&dots.reach) {
                *reach += own;
            }
            for row in 0..ROWS.min(heads - first) {
                let weight = logits.queries.weights[[query, first + row]];
                for lane in 0..LANES {
                    let mut dot = dots.exact[row][lane] * factor;
                    if before_relu {
                        dot *= f64::from(scales[lane]);
                    }
                    let is_cut = steps.reduce.relu != Relu::Absent && dot <= 0.0;
                    exact[lane] += f64::from(weight) * if is_cut { 0.0 } else { dot };
                }
                sum.add(dots.ends[row], weight);
            }
        }
        if !before_relu && steps.reduce.scale != ScalePosition::InProduct {
            for lane in 0..LANES {
                exact[lane] *= f64::from(scales[lane]);
            }
        }
        Logit {
            exact,
            ends: sum.finish(),
            reach,
        }
    }

    /// The dots of a group of rows of q, of which `row` is the first.
    #[inline(always)]
    fn dots(&self, row: usize, group: usize, keys: &KeyTile) -> Dots {
        let logits = self.logits;
        let mut dots = Dots {
            exact: [[0.0; LANES]; ROWS],
            ends: [Ends::ZERO; ROWS],
            reach: [0.0; LANES],
        };
        let scaled = logits.is_scaled();
        for chain in &logits.chains {
            let mut parts = Sums::ZERO;
            let chains = Chains {
                unit: logits.unit,
                q: &logits.rows[group],
                k: keys,
                places: chain.places.clone(),
                sums: &mut parts,
            };
            lanes::run(self.level, chains);
            let scales = logits.keys.scales.as_ref();
            let of_chain = chain.key.and_then(|column| Some(scales?.column(column)));
            let key_scales = self.key_scales(of_chain);
            for r in 0..ROWS {
                let part = within(&parts, r, &mut dots.reach);
                if !scaled {
                    dots.exact[r] = parts.sum[r].0;
                    dots.ends[r] = part;
                    continue;
                }
                let query_scale = self.query_scale(row + r, chain.query);
                for (lane, &key_scale) in key_scales.iter().enumerate() {
                    let scale = f64::from(query_scale) * f64::from(key_scale);
                    dots.exact[r][lane] += parts.sum[r].0[lane] * scale;
                }
                dots.ends[r].add_scaled(&part, &key_scales.map(|scale| query_scale * scale));
            }
        }
        dots
    }

    /// 1 for a row that is not there.
    #[inline(always)]
    fn query_scale(&self, row: usize, column: Option<usize>) -> f32 {
        let scales = self.logits.queries.q.scales.as_ref();
        let at = column.and_then(|column| scales?.get([row, column]));
        at.copied().unwrap_or(1.0)
    }
}

/// [sum − bound, sum + bound] in fp32. Adds the bounds to `reach`; what is not finite has none, and is what it is.
#[inline(always)]
fn within(parts: &Sums, row: usize, reach: &mut Doubles) -> Ends {
    let mut ends = Ends::ZERO;
    for (lane, &sum) in parts.sum[row].0.iter().enumerate() {
        let bound = if sum.is_finite() {
            parts.bound(row, lane)
        } else {
            0.0
        };
        reach[lane] += bound;
        ends.lo[lane] = (sum - bound) as f32;
        ends.hi[lane] = (sum + bound) as f32;
    }
    ends
}
