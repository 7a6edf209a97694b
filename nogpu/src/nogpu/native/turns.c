// Turns of warps, one after another, as long as none of them needs Python (execution/machine.py).

#include "lane_copies.h"
#include "loads.h"
#include "tensor_work.h"

// Puts a warp whose group can run into the ring.
void enqueue(Context *ctx) {
    Turns *turns = ctx->turns;
    ctx->blocked = 0;
    if (ctx->queued) return;
    ctx->queued = 1;
    turns->ready[(turns->head + turns->count++) & (turns->room - 1)] = ctx;
}

// Takes the warp that has waited longest for a turn out of the ring, which must not be empty.
Context *dequeue(Turns *turns) {
    Context *ctx = turns->ready[turns->head & (turns->room - 1)];
    turns->head++;
    turns->count--;
    ctx->queued = 0;
    return ctx;
}

// Takes the warps that are GONE out of the ring.
void leave_ring(Turns *turns) {
    s64 left = 0, mask = turns->room - 1;
    for (s64 place = 0; place < turns->count; place++) {
        Context *ctx = turns->ready[(turns->head + place) & mask];
        if (ctx->queued != GONE) turns->ready[(turns->head + left++) & mask] = ctx;
    }
    turns->count = left;
}

// Puts the warps of the mbarrier's list, which can run, into the ring.
void wake_listed(Barrier *barrier) {
    Context *ctx = barrier->first;
    barrier->first = barrier->last_listed = 0;
    while (ctx) {
        Context *next = ctx->next;
        ctx->next = 0;
        ctx->listed = 0;
        ctx->moved |= ctx->is_single && ctx->blocked;
        enqueue(ctx);
        ctx = next;
    }
}

// A special register of c bits that counts: the clock from bit x on, which is kept with the turns.
KERNEL(read_clock) {
    if (!ctx->turns) return to_python(ctx, op);
    ctx->clock_reads++;
    u64 now = (u64)++ctx->turns->ticks >> op->x;
    if (op->c == 32) write_word(ctx, op, (u32)now);
    else write_long(ctx, op, now);
    return op + 1;
}

static void go_on_at(Context *ctx, s32 pc) {
    ctx->at = pc;
    ctx->resume = ctx->turns->starts[pc];
}

// Puts a group that waits into the mbarrier's list. Returns 0 if that cannot be: Python has to put it into its own.
static int wait_listed(Context *ctx) {
    Barrier *barrier = (Barrier *)ctx->waited;
    if (barrier->waiting || (ctx->listed && ctx->listed != barrier)) return 0;
    go_on_at(ctx, ctx->pc);
    ctx->blocked = 1;
    if (ctx->listed) return 1;
    ctx->listed = barrier;
    if (barrier->last_listed) barrier->last_listed->next = ctx;
    else barrier->first = ctx;
    barrier->last_listed = ctx;
    return 1;
}

// Lets warps go on that wait at a named barrier, which was completed at a time.
static void wake_met(Context *const *waiting, s64 count, s64 time) {
    for (s64 i = 0; i < count; i++) {
        Context *ctx = waiting[i];
        ctx->met = 1;
        if (ctx->synced < time) ctx->synced = time;
        ctx->moved = 1;
        enqueue(ctx);
    }
}

// Completes the named barrier of a kept CTA.
static void complete(KeptCta *cta, s64 time) {
    wake_met(cta->waiting, cta->arrived, time);
    cta->arrived = 0;
}

// Moves the notes of a warp's accesses to those of its CTA. Returns 0 if they do not fit.
int keeps_notes(Context *ctx) {
    KeptCta *cta = ctx->cta;
    AccessLog *log = ctx->log, *kept = cta->notes;
    if (log->used > kept->room - kept->used) return 0;
    for (const u64 *note = log->words; log->used; log->used--, note += NOTE) {
        u64 *to = kept->words + (1 + NOTE) * kept->used++;
        to[0] = (u64)cta->started;
        memcpy(to + 1, note, sizeof *note * ((note[1] & (NOTED_LANES | NOTED_RUN)) == NOTED_LANES ? NOTE : 3));
    }
    return 1;
}

// Returns 0 if Python has to check accesses of a CTA that has ended.
static int leaves_notes(KeptCta *cta) {
    if (!cta->notes) return 1;
    if (cta->all[0]->shared_log->used) return 0;
    for (s64 w = 0; w < cta->warps; w++)
        if (!keeps_notes(cta->all[w])) return 0;
    return 1;
}

