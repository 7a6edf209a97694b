// Loads of words and the arithmetic on them, of f32 and of integers of 32 bits, instructions in a row that one kernel executes.
//
// All the places are looked at first. If each is plain, and a group's lanes have one address, or addresses in a row,
// the sums stay in the CPU's registers from one instruction to the next, and what nothing else reads is not written.
// Otherwise nothing has been done, and the instructions' own Ops, which follow, do it all (compiler/chains.py).

#include "access.h"
#include "copies.h"
#include "fused.h"
#include "numbers.h"

enum { MOST_PLACES = 32, PARTS = 4 * LANES / VECTOR };  // of a chain; of a row
enum { FROM_ROW = -1, FROM_ONE = -2, FROM_LAST = -3 };  // sources: slots; the result before. Others are places
enum { COPIED, SUMMED, SUBTRACTED, MULTIPLIED, MULTIPLIED_AND_SUMMED };
enum { INTEGER = 8 };  // added to an operation on integers
enum { WIDE_ALIKE = RUNS + 1, WIDE_RUNS };  // patterns of groups of 16 lanes

// The loads from one base.
typedef struct {
    s32 op;              // distance to the Op of one of them
    s32 lowest;          // least displacement, from that one's
    s64 reach;           // from the least displacement to the greatest one
} Place;

// An instruction: `of` first, then with x, and y.
typedef struct {
    s32 operation, d;    // d: slot of the result, -1: only the next one reads it
    s32 of, of_at;       // sources; slots, or distances from the least displacement
    s32 x, x_at;
    s32 y, y_at;
} Link;

// The Places follow, then the Links.
typedef struct {
    s32 places, links;
    s64 skipped;         // distance to the Op behind the chain
} Chain;

typedef struct {
    const u8 *file;
    u64 at[MOST_PLACES][GROUPS];  // the host's address of each group's first lane
    u8 patterns[MOST_PLACES];
} Sources;

#define EACH_PART for (int p = 0; p < PARTS; p++)

typedef u32 v_u32 __attribute__((vector_size(VECTOR)));
typedef struct { v_f32 part[PARTS]; } Numbers;

// Returns 0 if place number i is not plain, or its lanes have no pattern.
static inline int look_at(Context *ctx, const Op *op, const Place *place, Sources *sources, int i) {
    const Access *access = (const Access *)op[place->op].x;
    const Window *window = ctx->windows[ctx->rank];
    u64 offset = (u64)(access->displacement + place->lowest), low, reach = (u64)place->reach, *at = sources->at[i];
    int pattern = WIDE_ALIKE, is_shared = access->space == SHARED;
    if (is_shared ? ctx->shared_log || window->watched || window->guarded[0] : ctx->log != 0) return 0;
    if (access->by_lane) {
        const AddressRow *row = &ctx->address_rows[access->place];
        int is_found = is_row_of(row, access, FULL, 4);
        if (is_found && !access->is_known && row->pattern == APART) return 0;  // the last time; the load's own Op looks again
        if (!is_found || !access->is_known) row = address_row(ctx, access, 4);
        if (access->added >= 0) offset += *(const u64 *)(ctx->file + access->added);
        if (row->pattern == APART || (row->bits | offset) & 3) return 0;
        low = row->low + offset, reach += row->reach;
        for (int g = 0; g < GROUPS; g++) at[g] = row->first[g] + offset;
        u64 step = row->pattern == RUNS ? 4 * GROUP : 0;
        pattern = row->pattern + (at[1] - at[0] == step && at[3] - at[2] == step ? RUNS : 0);
    } else {
        low = access->address < 0 ? offset : offset + *(const u64 *)(ctx->file + access->address);
        reach += 4;
        if (low & 3) return 0;
        for (int g = 0; g < GROUPS; g++) at[g] = low;
    }
    sources->patterns[i] = (u8)pattern;
    if (is_shared) {
        low = (u32)(low - ((u64)ctx->rank << RANK_SHIFT));
        if (low < SHARED_BASE || low + reach > window->end) return 0;
        for (int g = 0; g < GROUPS; g++) at[g] = (u64)window->data + (u32)(at[g] - ((u64)ctx->rank << RANK_SHIFT));
        return 1;
    }
    s32 pc = op[place->op].pc;
    s64 *hint = &ctx->hints[(u32)pc % HINTS];
    expect_next(ctx, pc, low, at, pattern >= WIDE_ALIKE ? 2 : 1);
    if (*hint < ctx->allocation_count) {
        const Allocation *allocation = &ctx->allocations[*hint];
        s64 first = (s64)(low - allocation->start), last = allocation->last;
        if (first >= allocation->first && first <= last && reach <= (u64)(last - first)) return 1;
        ctx->recent = *hint;
    }
    if (!reached(ctx, low, low + reach)) return 0;
    *hint = ctx->recent;
    return 1;
}

