// Shared memory: chains of loads, and independent accesses with a stride. Grid 1, any number of warps.
// Dynamic shared memory: `bytes`, a power of two. A round of a loop has kAccesses accesses per warp.

#include "common.cuh"

constexpr int kAccesses = 32;

#define ROUNDS(count, ...)                                                         \
    _Pragma("unroll 1") for (int round = 0; round < count; ++round) {               \
        _Pragma("unroll") for (int i = 0; i < kAccesses; ++i) __VA_ARGS__           \
    }

extern __shared__ __align__(1024) uint8_t memory[];

template <int words>
__device__ __forceinline__ uint32_t load(uint32_t address) {
    uint32_t a, b, c, d;
    if (words == 1) asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(a) : "r"(address) : "memory");
    if (words == 2)
        asm volatile("ld.volatile.shared.v2.u32 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(address) : "memory");
    if (words == 4)
        asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                     : "r"(address)
                     : "memory");
    return a;
}

template <int words>
__device__ __forceinline__ void store(uint32_t address, uint32_t value) {
    if (words == 1) asm volatile("st.volatile.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
    if (words == 2) asm volatile("st.volatile.shared.v2.u32 [%0], {%1, %1};" ::"r"(address), "r"(value) : "memory");
    if (words == 4)
        asm volatile("st.volatile.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(address), "r"(value) : "memory");
}

__device__ __forceinline__ void fill(int bytes) {
    for (int i = threadIdx.x; i < bytes / 4; i += blockDim.x) reinterpret_cast<uint32_t *>(memory)[i] = shared_address(memory) + 4 * i / 16 * 16;
    __syncthreads();
}

// Each word holds the address of its 16 bytes: a load gives the address of the next.
template <int words>
__device__ __forceinline__ void chase(uint64_t *out, int count, int bytes) {
    fill(bytes);
    uint32_t address = shared_address(memory) + threadIdx.x % 32 * 16;
    Timer timer;
    ROUNDS(count, { address = load<words>(address); })
    if (threadIdx.x % 32 == 0 || address == 1) timer.stop(warp_record(out), address);
}

// Lane l of a warp accesses l * stride bytes into a window that moves by `step` bytes.
template <int words, bool stores>
__device__ __forceinline__ void access(uint64_t *out, int count, int bytes, int stride) {
    fill(bytes);
    const uint32_t base = shared_address(memory), offset = (threadIdx.x % 32 * stride) & (bytes - 1);
    uint32_t sum = 0;
    __syncthreads();
    Timer timer;
    ROUNDS(count, {
        if (stores)
            store<words>(base + offset, round);
        else
            sum ^= load<words>(base + offset);
    })
    if (stores) sum = load<1>(base + offset);
    if (threadIdx.x % 32 == 0 || sum == 1) timer.stop(warp_record(out), sum);
}

template <bool returns>
__device__ __forceinline__ void atomics(uint64_t *out, int count, int bytes, int stride) {
    fill(bytes);
    const uint32_t address = shared_address(memory) + ((threadIdx.x * stride) & (bytes - 1));
    uint32_t value = 1;
    __syncthreads();
    Timer timer;
    ROUNDS(count, {
        if (returns)
            asm volatile("atom.shared.add.u32 %0, [%1], %0;" : "+r"(value) : "r"(address) : "memory");
        else
            asm volatile("red.shared.add.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
    })
    if (threadIdx.x % 32 == 0 || value == 0x12345) timer.stop(warp_record(out), value);
}

#define SHARED(name, body) \
    extern "C" __global__ void name(uint64_t *out, int count, int bytes, int stride) { body; }

SHARED(shared_chase_4, (chase<1>(out, count, bytes)))
SHARED(shared_chase_8, (chase<2>(out, count, bytes)))
SHARED(shared_chase_16, (chase<4>(out, count, bytes)))
SHARED(shared_load_4, (access<1, false>(out, count, bytes, stride)))
SHARED(shared_load_8, (access<2, false>(out, count, bytes, stride)))
SHARED(shared_load_16, (access<4, false>(out, count, bytes, stride)))
SHARED(shared_store_4, (access<1, true>(out, count, bytes, stride)))
SHARED(shared_store_8, (access<2, true>(out, count, bytes, stride)))
SHARED(shared_store_16, (access<4, true>(out, count, bytes, stride)))
SHARED(shared_atomic, (atomics<true>(out, count, bytes, stride)))
SHARED(shared_reduction, (atomics<false>(out, count, bytes, stride)))

extern "C" __global__ void shared_ldmatrix(uint64_t *out, int count, int bytes, int stride) {
    fill(bytes);
    const uint32_t address = shared_address(memory) + ((threadIdx.x % 32 * stride) & (bytes - 1));
    uint32_t sum = 0;
    __syncthreads();
    Timer timer;
    ROUNDS(count, {
        uint32_t a, b, c, d;
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                     : "r"(address)
                     : "memory");
        sum ^= a ^ b ^ c ^ d;
    })
    if (threadIdx.x % 32 == 0 || sum == 1) timer.stop(warp_record(out), sum);
}