// Returns 1 if the warp runs in a compiled turn as one group that has not waited, and nobody hears of its barriers.
static int meets_in_turns(const Context *ctx) {
    return ctx->turns && ctx->is_single && !ctx->parted && ctx->mask == ctx->live && !ctx->waited &&
           !(ctx->observed & HEARD) && !ctx->watch;
}

// bar.sync of a CTA that Python keeps.
static const Op *meet(Context *ctx, const Op *op) {
    WaitingWarps *barrier = &ctx->named->at[op->a];
    s64 needed = op->b == UNCOUNTED ? ctx->named->warps : op->b / LANES;
    if (!meets_in_turns(ctx) || barrier->in_python || (op->b != UNCOUNTED && (op->b <= 0 || op->b % LANES)) ||
        barrier->arrived >= needed || (barrier->arrived && barrier->threads != op->b))
        return to_python(ctx, op);
    ctx->progress++;
    if (ctx->touched) {
        s32 answer = told(ctx, op->pc, ARRIVES);
        if (answer) return ends(ctx, op, answer);
    }
    barrier->heard |= ctx->known;
    if (barrier->arrived + 1 < needed) {
        barrier->threads = op->b;
        barrier->waiting[barrier->arrived++] = ctx;
        ctx->named->waiting++;
        return ends(ctx, op, ~op->pc);
    }
    for (s64 i = 0; i < barrier->arrived; i++) barrier->waiting[i]->known |= barrier->heard;
    ctx->known |= barrier->heard;
    wake_met(barrier->waiting, barrier->arrived, ctx->progress);
    ctx->named->waiting -= barrier->arrived;
    barrier->arrived = 0;
    barrier->heard = 0;
    if (ctx->synced < ctx->progress) ctx->synced = ctx->progress;
    return op + 1;
}

// bar.sync of barrier a: b is the number of threads, or UNCOUNTED if none is given. Exits complete a barrier without a
// number only.
KERNEL(bar_sync) {
    KeptCta *cta = ctx->cta;
    if (ctx->met) {
        ctx->met = 0;
        return op + 1;
    }
    if (!cta) return meet(ctx, op);
    if (!is_kept(ctx) || cta->notes || (cta->arrived && (cta->number != op->a || cta->threads != op->b)) ||
        (op->b != UNCOUNTED && (op->b != LANES * cta->warps || cta->gone)))
        return to_python(ctx, op);
    ctx->progress++;
    if (cta->arrived + cta->gone + 1 < cta->warps) {
        cta->number = op->a, cta->threads = op->b;
        cta->waiting[cta->arrived++] = ctx;
        return ends(ctx, op, ~op->pc);
    }
    complete(cta, ctx->progress);
    if (ctx->synced < ctx->progress) ctx->synced = ctx->progress;
    return op + 1;
}

// Makes a kept CTA the one of a place in its table, before its first instruction.
static void become(Turns *turns, KeptCta *cta, s64 place) {
    const u64 *values = cta->values + cta->specials * place;
    const Context *first = cta->all[0];  // has the live allocations
    memset(cta->all[0]->shared, 0xff, (size_t)cta->shared_bytes);
    for (s64 w = 0; w < cta->warps; w++) {
        Context *ctx = cta->all[w], fresh = cta->contexts[w];
        cta->issued += ctx->issued;
        if (ctx->local_is_written) memset(ctx->local, 0xff, (size_t)(LANES * ctx->local_bytes));
        fresh.allocations = first->allocations;
        fresh.allocation_count = first->allocation_count;
        fresh.recent = first->recent;
        fresh.turns = turns;
        *ctx = fresh;
        memcpy(ctx->file, cta->files + w * cta->file_bytes, (size_t)cta->file_bytes);
        for (s64 i = 0; i < cta->specials; i++) memcpy(ctx->file + cta->slots[i], values + i, 8);
        enqueue(ctx);
    }
    cta->gone = 0;
}

// Starts the first CTA of a launch in the place of the last one of another.
void start_again(Turns *turns, KeptCta *cta) {
    cta->started = cta->is_over = 0;
    become(turns, cta, 0);
    cta->issued = 0;
}

