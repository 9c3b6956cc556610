// The projection on a matrix unit: partials[s,t,n] = sum over range s of x[t,k] w[n,k]; where WHOLE = 1 their sum
// over s as well, dot and mixes.
//
//   x        [T, K] bf16 codes (X_BF16 = 1) or fp32      w  packed by pack_weights.cu      rms  [T] fp32
//   partials [S, T, N] fp32, written where WHOLE = 0     dot, mixes  [T, N] fp32, written where WHOLE = 1
//   splits, unit, each, extra: the ranges, by ranges.cuh
//
// Macros from the host: UNIT, X_BF16, X_ROUND, NORM_BEFORE, N_TILES = ceil(N / 8), CHUNK, WARPS, STAGES, BULK (from
// sm_90 on), WHOLE, PAIR (WHOLE, from sm_90 on), VECTOR (every bound and K are multiples of 8), PARTIALS, OUTPUT and
// SCALED as in finish.cuh, and the products of a compensated recipe: PRODUCTS of them, and PRODUCT_LIST, one
// PRODUCT(number, part of x, part of w) each, in the order their chains run.
//
// Tiles: a block takes 16 * WARPS tokens, all outputs and, of gridDim.y equal shares of the ranges, one. k goes by in
// chunks through STAGES places in shared memory. Four warps fill them by asynchronous copies, x as it lies; WARPS others
// multiply, 16 tokens each. A barrier per place says that it is full, another that it is empty. PAIR: two blocks, one
// above the other, take the even and the odd ranges; the second sends the sums of its ranges to the first.
//
// Order: per range and output one accumulator from +0; for each product in turn, k ascending by the unit's 8 or 16,
// the last 16 of a range filled up with zeros. Tiles, warps and chunks move no bit. WHOLE: the sum over s ascending
// from the first.
//
// Lanes (g = lane / 4, t = lane % 4): accumulators 0..3 are (token g, outputs 2t, 2t+1) and (token g+8, the same). Which
// k of 16 a lane brings: KOF in matrix.cuh.
#include "barrier.cuh"
#include "finish.cuh"
#include "matrix.cuh"
#include "ranges.cuh"

#define GROUPS (CHUNK / GROUP)
#define TOKENS (16 * WARPS)
#define FILLERS 4
// Groups that operands are read ahead: what a load takes. GROUPS is a multiple of LOOK + 1.
#define LOOK 3
#define THREADS (32 * (WARPS + FILLERS))
// compute-sanitizer's racecheck follows a barrier for the threads that arrive, not for a warp that one lane arrives for, and
// it stops at a cluster's barrier that only some warps wait at. RACECHECK: every lane arrives and all warps wait there, the
// same accesses in the same order, later.
#ifndef RACECHECK
#define RACECHECK 0
#endif
#define ARRIVALS (RACECHECK ? 32 : 1)

#if X_BF16
typedef u16 X;
#else
typedef float X;
#endif
// Rows so far apart that those of one load meet different banks: eight of 16 bytes of bf16, four of 32 of fp32.
#define X_ROW (CHUNK + 8)

struct __align__(16) Stage {
    Weights w[GROUPS][N_TILES][32];
    X x[TOKENS][X_ROW];
};

struct Shared {
    Stage stages[STAGES];
    u64 full[STAGES], empty[STAGES];
#if PAIR
    // Sums of a range that the second block sends, two on their way: of each warp, by its lanes.
    float mail[2][WARPS][N_TILES][32][4];
    u64 sent[2][WARPS], taken[2][WARPS];
#endif
};

struct Inputs {
    const X* x;
    const Weights* w;
    // Registers from one part of w to the next.
    long long part;
    int tokens, outputs, depth, first_token;
};

// A place in the ring of stages, and the parity of the rounds there.
struct Place {
    int stage, parity;
};

__device__ __forceinline__ void advance(Place& place) {
    if (++place.stage == STAGES) place = {0, place.parity ^ 1};
}

// A filling thread's pieces of x, 16 bytes each: one in so many rows, all at the same k.
struct Pieces {
    enum {
        WIDTH = 16 / sizeof(X),
        EACH = CHUNK / WIDTH,
        APART = 32 * FILLERS / EACH,
        COUNT = (TOKENS + APART - 1) / APART
    };
    int row, k;
    const X* from[COUNT];
};

