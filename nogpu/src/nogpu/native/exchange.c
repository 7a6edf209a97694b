// Exchange among the lanes of a warp.

#include "engine.h"

enum { UP, DOWN, BUTTERFLY, INDEX };

// shfl.sync of a row; opcodes/exchange.py packs it.
typedef struct {
    s32 mode, source, target, holds;  // mode; slots; `holds`: slot of the predicate, or -1
    s32 by_lane, clamp;               // by_lane: every lane names a lane of its own
    u32 members;
    s32 lane;                         // slot
} Shuffle;

KERNEL(shuffle) {
    const Shuffle *shuffle = (const Shuffle *)op->x;
    if (ctx->mask != FULL || shuffle->members != FULL) return to_python(ctx, op);
    s32 lanes[LANES], in_range[LANES];
    s32 clamp = shuffle->clamp & 31, segment = shuffle->clamp >> 8 & 31;
    const u32 *row = (const u32 *)(ctx->file + shuffle->lane);
    for (int l = 0; l < LANES; l++) {
        s32 b = (s32)row[shuffle->by_lane ? l : 0] & 31;
        s32 lowest = l & segment, highest = lowest | (clamp & ~segment);
        s32 from = shuffle->mode == UP          ? l - b
                   : shuffle->mode == DOWN      ? l + b
                   : shuffle->mode == BUTTERFLY ? (l ^ b)
                                                : (lowest | (b & ~segment));
        in_range[l] = shuffle->mode == UP ? from >= highest : from <= highest;
        lanes[l] = in_range[l] ? from : l;
    }
    const u32 *source = (const u32 *)(ctx->file + shuffle->source);
    u32 result[LANES], holds = 0;
    for (int l = 0; l < LANES; l++) result[l] = source[lanes[l] & 31];
    for (int l = 0; l < LANES; l++) holds |= (u32)in_range[l] << l;
    memcpy(ctx->file + shuffle->target, result, sizeof result);
    if (shuffle->holds >= 0) memcpy(ctx->file + shuffle->holds, &holds, 4);
    return op + 1;
}

// shfl.sync.idx of the value in lane b, which all lanes share, to the whole warp; x: membermask.
KERNEL(broadcast) {
    u32 lane = *AT(u32, b) & 31;
    if (!are_members(ctx, (u32)op->x) || !(ctx->mask >> lane & 1)) return to_python(ctx, op);
    write_word(ctx, op, op->flags & 1 ? *AT(u32, a) : AT(u32, a)[lane]);
    return op + 1;
}

// elect.sync: the leader's lane; c: the slot of the predicate; x: membermask.
KERNEL(elect) {
    if (!are_members(ctx, (u32)op->x)) return to_python(ctx, op);
    u32 leader = ctx->mask & -ctx->mask;
    write_word(ctx, op, (u32)__builtin_ctz(leader));
    u32 *holds = AT(u32, c), keeps = op->b ? ~ctx->mask : 0;
    *holds = leader | (*holds & keeps);
    return op + 1;
}

// vote.sync; x: membermask.
#define VOTE(NAME, WRITE, E)                                                                                       \
    KERNEL(vote_##NAME) {                                                                                          \
        if (!are_members(ctx, (u32)op->x)) return to_python(ctx, op);                                              \
        u32 bits = *AT(u32, a), held = (op->flags & 1 ? -bits : bits) & ctx->mask;                                 \
        WRITE(ctx, op, E);                                                                                         \
        return op + 1;                                                                                             \
    }
VOTE(ballot, write_word, held)
VOTE(all, write_truth, held == ctx->mask)
VOTE(any, write_truth, held != 0)
VOTE(uni, write_truth, held == 0 || held == ctx->mask)

// redux.sync; x: membermask.
#define REDUCTION(NAME, T, START, E)                                                                               \
    KERNEL(redux_##NAME) {                                                                                         \
        if (!are_members(ctx, (u32)op->x)) return to_python(ctx, op);                                              \
        SOURCE(T, a, 0, LANES)                                                                                     \
        T y = START;                                                                                               \
        for (int l = 0; l < LANES; l++) { T x = ctx->mask >> l & 1 ? a[l] : START; y = E; }                        \
        write_word(ctx, op, (u32)y);                                                                               \
        return op + 1;                                                                                             \
    }
REDUCTION(add_u32, u32, 0, x + y)
REDUCTION(min_u32, u32, FULL, x < y ? x : y)
REDUCTION(max_u32, u32, 0, x > y ? x : y)
REDUCTION(min_s32, s32, INT32_MAX, x < y ? x : y)
REDUCTION(max_s32, s32, INT32_MIN, x > y ? x : y)
REDUCTION(and_u32, u32, FULL, x & y)
REDUCTION(or_u32, u32, 0, x | y)
REDUCTION(xor_u32, u32, 0, x ^ y)

KERNEL(activemask) { write_word(ctx, op, ctx->mask); return op + 1; }

// wmma: the whole warp executes it, and an operand is the same in all lanes.
KERNEL(whole_warp) { return ctx->mask == FULL ? op + 1 : to_python(ctx, op); }
#define SAME(T, BITS)                                                                                              \
    KERNEL(same_##BITS) {                                                                                          \
        const T *row = AT(T, a);                                                                                   \
        for (int l = 1; l < LANES; l++)                                                                            \
            if (row[l] != row[0]) return to_python(ctx, op);                                                       \
        return op + 1;                                                                                             \
    }
SAME(u32, 32)
SAME(u64, 64)
