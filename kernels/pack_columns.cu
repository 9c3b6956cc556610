// Weights as the projection on CUDA cores wants them: rounded, in parts, the outputs of one k together. A weight is packed
// once, when it is loaded.
//
//   w       [N, K] fp32
//   packed  [tiles of outputs, W_PARTS, K, WIDTH] fp32
//
// Macros from the host: W_ROUND, W_PARTS, WIDTH, the outputs of a tile.
//
// Tiles: a thread takes one k of one output, blockIdx.y is a tile of outputs. What lies beyond the outputs is zero.
//
// Order: part 0 is w rounded by W_ROUND, part 1 what that leaves of w, rounded, and so on; each subtraction is exact.
#include "common.cuh"

extern "C" __global__ void pack_columns(const float* __restrict__ w, float* __restrict__ packed, int outputs, int depth) {
    const long long item = (long long)blockIdx.x * blockDim.x + threadIdx.x, part_size = (long long)depth * WIDTH;
    const int k = (int)(item / WIDTH), output = blockIdx.y * WIDTH + (int)(item % WIDTH);
    if (k >= depth) return;
    float left = output < outputs ? w[(long long)output * depth + k] : 0.0f;
    float* to = packed + blockIdx.y * W_PARTS * part_size + item;
#pragma unroll
    for (int part = 0; part < W_PARTS; ++part) {
        const float value = rounded<W_ROUND>(left);
        to[part * part_size] = value;
        left = left - value;
    }
}
