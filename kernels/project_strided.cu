// The projection on CUDA cores by strided threads and a block tree:
// partials[t,n] = tree over v of (chain over k = v, v + V, ... of x[t,k] w[n,k]).
//
//   x [T, K] bf16 codes (X_BF16 = 1) or fp32      w [N, K] fp32      rms [T] fp32, read where NORM_BEFORE = 1
//   partials [T, N] fp32      the arguments of project_mma.cu, of which those for ranges and sums are not used
//
// Macros from the host: X_BF16, X_ROUND, W_ROUND, NORM_BEFORE, STRIDED_THREADS = V (a power of two), PRODUCTS
// and PRODUCT_LIST as in project_mma.cu.
//
// Tiles: a block takes one token and one output; its threads take the V threads of the recipe in turn.
//
// Order: per thread v one accumulator from +0; for each product in turn, acc = fmaf(x, w, acc), k ascending; then
// sum[v] += sum[v + s] for s = V/2, ..., 2, 1.
#include "common.cuh"

#if X_BF16
typedef u16 X;
#else
typedef float X;
#endif

template <int X_PART, int W_PART>
__device__ __forceinline__ float chain(const X* x, const float* w, float rms, int first, int depth, float sum) {
    for (int k = first; k < depth; k += STRIDED_THREADS) {
        float value = widen(x[k]);
#if NORM_BEFORE
        value = __fmul_rn(value, rms);
#endif
        value = rounded<X_ROUND>(remainder_of<X_ROUND>(value, X_PART));
        float weight = rounded<W_ROUND>(remainder_of<W_ROUND>(w[k], W_PART));
        sum = fmaf(value, weight, sum);
    }
    return sum;
}

extern "C" __global__ void project(const X* __restrict__ x, const float* __restrict__ w,
                                   const float* __restrict__ rms, float* __restrict__ partials, float*, float*,
                                   int tokens, int outputs, int depth, int, int, int, int) {
    let_next_kernel_begin();
    await_kernel_ahead();
    extern __shared__ float sums[];
    const int token = blockIdx.x, output = blockIdx.y;
    const X* x_row = x + (long long)token * depth;
    const float* w_row = w + (long long)output * depth;
    const float factor = NORM_BEFORE ? rms[token] : 0.0f;
    for (int v = threadIdx.x; v < STRIDED_THREADS; v += blockDim.x) {
        float sum = 0.0f;
#define PRODUCT(NUMBER, X_PART, W_PART) sum = chain<X_PART, W_PART>(x_row, w_row, factor, v, depth, sum);
        PRODUCT_LIST
#undef PRODUCT
        sums[v] = sum;
    }
    for (int stride = STRIDED_THREADS / 2; stride > 0; stride /= 2) {
        __syncthreads();
        for (int v = threadIdx.x; v < stride; v += blockDim.x) sums[v] = sums[v] + sums[v + stride];
    }
    if (threadIdx.x == 0) partials[(long long)token * outputs + output] = sums[0];
}
