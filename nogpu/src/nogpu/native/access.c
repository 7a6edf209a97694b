// Loads, stores and atomics of global and shared memory, and loads and stores of local memory, with their checks.
//
// An access that is plain and proven legal is done here: all lanes in one live allocation or in the shared memory of one
// CTA, their own or one that the warp knows to have started, aligned, clear of live mbarriers, watched by nobody. For any
// other access the instruction's Python row is called, which raises the error or does the rare legal thing.

#include "access.h"
#include "lane_copies.h"
#include "numbers.h"

// Finds the active lanes' lowest and highest address, and the bits that any of their addresses has.
static void span(const u64 *at, u32 mask, u64 *low, u64 *high, u64 *bits) {
    u64 l = UINT64_MAX, h = 0, b = 0;
    for (int i = 0; i < LANES; i++) {
        u64 on = -(u64)(mask >> i & 1), below = at[i] | ~on, above = at[i] & on;
        l = below < l ? below : l;
        h = above > h ? above : h;
        b |= above;
    }
    *low = l, *high = h, *bits = b;
}

// Returns 1 if a live mbarrier has any of the bytes.
static int touches_barrier(const Window *window, u64 offset, u64 width) {
    for (u64 i = offset >> 3; i <= (offset + width - 1) >> 3; i++)
        if (window->guarded[i]) return 1;
    return 0;
}

#define CASE(NBYTES, WIDTH, SIGNED) case NBYTES << 8 | WIDTH | SIGNED
#define WIDEN(T, W) for (int l = 0; l < LANES; l++) ((W *)to)[l] = (W)((const T *)from)[l]

// Extends a row of words to the width of a register.
static void widen_row(u8 *restrict to, int width, const u8 *restrict from, int nbytes, int is_signed) {
    switch (nbytes << 8 | width | is_signed) {
    CASE(1, 16, 0): WIDEN(u8, u16); break;
    CASE(1, 16, 1): WIDEN(s8, u16); break;
    CASE(1, 32, 0): WIDEN(u8, u32); break;
    CASE(1, 32, 1): WIDEN(s8, u32); break;
    CASE(1, 64, 0): WIDEN(u8, u64); break;
    CASE(1, 64, 1): WIDEN(s8, u64); break;
    CASE(2, 32, 0): WIDEN(u16, u32); break;
    CASE(2, 32, 1): WIDEN(s16, u32); break;
    CASE(2, 64, 0): WIDEN(u16, u64); break;
    CASE(2, 64, 1): WIDEN(s16, u64); break;
    CASE(4, 64, 0): WIDEN(u32, u64); break;
    CASE(4, 64, 1): WIDEN(s32, u64); break;
    }
}

#define KEEP(T) for (int l = 0; l < LANES; l++) ((T *)to)[l] = mask & lane_bit(l) ? ((const T *)row)[l] : ((T *)to)[l]

// Writes a row of registers of a width in the active lanes.
static void keep_row(u8 *restrict to, int width, const u8 *restrict row, u32 mask) {
    switch (width) {
    case 8: KEEP(u8); break;
    case 16: KEEP(u16); break;
    case 32: KEEP(u32); break;
    default: KEEP(u64); break;
    }
}

// Loads a row of registers. at: as `load_words` takes it, if the mask is full; else the addresses of all lanes.
static void load_row(u8 *to, int width, int nbytes, int is_signed, int pattern, const u64 *at, u32 mask) {
    Vector words[8] __attribute__((aligned(64))), wide[8] __attribute__((aligned(64)));
    int is_same = width == 8 * nbytes;
    if (mask == FULL && is_same) {
        load_words(to, nbytes, pattern, at);
        return;
    }
    load_words((u8 *)words, nbytes, pattern, at);
    if (!is_same) widen_row(mask == FULL ? to : (u8 *)wide, width, (const u8 *)words, nbytes, is_signed);
    if (mask != FULL) keep_row(to, width, (const u8 *)(is_same ? words : wide), mask);
}

static u64 word_at(u64 address, int nbytes, int is_signed, int width) {
    u64 value = 0;
    int unused = 64 - 8 * nbytes;
    memcpy(&value, (const u8 *)address, (size_t)nbytes);
    if (is_signed) value = (u64)((s64)(value << unused) >> unused);
    return width < 64 ? value & ((1ull << width) - 1) : value;
}

// Returns 1 if the items of an access are rows of words as they are in memory.
static int has_whole_rows(const Access *access) {
    int others = 0;
    for (int i = 0; i < access->count; i++)
        others |= access->items[i].kind != ROW || access->items[i].width != 8 * access->nbytes;
    return !others;
}

// Returns 1 if the one item of an access is a row as it is in memory.
static int is_plain_row(const Access *access) { return access->count == 1 && has_whole_rows(access); }

// Returns 1 if a full warp accesses four or eight words of 4 bytes a lane, as they are in its rows.
static int has_vectors(const Access *access, u32 mask) {
    return mask == FULL && access->nbytes == 4 && access->count % 4 == 0 && has_whole_rows(access);
}

// The place of item i, a row, of lane l.
static u8 *row_of(const Context *ctx, const Access *access, int i, int l) {
    return ctx->file + access->items[i].place + 4 * l;
}

static void load_vectors(const Context *ctx, const Access *access, const u64 *at) {
    for (int i = 0; i < access->count; i += 4)
        for (int l = 0; l < LANES; l += 8) {
            Eight words[4];
            for (int k = 0; k < 4; k++) {
                memcpy(&words[k], (const u8 *)at[l + k] + 4 * i, 16);
                memcpy((u8 *)&words[k] + 16, (const u8 *)at[l + k + 4] + 4 * i, 16);
            }
            transpose_halves(words);
            for (int k = 0; k < 4; k++) memcpy(row_of(ctx, access, i + k, l), &words[k], 32);
        }
}

static void store_vectors(const Context *ctx, const Access *access, const u64 *at) {
    for (int l = 0; l < LANES; l += 8)
        for (int i = 0; i < access->count; i += 4) {
            Eight words[4];
            for (int k = 0; k < 4; k++) memcpy(&words[k], row_of(ctx, access, i + k, l), 32);
            transpose_halves(words);
            for (int k = 0; k < 4; k++) memcpy((u8 *)at[l + k] + 4 * i, &words[k], 16);
            for (int k = 0; k < 4; k++) memcpy((u8 *)at[l + k + 4] + 4 * i, (u8 *)&words[k] + 16, 16);
        }
}

