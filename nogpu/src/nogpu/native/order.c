// The order of accesses to tensor memory by different warps (hardware/tensor/order.py, which words what is wrong).

#include "tensor_memory.h"

static int meet(const u64 *a, const u64 *b) {
    u64 both = 0;
    for (int i = 0; i < MASK_WORDS; i++) both |= a[i] & b[i];
    return both != 0;
}

static int is_empty(const Epoch *epoch) {
    u64 any = 0;
    for (int i = 0; i < MASK_WORDS; i++) any |= epoch->reads[i] | epoch->writes[i];
    return !any;
}

// Returns 1 if the mask has columns that `within` does not have.
static int exceeds(const u64 *mask, const u64 *within) {
    u64 more = 0;
    for (int i = 0; i < MASK_WORDS; i++) more |= mask[i] & ~within[i];
    return more != 0;
}

// Drops accesses to columns that are written, but for those of the epoch `kept`; -1: none is. Returns its new place.
s64 order_forget(TensorOrder *order, const u64 *columns, s64 kept) {
    s64 left = 0, place = -1;
    order->version++;
    for (s64 e = 0; e < order->count; e++) {
        Epoch *epoch = &order->epochs[e];
        if (e != kept) {
            for (int i = 0; i < MASK_WORDS; i++) {
                epoch->reads[i] &= ~columns[i];
                epoch->writes[i] &= ~columns[i];
            }
            if (is_empty(epoch)) continue;
        }
        if (e == kept) place = left;
        if (left != e) order->epochs[left] = *epoch;
        left++;
    }
    order->count = left;
    return place;
}

// Records an access to the columns of two masks, under a release of the warp's, to which releases up to the time `after`
// are visible. Returns 1 + the place of its epoch; 0, with nothing changed, if Python has to check its order, or there is
// no room. is_checked: it has.
int order_access(TensorOrder *order, const struct Context *warp, Release *release, s64 pc, s64 after, int fences,
                 const u64 *reads, const u64 *writes, int is_checked) {
    s64 mine = -1;
    for (s64 e = 0; e < order->count; e++) {
        const Epoch *epoch = &order->epochs[e];
        if (epoch->warp == warp) {
            if (epoch->release == release) mine = e;
            continue;
        }
        s64 time = epoch->release->time;
        if (is_checked || (time >= 0 && (!fences || after >= time))) continue;
        if (meet(epoch->writes, reads) || meet(epoch->writes, writes) || meet(epoch->reads, writes)) return 0;
    }
    if (mine < 0) {
        if (order->count == order->room) return 0;
        mine = order->count++;
        memset(&order->epochs[mine], 0, sizeof(Epoch));
        order->epochs[mine].warp = warp;
        order->epochs[mine].release = release;
        release->used = 1;
    }
    Epoch *epoch = &order->epochs[mine];
    int is_new = exceeds(writes, epoch->writes);
    for (int i = 0; i < MASK_WORDS; i++) {
        epoch->reads[i] |= reads[i];
        epoch->writes[i] |= writes[i];
    }
    epoch->pc = pc;
    if (is_new) mine = order_forget(order, writes, mine);
    order->version++;
    return (int)mine + 1;
}
