// Threads' stores to shared memory that the async proxy may not see yet, and fence.proxy.async
// (hardware/store_marks.py).

#include "copies.h"

// The first place of the table that an instruction's stores may have.
int stores_place(const Context *warp, s64 pc) { return (int)(((u64)warp >> 4 ^ (u64)pc * 31) % STORES); }

enum { TRIED = 16 };  // places in a row that an instruction's stores may have

// The place of an instruction's stores in the table, or a free one for them; -1: others have all that they may have.
static int find_place(const StoreMarks *marked, const Context *warp, s64 pc) {
    int first = stores_place(warp, pc), found = -1;
    for (int i = 0; i < TRIED; i++) {
        int place = (first + i) % STORES;
        const Stores *stores = &marked->stores[place];
        if (stores->number && stores->warp == warp && stores->pc == pc) return place;
        if (!stores->number && found < 0) found = place;
    }
    return found;
}

// The number of an instruction's stores, the last of which is at a time; a new one if it has none. Returns 0 if others
// have its places: Python has to evict them.
s64 number_of_stores(StoreMarks *marked, const Context *warp, s64 pc, s64 time) {
    int place = find_place(marked, warp, pc);
    if (place < 0) return 0;
    Stores *stores = &marked->stores[place];
    if (!stores->number) {
        *stores = (Stores){warp, pc, ++marked->last, time};
        marked->used[marked->count++] = place;
        marked->live = 1;
    }
    stores->time = time;
    return stores->number;
}

// Forgets the stores of a warp, and all made no later than an event that it has waited for.
void fence_stores(StoreMarks *marked, const Context *warp, s64 synced) {
    s64 left = 0;
    if (!marked->live) return;
    for (s64 i = 0; i < marked->count; i++) {
        Stores *stores = &marked->stores[marked->used[i]];
        if (stores->warp == warp || stores->time <= synced) stores->number = 0;
        else marked->used[left++] = marked->used[i];
    }
    marked->count = left;
    if (left || marked->evicted) return;
    marked->live = 0;
    memset(marked->marks, 0, (size_t)marked->grains * sizeof *marked->marks);
}

// fence.proxy.async, with b of shared memory.
KERNEL(fence_async) {
    if (ctx->observed & HEARD) return to_python(ctx, op);
    if (!op->b) return op + 1;
    for (u32 rank = 0; rank < ctx->cluster_size; rank++) {
        const StoreMarks *marked = ctx->windows[rank]->marked;
        if (marked && marked->evicted) return to_python(ctx, op);
    }
    for (u32 rank = 0; rank < ctx->cluster_size; rank++) {
        StoreMarks *marked = ctx->windows[rank]->marked;
        if (marked) fence_stores(marked, ctx, ctx->synced);
    }
    publish(ctx->windows[ctx->rank], ctx->warp, ctx->synced, 1);
    return op + 1;
}
