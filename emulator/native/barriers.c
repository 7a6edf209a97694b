// mbarriers of the warp's own CTA: arrivals that nobody waits for, and waits for phases that are over.
//
// For anything else, another CTA's barrier or a broken rule, the instruction's Python row is called.

#include "engine.h"

enum { RANK_SHIFT = 24, COUNT_LIMIT = (1 << 20) - 1 };

// An mbarrier operation; compiler/opcodes/barriers.py packs it.
typedef struct {
    s32 address;       // slot, 32 bits; -1: the displacement is the address
    s32 by_lane;       // lanes have addresses of their own
    s64 displacement;
    s32 count, bytes;  // slots of values that all lanes share: arrivals and bytes expected, or -1
    s32 parity, unused;
} Operation;

// The mbarrier that all active lanes name, NULL if it is none of the CTA's.
static Barrier *barrier_at(const Context *ctx, const Operation *operation) {
    u32 address = (u32)operation->displacement;
    if (operation->by_lane) {
        const u32 *row = (const u32 *)(ctx->file + operation->address);
        u32 first = row[__builtin_ctz(ctx->mask)];
        for (int l = 0; l < LANES; l++)
            if (ctx->mask >> l & 1 && row[l] != first) return 0;
        address += first;
    } else if (operation->address >= 0) {
        address += *(const u32 *)(ctx->file + operation->address);
    }
    u32 offset = address & ((1 << RANK_SHIFT) - 1);
    if (address >> RANK_SHIFT != ctx->rank || offset & 7 || offset + 8 > ctx->shared_end) return 0;
    return ctx->barriers[offset >> 3];
}

static s64 shared_value(const Context *ctx, s32 slot, s64 otherwise) {
    return slot < 0 ? otherwise : *(const u32 *)(ctx->file + slot);
}

static void end_phase_if_complete(Context *ctx, Barrier *barrier) {
    if (barrier->pending || barrier->bytes) return;
    barrier->phase++;
    barrier->news = barrier->heard;
    barrier->ended = ctx->progress;
    barrier->delivered = 0;
    barrier->pending = barrier->expected;
}

// mbarrier.arrive, .expect_tx or without; the destination gets the state before the arrival.
KERNEL(mbarrier_arrive) {
    const Operation *operation = (const Operation *)op->x;
    Barrier *barrier = barrier_at(ctx, operation);
    s64 lanes = __builtin_popcount(ctx->mask);
    s64 arrivals = lanes * shared_value(ctx, operation->count, 1), bytes = lanes * shared_value(ctx, operation->bytes, 0);
    if (!barrier || barrier->waiting || ctx->touched || arrivals > barrier->pending || barrier->bytes + bytes > COUNT_LIMIT)
        return after(ctx, op, ctx->python(op->pc, ctx->mask));
    ctx->progress++;
    write_long(ctx, op, (u64)barrier->pending << 32 | (u64)barrier->phase);
    barrier->last_warp = ctx->warp;
    barrier->last_pc = op->pc;
    barrier->phases[ctx->warp] = barrier->phase;
    barrier->heard |= ctx->known;
    barrier->bytes += bytes;
    barrier->pending -= (s32)arrivals;
    end_phase_if_complete(ctx, barrier);
    return op + 1;
}

// mbarrier.test_wait.parity or try_wait.parity of a phase that is over.
KERNEL(mbarrier_wait) {
    const Operation *operation = (const Operation *)op->x;
    Barrier *barrier = barrier_at(ctx, operation);
    u32 parity = (u32)shared_value(ctx, operation->parity, 0);
    if (!barrier || parity > 1 || ctx->resumed || ctx->polled || (barrier->phase & 1) == parity)
        return after(ctx, op, ctx->python(op->pc, ctx->mask));
    if (ctx->synced < barrier->ended) ctx->synced = barrier->ended;
    ctx->known |= barrier->news;
    write_truth(ctx, op, 1);
    return op + 1;
}
