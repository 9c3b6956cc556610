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
    /// How partial results are joined; what chain 0 holds in the end is the output.
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

    /// That every index exists; the reason if one does not.
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
        match self
            .additions
            .iter()
            .find(|a| a.into >= count || a.from >= count || a.into == a.from)
        {
            Some(addition) => Err(format!(
                "partial result {} is added to {}; with {count} chains both must be below {count} \
                 and not the same",
                addition.from, addition.into
            )),
            None => Ok(()),
        }
    }
}
