// The streams after the sublayer: next[t,k,c] = post[t,k] f[t,c] + sum_j comb[t,j,k] x[t,j,c].
//
//   x [T, HC, d] bf16 codes (X_BF16 = 1) or fp32: the streams that the layer input was made of
//   f [T, d] bf16 codes (F_BF16 = 1) or fp32: the sublayer's output
//   post [T, HC] fp32      comb [T, HC, HC] fp32, row-major      next [T, HC, d] fp32, not rounded
//
// The first index of comb is contracted: stream k gets column k.
//
// Macros from the host: HC, X_BF16, F_BF16; GATES, how post and comb are stored before they multiply (STORE_F32,
// STORE_BF16); ORDER; TERMS, how the two terms of ORDER_APART are stored; RECOMBINE_FMA.
//
// Tiles: a block takes one token and 256 columns, a thread one column of every stream.
//
// Order of the HC + 1 products of an element, j ascending, the first one rounded by itself:
//   ORDER_POST_FIRST     post f, then every comb x
//   ORDER_STREAM_FIRST   comb x of j = 0, post f, comb x from j = 1 on
//   ORDER_APART          every comb x; post f by itself; both stored as TERMS, then added
// A product and the sum it enters are fused if RECOMBINE_FMA, else two roundings each.
#include "common.cuh"

#define ORDER_POST_FIRST 0
#define ORDER_STREAM_FIRST 1
#define ORDER_APART 2

#if X_BF16
typedef u16 X;
#else
typedef float X;
#endif

#if F_BF16
typedef u16 F;
#else
typedef float F;
#endif

__device__ __forceinline__ float plus(float sum, float gate, float value) {
#if RECOMBINE_FMA
    return fmaf(value, gate, sum);
#else
    return __fadd_rn(sum, __fmul_rn(gate, value));
#endif
}

extern "C" __global__ void recombine(const X* __restrict__ x, const F* __restrict__ f, const float* __restrict__ post,
                                     const float* __restrict__ comb, float* __restrict__ next, int tokens, int width) {
    const int token = blockIdx.x, column = blockIdx.y * blockDim.x + threadIdx.x;
    if (column >= width) return;
    const X* streams = x + (long long)token * HC * width + column;
    float* out = next + (long long)token * HC * width + column;
    const float* row = comb + (long long)token * HC * HC;
    float value[HC];
#pragma unroll
    for (int j = 0; j < HC; ++j) value[j] = widen(streams[(long long)j * width]);
    const float output = widen(f[(long long)token * width + column]);
#pragma unroll
    for (int k = 0; k < HC; ++k) {
        const float gate = stored<GATES>(post[(long long)token * HC + k]);
        float sum = __fmul_rn(ORDER == ORDER_POST_FIRST ? gate : stored<GATES>(row[k]),
                              ORDER == ORDER_POST_FIRST ? output : value[0]);
        if (ORDER == ORDER_STREAM_FIRST) sum = plus(sum, gate, output);
#pragma unroll
        for (int j = ORDER == ORDER_POST_FIRST ? 0 : 1; j < HC; ++j) {
            sum = plus(sum, stored<GATES>(row[j * HC + k]), value[j]);
        }
        if (ORDER == ORDER_APART) sum = __fadd_rn(stored<TERMS>(__fmul_rn(gate, output)), stored<TERMS>(sum));
        out[(long long)k * width] = sum;
    }
}
