// Threads' stores to shared memory that the async proxy may not see yet, and fence.proxy.async
// (hardware/store_marks.py).

#include "copies.h"

// The place of an instruction's stores in the table.
int stores_place(const Context *warp, s64 pc) { return (int)(((u64)warp >> 4 ^ (u64)pc * 31) % STORES); }

// The number of an instruction's stores, the last of which is at a time; a new one if it has none. Returns 0 if others
// have its place: Python has to evict them.
s64 number_of_stores(StoreMarks *marked, const Context *warp, s64 pc, s64 time) {
    int place = stores_place(warp, pc);
    Stores *stores = &marked->stores[place];
    if (!stores->number) {
        *stores = (Stores){warp, pc, ++marked->last, time};
        marked->used[marked->count++] = place;
        marked->live = 1;
    }
    if (stores->warp != warp || stores->pc != pc) return 0;
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
    if (ctx->windows[ctx->rank]->hides) return to_python(ctx, op);
    for (u32 rank = 0; rank < ctx->cluster_size; rank++) {
        const StoreMarks *marked = ctx->windows[rank]->marked;
        if (marked && marked->evicted) return to_python(ctx, op);
    }
    for (u32 rank = 0; rank < ctx->cluster_size; rank++) {
        StoreMarks *marked = ctx->windows[rank]->marked;
        if (marked) fence_stores(marked, ctx, ctx->synced);
    }
    return op + 1;
}
