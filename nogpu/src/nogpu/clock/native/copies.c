// Bulk and tensor copies: each SM has one engine, which takes the copies in order, line by line.

#include "clock.h"

enum { TURN = 16, BOX_WORDS = 17, COMPLETES = 16 };  // lines of a turn of the engine; words of a box

static s64 long_at(const u32 *words) { return (s64)((u64)words[1] << 32 | words[0]); }

void issue_copy(Sim *sim, Warp *warp, const u32 *words, s32 pc, f64 time) {
    Cta *cta = warp->cta;
    Copy *copy = calloc(1, sizeof *copy);
    copy->cta = cta;
    copy->warp = warp;
    copy->kind = (s32)words[0];
    if (sim->launches[cta->launch].instructions[pc].variant) copy->pc = pc;
    copy->issued = copy->last = copy->read = time;
    if (copy->kind == 1) {
        copy->destination = words[1];
        copy->mbarrier = words[2];
        copy->mask = words[3];
        copy->pair = (s32)words[4];
        copy->boxes = (s32)words[5];
        copy->box = words + 6;
    } else if (copy->kind == 2) {
        copy->boxes = (s32)words[3];
        copy->box = words + 4;
    } else if (copy->kind == 3) {
        copy->bytes = words[1];
        copy->destination = words[2];
        copy->mbarrier = words[3];
    } else {
        copy->boxes = (s32)words[1];
        copy->box = words + 2;
    }
    for (s32 b = 0; b < copy->boxes; b++) copy->bytes += copy->box[b * BOX_WORDS + COMPLETES];
    if (copy->kind == 2) {
        Groups *groups = &warp->bulk;
        copy->group = groups->next % GROUPS;
        groups->reads[copy->group]++;
        groups->writes[copy->group]++;
        sim->progress[cta->launch].copies++;
    } else {
        copy->group = -1;
    }
    Sm *sm = &sim->sms[cta->sm];
    if (sm->last_copy) sm->last_copy->next = copy;
    else sm->copies = copy;
    sm->last_copy = copy;
    if (!sm->engine_runs) {
        sm->engine_runs = 1;
        post(sim, later(time, sm->engine), ENGINE_RUNS, 0, cta->sm, 0);
    }
}

// Counts the bytes of a copy's boxes that lie outside of their tensors.
static s64 bytes_outside(const Copy *copy) {
    s64 inside = 0;
    for (const u32 *box = copy->box; box < copy->box + copy->boxes * BOX_WORDS; box += BOX_WORDS)
        inside += (s64)box[3] * box[4] * box[7] * box[10] * box[13];
    return copy->bytes > inside ? copy->bytes - inside : 0;
}

// The next line of a copy: its number and sectors. Returns 0 if there is none.
static int next_line(Copy *copy, u64 *line, u32 *sectors, f64 *bytes) {
    while (copy->boxes) {
        const u32 *box = copy->box;
        u64 row_bytes = box[3], address = (u64)long_at(box + 1);
        int empty = !row_bytes;
        for (int d = 0; d < 4; d++) {
            s32 count = (s32)box[4 + 3 * d];
            if (!count) empty = 1;
            address += (u64)(long_at(box + 5 + 3 * d) * copy->row[d]);
        }
        if (!empty && copy->inside < row_bytes) {
            u64 from = address + copy->inside, stop = (from | 127) + 1, end = address + row_bytes;
            if (end < stop) stop = end;
            *line = from >> 7;
            u32 low = (u32)(from >> 5 & 3), high = (u32)((stop - 1) >> 5 & 3);
            *sectors = (0xfu >> (3 - high)) & (0xfu << low);
            *bytes = (f64)(stop - from);
            copy->inside += stop - from;
            return 1;
        }
        copy->inside = 0;
        int d = 0;
        if (!empty)
            for (; d < 4; d++) {
                if (++copy->row[d] < (s32)box[4 + 3 * d]) break;
                copy->row[d] = 0;
            }
        if (empty || d == 4) {
            memset(copy->row, 0, sizeof copy->row);
            copy->box += BOX_WORDS;
            copy->boxes--;
        }
    }
    return 0;
}

static Sm *sm_of(Sim *sim, Cta *cta) { return &sim->sms[cta->sm]; }

// When bytes of a load that left L2 at a time are in the shared memory of its targets.
static f64 delivered(Sim *sim, Copy *copy, f64 bytes, f64 back) {
    f64 last = 0;
    for (s32 rank = 0; rank < copy->cta->cluster->size; rank++)
        if (copy->mask >> rank & 1) {
            Sm *target = sm_of(sim, copy->cta->cluster->ctas[rank]);
            last = later(last, serve(&target->in, back, bytes));
            target->bytes_in += bytes;
        }
    return last;
}

static f64 line_of_load(Sim *sim, Copy *copy, u64 line, u32 sectors, f64 bytes, f64 time) {
    f64 back = access_line(sim, copy->cta->sm, line, sectors, time, 0);
    return copy->kind == 4 ? back : delivered(sim, copy, bytes, back);
}

