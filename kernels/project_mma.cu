// The projection on a matrix unit: partials[s,t,n] = sum over range s of x[t,k] w[n,k].
//
//   x        [T, K] bf16 codes (X_BF16 = 1) or fp32      w  [N, K] fp32
//   rms      [T] fp32, read where NORM_BEFORE = 1        bounds  [S + 1]: range s is bounds[s]..bounds[s+1]
//   partials [S, T, N] fp32
//
// Macros from the host: UNIT, X_BF16, X_ROUND, W_ROUND, NORM_BEFORE, N_TILES = ceil(N / 8), M_TILES,
// STAGES, VECTOR (every bound and K are multiples of 8), and the products of a compensated recipe: PRODUCTS of
// them, and PRODUCT_LIST, one PRODUCT(number, part of x, part of w) each, in the order their chains run.
//
// Tiles: a block takes 16 * M_TILES tokens, all outputs and one range; a warp takes 16 tokens by 8
// outputs. K goes by in chunks of 64 through STAGES buffers in shared memory.
//
// Order: per output one accumulator from +0; for each product in turn, k ascending by the unit's 8 or 16,
// the last step filled up with zeros. Tiles, warps and stages move no bit.
//
// Lanes (g = lane / 4, t = lane % 4): accumulators 0..3 are (token g, outputs 2t, 2t+1) and (token g+8, the
// same). Inside one instruction the sum is exact from sm_90 on, so that any lane may bring any k of its
// block: each brings neighbours, which are one load. Before sm_90 an instruction is two blocks, and
// lanes bring the k that the instruction set names.
#include "common.cuh"

#define CHUNK 64
#define TOKENS (16 * M_TILES)
#define THREADS (32 * M_TILES * N_TILES)
#if UNIT == UNIT_TF32
#define STEP 8
#else
#define STEP 16
#endif

#if X_BF16
typedef u16 X;
// Rows apart so that the lanes of a load meet different banks.
#define X_ROW (CHUNK + (UNIT == UNIT_TF32 ? 8 : 16))
#else
typedef float X;
#define X_ROW (CHUNK + (UNIT == UNIT_TF32 ? 8 : 16))
#endif
#define W_ROW (CHUNK + (UNIT == UNIT_TF32 ? 8 : 16))

struct __align__(16) Stage {
    X x[TOKENS][X_ROW];
    float w[8 * N_TILES][W_ROW];
};

struct Inputs {
    const X* x;
    const float* w;
    int tokens, outputs, depth, first_token;
};

// Elements of a row that the 16-byte piece at `k` holds, below `end`.
__device__ __forceinline__ int held(int k, int end, int piece) { return min(max(end - k, 0), piece); }

// Brings x and w of k in start..min(start + CHUNK, end); the rest is zero, as are rows that are not there.
__device__ __forceinline__ void fetch(Stage& stage, const Inputs& in, int start, int end) {
#if VECTOR
    const int x_piece = 16 / sizeof(X), w_piece = 4;
    for (int i = threadIdx.x; i < TOKENS * (CHUNK / x_piece); i += THREADS) {
        int row = i / (CHUNK / x_piece), k = start + i % (CHUNK / x_piece) * x_piece;
        int token = in.first_token + row;
        int count = token < in.tokens ? held(k, end, x_piece) : 0;
        const X* from = count ? in.x + (long long)token * in.depth + k : in.x;
        copy_16(&stage.x[row][k - start], from, count * (int)sizeof(X));
    }
    for (int i = threadIdx.x; i < 8 * N_TILES * (CHUNK / w_piece); i += THREADS) {
        int row = i / (CHUNK / w_piece), k = start + i % (CHUNK / w_piece) * w_piece;
        int count = row < in.outputs ? held(k, end, w_piece) : 0;
        const float* from = count ? in.w + (long long)row * in.depth + k : in.w;
        copy_16(&stage.w[row][k - start], from, count * (int)sizeof(float));
    }
#else
    for (int i = threadIdx.x; i < TOKENS * CHUNK; i += THREADS) {
        int row = i / CHUNK, k = start + i % CHUNK, token = in.first_token + row;
        bool there = token < in.tokens && k < end;
        stage.x[row][i % CHUNK] = there ? in.x[(long long)token * in.depth + k] : X(0);
    }
    for (int i = threadIdx.x; i < 8 * N_TILES * CHUNK; i += THREADS) {
        int row = i / CHUNK, k = start + i % CHUNK;
        bool there = row < in.outputs && k < end;
        stage.w[row][i % CHUNK] = there ? in.w[(long long)row * in.depth + k] : 0.0f;
    }
#endif
}

// x of one place on its way into part `part`: normalised first if the recipe says so.
__device__ __forceinline__ float x_value(X raw, float rms, int part) {
    float value = widen(raw);
#if NORM_BEFORE
    value = __fmul_rn(value, rms);
#endif
    return remainder_of<X_ROUND>(value, part);
}

__device__ __forceinline__ float w_value(float raw, int part) { return remainder_of<W_ROUND>(raw, part); }

#if UNIT == UNIT_TF32
// The registers of a step: slots t and t + 4 of the instruction.
#if __CUDA_ARCH__ >= 900
#define SLOT_LOW(t) (2 * (t))
#define SLOT_HIGH(t) (2 * (t) + 1)
#else
#define SLOT_LOW(t) (t)
#define SLOT_HIGH(t) ((t) + 4)
#endif
#else
// Pairs of neighbours: slots 2t, 2t + 1 and 2t + 8, 2t + 9.
#if __CUDA_ARCH__ >= 900
#define SLOT_LOW(t) (4 * (t))
#define SLOT_HIGH(t) (4 * (t) + 2)
#else
#define SLOT_LOW(t) (2 * (t))
#define SLOT_HIGH(t) (2 * (t) + 8)
#endif
#endif

