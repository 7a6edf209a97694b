/* Device functions that lowered PTX calls: instructions of sm_100a in software (lower.py decides on the calls).
 *
 * A lowered kernel has extra warps behind its own. In exact mode four of them are the tensor core: the thread that
 * issues a tcgen05.cp or tcgen05.mma posts it to its CTA's mailbox and continues when it is done. A load of a CTA pair
 * (.cta_group::2) may complete on a barrier of another CTA, which a Hopper's TMA cannot signal: it completes on a
 * shadow barrier beside its data instead, and one more warp forwards the bytes to the intended barrier.
 *
 * Each CTA keeps a Control behind its dynamic shared memory. Shared addresses are 32-bit cluster addresses: CTA
 * rank << 24 | offset. Tensor memory is a slot of a pool in global memory, word [column][lane]; a CTA holds its slot
 * until it ends. */

#include "control.cuh"
#include "tensorcore.cuh"
#include "forwarding.cuh"

/* Start and end of every thread */

/* threads: of the kernel itself. rings: CTAs per cluster with forwarding, else 0. with_tmem: 1 with tensor memory. */
extern "C" __device__ void hopper_begin(uint32_t control, uint32_t threads, uint32_t ctas, uint32_t rings,
                                        uint32_t with_tmem) {
    if (threadIdx.x / 32 == threads / 32) {
        uint32_t lane = threadIdx.x % 32, words = (sizeof(Control) + rings * SLOTS * sizeof(Slot)) / 4;
        for (uint32_t i = lane; i < words; i += 32) write(control + 4 * i, 0);
        __syncwarp();
        for (uint32_t issuer = 0; issuer < rings; issuer++)
            initialise(slot_at(control, issuer, lane), 1);
        if (lane == 0) {
            initialise(AT(cluster_barrier), threads / 32 * ctas);
            initialise(AT(posted), 1);
            initialise(AT(done), SERVERS);
            if (with_tmem) take_tmem(control);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        __syncwarp();
    }
    if (ctas > 1)
        asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
    else
        asm volatile("barrier.sync 0;" ::: "memory");
}

/* Called by the kernel's own threads at their end. The CTAs of a cluster end together: until then each may use the
 * others' barriers and slots. */
extern "C" __device__ void hopper_leave(uint32_t control, uint32_t threads, uint32_t ctas, uint32_t rings,
                                        uint32_t with_tmem) {
    uint32_t before;
    asm volatile("atom.relaxed.cta.shared::cta.add.u32 %0, [%1], 1;" : "=r"(before) : "r"(AT(left)) : "memory");
    if (with_tmem && before + 1 == threads) post(control, Job{JOB_END});
    if (ctas > 1) asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
}

/* The extra warps, from start to end. */
extern "C" __device__ void hopper_serve(uint32_t control, uint32_t threads, uint32_t ctas, uint32_t rings,
                                        uint32_t with_tmem) {
    uint32_t server = threadIdx.x - threads;
    if (rings && server < 32)
        forward(control, threads, rings, with_tmem);
    else
        run_jobs(control, server - (rings ? 32 : 0));
    __syncwarp();
    if (ctas > 1) asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
    if (with_tmem && threadIdx.x == blockDim.x - SERVERS) {
        /* The last job is done, so no thread uses the slot any more. */
        __threadfence();
        atomicExch(&hopper_pool.taken[load(AT(tmem))], 0);
    }
}

/* Conversion to e2m1 (PTX ISA, "cvt"): two elements in a byte, the first operand in the high half. */

static __device__ uint32_t e2m1_of(float value) {
    float magnitude = fabsf(value);
    if (!(magnitude <= 5.0f)) return (value < 0 ? 8 : 0) | 7; /* more than 5, infinite or NaN */
    uint32_t code = (magnitude > 0.25f) + (magnitude >= 0.75f) + (magnitude > 1.25f) + (magnitude >= 1.75f) +
                    (magnitude > 2.5f) + (magnitude >= 3.5f);
    return (__float_as_uint(value) >> 31) << 3 | code;
}

extern "C" __device__ uint32_t hopper_f32_to_e2m1x2(float high, float low) { return e2m1_of(high) << 4 | e2m1_of(low); }
