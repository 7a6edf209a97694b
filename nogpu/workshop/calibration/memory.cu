// Loads, stores and atomics of ordinary threads in global memory and in the shared memory of another CTA.

#include "common.cuh"

// Follow a list of addresses. caching: 1 through L1, 0 at L2. only: SM that works, -1 for all. One thread.
extern "C" __global__ void chase(uint64_t *out, const uint64_t *start, int count, int caching, int only) {
    if (threadIdx.x || (only >= 0 && only != sm())) return;
    const uint64_t *at = start;
    for (int pass = 0; pass < 2; ++pass) {  // the first for caches and TLBs
        if (!pass && !caching) continue;
        Timer timer;
#pragma unroll 4
        for (int i = 0; i < count; ++i) {
            if (caching)
                asm volatile("ld.global.ca.u64 %0, [%1];" : "=l"(at) : "l"(at) : "memory");
            else
                asm volatile("ld.global.cg.u64 %0, [%1];" : "=l"(at) : "l"(at) : "memory");
        }
        timer.stop(cta_record(out), reinterpret_cast<uint64_t>(at));
    }
}

// The latency of `lines` single lines, `stride` bytes apart, from SM `only`: out[SM * lines + line] is the cycles of
// `count` loads, each of which depends on the one before.
extern "C" __global__ void chase_lines(uint64_t *out, const uint8_t *base, int lines, int stride, int count, int only) {
    if (threadIdx.x || (only >= 0 && only != sm())) return;
    for (int line = 0; line < lines; ++line) {
        const uint8_t *at = base + int64_t(line) * stride;  // each line holds zeros
        uint64_t value, start = 0;
        for (int i = -4; i < count; ++i) {
            if (i == 0) start = cycles();
            asm volatile("ld.global.cg.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
            at += value;
        }
        out[sm() * lines + line] = cycles() - start + value;
    }
}

// Thread blocks read `bytes` each, in blocks of blockDim * 16 * 8 that go round the grid, wrapped at `region` bytes.
// share: that many CTAs with neighbouring numbers read the same.
template <int mode>  // 0 read, 1 write, 2 copy to `target`
__device__ __forceinline__ void plain(uint64_t *out, uint8_t *base, uint8_t *target, int64_t bytes, int64_t region, int share) {
    constexpr int kVectors = 8;
    const int64_t block = int64_t(blockDim.x) * 16 * kVectors, reader = blockIdx.x / share, readers = gridDim.x / share;
    uint32_t sum = 0;
    __syncthreads();
    Timer timer;
#pragma unroll 1
    for (int64_t i = 0; i < bytes / block; ++i) {
        const int64_t offset = (i * readers + reader) * block % region + threadIdx.x * 16;
        uint4 value[kVectors];
#pragma unroll
        for (int v = 0; v < kVectors; ++v) {
            const uint8_t *from = base + offset + int64_t(v) * blockDim.x * 16;
            if (mode != 1)
                asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                             : "=r"(value[v].x), "=r"(value[v].y), "=r"(value[v].z), "=r"(value[v].w)
                             : "l"(from)
                             : "memory");
            else
                value[v].x = value[v].y = value[v].z = value[v].w = i + v;
        }
#pragma unroll
        for (int v = 0; v < kVectors; ++v) {
            uint8_t *to = target + offset + int64_t(v) * blockDim.x * 16;
            if (mode)
                asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(value[v].x), "r"(value[v].y),
                             "r"(value[v].z), "r"(value[v].w)
                             : "memory");
            else
                sum ^= value[v].x;
        }
    }
    if (threadIdx.x % 32 == 0 || sum == 0x12345) timer.stop(warp_record(out), sum);
}

#define PLAIN(name, mode)                                                                                              \
    extern "C" __global__ void __launch_bounds__(1024)                                                                \
        name(uint64_t *out, uint8_t *base, uint8_t *target, int64_t bytes, int64_t region, int share) {               \
        plain<mode>(out, base, target, bytes, region, share);                                                         \
    }

PLAIN(plain_read, 0)
PLAIN(plain_write, 1)
PLAIN(plain_copy, 2)

