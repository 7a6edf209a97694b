// Moves the bytes of a schedule of the real kernel, in the same pattern, and computes nothing: persistent CTAs, a ring
// of stages filled by plain bulk copies, weights that neighbours share loaded once, tokens read again for each tile of
// weights, output written. sm_90 and later.

#include <cstdint>

constexpr int kMaxGroups = 16;
constexpr int kRowBytes = 2;      // of a weight row's output of one token: fp16
constexpr int kStoreBytes = 256;  // one token's outputs of 128 weight rows

struct Group {
    int64_t weights, scales, tokens, token_scales, output;  // addresses; output 0: no stores
    int32_t first_tile, token_blocks, k_tiles, m, n;
};

struct Work {
    Group groups[kMaxGroups];
    int32_t group_count, tiles, ctas_per_tile, neighbours, products, token_tile, token_rows, token_step;
    int32_t stages, weight_bytes, scale_bytes, early;  // bytes of a stage; whether loads come before the wait
};

constexpr int kTokenBytes = 128;  // of a k-tile of one token
constexpr int kAtomBytes = 2048;  // of a k-tile's scale factors of 128 tokens

// What a CTA loads and stores of a tile.
struct Tile {
    const Group *group;
    int64_t weight_block, scale_block, first_row;
    int32_t first, tokens, box, rows, atoms, weight_bytes, shared;  // box: first token of this CTA's rows

    __device__ Tile(const Work &work, int tile, int rank) {
        int index = 0;
        for (int i = 1; i < work.group_count; ++i) index += tile >= work.groups[i].first_tile;
        group = &work.groups[index];
        const int number = tile - group->first_tile, block = number / group->token_blocks;
        weight_block = int64_t(block) * work.ctas_per_tile + rank;
        scale_block = int64_t(block / work.products) * work.ctas_per_tile + rank;
        first_row = scale_block * 128 + block % work.products * (128 / work.products);
        // Past N no weights are loaded, and the last rows' scale factors.
        weight_bytes = first_row < group->n ? work.weight_bytes : 0;
        scale_block = min(scale_block, int64_t(group->n - 1) / 128);
        first = number % group->token_blocks * work.token_tile;
        tokens = min(group->m - first, work.token_tile);
        const int columns = min((tokens + work.token_step - 1) / work.token_step * work.token_step, work.token_tile);
        box = first + rank * columns / work.ctas_per_tile;
        rows = max(0, min(group->m - box, work.token_rows));
        atoms = tokens > 0 ? (first + tokens - 1) / 128 - first / 128 + 1 : 0;
        shared = work.neighbours > 1 && block == ((number ^ 1) / group->token_blocks);
    }
};

__device__ inline uint32_t shared_address(const void *pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ inline void wait(uint32_t barrier, uint32_t parity) {
    asm volatile(
        "{\n\t.reg .pred done;\n\tWAIT:\n\tmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t"
        "@done bra DONE;\n\tbra WAIT;\n\tDONE:\n\t}" ::"r"(barrier), "r"(parity) : "memory");
}

// mask: CTAs of the cluster that get the bytes; 0: this one only.
__device__ inline void load(uint32_t smem, int64_t address, uint32_t bytes, uint32_t barrier, int mask = 0) {
    if (!bytes) return;
    if (mask)
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], "
            "%4;" ::"r"(smem), "l"(address), "r"(bytes), "r"(barrier), "h"(uint16_t(mask)) : "memory");
    else
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(smem),
            "l"(address), "r"(bytes), "r"(barrier) : "memory");
}

