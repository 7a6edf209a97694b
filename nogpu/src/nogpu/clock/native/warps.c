// Warps: issue of recorded instructions.
//
// Instructions that only compute take their issue slots in order and wait for their sources as the compiler would have
// ordered them: within a basic block one that has to wait holds up nothing but the block's end. Instructions with
// effects are issued in order, when their sources are there, and so are those of which ptxas makes a subroutine. So that
// loads come as early as ptxas issues them, the instructions of a short branch forwards count as predicated ones of a
// single block, and in a block a store to shared memory that has to wait for its source lets branches and loads of
// global memory pass.

#include "clock.h"

enum { PREDICATED = 12 };  // most instructions that a branch skips to count as predicated
enum { AHEAD = 24 };  // cycles that a warp may be ahead of the earliest event with instructions that only compute

static f64 next_event(const Sim *sim) { return sim->events ? sim->heap[0].time : INFINITY; }

static f64 *waited(Sim *sim, Warp *warp, s32 pc) {
    Launch *launch = &sim->launches[warp->cta->launch];
    return &launch->waits[(s64)warp->index * launch->instruction_count + pc];
}

void resume(Sim *sim, Warp *warp, f64 time) {
    warp->waits = NOTHING;
    warp->next = 0;
    time = later(time, warp->time);
    *waited(sim, warp, warp->waited_pc) += time - warp->began;
    note(sim, WAITS, warp->cta, warp->index, warp->waited_pc, warp->began, time);
    warp->time = time;
    warp->block = later(warp->block, time);
    post(sim, time, WARP_RUNS, warp, 0, 0);
}

static void wait_for(Warp *warp, s32 what, s32 pc, Warp **list) {
    warp->waits = what;
    warp->waited_pc = pc;
    warp->began = warp->time;
    if (list) {
        warp->next = *list;
        *list = warp;
    }
}

static f64 sources_ready(const Warp *warp, const Launch *launch, const Instruction *in) {
    f64 ready = 0;
    const u32 *value = launch->values + in->values;
    for (int i = 0; i < in->sources; i++) ready = later(ready, warp->ready[value[i]]);
    return ready;
}

static void results_at(Warp *warp, const Launch *launch, const Instruction *in, f64 time) {
    const u32 *value = launch->values + in->values + in->sources;
    for (int i = 0; i < in->results; i++) warp->ready[value[i]] = time;
}

// When a port or a pipe can take an instruction that comes at a time: when it has done those before. The cycles between
// `others`, before which no other warp comes, and then are left to those: a warp that waits for its pipe blocks no other.
static f64 take(f64 *busy, f64 time, f64 others, f64 cycles) {
    f64 slot = later(*busy, time);
    *busy = later(*busy, fmin(time, others)) + cycles;
    return slot;
}

static void plain(Sim *sim, Sm *sm, Warp *warp, const Launch *launch, const Instruction *in, f64 others) {
    f64 *port = &sm->ports[warp->partition], *pipe = &sm->pipes[warp->partition][in->pipe];
    f64 slot = warp->time;
    if (in->issue) {
        slot = take(pipe, take(port, slot, others, in->issue), others, in->interval);
        warp->time = slot + in->issue;
    }
    f64 start = in->skips & SKIP_DATA ? slot : later(slot, sources_ready(warp, launch, in));
    if (in->variant) warp->time = start + in->latency;
    warp->block = later(warp->block, start);
    f64 ready = start + in->latency;
    if (in->of_launch) {  // the first CTA of a launch on an SM gets them from L2
        if (!sm->parameters) sm->parameters = start + sim->chip.parameter_miss;
        ready = later(ready, sm->parameters);
    }
    results_at(warp, launch, in, ready);
}

// Goes on at the next record of the same wait, from a record `at` on: a poll in vain and what its loop executes are left
// out. Returns 0 for one that is not tried again for the same phase: the program goes on without it.
static int skip_poll(Warp *warp, const Launch *launch, u32 pc, const u32 *words, s64 at) {
    const u32 *operands;
    while (at < warp->end) {
        const u32 *record = launch->words + at;
        s32 n = words_of(record, &operands);
        if (pc_of(*record) == pc && n) {
            if (operands[0] != words[0] || operands[1] != words[1]) return 0;
            warp->at = at;
            return 1;
        }
        at = operands - launch->words + n;
    }
    return 0;
}