static void load_items(Context *ctx, const Access *access, u64 *at, u32 mask) {
    u64 places[LANES];
    if (mask != FULL && access->by_lane) at = memcpy(places, at, sizeof places), fill_inactive(at, mask);
    if (has_vectors(access, mask)) {
        load_vectors(ctx, access, at);
        return;
    }
    for (int i = 0; i < access->count; i++) {
        int width = access->items[i].width;
        u8 *to = ctx->file + access->items[i].place;
        if (access->items[i].kind == ONE) {
            u64 value = word_at(at[0], access->nbytes, access->is_signed, width);
            memcpy(to, &value, 8);
        } else if (access->items[i].kind == ROW) {
            load_row(to, width, access->nbytes, access->is_signed, APART, at, mask);
        }
        for (int l = 0; l < LANES; l++) at[l] += (u64)access->nbytes;
    }
}

// Loads rows from places of a pattern, the host's. at: as `load_words` takes it.
static void load_pattern(Context *ctx, const Access *access, int pattern, u64 *at, u32 mask) {
    for (int i = 0; i < access->count; i++) {
        const Item *item = &access->items[i];
        if (item->kind == ROW)
            load_row(ctx->file + item->place, item->width, access->nbytes, access->is_signed, pattern, at, mask);
        for (int g = 0; g < GROUPS && i + 1 < access->count; g++) at[g] += (u64)access->nbytes;
    }
}

#define STORE_ROW(T)                                                       \
    for (int l = 0; l < LANES; l++)                                        \
        if (mask == FULL || mask >> l & 1) memcpy((u8 *)at[l], from + l * step, sizeof(T))

static void store_items(const Context *ctx, const Access *access, u64 *at, u32 mask) {
    int nbytes = access->nbytes;
    if (has_vectors(access, mask)) {
        store_vectors(ctx, access, at);
        return;
    }
    if (access->uniform) mask = 1;
    for (int i = 0; i < access->count; i++) {
        const u8 *from = (const u8 *)&access->items[i].place;
        int step = access->items[i].kind == ROW ? access->items[i].width / 8 : 0;
        if (access->items[i].kind != CONSTANT) from = ctx->file + access->items[i].place;
        switch (nbytes) {
        case 1: STORE_ROW(u8); break;
        case 2: STORE_ROW(u16); break;
        case 4: STORE_ROW(u32); break;
        default: STORE_ROW(u64); break;
        }
        for (int l = 0; l < LANES; l++) at[l] += (u64)nbytes;
    }
}

// Computes the lanes' addresses.
static void addresses(const Context *ctx, const Access *access, u64 *at) {
    u64 displacement = (u64)access->displacement, base = 0;
    if (access->by_lane && access->address_bits == 32) {
        const u32 *row = (const u32 *)(ctx->file + access->address);
        for (int l = 0; l < LANES; l++) at[l] = (u32)(row[l] + (u32)displacement);
        return;
    }
    if (access->by_lane) {
        const u64 *row = (const u64 *)(ctx->file + access->address);
        for (int l = 0; l < LANES; l++) at[l] = row[l] + displacement;
        return;
    }
    if (access->address >= 0) memcpy(&base, ctx->file + access->address, 8);
    base += displacement;
    if (access->address_bits == 32) base = (u32)base;
    for (int l = 0; l < LANES; l++) at[l] = base;
}

// Returns 1 if an access is one of global memory. Generic addresses of shared memory become shared ones.
static int in_global(const Access *access, u64 *at, u64 *low, u64 *high) {
    if (access->space != GENERIC) return access->space == GLOBAL;
    if (*low >> TAG_SHIFT == SHARED_TAG && *high >> TAG_SHIFT == SHARED_TAG) {
        *low = (u32)*low, *high = (u32)*high;
        for (int l = 0; l < LANES; l++) at[l] = (u32)at[l];
        return 0;
    }
    return !(*high >> TAG_SHIFT);
}

// Returns 1 if two active lanes have one address: the Python row then finds out whether they store one value.
static int meets(const u64 *at, u32 mask) {
    u64 first = 0;
    int increases = 1;
    for (int l = 0; l < LANES; l++)
        if (mask >> l & 1) increases &= at[l] > first, first = at[l];
    if (increases) return 0;
    for (int l = 0; l < LANES; l++)
        for (int k = 0; k < l; k++)
            if (mask >> l & mask >> k & 1 && at[l] == at[k]) return 1;
    return 0;
}

// Returns 1 if a log has no room for a note, and compiled code can make none.
static int is_full(Context *ctx, const AccessLog *log) {
    if (log->used < log->room) return 0;
    return log != ctx->log || !ctx->cta || !ctx->cta->notes || !keeps_notes(ctx);
}

// Returns 1 if no note can be taken of an access.
static int refuses(Context *ctx, const AccessLog *log, const Access *access, const u64 *at, u32 mask) {
    return is_full(ctx, log) || (access->is_store && (access->by_lane ? meets(at, mask) : !access->uniform));
}

// Returns 1 if all lanes of the warp access consecutive words of `width` bytes.
static u64 is_run(const Context *ctx, const Access *access, const u64 *at, u64 width) {
    u64 differs = !access->by_lane | (ctx->mask != FULL);
    for (int l = 0; l < LANES; l++) differs |= at[l] ^ (at[0] + (u64)l * width);
    return !differs;
}

// Notes an access. width: bytes per lane; run: as `is_run` returns it.
static void note(
    const Context *ctx, AccessLog *log, const Op *op, const Access *access, const u64 *at, u64 width, u64 run
) {
    u64 *record = log->words + NOTE * log->used++;
    record[0] = (u64)(u32)op->pc << 32 | ctx->mask;
    record[1] = (u64)ctx->warp << 32 | width << 3;
    if (access->is_store) record[1] |= NOTED_STORE;
    if (access->by_lane) record[1] |= NOTED_LANES;
    if (run) record[1] |= NOTED_RUN;
    memcpy(record + 2, at, sizeof *at * (access->by_lane && !run ? LANES : 1));
}

