// The indexer's logits: logit[t,i] = sum_h weight[t,h] relu(q[t,h] k[i]), a dot per head on the recipe's unit.
//
//   q [T, HEADS, ROW_WORDS] and k [N, ROW_WORDS] words: the rows' codes, the first of a word in its low bits; a row ends
//     in zeros where WIDTH does not fill the unit's last instruction
//   q_scales [T, HEADS, s] and k_scales [N, s] words, by SCALES: not read (SCALES_NONE); an fp32 scale per chain, s of
//     them to a row (SCALES_CHAIN); two ue8m0 codes per instruction, in the low bits (SCALES_UNIT)
//   weights [T, HEADS] fp32      key_scales [N] fp32, not read if KEY_SCALE is KEY_SCALE_NONE
//   logits [T, N] fp32, as OUTPUT rounds them      dot_scale, not read if DOT_SCALED is 0
//
// Macros from the host: HEADS; WIDTH, values of a row; ROW_WORDS; CHAIN_WORDS, words of a row that one chain takes; UNIT;
// SCALES; DOT_SCALED; DOT, how a dot is stored; RELU; KEY_SCALE, where a key's scale enters; ORDER; HEAD_FMA; PRODUCT and
// SUM, how products and running sums are stored; OUTPUT, a rounding; WARPS. UNIT_E4M3_WGMMA needs sm_90a and four
// warps, UNIT_MXF4 needs sm_120a.
//
// Tiles: a block takes one query and 32 keys per warp. Dynamic shared memory: the query's codes in core matrices of 8
// heads by 16 bytes (wgmma alone), and per warp the dots [HEADS, 32 keys], rows STRIDE apart so that neither their
// writing nor their reading meets in one bank.
//
// Lanes of an instruction (g = lane / 4, t = lane % 4), as the instruction set names them, the same for every unit in
// words: registers 0, 1 of a are words t of keys g and g + 8, registers 2, 3 words t + 4; registers 0, 1 of b are words t
// and t + 4 of head g. Sums 0, 1 are key g, heads 2t and 2t + 1; sums 2, 3 the same of key g + 8. A wgmma is four such,
// a warp each, with b in shared memory. On CUDA cores, and behind the dots, a lane is a key.
//
// Order of a dot: one chain over ascending k from 0, an instruction (UNIT_FMA: a fused multiply-add) after the other.
// With SCALES_CHAIN one such chain per CHAIN_WORDS, and dot = fma(chain, q_scale k_scale, dot) from 0, ascending. Then,
// a rounding each: times dot_scale; as DOT stores it; times the key's scale (KEY_SCALE_BEFORE_RELU); RELU.
//
// Order of a sum over the heads, running sums from 0, heads ascending in each:
//   ORDER_ASCENDING   one
//   ORDER_LANES       eight, by h mod 8; sums 2c and 2c + 1 are added to lane c; (0 + 1) + (2 + 3)
//   ORDER_CHAINS      four, by h mod 4; (0 + 2) + (1 + 3)
//   ORDER_CHUNKS      one per eight heads, added up from 0
//   ORDER_TREE        none: products h and h + stride, stride halving to 1; one without a partner is passed on
// A product and the sum it enters are fused if HEAD_FMA and the product is not stored in bf16, else two roundings.
// KEY_SCALE_BEFORE_LANES multiplies running sums before they meet, KEY_SCALE_LAST the last sum.
#include "common.cuh"

#define UNIT_E4M3 3
#define UNIT_E4M3_WGMMA 4
#define UNIT_MXF4 5
#define UNIT_FMA 6

#define SCALES_NONE 0
#define SCALES_CHAIN 1
#define SCALES_UNIT 2

#define RELU_MAX 0
#define RELU_KEEPS_NAN 1
#define RELU_HALF_SUM 2
#define RELU_ABSENT 3

#define KEY_SCALE_NONE 0
#define KEY_SCALE_BEFORE_RELU 1
#define KEY_SCALE_BEFORE_LANES 2
#define KEY_SCALE_LAST 3

#define ORDER_ASCENDING 0
#define ORDER_LANES 1
#define ORDER_CHAINS 2
#define ORDER_CHUNKS 3
#define ORDER_TREE 4

#define KEYS 32
#define STRIDE 36
#define TILE_HEADS 8
#define TILES ((HEADS + TILE_HEADS - 1) / TILE_HEADS)
#define STEP_WORDS 8
#define STEPS (ROW_WORDS / STEP_WORDS)
#define CHAINS ((ROW_WORDS + CHAIN_WORDS - 1) / CHAIN_WORDS)