static void arrive_later(Sim *sim, Cta *cta, s32 track, u32 place, s64 arrivals, s64 bytes, f64 time) {
    Cta *target = peer(cta, place);
    post_from(sim, time, ARRIVES, cta->sm << 8 | track, target, (s64)(place & 0xffffff) | arrivals << 32, bytes);
}

static f64 shared_access(Sim *sim, Sm *sm, u32 wavefronts, f64 time) {
    f64 start = later(sm->shared, time);
    sm->shared = start + wavefronts * sim->chip.shared_wavefront;
    return sm->shared - sim->chip.shared_wavefront + sim->chip.shared_latency;
}

static void memory_access(Sim *sim, Sm *sm, Warp *warp, const Launch *launch, const Instruction *in, const u32 *w, s32 n,
                          f64 time) {
    const Chip *chip = &sim->chip;
    f64 done = time;
    u32 space = n ? w[0] & 0xff : 4;
    if (space == 0) {
        int lines = (n - 1) / 2;
        if (in->kind == STORE) {
            done = store_lines(sim, sm, w + 1, lines, launch->salt, time);
            warp->stored = later(warp->stored, done);
            warp->cta->stores = later(warp->cta->stores, done);
            warp->time += chip->store_issue * lines;
            done = warp->time;
        } else if (in->kind == ATOMIC) {
            done = store_lines(sim, sm, w + 1, lines, launch->salt, time) + lines * chip->atomic_line + chip->atomic_latency;
            warp->cta->stores = later(warp->cta->stores, done);
        } else {
            done = load_lines(sim, sm, w + 1, lines, launch->salt, time, in->variant);
        }
    } else if (space == 1) {
        done = shared_access(sim, sm, n > 1 ? w[1] : 1, time);
        if (in->kind == ATOMIC) done += chip->shared_latency;
    } else if (space == 2) {
        done = to_peer(sim, sm, (f64)(w[0] >> 8 & 0xff) * (w[0] >> 16), time);
        if (in->kind == STORE) warp->stored = later(warp->stored, done);
        else done += chip->remote_latency;
    } else if (space == 3) {
        done = time + chip->l1_latency;
    } else {
        done = time + in->latency;
    }
    if (in->kind == CP_ASYNC) warp->copies_ready = later(warp->copies_ready, done);
    results_at(warp, launch, in, done);
}

static Sm *partner(Sim *sim, Cta *cta) { return &sim->sms[cta->cluster->ctas[cta->rank ^ 1]->sm]; }

// A tensor core's products take a column of 128 rows, or in a pair of 64, at a rate, and reads of A, where that is not in
// tensor memory or in the collector, and of its half of B from shared memory. A row of either is 32 bytes: K is 256 bits
// of every kind. A sparse A's is so, too, with twice the K, and B's has 64.
static f64 mma_cycles(const Chip *chip, const Instruction *in, const u32 *w, int pair) {
    static const s32 dense_k[] = {16, 8, 32, 32, 32, 64, 64};  // of KINDS
    f64 rows = pair ? w[1] / 2.0 : w[1], columns = w[2], halves = w[3] / dense_k[w[0]];
    f64 products = columns / chip->mma_columns_rate * (pair && rows <= 64 ? 0.5 : 1);
    f64 operands = 32 * ((w[5] || in->variant ? 0 : rows) + halves * (pair ? columns / 2 : columns)) / chip->mma_operand_rate;
    return later(products, operands);
}

// A tensor core takes MMAs and copies in their order, each for some cycles; products of those before go on meanwhile.
// Returns when it takes one that comes at a time.
static f64 take_tensor(Sim *sim, Sm *sm, Cta *cta, int pair, f64 time, f64 cycles) {
    f64 start = later(time + sim->chip.mma_issue, sm->tensor_front);
    if (pair) start = later(start, partner(sim, cta)->tensor_front);
    sm->tensor_front = start + cycles;
    if (pair) partner(sim, cta)->tensor_front = start + cycles;
    return start;
}

