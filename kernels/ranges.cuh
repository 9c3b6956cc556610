// How a kernel walks through k: range by range, in each the products in turn, in each chunks of k.
//
// Macros: CHUNK, PRODUCTS.
#pragma once
#include "common.cuh"

// What a block or a warp takes: ranges first, first + stride, ... below last.
struct Ranges {
    int first, last, stride, unit, each, extra, depth;
};

__device__ __forceinline__ int start_of(const Ranges& ranges, int range) {
    return range_start(range, ranges.unit, ranges.each, ranges.extra, ranges.depth);
}

// A chunk: k up to the end of the range, CHUNK of them at most.
struct Cursor {
    int range, product, chunk, k, end;
};

__device__ __forceinline__ Cursor first_of(const Ranges& ranges) {
    return {ranges.first, 0, 0, start_of(ranges, ranges.first), start_of(ranges, ranges.first + 1)};
}

__device__ __forceinline__ bool is_over(const Cursor& at, const Ranges& ranges) { return at.range >= ranges.last; }

__device__ __forceinline__ void advance(Cursor& at, const Ranges& ranges) {
    at.k += CHUNK;
    ++at.chunk;
    if (at.k < at.end) return;
    at.chunk = 0;
    if (++at.product == PRODUCTS) {
        at.product = 0;
        at.range += ranges.stride;
        at.end = start_of(ranges, at.range + 1);
    }
    at.k = start_of(ranges, at.range);
}

// The shares of `splits` ranges: share i of n.
__device__ __forceinline__ int share_start(int splits, int share, int shares) {
    return (int)((long long)splits * share / shares);
}
