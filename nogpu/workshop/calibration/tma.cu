// The copy engine: bulk copies and tensor maps, in and out of shared memory, by one lane of each warp.
// Dynamic shared memory: stages * box bytes for each warp or pair of warps; mbarriers are static.

#include "common.cuh"

constexpr int kMaxStages = 64;

extern __shared__ __align__(1024) uint8_t memory[];

struct alignas(64) Map {
    uint64_t words[16];
};

// A box of `bytes`: row `offset / row bytes` of a map of 128-byte rows, or bytes from base + offset.
__device__ __forceinline__ void copy_in(uint32_t to, const Map *map, const uint8_t *base, int64_t offset, int bytes, uint32_t barrier, int mask) {
    if (map) {
        const int row = offset / 128;
        if (mask)
            asm volatile(
                "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
                "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to), "l"(map), "r"(0), "r"(row), "r"(barrier), "h"(uint16_t(mask))
                : "memory");
        else
            asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                         "[%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(map), "r"(0), "r"(row), "r"(barrier)
                         : "memory");
    } else if (mask) {
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(to),
                     "l"(base + offset), "r"(bytes), "r"(barrier), "h"(uint16_t(mask))
                     : "memory");
    } else {
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                     "l"(base + offset), "r"(bytes), "r"(barrier)
                     : "memory");
    }
}

__device__ __forceinline__ void copy_out(const Map *map, uint8_t *base, int64_t offset, uint32_t from, int bytes) {
    if (map)
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(0),
                     "r"(int(offset / 128)), "r"(from)
                     : "memory");
    else
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(base + offset), "r"(from), "r"(bytes)
                     : "memory");
}

__device__ __forceinline__ void commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

template <int pending>
__device__ __forceinline__ void wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

__device__ __forceinline__ void wait_stored() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

struct Ring {
    uint64_t full[kMaxStages], empty[kMaxStages];
};

// Reads `boxes` boxes per pair of warps with `stages` in flight: the first warp of a pair loads, the second frees what has
// come. Dynamic shared memory: box * stages for each pair. use_map: by the tensor map, else by bulk copies from `base`.
// Boxes go round the pairs of the grid and wrap at `region` bytes. share: CTAs with neighbouring numbers that read the
// same boxes, or if negative so many that are far apart; multicast: they are a cluster of two, and each reads half of every box for both.
template <bool multicast>
__device__ __forceinline__ void read(const Map *map, uint64_t *out, const uint8_t *base, int64_t region, int boxes, int box,
                                     int stages, int share) {
    __shared__ __align__(8) Ring ring;
    const int pairs = blockDim.x / 64, pair = threadIdx.x / 64;
    const bool loads = threadIdx.x / 32 % 2 == 0;
    const uint32_t full = shared_address(ring.full) + 8 * pair * stages, empty = shared_address(ring.empty) + 8 * pair * stages;
    const uint32_t smem = shared_address(memory) + pair * stages * box, of_rank = multicast ? rank() : 0;
    const uint32_t other = multicast ? peer_address(empty, of_rank ^ 1) : 0;
    if (threadIdx.x % 64 == 0) {
        for (int i = 0; i < stages; ++i) init(full + 8 * i, 1), init(empty + 8 * i, multicast ? 2 : 1);
        fence_init();
    }
    __syncthreads();
    if (multicast) cluster_sync();
    if (elect()) {
        const int readers = gridDim.x / (share < 0 ? -share : share);
        const int reader = share < 0 ? blockIdx.x % readers : blockIdx.x / share;
        const int64_t step = int64_t(readers) * pairs * box;
        const int part = multicast ? box / 2 : box, mine = of_rank * part;
        int64_t offset = (int64_t(reader) * pairs + pair) * box;
        int stage = 0, phase = 0;
        Timer timer;
#pragma unroll 1
        for (int i = 0; i < boxes + (loads ? stages : 0); ++i) {
            if (loads) {
                wait(empty + 8 * stage, phase ^ 1);
                if (i < boxes) {
                    expect(full + 8 * stage, box);
                    copy_in(smem + stage * box + mine, map, base, offset + mine, part, full + 8 * stage, multicast ? 3 : 0);
                    offset += step;
                    if (offset >= region) offset -= region;
                }
            } else {
                wait(full + 8 * stage, phase);
                arrive(empty + 8 * stage);
                if (multicast) arrive_remote(other + 8 * stage);
            }
            if (++stage == stages) stage = 0, phase ^= 1;
        }
        timer.stop(warp_record(out));
    }
    if (multicast) cluster_meet();
}