// A line outside of a tensor: L2 is asked for it, where it would lie, by each SM alone, and gives zeros.
static f64 line_outside(Sim *sim, Copy *copy, u64 salt, f64 time) {
    const u32 *box = copy->last_box;
    s64 row_bytes = box[3] ? box[3] : 128, left = copy->outside - copy->filled;
    s64 row = copy->filled / row_bytes, address = long_at(box + 1) + (box[4] + row) * long_at(box + 5) + copy->filled % row_bytes;
    f64 bytes = left < 128 ? (f64)left : 128;
    copy->filled += 128;
    return delivered(sim, copy, bytes, zeros_of_l2(sim, copy->cta->sm, ((u64)address >> 7) + salt, bytes, time));
}

// Takes a turn of an SM's engine.
void run_engine(Sim *sim, s32 number) {
    Sm *sm = &sim->sms[number];
    const Chip *chip = &sim->chip;
    Copy *copy = sm->copies;
    f64 time = later(sim->now, sm->engine);
    if (!copy->entered) {
        copy->entered = 1;
        copy->began = time;
        if (copy->kind == 1 && copy->boxes) {
            copy->outside = bytes_outside(copy);
            copy->last_box = copy->box + (copy->boxes - 1) * BOX_WORDS;
        }
        // A map is told by its box, the distance of its rows and where in memory it is: unrolled loops have many
        // instructions for one.
        u64 key = ((u64)copy->box[0] << 32 | copy->box[5]) ^ (u64)long_at(copy->box + 1) >> 22 << 20;
        u64 map = (u64)1 << (key * 0x9e3779b97f4a7c15u >> 58);
        if (copy->pc && copy->boxes && !(sm->maps & map)) {  // first use in a launch
            sm->maps |= map;
            if (sm->edits) time += chip->tma_map_edited;
            else time = sm->maps_ready ? later(time, sm->maps_ready) : time + chip->tma_map_miss;
        }
    }
    u64 salt = sim->launches[copy->cta->launch].salt, line;
    u32 sectors;
    f64 bytes;
    int done = 0;
    if (copy->kind == 3) {
        copy->last = to_peer(sim, sm, (f64)copy->bytes, time);
        time = sm->remote;
        done = 1;
    }
    for (int n = 0; n < TURN && !done; n++) {
        if (!next_line(copy, &line, &sectors, &bytes)) {
            if (copy->filled < copy->outside) {
                time += chip->tma_line;
                copy->last = later(copy->last, line_outside(sim, copy, salt, time));
                continue;
            }
            done = 1;
            break;
        }
        if (copy->kind == 2) {
            time += chip->tma_store_line * bytes / 128;
            copy->read = time;
            f64 out = serve(&sm->out, time, bytes);
            sm->bytes_out += bytes;
            copy->last = later(copy->last, access_line(sim, number, line + salt, sectors, out, 1));
        } else {
            time += chip->tma_line;  // a line or a part of one
            copy->last = later(copy->last, line_of_load(sim, copy, line + salt, sectors, bytes, time));
        }
    }
    if (done) time = later(time, copy->began + chip->tma_box);
    sm->engine = time;
    if (done) {
        sm->copies = copy->next;
        if (!copy->next) sm->last_copy = 0;
        if (copy->kind == 2) {
            post(sim, copy->read, COPY_READ, copy, 0, 0);
            post(sim, later(copy->last, time) + chip->tma_store_latency, COPY_ENDS, copy, 0, 0);
        } else {
            post(sim, later(copy->last, time) + chip->tma_latency, COPY_ENDS, copy, 0, 0);
        }
    }
    if (sm->copies) post(sim, sm->engine, ENGINE_RUNS, 0, number, 0);
    else sm->engine_runs = 0;
}

static void groups_move(Sim *sim, Warp *warp) {
    if (warp->waits != FOR_GROUPS) return;
    Groups *groups = &warp->bulk;
    for (s32 g = groups->first; g < groups->next - warp->groups_allowed; g++)
        if (groups->writes[g % GROUPS] && (!warp->groups_read || groups->reads[g % GROUPS])) return;
    resume(sim, warp, sim->now);
}

// Notes that a store has read its source.
void copy_read(Sim *sim, Copy *copy) {
    copy->warp->bulk.reads[copy->group]--;
    groups_move(sim, copy->warp);
}

void end_copy(Sim *sim, Copy *copy) {
    s32 cause = copy->cta->sm << 8 | ENGINE_TRACK;
    note(sim, COPIES, copy->cta, copy->warp->index, copy->kind, copy->issued, sim->now);
    if (copy->kind == 1) {
        Cluster *cluster = copy->cta->cluster;
        for (s32 rank = 0; rank < cluster->size; rank++)
            if (copy->mask >> rank & 1) {
                s32 at = copy->pair ? (s32)((rank & ~1) | (copy->mbarrier >> 24 & 1)) : rank;
                if (!copy->pair && __builtin_popcount(copy->mask) == 1) at = (s32)(copy->mbarrier >> 24);
                arrive(sim, cluster->ctas[at], copy->mbarrier & 0xffffff, 0, -copy->bytes, cause, sim->now);
            }
    } else if (copy->kind == 3) {
        arrive(sim, peer(copy->cta, copy->mbarrier), copy->mbarrier & 0xffffff, 0, -copy->bytes, cause, sim->now);
    } else if (copy->kind == 2) {
        copy->warp->bulk.writes[copy->group]--;
        groups_move(sim, copy->warp);
        sim->progress[copy->cta->launch].copies--;
        end_if_over(sim, copy->cta->launch, sim->now);
    }
    free(copy);
}