// Words of the query's codes in shared memory.
#if UNIT == UNIT_E4M3_WGMMA
#define QUERY_WORDS (TILES * TILE_HEADS * ROW_WORDS)
#else
#define QUERY_WORDS 0
#endif
#define SHARED_BYTES (4 * (QUERY_WORDS + WARPS * HEADS * STRIDE))

// What a chain adds to a dot.
__device__ __forceinline__ float joined(float dot, float chain, float q_scale, float k_scale) {
    return fmaf(chain, __fmul_rn(q_scale, k_scale), dot);
}

#if UNIT == UNIT_FMA

// Heads whose chains run side by side.
#define TOGETHER 16

// The dots of all heads of a query with the lane's key, in column `lane` of `dots`.
__device__ void make_dots(float* dots, const float4* q, const float4* k, const float* q_scales, const float* k_scales,
                          int lane) {
    for (int first = 0; first < HEADS; first += TOGETHER) {
        float dot[TOGETHER] = {};
        for (int c = 0; c < CHAINS; ++c) {
            float sum[TOGETHER] = {};
            const int end = min((c + 1) * CHAIN_WORDS, ROW_WORDS);
#pragma unroll 2
            for (int word = c * CHAIN_WORDS; word < end; word += 4) {
                const float4 key = k[word / 4];
#pragma unroll
                for (int h = 0; h < TOGETHER; ++h) {
                    const float4 head = q[min(first + h, HEADS - 1) * (ROW_WORDS / 4) + word / 4];
                    sum[h] = fmaf(head.x, key.x, sum[h]);
                    if (WIDTH % 4 == 0 || word + 1 < WIDTH) sum[h] = fmaf(head.y, key.y, sum[h]);
                    if (WIDTH % 4 == 0 || word + 2 < WIDTH) sum[h] = fmaf(head.z, key.z, sum[h]);
                    if (WIDTH % 4 == 0 || word + 3 < WIDTH) sum[h] = fmaf(head.w, key.w, sum[h]);
                }
            }
#pragma unroll
            for (int h = 0; h < TOGETHER; ++h) {
                const int head = min(first + h, HEADS - 1);
                dot[h] = SCALES == SCALES_CHAIN ? joined(dot[h], sum[h], q_scales[head * CHAINS + c], k_scales[c]) : sum[h];
            }
        }
#pragma unroll
        for (int h = 0; h < TOGETHER; ++h) {
            if (first + h < HEADS) dots[(first + h) * STRIDE + lane] = dot[h];
        }
    }
}

#else

#if UNIT == UNIT_E4M3
__device__ __forceinline__ void mma_e4m3(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm(
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

#if UNIT == UNIT_MXF4
// A quad's first two threads give the scales of keys g and g + 8, its first one those of head g: two codes each.
__device__ __forceinline__ void mma_mxf4(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], u32 a_scales, u32 b_scales) {
    asm(
        "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3}, %10, {0,0}, %11, {0,0};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(a_scales), "r"(b_scales));
}
#endif

#if UNIT == UNIT_E4M3_WGMMA
// The query's rows as core matrices: 8 heads by 16 bytes, a head's neighbours in k one matrix further on.
__device__ void lay_out_query(u32* to, const u32* q) {
    for (int i = threadIdx.x; i < QUERY_WORDS; i += blockDim.x) {
        const int head = i / ROW_WORDS, word = i % ROW_WORDS;
        const int matrix = head / TILE_HEADS * (ROW_WORDS / 4) + word / 4;
        to[matrix * 32 + head % TILE_HEADS * 4 + word % 4] = head < HEADS ? q[i] : 0;
    }
    // What threads wrote is read by the unit.
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
}

// Where the unit finds two core matrices that lie one after the other: their address, and the 128 bytes between two of
// them along k (the second such field, along the heads, names no second row of matrices: there are 8 heads).
__device__ __forceinline__ unsigned long long matrices_at(const u32* pointer) {
    const unsigned long long apart = 128 >> 4;
    return (shared_address(pointer) & 0x3ffffu) >> 4 | apart << 16 | apart << 32;
}

__device__ __forceinline__ void wgmma_e4m3(float (&d)[4], const u32 (&a)[4], unsigned long long b) {
    asm volatile(
        "{.reg .pred accumulate; setp.eq.u32 accumulate, 0, 0;"
        "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%0,%1,%2,%3}, {%4,%5,%6,%7}, %8, accumulate, 1, 1;}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
#endif

// A chain from step `first` on: 16 keys' fragments `a` with heads 8 tile to 8 tile + 7. `head` is the row that the lane
// loads, `scales` are those of the key that it gives the scales of.
__device__ __forceinline__ void run_chain(float (&sum)[4], const u32 (&a)[STEPS][4], int first, int tile, const u32* head,
                                          const u32* head_scales, const u32* key_scales, const u32* query, int place) {
#if UNIT == UNIT_E4M3_WGMMA
    asm volatile("wgmma.fence.sync.aligned;" : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])::"memory");
#endif
#pragma unroll
    for (int s = first; s < min(first + CHAIN_WORDS / STEP_WORDS, STEPS); ++s) {
#if UNIT == UNIT_E4M3_WGMMA
        wgmma_e4m3(sum, a[s], matrices_at(query + (tile * (ROW_WORDS / 4) + 2 * s) * 32));
#else
        const u32 b[2] = {head[STEP_WORDS * s + place], head[STEP_WORDS * s + 4 + place]};
#if UNIT == UNIT_TF32
        mma_tf32(sum, a[s], b);
#elif UNIT == UNIT_BF16
        mma_bf16(sum, a[s], b);
#elif UNIT == UNIT_F16
        mma_f16(sum, a[s], b);
#elif UNIT == UNIT_E4M3
        mma_e4m3(sum, a[s], b);
#else
        mma_mxf4(sum, a[s], b, key_scales[s], head_scales[s]);
#endif
#endif
    }
#if UNIT == UNIT_E4M3_WGMMA
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])::"memory");
#endif
}

