// Weights as the projection on a matrix unit wants them: rounded, in parts, in the order of its registers. A weight is
// packed once, when it is loaded.
//
//   w       [N, K] fp32      unit, each, extra: the ranges, by range_start
//   packed  [W_PARTS, chunks, CHUNK / 16, N_TILES, 32] registers of a lane: two words of bf16 or f16 pairs, four of TF32
//
// Macros from the host: UNIT, W_ROUND, W_PARTS, N_TILES = ceil(N / 8), CHUNK.
//
// Tiles: blockIdx.y is a range; a thread takes what one lane brings of 16 k and 8 outputs: outputs 8j + lane / 4, and k by
// KOF in matrix.cuh. Each range begins a chunk. What lies beyond a range or the outputs is zero.
//
// Order: part 0 is w rounded by W_ROUND, part 1 what that leaves of w, rounded, and so on; each subtraction is exact.
#include "matrix.cuh"

extern "C" __global__ void pack_weights(const float* __restrict__ w, Weights* __restrict__ packed, int outputs, int depth,
                                        int splits, int unit, int each, int extra) {
    const int range = blockIdx.y;
    const int begin = range_start(range, unit, each, extra, depth), end = range_start(range + 1, unit, each, extra, depth);
    const int item = blockIdx.x * blockDim.x + threadIdx.x, lane = item % 32, tile = item / 32 % N_TILES;
    const int group = item / (32 * N_TILES), output = 8 * tile + lane / 4;
    const int first = chunk_start(range, unit, each, extra), last = chunk_start(range + 1, unit, each, extra);
    if (group >= (last - first) * (CHUNK / GROUP)) return;
    float left[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int k = begin + GROUP * group + KOF(lane % 4, i);
        left[i] = k < end && output < outputs ? w[(long long)output * depth + k] : 0.0f;
    }
    const long long part_size = chunk_start(splits, unit, each, extra) * (long long)CHUNK_REGISTERS;
    Weights* to = packed + first * (long long)CHUNK_REGISTERS + item;
#pragma unroll
    for (int part = 0; part < W_PARTS; ++part) {
        to[part * part_size] = weight_registers<W_ROUND>(left);
#pragma unroll
        for (int i = 0; i < 4; ++i) left[i] = left[i] - rounded<W_ROUND>(left[i]);
    }
}
