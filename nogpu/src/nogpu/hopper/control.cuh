/* A CTA's Control and access to its words. Included by library.cu, which explains their use. */

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>

constexpr uint32_t SLOTS = 32;        /* loads of one CTA in flight to barriers of other CTAs */
constexpr uint32_t PENDING = 1 << 16; /* one CTA in Control.states */
constexpr uint32_t SERVERS = 128;     /* threads of the software tensor core, one per lane of tensor memory */
constexpr uint32_t LANES = 128, COLUMNS = 512;
constexpr uint32_t RANK_BIT = 24, OFFSET_MASK = (1u << RANK_BIT) - 1;

struct Slot {
    uint64_t barrier; /* shadow: one arrival, by the issuer's expect_tx, and the bytes of the load */
    uint64_t order;   /* target barrier, bytes and parity; see order_of */
};

struct Job {
    uint32_t kind, cta_group, shape, d, idesc, sfa, sfb, accumulate;
    uint64_t a, b;
};
enum { JOB_COPY, JOB_MMA, JOB_END };

struct Control {
    uint64_t cluster_barrier; /* replaces barrier.cluster, which would count the extra warps */
    uint64_t posted, done;    /* mailbox: one arrival by the issuer, SERVERS by the servers */
    alignas(8) uint32_t left; /* threads of the kernel that have ended; low half of a word of 8 bytes */
    uint32_t tmem;            /* slot of the pool */
    uint32_t columns;         /* allocated columns, from the first on */
    uint32_t allocations, pair_allocations;
    uint32_t lock, jobs;      /* of the mailbox */
    uint32_t issued;          /* loads to barriers of other CTAs */
    Job job;
    uint32_t states[SLOTS]; /* of this CTA's loads. Low half: a bit per receiving CTA, the parity of the slot's uses.
                               High half: CTAs that still have to forward the load in flight. */
    uint32_t padding[2];
};
static_assert(sizeof(Control) == 240, "lower.py has this size");
#define AT(field) (control + (uint32_t)offsetof(Control, field))

/* With forwarding, slots[rank of the issuer][SLOTS] follow the Control. */
static __device__ uint32_t slot_at(uint32_t control, uint32_t issuer, uint32_t slot) {
    return control + (uint32_t)(sizeof(Control) + (issuer * SLOTS + slot) * sizeof(Slot));
}

struct Pool {
    uint32_t *words; /* [slots][COLUMNS][LANES] */
    uint32_t *taken; /* [slots] */
    uint64_t slots;
};
extern "C" {
__device__ Pool hopper_pool;
}

/* Shared memory of the cluster */

static __device__ uint32_t load(uint32_t address) {
    uint32_t value;
    asm volatile("ld.acquire.cluster.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
    return value;
}

static __device__ void store(uint32_t address, uint32_t value) {
    asm volatile("st.release.cluster.shared::cluster.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

static __device__ uint32_t add(uint32_t address, uint32_t value) {
    uint32_t before;
    asm volatile("atom.acq_rel.cluster.shared::cluster.add.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "r"(address), "r"(value)
                 : "memory");
    return before;
}

static __device__ uint32_t exchange_if(uint32_t address, uint32_t expected, uint32_t value) {
    uint32_t before;
    asm volatile("atom.acq_rel.cluster.shared::cluster.cas.b32 %0, [%1], %2, %3;"
                 : "=r"(before)
                 : "r"(address), "r"(expected), "r"(value)
                 : "memory");
    return before;
}

static __device__ uint4 load_chunk(uint32_t address) {
    uint4 value;
    asm volatile("ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "r"(address)
                 : "memory");
    return value;
}

static __device__ uint32_t own_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

static __device__ uint32_t in_cta(uint32_t address, uint32_t rank) {
    return (address & OFFSET_MASK) | rank << RANK_BIT;
}

static __device__ void wait(uint32_t barrier, uint32_t parity) {
    uint32_t complete;
    do {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(complete)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    } while (!complete);
}

static __device__ void arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

static __device__ void initialise(uint32_t barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

static __device__ uint32_t read(uint32_t address) {
    uint32_t value;
    asm volatile("ld.shared::cta.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
    return value;
}

static __device__ void write(uint32_t address, uint32_t value) {
    asm volatile("st.shared::cta.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

static __device__ void fence_cluster() { asm volatile("fence.acq_rel.cluster;" ::: "memory"); }

static __device__ void refuse(const char *what, uint32_t value) {
    printf("hopper: CTA (%u, %u, %u): %s: %#x\n", blockIdx.x, blockIdx.y, blockIdx.z, what, value);
    __trap();
}
