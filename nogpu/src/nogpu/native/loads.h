// Tile loads that compiled code repeats (loads.c).

#pragma once

#include "copies.h"

enum { ROUTES = 4096, PENDING = 64 };

// A tile load that Python has found legal. Every field has 8 bytes.
typedef struct {
    u64 destination, map, barrier;  // operands
    const u8 *shared;               // memory of the CTA that issues and receives the load
    const Window *window;           // the same memory
    const Tile *tile;
    Traffic *loads;                 // traffic from the tensor's allocation; NULL: Python has to do the load
    Barrier *target;
    u64 offset;                     // offset of the destination
    s64 nbytes;                     // bytes that arrive at the barrier
    s64 rank;                       // rank of the tensor map
} Route;

// A load that has been issued.
typedef struct {
    Route route;
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

// The place of a route in the table.
static inline u64 place(u64 destination, u64 map, u64 barrier, const u8 *shared) {
    return (destination >> 7 ^ map >> 6 ^ barrier >> 3 ^ (u64)shared >> 4) % ROUTES;
}

int run_load(Turns *turns);
