//! The largest scores of a row, in an order that leaves nothing open.
//!
//! Descending score, equal scores by ascending index. −0 equals +0. A NaN stands behind every number, −∞
//! included, and NaNs are equal to each other: none is taken while a number is left. Nothing is sorted but the keys that are taken:
//! the cut is found by selection, in time proportional to the row.
//!
//! One order for the fp64 truth and for a candidate's fp32 scores; knows nothing of who asks.

/// A score that can be ranked.
pub trait Score: Copy {
    /// An integer of the same order.
    type Rank: Ord + Copy;

    /// The score's rank: larger is better, zeros are equal, every NaN is the least.
    fn rank(self) -> Self::Rank;
}

impl Score for f32 {
    type Rank = u32;

    #[inline(always)]
    fn rank(self) -> u32 {
        let bits = (self + 0.0).to_bits(); // −0 + 0 is +0
        let sign = 1 << 31;
        match bits {
            _ if self.is_nan() => 0,
            _ if bits & sign != 0 => !bits,
            _ => bits | sign,
        }
    }
}

impl Score for f64 {
    type Rank = u64;

    #[inline(always)]
    fn rank(self) -> u64 {
        let bits = (self + 0.0).to_bits();
        let sign = 1 << 63;
        match bits {
            _ if self.is_nan() => 0,
            _ if bits & sign != 0 => !bits,
            _ => bits | sign,
        }
    }
}

/// A row of scores (fewer than 2³²) and its largest keys in order.
#[derive(Clone, Debug)]
pub struct Ranking<'a, S> {
    scores: &'a [S],
    order: Vec<u32>,
}

impl<'a, S: Score> Ranking<'a, S> {
    /// Ranks the `depth` largest of `scores`, or all if there are fewer.
    #[must_use]
    pub fn new(scores: &'a [S], depth: usize) -> Self {
        Self {
            scores,
            order: largest(scores, depth),
        }
    }

    /// The row.
    #[must_use]
    pub fn scores(&self) -> &'a [S] {
        self.scores
    }

    /// The keys of the `k` largest scores, best first; all that were ranked if those are fewer.
    #[must_use]
    pub fn top(&self, k: usize) -> &[u32] {
        &self.order[..k.min(self.order.len())]
    }

    /// The `k`-th largest score, counted from 1; `None` beyond what was ranked.
    #[must_use]
    pub fn at(&self, k: usize) -> Option<S> {
        let key = *self.order.get(k.checked_sub(1)?)?;
        Some(self.scores[key as usize])
    }

    /// How many scores of the row equal that of the last key of [`Self::top`]: more than are taken of
    /// them, and another rule for ties takes others.
    #[must_use]
    pub fn ties(&self, k: usize) -> u64 {
        let cut = self.top(k).last();
        cut.map_or(0, |&key| {
            let cut = self.scores[key as usize].rank();
            let equal = self.scores.iter().filter(|score| score.rank() == cut);
            equal.count() as u64
        })
    }

    /// The ranked keys, best first.
    #[must_use]
    pub fn into_order(self) -> Vec<u32> {
        self.order
    }
}

fn largest<S: Score>(scores: &[S], k: usize) -> Vec<u32> {
    let k = k.min(scores.len());
    if k == 0 {
        return Vec::new();
    }
    let mut pool: Vec<S::Rank> = scores.iter().map(|score| score.rank()).collect();
    let (_, &mut cut, above) = pool.select_nth_unstable(scores.len() - k);
    let mut room = k - above.iter().filter(|&&rank| rank > cut).count();
    let mut order = Vec::with_capacity(k);
    for (key, score) in (0..).zip(scores) {
        let rank = score.rank();
        let is_tie = rank == cut;
        if rank > cut || (is_tie && room > 0) {
            room -= usize::from(is_tie);
            order.push(key);
        }
    }
    // Stable: equal scores keep the ascending order they were found in.
    order.sort_by_key(|&key: &u32| std::cmp::Reverse(scores[key as usize].rank()));
    order
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use proptest::prelude::*;

    use super::*;

    /// By sorting the whole row with float comparisons.
    fn by_sorting(scores: &[f64], k: usize) -> Vec<u32> {
        let mut keys: Vec<u32> = (0..scores.len() as u32).collect();
        keys.sort_by(|&a, &b| {
            let (x, y) = (scores[a as usize], scores[b as usize]);
            let by_score = match (x.is_nan(), y.is_nan()) {
                (true, true) => Ordering::Equal,
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                (false, false) => y.partial_cmp(&x).expect("both are numbers"),
            };
            by_score.then(a.cmp(&b))
        });
        keys.truncate(k);
        keys
    }

    fn scores() -> impl Strategy<Value = Vec<f32>> {
        let score = prop_oneof![
            4 => -4.0..4.0_f32,
            4 => (0..4).prop_map(|x| x as f32),
            1 => prop_oneof![
                Just(f32::NAN),
                Just(-f32::NAN),
                Just(f32::INFINITY),
                Just(f32::NEG_INFINITY),
                Just(0.0),
                Just(-0.0),
                Just(f32::MIN),
                Just(f32::from_bits(1)),
            ],
            1 => any::<u32>().prop_map(f32::from_bits),
        ];
        proptest::collection::vec(score, 0..120)
    }

    proptest! {
        #[test]
        fn selection_equals_sorting(scores in scores(), k in 0..130_usize) {
            let wide: Vec<f64> = scores.iter().map(|&score| f64::from(score)).collect();
            let expected = by_sorting(&wide, k);
            let (narrow, wide) = (Ranking::new(&scores, k), Ranking::new(&wide, k));
            prop_assert_eq!(narrow.top(k), &expected[..]);
            prop_assert_eq!(wide.top(k), &expected[..]);
            prop_assert_eq!(narrow.ties(k), wide.ties(k));
        }
    }

    #[test]
    fn the_order_is_that_of_the_module_documentation() {
        let row = [
            f32::NAN,
            f32::NEG_INFINITY,
            -0.0,
            0.0,
            f32::INFINITY,
            -f32::NAN,
            1.0,
        ];
        let ranking = Ranking::new(&row, 7);
        assert_eq!(ranking.top(7), [4, 6, 2, 3, 1, 0, 5]);
        assert_eq!(
            [1, 2, 3, 4, 5, 6].map(|k| ranking.ties(k)),
            [1, 1, 2, 2, 1, 2]
        );
        assert_eq!((ranking.at(0), ranking.at(2)), (None, Some(1.0)));
        assert_eq!((ranking.at(8), ranking.ties(0)), (None, 0));
        assert_eq!(ranking.into_order().len(), 7);
    }
}
