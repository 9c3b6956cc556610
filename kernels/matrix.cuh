// What packed weights and the projection on a matrix unit agree on: which k a lane brings, and its registers.
//
// Macros from the host: UNIT.
//
// k goes by in groups of 16. The sum inside a block of an instruction is exact, so that any lane may bring any k of the
// block, as long as x and w do the same: KOF(t, i) is the k of a group that lane t (of the four that share a token or
// an output) brings as its value i. Blocks are 8 k of a TF32 and 16 of a bf16 or f16 instruction from sm_90 on, half
// of that before.
#pragma once
#include "common.cuh"

#define GROUP 16

// Values 0 and 1 are a block's, or slots t and t + 4 of the first TF32 instruction; 2 and 3 the next.
#if UNIT == UNIT_TF32 && __CUDA_ARCH__ < 900
#define KOF(t, i) ((t) + 4 * (i))
#define NEIGHBOURS 0
#define EXCHANGE 0
#elif UNIT == UNIT_TF32 || __CUDA_ARCH__ < 900
// Lanes 0..3 load k 0..3, 4..7, 8..11, 12..15 and exchange halves two apart: 0 1 8 9, 4 5 12 13, 2 3 10 11, 6 7 14 15.
#define KOF(t, i) (4 * ((t) & 1) + ((t) & 2) + ((i) & 1) + 8 * ((i) >> 1))
#define NEIGHBOURS 1
#define EXCHANGE 1
#else
#define KOF(t, i) (4 * (t) + (i))
#define NEIGHBOURS 1
#define EXCHANGE 0
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

