// The tensor core and tensor memory (sm_100a). Dynamic shared memory: kShared bytes.

#include "common.cuh"

#if __CUDA_ARCH__ >= 1000

constexpr int kMatrixBytes = 16 << 10;  // A: 128 rows of 128 bytes
constexpr int kScales = 3 * kMatrixBytes, kShared = 64 << 10;  // B has up to 256 rows; then blocks of scale factors
constexpr int kColumns = 512, kScaleA = 256, kScaleB = 320;    // of tensor memory

extern __shared__ __align__(1024) uint8_t memory[];

enum Kind { kF16, kTf32, kF8, kI8, kMxf8, kMxf4, kNvf4 };

// K-major, rows of 128 bytes, 128-byte swizzle; and scale factors: 32 rows of 16 bytes without swizzle.
__device__ __forceinline__ uint64_t matrix(uint32_t address) {
    return uint64_t(address & 0x3ffff) >> 4 | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 46 | uint64_t(2) << 61;
}

__device__ __forceinline__ uint64_t scales(uint32_t address) {
    return uint64_t(address & 0x3ffff) >> 4 | uint64_t(1) << 16 | uint64_t(128 >> 4) << 32 | uint64_t(1) << 46;
}

#define MMA(kind)                                                                                                    \
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %4, 0;\n\ttcgen05.mma.cta_group::%5.kind::" kind              \
                 " [%0], %1, %2, %3, p;\n\t}" ::"r"(sums), "l"(a), "l"(b), "r"(instruction), "r"(add), "n"(group)    \
                 : "memory")
#define MMA_SCALED(kind)                                                                                             \
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %6, 0;\n\ttcgen05.mma.cta_group::%7.kind::" kind              \
                 " [%0], %1, %2, %3, [%4], [%5], p;\n\t}" ::"r"(sums), "l"(a), "l"(b), "r"(instruction),             \
                 "r"(sums + kScaleA), "r"(sums + kScaleB), "r"(add), "n"(group)                                      \
                 : "memory")

template <Kind kind, int group>
__device__ __forceinline__ void multiply(uint32_t sums, uint64_t a, uint64_t b, uint32_t instruction, uint32_t add) {
    if constexpr (kind == kF16) MMA("f16");
    if constexpr (kind == kTf32) MMA("tf32");
    if constexpr (kind == kF8) MMA("f8f6f4");
    if constexpr (kind == kI8) MMA("i8");
    if constexpr (kind == kMxf8) MMA_SCALED("mxf8f6f4.block_scale.scale_vec::1X");
    if constexpr (kind == kMxf4) MMA_SCALED("mxf4.block_scale.scale_vec::2X");
    if constexpr (kind == kNvf4) MMA_SCALED("mxf4nvf4.block_scale.scale_vec::4X");
}

template <int group>
__device__ __forceinline__ void commit(uint32_t barrier) {
    asm volatile("tcgen05.commit.cta_group::%1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier), "n"(group)
                 : "memory");
}

// Tensor memory for all threads of the CTA, and numbers near 0.4 (as f16) or 1 (as scales) in shared memory.
template <int group>
__device__ __forceinline__ uint32_t set_up(uint32_t *place) {
    const uint32_t columns = kColumns;
    for (int i = threadIdx.x; i < kShared / 4; i += blockDim.x)
        reinterpret_cast<uint32_t *>(memory)[i] = i < kScales / 4 ? 0x30303030 | (i * 0x9e3779b1u & 0x07070707) : 0x38383838;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (group == 2) cluster_sync();  // the other CTA has started
    if (threadIdx.x < 32) {
        asm volatile("tcgen05.alloc.cta_group::%2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(shared_address(place)), "r"(columns), "n"(group)
                     : "memory");
        asm volatile("tcgen05.relinquish_alloc_permit.cta_group::%0.sync.aligned;" ::"n"(group));
    }
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    __syncthreads();
    if (group == 2) cluster_sync();
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    return *const_cast<volatile uint32_t *>(place);
}

