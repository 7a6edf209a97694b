// Exchange among the lanes of a warp.

#include "engine.h"
#include "fused.h"

enum { UP, DOWN, BUTTERFLY, INDEX };

// The active lanes among `left` that name the same membermask as the first of them, which becomes `members`. row: the
// membermasks, or the one of all lanes.
static u32 next_party(u32 left, const u32 *row, int by_lane, u32 *members) {
    u32 party = 0;
    *members = row[by_lane ? __builtin_ctz(left) : 0];
    if (!by_lane) return left;
    for (int l = 0; l < LANES; l++) party |= (u32)(row[l] == *members) << l;
    return party & left;
}

// Returns 1 if the active lanes of each membermask are its live ones.
static int are_parties(const Context *ctx, const u32 *row, int by_lane) {
    u32 members;
    for (u32 left = ctx->mask, party; left; left &= ~party) {
        party = next_party(left, row, by_lane, &members);
        if (party & ~members || members & ctx->live & ~party) return 0;
    }
    return 1;
}

// bar.warp.sync of membermask a, with b a row, where nobody has to wait.
KERNEL(bar_warp) {
    if (ctx->waited || ctx->observed & HEARD || !are_parties(ctx, AT(u32, a), op->b)) return to_python(ctx, op);
    return op + 1;
}

// Has the next operation, whose membermask is x, executed by the lanes of each membermask a, with b a row, one party after
// another.
KERNEL(by_membermask) {
    u32 all = ctx->mask, members;
    const u32 *row = AT(u32, a);
    if (!are_parties(ctx, row, op->b)) {
        s32 answer = answer_of(ctx, op->pc);
        return answer ? ends(ctx, op, answer) : op + 2;
    }
    Op one = op[1];
    if (op->b) one.flags |= KEEPS;
    for (u32 left = all; left; left &= ~ctx->mask) {
        ctx->mask = next_party(left, row, op->b, &members);
        one.x = members;
        one.run(ctx, &one);
    }
    ctx->mask = all;
    return op + 2;
}

enum { BY_LANE_A = 1, BY_LANE_B = 2, BY_LANE_C = 4, BY_LANE_MEMBERS = 8 };

// shfl.sync; opcodes/exchange.py packs it.
typedef struct {
    s32 mode, target, holds;          // mode; slots of the results, or -1
    s32 a, b, c, members;             // slots
    u32 rows;                         // bits BY_LANE_A to BY_LANE_MEMBERS, set if the operand is a row, not one value
} Shuffle;

// The lane that a lane reads. Returns whether it is in range.
static inline u32 source_lane(s32 mode, s32 l, s32 b, s32 c, s32 *source) {
    s32 clamp = c & 31, segment = c >> 8 & 31, lowest = l & segment, highest = lowest | (clamp & ~segment);
    s32 from = mode == UP          ? l - b
               : mode == DOWN      ? l + b
               : mode == BUTTERFLY ? (l ^ b)
                                   : (lowest | (b & ~segment));
    int in_range = mode == UP ? from >= highest : from <= highest;
    *source = in_range ? from & 31 : l;
    return (u32)in_range;
}

// Returns 1 if each active lane reads an active lane of its own membermask.
static int reads_members(const Context *ctx, const Shuffle *shuffle, const s32 *lanes) {
    const u32 *row = (const u32 *)(ctx->file + shuffle->members);
    int by_lane = (shuffle->rows & BY_LANE_MEMBERS) != 0;
    if (!are_parties(ctx, row, by_lane)) return 0;
    for (int l = 0; l < LANES; l++)
        if (ctx->mask >> l & 1 && (!(ctx->mask >> lanes[l] & 1) || (by_lane && row[lanes[l]] != row[l]))) return 0;
    return 1;
}

// r[l] = a[lanes[l]]
static inline void pick_lanes(u32 *restrict r, const u32 *a, const s32 *lanes) {
#ifdef __AVX512F__
    __m512i low = _mm512_loadu_si512(a), high = _mm512_loadu_si512(a + LANES / 2);
    for (int l = 0; l < LANES; l += LANES / 2)
        _mm512_storeu_si512(r + l, _mm512_permutex2var_epi32(low, _mm512_loadu_si512(lanes + l), high));
#else
    for (int l = 0; l < LANES; l++) r[l] = a[lanes[l]];
#endif
}

