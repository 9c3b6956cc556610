//! What several errors come to together, and how much of it each is.
//!
//! With r the truth and δᵢ the error that source i alone brings, over all elements of a stage:
//! ```text
//! signed part    sᵢ = ⟨δᵢ,r⟩ / ⟨r,r⟩                      a systematic shrink or growth
//! the rest       qᵢ² = ‖δᵢ‖² − sᵢ²·‖r‖²
//! predicted²     (Σ sᵢ)²·‖r‖² + Σ qᵢ²                     signed parts add up, the rest in quadrature
//! share          (sᵢ·Σ sⱼ·‖r‖² + qᵢ²) / predicted²        they sum to 1
//! cross term     2⟨δᵢ,δⱼ⟩ / measured²                     what quadrature leaves out of a pair
//! explained      predicted / measured
//! ```
//! measured is ‖Σ δᵢ‖ where the sources are all there is by construction, and ‖g − r‖ of a candidate that was run with
//! all of them otherwise. All sums are f64, element after element.

use super::value::Value;

/// The inner products of r and of every source's error.
#[derive(Clone, Debug, PartialEq)]
pub struct Products {
    /// Sources.
    count: usize,
    /// Row-major over r, then the sources; both halves.
    sums: Vec<f64>,
    /// ‖g − r‖² of a candidate with all sources.
    measured: Option<f64>,
}

/// What one source contributes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Contribution {
    /// ‖δ‖ / ‖r‖.
    pub rel_l2: Value,
    /// The signed part.
    pub slope: Value,
    /// Its share of the predicted square.
    pub share: Option<Value>,
}

/// What all of them come to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Total {
    /// Measured, over ‖r‖.
    pub rel_l2: Value,
    /// Sum of the signed parts.
    pub slope: Value,
    /// Predicted over measured; nothing where nothing is off.
    pub explained: Option<Value>,
}

impl Products {
    /// Of nothing yet.
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self {
            count,
            sums: vec![0.0; (count + 1) * (count + 1)],
            measured: None,
        }
    }

    /// Adds some elements: r, and of each source its error there.
    ///
    /// # Panics
    /// If there are not as many sources as were said, or their lengths differ.
    pub fn add(&mut self, reference: &[f64], errors: &[&[f64]]) {
        assert_eq!(errors.len(), self.count, "an error per source");
        let vectors: Vec<&[f64]> = std::iter::once(reference)
            .chain(errors.iter().copied())
            .collect();
        for (row, a) in vectors.iter().enumerate() {
            assert_eq!(a.len(), reference.len(), "errors are of the elements of r");
            for (column, b) in vectors.iter().enumerate().skip(row) {
                let sum: f64 = a.iter().zip(*b).map(|(a, b)| a * b).sum();
                self.sums[row * (self.count + 1) + column] += sum;
                if column != row {
                    self.sums[column * (self.count + 1) + row] += sum;
                }
            }
        }
    }

    /// Adds to ‖g − r‖² of a candidate that has all sources.
    pub fn add_measured(&mut self, square: f64) {
        *self.measured.get_or_insert(0.0) += square;
    }

    /// Adds the sums of other elements.
    ///
    /// # Panics
    /// If the sources differ in number.
    pub fn append(&mut self, later: &Self) {
        assert_eq!(self.count, later.count, "the same sources");
        for (sum, more) in self.sums.iter_mut().zip(&later.sums) {
            *sum += more;
        }
        if let Some(square) = later.measured {
            self.add_measured(square);
        }
    }

    fn of(&self, a: usize, b: usize) -> f64 {
        self.sums[a * (self.count + 1) + b]
    }

    fn reference(&self) -> f64 {
        self.of(0, 0)
    }

    /// The signed part of a source, counted from 1.
    fn signed(&self, source: usize) -> f64 {
        let along = self.of(0, source);
        if along == 0.0 {
            0.0
        } else {
            along / self.reference()
        }
    }

    fn rest(&self, source: usize) -> f64 {
        let signed = self.signed(source);
        at_least_0(self.of(source, source) - signed * signed * self.reference())
    }

    fn signed_sum(&self) -> f64 {
        (1..=self.count).map(|source| self.signed(source)).sum()
    }

    fn predicted(&self) -> f64 {
        let signed = self.signed_sum();
        let rest: f64 = (1..=self.count).map(|source| self.rest(source)).sum();
        signed * signed * self.reference() + rest
    }

    fn measured(&self) -> f64 {
        self.measured.unwrap_or_else(|| {
            let sources = 1..=self.count;
            let pairs = sources
                .clone()
                .flat_map(|a| sources.clone().map(move |b| (a, b)));
            at_least_0(pairs.map(|(a, b)| self.of(a, b)).sum())
        })
    }

    /// A norm over ‖r‖: 0 of nothing, whatever r is.
    fn relative(&self, square: f64) -> Value {
        Value(if square == 0.0 {
            0.0
        } else {
            (square / self.reference()).sqrt()
        })
    }

    /// What each source contributes, in their order.
    #[must_use]
    pub fn contributions(&self) -> Vec<Contribution> {
        let (predicted, signed) = (self.predicted(), self.signed_sum());
        let one = |source: usize| {
            let own = self.signed(source);
            let square = own * signed * self.reference() + self.rest(source);
            Contribution {
                rel_l2: self.relative(self.of(source, source)),
                slope: Value(own),
                share: (predicted != 0.0).then(|| Value(square / predicted)),
            }
        };
        (1..=self.count).map(one).collect()
    }

    /// The cross term of two sources, counted from 0, over the measured square; nothing where nothing is off.
    #[must_use]
    pub fn cross(&self, a: usize, b: usize) -> Option<Value> {
        let measured = self.measured();
        (measured != 0.0).then(|| Value(2.0 * self.of(a + 1, b + 1) / measured))
    }

    /// What they come to.
    #[must_use]
    pub fn total(&self) -> Total {
        let measured = self.measured();
        Total {
            rel_l2: self.relative(measured),
            slope: Value(self.signed_sum()),
            explained: (measured != 0.0).then(|| Value((self.predicted() / measured).sqrt())),
        }
    }
}