static void multiply(Sim *sim, Sm *sm, Cta *cta, const Instruction *in, const u32 *w, f64 time) {
    const Chip *chip = &sim->chip;
    if (!chip->tensor_core) return;
    int pair = w[4] == 2 && cta->cluster->size > 1;
    f64 start = later(take_tensor(sim, sm, cta, pair, time, w[0] >= 4 ? chip->mma_scaled : 0), sm->tensor);
    if (pair) start = later(start, partner(sim, cta)->tensor);
    f64 cycles = mma_cycles(chip, in, w, pair);
    sm->tensor = start + cycles;
    sm->busy_tensor += cycles;
    note(sim, MULTIPLIES, cta, -1, 0, start, start + cycles);
    if (pair) {
        partner(sim, cta)->tensor = start + cycles;
        partner(sim, cta)->busy_tensor += cycles;
    }
}

// A copy takes the tensor core for as long as its bytes of shared memory need, of which all quadrants may get the same.
static void copy_to_tmem(Sim *sim, Sm *sm, Cta *cta, const Instruction *in, const u32 *w, f64 time) {
    const Chip *chip = &sim->chip;
    if (!chip->tensor_core) return;
    take_tensor(sim, sm, cta, w[1] == 2 && cta->cluster->size > 1, time, w[0] / (in->variant * chip->cp_rate));
}

static void commit(Sim *sim, Sm *sm, Cta *cta, const u32 *w, f64 time) {
    const Chip *chip = &sim->chip;
    f64 last = later(sm->tensor, sm->tensor_front) + chip->mma_latency + (w[2] == 2 ? chip->mma_pair : 0);
    f64 done = chip->tensor_core ? later(time, last) + chip->commit_latency : time;
    for (s32 rank = 0; rank < cta->cluster->size; rank++)
        if (w[1] >> rank & 1) {
            int own = cta->cluster->ctas[rank] == cta;
            u32 place = (w[0] & 0xffffff) | (u32)rank << 24;
            arrive_later(sim, cta, TENSOR_TRACK, place, 1, 0, done + (own ? chip->mbarrier_visible : chip->mbarrier_remote));
        }
}

static void tensor_memory(Sim *sim, Sm *sm, Warp *warp, const Launch *launch, const Instruction *in, const u32 *w, f64 time) {
    const Chip *chip = &sim->chip;
    if (!chip->tensor_core) {
        results_at(warp, launch, in, time);
        return;
    }
    f64 *pipe = &sm->pipes[warp->partition][PIPES - 1];
    f64 start = later(*pipe, time), cycles = w[0] / (w[2] ? chip->tmem_store_rate : chip->tmem_load_rate);
    *pipe = start + cycles;
    warp->tmem_ready = later(warp->tmem_ready, start + cycles + chip->tmem_load_latency);
    results_at(warp, launch, in, warp->tmem_ready);
}

// Returns whether the warp has to wait.
static int copy_groups(Warp *warp, const Instruction *in, const u32 *w, s32 pc) {
    Groups *groups = &warp->bulk;
    if (!in->variant) {
        groups->next++;
        groups->reads[groups->next % GROUPS] = groups->writes[groups->next % GROUPS] = 0;
        if (groups->next - groups->first >= GROUPS) groups->first = groups->next - GROUPS + 1;
        return 0;
    }
    for (s32 g = groups->first; g < groups->next - (s32)w[0] && !(in->skips & SKIP_WAIT); g++)
        if (w[1] ? groups->reads[g % GROUPS] : groups->writes[g % GROUPS]) {
            warp->groups_allowed = (s32)w[0];
            warp->groups_read = (s32)w[1];
            wait_for(warp, FOR_GROUPS, pc, 0);
            return 1;
        }
    return 0;
}

static void cp_groups(Warp *warp, const Instruction *in, const u32 *w) {
    if (!in->variant) {
        warp->cp_groups[warp->cp_next++ % GROUPS] = warp->copies_ready;
        return;
    }
    s32 last = warp->cp_next - (s32)w[0];
    f64 ready = 0;
    if (w[0] == 0) ready = warp->copies_ready;
    else if (last > 0) ready = warp->cp_groups[(last - 1) % GROUPS];
    if (!(in->skips & SKIP_WAIT)) warp->time = later(warp->time, ready);
}

// Classes whose records have no operands; another instruction without them has no active lane.
static int bare(const Instruction *in) {
    return in->kind == GRID || in->kind == MAP_PREFETCH || in->kind == FENCE || in->kind == EDIT;
}

