//! The non-finite contract: what NaN and infinities do to a measure.
//!
//! | got, reference | counted as | effect |
//! |---|---|---|
//! | both finite | compared | enters every sum |
//! | the same infinity | `inf_got`, `inf_ref` | left out of the sums: it is right, and has no distance |
//! | both NaN | `nan_got`, `nan_ref` | NaN: without a truth there is no error to vouch for |
//! | one NaN | the same, and `class_mismatch` | NaN |
//! | an infinity and a finite number, or opposite infinities | `class_mismatch` | +Inf |
//!
//! NaN outranks +Inf. Either one replaces every measure of the stage, so that no limit of the form
//! `!(measure <= limit)` can pass because the rest of the tensor was good.

use super::{
    fold::nan_max,
    sample::Sample,
    ulp::{floor_log2, power_of_two},
};

/// How one element's classes relate.
enum Pairing {
    Compared,
    MatchedInfinity,
    /// A mismatch between an infinity and anything else that is a number.
    Infinite,
    /// A NaN on either side.
    NotANumber {
        mismatch: bool,
    },
}

fn pairing(got: f64, reference: f64) -> Pairing {
    if got.is_nan() || reference.is_nan() {
        Pairing::NotANumber {
            mismatch: got.is_nan() != reference.is_nan(),
        }
    } else if got.is_finite() && reference.is_finite() {
        Pairing::Compared
    } else if got == reference {
        Pairing::MatchedInfinity
    } else {
        Pairing::Infinite
    }
}

/// Whether an element enters the sums.
#[inline(always)]
pub(super) fn is_compared(got: f64, reference: f64) -> bool {
    got.is_finite() && reference.is_finite()
}

/// The classes found in a pair of tensors.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Screen {
    pub(super) nan_got: u64,
    pub(super) nan_ref: u64,
    pub(super) inf_got: u64,
    pub(super) inf_ref: u64,
    pub(super) class_mismatch: u64,
    /// What replaces every measure, and the first element that is the reason.
    pub(super) poison: Option<Poison>,
    /// The largest finite magnitude on either side.
    largest: f64,
}

/// The value that a non-finite element leaves of a measure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Poison {
    pub(super) value: f64,
    pub(super) culprit: Element,
}

impl Poison {
    /// NaN outranks infinity, and of equals the first counts.
    fn is_outranked_by(self, value: f64) -> bool {
        value.is_nan() && !self.value.is_nan()
    }
}

/// One element of a pair of tensors.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Element {
    /// Its index in the flattened tensor.
    pub(super) index: u64,
    pub(super) got: f64,
    pub(super) reference: f64,
}

impl Screen {
    /// The classes in a block whose first element is number `offset` of the tensor.
    #[inline(always)]
    pub(super) fn of<G: Sample, R: Sample>(
        got: Screened<'_, G>,
        reference: Screened<'_, R>,
        offset: u64,
    ) -> Self {
        match (got.largest, reference.largest) {
            (Some(got), Some(reference)) => Self {
                largest: nan_max(got, reference),
                ..Self::default()
            },
            _ => Self::element_by_element(got.values, reference.values, offset),
        }
    }

    /// Takes in what was found in a later block.
    pub(super) fn join(&mut self, later: &Self) {
        self.nan_got += later.nan_got;
        self.nan_ref += later.nan_ref;
        self.inf_got += later.inf_got;
        self.inf_ref += later.inf_ref;
        self.class_mismatch += later.class_mismatch;
        self.largest = nan_max(self.largest, later.largest);
        if let Some(poison) = later.poison {
            self.add_poison(poison);
        }
    }

    fn add_poison(&mut self, new: Poison) {
        if self.poison.is_none_or(|old| old.is_outranked_by(new.value)) {
            self.poison = Some(new);
        }
    }

    /// Whether every element on both sides is finite.
    pub(super) fn all_finite(&self) -> bool {
        self.nan_got + self.nan_ref + self.inf_got + self.inf_ref == 0
    }

