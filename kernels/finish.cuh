// The end of a projection: how partial sums add up, and what becomes of the sum.
//
// Macros from the host: PARTIALS, OUTPUT and SCALED, the storage of a partial sum, of dot and of mixes; NORM_BEFORE.
#pragma once
#include "common.cuh"

// The sum with one more partial sum, s ascending; the first stands alone.
__device__ __forceinline__ float first_partial(float partial) { return stored<PARTIALS>(partial); }
__device__ __forceinline__ float add_partial(float sum, float partial) {
    return __fadd_rn(sum, stored<PARTIALS>(partial));
}

// The whole sum as dot, rounded to OUTPUT.
__device__ __forceinline__ float dot_of(float sum) { return stored<OUTPUT>(sum); }

// mixes of a dot: times rms, rounded to SCALED, or dot itself where x was normalised first.
__device__ __forceinline__ float mixes_of(float dot, float rms) {
#if NORM_BEFORE
    return dot;
#else
    return stored<SCALED>(__fmul_rn(dot, rms));
#endif
}