// Executes an instruction with effects, at a time. Returns whether the warp goes on.
static int effect(Sim *sim, Sm *sm, Warp *warp, const Launch *launch, const Instruction *in, const u32 *w, s32 n, s32 pc,
                  f64 time) {
    const Chip *chip = &sim->chip;
    Cta *cta = warp->cta;
    if (!n && !bare(in)) {
        results_at(warp, launch, in, time + in->latency);
        return 1;
    }
    switch (in->kind) {
    case MAP_PREFETCH:
        sm->maps_ready = time + chip->tma_map_miss;
        return 1;
    case LOAD: case STORE: case ATOMIC: case CP_ASYNC: case SHARED:
        memory_access(sim, sm, warp, launch, in, w, n, time);
        return 1;
    case ASYNC_STORE:
        if (n >= 5) {
            f64 sent = to_peer(sim, sm, w[4], time) - chip->remote_latency;
            arrive_later(sim, cta, warp->index, w[3], 0, -(s64)w[4], sent + chip->mbarrier_remote);
        }
        return 1;
    case INIT:
        for (; n > 1; n -= 2, w += 2) {
            init_barrier(cta, w[0] & 0xffffff, (s32)w[1]);
            if (launch->skips) take_early(sim, cta, w[0] & 0xffffff, time);
        }
        return 1;
    case CP_ARRIVE:
    case MBARRIER: {
        f64 at = in->kind == CP_ARRIVE ? later(time, warp->copies_ready) : time;
        warp->time += chip->mbarrier_arrive - 1;
        if (in->variant) {
            at = later(at, warp->stored) + chip->cluster_release;
            warp->time = later(warp->time, at);
        }
        for (; n > 2; n -= 3, w += 3) {
            f64 seen = peer(cta, w[0]) == cta ? chip->mbarrier_visible : chip->mbarrier_remote;
            arrive_later(sim, cta, warp->index, w[0], (s32)w[1], (s32)w[2], at + seen);
        }
        results_at(warp, launch, in, at + chip->mbarrier_visible);
        return 1;
    }
    case WAIT: {
        Barrier *barrier = barrier_at(cta, w[0] & 0xffffff);
        results_at(warp, launch, in, 0);
        if (!w[2] || barrier->phase > (s32)w[1] || in->skips & SKIP_WAIT) {
            warp->time = time + chip->mbarrier_test;
            warp->block = later(warp->block, warp->time);
            return 1;
        }
        warp->waited_phase = (s32)w[1];
        wait_for(warp, FOR_PHASE, pc, &barrier->waiters);
        return 0;
    }
    case COPY:
        warp->time += chip->tma_issue - 1;
        issue_copy(sim, warp, w, pc, time);
        return 1;
    case COPY_GROUP:
        return !copy_groups(warp, in, w, pc);
    case CP_GROUP: {
        f64 before = warp->time;
        cp_groups(warp, in, w);
        *waited(sim, warp, pc) += warp->time - before;
        return 1;
    }
    case MMA: multiply(sim, sm, cta, in, w, time); return 1;
    case TMEM_COPY: copy_to_tmem(sim, sm, cta, in, w, time); return 1;
    case COMMIT: commit(sim, sm, cta, w, time); return 1;
    case TMEM_LOAD: tensor_memory(sim, sm, warp, launch, in, w, time); return 1;
    case ALLOC:
        if (!chip->tensor_core) return 1;
        if (sm->columns + (s32)w[0] > 512 && !(in->skips & SKIP_WAIT)) {
            warp->at -= n + 1;  // another attempt when columns are free
            wait_for(warp, FOR_COLUMNS, pc, &sm->column_waiters);
            return 0;
        }
        sm->columns += (s32)w[0];
        cta->columns += (s32)w[0];
        warp->time += chip->tmem_alloc;
        return 1;
    case DEALLOC:
        if (!chip->tensor_core) return 1;
        sm->columns -= (s32)w[0];
        cta->columns -= (s32)w[0];
        wake_all(sim, &sm->column_waiters, time);
        return 1;
    case BAR: {
        NamedBarrier *bar = &cta->named[w[0] % NAMED];
        bar->arrived += 32;
        bar->time = later(bar->time, time);
        if (bar->arrived >= (s32)w[1]) {
            f64 done = bar->time + chip->bar_latency + chip->bar_warp * (f64)(w[1] / 32);
            bar->arrived = 0;
            bar->time = 0;
            wake_all(sim, &bar->waiters, done);
            if (!w[2] && !(in->skips & SKIP_WAIT)) {
                *waited(sim, warp, pc) += done - time;
                warp->time = later(warp->time, done);
                warp->block = later(warp->block, done);
            }
            return 1;
        }
        if (w[2] || in->skips & SKIP_WAIT) return 1;
        wait_for(warp, FOR_BAR, pc, &bar->waiters);
        return 0;
    }
    case CLUSTER: {
        Cluster *cluster = cta->cluster;
        if (!w[0]) {
            cluster->arrived++;
            warp->cluster_phase = cluster->phase + 1;
            if (in->variant) time = warp->time = later(time, warp->stored) + chip->cluster_release;
            cluster_arrives(sim, cluster, time);
            return 1;
        }
        if (cluster->phase >= warp->cluster_phase || in->skips & SKIP_WAIT) {
            warp->time += chip->bar_latency;
            return 1;
        }
        wait_for(warp, FOR_CLUSTER, pc, &cluster->waiters);
        return 0;
    }
    case GRID:
        if (n && w[0]) {
            trigger(sim, cta, time);
        } else if (!(in->skips & SKIP_WAIT) && launch->programmatic && cta->launch && sim->progress[cta->launch - 1].state < 2) {
            wait_for(warp, FOR_GRID, pc, &sim->progress[cta->launch - 1].waiters);
            return 0;
        }
        return 1;
    case CANCEL:
        arrive_later(sim, cta, warp->index, w[0], 0, -16, time + chip->cancel_latency);
        return 1;
    case SLEEP:
        if (in->skips & SKIP_WAIT) return 1;
        *waited(sim, warp, pc) += w[0];
        warp->time += w[0];
        return 1;
    case FENCE:
        if (in->variant) warp->time = later(warp->time, warp->stored) + chip->fence_wide;
        else warp->time += chip->fence;
        return 1;
    case EDIT:
        warp->time += in->latency;
        sm->edits = 1;
        return 1;
    }
    return 1;
}