    #[cold]
    #[inline(never)]
    fn element_by_element<G: Sample, R: Sample>(got: &[G], reference: &[R], offset: u64) -> Self {
        let mut screen = Self::default();
        for (index, (g, r)) in (offset..).zip(got.iter().zip(reference)) {
            screen.add(Element {
                index,
                got: g.widen(),
                reference: r.widen(),
            });
        }
        screen
    }

    fn add(&mut self, element: Element) {
        let (g, r) = (element.got, element.reference);
        self.nan_got += u64::from(g.is_nan());
        self.nan_ref += u64::from(r.is_nan());
        self.inf_got += u64::from(g.is_infinite());
        self.inf_ref += u64::from(r.is_infinite());
        let (value, mismatch) = match pairing(g, r) {
            Pairing::Compared => {
                self.largest = nan_max(self.largest, nan_max(g.abs(), r.abs()));
                return;
            }
            Pairing::MatchedInfinity => return,
            Pairing::Infinite => (f64::INFINITY, true),
            Pairing::NotANumber { mismatch } => (f64::NAN, mismatch),
        };
        self.class_mismatch += u64::from(mismatch);
        self.add_poison(Poison {
            value,
            culprit: element,
        });
    }

    /// Whether no finite element differs from zero: there is nothing that a scale could matter to.
    pub(super) fn is_zero(&self) -> bool {
        self.largest == 0.0
    }

    /// A power of two that keeps sums of squares inside f64's range.
    ///
    /// It is 1 unless the largest magnitude is beyond 2^±400, which nothing made of f32 numbers
    /// and their products is.
    pub(super) fn scale(&self) -> f64 {
        let exponent = floor_log2(self.largest);
        if self.largest == 0.0 || (-400..=400).contains(&exponent) {
            1.0
        } else {
            power_of_two((-exponent).clamp(-1022, 1022))
        }
    }
}

/// One side of a block, looked at once however many others it is paired with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Screened<'a, G> {
    pub(super) values: &'a [G],
    /// The largest magnitude, or `None` if anything is not finite.
    largest: Option<f64>,
}

impl<'a, G: Sample> Screened<'a, G> {
    #[inline(always)]
    pub(super) fn new(values: &'a [G]) -> Self {
        Self {
            values,
            largest: G::largest_if_finite(values),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen<G: Sample, R: Sample>(got: &[G], reference: &[R], offset: u64) -> Screen {
        Screen::of(Screened::new(got), Screened::new(reference), offset)
    }

    #[test]
    fn scale_is_one_for_anything_born_in_f32() {
        for x in [0.0, 1.0, f32::MAX, f32::from_bits(1)] {
            assert_eq!(screen(&[x], &[f64::from(x)], 0).scale(), 1.0, "{x}");
        }
        let product = f64::from(f32::from_bits(1)) * f64::from(f32::from_bits(1));
        assert_eq!(screen(&[product], &[0.0], 0).scale(), 1.0);
        assert_eq!(
            screen(&[2.0_f64.powi(600)], &[0.0], 0).scale(),
            2.0_f64.powi(-600)
        );
    }

    #[test]
    fn nan_outranks_infinity_wherever_it_is() {
        for got in [[f64::NAN, f64::INFINITY], [f64::INFINITY, f64::NAN]] {
            let whole = screen(&got, &[1.0, 1.0], 0);
            let mut joined = screen(&got[..1], &[1.0], 0);
            joined.join(&screen(&got[1..], &[1.0], 1));
            for found in [whole, joined] {
                let poison = found.poison.expect("a mismatch poisons");
                assert!(poison.value.is_nan());
                assert!(poison.culprit.got.is_nan());
                assert!(got[poison.culprit.index as usize].is_nan());
                assert_eq!(found.class_mismatch, 2);
            }
        }
    }
}
