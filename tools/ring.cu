// Moves the bytes of a schedule of the real kernel, in the same pattern, and computes nothing: persistent CTAs, a ring
// of stages filled by plain bulk copies, tokens read again for each tile of weights, output written. sm_90 and later.

#include <cstdint>

constexpr int kMaxGroups = 16;
constexpr int kStoreBytes = 256;  // one token's outputs of one tile: 128 weight rows, fp16

struct Group {
    int64_t weights, tokens, output;  // addresses; output 0: no stores
    int32_t first_tile, token_blocks, k_tiles, m, n;
};

struct Work {
    Group groups[kMaxGroups];
    int32_t group_count, tiles, ctas_per_tile, token_tile, part_tokens;
    int32_t stages, weight_bytes, part_bytes;  // bytes of a stage: its weights, each part of its tokens
    int32_t early;                             // loads do not wait for the previous launch
};

__device__ inline uint32_t shared_address(const void *pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ inline void wait(uint32_t barrier, uint32_t parity) {
    asm volatile(
        "{\n\t.reg .pred done;\n\tWAIT:\n\tmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t"
        "@done bra DONE;\n\tbra WAIT;\n\tDONE:\n\t}" ::"r"(barrier), "r"(parity) : "memory");
}

__device__ inline void load(uint32_t smem, int64_t address, uint32_t bytes, uint32_t barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(smem),
                 "l"(address), "r"(bytes), "r"(barrier)
                 : "memory");
}

// Warp 0 loads and warp 1 frees each stage once it is full, with one thread each. Warp 2 stores.
extern "C" __global__ void __launch_bounds__(96) ring(const __grid_constant__ Work work) {
    extern __shared__ __align__(128) uint8_t smem[];
    const int stage_bytes = work.weight_bytes + work.token_tile / work.part_tokens * work.part_bytes;
    uint8_t *output = smem + work.stages * stage_bytes;
    const uint32_t barriers = shared_address(output + kStoreBytes);
    const uint32_t empty = barriers + 8 * work.stages, done = empty + 8 * work.stages, ready = done + 8;
    const int rank = blockIdx.x % work.ctas_per_tile, tile_step = gridDim.x / work.ctas_per_tile;
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2 * work.stages + 2; ++i)
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barriers + 8 * i));
        asm volatile("fence.mbarrier_init.release.cluster;");
    }
    __syncthreads();
    asm volatile("griddepcontrol.launch_dependents;");
    const int role = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (role != 2 && lane) return;
    if (role == 2 || (role == 0 && !work.early)) asm volatile("griddepcontrol.wait;" ::: "memory");

    int stage = 0, phase = 0, used = 0;
    for (int tile = blockIdx.x / work.ctas_per_tile; tile < work.tiles; tile += tile_step, ++used) {
        int index = 0;
        for (int i = 1; i < work.group_count; ++i) index += tile >= work.groups[i].first_tile;
        const Group &group = work.groups[index];
        const int token_block = (tile - group.first_tile) % group.token_blocks;
        const int64_t weight_block =
            int64_t((tile - group.first_tile) / group.token_blocks) * work.ctas_per_tile + rank;
        const int tokens = min(group.m - token_block * work.token_tile, work.token_tile);
        const int parts = work.part_bytes ? (tokens + work.part_tokens - 1) / work.part_tokens : 0;
        const int first_part = token_block * (work.token_tile / work.part_tokens);
        if (role == 2) {
            wait(done, used & 1);
            if (group.output) {
                for (int token = lane; token < tokens; token += 32) {
                    int64_t row = int64_t(token_block) * work.token_tile + token;
                    int64_t target = group.output + (row * group.n + weight_block * 128) * 2;
                    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(target),
                                 "r"(shared_address(output)), "r"(kStoreBytes)
                                 : "memory");
                }
                asm volatile("cp.async.bulk.commit_group;");
            }
            __syncwarp();
            if (lane == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(ready));
            continue;
        }
        for (int k = 0; k < group.k_tiles; ++k) {
            const uint32_t full = barriers + 8 * stage;
            if (role == 0) {
                const uint32_t target = shared_address(smem + stage * stage_bytes);
                wait(empty + 8 * stage, phase ^ 1);
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full),
                             "r"(work.weight_bytes + parts * work.part_bytes));
                load(target, group.weights + (weight_block * group.k_tiles + k) * work.weight_bytes, work.weight_bytes,
                     full);
                for (int part = 0; part < parts; ++part) {
                    int64_t block = int64_t(first_part + part) * work.ctas_per_tile + rank;
                    load(target + work.weight_bytes + part * work.part_bytes,
                         group.tokens + (block * group.k_tiles + k) * work.part_bytes, work.part_bytes, full);
                }
            } else {
                wait(full, phase);
                if (k + 1 == group.k_tiles) {
                    wait(ready, (used & 1) ^ 1);
                    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(done));
                }
                asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(empty + 8 * stage));
            }
            if (++stage == work.stages) stage = 0, phase ^= 1;
        }
    }
    if (role == 2) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
