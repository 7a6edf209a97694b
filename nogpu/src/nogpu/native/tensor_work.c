// The tensor core's work: issue of tcgen05.mma, cp and commit, and their execution, under the schedule "late".
//
// Python executes the first instruction with given operands and makes a plan of it (hardware/tensor/work.py): whatever
// depends on the operands alone is known to be legal. Facts that may change are checked here, at the issue and when the
// work is done; if one is not plainly right, Python does that piece of work.

#include "engine.h"
#include "tensor_work.h"

// The registers of a tcgen05.mma or cp; compiler/opcodes/tcgen05.py packs it.
typedef struct {
    s32 slots[WORK_OPERANDS];
    u32 rows, wide, predicates;  // bits, set if the slot holds a row; if it has 64 bits per lane; if it is a predicate
    s32 count, group, is_mma;
} IssueOperands;

// Those of a tcgen05.commit.
typedef struct {
    s64 displacement;    // of the mbarrier's address
    s32 address, ranks;  // slots; -1: the displacement is the address; there is no multicast
    u32 row, wide;       // nonzero if the address is a row; if it has 64 bits per lane
    s32 group, unused;
} CommitOperands;

static u64 register_of(const Context *ctx, s32 slot, int row, int wide, int lane) {
    const u8 *held = ctx->file + slot;
    if (!row) lane = 0;
    return wide ? ((const u64 *)held)[lane] : ((const u32 *)held)[lane];
}

static u64 value_of(const Context *ctx, const IssueOperands *operands, int i, int lane) {
    int row = operands->rows >> i & 1;
    if (operands->predicates >> i & 1) return *(const u32 *)(ctx->file + operands->slots[i]) >> (row ? lane : 0) & 1;
    return register_of(ctx, operands->slots[i], row, operands->wide >> i & 1, lane);
}

// The place in the table at which the search for a key begins.
static u64 first_place(u64 description, const u64 *values) {
    u64 hash = description;
    for (int i = 0; i < WORK_OPERANDS; i++) hash = (hash ^ values[i]) * 0x9e3779b97f4a7c15u, hash ^= hash >> 29;
    return hash % PLACES;
}

static const TensorPlan *plan_of(const TensorWork *work, u64 description, const u64 *values) {
    u64 place = first_place(description, values);
    for (int i = 0; i < PROBES; i++) {
        const TensorPlan *plan = work->plans[(place + i) % PLACES];
        if (!plan) return 0;
        if (plan->description == description && !memcmp(plan->values, values, sizeof plan->values)) return plan;
    }
    return 0;
}

// Adds a plan to a table. Returns 0 if there is no room.
int learn_plan(TensorPlan **plans, TensorPlan *plan) {
    u64 place = first_place(plan->description, plan->values);
    for (int i = 0; i < PROBES; i++) {
        TensorPlan **found = &plans[(place + i) % PLACES];
        if (*found) continue;
        *found = plan;
        return 1;
    }
    return 0;
}

// The queue of the thread that issues an instruction; NULL if Python has to execute it.
static TensorQueue *queue_of(const Context *ctx, int group) {
    const TensorUser *user = ctx->tensor;
    if (!ctx->turns || !ctx->turns->work || !user || !user->queue || user->in_python) return 0;
    if (ctx->mask != lane_bit((int)user->lane) || user->queue->count == user->queue->room) return 0;
    const TensorMemory *memory = ctx->windows[ctx->rank]->tensor;
    return memory && memory->cta_group == group ? user->queue : 0;
}

static IssuedWork *add_work(Context *ctx, TensorQueue *queue, s64 kind, s64 pc) {
    const TensorUser *user = ctx->tensor;
    IssuedWork *entry = &queue->entries[(queue->first + queue->count++) & (queue->room - 1)];
    ctx->turns->work->count++;
    entry->kind = kind;
    entry->issuer = ctx;
    entry->pc = pc;
    entry->release = user->issued;
    entry->after = user->after;
    entry->synced = ctx->synced;
    entry->known = ctx->known;
    return entry;
}

static u32 first_rank(const Context *ctx, s64 ctas) { return ctas == 2 ? ctx->rank & ~1u : ctx->rank; }

// Returns 1 if the issuer knows that the plan's CTAs have started, and they have its columns and bytes.
static int is_placed(const Context *ctx, const TensorPlan *plan, u64 known) {
    u32 first = first_rank(ctx, plan->ctas);
    if (first + plan->ctas > ctx->cluster_size || plan->end > ctx->shared_end) return 0;
    for (u32 rank = first; rank < first + plan->ctas; rank++) {
        const Window *window = ctx->windows[rank];
        if (!(known >> rank & 1) || window->closed || !window->tensor) return 0;
        u8 missing = 0;
        for (int i = 0; i < TMEM_COLUMNS; i++) missing |= plan->columns[i] & ~window->tensor->owned[i];
        if (missing) return 0;
    }
    return 1;
}

