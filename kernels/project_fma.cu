// The projection on CUDA cores: partials[s,t,n] = sum over range s of x[t,k] w[n,k], one fused
// multiply-add per product.
//
//   x        [T, K] bf16 codes (X_BF16 = 1) or fp32      w  [N, K] fp32
//   rms      [T] fp32, read where NORM_BEFORE = 1        bounds  [S + 1]: range s is bounds[s]..bounds[s+1]
//   partials [S, T, N] fp32
//
// Macros from the host: X_BF16, X_ROUND, W_ROUND, NORM_BEFORE, VECTOR (every bound and K are multiples of 8),
// GROUPS = ceil(N / 12), MINE tokens of a thread, PRODUCTS and PRODUCT_LIST as in project_mma.cu.
//
// Tiles: a block takes 16 * MINE tokens, all outputs and one range; a thread takes MINE tokens, 16 apart, by 12 outputs.
// K goes by in chunks of 32 through two buffers in shared memory.
//
// Order: per output one accumulator from +0; for each product in turn, acc = fmaf(x, w, acc), k ascending.
#include "common.cuh"

#define CHUNK 32
#define APART 16
#define TOKENS (APART * MINE)
#define OUTPUTS 12
#define THREADS (APART * GROUPS)
// Four k at a time: one load per row.
#define STEP 4

#if X_BF16
typedef u16 X;
#else
typedef float X;
#endif
// Rows apart so that those of a load meet different banks, and whole pieces of 16 bytes.
#define X_ROW (CHUNK + 16 / sizeof(X))
#define W_ROW (CHUNK + 4)

struct __align__(16) Stage {
    X x[TOKENS][X_ROW];
    float w[OUTPUTS * GROUPS][W_ROW];
};

struct Inputs {
    const X* x;
    const float* w;
    int tokens, outputs, depth, first_token;
};

__device__ __forceinline__ int held(int k, int end, int piece) { return min(max(end - k, 0), piece); }

// Brings x and w of k in start..min(start + CHUNK, end); the rest is zero, as are rows that are not there.
__device__ __forceinline__ void fetch(Stage& stage, const Inputs& in, int start, int end) {
#if VECTOR
    // A thread stays with one piece of the rows, so that from row to row it only moves on.
    const int x_piece = 16 / sizeof(X), x_pieces = CHUNK / x_piece, x_rows = THREADS / x_pieces;
    const int k = threadIdx.x % x_pieces * x_piece, bytes = held(start + k, end, x_piece) * (int)sizeof(X);
    const X* from = in.x + (bytes ? start + k : 0);
#pragma unroll
    for (int row = threadIdx.x / x_pieces; row < TOKENS; row += x_rows) {
        const int token = in.first_token + row;
        copy_16(&stage.x[row][k], from + (long long)min(token, in.tokens - 1) * in.depth, token < in.tokens ? bytes : 0);
    }
    const int w_piece = 4, w_pieces = CHUNK / w_piece, w_rows = THREADS / w_pieces;
    const int w_k = threadIdx.x % w_pieces * w_piece, w_bytes = held(start + w_k, end, w_piece) * (int)sizeof(float);
    const float* w_from = in.w + (w_bytes ? start + w_k : 0);
#pragma unroll
    for (int row = threadIdx.x / w_pieces; row < OUTPUTS * GROUPS; row += w_rows)
        copy_16(&stage.w[row][w_k], w_from + (long long)min(row, in.outputs - 1) * in.depth,
                row < in.outputs ? w_bytes : 0);
#else
    for (int i = threadIdx.x; i < TOKENS * CHUNK; i += THREADS) {
        int row = i / CHUNK, k = start + i % CHUNK, token = in.first_token + row;
        bool there = token < in.tokens && k < end;
        stage.x[row][i % CHUNK] = there ? in.x[(long long)token * in.depth + k] : X(0);
    }
    for (int i = threadIdx.x; i < OUTPUTS * GROUPS * CHUNK; i += THREADS) {
        int row = i / CHUNK, k = start + i % CHUNK;
        bool there = row < in.outputs && k < end;
        stage.w[row][i % CHUNK] = there ? in.w[(long long)row * in.depth + k] : 0.0f;
    }
#endif
}

template <int PART>
__device__ __forceinline__ float x_value(X raw, float rms) {
    float value = widen(raw);
#if NORM_BEFORE
    value = __fmul_rn(value, rms);
#endif
    return rounded<X_ROUND>(remainder_of<X_ROUND>(value, PART));
}

template <int PART>
__device__ __forceinline__ float w_value(float raw) {
    return rounded<W_ROUND>(remainder_of<W_ROUND>(raw, PART));
}

