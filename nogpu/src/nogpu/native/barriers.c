// mbarriers of the warp's own CTA: arrivals and waits.
//
// For another CTA's barrier or a broken rule the instruction's Python row is called.

#include "copies.h"

// Hides a new mbarrier from others than the CTA's threads.
void hide(Window *window, Barrier *barrier) {
    if (!barrier->hidden) {
        barrier->next_hidden = window->hidden;
        window->hidden = barrier;
    }
    barrier->hidden = FROM_ALL;
}

// Takes an mbarrier out of the list of those that are hidden.
void unlist_hidden(Window *window, const Barrier *barrier) {
    Barrier **link = &window->hidden;
    while (*link && *link != barrier) link = &(*link)->next_hidden;
    if (*link) *link = barrier->next_hidden;
}

// Notes a doubt that has been reported, if there is room.
void note_doubt(Doubts *doubts, const Barrier *barrier, s64 pc) {
    u64 place = doubt_of(barrier, pc);
    for (s64 i = 0; i < doubts->count; i++)
        if (doubts->places[i] == place) return;
    if (doubts->count < DOUBTS) doubts->places[doubts->count++] = place;
}

// Makes the mbarriers that a warp has initialised, and those that any has up to a time, visible to other CTAs' threads;
// to the async proxy, too, if `to_async`.
void publish(Window *window, s64 warp, s64 synced, int to_async) {
    for (Barrier **link = &window->hidden, *barrier; (barrier = *link);) {
        int is_published = barrier->initial_warp == warp || barrier->initialised <= synced;
        if (is_published) barrier->hidden = to_async ? 0 : FROM_ASYNC;
        if (barrier->hidden) link = &barrier->next_hidden;
        else *link = barrier->next_hidden;
    }
}

// A fence of threads, with b of more than the CTA: it makes mbarriers visible to others.
KERNEL(fence) {
    if (ctx->observed & HEARD) return to_python(ctx, op);
    if (op->b) publish(ctx->windows[ctx->rank], ctx->warp, ctx->synced, 0);
    return op + 1;
}

// An mbarrier operation; compiler/opcodes/barriers.py packs it.
typedef struct {
    s32 address;        // slot; -1: the displacement is the address
    s32 wide;           // nonzero if the slot has 64 bits per lane
    s64 displacement;
    s32 count, bytes, parity;  // slots, or -1: arrivals, bytes expected, parity of the phase
    u32 rows;           // bits ADDRESS to PARITY, set if the operand is a row, not one value
} Operation;

enum { ADDRESS = 1, COUNT = 2, BYTES = 4, PARITY = 8 };

// Reads the value of a slot on which the active lanes must agree. Returns 0 if they do not.
static int agreed(const Context *ctx, const Operation *operation, s32 slot, int row, int wide, u64 *value) {
    int first = operation->rows & row ? __builtin_ctz(ctx->mask) : 0;
    const u32 *narrow = (const u32 *)(ctx->file + slot);
    const u64 *words = (const u64 *)(ctx->file + slot);
    *value = wide ? words[first] : narrow[first];
    if (operation->rows & row)
        for (int l = 0; l < LANES; l++)
            if (ctx->mask >> l & 1 && *value != (wide ? words[l] : narrow[l])) return 0;
    return 1;
}

// The mbarrier that all active lanes name, NULL if it is none of the CTA's.
static Barrier *barrier_at(const Context *ctx, const Operation *operation) {
    u64 address = 0;
    if (operation->address >= 0 && !agreed(ctx, operation, operation->address, ADDRESS, operation->wide, &address)) return 0;
    address += (u64)operation->displacement;
    u64 offset = address & ((1 << RANK_SHIFT) - 1);
    if (address >> RANK_SHIFT != ctx->rank || offset & 7 || offset + 8 > ctx->shared_end) return 0;
    return ctx->barriers[offset >> 3];
}

