// Readers that do not wait for the launch ahead, and writers to put ahead of them.

#include "common.cuh"

constexpr int kWords = 4096;  // of 32 bits, that a CTA has in shared memory at once

__device__ __forceinline__ void pass(int64_t duration) {
    const uint64_t start = cycles();
    while (cycles() - start < duration) {
    }
}

// Every word of data becomes value. early: the next launch may start before anything is written, and `duration` cycles pass.
extern "C" __global__ void write(uint32_t *data, int64_t words, uint32_t value, int early, int64_t duration) {
    if (early) {
        asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
        pass(duration);
    }
    for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < words; i += int64_t(gridDim.x) * blockDim.x)
        data[i] = value;
}

// At the end of a reader: one wait, so that launches end in order, then the sum of all threads' counts.
__device__ __forceinline__ void add(unsigned long long *stale, uint32_t found) {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    if (found) atomicAdd(stale, found);
}

// Adds the words that differ from value to *stale, the last word of data first: it was written last. delay: cycles from
// the start of the kernel to its first read.
extern "C" __global__ void read_loads(const uint32_t *data, int64_t words, uint32_t value, unsigned long long *stale,
                                      int64_t delay) {
    uint32_t found = 0;
    if (delay) pass(delay);
    for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < words; i += int64_t(gridDim.x) * blockDim.x)
        found += data[words - 1 - i] != value;
    add(stale, found);
}

// The same by bulk copies to shared memory. words: a multiple of kWords.
extern "C" __global__ void read_bulk(const uint32_t *data, int64_t words, uint32_t value, unsigned long long *stale,
                                     int64_t delay) {
    __shared__ alignas(128) uint32_t copied[kWords];
    __shared__ uint64_t full;
    const uint32_t barrier = shared_address(&full);
    if (threadIdx.x == 0) {
        init(barrier, 1);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    if (delay) pass(delay);
    uint32_t found = 0, parity = 0;
    for (int64_t part = words / kWords - 1 - blockIdx.x; part >= 0; part -= gridDim.x) {
        if (threadIdx.x == 0) {
            expect(barrier, kWords * 4);
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                    shared_address(copied)),
                "l"(data + part * kWords), "r"(kWords * 4), "r"(barrier)
                : "memory");
        }
        wait(barrier, parity);
        parity ^= 1;
        for (int i = threadIdx.x; i < kWords; i += blockDim.x) found += copied[i] != value;
        __syncthreads();
    }
    add(stale, found);
}