template <int group>
__device__ __forceinline__ void release(uint32_t address, uint32_t columns = kColumns) {
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    __syncthreads();
    if (group == 2) cluster_sync();
    if (threadIdx.x < 32)
        asm volatile("tcgen05.dealloc.cta_group::%2.sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns), "n"(group));
}

// `rounds` times: `count` MMAs, a commit, and a wait for it. count 0: the commit alone. The last MMA's K follows on the
// first's in the same 128 bytes.
template <Kind kind, int group>
__device__ __forceinline__ void chain(uint64_t *out, int rounds, int count, uint32_t instruction) {
    __shared__ __align__(8) uint64_t word;
    __shared__ uint32_t place;
    const uint32_t barrier = shared_address(&word);
    if (threadIdx.x == 0) init(barrier, 1), fence_init();
    const uint32_t sums = set_up<group>(&place);
    if (threadIdx.x < 32 && (group == 1 || rank() == 0) && elect()) {
        const uint64_t a = matrix(shared_address(memory)), b = matrix(shared_address(memory) + kMatrixBytes);
        if (kind == kMxf8 || kind == kMxf4 || kind == kNvf4) {
            for (int i = 0; i < 4; ++i) {
                const uint64_t source = scales(shared_address(memory) + kScales + 512 * i);
                const uint32_t target = sums + (i < 2 ? kScaleA : kScaleB) + 4 * (i & 1);
                asm volatile("tcgen05.cp.cta_group::%2.32x128b.warpx4 [%0], %1;" ::"r"(target), "l"(source), "n"(group)
                             : "memory");
            }
        }
        multiply<kind, group>(sums, a, b, instruction, 0);
        commit<group>(barrier);
        wait(barrier, 0);
        Timer timer;
#pragma unroll 1
        for (int round = 1; round <= rounds; ++round) {
#pragma unroll 1
            for (int i = 0; i < count; ++i) multiply<kind, group>(sums, a + 2 * (i & 3), b + 2 * (i & 3), instruction, 1);
            commit<group>(barrier);
            wait(barrier, round & 1);
        }
        timer.stop(cta_record(out));
    }
    __syncwarp();
    release<group>(sums);
}

#define CHAIN(name, kind)                                                                                            \
    extern "C" __global__ void mma_##name##_1(uint64_t *out, int rounds, int count, int instruction) {               \
        chain<kind, 1>(out, rounds, count, instruction);                                                             \
    }                                                                                                                \
    extern "C" __global__ void mma_##name##_2(uint64_t *out, int rounds, int count, int instruction) {               \
        chain<kind, 2>(out, rounds, count, instruction);                                                             \
    }

CHAIN(f16, kF16)
CHAIN(tf32, kTf32)
CHAIN(f8f6f4, kF8)
CHAIN(i8, kI8)
CHAIN(mxf8f6f4, kMxf8)
CHAIN(mxf4, kMxf4)
CHAIN(mxf4nvf4, kNvf4)

// `rounds` times: `count` copies to tensor memory, a commit, and a wait for it.
#define COPY(name, shape)                                                                                            \
    extern "C" __global__ void tensor_copy_##name(uint64_t *out, int rounds, int count) {                            \
        __shared__ __align__(8) uint64_t word;                                                                       \
        __shared__ uint32_t place;                                                                                   \
        const uint32_t barrier = shared_address(&word);                                                              \
        if (threadIdx.x == 0) init(barrier, 1), fence_init();                                                        \
        const uint32_t target = set_up<1>(&place);                                                                   \
        if (threadIdx.x < 32 && elect()) {                                                                           \
            const uint64_t source = scales(shared_address(memory));                                                  \
            Timer timer;                                                                                             \
            _Pragma("unroll 1") for (int round = 0; round < rounds; ++round) {                                       \
                _Pragma("unroll 1") for (int i = 0; i < count; ++i)                                                  \
                    asm volatile("tcgen05.cp.cta_group::1." shape " [%0], %1;" ::"r"(target + 8 * (i & 31)),         \
                                 "l"(source)                                                                         \
                                 : "memory");                                                                        \
                commit<1>(barrier);                                                                                  \
                wait(barrier, round & 1);                                                                            \
            }                                                                                                        \
            timer.stop(cta_record(out));                                                                             \
        }                                                                                                            \
        __syncwarp();                                                                                                \
        release<1>(target);                                                                                          \
    }

COPY(scales, "32x128b.warpx4")
COPY(128, "128x128b")
COPY(256, "128x256b")