// Returns nonzero if an access to shared memory that is noted reads bytes that nobody has written, or may store
// uninitialised ones: its Python row then decides. The bytes of any other store count as written from now on.
static int is_unwritten(const Context *ctx, const Op *op, const Access *access, const u64 *at, u32 mask, u64 width) {
    u64 origin = (u64)ctx->rank << RANK_SHIFT;
    u8 found = 0;
    if (access->is_store && ctx->uninitialised && ctx->uninitialised[op->pc]) return 1;
    for (int l = 0; l < (access->by_lane ? LANES : 1); l++) {
        if (access->by_lane && !(mask >> l & 1)) continue;
        u8 *bytes = ctx->unwritten + (at[l] - origin);
        if (access->is_store) memset(bytes, 0, width);
        else
            for (u64 i = 0; i < width; i++) found |= bytes[i];
    }
    return found;
}

// The memory of the CTA with a rank, NULL if Python has to do the access. log: takes the access's note, or NULL.
static const Window *window_of(const Context *ctx, const Access *access, u64 rank, const AccessLog *log) {
    if (rank != ctx->rank && (access->space == SHARED || rank >= ctx->cluster_size)) return 0;
    const Window *window = ctx->windows[rank];
    if ((window->watched && !log) || (rank != ctx->rank && (window->closed || !(ctx->known >> rank & 1)))) return 0;
    return window;
}

// Marks a store of lanes, at addresses above `origin`. Returns 0 if Python has to: others have the place, or it is a
// kept CTA's first.
static int marks_store(
    const Context *ctx, s32 pc, u32 mask, StoreMarks *marked, const u64 *at, u64 origin, s64 time
) {
    if (ctx->cta && !marked->live) return 0;
    s64 number = number_of_stores(marked, ctx, pc, time);
    if (!number) return 0;
    for (int l = 0; l < LANES; l++)
        if (mask >> l & 1) marked->marks[(at[l] - origin) >> GRAIN_SHIFT] = (s32)number;
    return 1;
}

// Returns 1 if no live mbarrier has any of the bytes from offset `first` to `end`, or if that takes long to find out.
static int is_clear(const Window *window, u64 first, u64 end) {
    u8 found = 0;
    if (end - first > 32 * LANES) return 0;
    for (u64 i = first >> 3; i <= (end - 1) >> 3; i++) found |= window->guarded[i];
    return !found;
}

// Returns 1 if no live mbarrier has any of the bytes that lanes access at the host's addresses, from offset `low` to
// `high + width`.
static int lanes_are_clear(const Window *window, const u64 *at, u32 mask, u64 low, u64 high, u64 width) {
    u64 origin = (u64)window->data;
    u8 found = 0;
    if (!window->guarded[0] || is_clear(window, low, high + width)) return 1;
    for (int l = 0; l < LANES; l++) found |= window->guarded[(mask >> l & 1 ? at[l] - origin : low) >> 3];
    if (width > 8)
        for (int l = 0; l < LANES; l++)
            if (mask >> l & 1) found |= (u8)touches_barrier(window, at[l] - origin, width);
    return !found;
}

// Returns 1 if the access, from address `low` to `high + width`, is plain. Turns shared addresses into the host's.
static int shared_is_plain(Context *ctx, const Op *op, u64 *at, u64 low, u64 high, u64 width) {
    const Access *access = (const Access *)op->x;
    u64 rank = low >> RANK_SHIFT, origin = rank << RANK_SHIFT, host[LANES];
    u32 mask = ctx->mask;
    AccessLog *log = access->space == SHARED ? ctx->shared_log : 0;
    const Window *window = window_of(ctx, access, rank, log);
    if (!window || low < origin + SHARED_BASE || high > origin + window->end || width > origin + window->end - high)
        return 0;
    if (log && refuses(ctx, log, access, at, mask)) return 0;
    for (int l = 0; l < LANES; l++) host[l] = at[l] + (u64)window->data - origin;
    if (access->by_lane ? !lanes_are_clear(window, host, mask, low - origin, high - origin, width)
                        : touches_barrier(window, low - origin, width))
        return 0;
    if (log) {
        if (ctx->unwritten && is_unwritten(ctx, op, access, at, mask, width)) return 0;
        note(ctx, log, op, access, at, width, 0);
    }
    if (access->is_store && window->marked &&
        !marks_store(ctx, op->pc, access->by_lane ? mask : 1, window->marked, at, origin, ctx->progress + 1))
        return 0;
    memcpy(at, host, sizeof host);
    return 1;
}

#define MARK_ROW(T)                                                        \
    for (int l = 0; l < LANES; l++)                                        \
        if (mask >> l & 1) memset(marks + at[l], 1, sizeof(T))

// Marks the bytes that lanes store. marks: the mark of address 0.
static void mark(u8 *marks, const u64 *at, u32 mask, u64 width) {
    switch (width) {
    case 1: MARK_ROW(u8); break;
    case 2: MARK_ROW(u16); break;
    case 4: MARK_ROW(u32); break;
    case 8: MARK_ROW(u64); break;
    default: for (u64 i = 0; i < width; i += 8, marks += 8) MARK_ROW(u64); break;
    }
}

// The allocation that has all bytes from `low` to `end`, which are accessed; NULL if there is none.
Allocation *reached(Context *ctx, u64 low, u64 end) {
    Allocation *allocation = find_allocation(ctx, low);
    if (!allocation || end > allocation->end || end < low) return 0;
    s64 first = (s64)(low - allocation->start), last = (s64)(end - allocation->start);
    if (first < allocation->first) allocation->first = first;
    if (last > allocation->last) allocation->last = last;
    return allocation;
}

