// The projection on CUDA cores: partials[s,t,n] = sum over range s of x[t,k] w[n,k], one fused multiply-add per
// product; where WHOLE = 1 their sum over s as well, dot and mixes.
//
//   x        [T, K] bf16 codes (X_BF16 = 1) or fp32      w  [N, K] fp32      rms  [T] fp32
//   partials [S, T, N] fp32, written where WHOLE = 0     dot, mixes  [T, N] fp32, written where WHOLE = 1
//   splits, unit, each, extra: the ranges, by ranges.cuh
//
// Macros from the host: X_BF16, X_ROUND, W_ROUND, NORM_BEFORE, VECTOR (every bound and K are multiples of 8),
// OUTPUTS, MINE, WARPS, STAGES, WHOLE, PARTIALS, OUTPUT and SCALED as in finish.cuh, PRODUCTS and PRODUCT_LIST as in
// project_mma.cu.
//
// Tiles: blockIdx.x is a tile of 16 * MINE tokens by 2 * OUTPUTS outputs, the tiles of outputs together; a block takes
// one of gridDim.y equal shares of the ranges. A warp takes the whole tile and one range at a time; a lane MINE tokens,
// 16 apart, by OUTPUTS outputs, 2 apart. k goes by in chunks of 16, STAGES of them on their way into the warp's own
// shared memory.
//
// Order: per range and output one accumulator from +0; for each product in turn, acc = fmaf(x, w, acc), k ascending.
// WHOLE: the warps lay down the sums of WARPS ranges, and all add them to the whole, s ascending from the first.
#define CHUNK 16
#include "finish.cuh"
#include "ranges.cuh"

#define APART 16
#define COLUMNS 2
#define TOKENS (APART * MINE)
#define WIDTH (COLUMNS * OUTPUTS)
#define THREADS (32 * WARPS)

#if X_BF16
typedef u16 X;
#else
typedef float X;
#endif
// x of a row that one copy of 16 bytes brings, and k that one load of a row brings.
#define PIECE (16 / (int)sizeof(X))
#define PIECES (CHUNK / PIECE)
#define STEP 4
// Steps of a chunk at once. Sixteen warps leave a thread 128 registers, and what sm_100 makes of a whole chunk takes more.
#if __CUDA_ARCH__ >= 1000 && WARPS > 8
#define STEPS_AT_ONCE 1
#else
#define STEPS_AT_ONCE (CHUNK / STEP)
#endif

// Rows that are read together meet different banks: piece p of row r lies at p ^ swizzled(r).
__device__ __forceinline__ int swizzled(int row) { return row / (8 / PIECES) % PIECES; }

struct __align__(16) Stage {
    X x[TOKENS][CHUNK];
    float w[WIDTH][CHUNK];
};

// A warp's memory: chunks on their way, or the sums of a range.
union Own {
    Stage stages[STAGES];
    float sums[TOKENS][WIDTH];
};

struct Inputs {
    const X* x;
    const float* w;
    int tokens, outputs, depth, first_token, first_output;
};

// A lane's pieces of 16 bytes of x and of w: one in so many rows, all at the same k. A row that is not there is stood in
// for, and not stored.
struct Pieces {
    enum {
        X_APART = 32 / PIECES,
        X_COUNT = TOKENS / X_APART,
        W_APART = 32 / (CHUNK / 4),
        W_COUNT = (WIDTH + W_APART - 1) / W_APART
    };
    const X* x[X_COUNT];
    const float* w[W_COUNT];
    int x_k, w_k, x_row, w_row;
};

__device__ __forceinline__ Pieces pieces_of(const Inputs& in) {
    const int lane = threadIdx.x % 32;
    Pieces pieces;
    pieces.x_row = lane / PIECES;
    pieces.x_k = lane % PIECES * PIECE;
    pieces.w_row = lane / (CHUNK / 4);
    pieces.w_k = lane % (CHUNK / 4) * 4;
#pragma unroll
    for (int i = 0; i < Pieces::X_COUNT; ++i) {
        const int token = min(in.first_token + pieces.x_row + Pieces::X_APART * i, in.tokens - 1);
        pieces.x[i] = in.x + (long long)token * in.depth + pieces.x_k;
    }
#pragma unroll
    for (int i = 0; i < Pieces::W_COUNT; ++i) {
        const int output = min(in.first_output + pieces.w_row + Pieces::W_APART * i, in.outputs - 1);
        pieces.w[i] = in.w + (long long)output * in.depth + pieces.w_k;
    }
    return pieces;
}