// ---------------------------------------------------------------------------------------------------------------------
// Loads and stores of tensor memory: `count` of 32 lanes by `n` columns, `together` before each wait.
// ---------------------------------------------------------------------------------------------------------------------

#define OUT8(o) "=r"(v[o]), "=r"(v[o + 1]), "=r"(v[o + 2]), "=r"(v[o + 3]), "=r"(v[o + 4]), "=r"(v[o + 5]), "=r"(v[o + 6]), "=r"(v[o + 7])
#define IN8(o) "r"(v[o]), "r"(v[o + 1]), "r"(v[o + 2]), "r"(v[o + 3]), "r"(v[o + 4]), "r"(v[o + 5]), "r"(v[o + 6]), "r"(v[o + 7])
#define NAMES8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define NAMES32                                                                                                   \
    NAMES8 ", %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, " \
           "%28, %29, %30, %31"

template <int n>
__device__ __forceinline__ void tensor_load(uint32_t (&v)[n], uint32_t address) {
    if constexpr (n == 8)
        asm volatile("tcgen05.ld.sync.aligned.32x32b.x8.b32 {" NAMES8 "}, [%8];" : OUT8(0) : "r"(address) : "memory");
    else
        asm volatile("tcgen05.ld.sync.aligned.32x32b.x32.b32 {" NAMES32 "}, [%32];"
                     : OUT8(0), OUT8(8), OUT8(16), OUT8(24)
                     : "r"(address)
                     : "memory");
}

template <int n>
__device__ __forceinline__ void tensor_store(uint32_t (&v)[n], uint32_t address) {
    if constexpr (n == 8)
        asm volatile("tcgen05.st.sync.aligned.32x32b.x8.b32 [%8], {" NAMES8 "};" ::IN8(0), "r"(address) : "memory");
    else
        asm volatile("tcgen05.st.sync.aligned.32x32b.x32.b32 [%32], {" NAMES32 "};" ::IN8(0), IN8(8), IN8(16), IN8(24), "r"(address)
                     : "memory");
}

__device__ __forceinline__ void wait_loaded() { asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wait_tensor_stored() { asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory"); }

template <int n, int together, bool stores>
__device__ __forceinline__ void columns(uint64_t *out, int count) {
    __shared__ uint32_t place;
    const uint32_t base = set_up<1>(&place), address = base + (threadIdx.x / 32 % 4 * 32 << 16);
    uint32_t v[together][n], sum = 0;
    for (int i = 0; i < together; ++i) {
        for (int j = 0; j < n; ++j) v[i][j] = i + j + threadIdx.x;
        tensor_store(v[i], address + n * i);
    }
    wait_tensor_stored();
    __syncthreads();
    Timer timer;
#pragma unroll 1
    for (int round = 0; round < count; round += together) {
#pragma unroll
        for (int i = 0; i < together; ++i) stores ? tensor_store(v[i], address + n * i) : tensor_load(v[i], address + n * i);
        stores ? wait_tensor_stored() : wait_loaded();
        if (!stores) {
#pragma unroll
            for (int i = 0; i < together; ++i) sum ^= v[i][0];
        }
    }
    if (threadIdx.x % 32 == 0 || sum == 0x12345) timer.stop(warp_record(out), sum);
    release<1>(base);
}

#define COLUMNS(name, n, together, stores) \
    extern "C" __global__ void name(uint64_t *out, int count) { columns<n, together, stores>(out, count); }

COLUMNS(tensor_load_8_single, 8, 1, false)
COLUMNS(tensor_load_32_single, 32, 1, false)
COLUMNS(tensor_load_8_four, 8, 4, false)
COLUMNS(tensor_load_32_four, 32, 4, false)
COLUMNS(tensor_store_8_single, 8, 1, true)
COLUMNS(tensor_store_32_single, 32, 1, true)
COLUMNS(tensor_store_32_four, 32, 4, true)

// Allocates and frees `columns` columns, `count` times.
extern "C" __global__ void tensor_alloc(uint64_t *out, int count, int columns) {
    __shared__ uint32_t place;
    Timer timer;
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(shared_address(&place)), "r"(columns)
                     : "memory");
        const uint32_t address = *const_cast<volatile uint32_t *>(&place);
        asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns));
    }
    if (threadIdx.x == 0) timer.stop(cta_record(out));
}

#endif
