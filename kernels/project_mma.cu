// The projection on a matrix unit: partials[s,t,n] = sum over range s of x[t,k] w[n,k].
//
//   x        [T, K] bf16 codes (X_BF16 = 1) or fp32      w  packed by pack_weights.cu
//   rms      [T] fp32, read where NORM_BEFORE = 1        bounds  [S + 1]: range s is k bounds[s]..bounds[s+1]
//   groups   [S + 1]: its groups of 16 k are groups[s]..groups[s+1]
//   partials [S, T, N] fp32
//
// Macros from the host: UNIT, X_BF16, X_ROUND, NORM_BEFORE, N_TILES = ceil(N / 8), M_TILES tiles of 16
// tokens per warp, WARPS, AHEAD, VECTOR (every bound and K are multiples of 8), and the products of a compensated
// recipe: PRODUCTS of them, and PRODUCT_LIST, one PRODUCT(number, part of x, part of w) each, in the order their
// chains run.
//
// Tiles: a block takes 16 * M_TILES * WARPS tokens, all outputs and one range; a warp takes 16 * M_TILES tokens and all
// outputs. k goes by in groups of 16, AHEAD groups to a chunk. Each warp streams its rows of x straight into
// registers, AHEAD groups ahead. Two chunks of w lie in shared memory: one is read while the other is filled.
//
// Order: per output one accumulator from +0; for each product in turn, k ascending by the unit's 8 or 16, the last
// group filled up with zeros. Tiles, warps and chunks move no bit.
//
// Lanes (g = lane / 4, t = lane % 4): accumulators 0..3 are (token g, outputs 2t, 2t+1) and (token g+8, the same). Which
// k of a group a lane brings: KOF in matrix.cuh.
#include "matrix.cuh"

#define CHUNK (GROUP * AHEAD)
#define TOKENS (16 * M_TILES * WARPS)
#define THREADS (32 * WARPS)

#if X_BF16
typedef u16 X;
#else
typedef float X;
#endif

#define STREAMED (VECTOR && NEIGHBOURS)

struct Chunk {
    Weights of[AHEAD][N_TILES][32];
};

// Starts the copy of a chunk of packed weights that holds `groups` of 16 k.
__device__ __forceinline__ void fetch_weights(Chunk& chunk, const Weights* from, int groups) {
    const int pieces = min(groups, AHEAD) * N_TILES * 32 * (int)sizeof(Weights) / 16;
#pragma unroll
    for (int i = threadIdx.x; i < (int)sizeof(Chunk) / 16; i += THREADS) {
        if (i < pieces) copy_16((uint4*)&chunk + i, (const uint4*)from + i, 16);
    }
    commit_copies();
}

// What a lane brings of one row of x for one group: as it is stored.
#if X_BF16
typedef uint2 Raw;
#else
typedef float4 Raw;
#endif

// A lane's share of a group that lies wholly below `end`; `row` is the row's first element.
__device__ __forceinline__ Raw load_group(const X* row, int k, int place) {
#if X_BF16
    return __ldg((const uint2*)(row + k + 4 * place));
#else
    const float2 first = __ldg((const float2*)(row + k + KOF(place, 0)));
    const float2 second = __ldg((const float2*)(row + k + KOF(place, 2)));
    return {first.x, first.y, second.x, second.y};
#endif
}

// The same in fp32, in the order of KOF.
__device__ __forceinline__ void widen_group(float (&x)[4], Raw raw, int place) {
#if X_BF16
#if EXCHANGE
    const u32 other = __shfl_xor_sync(0xffffffffu, place < 2 ? raw.y : raw.x, 2);
    raw = place < 2 ? uint2{raw.x, other} : uint2{other, raw.y};
#endif
    x[0] = __uint_as_float(raw.x << 16);
    x[1] = __uint_as_float(raw.x & 0xffff0000u);
    x[2] = __uint_as_float(raw.y << 16);
    x[3] = __uint_as_float(raw.y & 0xffff0000u);
#else
    x[0] = raw.x;
    x[1] = raw.y;
    x[2] = raw.z;
    x[3] = raw.w;
#endif
}