struct Thread {
    int token, output;
    float rms[MINE];
    float sum[MINE][OUTPUTS];
};

// One k: what lies beyond a range is not multiplied at all.
template <int X_PART, int W_PART>
__device__ __forceinline__ void single(Thread& thread, const Stage& stage, int k) {
#pragma unroll
    for (int n = 0; n < OUTPUTS; ++n) {
        float w = w_value<W_PART>(stage.w[thread.output + n][k]);
#pragma unroll
        for (int t = 0; t < MINE; ++t) {
            float x = x_value<X_PART>(stage.x[thread.token + APART * t][k], thread.rms[t]);
            thread.sum[t][n] = fmaf(x, w, thread.sum[t][n]);
        }
    }
}

template <int X_PART, int W_PART>
__device__ __forceinline__ void four(Thread& thread, const Stage& stage, int k) {
    float x[MINE][STEP];
#pragma unroll
    for (int t = 0; t < MINE; ++t) {
        const X* row = &stage.x[thread.token + APART * t][k];
#if X_BF16
        const uint2 codes = *(const uint2*)row;
        const X raw[STEP] = {(X)codes.x, (X)(codes.x >> 16), (X)codes.y, (X)(codes.y >> 16)};
#else
        const float4 codes = *(const float4*)row;
        const X raw[STEP] = {codes.x, codes.y, codes.z, codes.w};
#endif
#pragma unroll
        for (int i = 0; i < STEP; ++i) x[t][i] = x_value<X_PART>(raw[i], thread.rms[t]);
    }
#pragma unroll
    for (int n = 0; n < OUTPUTS; ++n) {
        const float4 raw = *(const float4*)&stage.w[thread.output + n][k];
        const float w[STEP] = {w_value<W_PART>(raw.x), w_value<W_PART>(raw.y), w_value<W_PART>(raw.z),
                               w_value<W_PART>(raw.w)};
#pragma unroll
        for (int i = 0; i < STEP; ++i) {
#pragma unroll
            for (int t = 0; t < MINE; ++t) thread.sum[t][n] = fmaf(x[t][i], w[i], thread.sum[t][n]);
        }
    }
}

template <int X_PART, int W_PART>
__device__ __forceinline__ void chunk(Thread& thread, const Stage& stage, int count) {
    int k = 0;
    for (; k + STEP <= min(count, CHUNK); k += STEP) four<X_PART, W_PART>(thread, stage, k);
    for (; k < min(count, CHUNK); ++k) single<X_PART, W_PART>(thread, stage, k);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    project(const X* __restrict__ x, const float* __restrict__ w, const float* __restrict__ rms,
            const int* __restrict__ bounds, float* __restrict__ partials, int tokens, int outputs, int depth) {
    __shared__ Stage stages[2];
    const Inputs in = {x, w, tokens, outputs, depth, (int)blockIdx.x * TOKENS};
    const int begin = bounds[blockIdx.y], end = bounds[blockIdx.y + 1];
    const int chunks = (end - begin + CHUNK - 1) / CHUNK, total = chunks * PRODUCTS;

    Thread thread;
    thread.token = threadIdx.x % APART;
    thread.output = threadIdx.x / APART * OUTPUTS;
#pragma unroll
    for (int t = 0; t < MINE; ++t) {
        int token = in.first_token + thread.token + APART * t;
        thread.rms[t] = NORM_BEFORE && token < tokens ? rms[token] : 0.0f;
#pragma unroll
        for (int n = 0; n < OUTPUTS; ++n) thread.sum[t][n] = 0.0f;
    }

    fetch(stages[0], in, begin, end);
    commit_copies();
    for (int i = 0; i < total; ++i) {
        int next = i + 1;
        if (next < total) fetch(stages[next % 2], in, begin + next % chunks * CHUNK, end);
        commit_copies();
        await_copies<1>();
        __syncthreads();
        const int count = end - begin - i % chunks * CHUNK;
        switch (i / chunks) {
#define PRODUCT(NUMBER, X_PART, W_PART)                      \
    case NUMBER:                                             \
        chunk<X_PART, W_PART>(thread, stages[i % 2], count); \
        break;
            PRODUCT_LIST
#undef PRODUCT
        }
        __syncthreads();
    }

#pragma unroll
    for (int t = 0; t < MINE; ++t) {
        int token = in.first_token + thread.token + APART * t;
#pragma unroll
        for (int n = 0; n < OUTPUTS; ++n) {
            int output = thread.output + n;
            if (token < tokens && output < outputs)
                partials[((long long)blockIdx.y * tokens + token) * outputs + output] = thread.sum[t][n];
        }
    }
}