// tcgen05.mma and cp.
KERNEL(tensor_issue) {
    const IssueOperands *operands = (const IssueOperands *)op->x;
    TensorQueue *queue = queue_of(ctx, operands->group);
    if (!queue || (operands->is_mma && operands->group == 2 && ctx->rank & 1)) return to_python(ctx, op);
    TensorWork *work = ctx->turns->work;
    u64 values[WORK_OPERANDS] = {0};
    for (int i = 0; i < operands->count; i++) values[i] = value_of(ctx, operands, i, (int)ctx->tensor->lane);
    const TensorPlan *plan = plan_of(work, (u64)op->x, values);
    if (!plan) {
        work->description = (u64)op->x;
        memcpy(work->values, values, sizeof values);
        work->is_missed = 1;
        const Op *next = to_python(ctx, op);
        work->is_missed = 0;
        return next;
    }
    if (!is_placed(ctx, plan, ctx->known)) return to_python(ctx, op);
    complete_stores(ctx);
    add_work(ctx, queue, BY_PLAN, op->pc)->plan = plan;
    return op + 1;
}

static Barrier *live_barrier(const Context *ctx, u32 rank, u64 offset) {
    const Window *window = ctx->windows[rank];
    return window->closed || !window->barriers ? 0 : window->barriers[offset >> 3];
}

// tcgen05.commit.
KERNEL(tensor_commit) {
    const CommitOperands *operands = (const CommitOperands *)op->x;
    TensorQueue *queue = queue_of(ctx, operands->group);
    TensorUser *user = ctx->tensor;
    if (!queue || user->supplied == RELEASES) return to_python(ctx, op);
    int lane = (int)user->lane;
    u64 address = (u64)operands->displacement;
    if (operands->address >= 0)
        address += register_of(ctx, operands->address, operands->row != 0, operands->wide != 0, lane);
    u64 offset = address & ((1 << RANK_SHIFT) - 1), own = address >> RANK_SHIFT, ranks = (u64)1 << (own & 63);
    if (own >= ctx->cluster_size || !(ctx->known >> own & 1) || offset & 7 || offset + 8 > ctx->shared_end)
        return to_python(ctx, op);
    if (operands->ranks >= 0) ranks = *(const u16 *)(ctx->file + operands->ranks);
    if (!ranks || ranks >> ctx->cluster_size || ranks & ~ctx->known) return to_python(ctx, op);
    Barrier *targets[RANKS_OF_CLUSTER];
    int count = 0;
    for (u32 rank = 0; rank < ctx->cluster_size; rank++) {
        if (!(ranks >> rank & 1)) continue;
        if (!(targets[count++] = live_barrier(ctx, rank, offset))) return to_python(ctx, op);
    }
    IssuedWork *entry = add_work(ctx, queue, BY_COMMITTING, op->pc);
    entry->ranks = ranks;
    memcpy(entry->targets, targets, count * sizeof *targets);
    user->issued = &user->supply[user->supplied++];
    return op + 1;
}

// Returns 1 if an arrival at the mbarrier is plainly legal, and Python has nothing to do about it.
static int is_open_to_arrival(const Turns *turns, const Context *ctx, s64 pc, u32 rank, const Barrier *barrier) {
    if (live_barrier(ctx, rank, (u64)barrier->offset) != barrier) return 0;
    if (barrier->waiting || !barrier->pending) return 0;
    if (!needs_no_report(turns, barrier, rank == ctx->rank, pc)) return 0;
    return rank == ctx->rank || barrier->rank_warps[ctx->rank] == ctx->warp + 1;
}

static void arrive(Turns *turns, const Context *ctx, s64 pc, u64 known, u32 rank, Barrier *barrier) {
    if (rank == ctx->rank) barrier->warp_phases[ctx->warp] = barrier->phase;
    else barrier->rank_phases[ctx->rank] = barrier->phase;
    barrier->last_rank = (s32)ctx->rank;
    barrier->last_warp = ctx->warp;
    barrier->last_pc = (s32)pc;
    barrier->last_kind = BY_COMMIT;
    barrier->heard |= known;
    barrier->pending--;
    if (ends_phase(barrier, turns->progress)) wake_listed(barrier);
}

static void happens(Turns *turns) {
    turns->progress++;
    turns->delayed = 0;
}

// Returns 1 if the plan reads bytes that threads have stored and the async proxy may not see.
static int reads_marked(const TensorPlan *plan, const Window *window) {
    const StoreMarks *marked = window->marked;
    s32 found = 0;
    if (!marked || !marked->live) return 0;
    for (int i = 0; i < READ_OPERANDS; i++)
        for (s64 j = 0; j < plan->place_counts[i]; j++) found |= marked->marks[plan->places[i][j]];
    return found != 0;
}