#define READ(name, map, multicast)                                                                                   \
    extern "C" __global__ void name(const __grid_constant__ Map tensor_map, uint64_t *out, const uint8_t *base,      \
                                    int64_t region, int boxes, int box, int stages, int share) {                     \
        read<multicast>(map, out, base, region, boxes, box, stages, share);                                          \
    }

READ(tma_read_map, &tensor_map, false)
READ(tma_read_bulk, nullptr, false)
READ(tma_read_multicast, &tensor_map, true)

// Writes `boxes` boxes per warp from its stages, four groups in flight.
__device__ __forceinline__ void write(const Map *map, uint64_t *out, uint8_t *base, int64_t region, int boxes, int box,
                                      int stages) {
    if (!elect()) return;
    const int warps = blockDim.x / 32, warp = threadIdx.x / 32;
    const uint32_t smem = shared_address(memory) + warp * stages * box;
    const int64_t step = int64_t(gridDim.x) * warps * box;
    int64_t offset = (int64_t(blockIdx.x) * warps + warp) * box;
    int stage = 0;
    Timer timer;
#pragma unroll 1
    for (int i = 0; i < boxes; ++i) {
        wait_read<3>();
        copy_out(map, base, offset, smem + stage * box, box);
        commit();
        offset += step;
        if (offset >= region) offset -= region;
        if (++stage == stages) stage = 0;
    }
    wait_stored();
    timer.stop(warp_record(out));
}

#define WRITE(name, map)                                                                                             \
    extern "C" __global__ void name(const __grid_constant__ Map tensor_map, uint64_t *out, uint8_t *base,            \
                                    int64_t region, int boxes, int box, int stages) {                                \
        write(map, out, base, region, boxes, box, stages);                                                           \
    }

WRITE(tma_write_map, &tensor_map)
WRITE(tma_write_bulk, nullptr)

// Copies `boxes` boxes per warp from `base` to `target` through a ring, by bulk copies.
extern "C" __global__ void tma_copy(uint64_t *out, const uint8_t *base, uint8_t *target, int64_t region, int boxes, int box,
                                    int stages) {
    __shared__ __align__(8) uint64_t words[kMaxStages];
    if (!elect()) return;
    const int warps = blockDim.x / 32, warp = threadIdx.x / 32;
    const uint32_t full = shared_address(words) + 8 * warp * stages, smem = shared_address(memory) + warp * stages * box;
    for (int i = 0; i < stages; ++i) init(full + 8 * i, 1);
    fence_init();
    const int64_t step = int64_t(gridDim.x) * warps * box, start = (int64_t(blockIdx.x) * warps + warp) * box;
    int64_t from = start, to = start;
    const auto load = [&](int stage) {
        expect(full + 8 * stage, box);
        copy_in(smem + stage * box, nullptr, base, from, box, full + 8 * stage, 0);
        from += step;
        if (from >= region) from -= region;
    };
    Timer timer;
    for (int i = 0; i < stages && i < boxes; ++i) load(i);
    int stage = 0, phase = 0;
#pragma unroll 1
    for (int i = 0; i < boxes; ++i) {
        wait(full + 8 * stage, phase);
        copy_out(nullptr, target, to, smem + stage * box, box);
        commit();
        to += step;
        if (to >= region) to -= region;
        wait_read<1>();
        if (i && i - 1 + stages < boxes) load(stage ? stage - 1 : stages - 1);
        if (++stage == stages) stage = 0, phase ^= 1;
    }
    wait_stored();
    timer.stop(warp_record(out));
}