// Returns 1 if the access is plain (see `shared_is_plain`). Marks the bytes that a store writes. run: as `is_run`
// returns it.
static int global_is_plain(
    Context *ctx, const Access *access, const u64 *at, u32 mask, u64 low, u64 high, u64 width, u64 run
) {
    Allocation *allocation = reached(ctx, low, high + width);
    if (!allocation) return 0;
    s64 first = (s64)(low - allocation->start), end = (s64)(high + width - allocation->start);
    if (!access->is_store) return 1;
    if (!allocation->writable) return 0;
    if (access->uniform) mask = 1;
    allocation->requested += (s64)width * __builtin_popcount(mask);
    if (!allocation->marks) return 1;
    if (first < allocation->low) allocation->low = first;
    if (end > allocation->high) allocation->high = end;
    if (run) memset(allocation->marks + first, 1, (size_t)(end - first));
    else mark(allocation->marks - allocation->start, at, mask, width);
    return 1;
}

// Returns 1 if a load from the allocation that was found last may read a word that nobody has written: its Python row
// decides.
static int reads_unwritten(const Context *ctx, const Access *access, const u64 *at, u32 mask, u64 width) {
    u64 end = ctx->allocations[ctx->recent].end;
    for (int l = 0; l < (access->by_lane ? LANES : 1); l++) {
        if (access->by_lane && !(mask >> l & 1)) continue;
        for (u64 place = at[l] & ~3ull; place < at[l] + width && place + 4 <= end; place += 4) {
            u32 word;
            memcpy(&word, (const u8 *)place, 4);
            if (word == UNWRITTEN) return 1;
        }
    }
    return 0;
}

// A row of 32 words of the one value that a store has for all lanes.
static void splat(const Context *ctx, const Item *item, u8 *row, int nbytes) {
    const u8 *from = item->kind == CONSTANT ? (const u8 *)&item->place : ctx->file + item->place;
    memcpy(row, from, (size_t)nbytes);
    for (int size = nbytes; size < nbytes * LANES; size *= 2) memcpy(row + size, row, (size_t)size);
}

// Returns 1 if one word of each lane is in memory as it is in a row, or if a store has one value for all lanes.
static int is_copied(const Access *access) {
    return is_plain_row(access) || (access->is_store && access->count == 1 && access->items[0].kind != ROW);
}

// Moves the words of an access that `is_copied` to or from the host's address of the first.
static void move_run(Context *ctx, const Access *access, u64 start) {
    u8 *row = ctx->file + access->items[0].place, words[8 * LANES];
    int bytes = LANES * access->nbytes;
    if (!access->is_store) {
        copy_row(row, (const u8 *)start, bytes);
        return;
    }
    if (access->items[0].kind != ROW) splat(ctx, &access->items[0], row = words, access->nbytes);
    copy_row((u8 *)start, row, bytes);
}

// Moves the words of an access at the lanes' addresses, the host's.
static void move_items(Context *ctx, const Access *access, u64 *at, u32 mask) {
    if (access->is_store) store_items(ctx, access, at, mask);
    else load_items(ctx, access, at, mask);
}

// Returns 1 if addresses of all lanes, of words of `width` bytes, are aligned, and within the part of an allocation that
// has been accessed already.
static int are_within(const Allocation *allocation, const u64 *at, u64 width) {
    s64 first = allocation->is_whole ? 0 : allocation->first;
    s64 last = allocation->is_whole ? (s64)(allocation->end - allocation->start) : allocation->last;
    s64 room = last - first - (s64)width, outside = 0, bits = 0;
    u64 origin = allocation->start + (u64)first;
    for (int l = 0; l < LANES; l++) {
        s64 distance = (s64)(at[l] - origin);
        outside |= distance | (room - distance);
        bits |= (s64)at[l];
    }
    return room >= 0 && outside >= 0 && !(bits & (s64)(width - 1));
}

// Notes the addresses of groups' first lanes. They are stored as a whole: what reads them next, as a whole, waits for parts.
static void note_groups(AddressRow *row, u64 a, u64 b, u64 c, u64 d, u64 width) {
    FourLong first = {a, b, c, d};
    u64 low = a < b ? a : b, high = a < b ? b : a, others = c < d ? c : d;
    memcpy(row->first, &first, sizeof first);
    row->low = low < others ? low : others;
    others = c < d ? d : c;
    high = high > others ? high : others;
    row->bits = a | b | c | d;
    row->reach = high - row->low + (row->pattern == RUNS ? GROUP * width : width);
}

// The pattern of the row of which a load's addresses are sums.
const AddressRow *address_row(Context *ctx, const Access *access, u32 width) {
    AddressRow *row = &ctx->address_rows[access->place];
    u32 mask = ctx->mask;
    if (access->is_known && is_row_of(row, access, mask, width)) return row;
    row->slot = access->row, row->mask = mask, row->width = width;
    if (access->address_bits == 64) {
        const u64 *at = (const u64 *)(ctx->file + access->row);
        u64 filled[LANES];
        if (mask != FULL) at = memcpy(filled, at, sizeof filled), fill_inactive(filled, mask);
        row->pattern = pattern_of(at, width);
        note_groups(row, at[0], at[GROUP], at[2 * GROUP], at[3 * GROUP], width);
    } else {
        const u32 *at = (const u32 *)(ctx->file + access->row);
        u32 filled[LANES];
        if (mask != FULL) at = memcpy(filled, at, sizeof filled), fill_inactive_shared(filled, mask);
        row->pattern = pattern_of_shared(at, width);
        note_groups(row, at[0], at[GROUP], at[2 * GROUP], at[3 * GROUP], width);
    }
    return row;
}

// The pattern by which a load's items are moved.
static int moved_pattern(const AddressRow *row, const Access *access) {
    return row->pattern == RUNS && access->count > 1 ? APART : row->pattern;
}

