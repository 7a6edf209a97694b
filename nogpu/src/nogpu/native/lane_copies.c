// cp.async that compiled code keeps: what is outstanding, in the order of issue, and the waits for it, unless chance
// chooses when copies happen, or somebody hears of them. Python takes over a warp's copies where it has to execute
// something of theirs (hardware/lane_copies.py), and has all of the warp's from then until none is outstanding.

#include "lane_copies.h"

// Returns 1 if compiled code has the warp's copies. If their stores are marked, Python hears of a kept CTA's first.
static int keeps(const Context *ctx) {
    const LaneQueue *queue = ctx->lane_queue;
    return queue && !ctx->parted && !queue->in_python[ctx->warp] && !(ctx->cta && ctx->windows[ctx->rank]->marked);
}

// Copies of lanes happen, unless Python has to do them: then it returns 0.
static int perform(Context *ctx, s32 pc, const LaneCopies *copies, u32 mask, s64 *progress) {
    if (copy_lanes(ctx, pc, copies, mask, *progress + 1)) return 0;
    ++*progress;
    ctx->turns->delayed = 0;
    return 1;
}

// Lists a CTA among those with copies outstanding, or removes it from the list.
static void list(Turns *turns, LaneQueue *queue) {
    queue->next = turns->lane_queues;
    turns->lane_queues = queue;
}

static void unlist(Turns *turns, const LaneQueue *queue) {
    LaneQueue **place = &turns->lane_queues;
    while (*place != queue) place = &(*place)->next;
    *place = queue->next;
}

// Copies of lanes are no longer outstanding here.
static void end_copies(Turns *turns, LaneQueue *queue, KeptCopies *each, u32 mask) {
    each->left &= ~mask;
    if (each->left) return;
    turns->lane_copies--;
    if (--queue->outstanding) return;
    queue->used = 0;
    unlist(turns, queue);
}

// Returns 0 if there is no room.
static int make_room(LaneQueue *queue) {
    s64 used = 0;
    if (queue->used < MOST_COPIES) return 1;
    for (s64 i = 0; i < queue->used; i++)
        if (queue->copies[i].left) queue->copies[used++] = queue->copies[i];
    queue->used = used;
    return used < MOST_COPIES;
}

// Issues copies. Returns 0 if Python has to.
int keep_copies(Context *ctx, s32 pc, const LaneCopies *copies) {
    LaneQueue *queue = ctx->lane_queue;
    if (!keeps(ctx) || !make_room(queue)) return 0;
    s64 issued = ctx->progress + 1;
    if (queue->is_prompt) {
        if (!perform(ctx, pc, copies, ctx->mask, &issued)) return 0;
    } else {
        s64 number = ctx->turns->issued + 1, group = queue->committed[ctx->warp];
        queue->copies[queue->used++] = (KeptCopies){*copies, number, group, ctx, ctx->warp, pc, ctx->mask, 0};
        if (!queue->outstanding++) list(ctx->turns, queue);
        ctx->turns->lane_copies++;
    }
    ctx->turns->issued++;
    ctx->progress = issued;
    return 1;
}

// The lanes' copies since the last commit form a group.
KERNEL(commit_copies) {
    if (!keeps(ctx) || ctx->mask != ctx->live) return to_python(ctx, op);
    ctx->lane_queue->committed[ctx->warp]++;
    return op + 1;
}

// Completes the lanes' copies of all groups but the last a; a < 0: all copies.
KERNEL(wait_copies) {
    LaneQueue *queue = ctx->lane_queue;
    if (!keeps(ctx) || ctx->mask != ctx->live) return to_python(ctx, op);
    s64 end = op->a < 0 ? INT64_MAX : queue->committed[ctx->warp] - op->a;
    for (s64 i = 0; i < queue->used; i++) {
        KeptCopies *each = &queue->copies[i];
        if (each->warp != ctx->warp || each->group >= end || !(each->left & ctx->mask)) continue;
        if (!perform(ctx, each->pc, &each->copies, each->left & ctx->mask, &ctx->progress)) return to_python(ctx, op);
        end_copies(ctx->turns, queue, each, ctx->mask);
    }
    return op + 1;
}

// Completes the copies that were issued first, if that was before operation number `limit`. Returns 1, 0 if there are none,
// REFUSED if Python has to.
s64 run_copies(Turns *turns, s64 limit) {
    LaneQueue *of = 0;
    KeptCopies *first = 0;
    for (LaneQueue *queue = turns->lane_queues; queue; queue = queue->next) {
        KeptCopies *each = queue->copies;
        while (!each->left) each++;
        if (!first || each->number < first->number) first = each, of = queue;
    }
    if (!first || first->number >= limit) return 0;
    if (!perform(first->issuer, first->pc, &first->copies, first->left, &turns->progress)) return REFUSED;
    end_copies(turns, of, first, FULL);
    return 1;
}

// Forgets the outstanding copies of a warp, which Python has taken over.
void forget_copies(Context *ctx) {
    LaneQueue *queue = ctx->lane_queue;
    for (s64 i = 0; i < queue->used; i++)
        if (queue->copies[i].left && queue->copies[i].warp == ctx->warp)
            end_copies(ctx->turns, queue, &queue->copies[i], FULL);
}
