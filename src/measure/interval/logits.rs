//! The logits of sixteen keys: a head's dots as intervals, the sum over the heads, and the end of the way.

use std::ops::Range;

use ndarray::{Array2, ArrayViewMut2};
use ulpdrift_reference::simd::Task;

use super::{
    LANES, ROWS,
    heads::{Ends, HeadSum, Singles, Steps},
    pack::{KeyTile, QueryRows},
    unit::{Unit, scale_block},
};
use crate::{
    format::{Format, Rounding},
    recipe::indexer::{
        Fold, IndexRecipe, Relu, ScalePosition,
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

/// Scales that the unit does not take and that change along a row.
fn block_scales(unit: Unit, operands: &Operands) -> Option<&Array2<f32>> {
    let scales = operands.scales.as_ref()?;
    (scales.ncols() != 1 && !unit.takes_scales()).then_some(scales)
}

/// One scale per row, which the unit does not take.
fn row_scales(unit: Unit, operands: &Operands) -> Option<&Array2<f32>> {
    let scales = operands.scales.as_ref()?;
    (scales.ncols() == 1 && !unit.takes_scales()).then_some(scales)
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
        let split = recipe.weights.fold == Fold::Split;
        Self {
            unit,
            steps: Steps {
                reduce: recipe.reduction.on(arch, row_scales(unit, keys).is_some()),
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
    let block = |operands, format| block_scales(unit, operands).map(|_| scale_block(format));
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
        let keys = KeyTile::new(self.logits.unit, self.logits.keys, self.first);
        let scales = self.key_scales(row_scales(self.logits.unit, self.logits.keys), 0);
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
    /// The keys' scales of a column, 1 where there are none.
    #[inline(always)]
    fn key_scales(&self, scales: Option<&Array2<f32>>, column: usize) -> Singles {
        let mut result = [1.0; LANES];
        if let Some(scales) = scales {
            let rows = scales.column(column);
            for (result, &scale) in result.iter_mut().zip(rows.iter().skip(self.first)) {
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
            let q = &logits.rows[group];
            let parts = logits.unit.chains(q, keys, chain.places.clone());
            let key_scales = chain.key.map_or([1.0; LANES], |column| {
                self.key_scales(logits.keys.scales.as_ref(), column)
            });
            for r in 0..ROWS {
                let part = within(&parts.sum[r], &parts.bound[r], &mut dots.reach);
                if !scaled {
                    dots.exact[r] = parts.sum[r];
                    dots.ends[r] = part;
                    continue;
                }
                let query_scale = self.query_scale(row + r, chain.query);
                for (lane, &key_scale) in key_scales.iter().enumerate() {
                    let scale = f64::from(query_scale) * f64::from(key_scale);
                    dots.exact[r][lane] += parts.sum[r][lane] * scale;
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
fn within(sum: &Doubles, bound: &Doubles, reach: &mut Doubles) -> Ends {
    let mut ends = Ends::ZERO;
    for lane in 0..LANES {
        let bound = if sum[lane].is_finite() {
            bound[lane]
        } else {
            0.0
        };
        reach[lane] += bound;
        ends.lo[lane] = (sum[lane] - bound) as f32;
        ends.hi[lane] = (sum[lane] + bound) as f32;
    }
    ends
}
