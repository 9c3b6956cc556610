//! Both passes over a stage, a block of tokens at a time.
//!
//! The first pass gives sums, counts, maxima and histograms; the norms and the histograms say what
//! the second has to look for: the cosine gap, and the few errors that decide the percentiles. A
//! block is a fixed number of tokens and blocks are joined in order, so that the bits depend neither on
//! the number of threads nor on who took which block.

use ulpdrift_reference::simd::{self, Level, Task};

use crate::format::Format;

use super::{
    class::{Screen, Screened},
    fold::nan_max,
    norm::{Distance, Gap, Rescale, relative_norm},
    rows::{ErrorBrackets, Histograms, KeptErrors, Parameters, Row, RowShape, Totals},
    sample::Sample,
    ulp::UlpRule,
};

/// The rows of one block: got, and what it is measured against, in one layout.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a, G: Sample> {
    /// What the kernel gave.
    pub got: &'a [G],
    /// The fp64 truth.
    pub reference: &'a [f64],
    /// The recipe-exact value, where the stage has one.
    pub exact: Option<&'a [f64]>,
    /// What the variant it is compared with gave, where there is one.
    pub other: Option<&'a [G]>,
}

/// What the first pass found in a block, or in all blocks so far.
pub(super) struct Survey {
    pub(super) screen: Screen,
    pub(super) totals: Totals,
    /// Elements seen, finite or not.
    pub(super) elements: u64,
    /// Bit patterns of `rel_l2`, by token.
    pub(super) tokens: Vec<u64>,
    /// The largest of them.
    pub(super) token_max: f64,
    pub(super) operand: Option<Distance>,
    pub(super) arith: Option<Distance>,
    pub(super) against: Option<Against>,
}

/// The distance to another variant.
#[derive(Clone, Copy)]
pub(super) struct Against {
    pub(super) distance: Distance,
    /// Elements whose bits differ.
    pub(super) changed: u64,
}

impl Survey {
    /// Takes in what was found in the block that follows.
    pub(super) fn join(&mut self, mut later: Self) {
        let rescale = Rescale::of(&self.screen, &later.screen);
        self.totals.join(&later.totals, rescale);
        self.screen.join(&later.screen);
        self.elements += later.elements;
        self.tokens.append(&mut later.tokens);
        self.token_max = nan_max(self.token_max, later.token_max);
        let distances = [
            (&mut self.operand, later.operand),
            (&mut self.arith, later.arith),
        ];
        for (distance, later) in distances {
            if let (Some(distance), Some(later)) = (distance, later) {
                distance.join(&later);
            }
        }
        if let (Some(against), Some(later)) = (&mut self.against, later.against) {
            against.distance.join(&later.distance);
            against.changed += later.changed;
        }
    }

    /// What the second pass looks for, given the histograms of all blocks.
    pub(super) fn search(&self, histograms: &Histograms) -> Search {
        let compared = self.totals.compared as usize;
        let population = compared - self.totals.zero as usize;
        Search {
            all_finite: self.screen.all_finite(),
            gap: Gap::new(&self.screen, self.totals.gg, self.totals.rr),
            against: self.against.map(|against| against.distance.gap()),
            brackets: ErrorBrackets {
                abs: histograms.abs.brackets(compared),
                rel: histograms.rel.brackets(population),
            },
        }
    }
}

/// What the second pass looks for.
pub(super) struct Search {
    /// Whether there is nothing to leave out in any block.
    all_finite: bool,
    pub(super) gap: Gap,
    pub(super) against: Option<Gap>,
    pub(super) brackets: ErrorBrackets,
}

/// The sums of the second pass over a block, or over all blocks so far.
#[derive(Clone, Copy, Default)]
pub(super) struct Gaps {
    pub(super) gap: f64,
    pub(super) against: f64,
}

impl Gaps {
    /// Takes in those of the block that follows.
    pub(super) fn join(&mut self, later: Self) {
        self.gap += later.gap;
        self.against += later.against;
    }
}

/// One block of one stage on its way through a pass.
#[derive(Clone, Copy)]
pub(super) struct Visit<'a, G: Sample> {
    pub(super) level: Level,
    pub(super) block: Block<'a, G>,
    pub(super) shape: RowShape,
    pub(super) format: Format,
}

impl<G: Sample> Visit<'_, G> {
    /// The first pass.
    pub(super) fn survey(&self, histograms: &mut Histograms) -> Survey {
        let visit = *self;
        simd::run(self.level, First { visit, histograms })
    }

    /// The second pass.
    pub(super) fn search(&self, search: &Search, kept: &mut KeptErrors) -> Gaps {
        let visit = *self;
        simd::run(
            self.level,
            Second {
                visit,
                search,
                kept,
            },
        )
    }
}

struct First<'a, 'b, G: Sample> {
    visit: Visit<'a, G>,
    histograms: &'b mut Histograms,
}

impl<G: Sample> Task for First<'_, '_, G> {
    type Output = Survey;

    #[inline(always)]
    fn run(self) -> Survey {
        let Visit { block, shape, .. } = self.visit;
        let got = Screened::new(block.got);
        let reference = Screened::new(block.reference);
        let exact = block.exact.map(Screened::new);
        let other = block.other.map(Screened::new);
        let screen = Screen::of(got, reference, shape.offset);
        let parameters = Parameters {
            scale: screen.scale(),
            ulp: UlpRule::new(self.visit.format),
        };
        let mut totals = Totals::new();
        let mut tokens = Vec::with_capacity(block.got.len() / shape.width);
        let mut token_max = 0.0;
        // Rows of one block share its scale.
        let same = Rescale::of(&screen, &screen);
        let all_finite = screen.all_finite();
        Row::each(block.got, block.reference, shape, all_finite, |row| {
            let row = row.totals(parameters, self.histograms);
            let token = relative_norm(row.dd, row.rr);
            token_max = nan_max(token_max, token);
            tokens.push(token.to_bits());
            totals.join(&row, same);
        });
        Survey {
            screen,
            totals,
            elements: block.got.len() as u64,
            tokens,
            token_max,
            operand: exact.map(|exact| Distance::of(exact, reference)),
            arith: exact.map(|exact| Distance::of(got, exact)),
            against: other.map(|other| Against {
                distance: Distance::of(got, other),
                changed: changed(block.got, other.values),
            }),
        }
    }
}

#[inline(always)]
fn changed<G: Sample>(got: &[G], other: &[G]) -> u64 {
    let pairs = got.iter().zip(other);
    pairs.map(|(g, o)| u64::from(!g.same_bits(*o))).sum()
}

struct Second<'a, 'b, G: Sample> {
    visit: Visit<'a, G>,
    search: &'b Search,
    kept: &'b mut KeptErrors,
}

impl<G: Sample> Task for Second<'_, '_, G> {
    type Output = Gaps;

    #[inline(always)]
    fn run(self) -> Gaps {
        let Visit { block, shape, .. } = self.visit;
        let Block { got, reference, .. } = block;
        Row::each(got, reference, shape, self.search.all_finite, |row| {
            row.keep(&self.search.brackets, self.kept);
        });
        let against = self.search.against.zip(block.other);
        Gaps {
            gap: self.search.gap.part(got, reference),
            against: against.map_or(0.0, |(gap, other)| gap.part(got, other)),
        }
    }
}
