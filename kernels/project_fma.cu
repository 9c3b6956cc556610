// The projection on CUDA cores: partials[s,t,n] = sum over range s of x[t,k] w[n,k], one fused multiply-add per
// product; where WHOLE = 1 their sum over s as well, dot and mixes.
//
//   x        [T, K] bf16 codes (X_BF16 = 1) or fp32      rms  [T] fp32
//   w        [tiles of outputs, parts, K, WIDTH] fp32, by pack_columns.cu
//   partials [S, T, N] fp32, written where WHOLE = 0     dot, mixes  [T, N] fp32, written where WHOLE = 1
//   splits, unit, each, extra: the ranges, by range_start
//
// Macros from the host: X_BF16, X_ROUND, NORM_BEFORE, VECTOR (every bound and K are multiples of 8), W_PARTS,
// TOKEN_LANES, OUTPUT_LANES, MINE, OUTPUTS (a multiple of 4), WARPS, CHUNK, STAGES, WHOLE, PARTIALS, OUTPUT and SCALED as
// in finish.cuh, PRODUCTS and PRODUCT_LIST as in project_mma.cu.
//
// Tiles: blockIdx.x is a tile of TOKENS tokens by WIDTH outputs, the tiles of outputs together; a block takes one of
// gridDim.y equal shares of the ranges. TOKEN_LANES by OUTPUT_LANES lanes are a team: it takes the whole tile and one
// range at a time, a lane MINE tokens, by row_of_token, and OUTPUTS outputs. The teams of a warp, TEAMS of them, go
// through their ranges in step. k goes by in chunks, STAGES of them in the team's own shared memory or on their way there.
//
// What bounds it is how many instructions a multiprocessor issues: a lane's tile is as large as its registers allow, since
// each value of x and of w that it loads, and each bf16 that it widens, then serves more multiply-adds.
//
// Order: per range and output one accumulator from +0; for each product in turn, acc = fmaf(x, w, acc), k ascending.
// WHOLE: the teams lay down the sums of WARPS * TEAMS ranges, and all add them to the whole, s ascending from the first.
#include "finish.cuh"
#include "ranges.cuh"

#define TEAM (TOKEN_LANES * OUTPUT_LANES)
#define TEAMS (32 / TEAM)
#define TOKENS (TOKEN_LANES * MINE)
#define WIDTH (OUTPUT_LANES * OUTPUTS)
#define THREADS (32 * WARPS)
#define AT_ONCE (WARPS * TEAMS)

#if X_BF16
typedef u16 X;
#else
typedef float X;
#endif
// x of a row that one copy of 16 bytes brings, copies to a row of a chunk, and k that a lane loads at once.
#define PIECE (16 / (int)sizeof(X))
#define PIECES (CHUNK / PIECE)
#define STEP (PIECE / 2)
// Pieces of w in a chunk.
#define W_PIECES (CHUNK * WIDTH / 4)
// Steps of a chunk, and a lane's pieces in all and in each step.
#define STEPS (CHUNK / STEP)
#define X_COUNT (TOKENS * PIECES / TEAM)
#define X_EACH ((X_COUNT + STEPS - 1) / STEPS)
#define W_EACH ((W_PIECES + TEAM * STEPS - 1) / (TEAM * STEPS))
#define ROWS_APART (TEAM / PIECES)

// The large tile is bound by instructions, and its loop has to stay in the instruction cache; a small one by latency.
#define IS_LARGE (MINE * OUTPUTS >= 96)
#define STEPS_AT_ONCE (IS_LARGE ? 1 : STEPS)
// A multiply-add reads its two registers that are not still at hand in one cycle where one has an even and the other an odd
// number. Sums of neighbouring tokens, laid down in pairs, have one each.
#define NEIGHBOURS (IS_LARGE ? 2 : 1)

// Rows that are read together meet different banks: piece p of row r lies at p ^ swizzled(r).
__device__ __forceinline__ u32 swizzled(u32 row) { return row / (8 / PIECES) % PIECES; }

struct __align__(16) Stage {
    X x[TOKENS][CHUNK];
    float w[CHUNK][WIDTH];
};

// A team's memory: chunks on their way, or the sums of a range.
union Held {
    Stage stages[STAGES];
    float sums[WIDTH][TOKENS];
};

// Teams of a warp read different banks.
struct Own {
    Held held;
    char apart[32];
};