// Ends the barrier's phase if it is complete, and wakes those that wait. Returns Python's answer.
static s32 end_phase_if_complete(Context *ctx, Barrier *barrier) {
    if (!ends_phase(barrier, ctx->progress)) return 0;
    wake_listed(barrier);
    if (!barrier->waiting) return 0;
    ctx->answer = FAULT;
    ctx->wake(barrier->offset);
    return (s32)ctx->answer;
}

// mbarrier.arrive, with or without .expect_tx; the destination gets the state before the arrival.
KERNEL(mbarrier_arrive) {
    const Operation *operation = (const Operation *)op->x;
    Barrier *barrier = barrier_at(ctx, operation);
    u64 count = 1, expected = 0;
    int legal = operation->count < 0 || agreed(ctx, operation, operation->count, COUNT, 0, &count);
    legal &= operation->bytes < 0 || agreed(ctx, operation, operation->bytes, BYTES, 0, &expected);
    s64 lanes = __builtin_popcount(ctx->mask), arrivals = lanes * (s64)count, bytes = lanes * (s64)expected;
    if (!barrier || !legal || ctx->touched || arrivals > barrier->pending || barrier->bytes + bytes > COUNT_LIMIT)
        return to_python(ctx, op);
    ctx->progress++;
    write_long(ctx, op, (u64)barrier->pending << 32 | (u64)barrier->phase);
    barrier->last_rank = (s32)ctx->rank;
    barrier->last_warp = ctx->warp;
    barrier->last_pc = op->pc;
    barrier->last_kind = BY_THREAD;
    barrier->warp_phases[ctx->warp] = barrier->phase;
    barrier->heard |= ctx->known;
    barrier->bytes += bytes;
    barrier->pending -= (s32)arrivals;
    return after(ctx, op, end_phase_if_complete(ctx, barrier));
}

// The test in vain by the active lanes of a barrier and a parity, NULL if there is none.
static Poll *poll_of(Context *ctx, const Barrier *barrier, s32 parity) {
    for (s64 i = 0; i < ctx->poll_count; i++) {
        Poll *poll = &ctx->polls[i];
        if (poll->barrier == barrier && poll->lanes == ctx->mask && poll->parity == parity) return poll;
    }
    return 0;
}

// Notes a test in vain. Returns 0 if Python has to do so: an earlier one's phase has been missed, or there are many.
static int polls(Context *ctx, const Barrier *barrier, s32 parity) {
    const Poll *earlier = poll_of(ctx, barrier, parity);
    if (earlier) return barrier->phase < earlier->phase + 2;
    if (ctx->observed & HEARD || ctx->watch || ctx->poll_count == POLLS) return 0;
    ctx->polls[ctx->poll_count++] = (Poll){barrier, barrier->phase, ctx->mask, parity};
    return 1;
}

// mbarrier.test_wait.parity or try_wait.parity. With b it stands for a whole loop that waits for the phase.
KERNEL(mbarrier_wait) {
    const Operation *operation = (const Operation *)op->x;
    Barrier *barrier = barrier_at(ctx, operation);
    u64 parity;
    int legal = agreed(ctx, operation, operation->parity, PARITY, 0, &parity) && parity <= 1;
    int is_first = !ctx->waited || (ctx->waited == barrier && barrier->phase < ctx->waited_phase + 2);
    if (!barrier || !legal || !is_first || ctx->polled) return to_python(ctx, op);
    if (((u64)barrier->phase & 1) == parity) {
        if (!op->b) {
            if (!polls(ctx, barrier, (s32)parity)) return to_python(ctx, op);
            write_truth(ctx, op, 0);
            return op + 1;
        }
        ctx->waited = barrier;
        ctx->waited_phase = barrier->phase;
        ctx->parity = (s32)parity;
        return ends(ctx, op, WAITS);
    }
    Poll *poll = poll_of(ctx, barrier, (s32)parity);
    if (poll) *poll = ctx->polls[--ctx->poll_count];
    ctx->waited = 0;
    if (ctx->synced < barrier->ended) ctx->synced = barrier->ended;
    ctx->known |= barrier->news;
    write_truth(ctx, op, 1);
    return op + 1;
}
