// C = A B^T on one SM per tile: f16 operands, f32 sums and output. A is [M, K], B [N, K], both K-major, C [M, N].
//
// A CTA of four warps computes a tile of 128 x 64. Thread 0 loads stages of 64 columns of K (TMA, 128-byte swizzle),
// thread 32 multiplies them (tcgen05.mma, kind::f16), and every thread stores a row of the sums.
//
//   barrier      producer -> consumer            arrivals
//   full[s]      TMA -> MMA                      1, and the stage's bytes
//   empty[s]     MMA -> TMA                      1, by tcgen05.commit
//   finished     MMA -> epilogue                 1, by tcgen05.commit

#include "sm100.cuh"

constexpr int TILE_M = 128, TILE_N = 64, TILE_K = 64, MMA_K = 16, STAGES = 3;
constexpr int ROW_BYTES = TILE_K * 2;                       // one row of the swizzle pattern
constexpr int A_BYTES = TILE_M * ROW_BYTES, B_BYTES = TILE_N * ROW_BYTES, STAGE_BYTES = A_BYTES + B_BYTES;
constexpr uint32_t INSTRUCTION = 1u << 4 | TILE_N / 8 << 17 | TILE_M / 16 << 24;  // f32 += f16 * f16

__device__ void multiply(uint32_t sums, uint64_t a, uint64_t b, bool accumulate) {
    asm volatile(
        "{\n"
        ".reg .pred accumulate;\n"
        "setp.ne.u32 accumulate, %4, 0;\n"
        "tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, accumulate;\n"
        "}\n" ::"r"(sums), "l"(a), "l"(b), "r"(INSTRUCTION), "r"(uint32_t(accumulate)) : "memory");
}

extern "C" __global__ void __launch_bounds__(128)
gemm(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, float* c, int n, int k) {
    extern __shared__ __align__(1024) uint8_t stages[];
    __shared__ uint64_t full[STAGES], empty[STAGES], finished;
    __shared__ uint32_t tensor_memory;
    const int row = blockIdx.y * TILE_M, column = blockIdx.x * TILE_N, steps = k / TILE_K;

    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            init(&full[stage], 1);
            init(&empty[stage], 1);
        }
        init(&finished, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    const uint32_t sums = allocate(&tensor_memory, TILE_N);

    if (threadIdx.x == 0) {
        for (int step = 0; step < steps; ++step) {
            const int stage = step % STAGES, round = step / STAGES;
            uint8_t* target = stages + stage * STAGE_BYTES;
            wait(&empty[stage], (round + 1) & 1);
            expect(&full[stage], STAGE_BYTES);
            load(target, &a, step * TILE_K, row, &full[stage]);
            load(target + A_BYTES, &b, step * TILE_K, column, &full[stage]);
        }
    } else if (threadIdx.x == 32) {
        for (int step = 0; step < steps; ++step) {
            const int stage = step % STAGES, round = step / STAGES;
            wait(&full[stage], round & 1);
            asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
            const uint64_t first = descriptor(stages + stage * STAGE_BYTES);
            const uint64_t second = descriptor(stages + stage * STAGE_BYTES + A_BYTES);
            for (int part = 0; part < TILE_K / MMA_K; ++part) {
                const int advance = part * MMA_K * 2 >> 4;
                multiply(sums, first + advance, second + advance, step + part > 0);
            }
            commit(&empty[stage]);
        }
        commit(&finished);
    }
    __syncwarp();

    wait(&finished, 0);
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    store_tile(c + int64_t(row + threadIdx.x) * n + column, sums, TILE_N);
    release(sums, TILE_N);
}
