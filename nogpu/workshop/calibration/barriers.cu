// Barriers, mbarriers and fences: one kind each in a loop, and pairs of warps or CTAs that wake each other in turn.
// count: rounds of a loop; a round has kSteps steps where the loop is unrolled.

#include "common.cuh"

constexpr int kSteps = 16;

#define LOOP(name, setup, step)                                    \
    extern "C" __global__ void name(uint64_t *out, int count) {    \
        __shared__ __align__(8) uint64_t word[4];                  \
        const uint32_t barrier = shared_address(word);             \
        (void)barrier;                                             \
        setup;                                                     \
        __syncthreads();                                           \
        Timer timer;                                               \
        _Pragma("unroll 1") for (int i = 0; i < count; ++i) {      \
            _Pragma("unroll") for (int j = 0; j < kSteps; ++j) {   \
                step;                                              \
            }                                                      \
        }                                                          \
        if (threadIdx.x % 32 == 0) timer.stop(warp_record(out));   \
    }

#define INIT if (threadIdx.x == 0) init(barrier, 1 << 19), fence_init()

LOOP(empty_loop, , asm volatile("" ::: "memory"))
LOOP(barrier_cta, , asm volatile("barrier.cta.sync.aligned 1, %0;" ::"r"(blockDim.x) : "memory"))
LOOP(barrier_zero, , asm volatile("bar.sync 0;" ::: "memory"))
LOOP(barrier_arrive_only, , asm volatile("barrier.cta.arrive.aligned 2, 1024;" ::: "memory"))
// One lane of each warp arrives; then all 32.
LOOP(mbarrier_arrive, INIT, if (threadIdx.x % 32 == 0) arrive(barrier))
LOOP(mbarrier_arrive_lanes, INIT, arrive(barrier))
LOOP(mbarrier_arrive_state, INIT,
     uint64_t state; asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(state) : "r"(barrier) : "memory"))
LOOP(mbarrier_expect, INIT,
     if (threadIdx.x % 32 == 0)
         asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], 0;" ::"r"(barrier) : "memory"))
// The phase before the first counts as over: the wait succeeds.
LOOP(mbarrier_try_wait, INIT, wait(barrier, 1))
LOOP(mbarrier_phase, if (threadIdx.x == 0) init(barrier, 1), if (threadIdx.x == 0) { arrive(barrier); wait(barrier, j & 1); })
LOOP(barrier_cluster, , cluster_sync())
LOOP(barrier_cluster_relaxed, ,
     asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
     asm volatile("barrier.cluster.wait.aligned;" ::: "memory"))
LOOP(fence_async, , asm volatile("fence.proxy.async.shared::cta;" ::: "memory"))
LOOP(fence_async_all, , asm volatile("fence.proxy.async;" ::: "memory"))
LOOP(fence_async_global, , asm volatile("fence.proxy.async.global;" ::: "memory"))
LOOP(fence_async_after_store, , word[1] = j; asm volatile("fence.proxy.async.shared::cta;" ::: "memory"))
LOOP(fence_mbarrier_init, , asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"))
LOOP(fence_cta, , asm volatile("fence.acq_rel.cta;" ::: "memory"))
LOOP(fence_cluster, , asm volatile("fence.acq_rel.cluster;" ::: "memory"))
LOOP(fence_gpu, , asm volatile("fence.acq_rel.gpu;" ::: "memory"))

// Warp 0 and warp 1 wake each other; count round trips.
extern "C" __global__ void ping_pong(uint64_t *out, int count) {
    __shared__ __align__(8) uint64_t word[2];
    const uint32_t mine = shared_address(word + threadIdx.x / 32), other = shared_address(word + (threadIdx.x / 32 ^ 1));
    if (threadIdx.x == 0) init(mine, 1), init(other, 1), fence_init();
    __syncthreads();
    if (threadIdx.x % 32) return;
    Timer timer;
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
        if (threadIdx.x == 0) arrive(other);
        wait(mine, i & 1);
        if (threadIdx.x) arrive(other);
    }
    timer.stop(warp_record(out));
}

// The same between thread 0 of each CTA of a cluster of two; release: with the cluster's order of memory.
template <bool release>
__device__ __forceinline__ void ping_pong_clusters(uint64_t *out, int count) {
    __shared__ __align__(8) uint64_t word;
    const uint32_t mine = shared_address(&word), of_rank = rank(), other = peer_address(mine, of_rank ^ 1);
    const auto call = [=] { release ? arrive_remote_release(other) : arrive_remote(other); };
    if (threadIdx.x == 0) init(mine, 1), fence_init();
    cluster_sync();
    if (threadIdx.x == 0) {
        Timer timer;
#pragma unroll 1
        for (int i = 0; i < count; ++i) {
            if (of_rank == 0) call();
            release ? wait_cluster(mine, i & 1) : wait(mine, i & 1);
            if (of_rank) call();
        }
        timer.stop(cta_record(out));
    }
    cluster_meet();
}

extern "C" __global__ void ping_pong_remote(uint64_t *out, int count) { ping_pong_clusters<false>(out, count); }
extern "C" __global__ void ping_pong_release(uint64_t *out, int count) { ping_pong_clusters<true>(out, count); }

// The same with st.async of 4 bytes that complete on the other's mbarrier.
extern "C" __global__ void ping_pong_store(uint64_t *out, int count) {
    __shared__ __align__(8) uint64_t word[2];
    const uint32_t mine = shared_address(word), of_rank = rank(), other = peer_address(mine, of_rank ^ 1);
    if (threadIdx.x == 0) init(mine, 1), fence_init();
    cluster_sync();
    if (threadIdx.x == 0) {
        Timer timer;
#pragma unroll 1
        for (int i = 0; i < count; ++i) {
            expect(mine, 4);
            for (int turn = 0; turn < 2; ++turn) {
                if (turn == of_rank)
                    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(
                                     other + 8),
                                 "r"(i), "r"(other)
                                 : "memory");
                else
                    wait_cluster(mine, i & 1);
            }
        }
        timer.stop(cta_record(out));
    }
    cluster_meet();
}
