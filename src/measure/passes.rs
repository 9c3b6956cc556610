//! Both passes over a stage, a block of tokens at a time.
//!
//! The first pass gives sums, counts, maxima and histograms; the norms and the histograms say what
//! the second has to look for: the cosine gap, and the few errors that decide the percentiles. A
//! block is a fixed number of tokens and blocks are joined in order, so that the bits depend neither on
//! the number of threads nor on who took which block.

use std::cell::OnceCell;

use ulpdrift_reference::simd::{self, Level, Task};

use crate::format::Format;

use super::{
    class::{Screen, Screened},
    fold::nan_max,
    norm::{Distance, Gap, Rescale, relative_norm},
    rows::{Cut, ErrorBrackets, Histograms, KeptErrors, Parameters, Totals},
    sample::Sample,
    ulp::UlpRule,
};

/// The rows of one block: got, and what it is measured against, in one layout.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a, G: Sample> {
    /// What the kernel gave.
    pub got: &'a [G],
    /// The fp64 side.
    pub truth: &'a Truth<'a>,
    /// What the variant it is compared with gave, where there is one.
    pub other: Option<&'a [G]>,
}

/// What got is measured against. What can be said of it without got is found once, however many
/// stages share it.
#[derive(Debug)]
pub struct Truth<'a> {
    reference: &'a [f64],
    exact: Option<&'a [f64]>,
    found: OnceCell<Found<'a>>,
}

impl<'a> Truth<'a> {
    /// Of the fp64 truth, and of the recipe-exact value where the stage has one.
    #[must_use]
    pub fn new(reference: &'a [f64], exact: Option<&'a [f64]>) -> Self {
        Self {
            reference,
            exact,
            found: OnceCell::new(),
        }
    }

    fn found(&self, level: Level) -> Found<'a> {
        let Self {
            reference, exact, ..
        } = *self;
        *self
            .found
            .get_or_init(|| simd::run(level, Look { reference, exact }))
    }
}

/// What a truth is like.
#[derive(Clone, Copy, Debug)]
struct Found<'a> {
    reference: Screened<'a, f64>,
    exact: Option<Screened<'a, f64>>,
    /// From recipe-exact to truth.
    operand: Option<Distance>,
}

struct Look<'a> {
    reference: &'a [f64],
    exact: Option<&'a [f64]>,
}

impl<'a> Task for Look<'a> {
    type Output = Found<'a>;

    #[inline(always)]
    fn run(self) -> Found<'a> {
        let reference = Screened::new(self.reference);
        let mut found = Found {
            reference,
            exact: None,
            operand: None,
        };
        if let Some(exact) = self.exact {
            let exact = Screened::new(exact);
            found.exact = Some(exact);
            found.operand = Some(Distance::of(exact, reference));
        }
        found
    }
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

/// How a block lies in its tensor.
#[derive(Clone, Copy)]
pub(super) struct RowShape {
    /// Elements of a row.
    pub(super) width: usize,
    /// Index of the block's first element.
    pub(super) offset: u64,
}

impl<G: Sample> Visit<'_, G> {
    /// The first pass.
    pub(super) fn survey(&self, histograms: &mut Histograms) -> Survey {
        let first = First {
            found: self.block.truth.found(self.level),
            visit: *self,
            histograms,
        };
        simd::run(self.level, first)
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
    found: Found<'a>,
    histograms: &'b mut Histograms,
}

// Conditions and loops throughout: what is given to `map` and the like would not be compiled for the
// vector level.
impl<G: Sample> Task for First<'_, '_, G> {
    type Output = Survey;

    #[inline(always)]
    fn run(self) -> Survey {
        let Visit { block, shape, .. } = self.visit;
        let Found {
            reference,
            exact,
            operand,
        } = self.found;
        let got = Screened::new(block.got);
        let screen = Screen::of(got, reference, shape.offset);
        let mut survey = Survey {
            screen,
            totals: Totals::new(),
            elements: block.got.len() as u64,
            tokens: Vec::with_capacity(block.got.len() / shape.width),
            token_max: 0.0,
            operand,
            arith: None,
            against: None,
        };
        self.add_rows(&mut survey);
        if let Some(exact) = exact {
            survey.arith = Some(Distance::of(got, exact));
        }
        if let Some(other) = block.other {
            survey.against = Some(Against {
                distance: Distance::of(got, Screened::new(other)),
                changed: changed(block.got, other),
            });
        }
        survey
    }
}

impl<G: Sample> First<'_, '_, G> {
    #[inline(always)]
    fn add_rows(self, survey: &mut Survey) {
        let Visit { block, shape, .. } = self.visit;
        let parameters = Parameters {
            scale: survey.screen.scale(),
            ulp: UlpRule::new(self.visit.format),
        };
        // Rows of one block share its scale.
        let same = Rescale::of(&survey.screen, &survey.screen);
        let mut cut = Cut::new(survey.screen.all_finite());
        let mut offset = shape.offset;
        let references = self.found.reference.values.chunks_exact(shape.width);
        for (got, reference) in block.got.chunks_exact(shape.width).zip(references) {
            let row = cut.row(got, reference, offset);
            let row = row.totals(parameters, self.histograms);
            let token = relative_norm(row.dd, row.rr);
            survey.token_max = nan_max(survey.token_max, token);
            survey.tokens.push(token.to_bits());
            survey.totals.join(&row, same);
            offset += shape.width as u64;
        }
    }
}

#[inline(always)]
fn changed<G: Sample>(got: &[G], other: &[G]) -> u64 {
    let mut changed = 0;
    for (g, o) in got.iter().zip(other) {
        changed += u64::from(!g.same_bits(*o));
    }
    changed
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
        let (got, reference) = (block.got, block.truth.reference);
        let mut cut = Cut::new(self.search.all_finite);
        let references = reference.chunks_exact(shape.width);
        for (got, reference) in got.chunks_exact(shape.width).zip(references) {
            let row = cut.row(got, reference, 0);
            row.keep(&self.search.brackets, self.kept);
        }
        let mut gaps = Gaps {
            gap: self.search.gap.part(got, reference),
            against: 0.0,
        };
        if let (Some(gap), Some(other)) = (&self.search.against, block.other) {
            gaps.against = gap.part(got, other);
        }
        gaps
    }
}