KERNEL(shuffle) {
    const Shuffle *shuffle = (const Shuffle *)op->x;
    u32 rows = shuffle->rows, mask = ctx->mask, result[LANES], holds = 0, in_range[LANES], spread[3][LANES];
    const u32 *a = row_at(ctx, shuffle->a | (rows & BY_LANE_A ? 0 : ONE_VALUE), spread[0]);
    const u32 *b = row_at(ctx, shuffle->b | (rows & BY_LANE_B ? 0 : ONE_VALUE), spread[1]);
    const u32 *c = row_at(ctx, shuffle->c | (rows & BY_LANE_C ? 0 : ONE_VALUE), spread[2]);
    s32 lanes[LANES], mode = shuffle->mode;
    for (int l = 0; l < LANES; l++) in_range[l] = source_lane(mode, l, (s32)b[l] & 31, (s32)c[l], &lanes[l]);
    int is_whole = mask == FULL && !(rows & BY_LANE_MEMBERS) && *(const u32 *)(ctx->file + shuffle->members) == FULL;
    if (!is_whole && !reads_members(ctx, shuffle, lanes)) return to_python(ctx, op);
    pick_lanes(result, a, lanes);
    for (int l = 0; l < LANES; l++) holds |= in_range[l] << l;
    if (shuffle->target >= 0) {
        u32 *target = (u32 *)(ctx->file + shuffle->target);
        if (mask == FULL) copy_row(target, result, sizeof result);
        else
            for (int l = 0; l < LANES; l++) target[l] = mask >> l & 1 ? result[l] : target[l];
    }
    if (shuffle->holds >= 0) {
        u32 *bits = (u32 *)(ctx->file + shuffle->holds);
        *bits = (holds & mask) | (*bits & ~mask);
    }
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

// redux.sync of f32. Numbers are ordered as integers are, -0 below +0. NONE: whether one NaN makes the result NaN; else
// only numbers count.
#define NUMBER_REDUCTION(NAME, BITS, BETTER, NONE)                                                                 \
    KERNEL(redux_##NAME##_f32) {                                                                                   \
        if (!are_members(ctx, (u32)op->x)) return to_python(ctx, op);                                              \
        SOURCE(u32, a, 0, LANES)                                                                                   \
        int numbers = 0, others = 0;                                                                               \
        s32 y = 0;                                                                                                 \
        for (u32 left = ctx->mask; left; left &= left - 1) {                                                       \
            s32 x = (s32)(a[__builtin_ctz(left)] & (BITS));                                                        \
            if ((x & INT32_MAX) > 0x7f800000) {                                                                    \
                others = 1;                                                                                        \
                continue;                                                                                          \
            }                                                                                                      \
            x ^= x >> 31 & INT32_MAX;                                                                              \
            if (!numbers || x BETTER y) y = x;                                                                     \
            numbers = 1;                                                                                           \
        }                                                                                                          \
        write_word(ctx, op, !numbers || (NONE && others) ? 0x7fffffff : (u32)(y ^ (y >> 31 & INT32_MAX)));         \
        return op + 1;                                                                                             \
    }
#define NUMBER_REDUCTIONS(NAME, BETTER)                                                                            \
    NUMBER_REDUCTION(NAME, FULL, BETTER, 0)                                                                        \
    NUMBER_REDUCTION(NAME##_NaN, FULL, BETTER, 1)                                                                  \
    NUMBER_REDUCTION(NAME##_abs, 0x7fffffff, BETTER, 0)                                                            \
    NUMBER_REDUCTION(NAME##_abs_NaN, 0x7fffffff, BETTER, 1)
NUMBER_REDUCTIONS(min, <)
NUMBER_REDUCTIONS(max, >)

// match.sync; x: membermask. any: the lanes that hold the same value; all and same: those of all, and whether they do.
#define MATCH(T, BITS)                                                                                             \
    KERNEL(match_any_##BITS) {                                                                                     \
        if (!are_members(ctx, (u32)op->x)) return to_python(ctx, op);                                              \
        SOURCE(T, a, 0, LANES)                                                                                     \
        u32 r[LANES];                                                                                              \
        for (int l = 0; l < LANES; l++) {                                                                          \
            u32 same = 0;                                                                                          \
            for (int k = 0; k < LANES; k++) same |= (u32)(a[k] == a[l]) << k;                                      \
            r[l] = same & ctx->mask;                                                                               \
        }                                                                                                          \
        COMMIT_ROW(r);                                                                                             \
        return op + 1;                                                                                             \
    }                                                                                                              \
    static int all_match_##BITS(const Context *ctx, const Op *op) {                                                \
        SOURCE(T, a, 0, LANES)                                                                                     \
        T first = a[__builtin_ctz(ctx->mask)];                                                                     \
        u32 differs = 0;                                                                                           \
        for (int l = 0; l < LANES; l++) differs |= (u32)(a[l] != first) << l;                                      \
        return !(differs & ctx->mask);                                                                             \
    }                                                                                                              \
    KERNEL(match_all_##BITS) {                                                                                     \
        if (!are_members(ctx, (u32)op->x)) return to_python(ctx, op);                                              \
        write_word(ctx, op, all_match_##BITS(ctx, op) ? ctx->mask : 0);                                            \
        return op + 1;                                                                                             \
    }                                                                                                              \
    KERNEL(match_same_##BITS) {                                                                                    \
        if (!are_members(ctx, (u32)op->x)) return to_python(ctx, op);                                              \
        write_truth(ctx, op, all_match_##BITS(ctx, op));                                                           \
        return op + 1;                                                                                             \
    }
MATCH(u32, 32)
MATCH(u64, 64)

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