// The dots of all heads of a query with the warp's keys, `key` its first one.
__device__ void make_dots(float* dots, const u32* q, const u32* k, const u32* q_scales, const u32* k_scales,
                          const u32* query, int key, int keys, int lane) {
    const int group = lane / 4, place = lane % 4;
#pragma unroll 1
    for (int part = 0; part < KEYS; part += 16) {
        // Beyond the last key the last one stands in; its logits are not stored.
        const int low = min(key + part + group, keys - 1), high = min(key + part + group + 8, keys - 1);
        u32 a[STEPS][4];
#pragma unroll
        for (int s = 0; s < STEPS; ++s) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const long long row = i % 2 ? high : low;
                a[s][i] = k[row * ROW_WORDS + STEP_WORDS * s + 4 * (i / 2) + place];
            }
        }
#pragma unroll 1
        for (int tile = 0; tile < TILES; ++tile) {
            const int row = min(tile * TILE_HEADS + group, HEADS - 1);
            const u32* key_scales = k_scales + (long long)(place % 2 ? high : low) * STEPS;
            float dot[4] = {};
#pragma unroll
            for (int c = 0; c < CHAINS; ++c) {
                float sum[4] = {};
                run_chain(sum, a, c * (CHAIN_WORDS / STEP_WORDS), tile, q + row * ROW_WORDS, q_scales + row * STEPS,
                          key_scales, query, place);
#pragma unroll
                for (int i = 0; i < 4; ++i) {
#if SCALES == SCALES_CHAIN
                    const int head = min(tile * TILE_HEADS + 2 * place + i % 2, HEADS - 1);
                    const long long column = i / 2 ? high : low;
                    dot[i] = joined(dot[i], sum[i], __uint_as_float(q_scales[head * CHAINS + c]),
                                    __uint_as_float(k_scales[column * CHAINS + c]));
#else
                    dot[i] = sum[i];
#endif
                }
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int head = tile * TILE_HEADS + 2 * place + i % 2;
                if (head < HEADS) dots[head * STRIDE + part + group + 8 * (i / 2)] = dot[i];
            }
        }
    }
}

#endif

// a b + c rounded once to bf16: cut to fp32 and made odd where that is not exact, so that rounding it again is harmless.
__device__ __forceinline__ float fma_to_bf16(float a, float b, float c) {
    const bool is_exact = __fmaf_rd(a, b, c) == __fmaf_ru(a, b, c);
    const u32 cut = __float_as_uint(__fmaf_rz(a, b, c));
    return rounded<ROUND_BF16>(__uint_as_float(is_exact ? cut : cut | 1u));
}

// A dot behind relu.
__device__ __forceinline__ float activation(float x, float dot_scale, float key_scale) {
    if (DOT_SCALED) x = __fmul_rn(x, dot_scale);
    x = stored<DOT>(x);
    if (KEY_SCALE == KEY_SCALE_BEFORE_RELU) x = __fmul_rn(x, key_scale);
    if (RELU == RELU_MAX) return x > 0.0f ? x : 0.0f;
    if (RELU == RELU_KEEPS_NAN) return x <= 0.0f ? 0.0f : x;
    if (RELU == RELU_HALF_SUM) return __fadd_rn(x, fabsf(x));
    return x;
}

__device__ __forceinline__ float product(float x, float weight) { return stored<PRODUCT>(__fmul_rn(x, weight)); }

__device__ __forceinline__ float added(float a, float b) { return stored<SUM>(__fadd_rn(a, b)); }

__device__ __forceinline__ float accumulated(float sum, float x, float weight) {
    if (!HEAD_FMA || PRODUCT != STORE_F32) return added(sum, product(x, weight));
    return SUM == STORE_BF16 ? fma_to_bf16(x, weight, sum) : fmaf(x, weight, sum);
}

