// From the partial sums to dot and mixes.
//
//   partials [S, T, N] fp32      rms [T] fp32      dot, mixes [T, N] fp32
//
// Macros from the host: PARTIALS, OUTPUT and SCALED, the storage of a partial sum, of dot and of mixes;
// NORM_BEFORE.
//
// Tiles: a thread per output.
//
// Order: s ascending from the first partial sum, each rounded to PARTIALS; the sum rounded to OUTPUT is dot; mixes is
// dot times rms rounded to SCALED, or dot itself where x was normalised first.
#include "common.cuh"

// Partial sums on their way at once: the additions wait for one another, the loads do not.
#define AT_ONCE 21

extern "C" __global__ void finish(const float* __restrict__ partials, const float* __restrict__ rms,
                                  float* __restrict__ dot, float* __restrict__ mixes, int tokens, int outputs,
                                  int splits) {
    const long long size = (long long)tokens * outputs;
    const long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= size) return;
    float sum = stored<PARTIALS>(partials[index]);
    int split = 1;
    for (; split + AT_ONCE <= splits; split += AT_ONCE) {
        float next[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) next[i] = partials[(split + i) * size + index];
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) sum = __fadd_rn(sum, stored<PARTIALS>(next[i]));
    }
    for (; split < splits; ++split) sum = __fadd_rn(sum, stored<PARTIALS>(partials[split * size + index]));
    sum = stored<OUTPUT>(sum);
    dot[index] = sum;
#if NORM_BEFORE
    mixes[index] = sum;
#else
    mixes[index] = stored<SCALED>(__fmul_rn(sum, rms[index / outputs]));
#endif
}