struct Inputs {
    const X* x;
    const float* w;
    int tokens, depth, first_token;
    // Whether every row of the tile is there.
    bool is_full;
};

// The row of x that a tile's row is, or stands in for.
__device__ __forceinline__ int row_of(const Inputs& in, int row) { return min(in.first_token + row, in.tokens - 1); }

struct Output {
    float *dot, *mixes;
    const float* rms;
    int first_token, first_output, tokens, outputs;
};

// Where a place of a tile, output by token, lies in dot; below 0 where it does not.
__device__ __forceinline__ long long index_of(const Output& to, int place) {
    const int token = to.first_token + place % TOKENS, output = to.first_output + place / TOKENS;
    return token < to.tokens && output < to.outputs ? (long long)token * to.outputs + output : -1;
}

// A team's range; empty where there is none for it.
struct Span {
    int start, end;
};

// A lane's part of a tile.
struct Tile {
    int lane, token, column;
    float rms[MINE];
    float sum[MINE][OUTPUTS];
};

// The row of a tile that a lane's token t is.
__device__ __forceinline__ int row_of_token(const Tile& tile, int t) {
    return NEIGHBOURS * (tile.token + TOKEN_LANES * (t / NEIGHBOURS)) + t % NEIGHBOURS;
}

// Step `step` of STEPS of the copies of a chunk that no range ends in: a lane's pieces of 16 bytes, of x all at the same k.
// A row that is not there is stood in for by one that is.
template <bool FULL>
__device__ __forceinline__ void fetch_step(Stage& stage, const Inputs& in, int lane, int k, int step) {
    const int first = lane / PIECES + ROWS_APART * X_EACH * step;
    const X* x = in.x + (long long)(FULL ? in.first_token + first : row_of(in, first)) * in.depth + (k + lane % PIECES * PIECE);
#pragma unroll
    for (int i = 0; i < X_EACH; ++i) {
        const u32 row = (u32)first + ROWS_APART * i;
        if (X_EACH * STEPS > X_COUNT && row >= TOKENS) break;
        copy_16_of_64(&stage.x[row][((u32)lane % PIECES ^ swizzled(row)) * PIECE], x);
        if (FULL || in.first_token + (int)row + ROWS_APART < in.tokens) x += (long long)ROWS_APART * in.depth;
    }
    const float* w = in.w + (long long)k * WIDTH;
#pragma unroll
    for (int i = 0; i < W_EACH; ++i) {
        const int at = 4 * (lane + TEAM * (W_EACH * step + i));
        if (TEAM * W_EACH * STEPS > W_PIECES && at >= CHUNK * WIDTH) break;
        copy_16_of_64(&stage.w[0][at], w + at);
    }
}

// The same of a chunk that a range ends in, or whose rows of x begin anywhere: what lies beyond stays as it is.
__device__ __forceinline__ void fetch_some(Stage& stage, const Inputs& in, int lane, int k, int end) {
#pragma unroll 1
    for (int i = lane; i < TOKENS * CHUNK; i += TEAM) {
        const int row = i / CHUNK, at = i % CHUNK;
        if (k + at < end)
            stage.x[row][at ^ swizzled(row) * PIECE] = in.x[(long long)row_of(in, row) * in.depth + k + at];
    }
#pragma unroll 1
    for (int i = lane; i < W_PIECES; i += TEAM) {
        if (k + 4 * i / WIDTH < end) copy_16_of_64(&stage.w[0][4 * i], in.w + (long long)k * WIDTH + 4 * i);
    }
}

__device__ __forceinline__ void fetch(Stage& stage, const Inputs& in, int lane, int k, int end) {
    if (VECTOR && k + CHUNK <= end) {
#pragma unroll
        for (int step = 0; step < STEPS; ++step) fetch_step<false>(stage, in, lane, k, step);
    } else
        fetch_some(stage, in, lane, k, end);
}

struct __align__(8) Some {
#if X_BF16
    u32 pairs[STEP / 2];
    // Widened: a pair's halves are where a shift and a mask leave them.
    __device__ float operator[](int i) const {
        return __uint_as_float(i % 2 ? pairs[i / 2] & 0xffff0000u : pairs[i / 2] << 16);
    }
#else
    float x[STEP];
    __device__ float operator[](int i) const { return x[i]; }
#endif
};

