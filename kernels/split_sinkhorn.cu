// Gates and combination matrix from the mixes.
//
//   mixes [T, (2 + HC) HC] fp32: pre, post, comb      base, one per mix      scale [3]
//   pre, post [T, HC]      comb [T, HC, HC], row-major
//
// Macros from the host: HC; AFFINE_FMA; SIGMOID_EXP2; RECIPROCAL (Sinkhorn's division); EPS_ADD, EPS_START or
// EPS_CLAMP as EPS; SKIP_ROW_MAX.
//
// Tiles: a thread per token.
//
//   pre_j = sigma(m_j s0 + b_j) + eps      post_j = 2 sigma(m s1 + b)      C = m s2 + b
//   c = exp(C - row maximum); c = c / row sum + eps; columns; iters - 1 times rows, columns
//
// Order: sums of HC elements ascend from +0 (from eps under EPS_START). expf and exp2f are the device's own, at most 2
// ulp from the correctly rounded value; everything else is rounded once per operation.
#include "common.cuh"

#define EPS_ADD 0
#define EPS_START 1
#define EPS_CLAMP 2
#define MIXES ((2 + HC) * HC)

__device__ __forceinline__ float affine(float mix, float scale, float base) {
#if AFFINE_FMA
    return fmaf(mix, scale, base);
#else
    return __fadd_rn(__fmul_rn(mix, scale), base);
#endif
}

__device__ __forceinline__ float sigmoid(float z) {
#if SIGMOID_EXP2
    float power = exp2f(__fmul_rn(-z, 1.44269502162933349609375f));
#else
    float power = expf(-z);
#endif
    return __fdiv_rn(1.0f, __fadd_rn(1.0f, power));
}

// Divides HC values, STRIDE apart, by `sum`.
template <int STRIDE>
__device__ __forceinline__ void divide(float* line, float sum) {
#if RECIPROCAL
    float by = __fdiv_rn(1.0f, sum);
#pragma unroll
    for (int i = 0; i < HC; ++i) line[i * STRIDE] = __fmul_rn(line[i * STRIDE], by);
#else
#pragma unroll
    for (int i = 0; i < HC; ++i) line[i * STRIDE] = __fdiv_rn(line[i * STRIDE], sum);
#endif
}

template <int STRIDE>
__device__ __forceinline__ float sum_of(const float* line, float start) {
    float sum = start;
#pragma unroll
    for (int i = 0; i < HC; ++i) sum = __fadd_rn(sum, line[i * STRIDE]);
    return sum;
}

template <int STRIDE>
__device__ __forceinline__ void normalise(float* line, float eps) {
#if EPS == EPS_ADD
    float sum = __fadd_rn(sum_of<STRIDE>(line, 0.0f), eps);
#elif EPS == EPS_START
    float sum = sum_of<STRIDE>(line, eps);
#else
    float sum = fmaxf(sum_of<STRIDE>(line, 0.0f), eps);
#endif
    divide<STRIDE>(line, sum);
}

extern "C" __global__ void split_sinkhorn(const float* __restrict__ mixes, const float* __restrict__ base,
                                          const float* __restrict__ scale, float* __restrict__ pre,
                                          float* __restrict__ post, float* __restrict__ comb, int tokens, int iters,
                                          float eps) {
    const int token = blockIdx.x * blockDim.x + threadIdx.x;
    if (token >= tokens) return;
    const float* m = mixes + (long long)token * MIXES;
    float c[HC * HC];
#pragma unroll
    for (int j = 0; j < HC; ++j) {
        pre[(long long)token * HC + j] = __fadd_rn(sigmoid(affine(m[j], scale[0], base[j])), eps);
        post[(long long)token * HC + j] = __fmul_rn(2.0f, sigmoid(affine(m[HC + j], scale[1], base[HC + j])));
    }
#pragma unroll
    for (int i = 0; i < HC * HC; ++i) c[i] = affine(m[2 * HC + i], scale[2], base[2 * HC + i]);
#pragma unroll
    for (int j = 0; j < HC; ++j) {
        float* row = c + j * HC;
        float most = __uint_as_float(0xff800000u);
#if SKIP_ROW_MAX
        most = 0.0f;
#else
#pragma unroll
        for (int i = 0; i < HC; ++i) most = fmaxf(most, row[i]);
#endif
#pragma unroll
        for (int i = 0; i < HC; ++i) row[i] = expf(__fsub_rn(row[i], most));
        divide<1>(row, sum_of<1>(row, 0.0f));
#pragma unroll
        for (int i = 0; i < HC; ++i) row[i] = __fadd_rn(row[i], eps);
    }
#pragma unroll
    for (int i = 0; i < HC; ++i) normalise<HC>(c + i, eps);
    for (int iter = 1; iter < iters; ++iter) {
#pragma unroll
        for (int j = 0; j < HC; ++j) normalise<1>(c + j * HC, eps);
#pragma unroll
        for (int i = 0; i < HC; ++i) normalise<HC>(c + i, eps);
    }
#pragma unroll
    for (int i = 0; i < HC * HC; ++i) comb[(long long)token * HC * HC + i] = c[i];
}
