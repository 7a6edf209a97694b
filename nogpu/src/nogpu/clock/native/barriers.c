// mbarriers, and lists of warps that wait.

#include "clock.h"

Barrier *barrier_at(Cta *cta, u32 offset) {
    for (s32 i = 0; i < cta->barrier_count; i++)
        if (cta->barriers[i].offset == offset) return &cta->barriers[i];
    if (cta->barrier_count == cta->barrier_room) {
        cta->barrier_room = cta->barrier_room ? 2 * cta->barrier_room : 16;
        cta->barriers = realloc(cta->barriers, sizeof(Barrier) * (size_t)cta->barrier_room);
    }
    Barrier *barrier = &cta->barriers[cta->barrier_count++];
    *barrier = (Barrier){.offset = offset, .expected = -1};
    return barrier;
}

void wake_all(Sim *sim, Warp **list, f64 time) {
    Warp *warp = *list;
    *list = 0;
    while (warp) {
        Warp *next = warp->next;
        resume(sim, warp, time);
        warp = next;
    }
}

// early: bytes of a later phase's copies may have come with this one's.
static void complete(Sim *sim, Barrier *barrier, s32 cause, int early, f64 time) {
    while (barrier->expected > 0 && !barrier->pending && (early ? barrier->bytes <= 0 : !barrier->bytes)) {
        barrier->phase++;
        barrier->pending = barrier->expected;
        Warp *warp = barrier->waiters;
        barrier->waiters = 0;
        while (warp) {
            Warp *next = warp->next;
            if (warp->waited_phase < barrier->phase) {
                note(sim, SIGNAL, warp->cta, warp->index, cause, time, time + sim->chip.mbarrier_wait);
                resume(sim, warp, time + sim->chip.mbarrier_wait);
            } else {
                warp->next = barrier->waiters;
                barrier->waiters = warp;
            }
            warp = next;
        }
    }
}

// Arrivals and bytes that came before stay: another warp's or CTA's may, on a chip with other latencies.
void init_barrier(Cta *cta, u32 offset, s32 count) {
    Barrier *barrier = barrier_at(cta, offset);
    s32 early = barrier->expected < 0 ? barrier->pending : 0;
    s64 bytes = barrier->expected < 0 ? barrier->bytes : 0;
    Barrier kept = *barrier;
    *barrier = (Barrier){.offset = offset, .expected = count, .pending = count + early, .bytes = bytes};
    barrier->waiters = kept.waiters;
    barrier->early = kept.early;
}

static int is_early(const Barrier *barrier, s64 arrivals, s64 bytes) {
    return arrivals > barrier->pending || (bytes > 0 && !barrier->pending);
}

// Arrivals of phases that have begun meanwhile.
void take_early(Sim *sim, Cta *cta, u32 offset, f64 time) {
    Barrier *barrier = barrier_at(cta, offset);
    for (Early *first; (first = barrier->early) && !is_early(barrier, first->arrivals, first->bytes); free(first)) {
        barrier->early = first->next;
        barrier->bytes += first->bytes;
        barrier->pending -= (s32)first->arrivals;
        complete(sim, barrier, first->cause, 1, time);
    }
}

static void keep_early(Barrier *barrier, s64 arrivals, s64 bytes, s32 cause) {
    Early **last = &barrier->early;
    while (*last) last = &(*last)->next;
    *last = malloc(sizeof **last);
    **last = (Early){0, arrivals, bytes, cause};
}

void arrive(Sim *sim, Cta *cta, u32 offset, s64 arrivals, s64 bytes, s32 cause, f64 time) {
    Barrier *barrier = barrier_at(cta, offset);
    int skips = sim->launches[cta->launch].skips;
    if (skips && is_early(barrier, arrivals, bytes)) {
        keep_early(barrier, arrivals, bytes, cause);
        return;
    }
    barrier->bytes += bytes;
    barrier->pending -= (s32)arrivals;
    if (barrier->expected > 0 && barrier->pending < 0)
        fail(sim, "an mbarrier gets more arrivals than it expects", cta->index, offset, barrier->phase, cta->launch);
    complete(sim, barrier, cause, skips, time);
    if (skips) take_early(sim, cta, offset, time);
}

void cluster_arrives(Sim *sim, Cluster *cluster, f64 time) {
    cluster->time = later(cluster->time, time);
    if (cluster->arrived < cluster->alive || !cluster->arrived) return;
    cluster->arrived = 0;
    cluster->phase++;
    wake_all(sim, &cluster->waiters, cluster->time + sim->chip.cluster_latency);
    cluster->time = 0;
}
