// Launches: when CTAs start and end.

#include "common.cuh"

// Keeps the GPU busy for `duration` cycles: hides the host's work of the launches that follow.
extern "C" __global__ void spin(int64_t duration) {
    const uint64_t start = cycles();
    while (cycles() - start < duration) {
    }
}

// mode: 1 lets the next launch start at once, 2 waits for the last launch. Writes nothing.
extern "C" __global__ void empty(int mode) {
    if (mode & 1) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    if (mode & 2) asm volatile("griddepcontrol.wait;" ::: "memory");
}

// Thread 0 of each CTA records when it starts, when griddepcontrol.wait returns (words 6, 7) and when it ends, `duration`
// cycles after its start or after the wait. launch: number of the launch.
extern "C" __global__ void stamp(uint64_t *out, int launch, int mode, int duration) {
    if (threadIdx.x) return;
    Timer timer;
    if (mode & 1) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    if (mode & 2) asm volatile("griddepcontrol.wait;" ::: "memory");
    const uint64_t waited = cycles(), waited_ns = nanoseconds();
    while (cycles() - waited < duration) {
    }
    timer.stop(out + (int64_t(launch) * gridDim.x + blockIdx.x) * kRecord, launch, waited, waited_ns);
}

// Each CTA reads `bytes` that no launch has read, and records its start and its end. launch: number of the launch.
extern "C" __global__ void read_stamp(uint64_t *out, const uint4 *data, int launch, int64_t bytes) {
    Timer timer;
    const int64_t vectors = bytes / 16;
    const uint4 *mine = data + (int64_t(launch) * gridDim.x + blockIdx.x) * vectors;
    uint32_t sum = 0;
#pragma unroll 8
    for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
        const uint4 value = __ldcg(mine + i);
        sum ^= value.x ^ value.y ^ value.z ^ value.w;
    }
    if (__syncthreads_or(sum == 0x12345678)) return;
    if (threadIdx.x == 0) timer.stop(out + (int64_t(launch) * gridDim.x + blockIdx.x) * kRecord, sum, launch);
}
