// Tensor memory as compiled code sees it: the order of its accesses (order.c), and the loads and stores of a warp
// (fragments.c).

#pragma once

#include "types.h"

enum {
    TMEM_LANES = 128,
    QUADRANT = 32,       // lanes
    HALF = 16,           // lanes of half a quadrant
    TMEM_COLUMNS = 576,  // 32-bit words of a lane of tensor memory, on the chip that has most
    MASK_WORDS = TMEM_COLUMNS >> 3,  // 64-bit words of a mask with a bit for each column of each of 8 halves
    PENDING_FRAGMENTS = 32,  // loads and stores of a warp that compiled code may have pending
    STORED_ROWS = 512    // rows of registers that those stores may have
};

// Release of the accesses that a warp has made since its previous release (hardware/tensor/order.py).
typedef struct {
    s64 time;            // of the release; -1: not yet
    s64 arrived;         // time of the arrival on a barrier with all complete but no fence; -1: none
    s32 used;            // nonzero if there are accesses
    s32 escaped;         // nonzero if the warp arrived on a barrier while one of its loads or stores was not complete
} Release;

// Columns that a warp has accessed under one release and that no warp has written since. Bit TMEM_COLUMNS h + c of a
// mask is column c of half h.
typedef struct {
    u64 reads[MASK_WORDS], writes[MASK_WORDS];
    const struct Context *warp;
    Release *release;
    s64 pc;              // instruction of the last access
} Epoch;

// Last accesses to the tensor memory of a CTA, by warp and release.
typedef struct {
    Epoch *epochs;
    s64 count, room;
    s64 version;         // number of changes
} TensorOrder;

// A load or a store that is not complete.
typedef struct {
    const struct Fragment *fragment;
    s64 start;           // index of the addressed word
    const u32 *values;   // a store's rows
    s32 pc, stores;
} PendingFragment;

// A warp as a user of tensor memory, once Python has found that compiled code may execute its loads and stores.
typedef struct TensorUser {
    s64 late;            // nonzero if they complete as late as possible, else at once
    s64 in_python;       // nonzero if Python may have others that are not complete
    s64 after;           // releases up to this time are visible to the warp, if the kernel has fences
    s64 fences;          // nonzero if it has
    Release *own;        // the next release of its loads and stores
    TensorOrder *order;
    u32 *words;          // the CTA's tensor memory
    const u8 *owned;     // nonzero for each allocated column
    u32 *rows;           // room for the rows of stores, of which `rows_used` are in use
    s64 rows_used;
    s64 count, stores;   // pending loads and stores, oldest first; stores among them
    PendingFragment pending[PENDING_FRAGMENTS];
    struct TensorQueue *queue;  // work of the tensor core that its thread `lane` has issued, NULL: none (tensor_work.h)
    s64 lane;
    Release *issued;     // the next release of its MMAs and copies
    Release *supply;     // later ones, of which `supplied` have been used
    s64 supplied;
} TensorUser;

// Completes the warp's stores, of which Python has none.
void complete_stores(struct Context *ctx);

// mma.c: calls `mma` for each product, up to the first result that is not 0, which it returns.
int multiply_parts(const void *const *products, s64 count, const u8 *shared, u32 *tensor, const u8 *odd_shared,
                   u32 *odd_tensor);

int order_access(TensorOrder *order, const struct Context *warp, Release *release, s64 pc, s64 after, int fences,
                 const u64 *reads, const u64 *writes, int is_checked);
