//! The instruction that asks for a cache line ahead of time.
#![allow(unsafe_code)]

use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};

/// Asks for the line of `x`.
#[inline(always)]
pub(super) fn into_second_level(x: &f32) {
    // SAFETY: SSE is part of x86-64, and a prefetch reads nothing that the program can see.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(std::ptr::from_ref(x).cast()) }
}
