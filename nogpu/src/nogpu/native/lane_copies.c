// cp.async of CTAs that compiled code keeps: what is outstanding, in the order of issue, and the waits for it. Python has
// the copies from when it keeps the CTA (ops/cp_async.py), and does all that is not plain.

#include "lane_copies.h"

static int keeps(const Context *ctx) {
    return ctx->cta && !ctx->cta->notes && !ctx->parted && !ctx->observed && !ctx->log && !ctx->shared_log
           && !ctx->uninitialised && !ctx->windows[ctx->rank]->marked;
}

// An asynchronous operation happens.
static int perform(Context *ctx, s32 pc, const LaneCopies *copies, u32 mask) {
    ctx->progress++;
    ctx->turns->delayed = 0;
    return !copy_lanes(ctx, pc, copies, mask, ctx->progress);
}

// Returns 0 if there is no room.
static int make_room(KeptCta *cta) {
    s64 used = 0;
    if (cta->copies_used < MOST_COPIES) return 1;
    for (s64 i = 0; i < cta->copies_used; i++)
        if (cta->copies[i].left) cta->copies[used++] = cta->copies[i];
    cta->copies_used = used;
    return used < MOST_COPIES;
}

int keep_copies(Context *ctx, s32 pc, const LaneCopies *copies) {
    KeptCta *cta = ctx->cta;
    if (!keeps(ctx) || !make_room(cta)) return 0;
    if (cta->is_prompt) {
        ctx->progress++;
        return perform(ctx, pc, copies, ctx->mask);
    }
    cta->copies[cta->copies_used++] = (KeptCopies){*copies, cta->committed[ctx->warp], ctx->warp, pc, ctx->mask, 0};
    cta->outstanding++;
    ctx->turns->lane_copies++;
    ctx->progress++;
    return 1;
}

// The lanes' copies since the last commit form a group.
KERNEL(commit_copies) {
    if (!keeps(ctx) || !is_kept(ctx)) return to_python(ctx, op);
    ctx->cta->committed[ctx->warp]++;
    return op + 1;
}

// Completes the lanes' copies of all groups but the last a; a < 0: all copies.
KERNEL(wait_copies) {
    KeptCta *cta = ctx->cta;
    if (!keeps(ctx) || !is_kept(ctx)) return to_python(ctx, op);
    s64 end = op->a < 0 ? INT64_MAX : cta->committed[ctx->warp] - op->a;
    for (s64 i = 0; i < cta->copies_used; i++) {
        KeptCopies *each = &cta->copies[i];
        if (each->warp != ctx->warp || each->group >= end || !(each->left & ctx->mask)) continue;
        if (!perform(ctx, each->pc, &each->copies, each->left & ctx->mask)) return to_python(ctx, op);
        each->left &= ~ctx->mask;
        if (each->left) continue;
        cta->outstanding--;
        ctx->turns->lane_copies--;
    }
    if (!cta->outstanding) cta->copies_used = 0;
    return op + 1;
}
