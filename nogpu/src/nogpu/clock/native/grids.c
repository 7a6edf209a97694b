// Launches: their order, where CTAs are placed, and their ends.

#include "clock.h"

enum { COLD_BYTES = 1 << 20 };

static int has_room(const Chip *chip, const Sm *sm, const Launch *launch) {
    return sm->ctas < (s32)chip->sm_ctas && sm->threads + launch->threads <= (s32)chip->sm_threads &&
           sm->shared_bytes + launch->shared_bytes <= (s32)chip->sm_shared_bytes &&
           sm->registers + launch->registers * launch->threads <= (s32)chip->sm_registers;
}

// Chooses an SM for each CTA of a cluster: those of a GPC with room that hold the fewest CTAs. Clusters go round the GPCs;
// CTAs without one fill a GPC before the next. Returns 0 if there is none.
static int choose(Sim *sim, const Launch *launch, s32 *chosen) {
    const Chip *chip = &sim->chip;
    s32 gpcs = sim->gpcs, size = launch->cluster, best = 1 << 30, found = 0, at[16];
    for (s32 turn = 0; turn < gpcs; turn++) {
        s32 gpc = (turn + (size == 1 ? 0 : sim->next_gpc)) % gpcs, start = gpc ? sim->gpc_ends[gpc - 1] : 0, end = sim->gpc_ends[gpc];
        if (size == 2) {
            for (s32 sm = start; sm + 1 < end; sm += 2)
                if (has_room(chip, &sim->sms[sm], launch) && has_room(chip, &sim->sms[sm + 1], launch)) {
                    s32 load = 2 * sim->sms[sm].ctas;
                    if (load < best) best = load, chosen[0] = sm, chosen[1] = sm + 1, found = 1;
                }
            continue;
        }
        s32 count = 0, load = 0;
        for (s32 c = 0; c < size; c++) {
            s32 least = 1 << 30;
            for (s32 sm = start; sm < end; sm++) {
                int taken = 0;
                for (s32 i = 0; i < count; i++) taken |= at[i] == sm;
                if (!taken && has_room(chip, &sim->sms[sm], launch) && sim->sms[sm].ctas < least)
                    least = sim->sms[sm].ctas, at[count] = sm;
            }
            if (least == 1 << 30) break;
            count++;
            load += least;
        }
        if (count == size && load < best) {
            best = load;
            memcpy(chosen, at, sizeof(s32) * (size_t)size);
            found = 1;
        }
    }
    if (found) sim->next_gpc++;
    return found;
}

static s64 words_of_cta(const Launch *launch, s32 cta) {
    const s64 *starts = launch->starts + (s64)cta * (launch->warps + 1);
    return starts[launch->warps] - starts[0];
}

static void place(Sim *sim, s32 number, s32 first, const s32 *chosen) {
    const Chip *chip = &sim->chip;
    Launch *launch = &sim->launches[number];
    Cluster *cluster = calloc(1, sizeof *cluster);
    cluster->size = launch->cluster;
    cluster->next = sim->clusters;
    sim->clusters = cluster;
    cluster->alive = launch->cluster * launch->warps;
    cluster->ctas = calloc((size_t)cluster->size, sizeof(Cta *));
    for (s32 rank = 0; rank < cluster->size; rank++) {
        Cta *cta = cluster->ctas[rank] = calloc(1, sizeof *cta);
        Sm *sm = &sim->sms[chosen[rank]];
        *cta = (Cta){.launch = number, .index = first + rank, .sm = chosen[rank], .alive = launch->warps, .cluster = cluster, .rank = rank};
        sm->ctas++;
        sm->threads += launch->threads;
        sm->shared_bytes += launch->shared_bytes;
        sm->registers += launch->registers * launch->threads;
        sim->dispatch = later(sim->dispatch, sim->now) + chip->cta_interval;
        post(sim, sim->dispatch + chip->cta_start + (cluster->size > 1 ? chip->cluster_start : 0), CTA_STARTS, cta, 0, 0);
    }
}

// Starts clusters as far as there is room, those of earlier launches first.
void place_clusters(Sim *sim) {
    for (; sim->placing < sim->count; sim->placing++) {
        Progress *progress = &sim->progress[sim->placing];
        Launch *launch = &sim->launches[sim->placing];
        if (!progress->state) return;
        s32 clusters = launch->ctas / launch->cluster;
        while (progress->pending) {
            s32 first = (clusters - progress->pending) * launch->cluster, chosen[16];
            if (words_of_cta(launch, first)) {
                if (!choose(sim, launch, chosen)) return;
                place(sim, sim->placing, first, chosen);
            } else {  // cancelled before its start
                progress->alive -= launch->cluster;
                progress->triggers -= launch->cluster;
            }
            progress->pending--;
        }
    }
}