#if UNIT == UNIT_BF16
#define PACK pack_bf16
#else
#define PACK pack_f16
#endif

// The unit ignores the low 13 bits of a register: truncation needs no instruction.
template <int ROUNDING>
__device__ __forceinline__ u32 tf32_register(float x) {
    return __float_as_uint(ROUNDING == ROUND_TF32_TRUNCATE ? x : rounded<ROUNDING>(x));
}

// Register of x at `at`; from there one value (tf32) or a pair.
__device__ __forceinline__ u32 x_register(const X* at, float rms, int part) {
#if UNIT == UNIT_TF32
    return tf32_register<X_ROUND>(x_value(at[0], rms, part));
#elif UNIT == UNIT_BF16 && X_BF16 && !NORM_BEFORE
    // bf16 already: its first part is itself.
    if (part == 0) return *(const u32*)at;
#endif
#if UNIT != UNIT_TF32
    return PACK(x_value(at[0], rms, part), x_value(at[1], rms, part));
#endif
}

__device__ __forceinline__ u32 w_register(const float* at, int part) {
#if UNIT == UNIT_TF32
    return tf32_register<W_ROUND>(w_value(at[0], part));
#else
    return PACK(w_value(at[0], part), w_value(at[1], part));
#endif
}

__device__ __forceinline__ void multiply(float (&sum)[4], const u32 (&a)[4], const u32 (&b)[2]) {
#if UNIT == UNIT_TF32
    mma_tf32(sum, a, b);
#elif UNIT == UNIT_BF16
    mma_bf16(sum, a, b);
#else
    mma_f16(sum, a, b);
#endif
}

// One warp's accumulators and where they lie.
struct Warp {
    int token, output, group, place;
    float rms[2];
    float sum[4];
};

template <int X_PART, int W_PART>
__device__ __forceinline__ void step(Warp& warp, const Stage& stage, int k) {
    const X* low = &stage.x[warp.token + warp.group][k];
    const X* high = &stage.x[warp.token + warp.group + 8][k];
    const float* w = &stage.w[warp.output + warp.group][k];
    const int first = SLOT_LOW(warp.place), second = SLOT_HIGH(warp.place);
    u32 a[4] = {x_register(low + first, warp.rms[0], X_PART), x_register(high + first, warp.rms[1], X_PART),
                x_register(low + second, warp.rms[0], X_PART), x_register(high + second, warp.rms[1], X_PART)};
    u32 b[2] = {w_register(w + first, W_PART), w_register(w + second, W_PART)};
    multiply(warp.sum, a, b);
}

// All steps of a chunk that holds `count` of k.
template <int X_PART, int W_PART>
__device__ __forceinline__ void chunk(Warp& warp, const Stage& stage, int count) {
    if (count >= CHUNK) {
#pragma unroll
        for (int k = 0; k < CHUNK; k += STEP) step<X_PART, W_PART>(warp, stage, k);
    } else {
        for (int k = 0; k < count; k += STEP) step<X_PART, W_PART>(warp, stage, k);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    project(const X* __restrict__ x, const float* __restrict__ w, const float* __restrict__ rms,
            const int* __restrict__ bounds, float* __restrict__ partials, int tokens, int outputs, int depth) {
    extern __shared__ Stage stages[];
    const Inputs in = {x, w, tokens, outputs, depth, (int)blockIdx.x * TOKENS};
    const int begin = bounds[blockIdx.y], end = bounds[blockIdx.y + 1];
    const int chunks = (end - begin + CHUNK - 1) / CHUNK, total = chunks * PRODUCTS;

    const int index = threadIdx.x / 32, lane = threadIdx.x % 32;
    Warp warp = {index / N_TILES * 16, index % N_TILES * 8, lane / 4, lane % 4, {0.0f, 0.0f}, {0.0f, 0.0f, 0.0f, 0.0f}};
#if NORM_BEFORE
    for (int half = 0; half < 2; ++half) {
        int token = in.first_token + warp.token + warp.group + 8 * half;
        warp.rms[half] = token < tokens ? rms[token] : 0.0f;
    }
#endif

    for (int i = 0; i < STAGES - 1; ++i) {
        if (i < total) fetch(stages[i], in, begin + i % chunks * CHUNK, end);
        commit_copies();
    }
    for (int i = 0; i < total; ++i) {
        await_copies<STAGES - 2>();
        __syncthreads();
        int next = i + STAGES - 1;
        if (next < total) fetch(stages[next % STAGES], in, begin + next % chunks * CHUNK, end);
        commit_copies();
        const Stage& stage = stages[i % STAGES];
        const int count = end - begin - i % chunks * CHUNK;
        switch (i / chunks) {
#define PRODUCT(NUMBER, X_PART, W_PART)           \
    case NUMBER:                                  \
        chunk<X_PART, W_PART>(warp, stage, count); \
        break;
            PRODUCT_LIST
#undef PRODUCT
        }
    }

    for (int half = 0; half < 2; ++half) {
        int token = in.first_token + warp.token + warp.group + 8 * half;
        for (int column = 0; column < 2; ++column) {
            int output = warp.output + 2 * warp.place + column;
            if (token < tokens && output < outputs)
                partials[((long long)blockIdx.y * tokens + token) * outputs + output] = warp.sum[2 * half + column];
        }
    }
}
