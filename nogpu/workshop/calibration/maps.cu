// Tensor maps that a kernel edits: a field in shared memory, the copy to global memory with its release, the acquire, and
// the first load by an edited map. One warp of one CTA; a step's cost is the difference of two kernels.

#include "common.cuh"

struct __align__(128) Map {
    uint8_t bytes[128];
};

constexpr int kBox = 1024;  // bytes, of 8 rows of 128

__device__ __forceinline__ void replace_address(uint32_t map, const void *address) {
    asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(map), "l"(address)
                 : "memory");
}

__device__ __forceinline__ void publish(Map *to, uint32_t map) {
    asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;" ::
                     "l"(to), "r"(map)
                 : "memory");
}

__device__ __forceinline__ void acquire(const Map *map) {
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}

// `count` rounds of what `parts` says: bit 0 a field, bit 1 the copy to the map behind `target`, bit 2 the acquire, bit 3 a
// load by that map that is awaited.
template <int parts>
__device__ __forceinline__ void edit(const Map *map, uint64_t *out, const uint8_t *base, uint8_t *target, int count) {
    __shared__ Map edited;
    __shared__ __align__(128) uint8_t box[kBox];
    __shared__ __align__(8) uint64_t word;
    Map *published = reinterpret_cast<Map *>(target);
    const uint32_t full = shared_address(&word), mine = shared_address(&edited);
    if (threadIdx.x == 0) init(full, 1), fence_init();
    reinterpret_cast<uint32_t *>(edited.bytes)[threadIdx.x] = reinterpret_cast<const uint32_t *>(map->bytes)[threadIdx.x];
    __syncwarp();
    publish(published, mine);
    acquire(published);
    __syncwarp();
    Timer timer;
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
        if (parts & 1) {
            if (elect()) replace_address(mine, base);
            __syncwarp();
        }
        if (parts & 2) publish(published, mine);
        if (parts & 4) acquire(published);
        if (parts & 8) {
            if (elect()) {
                expect(full, kBox);
                asm volatile(
                    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                    "[%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(box)),
                    "l"(published), "r"(0), "r"(0), "r"(full)
                    : "memory");
            }
            wait(full, i & 1);
            __syncwarp();
        }
    }
    timer.stop(warp_record(out));
}

#define EDIT(name, parts)                                                                                            \
    extern "C" __global__ void name(const __grid_constant__ Map map, uint64_t *out, const uint8_t *base,             \
                                    uint8_t *target, int count) {                                                    \
        edit<parts>(&map, out, base, target, count);                                                                 \
    }

EDIT(map_replace, 1)
EDIT(map_publish, 2)
EDIT(map_acquire, 4)
EDIT(map_load, 8)
EDIT(map_edit, 7)
EDIT(map_edit_load, 15)