static int run_plan(Turns *turns, const IssuedWork *entry) {
    const TensorPlan *plan = entry->plan;
    const Context *ctx = entry->issuer;
    if (!is_placed(ctx, plan, entry->known)) return 0;
    const Window *first = ctx->windows[first_rank(ctx, plan->ctas)];
    const Window *last = ctx->windows[first_rank(ctx, plan->ctas) + plan->ctas - 1];
    if (first->observed || last->observed || reads_marked(plan, first) || reads_marked(plan, last)) return 0;
    int fences = ctx->tensor->fences != 0;
    for (const Window *window = first;; window = last) {
        if (!order_access(window->tensor->order, ctx, entry->release, entry->pc, entry->after, fences, plan->reads,
                          plan->writes, 0))
            return 0;
        if (window == last) break;
    }
    if (plan->copy) {
        copy_to_tensor_memory(plan->copy, first, first->tensor->words);
        if (last != first) copy_to_tensor_memory(plan->copy, last, last->tensor->words);
    } else {
        if (multiply_parts(plan->products, plan->parts, first->data, first->tensor->words, last->data,
                           last->tensor->words))
            return 0;
        turns->work->mma++;
        turns->work->flops += plan->flops;
    }
    happens(turns);
    return 1;
}

static int run_commit(Turns *turns, const IssuedWork *entry) {
    TensorWork *work = turns->work;
    const Context *ctx = entry->issuer;
    int others = __builtin_popcountll(entry->ranks & ~((u64)1 << ctx->rank));
    if (work->arrival_count + others > ARRIVALS) return 0;
    for (u32 rank = 0, i = 0; rank < ctx->cluster_size; rank++) {
        if (!(entry->ranks >> rank & 1)) continue;
        const Barrier *target = entry->targets[i++];
        if (rank == ctx->rank ? !is_open_to_arrival(turns, ctx, entry->pc, rank, target) : ctx->windows[rank]->closed) return 0;
    }
    happens(turns);
    entry->release->time = turns->progress;
    for (u32 rank = 0, i = 0; rank < ctx->cluster_size; rank++) {
        if (!(entry->ranks >> rank & 1)) continue;
        Barrier *target = entry->targets[i++];
        if (rank == ctx->rank) {
            arrive(turns, ctx, entry->pc, entry->known, rank, target);
            continue;
        }
        PendingArrival *arrival = &work->arrivals[(work->first_arrival + work->arrival_count++) % ARRIVALS];
        *arrival = (PendingArrival){target, rank, entry->issuer, entry->pc, entry->known};
    }
    return 1;
}

static int run_arrival(Turns *turns) {
    TensorWork *work = turns->work;
    const PendingArrival *arrival = &work->arrivals[work->first_arrival % ARRIVALS];
    if (!is_open_to_arrival(turns, arrival->issuer, arrival->pc, (u32)arrival->rank, arrival->target)) return 0;
    happens(turns);
    arrive(turns, arrival->issuer, arrival->pc, arrival->known, (u32)arrival->rank, arrival->target);
    work->first_arrival++;
    work->arrival_count--;
    return 1;
}

// Returns 1 if an arrival or work of a thread is on its way to the mbarrier, which has ended.
int awaits_work(const TensorWork *work, const Barrier *barrier) {
    for (s64 i = 0; i < work->arrival_count; i++)
        if (work->arrivals[(work->first_arrival + i) % ARRIVALS].target == barrier) return 1;
    for (s64 q = 0; q < work->queue_count; q++) {
        const TensorQueue *queue = work->queues[q];
        for (s64 i = 0; i < queue->count; i++) {
            const IssuedWork *entry = &queue->entries[(queue->first + i) & (queue->room - 1)];
            if (entry->kind != BY_COMMITTING) continue;
            for (int t = 0; t < __builtin_popcountll(entry->ranks); t++)
                if (entry->targets[t] == barrier) return 1;
        }
    }
    return 0;
}

// The first queue with work, NULL if there is none.
TensorQueue *first_queue(const TensorWork *work) {
    for (s64 q = 0; work->count && q < work->queue_count; q++)
        if (work->queues[q]->count) return work->queues[q];
    return 0;
}

// Executes the first arrival at an mbarrier of another CTA, or else the first work of the first thread that has some.
// Returns 1 if it has, 0 if there is nothing to do, -1 if Python has to do it.
int run_tensor(Turns *turns) {
    TensorWork *work = turns->work;
    if (work->arrival_count) return run_arrival(turns) ? 1 : -1;
    if (turns->arrivals) return -1;
    TensorQueue *queue = first_queue(work);
    if (!queue) return 0;
    const IssuedWork *entry = &queue->entries[queue->first & (queue->room - 1)];
    int done = entry->kind == BY_PLAN ? run_plan(turns, entry) : entry->kind == BY_COMMITTING && run_commit(turns, entry);
    if (!done) return -1;
    queue->first++;
    queue->count--;
    work->count--;
    return 1;
}