/// A square that rounding has made negative is 0; NaN stays.
fn at_least_0(square: f64) -> f64 {
    if square < 0.0 { 0.0 } else { square }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_is_never_a_good_number() {
        for error in [f64::NAN, f64::INFINITY] {
            let mut products = Products::new(2);
            products.add(&[1.0, 2.0], &[&[error, 0.0], &[0.1, 0.1]]);
            let total = products.total();
            assert!(!total.rel_l2.0.is_finite(), "{total:?}");
            assert!(!total.explained.expect("an error").0.is_finite());
            assert!(!products.contributions()[0].rel_l2.0.is_finite());
        }
    }

    /// r = (3, 4): one source shrinks it by a tenth, another is orthogonal to it.
    #[test]
    fn a_worked_example() {
        let mut products = Products::new(2);
        products.add(&[3.0, 4.0], &[&[-0.3, -0.4], &[0.4, -0.3]]);
        let [shrink, noise] = products.contributions()[..] else {
            panic!("two sources")
        };
        let near = |value: Value, expected: f64| (value.0 - expected).abs() < 1e-15;
        assert!(near(shrink.rel_l2, 0.1) && near(shrink.slope, -0.1));
        assert!(near(noise.rel_l2, 0.1) && near(noise.slope, 0.0));
        assert!(near(shrink.share.expect("a share"), 0.5));
        assert!(near(noise.share.expect("a share"), 0.5));
        let total = products.total();
        assert!(near(total.rel_l2, 0.02f64.sqrt()) && near(total.slope, -0.1));
        assert!(near(total.explained.expect("an error"), 1.0));
        assert!(near(products.cross(0, 1).expect("an error"), 0.0));
    }

    /// The same error from two sources is twice as large, where quadrature has √2: the cross term is the other half.
    #[test]
    fn what_quadrature_leaves_out_is_a_cross_term() {
        let mut products = Products::new(2);
        products.add(&[1.0, 1.0], &[&[0.1, -0.1], &[0.1, -0.1]]);
        let explained = products.total().explained.expect("an error").0;
        assert!((explained - 0.5f64.sqrt()).abs() < 1e-12, "{explained}");
        assert!((products.cross(0, 1).expect("an error").0 - 0.5).abs() < 1e-12);
    }

    #[test]
    fn signed_parts_add_up_linearly() {
        let mut products = Products::new(2);
        products.add(&[1.0, 2.0], &[&[0.1, 0.2], &[0.1, 0.2]]);
        let total = products.total();
        assert!((total.slope.0 - 0.2).abs() < 1e-15);
        assert!((total.explained.expect("an error").0 - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_candidate_is_what_the_sources_are_held_against() {
        let mut products = Products::new(1);
        products.add(&[1.0, 0.0], &[&[0.0, 0.1]]);
        products.add_measured(0.04);
        assert!((products.total().explained.expect("an error").0 - 0.5).abs() < 1e-12);
        assert!((products.total().rel_l2.0 - 0.2).abs() < 1e-12);
    }

    #[test]
    fn nothing_off_has_no_shares() {
        let mut products = Products::new(1);
        products.add(&[1.0], &[&[0.0]]);
        assert_eq!(products.total().explained, None);
        assert_eq!(products.contributions()[0].share, None);
        assert_eq!(products.total().rel_l2, Value(0.0));
    }
}
