// The heap of events, and the functions that Python calls.

#include "clock.h"
#include <stdio.h>

static int before(const Event *a, const Event *b) { return a->time < b->time || (a->time == b->time && a->order < b->order); }

void post(Sim *sim, f64 time, s32 kind, void *what, s64 a, s64 b) { post_from(sim, time, kind, 0, what, a, b); }

// number: a further one, for the event's handler.
void post_from(Sim *sim, f64 time, s32 kind, s32 number, void *what, s64 a, s64 b) {
    if (sim->events == sim->room) {
        sim->room = sim->room ? 2 * sim->room : 4096;
        sim->heap = realloc(sim->heap, sizeof(Event) * (size_t)sim->room);
    }
    Event event = {later(time, sim->now), sim->order++, kind, number, what, a, b};
    s64 i = sim->events++;
    while (i && before(&event, &sim->heap[(i - 1) / 2])) {
        sim->heap[i] = sim->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    sim->heap[i] = event;
}

static Event take(Sim *sim) {
    Event first = sim->heap[0], last = sim->heap[--sim->events];
    s64 i = 0;
    for (;;) {
        s64 child = 2 * i + 1;
        if (child >= sim->events) break;
        if (child + 1 < sim->events && before(&sim->heap[child + 1], &sim->heap[child])) child++;
        if (!before(&sim->heap[child], &last)) break;
        sim->heap[i] = sim->heap[child];
        i = child;
    }
    sim->heap[i] = last;
    return first;
}

void fail(Sim *sim, const char *error, s64 a, s64 b, s64 c, s64 d) {
    if (sim->error) return;
    sim->error = error;
    s64 detail[] = {a, b, c, d};
    memcpy(sim->error_detail, detail, sizeof detail);
}

// Keeps a span for a timeline, if there is room.
void note(Sim *sim, s32 kind, const Cta *cta, s32 warp, s32 pc, f64 start, f64 end) {
    if (sim->span_count < sim->span_room)
        sim->spans[sim->span_count++] = (Span){start, end, cta->sm, cta->launch, cta->index, warp, kind, pc};
}

static void dispatch(Sim *sim, const Event *event) {
    switch (event->kind) {
    case WARP_RUNS: run_warp(sim, event->what); break;
    case ENGINE_RUNS: run_engine(sim, (s32)event->a); break;
    case COPY_ENDS: end_copy(sim, event->what); break;
    case COPY_READ: copy_read(sim, event->what); break;
    case ARRIVES: arrive(sim, event->what, (u32)event->a, event->a >> 32, event->b, event->number, event->time); break;
    case PLACES: place_clusters(sim); break;
    case CTA_STARTS: start_cta(sim, event->what); break;
    case GRID_STARTS: start_grid(sim, (s32)event->a, event->time); break;
    case GRID_ENDS: if (sim->progress[event->a].state == 1) end_grid(sim, (s32)event->a); break;
    }
}

static Server *servers(s32 count, f64 rate) {
    Server *all = calloc((size_t)count, sizeof *all);
    for (s32 i = 0; i < count; i++) all[i].capacity = rate * BUCKET;
    return all;
}

// A simulation of launches on a chip, not begun. gpc_ends: for each GPC the number of its last SM + 1. spans: room for so
// many spans. dirty: in L2 is what someone else has written, which goes to DRAM when its place is needed.
Sim *new_sim(const Chip *chip, const s32 *gpc_ends, s32 gpcs, Launch *launches, s32 count, s64 spans, s32 dirty) {
    Sim *sim = calloc(1, sizeof *sim);
    sim->chip = *chip;
    sim->launches = launches;
    for (s32 i = 0; i < count; i++) find_predicated(launches + i);
    sim->count = count;
    sim->progress = calloc((size_t)count, sizeof *sim->progress);
    sim->sms = calloc((size_t)chip->sms, sizeof *sim->sms);
    for (s32 i = 0; i < (s32)chip->sms; i++) {
        sim->sms[i].in.capacity = chip->sm_in_rate * BUCKET;
        sim->sms[i].out.capacity = chip->sm_out_rate * BUCKET;
        sim->sms[i].l1 = calloc((size_t)chip->l1_lines, sizeof(u64));
        sim->sms[i].l1_ready = calloc((size_t)chip->l1_lines, sizeof(f64));
    }
    sim->l2_sets = (s64)(chip->l2_bytes / 128 / chip->l2_ways);
    sim->l2 = calloc((size_t)(sim->l2_sets * (s64)chip->l2_ways), sizeof *sim->l2);
    sim->tags = calloc((size_t)(sim->l2_sets * (s64)chip->l2_ways), sizeof *sim->tags);
    sim->dirty = sim->flushed = dirty ? chip->l2_dirty : 0;
    sim->gpc_ends = gpc_ends;
    sim->gpcs = gpcs;
    if (chip->l2_coalesces) sim->asked = calloc((size_t)(chip->sms / chip->l2_coalesces + 1) * ASKED, sizeof *sim->asked);
    sim->slices = servers((s32)chip->l2_slices, chip->l2_rate / chip->l2_slices);
    sim->links = servers(2, chip->l2_link_rate);
    sim->channels = servers((s32)chip->dram_channels, chip->dram_rate / chip->dram_channels);
    sim->cleaners = calloc((size_t)chip->dram_channels, sizeof *sim->cleaners);
    sim->span_room = spans;
    sim->spans = calloc((size_t)(spans + 1), sizeof *sim->spans);
    post(sim, chip->launch_first, GRID_STARTS, 0, 0, 0);
    return sim;
}

// Processes a number of events of a simulation. Returns 1 while there are more, 0 at its end, -1 for an error.
s32 advance(Sim *sim, s64 events) {
    while (sim->events && events-- && !sim->error) {
        Event event = take(sim);
        sim->now = event.time;
        dispatch(sim, &event);
    }
    return sim->error ? -1 : sim->events ? 1 : 0;
}

// Of a launch: 0 start, 1 first CTA, 2 end, 3 state, 4 CTAs that are over.
f64 launch_figure(const Sim *sim, s32 launch, s32 what) {
    const Progress *progress = &sim->progress[launch];
    if (what == 4) return progress->state ? sim->launches[launch].ctas - progress->alive : 0;
    return what == 0 ? progress->start : what == 1 ? progress->first_cta : what == 2 ? progress->end : progress->state;
}

// Of the chip: 0 time, 1 bytes read from DRAM, 2 written, 3 bytes of hits in L2, 4 of misses, 5 bytes into SMs, 6 out,
// 7 cycles of all tensor cores.
f64 chip_figure(const Sim *sim, s32 what) {
    f64 in = 0, out = 0, tensor = 0;
    for (s32 i = 0; i < (s32)sim->chip.sms; i++) {
        in += sim->sms[i].bytes_in;
        out += sim->sms[i].bytes_out;
        tensor += sim->sms[i].busy_tensor;
    }
    f64 all[] = {sim->now, sim->dram_read, sim->dram_written, sim->l2_hits, sim->l2_misses, in, out, tensor};
    return all[what];
}

s64 span_figure(const Sim *sim) { return sim->span_count; }
const Span *all_spans(const Sim *sim) { return sim->spans; }
const char *error_text(const Sim *sim, s64 *detail) {
    if (sim->error) memcpy(detail, sim->error_detail, sizeof sim->error_detail);
    return sim->error;
}

static void free_cluster(Sim *sim, Cluster *cluster) {
    for (s32 rank = 0; rank < cluster->size; rank++) {
        Cta *cta = cluster->ctas[rank];
        for (s32 w = 0; cta->warps && w < sim->launches[cta->launch].warps; w++) free(cta->warps[w].ready);
        free(cta->warps);
        for (s32 b = 0; b < cta->barrier_count; b++)
            for (Early *early = cta->barriers[b].early, *next; early; early = next) {
                next = early->next;
                free(early);
            }
        free(cta->barriers);
        free(cta);
    }
    free(cluster->ctas);
    free(cluster);
}

void end_sim(Sim *sim) {
    while (sim->clusters) {
        Cluster *cluster = sim->clusters;
        sim->clusters = cluster->next;
        free_cluster(sim, cluster);
    }
    for (s32 i = 0; i < (s32)sim->chip.sms; i++) {
        free(sim->sms[i].l1);
        free(sim->sms[i].l1_ready);
    }
    free(sim->progress);
    free(sim->sms);
    free(sim->l2);
    free(sim->tags);
    free(sim->asked);
    free(sim->slices);
    free(sim->links);
    free(sim->channels);
    free(sim->cleaners);
    free(sim->heap);
    free(sim->spans);
    free(sim);
}

#define X(name) #name,
const char *const constant_names[] = {CONSTANTS(X) 0};
#undef X