static inline v_u32 every_word(u32 bits) { return (v_u32){0} + bits; }
static inline v_f32 every(u32 bits) { return (v_f32)every_word(bits); }

// Part p of a row of words from the sources' place i
static inline __attribute__((always_inline)) v_f32 loaded(const Sources *sources, s32 i, s32 distance, int p) {
    const u64 *at = sources->at[i];
    int pattern = sources->patterns[i], g = p * GROUPS / PARTS;
#ifdef __AVX512F__
    if (pattern == RUNS || pattern == ALIKE) {
        const u8 *low = (const u8 *)at[g] + distance, *high = (const u8 *)at[g + 1] + distance;
        __m256i a, b;
        if (pattern == RUNS) memcpy(&a, low, sizeof a), memcpy(&b, high, sizeof b);
        else a = (__m256i)_mm256_broadcast_ss((const f32 *)low), b = (__m256i)_mm256_broadcast_ss((const f32 *)high);
        return (v_f32)_mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
    }
#endif
    const u8 *from = (const u8 *)at[g] + distance + (VECTOR < 32 ? VECTOR * (p % 2) : 0);
    if (pattern == RUNS || pattern == WIDE_RUNS) return *(const v_f32_in_memory *)from;
    u32 bits;
    memcpy(&bits, (const u8 *)at[g] + distance, sizeof bits);
    return every(bits);
}

static inline __attribute__((always_inline)) Numbers numbers(const Sources *sources, s32 from, s32 at) {
    Numbers r;
    if (from == FROM_ROW) {
        EACH_PART r.part[p] = *(const v_f32_in_memory *)(sources->file + at + VECTOR * p);
    } else if (from == FROM_ONE) {
        u32 bits;
        memcpy(&bits, sources->file + at, sizeof bits);
        EACH_PART r.part[p] = every(bits);
    } else {
        EACH_PART r.part[p] = loaded(sources, from, at, p);
    }
    return r;
}

static inline v_f32 fused(v_f32 x, v_f32 y, v_f32 z) {
#if defined(__FMA__) || defined(__AVX512F__) || defined(__aarch64__)
    return FUSED_f32(x, y, z);
#else
    for (int l = 0; l < VECTOR / 4; l++) z[l] = __builtin_fmaf(x[l], y[l], z[l]);
    return z;
#endif
}

KERNEL(chain) {
    const Chain *chain = (const Chain *)op->x;
    const Place *places = (const Place *)(chain + 1);
    const Link *link = (const Link *)(places + chain->places), *end = link + chain->links;
    Sources sources;
    if (ctx->mask != FULL || ctx->uninitialised) return op + 1;
    for (int i = 0; i < chain->places; i++)
        if (!look_at(ctx, op, &places[i], &sources, i)) return op + 1;
    sources.file = ctx->file;
    Numbers v;
    EACH_PART v.part[p] = every(0);  // else gcc keeps it in memory, for the calls above
    for (; link < end; link++) {
        if (link->of != FROM_LAST) v = numbers(&sources, link->of, link->of_at);
        if (link->operation != COPIED) {
            Numbers x = numbers(&sources, link->x, link->x_at), y;
            switch (link->operation) {
            case SUMMED: EACH_PART v.part[p] += x.part[p]; break;
            case SUBTRACTED: EACH_PART v.part[p] -= x.part[p]; break;
            case MULTIPLIED: EACH_PART v.part[p] *= x.part[p]; break;
            case MULTIPLIED_AND_SUMMED:
                y = numbers(&sources, link->y, link->y_at);
                EACH_PART v.part[p] = fused(x.part[p], y.part[p], v.part[p]);
                break;
            case INTEGER + SUMMED: EACH_PART v.part[p] = (v_f32)((v_u32)v.part[p] + (v_u32)x.part[p]); break;
            case INTEGER + SUBTRACTED: EACH_PART v.part[p] = (v_f32)((v_u32)v.part[p] - (v_u32)x.part[p]); break;
            case INTEGER + MULTIPLIED: EACH_PART v.part[p] = (v_f32)((v_u32)v.part[p] * (v_u32)x.part[p]); break;
            default:
                y = numbers(&sources, link->y, link->y_at);
                EACH_PART v.part[p] = (v_f32)((v_u32)x.part[p] * (v_u32)y.part[p] + (v_u32)v.part[p]);
            }
        }
        if (link->d < 0) continue;
        // A NaN is one whatever it was made of: only what is written has to be the canonical one.
        EACH_PART {
            v_u32 bits = (v_u32)v.part[p], is_nan = (v_u32)(v.part[p] != v.part[p]);
            if (link->operation != COPIED && link->operation < INTEGER) bits = (bits & ~is_nan) | (every_word(0x7fffffff) & is_nan);
            memcpy(ctx->file + link->d + VECTOR * p, &bits, VECTOR);
        }
    }
    return op + chain->skipped;
}
