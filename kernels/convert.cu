// The conversions of fp32 words to operands, as the device makes them.
//
//   x  [count] fp32 bits      rna_tf32  [count] words, by cvt.rna.tf32.f32      rn_bf16  [count] codes, by cvt.rn.bf16.f32
//
// No macros. A thread per word.
#include "common.cuh"

extern "C" __global__ void convert(const u32* __restrict__ x, u32* __restrict__ rna_tf32, u16* __restrict__ rn_bf16,
                                   int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const float value = __uint_as_float(x[i]);
    rna_tf32[i] = __float_as_uint(round_tf32_away(value));
    u16 code;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(code) : "f"(value));
    rn_bf16[i] = code;
}