void start_cta(Sim *sim, Cta *cta) {
    Launch *launch = &sim->launches[cta->launch];
    Progress *progress = &sim->progress[cta->launch];
    if (!progress->first_cta) progress->first_cta = sim->now;
    cta->started = sim->now;
    Sm *sm = &sim->sms[cta->sm];
    if (sm->warm <= cta->launch) {
        sm->warm = cta->launch + 1;
        sm->parameters = 0;
        sm->maps = 0; sm->maps_ready = 0; sm->edits = 0;
    }
    cta->warps = calloc((size_t)launch->warps, sizeof(Warp));
    const s64 *starts = launch->starts + (s64)cta->index * (launch->warps + 1);
    for (s32 w = 0; w < launch->warps; w++) {
        Warp *warp = &cta->warps[w];
        warp->cta = cta;
        warp->index = w;
        warp->partition = w % PARTITIONS;
        warp->at = starts[w];
        warp->end = starts[w + 1];
        warp->time = warp->block = sim->now;
        warp->ready = calloc((size_t)launch->value_count + 1, sizeof(f64));
        post(sim, sim->now, WARP_RUNS, warp, 0, 0);
    }
}

static void next_launch(Sim *sim, s32 number, f64 time) {
    if (number >= sim->count || sim->progress[number].state || sim->progress[number].start > 0) return;
    const Chip *chip = &sim->chip;
    f64 period = chip->launch_period + chip->launch_cta * fmin(sim->launches[number - 1].ctas, chip->sms);
    f64 start = later(time, sim->progress[number - 1].start + period);
    sim->progress[number].start = start;
    post(sim, start, GRID_STARTS, 0, number, 0);
}

void start_grid(Sim *sim, s32 number, f64 time) {
    Progress *progress = &sim->progress[number];
    Launch *launch = &sim->launches[number];
    progress->state = 1;
    progress->start = time;
    progress->read = sim->dram_read;
    progress->pending = launch->ctas / launch->cluster;
    progress->alive = progress->triggers = launch->ctas;
    place_clusters(sim);
}

static void triggered(Sim *sim, s32 number, f64 time) {
    if (!sim->progress[number].triggers && number + 1 < sim->count && sim->launches[number + 1].programmatic)
        next_launch(sim, number + 1, time + sim->chip.launch_overlap);
}

void trigger(Sim *sim, Cta *cta, f64 time) {
    if (cta->triggered) return;
    cta->triggered = 1;
    sim->progress[cta->launch].triggers--;
    triggered(sim, cta->launch, time);
}

// A launch ends after its last CTA and what its CTAs have left in flight.
void end_if_over(Sim *sim, s32 number, f64 time) {
    Progress *progress = &sim->progress[number];
    if (progress->state == 1 && !progress->alive && !progress->pending && !progress->copies && progress->end == 0) {
        progress->end = later(time, sim->now) + sim->chip.grid_end;
        if (number) progress->end = later(progress->end, sim->progress[number - 1].end);
        if (!number || sim->progress[number - 1].state == 2) post(sim, progress->end, GRID_ENDS, 0, number, 0);
    }
}

// What an ordinary launch takes longer to start when the one ahead has read so much from DRAM that its commands and its
// code are in L2 no more. Of the commands some have been fetched ahead.
static f64 cold_start(const Sim *sim, s32 number) {
    const Chip *chip = &sim->chip;
    if (sim->dram_read - sim->progress[number - 1].read < COLD_BYTES) return 0;
    return chip->launch_cold + (number > chip->launch_ahead ? chip->launch_fetch : 0);
}

void end_grid(Sim *sim, s32 number) {
    Progress *progress = &sim->progress[number];
    progress->state = 2;
    progress->end = sim->now;
    wake_all(sim, &progress->waiters, sim->now + sim->chip.grid_wait);
    if (number + 1 == sim->count) return;
    if (!sim->launches[number + 1].programmatic) {
        next_launch(sim, number + 1, sim->now + sim->chip.launch_gap + cold_start(sim, number + 1));
    } else {
        next_launch(sim, number + 1, sim->now + sim->chip.launch_overlap);
        Progress *following = &sim->progress[number + 1];
        if (following->end > 0 && following->state == 1) post(sim, later(following->end, sim->now), GRID_ENDS, 0, number + 1, 0);
    }
}

static void cta_over(Sim *sim, Cta *cta, f64 time) {
    Launch *launch = &sim->launches[cta->launch];
    Progress *progress = &sim->progress[cta->launch];
    Sm *sm = &sim->sms[cta->sm];
    sm->ctas--;
    sm->threads -= launch->threads;
    sm->shared_bytes -= launch->shared_bytes;
    sm->registers -= launch->registers * launch->threads;
    sm->columns -= cta->columns;
    note(sim, CTA_LIVES, cta, -1, 0, cta->started, time);
    progress->alive--;
    if (!cta->triggered) {
        progress->triggers--;
        triggered(sim, cta->launch, time);
    }
    post(sim, time + sim->chip.cta_exit, PLACES, 0, 0, 0);
    end_if_over(sim, cta->launch, later(time, cta->stores));
}

void warp_over(Sim *sim, Warp *warp, f64 time) {
    Cta *cta = warp->cta;
    warp->is_over = 1;
    free(warp->ready);
    warp->ready = 0;
    cta->cluster->alive--;
    cluster_arrives(sim, cta->cluster, time);
    if (!--cta->alive) cta_over(sim, cta, time);
}
