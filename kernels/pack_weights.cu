// Weights as the projection on a matrix unit wants them: rounded, in parts, in the order of its registers.
//
//   w       [N, K] fp32      bounds  [S + 1]: range s is k bounds[s]..bounds[s+1]
//   groups  [S + 1]: its groups of 16 k are groups[s]..groups[s+1]
//   packed  [W_PARTS, groups, N_TILES, 32] registers of a lane: two words of bf16 or f16 pairs, four of TF32
//
// Macros from the host: UNIT, W_ROUND, W_PARTS, N_TILES = ceil(N / 8).
//
// Tiles: a thread takes what one lane brings of one group and 8 outputs: outputs 8j + lane / 4, and k by KOF in
// matrix.cuh. What lies beyond a range or the outputs is zero.
//
// Order: part 0 is w rounded by W_ROUND, part 1 what that leaves of w, rounded, and so on; each subtraction is exact.
#include "matrix.cuh"

extern "C" __global__ void pack_weights(const float* __restrict__ w, const int* __restrict__ bounds,
                                        const int* __restrict__ groups, Weights* __restrict__ packed, int outputs,
                                        int depth) {
    const int begin = bounds[blockIdx.y], end = bounds[blockIdx.y + 1], first = groups[blockIdx.y];
    const int item = blockIdx.x * blockDim.x + threadIdx.x, lane = item % 32, tile = item / 32 % N_TILES;
    const int group = item / (32 * N_TILES), output = 8 * tile + lane / 4;
    if (first + group >= groups[blockIdx.y + 1]) return;
    float left[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int k = begin + GROUP * group + KOF(lane % 4, i);
        left[i] = k < end && output < outputs ? w[(long long)output * depth + k] : 0.0f;
    }
    const long long part_size = (long long)groups[gridDim.y] * N_TILES * 32;
    Weights* to = packed + ((long long)(first + group) * N_TILES + tile) * 32 + lane;
#pragma unroll
    for (int part = 0; part < W_PARTS; ++part) {
        to[part * part_size] = weight_registers<W_ROUND>(left);
#pragma unroll
        for (int i = 0; i < 4; ++i) left[i] = left[i] - rounded<W_ROUND>(left[i]);
    }
}