__device__ inline void meet_cluster() {
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Warp 0 loads and warp 1 frees each stage once it is full, with one thread each. Warp 2 stores.
__device__ inline void move(const Work &work, uint8_t *smem, int stage_bytes, uint32_t output, uint32_t barriers) {
    const uint32_t empty = barriers + 8 * work.stages, done = empty + 8 * work.stages, ready = done + 8;
    const int cluster_ctas = work.ctas_per_tile * work.neighbours, place = blockIdx.x % cluster_ctas;
    const int rank = place % work.ctas_per_tile, neighbour = place / work.ctas_per_tile, other = place ^ work.ctas_per_tile;
    const int first_tile = blockIdx.x / cluster_ctas * work.neighbours + neighbour;
    const int tile_step = gridDim.x / work.ctas_per_tile, role = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (role == 2 || (role == 0 && !work.early)) asm volatile("griddepcontrol.wait;" ::: "memory");

    int stage = 0, phase = 0, used = 0;
    for (int number = first_tile; number < work.tiles; number += tile_step, ++used) {
        const Tile tile(work, number, rank);
        const Group &group = *tile.group;
        if (role == 2) {
            wait(done, used & 1);
            if (group.output && tile.first_row < group.n) {
                for (int token = lane; token < tile.tokens; token += 32) {
                    int64_t target = group.output + (int64_t(tile.first + token) * group.n + tile.first_row) * kRowBytes;
                    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(target),
                                 "r"(output), "r"(kStoreBytes / work.products)
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
                const uint32_t target = shared_address(smem + stage * stage_bytes), scales = target + work.weight_bytes;
                const int token_bytes = tile.rows * kTokenBytes, atom_bytes = tile.atoms * kAtomBytes;
                wait(empty + 8 * stage, phase ^ 1);
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full),
                             "r"(tile.weight_bytes + work.scale_bytes + token_bytes + atom_bytes));
                // Neighbours of the same weight rows load a half each, for both.
                const int part = tile.shared ? 2 : 1, at = tile.shared ? neighbour : 0;
                const int mask = tile.shared ? 1 << place | 1 << other : 0;
                const int weights = tile.weight_bytes / part, weight_scales = work.scale_bytes / part;
                load(target + at * weights,
                     group.weights + (tile.weight_block * group.k_tiles + k) * work.weight_bytes + at * weights, weights,
                     full, mask);
                load(scales + at * weight_scales,
                     group.scales + (tile.scale_block * group.k_tiles + k) * work.scale_bytes + at * weight_scales,
                     weight_scales, full, mask);
                // A k-tile of all tokens, then the next.
                const uint32_t tokens = scales + work.scale_bytes;
                load(tokens, group.tokens + (int64_t(k) * group.m + tile.box) * kTokenBytes, token_bytes, full);
                const int64_t atom = int64_t(k) * ((group.m + 127) / 128) + tile.first / 128;
                load(tokens + work.token_rows * kTokenBytes, group.token_scales + atom * kAtomBytes, atom_bytes, full);
            } else {
                wait(full, phase);
                if (k + 1 == group.k_tiles) {
                    wait(ready, (used & 1) ^ 1);
                    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(done));
                }
                const uint32_t own = empty + 8 * stage;
                asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(own));
                if (work.neighbours > 1)
                    asm volatile(
                        "{\n\t.reg .b32 remote;\n\tmapa.shared::cluster.u32 remote, %0, %1;\n\t"
                        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n\t}" ::"r"(own),
                        "r"(other)
                        : "memory");
            }
            if (++stage == work.stages) stage = 0, phase ^= 1;
        }
    }
    // A neighbour's last arrivals must come before this CTA's shared memory is given up.
    for (int i = 0; role == 0 && i < work.stages; ++i) {
        wait(empty + 8 * stage, phase ^ 1);
        if (++stage == work.stages) stage = 0, phase ^= 1;
    }
    if (role == 2) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

extern "C" __global__ void __launch_bounds__(96) ring(const __grid_constant__ Work work) {
    extern __shared__ __align__(128) uint8_t smem[];
    const int atoms = (work.token_tile + 127) / 128;
    const int stage_bytes = work.weight_bytes + work.scale_bytes + work.token_rows * kTokenBytes + atoms * kAtomBytes;
    uint8_t *output = smem + work.stages * stage_bytes;
    const uint32_t barriers = shared_address(output + kStoreBytes);
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2 * work.stages + 2; ++i) {
            const int arrivals = i / work.stages == 1 ? work.neighbours : 1;  // of a stage that is empty: from each
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barriers + 8 * i), "r"(arrivals));
        }
        asm volatile("fence.mbarrier_init.release.cluster;");
    }
    __syncthreads();
    if (work.neighbours > 1) meet_cluster();
    asm volatile("griddepcontrol.launch_dependents;");
    if (threadIdx.x / 32 == 2 || threadIdx.x % 32 == 0) move(work, smem, stage_bytes, shared_address(output), barriers);
    __syncwarp();
    // Until then a neighbour may load into this CTA.
    if (work.neighbours > 1) meet_cluster();
}
