//! A few tiles of tokens, all outputs: chains in the order in which they are joined.

use std::ops::Range;

use crate::format::Format;

use super::{
    ChainRule, Rule,
    kernel::{Fma32, PREFIXES, Recurrence, State, Stretch, TensorCore},
    lanes::{Doubles, Lanes, TOKENS, Task},
    layout::{Layout, Section},
    order::Step,
    pack::{Columns, Packed, Panel},
};

/// Everything that the tiles share.
pub(super) struct Projection<'a> {
    pub(super) rule: Rule,
    pub(super) packed: Packed<'a>,
    pub(super) layout: Layout,
    pub(super) schedule: Vec<Step>,
    /// The format of partial results before they are joined.
    pub(super) stored: Format,
    pub(super) outputs: usize,
}

impl Projection<'_> {
    /// Tokens per batch, of `count` in all: as many tiles as use a section of the weights while it is
    /// in the cache, but something to do for every thread.
    pub(super) fn batch(&self, count: usize) -> usize {
        let most = if self.layout.is_scattered() { 1 } else { TILES };
        let tiles = count.div_ceil(TOKENS) / rayon::current_num_threads();
        tiles.clamp(1, most) * TOKENS
    }
}

/// Tiles per batch, at most.
const TILES: usize = 2;

/// A thread's working memory.
pub(super) struct Scratch {
    columns: Columns,
    panel: Panel,
    prefixes: Vec<Doubles>,
    /// `[slots, tiles, outputs]`.
    partial: Vec<State>,
}

impl Scratch {
    /// For batches of `tokens`.
    pub(super) fn new(projection: &Projection<'_>, tokens: usize) -> Self {
        let slots = projection.schedule.iter().map(Step::slots).max();
        let states = slots.unwrap_or(1) * tokens.div_ceil(TOKENS) * projection.outputs;
        Self {
            columns: Columns::new(&projection.packed, &projection.layout),
            panel: Panel::new(),
            prefixes: vec![Doubles([0.0; TOKENS]); PREFIXES],
            partial: vec![State::ZERO; states],
        }
    }

    /// The final state of every tile and output.
    pub(super) fn results(&self) -> &[State] {
        &self.partial
    }
}

/// Tokens to be evaluated.
pub(super) struct Batch<'a> {
    pub(super) projection: &'a Projection<'a>,
    pub(super) tokens: Range<usize>,
    pub(super) scratch: &'a mut Scratch,
}

impl Task for Batch<'_> {
    #[inline(always)]
    fn run<V: Lanes>(mut self, lanes: V) {
        let columns = &mut self.scratch.columns;
        columns.begin(lanes, &self.projection.packed, self.tokens.start);
        match self.projection.rule {
            Rule::Fma32 => self.follow(lanes, |lanes, _| Fma32(lanes)),
            Rule::TensorCore(rule) => match rule.places() {
                4 => self.tensor_core::<V, 4>(lanes, rule),
                8 => self.tensor_core::<V, 8>(lanes, rule),
                16 => self.tensor_core::<V, 16>(lanes, rule),
                _ => self.tensor_core::<V, 32>(lanes, rule),
            },
        }
    }
}

impl Batch<'_> {
    #[inline(always)]
    fn tensor_core<V: Lanes, const L: usize>(&mut self, lanes: V, rule: ChainRule) {
        self.follow(lanes, |lanes, started| TensorCore::<V, L> {
            lanes,
            rule,
            started,
        });
    }

    /// States per slot.
    #[inline(always)]
    fn width(&self) -> usize {
        self.tokens.len().div_ceil(TOKENS) * self.projection.outputs
    }

    /// Runs the schedule; `recurrence` is asked for one that continues chains which have started or
    /// have not.
    #[inline(always)]
    fn follow<V: Lanes, R: Recurrence<V>>(&mut self, lanes: V, recurrence: impl Fn(V, bool) -> R) {
        let width = self.width();
        for step in &self.projection.schedule {
            match *step {
                Step::Run { chain, slot } => {
                    let sections = &self.projection.layout.chains[chain];
                    self.chain(lanes, sections, slot, &recurrence);
                }
                Step::Join { slot } => {
                    let (low, high) = self.scratch.partial.split_at_mut((slot + 1) * width);
                    for (into, from) in low[slot * width..].iter_mut().zip(high) {
                        into.add(from);
                    }
                }
            }
        }
    }

    /// One chain of every output.
    #[inline(always)]
    fn chain<V: Lanes, R: Recurrence<V>>(
        &mut self,
        lanes: V,
        sections: &[Section],
        slot: usize,
        recurrence: &impl Fn(V, bool) -> R,
    ) {
        let Projection {
            packed, outputs, ..
        } = self.projection;
        let width = self.width();
        let scratch = &mut *self.scratch;
        let chains = &mut scratch.partial[slot * width..][..width];
        chains.fill(State::ZERO);
        let mut started = false;
        for term in &packed.terms {
            for section in sections {
                let tiles = self.tokens.clone().step_by(TOKENS);
                for (first, chains) in tiles.zip(chains.chunks_exact_mut(*outputs)) {
                    let panel = &mut scratch.panel;
                    panel.fill(lanes, packed, term, &mut scratch.columns, first, section);
                    let stretch = Stretch {
                        panel,
                        weight: &term.weight,
                        section,
                    };
                    for part in 0..V::PARTS {
                        let recurrence = recurrence(lanes.part(part), started);
                        all_outputs(recurrence, stretch, chains, &mut scratch.prefixes);
                    }
                }
                started = true;
            }
        }
        let steps: usize = sections.iter().map(|section| section.places.len()).sum();
        for chain in chains {
            recurrence(lanes, started).end(packed.terms.len() * steps, chain);
            if self.projection.stored != Format::F32 {
                round_to(self.projection.stored, chain);
            }
        }
    }
}

/// Continues the chains of every output.
#[inline(always)]
fn all_outputs<V: Lanes, R: Recurrence<V>>(
    recurrence: R,
    stretch: Stretch<'_>,
    chains: &mut [State],
    prefixes: &mut [Doubles],
) {
    match R::OUTPUTS {
        4 => some_outputs::<V, R, 4>(recurrence, stretch, chains, prefixes),
        2 => some_outputs::<V, R, 2>(recurrence, stretch, chains, prefixes),
        _ => some_outputs::<V, R, 1>(recurrence, stretch, chains, prefixes),
    }
}

/// The same, `O` outputs at a time.
#[inline(always)]
fn some_outputs<V: Lanes, R: Recurrence<V>, const O: usize>(
    recurrence: R,
    stretch: Stretch<'_>,
    chains: &mut [State],
    prefixes: &mut [Doubles],
) {
    let (groups, rest) = chains.as_chunks_mut::<O>();
    let first_of_rest = groups.len() * O;
    for (group, chains) in groups.iter_mut().enumerate() {
        recurrence.run(stretch, group * O, chains, prefixes);
    }
    for (n, chain) in rest.iter_mut().enumerate() {
        recurrence.run(
            stretch,
            first_of_rest + n,
            std::array::from_mut(chain),
            prefixes,
        );
    }
}

/// The rounding to nearest of a stored partial result.
fn round_to(format: Format, state: &mut State) {
    for lane in 0..TOKENS {
        let bound = &mut state.bound.0[lane];
        let ulp = format.ulp_at(state.sum.0[lane].abs() + *bound);
        *bound += 0.5 * ulp;
        state.ulps_squared.0[lane] += ulp * ulp;
    }
}
