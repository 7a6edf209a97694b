// Barriers, copies and tensor memory of sm_100a in inline PTX, for the kernels beside this file.

#pragma once
#include <cuda.h>
#include <cstdint>

__device__ uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ void init(uint64_t* barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count) : "memory");
}

__device__ void expect(uint64_t* barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

__device__ void wait(uint64_t* barrier, int parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}\n" ::"r"(shared_address(barrier)), "r"(parity) : "memory");
}

__device__ void load(void* target, const CUtensorMap* map, int column, int row, uint64_t* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
        ::"r"(shared_address(target)), "l"(map), "r"(column), "r"(row), "r"(shared_address(barrier)) : "memory");
}

// Descriptor of a K-major matrix with 128-byte swizzle: groups of 8 rows, 1024 bytes apart.
__device__ uint64_t descriptor(const void* matrix) {
    return uint64_t(shared_address(matrix)) >> 4 | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 46 |
           uint64_t(2) << 61;
}

__device__ void commit(uint64_t* barrier) {
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];"
                 ::"r"(shared_address(barrier)) : "memory");
}

// Loads 16 columns of sums, a row per thread.
__device__ void load_sums(float (&value)[16], uint32_t address) {
    asm volatile(
        "tcgen05.ld.sync.aligned.32x32b.x16.b32 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, [%16];\n"
        "tcgen05.wait::ld.sync.aligned;\n"
        : "=f"(value[0]), "=f"(value[1]), "=f"(value[2]), "=f"(value[3]), "=f"(value[4]), "=f"(value[5]),
          "=f"(value[6]), "=f"(value[7]), "=f"(value[8]), "=f"(value[9]), "=f"(value[10]), "=f"(value[11]),
          "=f"(value[12]), "=f"(value[13]), "=f"(value[14]), "=f"(value[15])
        : "r"(address)
        : "memory");
}

__device__ void copy(void* target, const void* source, int bytes, uint64_t* barrier) {
    asm volatile("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(shared_address(target)), "l"(source), "r"(bytes), "r"(shared_address(barrier)) : "memory");
}

// Allocates tensor memory; all threads of the block call it. Returns the address.
__device__ uint32_t allocate(uint32_t* place, int columns) {
    if (threadIdx.x < 32) {
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;"
                     ::"r"(shared_address(place)), "r"(columns) : "memory");
        asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
    }
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    __syncthreads();
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    return *const_cast<volatile uint32_t*>(place);
}

__device__ void release(uint32_t address, int columns) {
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    __syncthreads();
    if (threadIdx.x < 32)
        asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns));
}

// Stores the sums of a tile to a row-major matrix, a row per thread.
__device__ void store_tile(float* target, uint32_t sums, int columns) {
    for (int first = 0; first < columns; first += 16) {
        float value[16];
        load_sums(value, sums + (threadIdx.x / 32 * 32 << 16) + first);
        for (int i = 0; i < 16; i += 4)
            *reinterpret_cast<float4*>(target + first + i) =
                make_float4(value[i], value[i + 1], value[i + 2], value[i + 3]);
    }
}
