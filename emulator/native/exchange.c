// Exchange among the lanes of a warp.

#include "engine.h"

enum { UP, DOWN, BUTTERFLY, INDEX };

// shfl.sync of a row; opcodes/exchange.py packs it.
typedef struct {
    s32 mode, source, target, holds;  // slots; holds: of the predicate, or -1
    s32 by_lane, clamp;               // by_lane: every lane names a lane of its own
    u32 members;
    s32 lane;                         // slot
} Shuffle;

KERNEL(shuffle) {
    const Shuffle *shuffle = (const Shuffle *)op->x;
    if (ctx->mask != FULL || shuffle->members != FULL) return after(ctx, op, ctx->python(op->pc, ctx->mask));
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