template <int PART>
__device__ __forceinline__ float x_value(float value, float rms) {
#if NORM_BEFORE
    value = __fmul_rn(value, rms);
#endif
    return rounded<X_ROUND>(remainder_of<X_ROUND>(value, PART));
}

// One k: a lane's tokens by its outputs.
__device__ __forceinline__ void multiply(Tile& tile, const float (&x)[MINE], const float* w) {
#pragma unroll
    for (int n = 0; n < OUTPUTS; n += 4) {
        const float4 four = *(const float4*)&w[n];
        const float quad[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
#pragma unroll
            for (int i = 0; i < MINE; ++i) {
                const int t = j % 2 ? i : MINE - 1 - i;
                tile.sum[t][n + j] = fmaf(x[t], quad[j], tile.sum[t][n + j]);
            }
        }
    }
}

// STEP of k, from k on, of which a team holds `held`: what lies beyond a range is not multiplied at all.
template <int PART, bool ALL>
__device__ __forceinline__ void step(Tile& tile, const Stage& stage, int k, int held) {
    // A lane's rows are swizzled alike.
    const int row = row_of_token(tile, 0);
    const X* x_row = &stage.x[row][k ^ swizzled(row) * PIECE];
    Some raw[MINE];
#pragma unroll
    for (int t = 0; t < MINE; ++t) {
        raw[t] = *(const Some*)(x_row + (row_of_token(tile, t) - row_of_token(tile, 0)) * CHUNK);
    }
#pragma unroll
    for (int i = 0; i < STEP; ++i) {
        if (!ALL && k + i >= held) continue;
        float x[MINE];
#pragma unroll
        for (int t = 0; t < MINE; ++t) x[t] = x_value<PART>(raw[t][i], tile.rms[t]);
        multiply(tile, x, &stage.w[k + i][tile.column]);
    }
}

// One product of the ranges of a warp's teams.
template <int PART>
__device__ __forceinline__ void multiply_spans(Tile& tile, Held& held, const Inputs& in, Span span) {
    const int chunks = __reduce_max_sync(~0u, (span.end - span.start + CHUNK - 1) / CHUNK);
#pragma unroll
    for (int i = 0; i < STAGES - 1; ++i) {
        if (i < chunks) fetch(held.stages[i], in, tile.lane, span.start + CHUNK * i, span.end);
        commit_copies();
    }
    int read = 0, fill = STAGES - 1;
    for (int chunk = 0; chunk < chunks; ++chunk) {
        await_copies<STAGES - 2>();
        // The copies of all lanes are here, and all lanes are done with the chunk that makes way.
        __syncwarp();
        const int left = span.end - span.start - CHUNK * chunk, next = span.start + CHUNK * (chunk + STAGES - 1);
        // A large tile has its copies between the multiplications, a few at a time, where they are not in their way.
        const bool between = IS_LARGE && VECTOR && in.is_full && __all_sync(~0u, next + CHUNK <= span.end);
        if (!between && chunk + STAGES - 1 < chunks) fetch(held.stages[fill], in, tile.lane, next, span.end);
        if (__all_sync(~0u, left >= CHUNK)) {
#pragma unroll STEPS_AT_ONCE
            for (int i = 0; i < STEPS; ++i) {
                if (between) fetch_step<true>(held.stages[fill], in, tile.lane, next, i);
                step<PART, true>(tile, held.stages[read], STEP * i, CHUNK);
            }
        } else {
#pragma unroll 1
            for (int i = 0; i < STEPS; ++i) step<PART, false>(tile, held.stages[read], STEP * i, left);
        }
        commit_copies();
        fill = fill + 1 == STAGES ? 0 : fill + 1;
        read = read + 1 == STAGES ? 0 : read + 1;
    }
}

#define FOR_EACH_SUM(t, n)                           \
    _Pragma("unroll") for (int t = 0; t < MINE; ++t) \
        _Pragma("unroll") for (int n = 0; n < OUTPUTS; ++n)

#if WHOLE
__device__ __forceinline__ void lay_down(Held& held, const Tile& tile) {
#pragma unroll
    for (int n = 0; n < OUTPUTS; ++n) {
#pragma unroll
        for (int t = 0; t < MINE; t += NEIGHBOURS) {
            float* to = &held.sums[tile.column + n][row_of_token(tile, t)];
#if IS_LARGE
            *(float2*)to = float2{tile.sum[t][n], tile.sum[t + 1][n]};
#else
            *to = tile.sum[t][n];
#endif
        }
    }
}

