// Descriptions of loads, stores and atomics, and what kernels of loads share.

#pragma once

#include "patterns.h"

enum { GLOBAL, SHARED, CLUSTER, GENERIC, LOCAL };
enum { NOTHING, ROW, ONE, CONSTANT };  // kinds of items
enum { MOST_ITEMS = 8 };
enum { ORDERED = -1, ADD = 1, ADD_F32, ADD_F64, ADD_F16, ADD_BF16, MIN, MAX, AND, OR, XOR, EXCH, CAS, INC, DEC };  // operations

typedef struct {
    s32 kind, width;     // width: bits of the register
    u64 place;           // slot, or the constant
} Item;

// ld, st, or atom and red with items for the result, b and c; compiler/rowcode/accesses.py packs it.
typedef struct {
    s32 space, is_store;
    s32 by_lane;         // nonzero if lanes have addresses of their own
    s32 uniform;         // nonzero for one access by the whole warp
    s32 address_bits, nbytes, count, is_signed;
    s32 address;         // slot; -1: the displacement is the address
    s32 operation;       // of atom or red; ORDERED for a volatile ld or st, or one with an order
    // The address is a row, plus a value that all lanes share (compiler/rowcode/addresses.py).
    s32 row, added;      // slots; added: -1 if there is none
    s32 place;           // index in Context.address_rows
    s32 is_known;        // nonzero if an access before has looked for the row's pattern
    s64 displacement;
    Item items[MOST_ITEMS];
} Access;

Allocation *reached(Context *ctx, u64 low, u64 end);
const AddressRow *address_row(Context *ctx, const Access *access, u32 width);

// Returns 1 if a row's pattern has been found for these lanes and this width.
static inline int is_row_of(const AddressRow *row, const Access *access, u32 mask, u32 width) {
    return row->slot == access->row && row->mask == mask && row->width == width;
}

// What a load adds to the addresses of its `address_row`.
static inline u64 offset_of(const Context *ctx, const Access *access) {
    u64 offset = (u64)access->displacement;
    return access->added < 0 ? offset : offset + *(const u64 *)(ctx->file + access->added);
}

// Tells the CPU which words an instruction will load next if it goes on by the same distance, as it does in a loop.
// low: the lowest address that it loads now; at: places of the groups' first lanes; step: groups that lie together.
static inline void expect_next(Context *ctx, s32 pc, u64 low, const u64 *at, int step) {
    u64 *last = &ctx->lows[(u32)pc % HINTS], distance = low - *last;
    *last = low;
    for (int g = 0; g < GROUPS; g += step) __builtin_prefetch((const void *)(at[g] + distance));
}
