// The trace of a launch: records of warp instructions with their accesses or waits (clock/trace.py has the format).
//
// A program that is recorded is a watched program whose watcher is a Recorder. An instruction's recipe says where its
// operands are. Python has instructions with the flag `later` recorded when they have been executed: they may have to
// wait, and are then executed again.

#include <stdlib.h>

#include "engine.h"

// The records of a warp.
typedef struct Trace {
    u32 *words;
    s64 count, room;
} Trace;

// A number: the value in a slot, if there is one, plus a constant.
typedef struct {
    s32 slot;            // -1: none
    u32 form;            // BY_LANE, WIDE, NARROW
    s64 constant;
} Value;

enum { BY_LANE = 1, WIDE = 2, NARROW = 4 };  // forms: the slot is a row; it has 64 bits per lane; the sum has 32 bits

enum { PLAIN, WORDS, ACCESS, BARRIER, WAIT };  // kinds of recipes
enum { GENERIC, GLOBAL, SHARED, LOCAL, CONSTANT };  // forms of ACCESS: the state space in the text
enum { INIT, INVAL, ARRIVE, COMPLETE };                  // forms of BARRIER
enum { PARITY, STATE };                        // forms of WAIT
enum { IS_GLOBAL, IS_SHARED, IS_REMOTE, IS_LOCAL, IS_CONSTANT };  // spaces in records

// clock/recipes.py packs it.
typedef struct {
    s32 kind, form;
    s32 nbytes;          // bytes per lane of an ACCESS
    u32 lanes;           // lanes whose addresses count in an ACCESS
    s32 count;           // number of WORDS; 2 for an ACCESS that signals an mbarrier
    s32 later;
    Value address;
    Value values[4];     // WORDS: the words; ACCESS: mbarrier, bytes; BARRIER: count, bytes; WAIT: parity or state
} Recipe;

typedef struct {
    const Recipe *recipes;  // by instruction
    u64 parameters, parameters_end;  // addresses
} Recorder;

enum { COUNT_SHIFT = 24, IN_PART = 1 << 23, LINE = 128, SECTOR = 32, BANKS = 32, OFFSET = (1 << RANK_SHIFT) - 1 };

static u32 *reserve(Trace *trace, s64 count) {
    if (trace->count + count > trace->room) {
        trace->room = 2 * trace->room + count + 64;
        u32 *words = realloc(trace->words, (size_t)trace->room * 4);
        if (!words) abort();
        trace->words = words;
    }
    u32 *words = trace->words + trace->count;
    trace->count += count;
    return words;
}

static void put(Trace *trace, u32 word) { *reserve(trace, 1) = word; }

static u64 value_of(const Context *ctx, const Value *value, int lane) {
    u64 sum = (u64)value->constant;
    if (value->slot >= 0) {
        const u8 *slot = ctx->file + value->slot;
        if (!(value->form & BY_LANE)) lane = 0;
        sum += value->form & WIDE ? ((const u64 *)slot)[lane] : ((const u32 *)slot)[lane];
    }
    return value->form & NARROW ? (u32)sum : sum;
}

static u32 place_of(u64 address) { return (u32)address; }

static int are_equal(const u64 *at, u32 mask) {
    u64 first = at[__builtin_ctz(mask)];
    for (int l = 0; l < LANES; l++)
        if (mask >> l & 1 && at[l] != first) return 0;
    return 1;
}

// The number of wavefronts of an access to shared memory: the most words of a bank, summed over groups of lanes that
// have 128 bytes. One wavefront serves all lanes if they have the same address.
static u32 wavefronts(const u64 *at, u32 mask, int nbytes) {
    if (are_equal(at, mask)) return 1;
    int step = nbytes <= 4 ? LANES : nbytes >= LINE ? 1 : LINE / nbytes, words = nbytes <= 4 ? 1 : nbytes / 4;
    u32 total = 0;
    for (int first = 0; first < LANES; first += step) {
        u32 found[BANKS][LANES], counts[BANKS] = {0}, most = 0;
        for (int l = first; l < first + step; l++) {
            if (!(mask >> l & 1)) continue;
            for (int w = 0; w < words; w++) {
                u32 word = (u32)(at[l] >> 2) + (u32)w, bank = word % BANKS, i = 0;
                while (i < counts[bank] && found[bank][i] != word) i++;
                if (i < counts[bank]) continue;
                found[bank][counts[bank]++] = word;
                if (counts[bank] > most) most = counts[bank];
            }
        }
        total += most;
    }
    return total;
}

// Appends the lines that an access to global memory touches, with masks of their sectors.
static void put_lines(Trace *trace, const u64 *at, u32 mask, int nbytes) {
    u64 lines[LANES];
    u32 sectors[LANES];
    int count = 0;
    for (int l = 0; l < LANES; l++) {
        if (!(mask >> l & 1)) continue;
        for (u64 sector = at[l] / SECTOR; sector <= (at[l] + (u64)nbytes - 1) / SECTOR; sector++) {
            u64 line = sector / (LINE / SECTOR);
            int i = count - 1;
            while (i >= 0 && lines[i] != line) i--;
            if (i < 0) {
                if (count == LANES) continue;
                lines[i = count++] = line;
                sectors[i] = 0;
            }
            sectors[i] |= 1u << sector % (LINE / SECTOR);
        }
    }
    for (int i = 0; i < count; i++) {
        put(trace, (u32)lines[i]);
        put(trace, (u32)(lines[i] >> 32) | sectors[i] << 28);
    }
}

