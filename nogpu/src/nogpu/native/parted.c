// Turns of a warp whose lanes part at a branch and meet again, or exit, as hardware/warp.py has them.

#include "engine.h"

// Returns 1 if the group has ended its turn at a branch whose sides wait for each other.
static int parts(const Context *ctx) {
    const u8 *opened = ctx->turns->open_points;
    return ctx->result == DONE && ctx->action == SPLIT && !(opened && ctx->join >= 0 && opened[ctx->join]);
}

// Returns 1 if the group has ended its turn at an exit of some lanes of a CTA that compiled code keeps.
static int exits(const Context *ctx) { return ctx->result == DONE && ctx->action != SPLIT && ctx->cta; }

// Returns 1 if compiled code parts the group of the warp at the branch that has ended its turn, or lets lanes exit there.
// Python does where somebody follows the warp, or where the group has not come from the warp's start together.
int can_part(const Context *ctx) {
    if (!(parts(ctx) || exits(ctx)) || ctx->quantum <= 0) return 0;
    return ctx->stop < 0 && !ctx->waited && !ctx->observed && !ctx->log && !ctx->shared_log && !ctx->trace;
}

static void append(Parted *parted, u32 lanes, s32 pc, s32 end) {
    s64 last = parted->groups++;
    parted->lanes[last] = lanes;
    parted->pcs[last] = pc;
    parted->ends[last] = end;
}

static void drop(Parted *parted, s64 group) {
    parted->groups--;
    for (s64 i = group; i < parted->groups; i++) {
        parted->lanes[i] = parted->lanes[i + 1];
        parted->pcs[i] = parted->pcs[i + 1];
        parted->ends[i] = parted->ends[i + 1];
    }
}

// Lanes arrive at a reconvergence point. If all have arrived, a group of them starts there.
static void meet(Parted *parted, s32 point, u32 lanes) {
    s32 pc = parted->joins[point];
    while ((parted->arrived[point] |= lanes) == parted->expected[point]) {
        lanes = parted->expected[point];
        parted->expected[point] = 0;
        point = parted->parents[point];
        if (point < 0 || parted->joins[point] != pc) {
            append(parted, lanes, pc, point);
            return;
        }
    }
}

// Ends a group at its reconvergence point.
static void reconverge(Parted *parted, s64 group) {
    u32 lanes = parted->lanes[group];
    s32 point = parted->ends[group];
    drop(parted, group);
    meet(parted, point, lanes);
}

// Lanes of the group that runs exit; those that are left go on at Context.following.
static void leave(Parted *parted, Context *ctx) {
    s64 group = parted->running;
    s32 end = parted->ends[group];
    u32 lanes = ctx->lanes;
    ctx->live &= ~lanes;
    ctx->progress++;
    for (s32 point = end; point >= 0; point = parted->parents[point]) parted->expected[point] &= ~lanes;
    if (parted->lanes[group] &= ~lanes) {
        parted->pcs[group] = ctx->following;
        if (end >= 0 && parted->joins[end] == ctx->following) reconverge(parted, group);
        return;
    }
    drop(parted, group);
    while (end >= 0 && !parted->expected[end]) end = parted->parents[end];
    if (end >= 0) meet(parted, end, 0);
}

// Parts the group that runs at its branch.
static void part(Parted *parted, const Context *ctx) {
    s64 group = parted->running, other = parted->groups;
    s32 point = 0;
    u32 all = parted->lanes[group];
    while (parted->expected[point]) point++;  // a place is free: fewer lanes part each time
    parted->joins[point] = ctx->join;
    parted->parents[point] = parted->ends[group];
    parted->expected[point] = all;
    parted->arrived[point] = 0;
    append(parted, all & ~ctx->lanes, ctx->following, point);
    parted->lanes[group] = ctx->lanes;
    parted->pcs[group] = ctx->target;
    parted->ends[group] = point;
    if (ctx->target == ctx->join) reconverge(parted, group);
    else if (ctx->following == ctx->join) reconverge(parted, other);
}

// The group whose next instruction comes first in the text.
static s64 next_group(const Parted *parted) {
    s64 best = 0;
    for (s64 i = 1; i < parted->groups; i++)
        if (parted->pcs[i] < parted->pcs[best]) best = i;
    return best;
}

// Runs the groups of a warp from the branch that has ended its turn to where all live lanes are one group. Returns the index of the
// instruction there, LEFT if all lanes have exited, or DONE if Python has to go on: with the groups of Context.parted, of
// which one runs, or, if it has taken them over, with its own.
s32 run_parted(Context *ctx) {
    Parted *parted = ctx->parted = ctx->turns->parted;
    memset(parted->expected, 0, sizeof parted->expected);
    parted->groups = parted->running = 0;
    append(parted, ctx->mask, ctx->pc, -1);
    if (parts(ctx)) part(parted, ctx);
    else leave(parted, ctx);
    while (parted->groups && parted->lanes[0] != ctx->live) {
        s64 group = parted->running = next_group(parted);
        ctx->mask = parted->lanes[group];
        ctx->stop = parted->joins[parted->ends[group]];
        s32 result = run_ops(ctx, ctx->turns->starts[parted->pcs[group]]);
        if (!ctx->parted || ctx->waited || ctx->quantum <= 0) return DONE;
        if (result == ctx->stop) reconverge(parted, group);
        else if (parts(ctx)) part(parted, ctx);
        else if (exits(ctx)) leave(parted, ctx);
        else return DONE;
    }
    ctx->parted = 0;
    if (!parted->groups) return ctx->result = LEFT;
    ctx->mask = parted->lanes[0];
    ctx->stop = -1;
    return parted->pcs[0];
}
