//! The element types a measure accepts.
//!
//! Widening to f64 is exact, so a stage stored in f32 and the same stage stored in f64 measure the
//! same.

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// An element of a measured tensor: `f32` or `f64`.
pub trait Sample: Copy + Send + Sync + sealed::Sealed {
    /// The same number in f64.
    fn widen(self) -> f64;
    /// Whether two elements are the same number with the same bits; every NaN counts as the same
    /// NaN, because payloads are not arithmetic.
    fn same_bits(self, other: Self) -> bool;
    /// The largest magnitude, 0 of nothing; `None` if anything is not finite.
    ///
    /// By the bits, which without their sign order as the magnitudes do, infinity and NaN last: the
    /// maximum of integers may be taken in any order, and so in vectors of any width.
    fn largest_if_finite(values: &[Self]) -> Option<f64>;
}

impl Sample for f32 {
    #[inline(always)]
    fn widen(self) -> f64 {
        f64::from(self)
    }

    #[inline(always)]
    fn same_bits(self, other: Self) -> bool {
        self.to_bits() == other.to_bits() || (self.is_nan() && other.is_nan())
    }

    #[inline(always)]
    fn largest_if_finite(values: &[Self]) -> Option<f64> {
        let mut largest = 0;
        for value in values {
            largest = largest.max(value.to_bits() & (u32::MAX >> 1));
        }
        (largest < Self::INFINITY.to_bits()).then(|| Self::from_bits(largest).widen())
    }
}

impl Sample for f64 {
    #[inline(always)]
    fn widen(self) -> f64 {
        self
    }

    #[inline(always)]
    fn same_bits(self, other: Self) -> bool {
        self.to_bits() == other.to_bits() || (self.is_nan() && other.is_nan())
    }

    #[inline(always)]
    fn largest_if_finite(values: &[Self]) -> Option<f64> {
        let mut largest = 0;
        for value in values {
            largest = largest.max(value.to_bits() & (u64::MAX >> 1));
        }
        (largest < Self::INFINITY.to_bits()).then(|| Self::from_bits(largest))
    }
}
