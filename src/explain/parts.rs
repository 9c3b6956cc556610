//! How large an error is, which part of it is which rounding, whether it has a direction, and how much of what the
//! arithmetic can be off by it is.

use super::words::{error, percent};
use crate::report::{
    Record,
    number::share,
    summary::{mean, median, values, worst},
};

/// The numbers of one row, or what those of many come to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parts {
    pub rel_l2: Option<f64>,
    pub operand: Option<f64>,
    pub arith: Option<f64>,
    pub slope: Option<f64>,
    pub bound: Option<f64>,
}

impl Parts {
    pub fn of(record: &Record) -> Self {
        Self {
            rel_l2: record.measures.value("rel_l2"),
            operand: record.measures.value("operand_rel_l2"),
            arith: record.measures.value("arith_rel_l2"),
            slope: record.measures.value("slope"),
            bound: record.measures.value("bound_ratio"),
        }
    }

    /// Medians, the mean slope and the worst bound, as the tables have them.
    pub fn over(rows: &[&Record]) -> Self {
        let middle = |name| median(values(rows, name));
        Self {
            rel_l2: middle("rel_l2"),
            operand: middle("operand_rel_l2"),
            arith: middle("arith_rel_l2"),
            slope: mean(&values(rows, "slope")),
            bound: worst(rows, "bound_ratio").map(|worst| worst.value),
        }
    }

    /// Everything that can be said of them, a sentence each.
    pub fn sentences(&self) -> Vec<String> {
        [self.roundings(), self.direction(), self.within_bound()]
            .into_iter()
            .flatten()
            .collect()
    }

    /// Which part is the operands' rounding.
    fn roundings(&self) -> Option<String> {
        let (operand, arith) = (self.operand?, self.arith?);
        let of_numbers = format!(
            "rounding the operands costs {} (operand_rel_l2), the unit, the order of its sums and the storage of what they \
             come to {} (arith_rel_l2)",
            error(operand),
            error(arith)
        );
        let whole = operand * operand + arith * arith;
        if !whole.is_finite() || whole == 0.0 {
            return Some(format!("Which rounding it is: {of_numbers}."));
        }
        let of_square = percent(operand * operand / whole);
        Some(format!(
            "Which rounding it is: {of_numbers}. Of the square of the two, {of_square} is the operands'."
        ))
    }

    /// Whether it has a direction. (g−r) is slope·r and something at right angles to r, so that slope²/rel_l2² is a share.
    fn direction(&self) -> Option<String> {
        let (slope, rel_l2) = (self.slope?, self.rel_l2?);
        if !slope.is_finite() || !rel_l2.is_finite() {
            return Some(format!("Its direction: slope {}.", error(slope)));
        }
        if rel_l2 == 0.0 || slope == 0.0 {
            return None;
        }
        let systematic = (slope * slope / (rel_l2 * rel_l2)).min(1.0);
        let way = if slope < 0.0 { "small" } else { "large" };
        let size = error(slope.abs());
        let of_square = percent(systematic);
        Some(match systematic >= SYSTEMATIC {
            true => format!(
                "It is systematic: everything comes out {size} too {way} (slope), which is {of_square} of its square. That \
                 part has one sign and adds up; the rest goes either way."
            ),
            false => format!(
                "It goes either way: what has one sign (everything {size} too {way}, slope) is {of_square} of its square."
            ),
        })
    }

    /// How much of what the arithmetic can be off by it is.
    fn within_bound(&self) -> Option<String> {
        let bound = self.bound?;
        let is_rounding = bound <= 1.0;
        Some(match is_rounding {
            true => format!(
                "A bug or rounding: the output that comes nearest takes {} of what this recipe's arithmetic can be off by at \
                 most (bound_ratio), so that nothing but rounding is needed to explain it.",
                share(bound)
            ),
            false => format!(
                "A bug or rounding: an output is off by {} times what this recipe's arithmetic can be off by at most \
                 (bound_ratio). No rounding explains that: it is a bug, or another recipe than the one named.",
                share(bound)
            ),
        })
    }
}

/// The share of an error's square from which on it is called systematic.
const SYSTEMATIC: f64 = 0.25;