static int space_of(const Recorder *recorder, const Context *ctx, int form, u64 address) {
    if (form == LOCAL) return IS_LOCAL;
    if (form == CONSTANT) return IS_CONSTANT;
    if (form == GENERIC && address >> TAG_SHIFT == LOCAL_TAG) return IS_LOCAL;
    if (form == SHARED || (form == GENERIC && address >> TAG_SHIFT == SHARED_TAG))
        return (u32)address >> RANK_SHIFT == ctx->rank ? IS_SHARED : IS_REMOTE;
    return recorder->parameters <= address && address < recorder->parameters_end ? IS_CONSTANT : IS_GLOBAL;
}

static void put_access(const Recorder *recorder, const Context *ctx, const Recipe *recipe, Trace *trace, u32 mask) {
    u64 at[LANES];
    u32 counted = mask & recipe->lanes;
    if (!counted) counted = mask;
    int first = __builtin_ctz(counted), lanes = __builtin_popcount(counted);
    for (int l = 0; l < LANES; l++)
        if (counted >> l & 1) at[l] = value_of(ctx, &recipe->address, l);
    int space = space_of(recorder, ctx, recipe->form, at[first]);
    put(trace, (u32)space | (u32)recipe->nbytes << 8 | (u32)lanes << 16);
    if (!(recipe->address.form & BY_LANE)) counted = 1u << first;
    if (space == IS_GLOBAL) put_lines(trace, at, counted, recipe->nbytes);
    if (space == IS_SHARED || space == IS_REMOTE) put(trace, wavefronts(at, counted, recipe->nbytes));
    if (space == IS_REMOTE) put(trace, (u32)at[first] >> RANK_SHIFT);
    if (recipe->count) {
        put(trace, place_of(value_of(ctx, &recipe->values[0], first)));
        put(trace, (u32)value_of(ctx, &recipe->values[1], first) * (u32)lanes);
    }
}

// The sum of a value over lanes.
static u32 total(const Context *ctx, const Value *value, u32 lanes) {
    u32 sum = 0;
    for (; lanes; lanes &= lanes - 1) sum += (u32)value_of(ctx, value, __builtin_ctz(lanes));
    return sum;
}

// Appends an operation on mbarriers: a group of words for each mbarrier that lanes name.
static void put_barrier(const Context *ctx, const Recipe *recipe, Trace *trace, u32 mask) {
    while (mask) {
        int first = __builtin_ctz(mask);
        u64 address = value_of(ctx, &recipe->address, first);
        u32 alike = mask;
        if (recipe->address.form & BY_LANE)
            for (int l = first; l < LANES; l++)
                if (mask >> l & 1 && value_of(ctx, &recipe->address, l) != address) alike &= ~(1u << l);
        u32 lanes = recipe->form == INIT ? 1u << first : alike;
        put(trace, place_of(address));
        if (recipe->form != INVAL) put(trace, total(ctx, &recipe->values[0], lanes));
        u32 bytes = total(ctx, &recipe->values[1], lanes);
        if (recipe->form >= ARRIVE) put(trace, recipe->form == COMPLETE ? -bytes : bytes);
        mask &= ~alike;
    }
}

// Appends a wait for an mbarrier. Returns 1 if the wait is over.
static int put_wait(const Context *ctx, const Recipe *recipe, Trace *trace, u32 mask) {
    int first = __builtin_ctz(mask);
    u64 address = value_of(ctx, &recipe->address, first), offset = address & OFFSET;
    const Barrier *barrier = offset + 8 <= ctx->shared_end ? ctx->barriers[offset >> 3] : 0;
    u32 value = (u32)value_of(ctx, &recipe->values[0], first), phase = barrier ? (u32)barrier->phase : 0;
    int over = recipe->form == STATE ? phase != value : (phase & 1) != value;
    put(trace, place_of(address));
    put(trace, recipe->form == STATE ? value : phase - (u32)over);
    put(trace, (u32)over);
    return over;
}

static void record_as(const Recorder *recorder, Context *ctx, const Recipe *recipe, s32 pc, u32 mask) {
    Trace *trace = ctx->trace;
    s64 start = trace->count;
    int kept = 1;
    put(trace, 0);
    switch (recipe->kind) {
    case WORDS:
        for (int i = 0; i < recipe->count; i++) put(trace, (u32)value_of(ctx, &recipe->values[i], __builtin_ctz(mask)));
        break;
    case ACCESS: put_access(recorder, ctx, recipe, trace, mask); break;
    case BARRIER: put_barrier(ctx, recipe, trace, mask); break;
    case WAIT: kept = put_wait(ctx, recipe, trace, mask) || !recipe->later; break;
    }
    if (!kept) {
        trace->count = start;
        return;
    }
    u32 count = (u32)(trace->count - start - 1);
    trace->words[start] = (u32)pc | count << COUNT_SHIFT | (mask != FULL ? IN_PART : 0);
}

// Records an instruction about to be executed: Context.watch of recorded programs.
void record_instruction(void *watcher, Context *ctx, const Op *op) {
    const Recorder *recorder = watcher;
    const Recipe *recipe = &recorder->recipes[op->pc];
    if (!ctx->trace) return;
    if (!ctx->mask) put(ctx->trace, (u32)op->pc | IN_PART);
    else if (recipe->kind == WAIT || !recipe->later) record_as(recorder, ctx, recipe, op->pc, ctx->mask);
}

// Records an instruction with the flag `later`, which has been executed.
void record_executed(const Recorder *recorder, Context *ctx, s32 pc, u32 mask) {
    if (ctx->trace && recorder->recipes[pc].kind != WAIT) record_as(recorder, ctx, &recorder->recipes[pc], pc, mask);
}

// Appends words that Python has made.
void append_words(Trace *trace, const u32 *words, s64 count) { memcpy(reserve(trace, count), words, (size_t)count * 4); }

void free_trace(Trace *trace) {
    free(trace->words);
    memset(trace, 0, sizeof *trace);
}
