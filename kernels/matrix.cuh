// What packed weights and the projection on a matrix unit agree on: which k a lane brings, and its registers.
//
// Macros from the host: UNIT, CHUNK, N_TILES.
//
// k goes by in groups of 16. The sum inside a block of an instruction is exact, so that any lane may bring any k of the
// block, as long as x and w do the same: KOF(t, i) is the k of a group that lane t (of the four that share a token or
// an output) brings as its value i. Blocks are 8 k of a TF32 and 16 of a bf16 or f16 instruction from sm_90 on, half
// of that before.
#pragma once
#include "common.cuh"

#define GROUP 16

// Values 0 and 1 are a bf16 register, or slots t and t + 4 of the first TF32 instruction; 2 and 3 the next.
#if UNIT == UNIT_TF32 && __CUDA_ARCH__ < 900
#define KOF(t, i) ((t) + 4 * (i))
#define PAIRS 0
#else
// Pairs of neighbours, as ldmatrix brings them.
#define KOF(t, i) (2 * (t) + ((i) & 1) + 8 * ((i) >> 1))
#define PAIRS 1
#endif

#if UNIT == UNIT_BF16
#define PACK pack_bf16
#else
#define PACK pack_f16
#endif

// What a lane brings of w for one group and 8 outputs.
#if UNIT == UNIT_TF32
typedef uint4 Weights;
#else
typedef uint2 Weights;
#endif

// The unit ignores the low 13 bits of a register: truncation needs no instruction.
template <int ROUNDING>
__device__ __forceinline__ u32 tf32_register(float x) {
    return __float_as_uint(ROUNDING == ROUND_TF32_TRUNCATE ? x : rounded<ROUNDING>(x));
}

// Weights less the parts before theirs, as registers.
template <int ROUNDING>
__device__ __forceinline__ Weights weight_registers(const float (&left)[4]) {
#if UNIT == UNIT_TF32
    return {tf32_register<ROUNDING>(left[0]), tf32_register<ROUNDING>(left[1]), tf32_register<ROUNDING>(left[2]),
            tf32_register<ROUNDING>(left[3])};
#else
    return {PACK(left[0], left[1]), PACK(left[2], left[3])};
#endif
}

// Lanes' registers of a chunk of packed weights.
#define CHUNK_REGISTERS (CHUNK / GROUP * N_TILES * 32)

// The first chunk of packed weights of a range: each range begins one, and all but the last have their full length.
__device__ __forceinline__ int chunk_start(int range, int unit, int each, int extra) {
    const int longer = (unit * (each + 1) + CHUNK - 1) / CHUNK, shorter = (unit * each + CHUNK - 1) / CHUNK;
    return min(range, extra) * longer + max(range - extra, 0) * shorter;
}