__device__ __forceinline__ Pieces pieces_of(const Inputs& in, int thread) {
    Pieces pieces = {thread / Pieces::EACH, thread % Pieces::EACH * Pieces::WIDTH};
#pragma unroll
    for (int i = 0; i < Pieces::COUNT; ++i) {
        // A row that is not there is stood in for, and not stored.
        const int token = min(in.first_token + pieces.row + Pieces::APART * i, in.tokens - 1);
        pieces.from[i] = in.x + (long long)token * in.depth + pieces.k;
    }
    return pieces;
}

__device__ __forceinline__ void fetch_x(Stage& stage, const Pieces& pieces, const Cursor& at) {
#pragma unroll
    for (int i = 0; i < Pieces::COUNT; ++i) {
        const int row = pieces.row + Pieces::APART * i;
        if (row >= TOKENS) continue;
        X* piece = &stage.x[row][pieces.k];
#if VECTOR
        if (at.k + pieces.k >= at.end) continue;
        // A batch whose tiles alone fill the device has more x than the cache holds, and all blocks read the weights.
        if (WHOLE && PRODUCTS == 1)
            copy_16_once(piece, pieces.from[i] + at.k);
        else
            copy_16(piece, pieces.from[i] + at.k);
#else
#pragma unroll
        for (int j = 0; j < Pieces::WIDTH; ++j) {
            if (at.k + pieces.k + j < at.end) piece[j] = pieces.from[i][at.k + j];
        }
#endif
    }
}

// A chunk of packed weights.
__device__ __forceinline__ void fetch_w(Stage& stage, const Weights* from, u64& full, int thread) {
#if BULK
    if (thread != 0) return;
    arrive_and_expect(full, sizeof(stage.w));
    copy_all(stage.w, from, sizeof(stage.w), full);
#else
#pragma unroll
    for (int i = 0; i < (int)sizeof(stage.w) / 16 / (32 * FILLERS) + 1; ++i) {
        const int piece = thread + 32 * FILLERS * i;
        if (piece < (int)sizeof(stage.w) / 16) copy_16((uint4*)stage.w + piece, (const uint4*)from + piece);
    }
#endif
}

// Where part PART of the weights of a chunk begins; chunk `number` of the range.
__device__ __forceinline__ const Weights* weights_of(const Inputs& in, const Ranges& ranges, const Cursor& at) {
    const int number = chunk_start(at.range, ranges.unit, ranges.each, ranges.extra) + at.chunk;
    int part = 0;
    switch (at.product) {
#define PRODUCT(NUMBER, X_PART, W_PART) \
    case NUMBER:                        \
        part = W_PART;                  \
        break;
        PRODUCT_LIST
#undef PRODUCT
    }
    return in.w + part * in.part + (long long)number * CHUNK_REGISTERS;
}

// The filling warps.
__device__ __forceinline__ void fill(Shared& shared, const Inputs& in, const Ranges& ranges, int thread) {
    const Pieces pieces = pieces_of(in, thread);
    // An empty place is one whose round before the first is over.
    Place place = {0, 1};
    for (Cursor at = first_of(ranges); !is_over(at, ranges); advance(at, ranges), advance(place)) {
        Stage& stage = shared.stages[place.stage];
        u64& full = shared.full[place.stage];
        await(shared.empty[place.stage], place.parity);
        fetch_w(stage, weights_of(in, ranges, at), full, thread);
        fetch_x(stage, pieces, at);
        arrive_when_copied(full);
    }
}

__device__ __forceinline__ float x_left(float x, float rms, int part) {
#if NORM_BEFORE
    x = __fmul_rn(x, rms);
#endif
    return remainder_of<X_ROUND>(x, part);
}

// A warp's 16 tokens: rows g and g + 8.
struct Tile {
    float rms[2];
    float sum[N_TILES][4];
};

// What a lane brings of one group: x of rows g and g + 8 as it lies in memory, w of every 8 outputs.
struct Operands {
#if X_BF16 && PAIRS
    u32 pairs[4];
#else
    float x[2][4];
#endif
    Weights w[N_TILES];
};

