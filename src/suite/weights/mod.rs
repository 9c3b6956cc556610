//! Two checkpoints of one model: which weights differ, by how much, and what that alone does.
//!
//! Everything is fp64, so that no kernel is in the figures: the weights of B take the place of those of A, at the same
//! inputs and with A's constants. What a difference does to the mixes is in [`mixing`], what it does to the keys that
//! attention selects in [`selection`].

pub mod mixing;
pub mod selection;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use rayon::prelude::*;

use crate::checkpoint::{Checkpoint, CheckpointError, Content, Group, Item};

/// How far values are from others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distance {
    /// ‖b − a‖₂ / ‖a‖₂: 0 where nothing differs, +inf where only a is zero.
    pub rel_l2: f64,
    /// The largest |b − a|; NaN if one is.
    pub max_abs: f64,
    /// How many values have other bits.
    pub changed: u64,
    /// How many there are.
    pub values: u64,
}

impl Distance {
    /// From `a` to `b`, as many values each. Equal values are no distance, be they NaN or infinite.
    pub fn between<T: Copy + Into<f64>>(
        a: impl IntoIterator<Item = T>,
        b: impl IntoIterator<Item = T>,
    ) -> Self {
        let (mut squares, mut scale, mut max_abs) = (0.0, 0.0, 0.0_f64);
        let (mut changed, mut values) = (0, 0);
        for (a, b) in a.into_iter().zip(b) {
            let (a, b): (f64, f64) = (a.into(), b.into());
            values += 1;
            scale += if a.is_finite() { a * a } else { 0.0 };
            if a.to_bits() == b.to_bits() {
                continue;
            }
            changed += 1;
            let gap = (b - a).abs();
            squares += gap * gap;
            // A NaN is larger than any number, and stays.
            if !(gap <= max_abs || max_abs.is_nan()) {
                max_abs = gap;
            }
        }
        Self {
            rel_l2: if squares == 0.0 {
                0.0
            } else {
                (squares / scale).sqrt()
            },
            max_abs,
            changed,
            values,
        }
    }
}

/// A tensor that both have, and that is not the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// In A.
    pub a: Item,
    /// In B.
    pub b: Item,
    /// What differs.
    pub difference: Difference,
}

/// How two tensors of one name differ.
#[derive(Clone, Debug, PartialEq)]
pub enum Difference {
    /// In values.
    Values(Distance),
    /// In shape, so that values cannot be compared.
    Shape,
    /// In bytes that are not decoded on one side.
    Undecoded,
    /// One has no block scales, so that its values are not known.
    NoScales {
        /// `A` or `B`.
        of: &'static str,
    },
}

impl Change {
    /// What the worst comes first by: other shapes, then what cannot be compared, NaN, and the relative distance.
    fn badness(&self) -> (u8, f64) {
        match &self.difference {
            Difference::Shape => (3, 0.0),
            Difference::Undecoded | Difference::NoScales { .. } => (2, 0.0),
            Difference::Values(distance) if distance.rel_l2.is_nan() => (1, 0.0),
            Difference::Values(distance) => (0, distance.rel_l2),
        }
    }
}

/// What the tensors of two checkpoints have in common.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// Tensors of equal values and type.
    pub equal: usize,
    /// Tensors of equal values, stored as another type.
    pub recoded: usize,
    /// Those that differ, the worst first.
    pub changes: Vec<Change>,
    /// Those that only A has.
    pub only_a: Vec<Item>,
    /// Those that only B has.
    pub only_b: Vec<Item>,
}

/// Compares the tensors of interest that `admits` is true of, by their official names. Block scales are compared with
/// the weights that they belong to.
///
/// # Errors
/// A tensor that cannot be read.
pub fn compare(
    a: &Checkpoint,
    b: &Checkpoint,
    admits: &(dyn Fn(Group) -> bool + Sync),
) -> Result<Comparison, CheckpointError> {
    let (ours, mut theirs) = (listed(a, admits), listed(b, admits));
    let (mut both, mut only_a) = (Vec::new(), Vec::new());
    for (name, item) in ours {
        match theirs.remove(&name) {
            Some(other) => both.push((item, other)),
            None => only_a.push(item),
        }
    }
    let compared: Vec<Outcome> = both
        .into_par_iter()
        .map(|(item, other)| compare_one(a, b, item, other))
        .collect::<Result<_, _>>()?;
    let mut comparison = Comparison {
        only_a,
        only_b: theirs.into_values().collect(),
        ..Comparison::default()
    };
    for outcome in compared {
        match outcome {
            Outcome::Equal => comparison.equal += 1,
            Outcome::Recoded => comparison.recoded += 1,
            Outcome::Changed(change) => comparison.changes.push(*change),
        }
    }
    // Names of equal badness stay in order.
    let worst_first = |x: &Change, y: &Change| {
        let ((x, near), (y, far)) = (x.badness(), y.badness());
        y.cmp(&x).then(far.total_cmp(&near))
    };
    comparison.changes.sort_by(worst_first);
    Ok(comparison)
}

fn listed(checkpoint: &Checkpoint, admits: &dyn Fn(Group) -> bool) -> BTreeMap<String, Item> {
    let inventory = checkpoint.inventory();
    let items = inventory.items.into_iter().chain(inventory.mtp);
    items
        .filter(|item| admits(item.group) && !checkpoint.is_scale(item))
        .map(|item| (item.official.clone(), item))
        .collect()
}

enum Outcome {
    Equal,
    Recoded,
    Changed(Box<Change>),
}

fn compare_one(
    in_a: &Checkpoint,
    in_b: &Checkpoint,
    a: Item,
    b: Item,
) -> Result<Outcome, CheckpointError> {
    let difference = if a.shape == b.shape {
        match (in_a.content(&a)?, in_b.content(&b)?) {
            (Content::Values(x), Content::Values(y)) => {
                let distance = Distance::between(x, y);
                (distance.changed > 0).then_some(Difference::Values(distance))
            }
            (Content::Bytes(x), Content::Bytes(y)) if x == y => None,
            // The same type is decoded on one side for its scales alone.
            (Content::Values(_), Content::Bytes(_)) if a.dtype == b.dtype => {
                Some(Difference::NoScales { of: "B" })
            }
            (Content::Bytes(_), Content::Values(_)) if a.dtype == b.dtype => {
                Some(Difference::NoScales { of: "A" })
            }
            _ => Some(Difference::Undecoded),
        }
    } else {
        Some(Difference::Shape)
    };
    Ok(match difference {
        Some(difference) => Outcome::Changed(Box::new(Change { a, b, difference })),
        None if a.dtype == b.dtype => Outcome::Equal,
        None => Outcome::Recoded,
    })
}
