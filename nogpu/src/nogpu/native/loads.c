// Tile loads from their issue to the end of a barrier's phase, under the schedule "late".
//
// Python executes the first loads with given places and lets compiled code repeat them, in all CTAs of that rank
// (hardware/tile_loads.py): whatever depends on the operands alone is known to be legal. Facts that may change are checked here; if one has, Python does
// the load.

#include "loads.h"

// The operands of an instruction; compiler/opcodes/copies.py packs it.
typedef struct {
    s32 slots[3 + RANKS];        // destination, tensor map, mbarrier, coordinates; -1: the displacement is the value
    u32 rows, wide;              // bits, set if the slot holds a row; if it has 64 bits per lane
    s64 displacements[3];
    s64 rank;
    s64 pair;                    // nonzero with .cta_group::2: the mbarrier may be in the pair's other CTA
} Operands;

static u64 operand(const Context *ctx, const Operands *operands, int i, int lane) {
    u64 displacement = i < 3 ? (u64)operands->displacements[i] : 0;
    if (operands->slots[i] < 0) return displacement;
    const u8 *slot = ctx->file + operands->slots[i];
    if (!(operands->rows >> i & 1)) lane = 0;
    return displacement + (operands->wide >> i & 1 ? ((const u64 *)slot)[lane] : ((const u32 *)slot)[lane]);
}

// The live mbarrier of a route, NULL if there is none, or its CTA has exited.
static Barrier *target_of(const Context *ctx, const Route *route) {
    const Window *window = ctx->windows[route->home];
    return window->closed ? 0 : window->barriers[route->target >> 3];
}

// cp.async.bulk.tensor to shared memory.
KERNEL(tile_load) {
    const Operands *operands = (const Operands *)op->x;
    Loads *loads = ctx->turns ? ctx->turns->loads : 0;
    if (!loads || !ctx->mask || ctx->mask & (ctx->mask - 1) || loads->count == PENDING) return to_python(ctx, op);
    int lane = __builtin_ctz(ctx->mask);
    u64 destination = operand(ctx, operands, 0, lane), map = operand(ctx, operands, 1, lane);
    u64 barrier = operand(ctx, operands, 2, lane);
    const Route *route = &loads->routes[place(destination, map, barrier)];
    if (route->destination != destination || route->map != map || route->barrier != barrier) return to_python(ctx, op);
    if (!route->loads || route->rank != operands->rank || route->own != ctx->rank) return to_python(ctx, op);
    if (!(ctx->known >> route->home & 1) || (route->home != ctx->rank && !operands->pair)) return to_python(ctx, op);
    Barrier *target = target_of(ctx, route);
    if (!target) return to_python(ctx, op);
    Load *load = &loads->pending[(loads->first + loads->count) % PENDING];
    memset(load->at, 0, sizeof load->at);
    for (int i = 0; i < operands->rank; i++) load->at[i] = (s32)operand(ctx, operands, 3 + i, lane);
    if (load->at[0] & 1 && route->tile->bits == 4) return to_python(ctx, op);
    load->route = *route;
    load->target = target;
    load->issuer = ctx;
    load->pc = op->pc;
    load->known = ctx->known;
    loads->count++;
    return op + 1;
}

// Notes a route that Python has found legal.
void learn_route(Loads *loads, const Route *route) {
    loads->routes[place(route->destination, route->map, route->barrier)] = *route;
}

// Returns 1 if a pending load is on its way to an mbarrier.
int awaits_load(const Loads *loads, const Barrier *barrier) {
    for (s64 i = 0; i < loads->count; i++)
        if (loads->pending[(loads->first + i) % PENDING].target == barrier) return 1;
    return 0;
}

// Forgets all routes because the live allocations have changed: Python does the pending loads, and finds routes anew.
void forget_allocations(Loads *loads) {
    for (int i = 0; i < ROUTES; i++) loads->routes[i].loads = 0;
    for (int i = 0; i < PENDING; i++) loads->pending[i].route.loads = 0;
}

// Executes the load that was issued first. Returns 0 if Python has to do it.
int run_load(Turns *turns) {
    Loads *loads = turns->loads;
    const Load *load = &loads->pending[loads->first % PENDING];
    const Route *route = &load->route;
    Barrier *barrier = load->target;
    const Window *window = load->issuer->windows[route->own];
    if (!route->loads || target_of(load->issuer, route) != barrier) return 0;
    if (window->closed || window->observed || barrier->waiting) return 0;
    if (!needs_no_report(turns, barrier, route->own == route->home, load->pc)) return 0;
    if (barrier->bytes - route->nbytes < -COUNT_LIMIT) return 0;
    if (load_tile(route->tile, route->loads, window, route->offset, load->at, 1) == REFUSED) return 0;
    forget_marks(window, route->offset, route->offset + (u64)route->nbytes);
    loads->first++;
    loads->count--;
    turns->progress++;
    turns->delayed = 0;
    barrier->heard |= load->known;
    barrier->bytes -= route->nbytes;
    barrier->delivered = 1;
    barrier->last_rank = (s32)load->issuer->rank;
    barrier->last_warp = load->issuer->warp;
    barrier->last_pc = (s32)load->pc;
    barrier->last_kind = BY_TILE_LOAD;
    if (ends_phase(barrier, turns->progress)) wake_listed(barrier);
    return 1;
}
