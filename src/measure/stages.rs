//! Measures stages from rows that are made twice rather than kept.
//!
//! The layer input of a full-size model is by far the largest stage, and each row of it costs less to
//! compute anew than to fetch from memory, so the rows of a block are made where they are measured:
//! once per pass, in cache, for all variants that share their inputs. A tensor that is in memory
//! anyway goes the same way.

use std::{
    ops::Range,
    sync::atomic::{AtomicUsize, Ordering},
};

use rayon::prelude::*;
use ulpdrift_reference::simd::Level;

use crate::format::Format;

use super::{
    against::AgainstMeasures,
    error::{ErrorMeasures, Stage},
    passes::{Block, Gaps, RowShape, Search, Survey, Truth, Visit},
    rows::{Histograms, KeptErrors},
    sample::Sample,
};

/// Elements of a block, about: what a core keeps in its second-level cache of every tensor involved.
const BLOCK: usize = 1 << 15;

/// Rows of one or several stages that share tokens and width.
pub trait Rows: Sync {
    /// What the elements are stored in.
    type Sample: Sample;

    /// The length of the token axis, at least 1.
    fn tokens(&self) -> usize;

    /// Elements per token, at least 1.
    fn width(&self) -> usize;

    /// One format per stage, whose ulps are counted.
    fn formats(&self) -> &[Format];

    /// Shows every stage of the rows `tokens` to `see`, by its number. Called twice for each block, from
    /// any thread; the rows must be the same both times, and the optional sides of a stage there
    /// always or never.
    fn visit(&self, tokens: Range<usize>, see: &mut dyn FnMut(usize, Block<'_, Self::Sample>));
}

/// Everything measured of one stage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Against truth and recipe-exact.
    pub errors: ErrorMeasures,
    /// Against another variant, where there is one.
    pub against: Option<AgainstMeasures>,
}

/// Measures every stage of `rows`. Any level and any number of threads gives the same bits.
pub fn measure<R: Rows>(level: Level, rows: &R) -> Vec<Measured> {
    let blocks = Blocks::new(level, rows);
    let first = blocks.first_pass();
    let searches: Vec<Search> = first
        .iter()
        .map(|stage| stage.survey.search(&stage.histograms))
        .collect();
    let second = blocks.second_pass(&searches);
    first
        .into_iter()
        .zip(&searches)
        .zip(second)
        .map(|((first, search), second)| finish(first.survey, search, second))
        .collect()
}

/// One stage after its first pass.
struct First {
    survey: Survey,
    histograms: Histograms,
}

/// One stage after its second pass.
struct Second {
    gaps: Gaps,
    kept: KeptErrors,
}

fn finish(survey: Survey, search: &Search, second: Second) -> Measured {
    let Second { gaps, mut kept } = second;
    let against = survey
        .against
        .zip(search.against)
        .map(|(against, gap)| AgainstMeasures {
            against_rel_l2: against.distance.rel_l2().into(),
            against_cosine_gap: gap.finish(gaps.against).into(),
            changed: (against.changed as f64 / survey.elements as f64).into(),
        });
    Measured {
        against,
        errors: ErrorMeasures::new(survey, search, gaps.gap, &mut kept),
    }
}

/// The rows, cut into blocks of whole tokens.
struct Blocks<'a, R> {
    level: Level,
    rows: &'a R,
    /// Tokens per block.
    height: usize,
    count: usize,
}

impl<'a, R: Rows> Blocks<'a, R> {
    fn new(level: Level, rows: &'a R) -> Self {
        let height = (BLOCK / rows.width()).max(1);
        Self {
            level,
            rows,
            height,
            count: rows.tokens().div_ceil(height),
        }
    }

