// The layer input: y[t,c] = sum_j pre[t,j] x[t,j,c].
//
//   x [T, HC, d] bf16 codes (X_BF16 = 1) or fp32      pre [T, HC] fp32      y [T, d] fp32, not rounded
//
// Macros from the host: HC, X_BF16, COLLAPSE_FMA.
//
// Tiles: a block takes one token and 256 columns, a thread one column.
//
// Order: j ascending from the first product; sums fused if COLLAPSE_FMA, else two roundings each.
#include "common.cuh"

#if X_BF16
typedef u16 X;
#else
typedef float X;
#endif

extern "C" __global__ void collapse(const X* __restrict__ x, const float* __restrict__ pre, float* __restrict__ y,
                                    int tokens, int width) {
    const int token = blockIdx.x, column = blockIdx.y * blockDim.x + threadIdx.x;
    if (column >= width) return;
    const X* streams = x + (long long)token * HC * width + column;
    const float* gates = pre + (long long)token * HC;
    float sum = __fmul_rn(gates[0], widen(streams[0]));
#pragma unroll
    for (int j = 1; j < HC; ++j) {
        float value = widen(streams[(long long)j * width]);
#if COLLAPSE_FMA
        sum = fmaf(value, gates[j], sum);
#else
        sum = __fadd_rn(sum, __fmul_rn(gates[j], value));
#endif
    }
    y[(long long)token * width + column] = sum;
}
