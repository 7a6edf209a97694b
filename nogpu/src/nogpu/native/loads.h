// Tile loads that compiled code repeats (loads.c).

#pragma once

#include "copies.h"

enum { ROUTES = 4096, PENDING = 64 };

// A tile load that Python has found legal, whichever CTA of a rank issues it. Every field has 8 bytes.
typedef struct {
    u64 destination, map, barrier;  // operands
    const Tile *tile;
    Traffic *loads;                 // traffic from the tensor's allocation; NULL: Python has to do the load
    u64 offset;                     // offset of the destination
    u64 target;                     // offset of the mbarrier
    u64 own, home;                  // ranks of the CTA that issues and receives the load, and of the mbarrier's
    s64 nbytes;                     // bytes that arrive at the barrier
    s64 rank;                       // rank of the tensor map
} Route;

// A load that has been issued.
typedef struct {
    Route route;
    Barrier *target;
    s64 at[RANKS];                  // coordinates
    Context *issuer;
    s64 pc;                         // pc of the instruction
    u64 known;                      // ranks that the issuer knew
} Load;

typedef struct Loads {
    Route routes[ROUTES];           // by `place`
    Load pending[PENDING];          // a ring
    s64 first, count;
} Loads;

// The place of a route in the table. The bits from 17 on have the CTA's rank.
static inline u64 place(u64 destination, u64 map, u64 barrier) {
    return (destination >> 7 ^ destination >> 17 ^ map >> 6 ^ barrier >> 3) % ROUTES;
}

int run_load(Turns *turns);