    /// Shows every stage of a block.
    fn visit(&self, block: usize, mut see: impl FnMut(usize, Visit<'_, R::Sample>)) {
        let start = block * self.height;
        let tokens = start..(start + self.height).min(self.rows.tokens());
        let shape = RowShape {
            width: self.rows.width(),
            offset: (start * self.rows.width()) as u64,
        };
        self.rows.visit(tokens, &mut |stage, block| {
            let format = self.rows.formats()[stage];
            see(
                stage,
                Visit {
                    level: self.level,
                    block,
                    shape,
                    format,
                },
            );
        });
    }

    fn first_pass(&self) -> Vec<First> {
        let stages = self.rows.formats().len();
        let new = || Worker {
            shared: vec![Histograms::new(); stages],
            found: Vec::new(),
        };
        let workers = share_out(self.count, new, |worker, block| {
            let mut surveys = Vec::with_capacity(stages);
            self.visit(block, |stage, visit| {
                surveys.push(visit.survey(&mut worker.shared[stage]));
            });
            worker.found.push(Found {
                block,
                stages: surveys,
            });
        });
        let (shared, found) = gather(workers);
        let surveys = found.into_iter().reduce(|mut so_far, later| {
            for (so_far, later) in so_far.iter_mut().zip(later) {
                so_far.join(later);
            }
            so_far
        });
        let histograms = shared.into_iter().reduce(|mut so_far, more| {
            for (so_far, more) in so_far.iter_mut().zip(&more) {
                so_far.join(more);
            }
            so_far
        });
        let pairs = surveys.into_iter().flatten();
        pairs
            .zip(histograms.into_iter().flatten())
            .map(|(survey, histograms)| First { survey, histograms })
            .collect()
    }

    fn second_pass(&self, searches: &[Search]) -> Vec<Second> {
        let new = || Worker {
            shared: searches.iter().map(|_| KeptErrors::default()).collect(),
            found: Vec::new(),
        };
        let workers = share_out(self.count, new, |worker, block| {
            let mut gaps = Vec::with_capacity(searches.len());
            self.visit(block, |stage, visit| {
                gaps.push(visit.search(&searches[stage], &mut worker.shared[stage]));
            });
            worker.found.push(Found {
                block,
                stages: gaps,
            });
        });
        let (shared, found) = gather(workers);
        let mut stages: Vec<Second> = searches
            .iter()
            .map(|_| Second {
                gaps: Gaps::default(),
                kept: KeptErrors::default(),
            })
            .collect();
        for gaps in found {
            for (stage, gaps) in stages.iter_mut().zip(gaps) {
                stage.gaps.join(gaps);
            }
        }
        for kept in shared {
            for (stage, mut kept) in stages.iter_mut().zip(kept) {
                stage.kept.abs.append(&mut kept.abs);
                stage.kept.rel.append(&mut kept.rel);
            }
        }
        stages
    }
}

/// What one worker gathers: what commutes in one place, the rest by block.
struct Worker<S, F> {
    shared: Vec<S>,
    found: Vec<Found<F>>,
}

struct Found<F> {
    block: usize,
    stages: Vec<F>,
}

/// Per worker what commutes, and per block, in order, the rest.
fn gather<S, F>(workers: Vec<Worker<S, F>>) -> (Vec<Vec<S>>, Vec<Vec<F>>) {
    let mut shared = Vec::with_capacity(workers.len());
    let mut found = Vec::new();
    for mut worker in workers {
        shared.push(worker.shared);
        found.append(&mut worker.found);
    }
    found.sort_unstable_by_key(|found| found.block);
    (
        shared,
        found.into_iter().map(|found| found.stages).collect(),
    )
}

/// As many workers as there are threads; each takes the next block until none is left.
fn share_out<W: Send>(
    blocks: usize,
    new: impl Fn() -> W + Sync,
    work: impl Fn(&mut W, usize) + Sync,
) -> Vec<W> {
    let next = AtomicUsize::new(0);
    (0..rayon::current_num_threads().min(blocks))
        .into_par_iter()
        .map(|_| {
            let mut worker = new();
            loop {
                let block = next.fetch_add(1, Ordering::Relaxed);
                if block >= blocks {
                    return worker;
                }
                work(&mut worker, block);
            }
        })
        .collect()
}

/// A stage whose tensors are all in memory.
pub(super) struct Whole<'a, G: Sample>(pub(super) &'a Stage<'a, G>);

impl<G: Sample> Rows for Whole<'_, G> {
    type Sample = G;

    fn tokens(&self) -> usize {
        self.0.tokens
    }

    fn width(&self) -> usize {
        self.0.got.len() / self.0.tokens
    }

    fn formats(&self) -> &[Format] {
        std::slice::from_ref(&self.0.format)
    }

    fn visit(&self, tokens: Range<usize>, see: &mut dyn FnMut(usize, Block<'_, G>)) {
        let width = self.width();
        let elements = tokens.start * width..tokens.end * width;
        let truth = Truth::new(
            &self.0.reference[elements.clone()],
            self.0.exact.map(|exact| &exact[elements.clone()]),
        );
        let block = Block {
            got: &self.0.got[elements.clone()],
            truth: &truth,
            other: self.0.other.map(|other| &other[elements]),
        };
        see(0, block);
    }
}
