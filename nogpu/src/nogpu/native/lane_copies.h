// cp.async: the copies of a warp's lanes (ops/cp_async.py), and those that compiled code keeps (hardware/lane_copies.py).

#pragma once

#include "copies.h"

// The copies of a cp.async of a warp: `counts` bytes from each lane's source, then zeros up to `size`.
typedef struct LaneCopies {
    u64 sources[LANES];
    u32 places[LANES];   // 32-bit addresses in the CTA's shared memory
    u32 counts[LANES];
    s64 size;
} LaneCopies;

// Copies that compiled code has issued.
typedef struct KeptCopies {
    LaneCopies copies;
    s64 number;          // index in the order of issue of all asynchronous operations (Turns.issued)
    s64 group;           // groups that the warp has committed before
    Context *issuer;
    s32 warp, pc;        // who has issued them
    u32 left, unused;    // lanes whose copies are outstanding
} KeptCopies;

enum { MOST_COPIES = 512 };  // such copies of a CTA

// The copies of a CTA that compiled code keeps. Every field has 8 bytes.
typedef struct LaneQueue {
    KeptCopies *copies;  // room for MOST_COPIES, in the order of issue
    s64 used, outstanding;  // those that have a place; those that are outstanding
    s64 is_prompt;       // nonzero if copies happen at their issue
    s64 committed[WARPS];  // groups of copies, by warp
    s64 in_python[WARPS];  // nonzero for a warp while Python has copies or groups of it
    struct LaneQueue *next;  // the next CTA that has copies outstanding (Turns.lane_queues)
} LaneQueue;

// Performs the copies of lanes that a warp has issued at an instruction. Returns REFUSED if Python has to, 1 if it has
// to mark what they store, else 0.
s64 copy_lanes(Context *ctx, s32 pc, const LaneCopies *copies, u32 mask, s64 time);

int keep_copies(Context *ctx, s32 pc, const LaneCopies *copies);
s64 run_copies(Turns *turns, s64 limit);
