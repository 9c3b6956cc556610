//! AVX2 and FMA: two registers for sixteen lanes.
//!
//! Each method wraps a few intrinsics. The wrapper is safe because its receiver exists only where
//! [`Avx2::detect`] found the instructions.
#![allow(unsafe_code)]

use std::arch::x86_64::{
    __m256, _CMP_LT_OQ, _mm256_add_ps, _mm256_blendv_ps, _mm256_cmp_ps, _mm256_div_ps,
    _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_mul_ps, _mm256_set1_ps, _mm256_storeu_ps,
};

use ulpdrift_reference::simd::Level;

use super::{Lane, Task, Vector};

/// Proof that the processor runs [`Level::Avx2`].
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

impl Avx2 {
    /// The proof, if it is true.
    pub(super) fn detect() -> Option<Self> {
        Level::Avx2.is_available().then_some(Self(()))
    }

    /// Runs `task`, compiled for this instruction set.
    pub(super) fn run<T: Task>(self, task: T) -> T::Output {
        #[target_feature(enable = "avx2,fma")]
        fn with_features<T: Task>(task: T, vector: Avx2) -> T::Output {
            task.run(vector)
        }
        // SAFETY: `self` proves that the processor has these features.
        unsafe { with_features(task, self) }
    }
}

impl Vector for Avx2 {
    type Real = [__m256; 2];
    const ACCUMULATORS: usize = 6;

    #[inline(always)]
    fn load(self, from: &Lane) -> Self::Real {
        // SAFETY: the reference covers two vectors, and `self` proves the instructions.
        unsafe {
            [
                _mm256_loadu_ps(from.as_ptr()),
                _mm256_loadu_ps(from.as_ptr().add(8)),
            ]
        }
    }

    #[inline(always)]
    fn store(self, from: Self::Real, to: &mut Lane) {
        // SAFETY: the reference covers two vectors, and `self` proves the instructions.
        unsafe {
            _mm256_storeu_ps(to.as_mut_ptr(), from[0]);
            _mm256_storeu_ps(to.as_mut_ptr().add(8), from[1]);
        }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Self::Real {
        // SAFETY: `self` proves that the processor has the instructions.
        [unsafe { _mm256_set1_ps(x) }; 2]
    }

    #[inline(always)]
    fn add(self, a: Self::Real, b: Self::Real) -> Self::Real {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn multiply(self, a: Self::Real, b: Self::Real) -> Self::Real {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn divide(self, a: Self::Real, b: Self::Real) -> Self::Real {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { [_mm256_div_ps(a[0], b[0]), _mm256_div_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn fma(self, a: Self::Real, b: Self::Real, c: Self::Real) -> Self::Real {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe {
            [
                _mm256_fmadd_ps(a[0], b[0], c[0]),
                _mm256_fmadd_ps(a[1], b[1], c[1]),
            ]
        }
    }

    #[inline(always)]
    fn at_least(self, x: Self::Real, floor: Self::Real) -> Self::Real {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe {
            let [below_low, below_high] = [
                _mm256_cmp_ps::<_CMP_LT_OQ>(x[0], floor[0]),
                _mm256_cmp_ps::<_CMP_LT_OQ>(x[1], floor[1]),
            ];
            [
                _mm256_blendv_ps(x[0], floor[0], below_low),
                _mm256_blendv_ps(x[1], floor[1], below_high),
            ]
        }
    }
}
