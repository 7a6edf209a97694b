// The copy engine: bulk copies and tensor maps, in and out of shared memory, one thread per CTA.
// Dynamic shared memory: stages * box bytes, then nothing else; mbarriers are static.

#include "common.cuh"

constexpr int kMaxStages = 64;
constexpr int kTrials = 32;  // copies that tma_latency times one by one

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

// Reads `boxes` boxes per CTA with `stages` in flight. use_map: by the tensor map, else by bulk copies from `base`.
// Boxes go round the grid and wrap at `region` bytes. share: CTAs with neighbouring numbers that read the same boxes;
// multicast: they are a cluster of two, and each reads half of every box for both.
extern "C" __global__ void tma_read(const __grid_constant__ Map tensor_map, uint64_t *out, const uint8_t *base,
                                    int64_t region, int boxes, int box, int stages, int use_map, int share, int multicast) {
    __shared__ __align__(8) Ring ring;
    const uint32_t full = shared_address(ring.full), empty = shared_address(ring.empty), smem = shared_address(memory);
    const Map *map = use_map ? &tensor_map : nullptr;
    const uint32_t of_rank = multicast ? rank() : 0, other = multicast ? peer_address(empty, of_rank ^ 1) : 0;
    if (threadIdx.x == 0) {
        for (int i = 0; i < stages; ++i) init(full + 8 * i, 1), init(empty + 8 * i, 2);
        fence_init();
        if (multicast)
            for (int i = 0; i < stages; ++i) expect(full + 8 * i, box);
    }
    __syncthreads();
    if (multicast) cluster_sync();
    if (threadIdx.x == 0) {
        const int64_t reader = blockIdx.x / share, readers = gridDim.x / share;
        const int part = multicast ? box / 2 : box, mask = multicast ? 3 : 0;
        int64_t offset = reader * box % region;
        int stage = 0, phase = 0;
        Timer timer;
        for (int i = 0; i < boxes + stages; ++i) {
            if (i >= stages) {
                wait(full + 8 * stage, phase ^ 1);
                if (multicast && i < boxes) {
                    expect(full + 8 * stage, box);
                    arrive(empty + 8 * stage);
                    arrive_remote(other + 8 * stage);
                    wait_cluster(empty + 8 * stage, phase ^ 1);
                }
            }
            if (i < boxes) {
                if (!multicast) expect(full + 8 * stage, box);
                copy_in(smem + stage * box + of_rank * part, map, base, offset + of_rank * part, part, full + 8 * stage, mask);
                offset += readers * box;
                if (offset >= region) offset %= region;
            }
            if (++stage == stages) stage = 0, phase ^= 1;
        }
        timer.stop(cta_record(out));
    }
    if (multicast) cluster_meet();
}

// Writes `boxes` boxes per CTA from `stages` stages, four groups in flight.
extern "C" __global__ void tma_write(const __grid_constant__ Map tensor_map, uint64_t *out, uint8_t *base,
                                     int64_t region, int boxes, int box, int stages, int use_map) {
    if (threadIdx.x) return;
    const Map *map = use_map ? &tensor_map : nullptr;
    const uint32_t smem = shared_address(memory);
    Timer timer;
    for (int i = 0; i < boxes; ++i) {
        wait_read<3>();
        copy_out(map, base, (int64_t(i) * gridDim.x + blockIdx.x) * box % region, smem + i % stages * box, box);
        commit();
    }
    wait_stored();
    timer.stop(cta_record(out));
}

// Copies `boxes` boxes per CTA from `base` to `target` through a ring, by bulk copies.
extern "C" __global__ void tma_copy(uint64_t *out, const uint8_t *base, uint8_t *target, int64_t region, int boxes, int box,
                                    int stages) {
    __shared__ __align__(8) uint64_t words[kMaxStages];
    const uint32_t full = shared_address(words), smem = shared_address(memory);
    if (threadIdx.x) return;
    for (int i = 0; i < stages; ++i) init(full + 8 * i, 1);
    fence_init();
    const auto place = [&](int i) { return (int64_t(i) * gridDim.x + blockIdx.x) * box % region; };
    const auto load = [&](int i) {
        expect(full + i % stages * 8, box);
        copy_in(smem + i % stages * box, nullptr, base, place(i), box, full + i % stages * 8, 0);
    };
    Timer timer;
    for (int i = 0; i < stages && i < boxes; ++i) load(i);
    for (int i = 0; i < boxes; ++i) {
        wait(full + i % stages * 8, i / stages & 1);
        copy_out(nullptr, target, place(i), smem + i % stages * box, box);
        commit();
        wait_read<1>();
        if (i && i - 1 + stages < boxes) load(i - 1 + stages);
    }
    wait_stored();
    timer.stop(cta_record(out));
}

// `burst` boxes are issued back to back, each with its own mbarrier, then awaited in order; kTrials bursts at different
// places. out: per CTA and trial burst + 2 words: clock before the first issue, after the last, and when each is there.
extern "C" __global__ void tma_burst(const __grid_constant__ Map tensor_map, uint64_t *out, const uint8_t *base,
                                     int64_t region, int burst, int box, int use_map, int trials) {
    __shared__ __align__(8) uint64_t words[kMaxStages];
    const uint32_t full = shared_address(words), smem = shared_address(memory);
    if (threadIdx.x) return;
    const Map *map = use_map ? &tensor_map : nullptr;
    for (int i = 0; i < burst; ++i) init(full + 8 * i, 1);
    fence_init();
    for (int trial = 0; trial < trials; ++trial) {
        uint64_t *record = out + (int64_t(blockIdx.x) * trials + trial) * (burst + 2);
        const int64_t start = (int64_t(trial) * gridDim.x + blockIdx.x) * burst * box % region;
        for (int i = 0; i < burst; ++i) expect(full + 8 * i, box);
        const uint64_t before = cycles();
        for (int i = 0; i < burst; ++i) copy_in(smem + i * box, map, base, start + i * box, box, full + 8 * i, 0);
        const uint64_t after = cycles();
        record[0] = before, record[1] = after;
        for (int i = 0; i < burst; ++i) {
            wait(full + 8 * i, trial & 1);
            record[2 + i] = cycles();
        }
    }
}

// `burst` boxes are stored back to back. out: 5 words per CTA and trial: clock before, after the issue, after the commit,
// when the boxes have been read, when the stores are complete.
extern "C" __global__ void tma_store_burst(const __grid_constant__ Map tensor_map, uint64_t *out, uint8_t *base,
                                           int64_t region, int burst, int box, int use_map, int trials) {
    if (threadIdx.x) return;
    const Map *map = use_map ? &tensor_map : nullptr;
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
    const bool sends = threadIdx.x == 0 && (of_rank == 0 || both), receives = threadIdx.x == 32 && (of_rank == 1 || both);
    const uint32_t peer = of_rank ^ 1;
    if (sends || receives) {
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