// The places of a tile that a thread adds up, all at once: none waits for another.
#define PLACES ((TOKENS * WIDTH + THREADS - 1) / THREADS)

// Adds the sums of `count` teams to the whole, which waits in dot meanwhile.
__device__ __forceinline__ void add_sums(const Own* all, int count, bool begins, bool ends, const Output& to) {
    // Read here: what is known of a thread's places before would take registers from the multiplications.
    int thread;
    asm volatile("mov.u32 %0, %tid.x;" : "=r"(thread));
    float whole[PLACES];
#pragma unroll
    for (int i = 0; i < PLACES; ++i) {
        const int place = thread + THREADS * i;
        if (TOKENS * WIDTH % THREADS != 0 && place >= TOKENS * WIDTH) break;
        const float sum = (&all[0].held.sums[0][0])[place];
        const long long index = index_of(to, place);
        whole[i] = begins || index < 0 ? first_partial(sum) : add_partial(to.dot[index], sum);
    }
#pragma unroll 4
    for (int team = 1; team < count; ++team) {
#pragma unroll
        for (int i = 0; i < PLACES; ++i) {
            const int place = thread + THREADS * i;
            if (TOKENS * WIDTH % THREADS != 0 && place >= TOKENS * WIDTH) break;
            whole[i] = add_partial(whole[i], (&all[team].held.sums[0][0])[place]);
        }
    }
#pragma unroll
    for (int i = 0; i < PLACES; ++i) {
        const int place = thread + THREADS * i;
        if (TOKENS * WIDTH % THREADS != 0 && place >= TOKENS * WIDTH) break;
        const long long index = index_of(to, place);
        if (index < 0) continue;
        to.dot[index] = ends ? dot_of(whole[i]) : whole[i];
        if (ends) to.mixes[index] = mixes_of(dot_of(whole[i]), to.rms[index / to.outputs]);
    }
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    project(const X* __restrict__ x, const float* __restrict__ w, const float* __restrict__ rms,
            float* __restrict__ partials, float* __restrict__ dot, float* __restrict__ mixes, int tokens, int outputs,
            int depth, int splits, int unit, int each, int extra) {
    extern __shared__ __align__(128) unsigned char memory[];
    Own* all = (Own*)memory;
    const int tiles = (outputs + WIDTH - 1) / WIDTH, column = (int)blockIdx.x % tiles;
    const int first_token = (int)blockIdx.x / tiles * TOKENS, first_output = column * WIDTH;
    const int first = share_start(splits, blockIdx.y, gridDim.y), last = share_start(splits, blockIdx.y + 1, gridDim.y);
    const int team = threadIdx.x / TEAM;
    Inputs in = {x, w, tokens, depth, first_token, first_token + TOKENS <= tokens};

    Tile tile;
    tile.lane = threadIdx.x % TEAM;
    tile.token = tile.lane % TOKEN_LANES;
    tile.column = tile.lane / TOKEN_LANES * OUTPUTS;
#pragma unroll
    for (int t = 0; t < MINE; ++t) tile.rms[t] = rms[min(first_token + row_of_token(tile, t), tokens - 1)];

    for (int round = first; round < last; round += AT_ONCE) {
        FOR_EACH_SUM(t, n) tile.sum[t][n] = 0.0f;
        const int range = round + team;
        Span span = {0, 0};
        if (range < last)
            span = {range_start(range, unit, each, extra, depth), range_start(range + 1, unit, each, extra, depth)};
#define PRODUCT(NUMBER, X_PART, W_PART)                                      \
    in.w = w + (long long)(column * W_PARTS + W_PART) * depth * WIDTH;       \
    multiply_spans<X_PART>(tile, all[team].held, in, span);                  \
    __syncwarp();
        PRODUCT_LIST
#undef PRODUCT
#if WHOLE
        lay_down(all[team].held, tile);
        __syncthreads();
        const Output to = {dot, mixes, rms, first_token, first_output, tokens, outputs};
        add_sums(all, min(AT_ONCE, last - round), round == 0, round + AT_ONCE >= last, to);
        __syncthreads();
#else
        if (range >= last) continue;
        FOR_EACH_SUM(t, n) {
            const int token = first_token + row_of_token(tile, t), output = first_output + tile.column + n;
            if (token < tokens && output < outputs)
                partials[((long long)range * tokens + token) * outputs + output] = tile.sum[t][n];
        }
#endif
    }
}