// Does a load of global memory by lanes. Returns 0, with nothing done, if it is not plain.
__attribute__((noinline)) static int global_loads(Context *ctx, const Op *op, const Access *access) {
    u64 at[LANES], width = (u64)(access->nbytes * access->count), low, high, bits;
    u32 mask = ctx->mask;
    const AddressRow *row = address_row(ctx, access, (u32)width);
    int pattern = moved_pattern(row, access);
    s64 *hint = &ctx->hints[(u32)op->pc % HINTS];
    if (*hint < ctx->allocation_count) ctx->recent = *hint;
    if (pattern != APART) {
        u64 offset = offset_of(ctx, access);
        low = row->low + offset, high = low + row->reach;
        if ((row->bits | offset) & (width - 1) || high >> TAG_SHIFT || !reached(ctx, low, high)) return 0;
        for (int g = 0; g < GROUPS; g++) at[g] = row->first[g] + offset;
        expect_next(ctx, op->pc, low, at, 1);
        load_pattern(ctx, access, pattern, at, mask);
    } else {
        const u64 *bases = (const u64 *)(ctx->file + access->address);
        for (int l = 0; l < LANES; l++) at[l] = bases[l] + (u64)access->displacement;
        if (mask != FULL) fill_inactive(at, mask);
        if (!are_within(&ctx->allocations[ctx->recent], at, width)) {
            span(at, FULL, &low, &high, &bits);
            if (bits & (width - 1) || high >> TAG_SHIFT || !reached(ctx, low, high + width)) return 0;
        }
        load_items(ctx, access, at, mask);
    }
    *hint = ctx->recent;
    return 1;
}

// Does a store to global memory by all lanes. Returns 0, with nothing done, if it is not plain.
__attribute__((noinline)) static int global_stores(Context *ctx, const Access *access) {
    const u64 *bases = (const u64 *)(ctx->file + access->address);
    u64 at[LANES], width = (u64)(access->nbytes * access->count), differs = 0, displacement = (u64)access->displacement;
    int shift = __builtin_ctzll(width), copied = is_copied(access);
    for (int l = 0; l < LANES; l++) differs |= bases[l] ^ (bases[0] + ((u64)l << shift));
    u64 bits = bases[0] + displacement;
    s64 low = (s64)bits, high = (s64)(bases[LANES - 1] + displacement);  // an address of 2^63 or more is nobody's
    if (differs || !copied)
        for (int l = 0; l < LANES; l++) at[l] = bases[l] + displacement;
    for (int l = 0; l < LANES && differs; l++) {
        s64 address = (s64)at[l];
        low = address < low ? address : low;
        high = address > high ? address : high;
        bits |= at[l];
    }
    if (bits & (width - 1) || low < 0 || high < low || high >> TAG_SHIFT) return 0;
    if (!global_is_plain(ctx, access, at, FULL, (u64)low, (u64)high, width, !differs)) return 0;
    ctx->progress++;
    if (copied && !differs) move_run(ctx, access, (u64)low);
    else store_items(ctx, access, at, FULL);
    return 1;
}

// Does a load from the CTA's own shared memory if its groups form a pattern. Returns 0, with nothing done, if they do not,
// or if it is not plain.
static int shared_pattern(Context *ctx, const Access *access) {
    const Window *window = ctx->windows[ctx->rank];
    u32 width = (u32)(access->nbytes * access->count);
    const AddressRow *row = address_row(ctx, access, width);
    u32 offset = (u32)offset_of(ctx, access) - (ctx->rank << RANK_SHIFT), low = (u32)row->low + offset;
    int pattern = moved_pattern(row, access);
    u64 at[GROUPS], end = low + row->reach;
    if (pattern == APART || ((u32)row->bits | offset) & (width - 1) || low < SHARED_BASE || end > window->end) return 0;
    if (window->guarded[0] && !is_clear(window, low, end)) return 0;
    for (int g = 0; g < GROUPS; g++) at[g] = (u64)window->data + (u32)((u32)row->first[g] + offset);
    load_pattern(ctx, access, pattern, at, ctx->mask);
    return 1;
}

// Does an access of the CTA's own shared memory by 32-bit addresses of lanes. Returns 0, with nothing done, if it is not
// plain.
__attribute__((noinline)) static int shared_rows(Context *ctx, const Op *op, const Access *access) {
    const u32 *bases = (const u32 *)(ctx->file + access->address);
    const Window *window = ctx->windows[ctx->rank];
    u32 mask = ctx->mask, width = (u32)(access->nbytes * access->count), differs = mask != FULL, refused = 0;
    u32 displacement = (u32)access->displacement - (ctx->rank << RANK_SHIFT) - SHARED_BASE;
    u64 at[LANES], start = (u64)window->data + SHARED_BASE;
    int shift = __builtin_ctz(width), is_marked = access->is_store && window->marked;
    if (window->watched || window->end < SHARED_BASE + width) return 0;
    if (!access->is_store && shared_pattern(ctx, access)) return 1;
    u32 last = (u32)window->end - SHARED_BASE - width, low = bases[0] + displacement, high = bases[LANES - 1] + displacement;
    for (int l = 0; l < LANES; l++) differs |= bases[l] ^ (bases[0] + ((u32)l << shift));
    if (!differs && !is_marked && is_copied(access)) {
        if (low & (width - 1) || low > high || high > last) return 0;
        if (window->guarded[0] && !is_clear(window, low + SHARED_BASE, high + SHARED_BASE + width)) return 0;
        ctx->progress += access->is_store;
        move_run(ctx, access, start + low);
        return 1;
    }
    for (int l = 0; l < LANES; l++) {
        u32 place = bases[l] + displacement;
        refused |= ((place & (width - 1)) | (place > last)) & -(mask >> l & 1);
        at[l] = start + place;
    }
    if (refused) return 0;
    if (window->guarded[0]) {
        low = last, high = 0;
        for (int l = 0; l < LANES; l++) {
            u32 place = bases[l] + displacement, on = -(mask >> l & 1), below = place | ~on, above = place & on;
            low = below < low ? below : low;
            high = above > high ? above : high;
        }
        if (!lanes_are_clear(window, at, mask, low + SHARED_BASE, high + SHARED_BASE, width)) return 0;
    }
    if (is_marked && !marks_store(ctx, op->pc, mask, window->marked, at, (u64)window->data, ctx->progress + 1)) return 0;
    ctx->progress += access->is_store;
    move_items(ctx, access, at, mask);
    return 1;
}

// The values of a load whose address all lanes share, from the host's address.
static void load_values(Context *ctx, const Access *access, u64 address) {
    for (int i = 0; i < access->count; i++, address += (u64)access->nbytes) {
        if (access->items[i].kind == NOTHING) continue;
        u64 value = word_at(address, access->nbytes, access->is_signed, access->items[i].width);
        memcpy(ctx->file + access->items[i].place, &value, 8);
    }
}

