// cp.async: the copies of a warp's lanes (ops/cp_async.py).

#pragma once

#include "copies.h"

// The copies of a cp.async of a warp: `counts` bytes from each lane's source, then zeros up to `size`.
typedef struct LaneCopies {
    u64 sources[LANES];
    u32 places[LANES];   // 32-bit addresses in the CTA's shared memory
    u32 counts[LANES];
    s64 size;
} LaneCopies;

// Copies of a kept CTA.
typedef struct KeptCopies {
    LaneCopies copies;
    s64 group;           // groups that the warp has committed before
    s32 warp, pc;        // who has issued them
    u32 left, unused;    // lanes whose copies are outstanding
} KeptCopies;

enum { MOST_COPIES = 512 };  // such copies of a CTA

// Performs the copies of lanes that a warp has issued at an instruction. Returns REFUSED if Python has to, 1 if it has
// to mark what they store, else 0.
s64 copy_lanes(Context *ctx, s32 pc, const LaneCopies *copies, u32 mask, s64 time);

// Issues copies for a kept CTA. Returns 0 if Python has to.
int keep_copies(Context *ctx, s32 pc, const LaneCopies *copies);
