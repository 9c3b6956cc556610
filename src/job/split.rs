//! Which part of a run has which of its cases.
//!
//! The cases of a suite are dealt out in blocks that follow each other, so that a part reads few layers; what does not
//! divide goes to the parts in turn, where the suite before has left off. The same list and the same number of parts
//! give the same blocks everywhere.

use crate::report::part::{CaseName, Share};

/// The cases of one part, in order.
#[must_use]
pub fn share_of(cases: &[CaseName], share: Share) -> Vec<CaseName> {
    let parts = usize::try_from(share.of).unwrap_or(usize::MAX).max(1);
    let mut own = Vec::new();
    // The part that the next suite begins with.
    let mut first = 0;
    for suite in cases.chunk_by(|a, b| a.suite == b.suite) {
        for (index, case) in suite.iter().enumerate() {
            let part = match suite.len() < parts {
                true => (first + index) % parts,
                false => (first + index * parts / suite.len()) % parts,
            };
            if part as u64 + 1 == share.number {
                own.push(case.clone());
            }
        }
        first = (first + suite.len()) % parts;
    }
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cases(suites: &[(&str, usize)]) -> Vec<CaseName> {
        let of_suite = |&(suite, count): &(&str, usize)| {
            let suite = suite.to_owned();
            (0..count).map(move |number| CaseName {
                suite: suite.clone(),
                place: number.to_string(),
            })
        };
        suites.iter().flat_map(of_suite).collect()
    }

    #[test]
    fn every_case_is_of_one_part_and_parts_are_of_a_size() {
        for counts in [[86, 1, 3], [0, 1, 1], [5, 4, 7], [1, 0, 0], [86, 16, 21]] {
            let cases = cases(&[
                ("mix", counts[0]),
                ("chain", counts[1]),
                ("indexer", counts[2]),
            ]);
            for of in 1..=9 {
                let parts: Vec<_> = (1..=of)
                    .map(|number| share_of(&cases, Share { number, of }))
                    .collect();
                let mut all = parts.concat();
                all.sort();
                let mut expected = cases.clone();
                expected.sort();
                assert_eq!(all, expected, "{counts:?} in {of}");
                let sizes = parts.iter().map(Vec::len);
                let (least, most) = (sizes.clone().min(), sizes.max());
                assert!(most <= least.map(|least| least + 3), "{counts:?} in {of}");
            }
        }
    }

    #[test]
    fn what_does_not_divide_goes_on_where_the_suite_before_left_off() {
        let cases = cases(&[("chain", 1), ("indexer", 3)]);
        let share = |number| {
            let own = share_of(&cases, Share { number, of: 4 });
            own.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(share(1), ["chain 0"]);
        assert_eq!(share(2), ["indexer 0"]);
        assert_eq!(share(4), ["indexer 2"]);
    }

    #[test]
    fn a_part_has_neighbouring_sites() {
        let cases = cases(&[("mix", 8)]);
        let own = share_of(&cases, Share { number: 2, of: 4 });
        let places: Vec<&str> = own.iter().map(|case| case.place.as_str()).collect();
        assert_eq!(places, ["2", "3"]);
    }
}
