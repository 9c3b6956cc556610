// Fragments shared by the kernels: number formats, asynchronous copies, matrix instructions.
//
// No toolkit headers: bf16 and f16 travel as unsigned integers, conversions are inline PTX. All
// kernels are compiled with --fmad=false, so that a product and a sum are fused where fmaf says so
// and nowhere else. Everything needs sm_80.
#pragma once

typedef unsigned int u32;
typedef unsigned short u16;

// Roundings of an operand, numbered as the host passes them.
#define ROUND_NONE 0
#define ROUND_TF32_NEAREST 1
#define ROUND_TF32_AWAY 2
#define ROUND_TF32_TRUNCATE 3
#define ROUND_BF16 4
#define ROUND_F16 5

// Matrix units.
#define UNIT_TF32 0
#define UNIT_BF16 1
#define UNIT_F16 2

// How a result is stored.
#define STORE_F32 0
#define STORE_BF16 1

__device__ __forceinline__ float bf16_to_f32(u32 code) { return __uint_as_float(code << 16); }

// Two values as bf16, to nearest even; the first is the lower half.
__device__ __forceinline__ u32 pack_bf16(float low, float high) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

// Two values as f16, to nearest even; the first is the lower half.
__device__ __forceinline__ u32 pack_f16(float low, float high) {
    u32 pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

__device__ __forceinline__ float f16_to_f32(u16 code) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(code));
    return value;
}

// TF32 to nearest even: one instruction from sm_90 on, integer arithmetic before. Every NaN becomes
// 7fffe000 in the latter, as in the copy engine; which NaN it is decides nothing.
__device__ __forceinline__ float round_tf32_nearest(float x) {
#if __CUDA_ARCH__ >= 900
    u32 rounded;
    asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
    return __uint_as_float(rounded);
#else
    u32 bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return __uint_as_float(0x7fffe000u);
    return __uint_as_float((bits + 0xfffu + ((bits >> 13) & 1u)) & 0xffffe000u);
#endif
}

__device__ __forceinline__ float round_tf32_away(float x) {
    u32 rounded;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
    return __uint_as_float(rounded);
}

template <int ROUNDING>
__device__ __forceinline__ float rounded(float x) {
    if (ROUNDING == ROUND_TF32_NEAREST) return round_tf32_nearest(x);
    if (ROUNDING == ROUND_TF32_AWAY) return round_tf32_away(x);
    if (ROUNDING == ROUND_TF32_TRUNCATE) return __uint_as_float(__float_as_uint(x) & 0xffffe000u);
    if (ROUNDING == ROUND_BF16) return bf16_to_f32(pack_bf16(x, 0.0f) & 0xffffu);
    if (ROUNDING == ROUND_F16) return f16_to_f32((u16)(pack_f16(x, 0.0f) & 0xffffu));
    return x;
}

// What part number `part` of a compensated value rounds: x less the parts before it. Each
// subtraction is exact.
template <int ROUNDING>
__device__ __forceinline__ float remainder_of(float x, int part) {
    for (int before = 0; before < part; ++before) x = x - rounded<ROUNDING>(x);
    return x;
}

template <int STORAGE>
__device__ __forceinline__ float stored(float x) {
    return STORAGE == STORE_BF16 ? rounded<ROUND_BF16>(x) : x;
}

// One element of x as fp32: from bf16 codes or from fp32.
__device__ __forceinline__ float widen(u16 x) { return bf16_to_f32(x); }
__device__ __forceinline__ float widen(float x) { return x; }

__device__ __forceinline__ u32 shared_address(const void* pointer) {
    return (u32)__cvta_generic_to_shared(pointer);
}

// Starts a copy of 16 bytes into shared memory. The line around them comes into the second-level cache: the next chunk
// asks for it.
__device__ __forceinline__ void copy_16(void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}

// The same with half of the line: two chunks of 32 bytes of a row are in it.
__device__ __forceinline__ void copy_16_of_64(void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global.L2::64B [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}

// The same of what is read once and does not fit the second-level cache: it makes way there before what is read again.
__device__ __forceinline__ void copy_16_once(void* to, const void* from) {
    unsigned long long first;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(first));
    asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(from), "l"(first)
                 : "memory");
}

__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most PENDING groups of copies are on their way.
template <int PENDING>
__device__ __forceinline__ void await_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// Where range `s` of k begins: a range is units of `unit` elements, `each` of them and one more for the first `extra`;
// the last may be cut short by the depth.
__device__ __forceinline__ int range_start(int s, int unit, int each, int extra, int depth) {
    return min(unit * (s * each + min(s, extra)), depth);
}

// From sm_90 on a kernel may begin before the one ahead has ended: it waits for it before it reads what that one left, and
// says when the next may begin.
__device__ __forceinline__ void await_kernel_ahead() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void let_next_kernel_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Four 8 by 8 matrices of 16-bit elements; each lane gives a row's address.
__device__ __forceinline__ void load_matrices(u32 (&to)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row)));
}

// d += a b of m16n8k8 on TF32 registers.
__device__ __forceinline__ void mma_tf32(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// d += a b of m16n8k16 on bf16 pairs.
__device__ __forceinline__ void mma_bf16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// d += a b of m16n8k16 on f16 pairs.
__device__ __forceinline__ void mma_f16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