// Does a load of words that all lanes share. Returns 0, with nothing done, if it is none or not plain.
static int uniform_words(Context *ctx, const Access *access) {
    for (int i = 0; i < access->count; i++)
        if (access->items[i].kind == ROW) return 0;
    u64 address = (u64)access->displacement, width = (u64)(access->nbytes * access->count);
    if (access->address >= 0) address += *(const u64 *)(ctx->file + access->address);
    if (access->address_bits == 32) address = (u32)address;
    if (address & (width - 1)) return 0;
    if (access->space == SHARED) {
        const Window *window = ctx->windows[ctx->rank];
        u64 offset = address - ((u64)ctx->rank << RANK_SHIFT);
        if (window->watched || offset < SHARED_BASE || offset > window->end || width > window->end - offset) return 0;
        if (touches_barrier(window, offset, width)) return 0;
        load_values(ctx, access, (u64)window->data + offset);
        return 1;
    }
    if (address >> TAG_SHIFT || !reached(ctx, address, address + width)) return 0;
    load_values(ctx, access, address);
    return 1;
}

// Does one of the most frequent accesses, which nobody follows. Returns 0, with nothing done, if it is none of them.
static int is_done(Context *ctx, const Op *op, const Access *access) {
    int is_shared = access->space == SHARED;
    if (is_shared ? ctx->shared_log != 0 : access->space == CLUSTER || access->space == LOCAL || ctx->log) return 0;
    if ((!is_shared && access->address_bits != 64) || ctx->uninitialised) return 0;
    if (!access->by_lane) return !access->is_store && uniform_words(ctx, access);
    if (is_shared) return access->address_bits == 32 && shared_rows(ctx, op, access);
    if (!access->is_store) return global_loads(ctx, op, access);
    return ctx->mask == FULL && global_stores(ctx, access);
}

// Does a load or store of local memory, at offsets, unless its Python row has to.
static const Op *access_local(Context *ctx, const Op *op, u64 *at, u64 width) {
    const Access *access = (const Access *)op->x;
    u64 refused = ctx->observed & HEARD, size = (u64)ctx->local_bytes;
    for (int l = 0; l < LANES; l++) {
        u64 offset = (u32)at[l];
        refused |= (offset & (width - 1) || offset + width > size) & (ctx->mask >> l & 1);
        at[l] = (u64)ctx->local + (u64)l * size + offset;
    }
    if (refused) return to_python(ctx, op);
    ctx->local_is_written |= access->is_store;
    move_items(ctx, access, at, ctx->mask);
    return op + 1;
}

// Does any access, unless its Python row has to.
__attribute__((noinline)) static const Op *access_any(Context *ctx, const Op *op) {
    const Access *access = (const Access *)op->x;
    u32 mask = ctx->mask;
    u64 at[LANES], width = (u64)(access->nbytes * access->count), low, high, bits;
    addresses(ctx, access, at);
    if (access->space == LOCAL) return access_local(ctx, op, at, width);
    u64 run = is_run(ctx, access, at, width);
    if (run) low = bits = at[0], high = at[LANES - 1];
    else span(at, access->by_lane ? mask : 1, &low, &high, &bits);
    if (access->space == GENERIC && low >> TAG_SHIFT == LOCAL_TAG && high >> TAG_SHIFT == LOCAL_TAG)
        return access_local(ctx, op, at, width);
    int is_global = in_global(access, at, &low, &high);
    int plain = !(bits & (width - 1)) && (is_global
                    ? !(ctx->log && refuses(ctx, ctx->log, access, at, mask)) &&
                          global_is_plain(ctx, access, at, mask, low, high, width, run)
                    : shared_is_plain(ctx, op, at, low, high, width));
    if (plain && ctx->uninitialised && is_global && !access->is_store)
        plain = !reads_unwritten(ctx, access, at, mask, width);
    if (!plain) return to_python(ctx, op);
    if (ctx->log && is_global && ctx->allocations[ctx->recent].writable)
        note(ctx, ctx->log, op, access, at, width, run);
    ctx->progress += access->is_store;
    if (run && is_copied(access)) move_run(ctx, access, at[0]);
    else move_items(ctx, access, at, mask);
    return op + 1;
}

KERNEL(access) {
    const Access *access = (const Access *)op->x;
    if (access->operation == ORDERED && ctx->observed) return to_python(ctx, op);
    return is_done(ctx, op, access) ? op + 1 : access_any(ctx, op);
}

// The pattern of a load's addresses, if it is known, all lanes load, and the load is plain; else APART. width: bytes per
// lane; at: receives the host's address of each group's first lane.
static inline __attribute__((always_inline)) int known_pattern(
    const Context *ctx, const Op *op, int width, int is_shared, u64 *at
) {
    const Access *access = (const Access *)op->x;
    const AddressRow *row = &ctx->address_rows[access->place];
    u64 offset = offset_of(ctx, access), low = row->low + offset;
    int others = row->slot != access->row || (row->mask & ctx->mask) != FULL || (int)row->width != width;
    if (!access->is_known || others || ctx->uninitialised) return APART;
    if (is_shared) {
        const Window *window = ctx->windows[ctx->rank];
        offset -= ctx->rank << RANK_SHIFT;
        low = (u32)(row->low + offset);
        if (ctx->shared_log || window->watched || window->guarded[0]) return APART;
        if (low < SHARED_BASE || low + row->reach > window->end) return APART;
        for (int g = 0; g < GROUPS; g++) at[g] = (u64)window->data + (u32)(row->first[g] + offset);
    } else {
        s64 hint = ctx->hints[(u32)op->pc % HINTS];
        const Allocation *allocation = &ctx->allocations[hint];
        if (ctx->log || hint >= ctx->allocation_count) return APART;
        s64 first = (s64)(low - allocation->start);
        if (first < allocation->first || first > allocation->last) return APART;
        if (row->reach > (u64)(allocation->last - first)) return APART;
        for (int g = 0; g < GROUPS; g++) at[g] = row->first[g] + offset;
    }
    return (row->bits | offset) & (u64)(width - 1) ? APART : row->pattern;
}