// count adds by each thread at base + (thread of the grid) * stride. depends: each needs the result of the last.
extern "C" __global__ void global_atomic(uint64_t *out, uint8_t *base, int count, int stride, int depends) {
    uint8_t *at = base + (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * stride;
    uint32_t value = 0;
    __syncthreads();
    Timer timer;
#pragma unroll 4
    for (int i = 0; i < count; ++i) {
        if (depends) {
            asm volatile("atom.global.add.u32 %0, [%1], 0;" : "=r"(value) : "l"(at) : "memory");
            at += value;  // the words are zero
        } else {
            asm volatile("red.global.add.u32 [%0], 0;" ::"l"(at) : "memory");
        }
    }
    if (!depends) asm volatile("fence.acq_rel.gpu;" ::: "memory");
    if (threadIdx.x % 32 == 0 || value == 1) timer.stop(warp_record(out), value);
}

// ---------------------------------------------------------------------------------------------------------------------
// Shared memory of the other CTAs of a cluster
// ---------------------------------------------------------------------------------------------------------------------

extern __shared__ __align__(1024) uint8_t memory[];

// mode 0: a chain of loads by one thread. 1: independent loads of 16 bytes by every thread. 2: stores of 16 bytes.
// both: whether all CTAs do the same, or the first alone. peers: that many next CTAs get the stores in turn, of as many or
// more in a cluster; other modes have one. `bytes` of dynamic shared memory, a power of two.
extern "C" __global__ void remote_access(uint64_t *out, int mode, int count, int bytes, int both, int peers) {
    const uint32_t own = shared_address(memory), base = peer_address(own, (rank() + 1) % gridDim.x);
    const uint32_t bases[] = {base, peers < 2 ? base : peer_address(own, (rank() + 2) % gridDim.x),
                              peers < 3 ? base : peer_address(own, (rank() + 3) % gridDim.x)};
    for (int i = threadIdx.x; i < bytes / 16; i += blockDim.x)
        for (int word = 0; word < 4; ++word) reinterpret_cast<uint32_t *>(memory)[4 * i + word] = 16 * i;
    cluster_sync();
    if (rank() == 0 || both) {
        uint32_t offset = threadIdx.x * 16 & (bytes - 1), sum = 0;
        Timer timer;
        if (mode == 0) {
#pragma unroll 4
            for (int i = 0; i < count; ++i)
                asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(offset) : "r"(base + offset) : "memory");
        } else {
#pragma unroll 12
            for (int i = 0; i < count; ++i) {
                uint32_t a, b, c, d;
                if (mode == 1) {
                    asm volatile("ld.volatile.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];"
                                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                                 : "r"(base + offset)
                                 : "memory");
                    sum ^= a;
                } else {
                    const int peer = peers == 3 ? i % 3 : peers == 2 ? i % 2 : 0;
                    const uint32_t to = peer == 0 ? bases[0] : peer == 1 ? bases[1] : bases[2];
                    asm volatile("st.shared::cluster.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(to + offset), "r"(i) : "memory");
                }
            }
            if (mode == 2) asm volatile("fence.acq_rel.cluster;" ::: "memory");
        }
        if (threadIdx.x % 32 == 0 || sum == 1) timer.stop(warp_record(out), sum + offset);
    }
    cluster_meet();
}

// L2 is filled with `filled` bytes of `target`, by stores or by loads; then each CTA waits and reads a block of its own of
// `base`, `bursts` times. pause: cycles before each burst. The record's own word is the cycles of all bursts.
extern "C" __global__ void __launch_bounds__(512) read_after(uint64_t *out, const uint8_t *base, uint8_t *target,
                                                             int64_t filled, int stores, int64_t pause, int bursts) {
    constexpr int kVectors = 4;
    const int64_t row = int64_t(blockDim.x) * 16, block = row * kVectors, step = gridDim.x * row;
    uint32_t sum = 0;
    for (int64_t at = blockIdx.x * row + threadIdx.x * 16; at < filled; at += step) {
        uint4 value = {1, 2, 3, 4};
        if (stores)
            *reinterpret_cast<uint4 *>(target + at) = value;
        else
            asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                         : "l"(target + at)
                         : "memory");
        sum += value.x;
    }
    Timer timer;
    uint64_t spent = 0;
#pragma unroll 1
    for (int i = 0; i < bursts; ++i) {
        __syncthreads();
        const uint64_t waits = cycles();
        while (int64_t(cycles() - waits) < pause) {}
        const uint64_t begin = cycles();
        uint4 value[kVectors];
#pragma unroll
        for (int v = 0; v < kVectors; ++v)
            asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(value[v].x), "=r"(value[v].y), "=r"(value[v].z), "=r"(value[v].w)
                         : "l"(base + (int64_t(i) * gridDim.x + blockIdx.x) * block + v * row + threadIdx.x * 16)
                         : "memory");
#pragma unroll
        for (int v = 0; v < kVectors; ++v) sum += value[v].x + value[v].w;
        sum = __syncthreads_or(sum & 1) + sum;
        spent += cycles() - begin;
    }
    if (threadIdx.x == 0) timer.stop(cta_record(out), sum, spent);
}
