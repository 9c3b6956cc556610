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

// Adds AT_ONCE partial sums, each `size` after the one before it, or the `held` of them that are there.
template <bool ALL>
__device__ __forceinline__ void add_some(float& sum, const float* from, u32 size, bool begins, int held) {
    float some[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
        some[i] = ALL || i < held ? *from : 0.0f;
        from += size;
    }
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
        if (ALL || i < held) sum = begins && i == 0 ? first_partial(some[i]) : add_partial(sum, some[i]);
    }
}

extern "C" __global__ void finish(const float* __restrict__ partials, const float* __restrict__ rms,
                                  float* __restrict__ dot, float* __restrict__ mixes, int tokens, int outputs,
                                  int splits) {
    let_next_kernel_begin();
    // What a thread takes is known before the kernel ahead is done; a division of 32 bits is a fraction of one of 64.
    const u32 size = (u32)tokens * (u32)outputs, index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= size) return;
    const float* own = partials + index;
    const float* own_rms = rms + index / (u32)outputs;
    await_kernel_ahead();
    const float factor = *own_rms;
    float sum = 0.0f;
    for (int split = 0; split < splits; split += AT_ONCE) {
        if (splits - split >= AT_ONCE)
            add_some<true>(sum, own, size, split == 0, AT_ONCE);
        else
            add_some<false>(sum, own, size, split == 0, splits - split);
        own += (long long)AT_ONCE * size;
    }
    const float value = dot_of(sum);
    dot[index] = value;
    mixes[index] = mixes_of(value, factor);
}