// Returns whether a conditional branch skips only one of the two sides of a condition, and a short one: an unconditional
// branch over the other side ends it.
static int skips_a_side(const Launch *launch, s64 pc) {
    for (s64 i = pc + 1; i <= pc + PREDICATED && i < launch->instruction_count; i++)
        if (launch->instructions[i].kind == BRANCH) return !launch->instructions[i].sources;
    return 0;
}

// Marks the branches that a launch's first CTA takes, if only a few instructions forwards, as predicated, and those of
// conditions with two sides, both of which its warps may take.
void find_predicated(Launch *launch) {
    for (s64 at = launch->starts[0], end = launch->starts[launch->warps]; at < end;) {
        const u32 *operands, *record = launch->words + at;
        s32 n = words_of(record, &operands), pc = (s32)pc_of(*record);
        at = operands - launch->words + n;
        Instruction *in = launch->instructions + pc;
        if (in->kind != BRANCH) continue;
        s32 skipped = at < end ? (s32)pc_of(launch->words[at]) - pc - 1 : -1;
        if (skipped < 0 || skipped > PREDICATED) in->variant = FAR;
        else if (skipped && in->variant != FAR) in->variant = NEAR;
    }
    for (s64 pc = 0; pc < launch->instruction_count; pc++) {
        Instruction *in = launch->instructions + pc;
        if (in->kind == BRANCH && in->variant == NOWHERE) in->variant = !in->sources || skips_a_side(launch, pc) ? NEAR : FAR;
    }
}

// The first of a warp's deferred stores. Returns 0 if another event comes first.
static int do_deferred(Sim *sim, Sm *sm, Warp *warp, Launch *launch, f64 next) {
    const Deferred *first = &warp->deferred[warp->first_deferred];
    const u32 *operands, *record = launch->words + first->at;
    s32 n = words_of(record, &operands), pc = (s32)pc_of(*record);
    if (first->ready > warp->time) {
        *waited(sim, warp, pc) += first->ready - warp->time;
        note(sim, STALLS, warp->cta, warp->index, pc, warp->time, first->ready);
        warp->time = first->ready;
    }
    if (warp->time > next) {
        post(sim, warp->time, WARP_RUNS, warp, 0, 0);
        return 0;
    }
    warp->first_deferred = (warp->first_deferred + 1) % DEFERRED;
    warp->deferred_count--;
    effect(sim, sm, warp, launch, launch->instructions + pc, operands, n, pc, warp->time);
    return 1;
}

