// C = (A * SFA) (B * SFB)^T for NVFP4: e2m1 values, one e4m3 scale factor per 16 of them along K, f32 sums and output.
//
// A is [M, K], B [N, K], both K-major with two values per byte; C is [M, N]. Scale factors come in blocks of 128 rows
// by 64 columns of K, 512 bytes each, blocks along K first: row r, scale s at byte r % 32 * 16 + r / 32 * 4 + s. A CTA
// of four warps computes a tile of 128 x 128: thread 0 loads 256 columns of K at a time, thread 32 copies the scale
// factors to tensor memory and multiplies, all threads store.

#include "sm100.cuh"

constexpr int TILE = 128, TILE_K = 256, MMA_K = 64, STAGES = 2;
constexpr int MATRIX_BYTES = TILE * TILE_K / 2;
constexpr int BLOCK_BYTES = 512, BLOCKS = TILE_K / MMA_K, SCALE_BYTES = BLOCKS * BLOCK_BYTES;
constexpr int STAGE_BYTES = 2 * MATRIX_BYTES + 2 * SCALE_BYTES;
constexpr int COLUMNS = 256, SFA = TILE, SFB = SFA + 4 * BLOCKS;  // of tensor memory: sums, scale factors
constexpr uint32_t INSTRUCTION = 1u << 7 | 1u << 10 | TILE / 8 << 17 | TILE / 16 << 24;  // e2m1 * e2m1, e4m3 scales

// Copies 32 rows of 16 bytes to the lanes of each of the four warps.
__device__ void copy_scales(uint32_t target, const void* block) {
    const uint64_t source =
        uint64_t(shared_address(block)) >> 4 | uint64_t(1) << 16 | uint64_t(128 >> 4) << 32 | uint64_t(1) << 46;
    asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(target), "l"(source) : "memory");
}

__device__ void multiply(uint32_t sums, uint64_t a, uint64_t b, uint32_t sfa, uint32_t sfb, bool accumulate) {
    asm volatile(
        "{\n"
        ".reg .pred accumulate;\n"
        "setp.ne.u32 accumulate, %6, 0;\n"
        "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X [%0], %1, %2, %3, [%4], [%5], accumulate;\n"
        "}\n" ::"r"(sums), "l"(a), "l"(b), "r"(INSTRUCTION), "r"(sfa), "r"(sfb), "r"(uint32_t(accumulate)) : "memory");
}

extern "C" __global__ void __launch_bounds__(128)
nvfp4(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const uint8_t* sfa,
      const uint8_t* sfb, float* c, int n, int k) {
    extern __shared__ __align__(1024) uint8_t stages[];
    __shared__ uint64_t full[STAGES], empty[STAGES], finished;
    __shared__ uint32_t tensor_memory;
    const int row = blockIdx.y * TILE, column = blockIdx.x * TILE, steps = k / TILE_K;

    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            init(&full[stage], 1);
            init(&empty[stage], 1);
        }
        init(&finished, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    const uint32_t sums = allocate(&tensor_memory, COLUMNS);

    if (threadIdx.x == 0) {
        for (int step = 0; step < steps; ++step) {
            const int stage = step % STAGES, round = step / STAGES;
            uint8_t* target = stages + stage * STAGE_BYTES;
            wait(&empty[stage], (round + 1) & 1);
            expect(&full[stage], STAGE_BYTES);
            load(target, &a, step * TILE_K, row, &full[stage]);
            load(target + MATRIX_BYTES, &b, step * TILE_K, column, &full[stage]);
            target += 2 * MATRIX_BYTES;
            copy(target, sfa + (blockIdx.y * steps + step) * SCALE_BYTES, SCALE_BYTES, &full[stage]);
            copy(target + SCALE_BYTES, sfb + (blockIdx.x * steps + step) * SCALE_BYTES, SCALE_BYTES, &full[stage]);
        }
    } else if (threadIdx.x == 32) {
        for (int step = 0; step < steps; ++step) {
            const int stage = step % STAGES, round = step / STAGES;
            const uint8_t* source = stages + stage * STAGE_BYTES;
            wait(&full[stage], round & 1);
            asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
            for (int block = 0; block < BLOCKS; ++block) {
                const uint8_t* scales = source + 2 * MATRIX_BYTES + block * BLOCK_BYTES;
                copy_scales(sums + SFA + 4 * block, scales);
                copy_scales(sums + SFB + 4 * block, scales + SCALE_BYTES);
            }
            for (int block = 0; block < BLOCKS; ++block) {
                const int advance = block * MMA_K / 2 >> 4;
                multiply(sums, descriptor(source) + advance, descriptor(source + MATRIX_BYTES) + advance,
                         sums + SFA + 4 * block, sums + SFB + 4 * block, step + block > 0);
            }
            commit(&empty[stage]);
        }
        commit(&finished);
    }
    __syncwarp();

    wait(&finished, 0);
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    store_tile(c + int64_t(row + threadIdx.x) * n + column, sums, TILE);
    release(sums, COLUMNS);
}