// Four k of a row, in the order of KOF; `held` of the row are there.
__device__ __forceinline__ void read_row(float (&to)[4], const X* row, int k, int place, int held) {
#if PAIRS && !X_BF16
    if (held >= CHUNK) {
        const float2 low = *(const float2*)&row[k + KOF(place, 0)], high = *(const float2*)&row[k + KOF(place, 2)];
        to[0] = low.x;
        to[1] = low.y;
        to[2] = high.x;
        to[3] = high.y;
        return;
    }
#endif
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int at = k + KOF(place, i);
        to[i] = at < held ? widen(row[at]) : 0.0f;
    }
}

__device__ __forceinline__ void read(Operands& operands, const Stage& stage, int group, int held) {
    const int lane = threadIdx.x % 32, first_row = threadIdx.x / 32 * 16, k = GROUP * group;
#if X_BF16 && PAIRS
    // In the order of the registers of a bf16 instruction.
    load_matrices(operands.pairs, &stage.x[first_row + lane % 16][k + lane / 16 * 8]);
    if (held < CHUNK) {
        // Of a pair that the range ends within, the first stays.
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int at = k + 2 * (lane % 4) + 8 * (i / 2);
            operands.pairs[i] &= at + 1 < held ? 0xffffffffu : at < held ? 0xffffu : 0u;
        }
    }
#else
    read_row(operands.x[0], stage.x[first_row + lane / 4], k, lane % 4, held);
    read_row(operands.x[1], stage.x[first_row + lane / 4 + 8], k, lane % 4, held);
#endif
#pragma unroll
    for (int n = 0; n < N_TILES; ++n) operands.w[n] = stage.w[group][n][lane];
}

// One group on its way through the unit.
template <int X_PART>
__device__ __forceinline__ void multiply(Tile& tile, const Operands& operands) {
    const Weights(&w)[N_TILES] = operands.w;
    float x[2][4];
#if X_BF16 && PAIRS
#if UNIT == UNIT_BF16 && !NORM_BEFORE
    // bf16 already: its first part is itself.
    if (X_PART == 0) {
#pragma unroll
        for (int n = 0; n < N_TILES; ++n) mma_bf16(tile.sum[n], operands.pairs, {w[n].x, w[n].y});
        return;
    }
#endif
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        x[i % 2][i / 2 * 2] = __uint_as_float(operands.pairs[i] << 16);
        x[i % 2][i / 2 * 2 + 1] = __uint_as_float(operands.pairs[i] & 0xffff0000u);
    }
#else
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i / 4][i % 4] = operands.x[i / 4][i % 4];
#endif
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int i = 0; i < 4; ++i) x[half][i] = x_left(x[half][i], tile.rms[half], X_PART);
    }
    u32 a[2][4];
#if UNIT == UNIT_TF32
#pragma unroll
    for (int step = 0; step < 2; ++step) {
#pragma unroll
        for (int i = 0; i < 4; ++i) a[step][i] = tf32_register<X_ROUND>(x[i % 2][2 * step + i / 2]);
    }
#pragma unroll
    for (int n = 0; n < N_TILES; ++n) mma_tf32(tile.sum[n], a[0], {w[n].x, w[n].y});
#pragma unroll
    for (int n = 0; n < N_TILES; ++n) mma_tf32(tile.sum[n], a[1], {w[n].z, w[n].w});
#else
#pragma unroll
    for (int i = 0; i < 4; ++i) a[0][i] = PACK(x[i % 2][2 * (i / 2)], x[i % 2][2 * (i / 2) + 1]);
#pragma unroll
    for (int n = 0; n < N_TILES; ++n) {
#if UNIT == UNIT_BF16
        mma_bf16(tile.sum[n], a[0], {w[n].x, w[n].y});
#else
        mma_f16(tile.sum[n], a[0], {w[n].x, w[n].y});
#endif
    }
#endif
}

