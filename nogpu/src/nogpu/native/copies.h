// Structures of bulk and tensor copies.

#pragma once

#include "engine.h"

enum { REFUSED = -1, RANKS = 5, CHUNK = 16 };

// Stores of one instruction of a warp that no fence has followed.
typedef struct {
    const Context *warp;
    s64 pc;
    s64 number;          // the stores' mark; 0: none
    s64 time;            // time of the last store
} Stores;

// Marks of threads' stores that the async proxy may not see yet (hardware/store_marks.py).
enum { GRAIN_SHIFT = 4, STORES = 1024 };
typedef struct {
    s32 *marks;          // numbers, by offset / 16
    s64 grains;          // number of `marks`
    Stores *stores;      // table of STORES, by `stores_place`
    s32 *used;           // places in the table that have stores
    s64 count;           // their number
    s64 evicted;         // number of stores that only Python knows, since others have had their place
    s64 last;            // number given out last
    s64 live;            // nonzero if there are stores, so that the async proxy's reads are checked
} StoreMarks;

s64 number_of_stores(StoreMarks *marked, const Context *warp, s64 pc, s64 time);

// The shared memory of a CTA.
typedef struct Window {
    u8 *data;            // by offset in the CTA's window
    u64 end;             // offset
    const u8 *guarded;   // nonzero if a live mbarrier occupies the bytes, by offset / 8; the first: if there is any
    s64 observed;        // nonzero if accesses are reported, so that compiled code does not copy
    s64 closed;          // nonzero if the CTA has exited
    s64 watched;         // nonzero if threads' accesses are reported, so that Python performs them
    StoreMarks *marked;  // marks of threads' stores, NULL: none
    Barrier *hidden;     // list of the CTA's mbarriers whose initialisation somebody may not see
    Barrier *const *barriers;  // live mbarriers, by offset / 8
    struct TensorMemory *tensor;  // tensor memory (tensor_work.h), NULL: Python has executed no work of the CTA's
} Window;

// An allocation of global memory, and the traffic to or from it.
typedef struct {
    u64 start, end;      // addresses
    u8 *first_mark;      // one per sector (loads) or byte (stores)
    u64 origin;          // address of the first mark's sector or byte
    s64 requested;       // bytes, repeats included
    s64 low, high;       // of stores: every mark is in [low, high)
} Traffic;

// A tensor map, decoded; unused dimensions have size and count 1. No address inside the tensor overflows.
typedef struct {
    u64 address;
    s64 bits;            // bits of an element
    s64 row_bytes;       // bytes of a row of the box, a multiple of 16
    s64 pattern, shift;  // swizzle: bits of a line's number that change a chunk's, and their shift
    s64 flip;            // nonzero if the halves of chunks in odd lines change places
    u8 fill[CHUNK];      // value of 16 bytes outside the tensor
    s64 dims[RANKS], strides[RANKS], counts[RANKS], steps[RANKS];  // strides in bytes, steps and the others in elements
} Tile;

// tcgen05.cp without unpacking: a row of chunks for each lane of tensor memory that it writes.
typedef struct {
    s64 lanes, row_chunks;
    const s64 *places;   // chunks of shared memory, [rows][row_chunks]
    const s64 *words;    // words of tensor memory, [lanes]: the first of each lane's columns
    const s64 *rows;     // row of each lane, [lanes]
} TensorCopy;

// Forgets the marks of bytes, from offset `first` to `end`, that the async proxy has written.
static inline void forget_marks(const Window *window, u64 first, u64 end) {
    if (!window->marked || !window->marked->live) return;
    for (u64 i = first >> GRAIN_SHIFT; i <= (end - 1) >> GRAIN_SHIFT; i++) window->marked->marks[i] = 0;
}

void publish(Window *window, s64 warp, s64 synced, int to_async);
void copy_to_tensor_memory(const TensorCopy *copy, const Window *window, u32 *words);
s64 load_tile(const Tile *tile, Traffic *loads, const Window *window, u64 offset, const s64 *at, int parts);