// A sum times the key's scale, which is stored as sums are.
__device__ __forceinline__ float scaled(float sum, float scale) { return stored<SUM>(__fmul_rn(sum, stored<SUM>(scale))); }

__device__ __forceinline__ float before_lanes(float sum, float scale) {
    return KEY_SCALE == KEY_SCALE_BEFORE_LANES ? scaled(sum, scale) : sum;
}

#if ORDER == ORDER_TREE

// The sum over the heads of one key, whose dots lie STRIDE apart, in their place. Unrolled loops make the compiler
// spill on some archs.
__device__ float head_sum(float* dots, const float* weights, float dot_scale, float scale) {
#pragma unroll 1
    for (int head = 0; head < HEADS; ++head) {
        const float x = activation(dots[head * STRIDE], dot_scale, scale);
        dots[head * STRIDE] = before_lanes(product(x, weights[head]), scale);
    }
    int stride = 1;
    while (2 * stride < HEADS) stride *= 2;
#pragma unroll 1
    for (int terms = HEADS; terms > 1; terms = stride, stride /= 2) {
#pragma unroll 1
        for (int head = stride; head < terms; ++head) {
            float* to = dots + (head - stride) * STRIDE;
            *to = added(*to, dots[head * STRIDE]);
        }
    }
    return dots[0];
}

#else

#define SUMS (ORDER == ORDER_LANES ? 8 : ORDER == ORDER_CHAINS ? 4 : 1)

// The sum over the heads of one key, whose dots lie STRIDE apart.
__device__ float head_sum(const float* dots, const float* weights, float dot_scale, float scale) {
    float sums[SUMS] = {}, total = 0.0f;
    for (int first = 0; first < HEADS; first += 8) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int head = first + i;
            if (HEADS % 8 != 0 && head >= HEADS) break;
            const float x = activation(dots[head * STRIDE], dot_scale, scale);
            sums[i % SUMS] = accumulated(sums[i % SUMS], x, weights[head]);
        }
        if (ORDER == ORDER_CHUNKS) {
            total = added(total, before_lanes(sums[0], scale));
            sums[0] = 0.0f;
        }
    }
#if ORDER == ORDER_CHUNKS
    return total;
#elif ORDER == ORDER_LANES
    float lanes[4];
#pragma unroll
    for (int lane = 0; lane < 4; ++lane) lanes[lane] = before_lanes(added(sums[2 * lane], sums[2 * lane + 1]), scale);
    return added(added(lanes[0], lanes[1]), added(lanes[2], lanes[3]));
#else
#pragma unroll
    for (int i = 0; i < SUMS; ++i) sums[i] = before_lanes(sums[i], scale);
#if ORDER == ORDER_CHAINS
    return added(added(sums[0], sums[2]), added(sums[1], sums[3]));
#else
    return sums[0];
#endif
#endif
}

#endif

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    index_logits(const u32* __restrict__ q, const u32* __restrict__ k, const u32* __restrict__ q_scales,
                 const u32* __restrict__ k_scales, const float* __restrict__ weights,
                 const float* __restrict__ key_scales, float* __restrict__ logits, int keys, float dot_scale) {
    extern __shared__ __align__(128) u32 shared[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const long long query = blockIdx.x;
    const int first = (blockIdx.y * WARPS + warp) * KEYS, key = first + lane;
    float* dots = (float*)(shared + QUERY_WORDS) + warp * HEADS * STRIDE;
    q += query * HEADS * ROW_WORDS;
    if (SCALES != SCALES_NONE) q_scales += query * HEADS * (SCALES == SCALES_CHAIN ? CHAINS : STEPS);
#if UNIT == UNIT_FMA
    const long long row = min(key, keys - 1);
    make_dots(dots, (const float4*)q, (const float4*)(k + row * ROW_WORDS), (const float*)q_scales,
              (const float*)k_scales + row * CHAINS, lane);
#else
#if UNIT == UNIT_E4M3_WGMMA
    lay_out_query(shared, q);
#endif
    make_dots(dots, q, k, q_scales, k_scales, shared, first, keys, lane);
#endif
    __syncwarp();
    if (key >= keys) return;
    const float scale = KEY_SCALE == KEY_SCALE_NONE ? 1.0f : key_scales[key];
    float logit = head_sum(dots + lane, weights + query * HEADS, dot_scale, scale);
    if (RELU == RELU_HALF_SUM) logit = __fmul_rn(logit, 0.5f);
    if (KEY_SCALE == KEY_SCALE_LAST) logit = scaled(logit, scale);
    logits[query * keys + key] = rounded<OUTPUT>(logit);
}
