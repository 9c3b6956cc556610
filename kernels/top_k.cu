// The k largest of each row of logits, exactly: ties to the lower index, -0 equal to +0, NaN behind every number.
//
//   logits [rows, keys] fp32      visible [rows], how many of a row's keys take part, at most `keys`
//   selected [rows, k]: the keys taken, ascending, as many as the smaller of k and visible; what follows is not written
//
// No macros. Tiles: a block of THREADS takes one row.
//
// A logit becomes an integer of the same order, NaN the least. The cut, the k-th largest, is found eight bits at a time
// from the top: a histogram in shared memory of the logits that agree with the cut so far, whose counts from the highest
// digit down say in which one it lies. Then the row once more, in order: what is above the cut is taken, and of what
// equals it the first that are still wanted. Counts alone decide, so that the threads' own order does not matter.
#include "common.cuh"

#define THREADS 512
#define WARPS (THREADS / 32)
#define DIGITS 256
// Digits of a lane of the warp that looks through the histogram.
#define MINE (DIGITS / 32)

// Larger is better.
__device__ __forceinline__ u32 rank_of(float logit) {
    const u32 bits = __float_as_uint(logit), sign = 0x80000000u;
    if ((bits & ~sign) > 0x7f800000u) return 0;
    if (bits == sign) return sign;
    return bits & sign ? ~bits : bits | sign;
}

// The digit in which the logit number `wanted` from the top lies, and its number among those of the digit; by one warp.
__device__ __forceinline__ void find_digit(const int* histogram, int wanted, int lane, int* digit, int* number) {
    const int* mine = histogram + DIGITS - MINE * (lane + 1);
    int sum = 0;
#pragma unroll
    for (int i = 0; i < MINE; ++i) sum += mine[i];
    int above = sum;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, above, distance);
        if (lane >= distance) above += other;
    }
    above -= sum;
    if (wanted <= above || wanted > above + sum) return;
    int i = MINE - 1;
    while (wanted > above + mine[i]) above += mine[i--];
    *digit = DIGITS - MINE * (lane + 1) + i;
    *number = wanted - above;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    top_k(const float* __restrict__ logits, const int* __restrict__ visible, u32* __restrict__ selected, int keys, int k) {
    __shared__ int histogram[DIGITS], counts[WARPS], digit, number;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, count = visible[blockIdx.x];
    logits += (long long)blockIdx.x * keys;
    selected += (long long)blockIdx.x * k;
    // How many of the logits that agree with the cut so far are wanted.
    int wanted = min(k, count);
    if (wanted == 0) return;

    u32 cut = 0, known = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (int i = threadIdx.x; i < DIGITS; i += THREADS) histogram[i] = 0;
        __syncthreads();
        for (int i = threadIdx.x; i < count; i += THREADS) {
            const u32 rank = rank_of(logits[i]);
            if ((rank & known) == cut) atomicAdd(&histogram[rank >> shift & (DIGITS - 1)], 1);
        }
        __syncthreads();
        if (warp == 0) find_digit(histogram, wanted, lane, &digit, &number);
        __syncthreads();
        cut |= (u32)digit << shift;
        known |= (u32)(DIGITS - 1) << shift;
        wanted = number;
    }

    // Logits above the cut and equal to it, of all that came before.
    int above = 0, equal = 0;
    const u32 lower = (1u << lane) - 1;
    for (int start = 0; start < count; start += THREADS) {
        const int i = start + threadIdx.x;
        const u32 rank = i < count ? rank_of(logits[i]) : 0;
        const bool is_above = rank > cut, is_equal = i < count && rank == cut;
        const u32 all_above = __ballot_sync(0xffffffffu, is_above), all_equal = __ballot_sync(0xffffffffu, is_equal);
        // Both fit in 16 bits.
        if (lane == 0) counts[warp] = __popc(all_above) | __popc(all_equal) << 16;
        __syncthreads();
        int before = 0, all = 0;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) {
            before += w < warp ? counts[w] : 0;
            all += counts[w];
        }
        const int my_above = above + (before & 0xffff) + __popc(all_above & lower);
        const int my_equal = equal + (before >> 16) + __popc(all_equal & lower);
        if (is_above || (is_equal && my_equal < wanted)) selected[my_above + min(my_equal, wanted)] = i;
        above += all & 0xffff;
        equal += all >> 16;
        __syncthreads();
    }
}