// Does a load by all lanes of words as they are in a row, if the pattern of its addresses is known; else it is any access.
static inline __attribute__((always_inline)) const Op *load_known(Context *ctx, const Op *op, int nbytes, int is_shared) {
    u64 at[GROUPS];
    int pattern = known_pattern(ctx, op, nbytes, is_shared, at);
    if (pattern == APART) return k_access(ctx, op);
    u8 *to = ctx->file + ((const Access *)op->x)->items[0].place;
    if (pattern == ALIKE) load_alike(to, nbytes, at);
    else load_runs(to, nbytes, at);
    return op + 1;
}

// The same of four words of 4 bytes.
static inline __attribute__((always_inline)) const Op *load_known_vectors(Context *ctx, const Op *op, int is_shared) {
    const Access *access = (const Access *)op->x;
    u64 at[GROUPS];
    int pattern = known_pattern(ctx, op, 16, is_shared, at);
    if (pattern == APART) return k_access(ctx, op);
    for (int g = 0; g < GROUPS; g++) {
        const u8 *from = (const u8 *)at[g];
        Eight words[4];
        for (int k = 0; k < 4; k++) {
            u32 word;
            memcpy(&word, from + 4 * k, 4);
            if (pattern == ALIKE) words[k] = (Eight){word, word, word, word, word, word, word, word};
            else memcpy(&words[k], from + 16 * k, 16), memcpy((u8 *)&words[k] + 16, from + 16 * (k + 4), 16);
        }
        if (pattern == RUNS) transpose_halves(words);
        for (int k = 0; k < 4; k++) memcpy(row_of(ctx, access, k, GROUP * g), &words[k], 32);
    }
    return op + 1;
}
#define LOADS(SPACE, IS_SHARED)                                                     \
    KERNEL(load_##SPACE##_8) { return load_known(ctx, op, 1, IS_SHARED); }           \
    KERNEL(load_##SPACE##_16) { return load_known(ctx, op, 2, IS_SHARED); }          \
    KERNEL(load_##SPACE##_32) { return load_known(ctx, op, 4, IS_SHARED); }          \
    KERNEL(load_##SPACE##_64) { return load_known(ctx, op, 8, IS_SHARED); }          \
    KERNEL(load_##SPACE##_32x4) { return load_known_vectors(ctx, op, IS_SHARED); }
LOADS(global, 0)
LOADS(shared, 1)

// ldmatrix or stmatrix of 8x8 matrices of 16-bit elements: an access of 16 bytes by each lane that has a row's address.
typedef struct {
    Access access;
    s32 transposed, count;  // matrices
    s32 slots[4];        // of their registers, with ONE_VALUE in a store; -1: none
} Matrices;

// Turns the addresses of rows into the host's. Returns 0 if Python has to access them.
static int rows_are_plain(Context *ctx, const Op *op, const Matrices *matrices, u64 *at) {
    u64 low, high, bits;
    if (ctx->mask != FULL || ctx->observed || ctx->shared_log || ctx->uninitialised) return 0;
    addresses(ctx, &matrices->access, at);
    for (int l = 8 * matrices->count; l < LANES; l++) at[l] = at[0];
    span(at, FULL, &low, &high, &bits);
    return !(bits & 15) && shared_is_plain(ctx, op, at, low, high, 16);
}

// Register i of lane l: elements 2 (l % 4) and the next of row l / 4 of matrix i, or of that column.
KERNEL(load_matrices) {
    const Matrices *matrices = (const Matrices *)op->x;
    u64 at[LANES];
    u16 rows[8][8];
    if (!rows_are_plain(ctx, op, matrices, at)) return to_python(ctx, op);
    for (int i = 0; i < matrices->count; i++) {
        u16 *to = (u16 *)(ctx->file + matrices->slots[i]);
        if (matrices->slots[i] < 0) continue;
        for (int r = 0; r < 8; r++) memcpy(matrices->transposed ? rows[r] : to + 8 * r, (const u8 *)at[8 * i + r], 16);
        for (int e = 0; e < 64 && matrices->transposed; e++) to[e] = rows[e % 8][e / 8];
    }
    return op + 1;
}

KERNEL(store_matrices) {
    const Matrices *matrices = (const Matrices *)op->x;
    u64 at[LANES];
    u16 rows[8][8];
    if (!rows_are_plain(ctx, op, matrices, at)) return to_python(ctx, op);
    for (int i = 0; i < matrices->count; i++) {
        u32 spread[LANES];
        const u16 *from = (const u16 *)row_at(ctx, matrices->slots[i], spread);
        for (int e = 0; e < 64 && matrices->transposed; e++) rows[e % 8][e / 8] = from[e];
        for (int r = 0; r < 8; r++) memcpy((u8 *)at[8 * i + r], matrices->transposed ? rows[r] : from + 8 * r, 16);
    }
    ctx->progress++;
    return op + 1;
}

// cp.async. Only the address of `source` counts.
typedef struct {
    Access target, source;
    Item counts;         // src-size; NOTHING: all bytes
    s64 ignored, is_one; // slot of the predicate of lanes that read nothing, -1: there is none; nonzero if it is one value
} CpAsync;

// The value that a lane has of an item.
static u64 value_of(const Context *ctx, const Item *item, int lane, int nbytes) {
    const u8 *from = item->kind == CONSTANT ? (const u8 *)&item->place : ctx->file + item->place;
    u64 value = 0;
    memcpy(&value, from + (item->kind == ROW ? lane * item->width / 8 : 0), (size_t)nbytes);
    return value;
}

// Returns 1 if the copies are legal, as far as that is known at their issue.
static int may_copy(const Context *ctx, const CpAsync *description, LaneCopies *copies) {
    u64 at[LANES], size = (u64)description->target.nbytes, origin = (u64)ctx->rank << RANK_SHIFT;
    const Window *window = ctx->windows[ctx->rank];
    u32 ignored = 0;
    int has_barriers = window->guarded[0];
    if (description->ignored >= 0) memcpy(&ignored, ctx->file + description->ignored, sizeof ignored);
    if (description->is_one) ignored = -ignored;
    copies->size = (s64)size;
    addresses(ctx, &description->target, at);
    addresses(ctx, &description->source, copies->sources);
    for (int l = 0; l < LANES; l++) {
        if (!(ctx->mask >> l & 1)) continue;
        u64 offset = at[l] - origin;
        u32 count = (u32)(description->counts.kind == NOTHING ? size : value_of(ctx, &description->counts, l, 4));
        if (ignored >> l & 1) count = 0;
        if (offset < SHARED_BASE || offset > window->end - size || offset & (size - 1) || count > size ||
            (count && copies->sources[l] & (size - 1)) || (has_barriers && touches_barrier(window, offset, size)))
            return 0;
        copies->places[l] = (u32)at[l];
        copies->counts[l] = count;
    }
    return 1;
}

// Where compiled code does not keep the copies, the Python row notes them, or finds out what is wrong with them.
KERNEL(cp_async) {
    LaneCopies copies;
    if (!(ctx->observed & HEARD) && may_copy(ctx, (const CpAsync *)op->x, &copies)) {
        if (keep_copies(ctx, op->pc, &copies)) return op + 1;
        ctx->copies = &copies;
    }
    s32 answer = answer_of(ctx, op->pc);
    ctx->copies = 0;
    return after(ctx, op, answer);
}

s64 copy_lanes(Context *ctx, s32 pc, const LaneCopies *copies, u32 mask, s64 time) {
    const Window *window = ctx->windows[ctx->rank];
    u64 at[LANES], origin = (u64)ctx->rank << RANK_SHIFT, size = (u64)copies->size;
    const Allocation *found = 0;
    int has_barriers = window->guarded[0];
    if (window->watched) return REFUSED;
    for (int l = 0; l < LANES; l++) {
        if (!(mask >> l & 1)) continue;
        u64 source = copies->sources[l];
        u32 count = copies->counts[l];
        if (count && (!found || source < found->start || source >= found->end)) found = allocation_at(ctx, source);
        if (count && (!found || count > found->end - source)) return REFUSED;
        at[l] = copies->places[l];
        if (has_barriers && touches_barrier(window, at[l] - origin, size)) return REFUSED;
    }
    for (int l = 0; l < LANES; l++) {
        if (!(mask >> l & 1)) continue;
        u8 *to = window->data + (at[l] - origin), bytes[CHUNK] = {0};
        const u8 *from = (const u8 *)copies->sources[l];
        if (copies->counts[l] == CHUNK) {
            memcpy(to, from, CHUNK);
            continue;
        }
        memcpy(bytes, from, copies->counts[l]);
        memcpy(to, bytes, size);
    }
    return window->marked && !marks_store(ctx, pc, mask, window->marked, at, origin, time);
}

// The new value of a word that holds `old`, by an atomic. In global memory f32 sums flush subnormal numbers.
static u64 modified(const Access *access, u64 old, u64 b, u64 c, int is_global) {
    s64 below = access->nbytes == 4 ? (s32)old < (s32)b : (s64)old < (s64)b;
    f32 tiny = is_global ? 0x1p-126f : 0;
    if (!access->is_signed) below = old < b;
    switch (access->operation) {
    case ADD: return access->nbytes == 4 ? (u32)(old + b) : old + b;
    case ADD_F32: {
        f32 x = flushed(f32_of((u32)old), tiny), y = flushed(f32_of((u32)b), tiny);
        return bits_of(nan32(flushed(x + y, tiny)));
    }
    case ADD_F64: {
        f64 x, y;
        memcpy(&x, &old, sizeof x), memcpy(&y, &b, sizeof y);
        x += y;
        memcpy(&old, &x, sizeof old);
        return old;
    }
    case ADD_F16: case ADD_BF16: {
        u64 sums = 0;
        for (int bit = 0; bit < access->nbytes * 8; bit += 16) {
            u16 x = (u16)(old >> bit), y = (u16)(b >> bit);
            u16 sum = access->operation == ADD_F16 ? half_of_single(single_of_half(x) + single_of_half(y))
                                                   : brain_of_single(single_of_brain(x) + single_of_brain(y));
            sums |= (u64)sum << bit;
        }
        return sums;
    }
    case MIN: return below ? old : b;
    case MAX: return below ? b : old;
    case AND: return old & b;
    case OR: return old | b;
    case XOR: return old ^ b;
    case EXCH: return b;
    case CAS: return old == b ? c : old;
    case INC: return old >= b ? 0 : old + 1;
    default: return old == 0 || old > b ? b : old - 1;
    }
}

// atom and red of words in one allocation, or in the CTA's own shared memory, lane after lane. One that changes nothing
// has no effect: it may be that of a loop which waits. The Python row does those that somebody follows.
KERNEL(atomic) {
    const Access *access = (const Access *)op->x;
    const Item *result = &access->items[0];
    u32 mask = ctx->mask;
    u64 at[LANES], old[LANES] = {0}, low, high, bits, width = (u64)access->nbytes;
    if (ctx->observed || ctx->log || ctx->shared_log || ctx->uninitialised) return to_python(ctx, op);
    addresses(ctx, access, at);
    span(at, mask, &low, &high, &bits);
    int is_global = in_global(access, at, &low, &high);
    if (bits & (width - 1)) return to_python(ctx, op);
    if (is_global) {
        Allocation *allocation = find_allocation(ctx, low);
        if (!allocation || high > allocation->end || width > allocation->end - high || !allocation->writable)
            return to_python(ctx, op);
    } else if (ctx->windows[ctx->rank]->marked || !shared_is_plain(ctx, op, at, low, high, width)) {
        return to_python(ctx, op);
    }
    int changes = 0;
    for (int l = 0; l < LANES; l++) {
        if (!(mask >> l & 1)) continue;
        memcpy(&old[l], (const u8 *)at[l], width);
        u64 b = value_of(ctx, &access->items[1], l, access->nbytes);
        u64 c = access->operation == CAS ? value_of(ctx, &access->items[2], l, access->nbytes) : 0;
        u64 new = modified(access, old[l], b, c, is_global);
        changes |= new != old[l];
        memcpy((u8 *)at[l], &new, width);
    }
    if (is_global) global_is_plain(ctx, access, at, mask, low, high, width, 0);  // marks the bytes
    ctx->progress += changes;
    for (int l = 0; l < LANES && result->kind == ROW; l++)
        if (mask >> l & 1) memcpy(ctx->file + result->place + (u64)l * width, &old[l], width);
    return op + 1;
}