static int stores_to_shared(const Instruction *in, const u32 *operands, s32 n) {
    return in->kind == STORE && n && (operands[0] & 0xff) == 1;
}

// Returns whether deferred stores let an instruction pass.
static int passes(const Instruction *in, const u32 *operands, s32 n) {
    return (in->kind == BRANCH && in->variant == NEAR) || (in->kind == LOAD && n && !(operands[0] & 0xff));
}

// Executes a warp's records until it has to wait or is ahead of other events.
void run_warp(Sim *sim, Warp *warp) {
    Cta *cta = warp->cta;
    Launch *launch = &sim->launches[cta->launch];
    Sm *sm = &sim->sms[cta->sm];
    f64 next = next_event(sim);
    for (;;) {
        if (warp->at >= warp->end) {
            if (warp->deferred_count) {
                if (!do_deferred(sim, sm, warp, launch, next)) return;
                next = next_event(sim);
                continue;
            }
            f64 time = later(warp->time, warp->block);
            if (time > next) {
                warp->time = time;
                post(sim, time, WARP_RUNS, warp, 0, 0);
            } else {
                warp_over(sim, warp, time);
            }
            return;
        }
        const u32 *record = launch->words + warp->at, *operands;
        s32 n = words_of(record, &operands), pc = (s32)pc_of(*record);
        const Instruction *in = launch->instructions + pc;
        s64 following = operands - launch->words + n;
        if (in->kind == WAIT && n && !operands[2] && skip_poll(warp, launch, (u32)pc, operands, following)) continue;
        if (in->kind == PLAIN) {
            if (warp->time > next + AHEAD) {
                post(sim, warp->time, WARP_RUNS, warp, 0, 0);
                return;
            }
            plain(sim, sm, warp, launch, in, next);
            launch->busy[warp->index] += in->issue;
            warp->at = following;
            continue;
        }
        int ends_block = in->kind == TMEM_WAIT || (in->kind == BRANCH && in->variant != NEAR);
        int defers = stores_to_shared(in, operands, n) && warp->deferred_count < DEFERRED;
        if (warp->deferred_count) {
            int is_due = warp->deferred[warp->first_deferred].ready <= warp->time;
            if (is_due || !(defers || passes(in, operands, n))) {
                if (!do_deferred(sim, sm, warp, launch, next)) return;
                next = next_event(sim);
                continue;
            }
        }
        f64 time = later(warp->time, sm->ports[warp->partition]);
        f64 data = 0;
        if (!(in->skips & SKIP_DATA)) data = later(ends_block ? warp->block : 0, sources_ready(warp, launch, in));
        if (defers && (data > time || warp->deferred_count)) {
            take(&sm->ports[warp->partition], time, next, in->issue);
            s32 last = (warp->first_deferred + warp->deferred_count++) % DEFERRED;
            warp->deferred[last] = (Deferred){warp->at, data};
            warp->time = time + in->issue;
            launch->busy[warp->index] += in->issue;
            warp->at = following;
            continue;
        }
        if (in->kind == TMEM_WAIT && !(in->skips & SKIP_WAIT)) data = later(data, warp->tmem_ready);
        if (data > time) {
            *waited(sim, warp, pc) += data - time;
            if (data > time + 1) note(sim, STALLS, cta, warp->index, pc, time, data);
            time = data;
            warp->time = time;
        }
        if (time > next && in->kind != BRANCH) {
            warp->time = time;
            post(sim, time, WARP_RUNS, warp, 0, 0);
            return;
        }
        take(&sm->ports[warp->partition], time, next, in->issue);
        warp->time = time + in->issue;
        launch->busy[warp->index] += in->issue;
        warp->at = following;
        if (in->kind == BRANCH || in->kind == TMEM_WAIT) {
            if (ends_block) warp->block = warp->time;
            continue;
        }
        if (!effect(sim, sm, warp, launch, in, operands, n, pc, time)) return;
        next = next_event(sim);
    }
}
