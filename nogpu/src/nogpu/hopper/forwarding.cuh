/* Loads of CTA pairs. Included by library.cu. */

#pragma once

#include "control.cuh"

/* Loads whose barrier is in another CTA. Only the barriers order them, and in exact mode the forwarder's fence: a fence
 * of cluster scope takes longer than all the rest. Issuer and forwarder access common words by atomic operations. */

static __device__ uint64_t order_of(uint32_t target, uint32_t bytes, uint32_t parity) {
    return (uint64_t)target << 32 | (uint64_t)parity << 31 | bytes;
}

static __device__ uint64_t peek(uint32_t address) {
    uint64_t value;
    asm volatile("atom.relaxed.cluster.shared::cta.or.b64 %0, [%1], 0;" : "=l"(value) : "r"(address) : "memory");
    return value;
}

static __device__ void put(uint32_t address, uint64_t value) {
    uint64_t before;
    asm volatile("atom.relaxed.cluster.shared::cluster.exch.b64 %0, [%1], %2;"
                 : "=l"(before)
                 : "r"(address), "l"(value)
                 : "memory");
}

/* The barrier on which a load of `bytes` to each CTA of `mask` completes. `meant`: the barrier of the sm_100a
 * instruction. In each receiving pair the CTA with the same rank parity as `meant` gets the signal (PTX ISA,
 * "cp.async.bulk.tensor", .cta_group::2). */
extern "C" __device__ uint32_t hopper_load_barrier(uint32_t control, uint32_t meant, uint32_t bytes, uint32_t mask) {
    uint32_t rank = own_rank(), slot, state;
    if ((mask & (mask - 1)) == 0 && mask >> (meant >> RANK_BIT) == 1) return meant;
    asm volatile("atom.relaxed.cta.shared::cta.add.u32 %0, [%1], 1;" : "=r"(slot) : "r"(AT(issued)) : "memory");
    slot %= SLOTS;
    uint32_t at = AT(states) + 4 * slot, shadow = slot_at(control, rank, slot);
    do {
        asm volatile("atom.relaxed.cluster.shared::cta.or.b32 %0, [%1], 0;" : "=r"(state) : "r"(at) : "memory");
    } while (state >= PENDING);
    /* The low half changes by exclusive or and the high half from 0: one addition does both. */
    uint32_t before = state;
    state ^= mask;
    asm volatile("red.relaxed.cluster.shared::cta.add.u32 [%0], %1;" ::"r"(at),
                 "r"(state - before + __popc(mask) * PENDING)
                 : "memory");
    uint32_t base = meant & OFFSET_MASK, odd = meant >> RANK_BIT & 1;
    if (mask == 1u << rank) {
        uint64_t order = order_of(base | ((rank & ~1u) | odd) << RANK_BIT, bytes, state >> rank & 1);
        asm volatile("mbarrier.arrive.expect_tx.relaxed.cta.shared::cta.b64 _, [%0], %1;" ::"r"(shadow), "r"(bytes)
                     : "memory");
        put(shadow + (uint32_t)offsetof(Slot, order), order);
        return shadow;
    }
    for (uint32_t left = mask; left; left &= left - 1) {
        uint32_t receiver = __ffs(left) - 1, there = in_cta(shadow, receiver);
        uint64_t order = order_of(base | ((receiver & ~1u) | odd) << RANK_BIT, bytes, state >> receiver & 1);
        asm volatile("mbarrier.arrive.expect_tx.relaxed.cluster.shared::cluster.b64 _, [%0], %1;" ::"r"(there),
                     "r"(bytes)
                     : "memory");
        put(there + (uint32_t)offsetof(Slot, order), order);
    }
    return in_cta(shadow, mask >> rank & 1 ? rank : __ffs(mask) - 1);
}

/* Bytes of the box of a tensor map (layout: nogpu/src/nogpu/hardware/tma/tensor_map.py). */
extern "C" __device__ uint32_t hopper_box_bytes(uint32_t control, uint64_t map) {
    const uint8_t *bytes = (const uint8_t *)map;
    uint32_t flags = *(const uint32_t *)(bytes + 8), steps = *(const uint32_t *)(bytes + 52);
    uint32_t size = 1u << (0x13221332210ull >> 4 * (flags >> 7 & 15) & 15);
    for (uint32_t i = 0; i <= (flags >> 4 & 7); i++) {
        uint32_t step = (steps >> 3 * i & 7) + 1;
        size *= (bytes[55 + i] + step) / step;
    }
    return size;
}

/* The forwarding warp; lane i serves slot i of every issuer. */
static __device__ void forward(uint32_t control, uint32_t threads, uint32_t ctas, bool exact) {
    uint32_t lane = threadIdx.x % 32, parities = 0;
    bool waiting = true, ended = false;
    while (waiting || !ended) {
        /* Read before the slots, so that they show every load that a thread issued before it left. */
        ended = (uint32_t)peek(AT(left)) == threads;
        waiting = false;
        for (uint32_t issuer = 0; issuer < ctas; issuer++) {
            uint32_t slot = slot_at(control, issuer, lane), complete;
            uint64_t order = peek(slot + (uint32_t)offsetof(Slot, order));
            if ((order >> 31 & 1) == (parities >> issuer & 1)) continue; /* no new one */
            waiting = true;
            asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;"
                         " selp.u32 %0, 1, 0, p; }"
                         : "=r"(complete)
                         : "r"(slot), "r"(parities >> issuer & 1)
                         : "memory");
            if (!complete) continue;
            parities ^= 1u << issuer;
            if (exact) fence_cluster();
            asm volatile("mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%0], %1;" ::"r"(
                             (uint32_t)(order >> 32)),
                         "r"((uint32_t)order & 0x7FFFFFFF)
                         : "memory");
            asm volatile("red.relaxed.cluster.shared::cluster.add.u32 [%0], %1;" ::"r"(
                             in_cta(AT(states), issuer) + 4 * lane),
                         "r"(-PENDING)
                         : "memory");
        }
        waiting = __any_sync(~0u, waiting);
        ended = __all_sync(~0u, ended);
    }
}
