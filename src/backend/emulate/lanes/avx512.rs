//! AVX-512: one register for sixteen lanes.
//!
//! Each method wraps one or two intrinsics. The wrapper is safe because its receiver exists only
//! where [`Avx512::detect`] found the instructions.
#![allow(unsafe_code)]

use std::arch::x86_64::{
    __m512, _CMP_LT_OQ, _mm512_add_ps, _mm512_cmp_ps_mask, _mm512_div_ps, _mm512_fmadd_ps,
    _mm512_loadu_ps, _mm512_mask_blend_ps, _mm512_mul_ps, _mm512_set1_ps, _mm512_storeu_ps,
};

use ulpdrift_reference::simd::Level;

use super::{Lane, Task, Vector};

/// Proof that the processor runs [`Level::Avx512`].
#[derive(Clone, Copy)]
pub(super) struct Avx512(());

impl Avx512 {
    /// The proof, if it is true.
    pub(super) fn detect() -> Option<Self> {
        Level::Avx512.is_available().then_some(Self(()))
    }

    /// Runs `task`, compiled for this instruction set.
    pub(super) fn run<T: Task>(self, task: T) -> T::Output {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
        fn with_features<T: Task>(task: T, vector: Avx512) -> T::Output {
            task.run(vector)
        }
        // SAFETY: `self` proves that the processor has these features.
        unsafe { with_features(task, self) }
    }
}

impl Vector for Avx512 {
    type Real = __m512;
    const ACCUMULATORS: usize = 24;

    #[inline(always)]
    fn load(self, from: &Lane) -> Self::Real {
        // SAFETY: the reference covers 64 bytes, and `self` proves the instructions.
        unsafe { _mm512_loadu_ps(from.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, from: Self::Real, to: &mut Lane) {
        // SAFETY: the reference covers 64 bytes, and `self` proves the instructions.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), from) }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Self::Real {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    fn add(self, a: Self::Real, b: Self::Real) -> Self::Real {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    fn multiply(self, a: Self::Real, b: Self::Real) -> Self::Real {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn divide(self, a: Self::Real, b: Self::Real) -> Self::Real {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm512_div_ps(a, b) }
    }

    #[inline(always)]
    fn fma(self, a: Self::Real, b: Self::Real, c: Self::Real) -> Self::Real {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn at_least(self, x: Self::Real, floor: Self::Real) -> Self::Real {
        // SAFETY: `self` proves that the processor has the instructions.
        unsafe { _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(x, floor), x, floor) }
    }
}
