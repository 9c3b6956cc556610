// One matrix instruction per tile, as the unit computes it: d = a b + c.
//
//   a  [tiles, 16, DEPTH] and b [tiles, DEPTH, 8]: raw codes of CODE_BYTES bytes, one after another
//   c  [tiles, 16, 8] fp32 bits      d  [tiles, 16, 8] fp32 bits
//
// Macros from the host: DEPTH, OPERAND (tf32, bf16, f16, e4m3) and CODE_BYTES, which name the instruction
// mma.sync.aligned.m16n8k<DEPTH>.row.col.f32.<OPERAND>.<OPERAND>.f32.
//
// Tiles: one warp each, and one instruction per warp; nothing is rounded before and nothing after it. Before
// sm_89 there is no e4m3; on sm_90 and sm_100 the assembler makes two f16 instructions and an addition of it.
//
// Lanes (g = lane / 4, t = lane % 4), as the instruction set names them, nothing permuted. A register
// holds P = 4 / CODE_BYTES neighbours in k, the first in the low bits. With h = 0 and, where DEPTH has
// a second half, h = 1: registers 2h and 2h + 1 of a are rows g and g + 8 from k = 4Ph + Pt on, register h of b is
// column g from the same k on. c and d: 0, 1 are row g, columns 2t, 2t + 1; 2, 3 the same of row g + 8.
#include "common.cuh"

#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)
#define INSTRUCTION "mma.sync.aligned.m16n8k" TEXT(DEPTH) ".row.col.f32." TEXT(OPERAND) "." TEXT(OPERAND) ".f32 "

#if CODE_BYTES == 1
typedef unsigned char Code;
#elif CODE_BYTES == 2
typedef u16 Code;
#else
typedef u32 Code;
#endif

#define PER_REGISTER (4 / CODE_BYTES)
#define HALVES (DEPTH / (4 * PER_REGISTER))

// PER_REGISTER codes, `stride` apart, as one register.
__device__ __forceinline__ u32 register_of(const Code* codes, int stride) {
    u32 word = 0;
#pragma unroll
    for (int i = 0; i < PER_REGISTER; ++i) word |= (u32)codes[i * stride] << (8 * CODE_BYTES * i);
    return word;
}

__device__ __forceinline__ void instruction(float (&d)[4], const u32 (&a)[2 * HALVES], const u32 (&b)[HALVES]) {
#if HALVES == 2
    asm volatile(INSTRUCTION "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    asm volatile(INSTRUCTION "{%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b[0]));
#endif
}

extern "C" __global__ void tiles(const Code* __restrict__ a, const Code* __restrict__ b, const u32* __restrict__ c,
                                 u32* __restrict__ d, int count) {
    const int tile = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (tile >= count) return;
    const int group = threadIdx.x % 32 / 4, place = threadIdx.x % 4;
    a += (long long)tile * 16 * DEPTH;
    b += (long long)tile * DEPTH * 8;
    const long long output = (long long)tile * 128 + group * 8 + 2 * place;

    u32 a_registers[2 * HALVES], b_registers[HALVES];
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
        const int k = 4 * PER_REGISTER * half + PER_REGISTER * place;
        a_registers[2 * half] = register_of(a + group * DEPTH + k, 1);
        a_registers[2 * half + 1] = register_of(a + (group + 8) * DEPTH + k, 1);
        b_registers[half] = register_of(b + k * 8 + group, 8);
    }
    float sum[4] = {__uint_as_float(c[output]), __uint_as_float(c[output + 1]), __uint_as_float(c[output + 64]),
                    __uint_as_float(c[output + 65])};
    instruction(sum, a_registers, b_registers);
    d[output] = __float_as_uint(sum[0]);
    d[output + 1] = __float_as_uint(sum[1]);
    d[output + 64] = __float_as_uint(sum[2]);
    d[output + 65] = __float_as_uint(sum[3]);
}
