// What every kernel of the calibration shares: clocks, the record that it leaves, mbarriers.
//
// A kernel writes one record per CTA and warp, or per CTA where one thread works: 8 words of 64 bits. Words 4 to 7 are
// the kernel's own; a result that nothing reads would be optimized away, so sums end in word 5.

#pragma once
#include <cstdint>

constexpr int kRecord = 8;

__device__ __forceinline__ uint32_t shared_address(const void *pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ uint64_t cycles() {
    uint64_t value;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(value)::"memory");
    return value;
}

__device__ __forceinline__ uint64_t nanoseconds() {
    uint64_t value;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(value)::"memory");
    return value;
}

__device__ __forceinline__ uint32_t sm() {
    uint32_t value;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(value));
    return value;
}

__device__ __forceinline__ uint32_t rank() {
    uint32_t value;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(value));
    return value;
}

struct Timer {
    uint64_t start_ns, start;
    __device__ __forceinline__ Timer() : start_ns(nanoseconds()), start(cycles()) {}

    __device__ __forceinline__ void stop(uint64_t *record, uint64_t sum = 0, uint64_t a = 0, uint64_t b = 0) const {
        const uint64_t end = cycles(), end_ns = nanoseconds();
        record[0] = start, record[1] = end, record[2] = start_ns, record[3] = end_ns;
        record[4] = sm(), record[5] = sum, record[6] = a, record[7] = b;
    }
};

__device__ __forceinline__ uint64_t *warp_record(uint64_t *out) {
    return out + kRecord * (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32);
}

__device__ __forceinline__ uint64_t *cta_record(uint64_t *out) { return out + kRecord * blockIdx.x; }

// ---------------------------------------------------------------------------------------------------------------------
// mbarriers, by their address in shared memory
// ---------------------------------------------------------------------------------------------------------------------

__device__ __forceinline__ void init(uint32_t barrier, uint32_t count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

__device__ __forceinline__ void fence_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// cluster_address: of shared::cluster, from mapa. The second form makes earlier writes visible to the cluster.
__device__ __forceinline__ void arrive_remote(uint32_t cluster_address) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(cluster_address) : "memory");
}

__device__ __forceinline__ void arrive_remote_release(uint32_t cluster_address) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(cluster_address) : "memory");
}

// True in one lane of a whole warp. Its copies need no loop over lanes, which a comparison with threadIdx.x gives them.
__device__ __forceinline__ bool elect() {
    uint32_t chosen;
    asm volatile("{\n\t.reg .pred p;\n\telect.sync _|p, 0xffffffff;\n\tselp.u32 %0, 1, 0, p;\n\t}" : "=r"(chosen));
    return chosen;
}

__device__ __forceinline__ void expect(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void wait(uint32_t barrier, uint32_t parity) {
    uint32_t done;
    do {
        asm volatile(
            "{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\tselp.u32 %0, 1, 0, p;\n\t}"
            : "=r"(done)
            : "r"(barrier), "r"(parity)
            : "memory");
    } while (!done);
}

__device__ __forceinline__ void wait_cluster(uint32_t barrier, uint32_t parity) {
    uint32_t done;
    do {
        asm volatile(
            "{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n\t"
            "selp.u32 %0, 1, 0, p;\n\t}"
            : "=r"(done)
            : "r"(barrier), "r"(parity)
            : "memory");
    } while (!done);
}

__device__ __forceinline__ uint32_t peer_address(uint32_t address, uint32_t of_rank) {
    uint32_t value;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(value) : "r"(address), "r"(of_rank));
    return value;
}

// For code whose warps have parted.
__device__ __forceinline__ void cluster_meet() {
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
