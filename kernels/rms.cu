// The fp32 RMS factor: rms[t] = rsqrt(mean_k x[t,k]^2 + eps).
//
//   x  [T, K] bf16 codes (X_BF16 = 1) or fp32      unit, each, extra: the ranges of the projection, by range_start
//   partials [P, T] fp32 scratch, P as SQUARES needs it      rms [T] fp32
//
// Macros from the host: X_BF16, SQUARES, STRIDED_THREADS (a power of two, for SQUARES_STRIDED), MEAN_RECIPROCAL,
// SQRT_THEN_DIVIDE.
//
// Two kernels: `squares` leaves sums of chains, a thread per chain (a block per token where threads are
// strided); `factor` adds them ascending from +0 and takes the root, a thread per token.
//
// Orders, by SQUARES:
//   CHAINS      P = S: acc = fmaf(x, x, acc), k ascending within the range
//   LANES       P = S: lane c of 4 adds fmaf(x0, x0, x1 * x1) of columns 8g + c and 8g + c + 4 of the range, g
//               ascending, what lies beyond the range being zero; (l0 + l2) + (l1 + l3)
//   INTERLEAVE  P = 4: chain c takes k = c, c + 4, ...
//   STRIDED     P = 1: thread v takes k = v, v + V, ...; sum[v] += sum[v + s] for s = V/2, ..., 1
#include "common.cuh"

#define SQUARES_CHAINS 0
#define SQUARES_LANES 1
#define SQUARES_INTERLEAVE 2
#define SQUARES_STRIDED 3

#if X_BF16
typedef u16 X;
#else
typedef float X;
#endif

__device__ __forceinline__ float chain(const X* row, int first, int end, int stride) {
    float sum = 0.0f;
    for (int k = first; k < end; k += stride) {
        float value = widen(row[k]);
        sum = fmaf(value, value, sum);
    }
    return sum;
}

__device__ __forceinline__ float lanes(const X* row, int begin, int end) {
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int k = begin; k < end; k += 8) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            float first = k + c < end ? widen(row[k + c]) : 0.0f;
            float second = k + c + 4 < end ? widen(row[k + c + 4]) : 0.0f;
            sums[c] = __fadd_rn(sums[c], fmaf(first, first, __fmul_rn(second, second)));
        }
    }
    return __fadd_rn(__fadd_rn(sums[0], sums[2]), __fadd_rn(sums[1], sums[3]));
}

extern "C" __global__ void squares(const X* __restrict__ x, float* __restrict__ partials, int tokens, int depth,
                                   int unit, int each, int extra) {
#if SQUARES == SQUARES_STRIDED
    extern __shared__ float sums[];
    const X* row = x + (long long)blockIdx.x * depth;
    for (int v = threadIdx.x; v < STRIDED_THREADS; v += blockDim.x) sums[v] = chain(row, v, depth, STRIDED_THREADS);
    for (int stride = STRIDED_THREADS / 2; stride > 0; stride /= 2) {
        __syncthreads();
        for (int v = threadIdx.x; v < stride; v += blockDim.x) sums[v] = sums[v] + sums[v + stride];
    }
    if (threadIdx.x == 0) partials[blockIdx.x] = sums[0];
#else
    const int token = blockIdx.x * blockDim.x + threadIdx.x, part = blockIdx.y;
    if (token >= tokens) return;
    const X* row = x + (long long)token * depth;
    const int begin = range_start(part, unit, each, extra, depth), end = range_start(part + 1, unit, each, extra, depth);
#if SQUARES == SQUARES_CHAINS
    float sum = chain(row, begin, end, 1);
#elif SQUARES == SQUARES_LANES
    float sum = lanes(row, begin, end);
#else
    float sum = chain(row, part, depth, 4);
#endif
    partials[(long long)part * tokens + token] = sum;
#endif
}

extern "C" __global__ void factor(const float* __restrict__ partials, float* __restrict__ rms, int tokens, int parts,
                                  int depth, float reciprocal, float eps) {
    const int token = blockIdx.x * blockDim.x + threadIdx.x;
    if (token >= tokens) return;
#if SQUARES == SQUARES_STRIDED
    float sum = partials[token];
#else
    float sum = 0.0f;
    for (int part = 0; part < parts; ++part) sum = __fadd_rn(sum, partials[(long long)part * tokens + token]);
#endif
#if MEAN_RECIPROCAL
    float mean = __fmul_rn(sum, reciprocal);
#else
    float mean = __fdiv_rn(sum, (float)depth);
#endif
    float argument = __fadd_rn(mean, eps);
#if SQRT_THEN_DIVIDE
    rms[token] = __fdiv_rn(1.0f, __fsqrt_rn(argument));
#else
    rms[token] = __frsqrt_rn(argument);
#endif
}