// A lane's share of a group that may end within, zeros beyond.
__device__ __forceinline__ void load_guarded(float (&x)[4], const X* row, int k, int end, int place) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int at = k + KOF(place, i);
        x[i] = at < end ? widen(row[at]) : 0.0f;
    }
}

// Part `part` of x, still to be rounded.
__device__ __forceinline__ float x_left(float x, float rms, int part) {
#if NORM_BEFORE
    x = __fmul_rn(x, rms);
#endif
    return remainder_of<X_ROUND>(x, part);
}

// A warp's 16 tokens: rows g and g + 8.
struct Tile {
    const X* row[2];
    float rms[2];
    float sum[N_TILES][4];
};

// One group on its way through the unit.
template <int X_PART>
__device__ __forceinline__ void multiply(Tile& tile, const float (&low)[4], const float (&high)[4],
                                         const Weights (&weights)[N_TILES]) {
    u32 a[2][4];
    float x[2][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        x[0][i] = x_left(low[i], tile.rms[0], X_PART);
        x[1][i] = x_left(high[i], tile.rms[1], X_PART);
    }
#if UNIT == UNIT_TF32
#pragma unroll
    for (int step = 0; step < 2; ++step) {
#pragma unroll
        for (int i = 0; i < 4; ++i) a[step][i] = tf32_register<X_ROUND>(x[i % 2][2 * step + i / 2]);
    }
#pragma unroll
    for (int n = 0; n < N_TILES; ++n) mma_tf32(tile.sum[n], a[0], {weights[n].x, weights[n].y});
#pragma unroll
    for (int n = 0; n < N_TILES; ++n) mma_tf32(tile.sum[n], a[1], {weights[n].z, weights[n].w});
#else
#pragma unroll
    for (int i = 0; i < 4; ++i) a[0][i] = PACK(x[i % 2][2 * (i / 2)], x[i % 2][2 * (i / 2) + 1]);
#pragma unroll
    for (int n = 0; n < N_TILES; ++n) {
#if UNIT == UNIT_BF16
        mma_bf16(tile.sum[n], a[0], {weights[n].x, weights[n].y});
#else
        mma_f16(tile.sum[n], a[0], {weights[n].x, weights[n].y});
#endif
    }
#endif
}

template <int X_PART>
__device__ __forceinline__ void multiply_raw(Tile& tile, const Raw (&raw)[2], const Weights (&weights)[N_TILES],
                                             int place) {
#if UNIT == UNIT_BF16 && X_BF16 && !NORM_BEFORE && !EXCHANGE
    // bf16 already: its first part is itself.
    if (X_PART == 0) {
#pragma unroll
        for (int n = 0; n < N_TILES; ++n)
            mma_bf16(tile.sum[n], {raw[0].x, raw[1].x, raw[0].y, raw[1].y}, {weights[n].x, weights[n].y});
        return;
    }
#endif
    float low[4], high[4];
    widen_group(low, raw[0], place);
    widen_group(high, raw[1], place);
    multiply<X_PART>(tile, low, high, weights);
}

__device__ __forceinline__ void load_weights(Weights (&weights)[N_TILES], const Chunk& chunk, int group, int lane) {
#pragma unroll
    for (int n = 0; n < N_TILES; ++n) weights[n] = chunk.of[group][n][lane];
}

// One product over a range.
template <int X_PART>
__device__ __forceinline__ void product(Tile (&tiles)[M_TILES], Chunk (&chunks)[2], const Weights* w, int begin,
                                        int end) {
    const int lane = threadIdx.x % 32, place = lane % 4;
    int groups = (end - begin + GROUP - 1) / GROUP;
    fetch_weights(chunks[0], w, groups);
#if STREAMED
    Raw ahead[AHEAD][M_TILES][2];
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
        const int k = begin + GROUP * i;
#pragma unroll
        for (int m = 0; m < M_TILES; ++m) {
#pragma unroll
            for (int half = 0; half < 2; ++half)
                ahead[i][m][half] = k + GROUP <= end ? load_group(tiles[m].row[half], k, place) : Raw{};
        }
    }