// A whole chunk, whose first LOOK groups are there. Groups are read LOOK ahead of the products, those of the next chunk
// too, where `follow` says that it is whole.
template <int X_PART>
__device__ __forceinline__ void multiply_whole(Tile& tile, Operands (&operands)[LOOK + 1], Shared& shared, Place place,
                                               Place next, bool follow) {
#pragma unroll
    for (int group = 0; group < GROUPS; ++group) {
        const int ahead = group + LOOK;
        if (ahead < GROUPS) {
            read(operands[ahead % (LOOK + 1)], shared.stages[place.stage], ahead, CHUNK);
        } else if (follow) {
            if (ahead == GROUPS) await(shared.full[next.stage], next.parity);
            read(operands[ahead % (LOOK + 1)], shared.stages[next.stage], ahead - GROUPS, CHUNK);
        }
        multiply<X_PART>(tile, operands[group % (LOOK + 1)]);
    }
}

// A chunk that a range ends within.
template <int X_PART>
__device__ __forceinline__ void multiply_rest(Tile& tile, const Stage& stage, int held) {
#pragma unroll 1
    for (int group = 0; group * GROUP < held; ++group) {
        Operands operands;
        read(operands, stage, group, held);
        multiply<X_PART>(tile, operands);
    }
}

// Where accumulator `i` of tile `n` belongs; -1 if nowhere.
__device__ __forceinline__ long long index_of(const Inputs& in, int n, int i) {
    const int lane = threadIdx.x % 32;
    const int token = in.first_token + threadIdx.x / 32 * 16 + lane / 4 + 8 * (i / 2);
    const int output = 8 * n + 2 * (lane % 4) + i % 2;
    return token < in.tokens && output < in.outputs ? (long long)token * in.outputs + output : -1;
}

#define FOR_EACH_SUM(n, i)                  \
    _Pragma("unroll") for (int n = 0; n < N_TILES; ++n) \
        _Pragma("unroll") for (int i = 0; i < 4; ++i)

#if PAIR
// The second block's warp gives the sums of its range number `turn` to the first block's.
__device__ __forceinline__ void send(Shared& shared, const Tile& tile, int turn) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, slot = turn % 2;
    await_others(shared.taken[slot][warp], turn / 2 % 2 ^ 1);
    const u32 sent = address_in(&shared.sent[slot][warp], 0);
#pragma unroll
    for (int n = 0; n < N_TILES; ++n) send_16(address_in(shared.mail[slot][warp][n][lane], 0), tile.sum[n], sent);
}

// The first block's warp adds them; `more` says that the place will be filled again.
__device__ __forceinline__ void take(Shared& shared, float (&whole)[N_TILES][4], int turn, bool more) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, slot = turn % 2;
    if (lane == 0) arrive_and_expect(shared.sent[slot][warp], sizeof(shared.mail[slot][warp]));
    await_others(shared.sent[slot][warp], turn / 2 % 2);
    FOR_EACH_SUM(n, i) whole[n][i] = add_partial(whole[n][i], shared.mail[slot][warp][n][lane][i]);
    __syncwarp();
    if (lane < ARRIVALS && more) arrive_there(address_in(&shared.taken[slot][warp], 1));
}
#endif

// The multiplying warps.
__device__ __forceinline__ void project_tile(Shared& shared, const Inputs& in, const Ranges& ranges, const float* rms,
                                             float* partials, float* dot, float* mixes) {
    const int lane = threadIdx.x % 32;
    Tile tile;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int token = in.first_token + (int)threadIdx.x / 32 * 16 + lane / 4 + 8 * half;
        tile.rms[half] = rms[min(token, in.tokens - 1)];
    }
    float whole[N_TILES][4];
    FOR_EACH_SUM(n, i) tile.sum[n][i] = whole[n][i] = 0.0f;
#if PAIR && !RACECHECK
    cluster_wait();
