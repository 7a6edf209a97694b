/* A grid-stride read of contiguous memory. Its time is a measure of the GPU's memory. */

#include <cstddef>
#include <cstdint>

constexpr int UNROLL = 4;

extern "C" __global__ void plain_read(const uint4 *data, size_t count, uint32_t *never) {
    uint32_t seen = 0;
    size_t step = (size_t)gridDim.x * blockDim.x, i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + (UNROLL - 1) * step < count; i += UNROLL * step) {
        uint4 values[UNROLL];
#pragma unroll
        for (int j = 0; j < UNROLL; j++) values[j] = __ldg(&data[i + j * step]);
#pragma unroll
        for (int j = 0; j < UNROLL; j++) seen |= values[j].x ^ values[j].y ^ values[j].z ^ values[j].w;
    }
    for (; i < count; i += step) seen |= data[i].x ^ data[i].y ^ data[i].z ^ data[i].w;
    /* Keeps the loads; the pointer is null. */
    if (never && seen == 0x12345678) *never = seen;
}
