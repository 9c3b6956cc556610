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
}
