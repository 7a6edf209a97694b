// Control flow: the loop over Ops, jumps, masks of nested branches, and the ends of turns.

#include "loads.h"

// Runs a group from an Op to the end of its turn.
s32 run_ops(Context *ctx, const Op *op) {
    while (op) op = op->run(ctx, op);
    return ctx->result;
}

// Counts a block's warp instructions.
KERNEL(count) { ctx->issued += op->x; return op + 1; }

// An instruction that has no kernel.
KERNEL(python) { return to_python(ctx, op); }

// The active lanes in which the predicate a holds, or with b those in which it does not; all for an a of -1. c: the
// predicate is the same in every lane.
static inline u32 guarded(const Context *ctx, const Op *op) {
    if (op->a < 0) return ctx->mask;
    u32 bits = op->c ? -(*AT(u32, a) != 0) : *AT(u32, a);
    return ctx->mask & (op->b ? ~bits : bits);
}

// Calls the watcher before an instruction of a watched program, whose Ops follow.
KERNEL(watch) {
    u32 outer = ctx->mask;
    ctx->mask = guarded(ctx, op);
    ctx->watch(ctx->watcher, ctx, op);
    ctx->mask = outer;
    return op + 1;
}

// Calls Python in programs whose registers are followed, before an instruction that names one with uninitialised bits.
KERNEL(check_uninitialised) {
    u32 outer = ctx->mask;
    if (!ctx->uninitialised || !ctx->uninitialised[op->pc]) return op + 1;
    ctx->outer = outer;
    ctx->mask = guarded(ctx, op);
    s32 answer = followed(ctx, op->pc);
    ctx->mask = outer;
    return after(ctx, op, answer);
}

// Skips x Ops unless the predicate a, the same in every lane, is b.
KERNEL(unless) { return *AT(u32, a) == (u32)op->b ? op + 1 : op + op->x; }

// Lanes in which the predicate a holds, or with b those in which it does not, become the active ones; d keeps the mask.
// Skips x Ops if there are none.
KERNEL(narrow) {
    u32 bits = *AT(u32, a), outer = ctx->mask, inner = outer & (op->b ? ~bits : bits);
    *AT(u32, d) = outer;
    if (!inner) return op + op->x;
    ctx->mask = inner;
    return op + 1;
}

KERNEL(restore) { ctx->mask = *AT(u32, a); return op + 1; }

// Goes on to the segment at instruction b, x Ops from here. The turn ends there if it has been long enough, or if b is
// the group's reconvergence point.
KERNEL(go) {
    if (ctx->quantum == 1 || op->b == ctx->stop) return ends(ctx, op, op->b);
    ctx->quantum--;
    return op + op->x;
}

static const Op *act(Context *ctx, const Op *op, s32 action, u32 lanes) {
    ctx->action = action;
    ctx->lanes = lanes;
    return ends(ctx, op, DONE);
}

// The group exits.
KERNEL(leave) { return is_kept(ctx) ? ends(ctx, op, LEFT) : act(ctx, op, LEAVE, ctx->mask); }

// Lanes in which the predicate a holds, or with c those in which it does not, exit; the others go on at b. The next Op
// goes there, if all lanes do.
KERNEL(leave_some) {
    u32 bits = *AT(u32, a), lanes = ctx->mask & (op->c ? ~bits : bits);
    if (!lanes) return op + 1;
    if (lanes == ctx->mask && is_kept(ctx)) return ends(ctx, op, LEFT);
    ctx->following = op->b;
    return act(ctx, op, LEAVE_SOME, lanes);
}

// Lanes in which the predicate d holds, or with c those in which it does not, go on at a, the others at b. They meet at x.
// The next two Ops go to a and to b, if all lanes do.
KERNEL(split) {
    u32 bits = *AT(u32, d), taken = ctx->mask & (op->c ? ~bits : bits);
    if (taken == ctx->mask) return op + 1;
    if (!taken) return op + 2;
    ctx->target = op->a;
    ctx->following = op->b;
    ctx->join = (s32)op->x;
    return act(ctx, op, SPLIT, taken);
}

// Moves registers from a file to one of another program. An unwritten register has one value in both.
void move_registers(u8 *to, const u8 *from, const Move *moves, s64 count) {
    for (const Move *each = moves; each < moves + count; each++) {
        s64 bytes = each->width / 8;
        u64 word;
        memcpy(&word, from + each->source, sizeof word);
        if (each->width > 1 && each->is_row) {
            for (s64 l = 0; l < LANES; l++)
                memcpy(to + each->target + l * bytes, from + each->source + (each->is_uniform ? 0 : l * bytes), (size_t)bytes);
        } else {
            if (each->is_uniform && each->is_row) word *= FULL;
            memcpy(to + each->target, &word, sizeof word);
        }
    }
}