#endif
    int turn = 0;
    for (int start = begin; start < end; start += CHUNK, turn ^= 1) {
        const Chunk& chunk = chunks[turn];
        await_copies<0>();
        // The chunk is there for all, and all are done with the one before, which makes way for the next.
        __syncthreads();
        w += AHEAD * N_TILES * 32;
        groups -= AHEAD;
        if (groups > 0) fetch_weights(chunks[turn ^ 1], w, groups);
#if STREAMED
        if (start + CHUNK <= end) {
            // No branch within, so that loads, exchanges and products of all groups overlap: what lies beyond the last
            // whole group is loaded from there, and not used.
            const int last = begin + (end - begin) / GROUP * GROUP - GROUP;
#pragma unroll
            for (int i = 0; i < AHEAD; ++i) {
                Weights weights[N_TILES];
                load_weights(weights, chunk, i, lane);
                const int next = min(start + GROUP * i + CHUNK, last);
#pragma unroll
                for (int m = 0; m < M_TILES; ++m) {
                    multiply_raw<X_PART>(tiles[m], ahead[i][m], weights, place);
#pragma unroll
                    for (int half = 0; half < 2; ++half) ahead[i][m][half] = load_group(tiles[m].row[half], next, place);
                }
            }
            continue;
        }
#endif
#pragma unroll
        for (int i = 0; i < AHEAD; ++i) {
            const int k = start + GROUP * i;
            if (k >= end) break;
            Weights weights[N_TILES];
            load_weights(weights, chunk, i, lane);
#pragma unroll
            for (int m = 0; m < M_TILES; ++m) {
#if STREAMED
                if (k + GROUP <= end) {
                    multiply_raw<X_PART>(tiles[m], ahead[i][m], weights, place);
                    continue;
                }
#endif
                float low[4], high[4];
                load_guarded(low, tiles[m].row[0], k, end, place);
                load_guarded(high, tiles[m].row[1], k, end, place);
                multiply<X_PART>(tiles[m], low, high, weights);
            }
        }
    }
    // The next product fills the chunk that the slowest warp may still read.
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(THREADS)
    project(const X* __restrict__ x, const Weights* __restrict__ w, const float* __restrict__ rms,
            const int* __restrict__ bounds, const int* __restrict__ groups, float* __restrict__ partials, int tokens,
            int outputs, int depth) {
    extern __shared__ __align__(16) unsigned char shared[];
    Chunk(&chunks)[2] = *(Chunk(*)[2])shared;
    const int begin = bounds[blockIdx.y], end = bounds[blockIdx.y + 1];
    const int warp = threadIdx.x / 32, group = threadIdx.x % 32 / 4, place = threadIdx.x % 4;
    const int first = blockIdx.x * TOKENS + warp * 16 * M_TILES + group;

    Tile tiles[M_TILES];
#pragma unroll
    for (int m = 0; m < M_TILES; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            // A row that is not there is stood in for, and not stored.
            const int token = min(first + 16 * m + 8 * half, tokens - 1);
            tiles[m].row[half] = x + (long long)token * depth;
            tiles[m].rms[half] = NORM_BEFORE ? rms[token] : 0.0f;
        }
#pragma unroll
        for (int n = 0; n < N_TILES; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) tiles[m].sum[n][i] = 0.0f;
        }
    }

    const long long each = (long long)N_TILES * 32;
    const Weights* range = w + groups[blockIdx.y] * each;
    const long long part = groups[gridDim.y] * each;
#define PRODUCT(NUMBER, X_PART, W_PART) product<X_PART>(tiles, chunks, range + W_PART * part, begin, end);
    PRODUCT_LIST
#undef PRODUCT

    float* to = partials + (long long)blockIdx.y * tokens * outputs;
#pragma unroll
    for (int m = 0; m < M_TILES; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int token = first + 16 * m + 8 * (i / 2);
#pragma unroll
            for (int n = 0; n < N_TILES; ++n) {
                const int output = 8 * n + 2 * place + i % 2;
                if (token < tokens && output < outputs) to[(long long)token * outputs + output] = tiles[m].sum[n][i];
            }
        }
    }
}