// Each warp issues `burst` boxes back to back, each with its own mbarrier, then awaits them in order; `trials` bursts at
// different places. out: per CTA, trial and warp burst + 2 words: clock before the first issue, after the last, and when
// each is there.
__device__ __forceinline__ void load_burst(const Map *map, uint64_t *out, const uint8_t *base, int64_t region, int burst,
                                           int box, int trials) {
    __shared__ __align__(8) uint64_t words[kMaxStages];
    const int warps = blockDim.x / 32, warp = threadIdx.x / 32;
    const uint32_t full = shared_address(words) + 8 * warp * burst, smem = shared_address(memory) + warp * burst * box;
    if (threadIdx.x % 32 == 0) {
        for (int i = 0; i < burst; ++i) init(full + 8 * i, 1);
        fence_init();
    }
    for (int trial = 0; trial < trials; ++trial) {
        __syncthreads();
        if (elect()) {
            const int64_t index = (int64_t(trial) * gridDim.x + blockIdx.x) * warps + warp;
            uint64_t *record = out + ((int64_t(blockIdx.x) * trials + trial) * warps + warp) * (burst + 2);
            const int64_t start = index * burst * box % region;
            for (int i = 0; i < burst; ++i) expect(full + 8 * i, box);
            const uint64_t before = cycles();
#pragma unroll 1
            for (int i = 0; i < burst; ++i) copy_in(smem + i * box, map, base, start + i * box, box, full + 8 * i, 0);
            const uint64_t after = cycles();
#pragma unroll 1
            for (int i = 0; i < burst; ++i) {
                wait(full + 8 * i, trial & 1);
                record[2 + i] = cycles();
            }
            record[0] = before, record[1] = after;
        }
    }
}

#define BURST(name, map)                                                                                             \
    extern "C" __global__ void name(const __grid_constant__ Map tensor_map, uint64_t *out, const uint8_t *base,      \
                                    int64_t region, int burst, int box, int trials) {                                \
        load_burst(map, out, base, region, burst, box, trials);                                                      \
    }

BURST(tma_burst_map, &tensor_map)
BURST(tma_burst_bulk, nullptr)

// `burst` boxes are stored back to back. out: 5 words per CTA and trial: clock before, after the issue, after the commit,
// when the boxes have been read, when the stores are complete.
__device__ __forceinline__ void store_burst(const Map *map, uint64_t *out, uint8_t *base, int64_t region, int burst, int box,
                                            int trials) {
    if (!elect()) return;
    for (int trial = 0; trial < trials; ++trial) {
        uint64_t *record = out + (int64_t(blockIdx.x) * trials + trial) * 5;
        const int64_t start = (int64_t(trial) * gridDim.x + blockIdx.x) * burst * box % region;
        record[0] = cycles();
        for (int i = 0; i < burst; ++i) copy_out(map, base, start + i * box, shared_address(memory) + i * box, box);
        record[1] = cycles();
        commit();
        record[2] = cycles();
        wait_read<0>();
        record[3] = cycles();
        wait_stored();
        record[4] = cycles();
    }
}

#define STORE_BURST(name, map)                                                                                       \
    extern "C" __global__ void name(const __grid_constant__ Map tensor_map, uint64_t *out, uint8_t *base,            \
                                    int64_t region, int burst, int box, int trials) {                                \
        store_burst(map, out, base, region, burst, box, trials);                                                     \
    }

STORE_BURST(tma_store_burst_map, &tensor_map)
STORE_BURST(tma_store_burst_bulk, nullptr)

// CTA 0 of a cluster of two copies `box` bytes of its shared memory to CTA 1, `count` times with `stages` in flight, and
// CTA 1 waits for each. both: CTA 1 does the same to CTA 0. Dynamic shared memory: 2 * box bytes.
extern "C" __global__ void remote_bulk(uint64_t *out, int count, int box, int stages, int both) {
    __shared__ __align__(8) Ring ring;
    const uint32_t full = shared_address(ring.full), empty = shared_address(ring.empty), smem = shared_address(memory);
    const uint32_t of_rank = rank();
    if (threadIdx.x == 0) {
        for (int i = 0; i < stages; ++i) init(full + 8 * i, 1), init(empty + 8 * i, 1);
        fence_init();
    }
    cluster_sync();
    const bool sends = threadIdx.x < 32;
    const uint32_t peer = of_rank ^ 1;
    if ((both || of_rank == !sends) && elect()) {
        int stage = 0, phase = 0;
        Timer timer;
        for (int i = 0; i < count + (sends ? stages : 0); ++i) {
            if (sends) {
                if (i >= stages) wait_cluster(empty + 8 * stage, phase ^ 1);
                if (i < count)
                    asm volatile(
                        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                            peer_address(smem + box, peer)),
                        "r"(smem), "r"(box), "r"(peer_address(full + 8 * stage, peer))
                        : "memory");
            } else {
                expect(full + 8 * stage, box);
                wait(full + 8 * stage, phase);
                arrive_remote(peer_address(empty + 8 * stage, peer));
            }
            if (++stage == stages) stage = 0, phase ^= 1;
        }
        timer.stop(warp_record(out));
    }
    cluster_meet();
}
