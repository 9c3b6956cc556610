//! The numbers that every sentence carries, and where they are.

use std::collections::BTreeSet;

use super::{Evidence, INDEXER};
use crate::report::{
    Record,
    number::{plain, sci, share},
    summary::{at_stage, deepest_streams, mean, median, values, worst},
};

impl Evidence<'_> {
    /// How many sites, or layers of an indexer, the decisive stage was measured on.
    pub(super) fn sites(&self) -> String {
        let mut places: Vec<String> = at_stage(self.rows, self.kernel.decisive)
            .iter()
            .map(|record| record.key.place())
            .collect();
        places.sort_unstable();
        places.dedup();
        match (places.len(), self.kernel.suite == INDEXER.suite) {
            (1, false) => "1 site".to_owned(),
            (1, true) => "1 layer".to_owned(),
            (sites, false) => format!("{sites} sites"),
            (layers, true) => format!("{layers} layers"),
        }
    }

    /// The numbers every sentence carries.
    pub(super) fn facts(&self) -> Vec<String> {
        let Self { rows, chain, .. } = self;
        let stage = self.kernel.decisive;
        let decisive = at_stage(rows, stage);
        let mut facts = Vec::new();
        if let (Some(median), Some(high)) = (
            median(values(&decisive, "rel_l2")),
            worst(&decisive, "rel_l2"),
        ) {
            facts.push(format!(
                "{stage} rel_l2 median {}, worst {} ({})",
                sci(median, 3),
                sci(high.value, 3),
                high.record.key.place()
            ));
        }
        if let Some(streams) = worst(&deepest_streams(chain), "rel_l2").map(|worst| worst.record) {
            let get = |measure| streams.measures.value(measure);
            let layers = streams.key.depth.unwrap_or_default();
            let mut fact = format!(
                "streams rel_l2 {} after {layers} layers",
                get("rel_l2").map_or_else(|| "absent".to_owned(), |value| sci(value, 3))
            );
            if let Some(against) = get("against_rel_l2") {
                fact.push_str(&format!(
                    ", {} from the chain it is compared with",
                    sci(against, 2)
                ));
            }
            facts.push(fact);
        }
        if decisive.is_empty() {
            return facts;
        }
        facts.extend(self.selections());
        facts.push(match worst(rows, "bound_ratio") {
            Some(high) => format!("bound_ratio {}", share(high.value)),
            None => "without a bound, so that a bug cannot be told from rounding".to_owned(),
        });
        facts
    }

    /// The share of the true keys that an indexer selects, at every k, over all queries.
    fn selections(&self) -> Option<String> {
        let of_all = self
            .rows
            .iter()
            .filter(|row| row.key.query_set.as_deref() == Some("all"));
        let ks: BTreeSet<u32> = of_all.clone().filter_map(|row| row.key.k).collect();
        let at = |k: &u32| {
            let rows: Vec<&Record> = of_all
                .clone()
                .filter(|row| row.key.k == Some(*k))
                .copied()
                .collect();
            let recall = mean(&values(&rows, "recall"))?;
            let worst = worst(&rows, "recall_worst")?.value;
            Some(format!(
                "{} at {k} (worst {})",
                plain(recall, 4),
                plain(worst, 4)
            ))
        };
        let recalls: Vec<String> = ks.iter().filter_map(at).collect();
        (!recalls.is_empty()).then(|| format!("recall {}", recalls.join(", ")))
    }
}

/// The stage and place of a row.
pub(super) fn whereabouts(record: &Record) -> String {
    let stage = record.key.stage.as_deref().unwrap_or("output");
    let stage = match record.key.k {
        Some(k) => format!("{stage} {k}"),
        None => stage.to_owned(),
    };
    match record.key.place() {
        place if place.is_empty() => stage,
        place => format!("{stage} of {place}"),
    }
}