// Values k on of a row, those from `end` on left as they are.
template <typename T>
__device__ __forceinline__ void bring(T* to, const T* row, int k, int end, int offset) {
#if VECTOR
    if (k + offset < end) copy_16(to, row + k);
#else
#pragma unroll
    for (int i = 0; i < 16 / (int)sizeof(T); ++i) {
        if (k + offset + i < end) to[i] = row[k + i];
    }
#endif
}

__device__ __forceinline__ void fetch(Stage& stage, const Pieces& pieces, const Cursor& at) {
#pragma unroll
    for (int i = 0; i < Pieces::X_COUNT; ++i) {
        const int row = pieces.x_row + Pieces::X_APART * i;
        bring(&stage.x[row][pieces.x_k ^ swizzled(row) * PIECE], pieces.x[i], at.k, at.end, pieces.x_k);
    }
#pragma unroll
    for (int i = 0; i < Pieces::W_COUNT; ++i) {
        const int row = pieces.w_row + Pieces::W_APART * i;
        if (row < WIDTH) bring(&stage.w[row][pieces.w_k], pieces.w[i], at.k, at.end, pieces.w_k);
    }
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

// A lane's part of a tile.
struct Tile {
    int token, column;
    float rms[MINE];
    float sum[MINE][OUTPUTS];
};

struct __align__(4 * sizeof(X)) Four {
    X x[STEP];
};

// `count` k from `k` on, four at most: what lies beyond a range is not multiplied at all.
template <int X_PART, int W_PART, bool ALL>
__device__ __forceinline__ void step(Tile& tile, const Stage& stage, int k, int count) {
    float x[MINE][STEP];
#pragma unroll
    for (int t = 0; t < MINE; ++t) {
        const int row = tile.token + APART * t;
        const Four raw = *(const Four*)&stage.x[row][k ^ swizzled(row) * PIECE];
#pragma unroll
        for (int i = 0; i < STEP; ++i) x[t][i] = x_value<X_PART>(raw.x[i], tile.rms[t]);
    }
#pragma unroll
    for (int n = 0; n < OUTPUTS; ++n) {
        const float4 raw = *(const float4*)&stage.w[tile.column + COLUMNS * n][k];
        const float w[STEP] = {w_value<W_PART>(raw.x), w_value<W_PART>(raw.y), w_value<W_PART>(raw.z),
                               w_value<W_PART>(raw.w)};
#pragma unroll
        for (int i = 0; i < STEP; ++i) {
            if (!ALL && i >= count) continue;
#pragma unroll
            for (int t = 0; t < MINE; ++t) tile.sum[t][n] = fmaf(x[t][i], w[i], tile.sum[t][n]);
        }
    }
}

template <int X_PART, int W_PART>
__device__ __forceinline__ void multiply_chunk(Tile& tile, const Stage& stage, int held) {
    if (held >= CHUNK) {
#pragma unroll STEPS_AT_ONCE
        for (int k = 0; k < CHUNK; k += STEP) step<X_PART, W_PART, true>(tile, stage, k, STEP);
        return;
    }
#pragma unroll 1
    for (int k = 0; k < held; k += STEP) step<X_PART, W_PART, false>(tile, stage, k, held - k);
}

// One range: `fetched` is as far ahead of `at` as there are stages.
__device__ __forceinline__ void multiply_range(Tile& tile, Own& own, const Pieces& pieces, Cursor& at, Cursor& fetched,
                                               const Ranges& ranges, int& read, int& fill) {
    const int range = at.range;
    while (at.range == range) {
        await_copies<STAGES - 2>();
        // The copies of all lanes are here, and all lanes are done with the chunk that makes way.
        __syncwarp();
        if (WHOLE ? fetched.range == range : !is_over(fetched, ranges)) {
            fetch(own.stages[fill], pieces, fetched);
            advance(fetched, ranges);
        }
        commit_copies();
        fill = fill + 1 == STAGES ? 0 : fill + 1;
        switch (at.product) {
#define PRODUCT(NUMBER, X_PART, W_PART)                                                      \
    case NUMBER:                                                                             \
        multiply_chunk<X_PART, W_PART>(tile, own.stages[read], at.end - at.k);               \
        break;
            PRODUCT_LIST
#undef PRODUCT
        }
        read = read + 1 == STAGES ? 0 : read + 1;
        advance(at, ranges);
    }
}

#define FOR_EACH_SUM(t, n)                             \
    _Pragma("unroll") for (int t = 0; t < MINE; ++t) \
        _Pragma("unroll") for (int n = 0; n < OUTPUTS; ++n)

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    project(const X* __restrict__ x, const float* __restrict__ w, const float* __restrict__ rms,
            float* __restrict__ partials, float* __restrict__ dot, float* __restrict__ mixes, int tokens, int outputs,
            int depth, int splits, int unit, int each, int extra) {
    let_next_kernel_begin();
    await_kernel_ahead();
    extern __shared__ __align__(128) unsigned char memory[];
    Own* all = (Own*)memory;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, tiles = (outputs + WIDTH - 1) / WIDTH;
    const Inputs in = {x, w, tokens, outputs, depth, (int)blockIdx.x / tiles * TOKENS, (int)blockIdx.x % tiles * WIDTH};
    const int first = share_start(splits, blockIdx.y, gridDim.y), last = share_start(splits, blockIdx.y + 1, gridDim.y);
    const Ranges ranges = {first + warp, last, WARPS, unit, each, extra, depth};
    Own& own = all[warp];

    Tile tile;
    tile.token = lane % APART;
    tile.column = lane / APART;
#pragma unroll
    for (int t = 0; t < MINE; ++t) tile.rms[t] = rms[min(in.first_token + tile.token + APART * t, tokens - 1)];

    const Pieces pieces = pieces_of(in);
    Cursor at = first_of(ranges), fetched = at;
#if WHOLE
    float whole[(TOKENS * WIDTH + THREADS - 1) / THREADS];
    for (int round = 0; round < last; round += WARPS) {
#else
    int read = 0, fill = STAGES - 1;
    while (!is_over(at, ranges)) {
#endif
        FOR_EACH_SUM(t, n) tile.sum[t][n] = 0.0f;
        const int range = at.range;
#if WHOLE
        int read = 0, fill = STAGES - 1;
#else
        if (range == ranges.first)
#endif
        {
#pragma unroll
            for (int i = 0; i < STAGES - 1; ++i) {
                if (WHOLE ? fetched.range == range && range < last : !is_over(fetched, ranges)) {
                    fetch(own.stages[i], pieces, fetched);
                    advance(fetched, ranges);
                }
                commit_copies();
            }
        }
        if (range < last) multiply_range(tile, own, pieces, at, fetched, ranges, read, fill);
#if WHOLE
        await_copies<0>();
        __syncwarp();
        FOR_EACH_SUM(t, n) own.sums[tile.token + APART * t][tile.column + COLUMNS * n] = tile.sum[t][n];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < (TOKENS * WIDTH + THREADS - 1) / THREADS; ++i) {
            const int place = threadIdx.x + THREADS * i;
            if (place >= TOKENS * WIDTH) break;
            for (int of = 0; of < min(WARPS, last - round); ++of) {
                const float partial = all[of].sums[place / WIDTH][place % WIDTH];
                whole[i] = round + of == 0 ? first_partial(partial) : add_partial(whole[i], partial);
            }
        }
        __syncthreads();
#else
        FOR_EACH_SUM(t, n) {
            const int token = in.first_token + tile.token + APART * t;
            const int output = in.first_output + tile.column + COLUMNS * n;
            if (token < tokens && output < outputs)
                partials[((long long)range * tokens + token) * outputs + output] = tile.sum[t][n];
        }
#endif
    }
#if WHOLE
#pragma unroll
    for (int i = 0; i < (TOKENS * WIDTH + THREADS - 1) / THREADS; ++i) {
        const int place = threadIdx.x + THREADS * i;
        const int token = in.first_token + place / WIDTH, output = in.first_output + place % WIDTH;
        if (place >= TOKENS * WIDTH || token >= tokens || output >= outputs) continue;
        const long long index = (long long)token * outputs + output;
        const float value = dot_of(whole[i]);
        dot[index] = value;
        mixes[index] = mixes_of(value, rms[token]);
    }
#endif
}
