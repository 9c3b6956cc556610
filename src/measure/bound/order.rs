//! In which order products become an output: chains of k ranges, and the additions that join them.

use std::ops::Range;

use crate::format::Format;

/// One fp32 addition of partial results: `partial[into] += partial[from]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addition {
    /// The partial result that takes the sum.
    pub into: usize,
    /// The partial result that is added.
    pub from: usize,
}

/// The order of operations of one output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The k ranges of each chain, in the order in which it takes them. Blocks do not cross ranges.
    pub chains: Vec<Vec<Range<usize>>>,
    /// The format partial results are rounded to before they are joined.
    pub stored: Format,
    /// How partial results are joined; each is added to another at most once, and what chain 0 holds
    /// in the end is the output.
    pub additions: Vec<Addition>,
}

impl Order {
    /// Contiguous splits, one chain each, stored in a format and summed in ascending order.
    #[must_use]
    pub fn splits(ranges: &[Range<usize>], stored: Format) -> Self {
        Self {
            stored,
            chains: ranges.iter().map(|range| vec![range.clone()]).collect(),
            additions: (1..ranges.len())
                .map(|from| Addition { into: 0, from })
                .collect(),
        }
    }

    /// Thread `t` of `threads` takes `k = t, t + threads, ...`; threads are joined by a tree that
    /// adds the upper half onto the lower half until one is left.
    #[must_use]
    pub fn strided(k: usize, threads: usize) -> Self {
        let chains = (0..threads)
            .map(|thread| {
                (thread..k)
                    .step_by(threads)
                    .map(|index| index..index + 1)
                    .collect()
            })
            .collect();
        let mut additions = Vec::new();
        let mut left = threads;
        while left > 1 {
            let half = left.div_ceil(2);
            additions.extend((half..left).map(|from| Addition {
                into: from - half,
                from,
            }));
            left = half;
        }
        Self {
            chains,
            stored: Format::F32,
            additions,
        }
    }

    /// What to do one after another so that few partial results are alive at a time: each is joined
    /// as soon as both sides are there. The result comes to stand in slot 0.
    pub(super) fn schedule(&self) -> Vec<Step> {
        let mut sums: Vec<Sum> = (0..self.chains.len()).map(Sum::Chain).collect();
        let mut latest: Vec<usize> = (0..sums.len()).collect();
        for &Addition { into, from } in &self.additions {
            sums.push(Sum::Of(latest[into], latest[from]));
            latest[into] = sums.len() - 1;
        }
        let mut steps = Vec::new();
        let mut pending = vec![Pending::Sum(latest[0], 0)];
        while let Some(next) = pending.pop() {
            match next {
                Pending::Step(step) => steps.push(step),
                Pending::Sum(sum, slot) => match sums[sum] {
                    Sum::Chain(chain) => steps.push(Step::Run { chain, slot }),
                    Sum::Of(into, from) => pending.extend([
                        Pending::Step(Step::Join { slot }),
                        Pending::Sum(from, slot + 1),
                        Pending::Sum(into, slot),
                    ]),
                },
            }
        }
        steps
    }

    /// That every index exists and no partial result is used twice; the reason if not.
    pub(super) fn check(&self, k: usize) -> Result<(), String> {
        if self.chains.is_empty() {
            return Err("it has no chain; at least one is needed".into());
        }
        for (chain, ranges) in self.chains.iter().enumerate() {
            if let Some(range) = ranges.iter().find(|r| r.start > r.end || r.end > k) {
                return Err(format!(
                    "chain {chain} takes k {}..{}; ranges must ascend and end at K",
                    range.start, range.end
                ));
            }
        }
        let count = self.chains.len();
        let mut added = vec![false; count];
        for &Addition { into, from } in &self.additions {
            if into >= count || from >= count || into == from {
                return Err(format!(
                    "partial result {from} is added to {into}; with {count} chains both must be \
                     below {count} and not the same"
                ));
            }
            if added[into] || added[from] {
                return Err(format!(
                    "partial result {from} is added to {into}, but one of them has been added to \
                     another before"
                ));
            }
            added[from] = true;
        }
        Ok(())
    }
}

/// A step of a schedule, in slots for partial results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Run a chain and keep what it gives.
    Run {
        /// Which chain.
        chain: usize,
        /// Where its result goes.
        slot: usize,
    },
    /// Add the next slot to this one.
    Join {
        /// Where the sum goes.
        slot: usize,
    },
}

impl Step {
    /// How many slots the step needs.
    pub(super) fn slots(&self) -> usize {
        match *self {
            Self::Run { slot, .. } => slot + 1,
            Self::Join { slot } => slot + 2,
        }
    }
}

/// How a partial result comes about.
enum Sum {
    /// By a chain.
    Chain(usize),
    /// By adding the second of two sums to the first.
    Of(usize, usize),
}

/// What is left to schedule.
enum Pending {
    Step(Step),
    /// A sum and its slot.
    Sum(usize, usize),
}