#endif
    Operands operands[LOOK + 1];
    bool there = false;
    Place place = {0, 0};
    for (Cursor at = first_of(ranges); !is_over(at, ranges);) {
        const int range = at.range, product = at.product, held = at.end - at.k;
        const Place here = place;
        advance(at, ranges);
        advance(place);
        if (!there) {
            await(shared.full[here.stage], here.parity);
            if (held >= CHUNK) {
#pragma unroll
                for (int group = 0; group < LOOK; ++group)
                    read(operands[group], shared.stages[here.stage], group, CHUNK);
            }
        }
        there = held >= CHUNK && !is_over(at, ranges) && at.end - at.k >= CHUNK;
        switch (product) {
#define PRODUCT(NUMBER, X_PART, W_PART)                                                \
    case NUMBER:                                                                       \
        if (held >= CHUNK)                                                             \
            multiply_whole<X_PART>(tile, operands, shared, here, place, there);        \
        else                                                                           \
            multiply_rest<X_PART>(tile, shared.stages[here.stage], held);              \
        break;
            PRODUCT_LIST
#undef PRODUCT
        }
        __syncwarp();
        if (lane < ARRIVALS) arrive(shared.empty[here.stage]);
        if (at.range == range) continue;
#if PAIR
        if (blockIdx.y == 1) {
            send(shared, tile, range / 2);
            FOR_EACH_SUM(n, i) tile.sum[n][i] = 0.0f;
            continue;
        }
#endif
#if WHOLE
        FOR_EACH_SUM(n, i) {
            whole[n][i] = range == 0 ? first_partial(tile.sum[n][i]) : add_partial(whole[n][i], tile.sum[n][i]);
            tile.sum[n][i] = 0.0f;
        }
#if PAIR
        if (range + 1 < ranges.last) take(shared, whole, range / 2, range + 5 < ranges.last);
#endif
#else
        float* to = partials + (long long)range * in.tokens * in.outputs;
        // Where rows of outputs begin at 8 bytes, neighbours go in one store.
        const bool in_pairs = in.outputs % 2 == 0;
        FOR_EACH_SUM(n, i) {
            const long long index = index_of(in, n, i);
            if (index < 0) continue;
            if (!in_pairs)
                to[index] = tile.sum[n][i];
            else if (i % 2 == 0)
                *(float2*)&to[index] = float2{tile.sum[n][i], tile.sum[n][i + 1]};
        }
        FOR_EACH_SUM(n, i) tile.sum[n][i] = 0.0f;
#endif
    }
#if WHOLE
    if (PAIR && blockIdx.y == 1) return;
    FOR_EACH_SUM(n, i) {
        const long long index = index_of(in, n, i);
        if (index < 0) continue;
        const float value = dot_of(whole[n][i]);
        dot[index] = value;
        mixes[index] = mixes_of(value, tile.rms[i / 2]);
    }
#endif
}

#if PAIR
#define IN_PAIRS __cluster_dims__(1, 2, 1)
#else
#define IN_PAIRS
#endif

extern "C" __global__ void __launch_bounds__(THREADS, 1) IN_PAIRS
    project(const X* __restrict__ x, const Weights* __restrict__ w, const float* __restrict__ rms,
            float* __restrict__ partials, float* __restrict__ dot, float* __restrict__ mixes, int tokens, int outputs,
            int depth, int splits, int unit, int each, int extra) {
    extern __shared__ __align__(128) unsigned char memory[];
    Shared& shared = *(Shared*)memory;
    const Inputs in = {
        x,      w,       (long long)chunk_start(splits, unit, each, extra) * CHUNK_REGISTERS,
        tokens, outputs, depth, (int)blockIdx.x * TOKENS};
#if PAIR
    const Ranges ranges = {(int)blockIdx.y, splits, 2, unit, each, extra, depth};
#else
    const Ranges ranges = {share_start(splits, blockIdx.y, gridDim.y),
                           share_start(splits, blockIdx.y + 1, gridDim.y), 1, unit, each, extra, depth};
#endif
    if (threadIdx.x < STAGES) {
        init_barrier(shared.full[threadIdx.x], 32 * FILLERS + BULK);
        init_barrier(shared.empty[threadIdx.x], ARRIVALS * WARPS);
    }
    let_next_kernel_begin();
#if PAIR
    if (threadIdx.x < WARPS) {
#pragma unroll
        for (int slot = 0; slot < 2; ++slot) {
            init_barrier(shared.sent[slot][threadIdx.x], 1);
            init_barrier(shared.taken[slot][threadIdx.x], ARRIVALS);
        }
    }
    __syncwarp();
    cluster_arrive();
#endif
    __syncthreads();
    await_kernel_ahead();
#if PAIR && RACECHECK
    cluster_wait();
#endif
    if (threadIdx.x < 32 * WARPS) {
        project_tile(shared, in, ranges, rms, partials, dot, mixes);
        return;
    }
    fill(shared, in, ranges, threadIdx.x - 32 * WARPS);
#if PAIR && !RACECHECK
    cluster_wait();
#endif
}