// Returns 1 if copies of a CTA are outstanding.
static int has_copies(const KeptCta *cta) {
    const LaneQueue *queue = cta->all[0]->lane_queue;
    return queue && queue->outstanding;
}

// Starts the next CTA in the place of one that has ended. Returns 0 if Python has to see the end.
static int starts_next(Turns *turns, KeptCta *cta) {
    int is_end = cta->started == cta->most;
    if ((is_end && !cta->is_last) || has_copies(cta) || turns->outstanding || turns->stale || !leaves_notes(cta))
        return 0;
    if (is_end) cta->is_over = 1;
    else become(turns, cta, ++cta->started);
    return 1;
}

// Handles the exit of a warp whose CTA compiled code keeps. Returns 0 if Python has to see the CTA's end, or that of a
// warp for which others wait.
static int leaves(Turns *turns, Context *ctx) {
    KeptCta *cta = ctx->cta;
    turns->progress++;
    ctx->is_single = 0;
    cta->left[cta->gone++] = ctx;
    if (cta->gone == cta->warps) return starts_next(turns, cta);
    if (cta->arrived && cta->threads != UNCOUNTED) return 0;
    if (cta->arrived && cta->arrived + cta->gone == cta->warps) complete(cta, turns->progress);
    return 1;
}

// Executes a turn of a warp that has one group. Returns 0 if Python has to end the turn.
static int take_turn(Turns *turns, Context *ctx) {
    ctx->quantum = (s32)turns->quantum;
    ctx->progress = turns->progress;
    ctx->moved = 1;
    s32 result = run_ops(ctx, ctx->resume);
    while (can_part(ctx)) {
        result = run_parted(ctx);
        turns->progress = ctx->progress;
        if (result == DONE) return 0;
        if (result != LEFT) result = run_ops(ctx, turns->starts[result]);
    }
    turns->progress = ctx->progress;
    if (result == WAITS) return wait_listed(ctx);
    if (result == LEFT) return leaves(turns, ctx);
    if (result >= 0) {
        if (result == ctx->stop) return 0;
        go_on_at(ctx, result);
        enqueue(ctx);
        return 1;
    }
    if (result < WAITS) return 0;
    go_on_at(ctx, ~result);
    ctx->blocked = 1;
    return 1;
}

// Asynchronous operations that compiled code keeps.
static s64 pending(const Turns *turns) {
    return (turns->loads ? turns->loads->count : 0) + (turns->work ? turns->work->count + turns->work->arrival_count : 0);
}

static int runs_operation(Turns *turns) {
    int done = turns->work ? run_tensor(turns) : 0;
    if (done) return done > 0;
    if (turns->outstanding) return 0;
    return turns->loads && turns->loads->count ? run_load(turns) : run_copies(turns, INT64_MAX) > 0;
}

// Executes an operation when no warp can run, or those that can poll. Returns 0 if Python has to, or there is none.
static int run_operation(Turns *turns) {
    int done = runs_operation(turns);
    if (done) turns->idle = 0;
    return done;
}

// Returns 1 if Python may leave the next turn to compiled code, too.
static int goes_on(Turns *turns) {
    s64 effects = turns->progress - turns->quiet;
    if (effects == turns->effects) return ++turns->idle <= turns->count || (!turns->stale && run_operation(turns));
    turns->effects = effects;
    turns->idle = 0;
    if (!turns->outstanding && !turns->lane_copies && !pending(turns)) return 1;
    return ++turns->delayed <= turns->overdue * (turns->count ? turns->count : 1);
}

// Gives turns to the warps that can run, in order, and executes an asynchronous operation when none can. Returns the reason of its
// end: LOOK if Python has to look after the rest, SERVE if the warp `current` needs a turn by Python, CONCLUDE if
// Python has to end that warp's turn.
s32 run_turns(Turns *turns) {
    while (turns->ticks < turns->limit && !turns->stale) {
        if (!turns->count) {
            if (!run_operation(turns)) break;
            continue;
        }
        Context *ctx = turns->current = dequeue(turns);
        turns->ticks++;
        if (!ctx->is_single) return SERVE;
        if (!take_turn(turns, ctx)) {
            ctx->is_single = 0;
            return ctx->result == LEFT ? SERVE : CONCLUDE;
        }
        if (!goes_on(turns)) break;
    }
    return LOOK;
}
