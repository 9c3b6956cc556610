// From the partial sums to dot and mixes.
//
//   partials [S, T, N] fp32      rms [T] fp32      dot, mixes [T, N] fp32
//
// Macros from the host: those of finish.cuh; AT_ONCE, partial sums on their way at once: the additions wait for one
// another, the loads do not.
//
// Tiles: a thread per output.
//
// Order: s ascending from the first partial sum, each rounded to PARTIALS; the sum rounded to OUTPUT is dot; mixes is
// dot times rms rounded to SCALED, or dot itself where x was normalised first.
#include "finish.cuh"

extern "C" __global__ void finish(const float* __restrict__ partials, const float* __restrict__ rms,
                                  float* __restrict__ dot, float* __restrict__ mixes, int tokens, int outputs,
                                  int splits) {
    let_next_kernel_begin();
    await_kernel_ahead();
    const long long size = (long long)tokens * outputs;
    const long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= size) return;
    const float factor = rms[index / outputs];
    float sum = 0.0f;
    for (int split = 0; split < splits; split += AT_ONCE) {
        float next[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) next[i] = split + i < splits ? partials[(split + i) * size + index] : 0.0f;
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            if (split + i < splits) sum = split + i == 0 ? first_partial(next[i]) : add_partial(sum, next[i]);
        }
    }
    const float value = dot_of(sum);
    dot[index] = value;
    mixes[index] = mixes_of(value, factor);
}
