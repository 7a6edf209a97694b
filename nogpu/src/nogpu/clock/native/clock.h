// A chip in time: what replays recorded launches (clock/trace.py). Times are cycles of the SMs' clock, as doubles.
//
// Everything that happens is an event of one heap, in order of time. A warp's event lets it go on with its records until
// it has to wait or is ahead of the others. What is shared by many and asked for in any order of time (DRAM channels, L2
// slices, ports of SMs) is a Server: a rate, kept as work done per interval.

#pragma once

#include <math.h>
#include <stdlib.h>

#include "../../native/types.h"

// The constants of a chip profile, in the order in which Python passes them. Latencies are cycles, rates bytes a cycle.
#define CONSTANTS(X)                                                                                                  \
    X(sms) X(sm_shared_bytes) X(sm_threads) X(sm_registers) X(sm_ctas)                                                \
    X(l2_bytes) X(l2_storage) X(l2_dirty) X(l2_ways) X(l2_slices) X(l2_rate) X(l2_write_cost) X(l2_outside_cost)      \
    X(l2_latency) X(l2_far) X(l2_coalesces) X(l2_halves) X(l2_link_rate)                                              \
    X(dram_channels) X(dram_rate) X(dram_latency) X(dram_spread) X(dram_write_cost) X(dram_idle_clean_share)          \
    X(sm_in_rate) X(sm_out_rate) X(l1_lines) X(l1_latency) X(lsu_line) X(lsu_in_flight)                               \
    X(tma_issue) X(tma_box) X(tma_line) X(tma_latency) X(tma_store_latency) X(tma_store_line)                         \
    X(tma_map_miss) X(tma_map_edited) X(parameter_miss)                                                               \
    X(shared_latency) X(shared_wavefront) X(remote_latency) X(remote_rate)                                            \
    X(atomic_latency) X(atomic_line) X(store_issue)                                                                   \
    X(mbarrier_arrive) X(mbarrier_visible) X(mbarrier_remote) X(mbarrier_wait) X(mbarrier_test)                       \
    X(bar_latency) X(bar_warp) X(cluster_latency) X(cluster_release) X(warp_sync) X(fence) X(fence_wide)              \
    X(tensor_core) X(mma_issue) X(mma_latency) X(mma_pair) X(mma_scaled) X(mma_columns_rate) X(mma_operand_rate)      \
    X(commit_latency) X(cp_rate)                                                                                      \
    X(tmem_load_latency) X(tmem_load_rate) X(tmem_store_rate) X(tmem_alloc)                                           \
    X(launch_gap) X(launch_cold) X(launch_ahead) X(launch_fetch) X(launch_overlap) X(launch_period) X(launch_cta)     \
    X(launch_first) X(cta_interval) X(cta_start) X(cta_exit)                                                          \
    X(cluster_start) X(grid_end) X(grid_wait) X(cancel_latency)

typedef struct {
#define X(name) f64 name;
    CONSTANTS(X)
#undef X
} Chip;

// The destination of a branch: unknown, an instruction of its block, or another block.
enum Leads { NOWHERE, NEAR, FAR };

// The class of an instruction.
enum Class {
    PLAIN, BRANCH, LOAD, STORE, ATOMIC, CP_ASYNC, SHARED, MBARRIER, WAIT, INIT, COPY, COPY_GROUP, CP_GROUP, MMA, TMEM_COPY,
    COMMIT, TMEM_LOAD, TMEM_WAIT, ALLOC, DEALLOC, BAR, CLUSTER, GRID, CANCEL, SLEEP, FENCE, EXIT, ASYNC_STORE,
    CP_ARRIVE, MAP_PREFETCH, EDIT
};

// The costs and properties of an instruction, by pc.
typedef struct {
    u8 kind, pipe;
    u8 variant, of_launch;  // see costs.py; reads the launch's parameters
    f32 issue;        // cycles of the partition's issue port
    f32 interval;     // cycles of the pipe
    f32 latency;      // of the result
    u32 values;       // index of its first register in the table of registers
    u8 sources, results;
    u8 skips, pad;    // what of its waits costs nothing, in a replay that asks what a wait costs
} Instruction;

enum Skips { SKIP_WAIT = 1, SKIP_DATA = 2 };  // at waits for others; at waits for its sources

enum { PARTITIONS = 4, PIPES = 8 };

// A shared rate: the work done in each interval of BUCKET cycles of a window.
enum { BUCKET = 32, WINDOW = 512 };
typedef struct {
    f64 capacity;       // of a bucket
    s64 base;           // number of the window's first bucket
    s64 low, open;      // buckets in [low, open) are full
    f32 used[WINDOW];
} Server;
f64 serve(Server *server, f64 time, f64 amount);

// Writes of a DRAM channel that L2 has done in advance, while the channel was idle.
typedef struct { f64 work, at, bytes; } Cleaner;

// A launch's recording, and its way of launching.
typedef struct {
    const u32 *words;
    const s64 *starts;          // [ctas][warps + 1]
    Instruction *instructions;
    const u32 *values;          // registers of instructions: sources, then results
    s64 instruction_count, value_count;
    s32 ctas, warps, cluster, threads;
    s32 shared_bytes, registers;
    s32 programmatic, skips;    // skips: some instructions have skips
    u64 salt;                   // added to the lines' numbers: other data than the other launches'
    f64 *waits;                 // [warps][instruction_count]: cycles that warps have waited at each instruction
    f64 *busy;                  // [warps]: cycles of issue
} Launch;

typedef struct Warp Warp;
typedef struct Cta Cta;

// An arrival of a phase that has not begun, by a warp that has skipped the wait for it.
typedef struct Early {
    struct Early *next;
    s64 arrivals, bytes;
    s32 cause;
} Early;

typedef struct {
    u32 offset;
    s32 expected, pending;
    s64 bytes, phase;
    Warp *waiters;
    Early *early;               // in their order
} Barrier;

typedef struct {
    s32 arrived, needed;
    Warp *waiters;
    f64 time;
} NamedBarrier;

enum { NAMED = 16, GROUPS = 64, LOADS = 1024 };

// Bulk groups, or groups of cp.async, of a warp.
typedef struct {
    s32 reads[GROUPS], writes[GROUPS];  // operations of the group that read their source; that are not over
    s32 first, next;                    // group `next` is the one that collects
} Groups;

// A store to shared memory whose source is not there yet.
enum { DEFERRED = 32 };
typedef struct { s64 at; f64 ready; } Deferred;

enum WaitFor { NOTHING, FOR_PHASE, FOR_BAR, FOR_CLUSTER, FOR_GROUPS, FOR_GRID, FOR_COLUMNS };

struct Warp {
    Cta *cta;
    s32 index, partition;
    s64 at, end;             // records
    f64 time;                // of the next instruction, at the earliest
    f64 block;               // latest start of an instruction of the basic block
    f64 began;               // of the wait
    s32 waits, waited_pc;
    s64 waited_phase;
    s32 groups_allowed, groups_read;
    Warp *next;              // in a list of waiters
    f64 *ready;              // by register: when its value is there
    f64 tmem_ready, copies_ready;  // tensor memory loads; cp.async
    f64 stored;              // when its stores are where others see them
    f64 shared_ready;
    Deferred deferred[DEFERRED];  // in a ring
    s32 first_deferred, deferred_count;
    Groups bulk;
    f64 cp_groups[GROUPS];
    s32 cp_first, cp_next;
    s32 cluster_phase;
    s32 is_over;
};

typedef struct Cluster {
    Cta **ctas;
    s32 size, arrived, phase, alive;
    Warp *waiters;
    f64 time;
    struct Cluster *next;       // of all that there were
} Cluster;

struct Cta {
    s32 launch, index, sm, alive;
    Cluster *cluster;
    s32 rank, barrier_count, barrier_room;
    Barrier *barriers;
    NamedBarrier named[NAMED];
    Warp *warps;
    f64 started, stores;     // stores: when the last of its stores is over
    s32 columns;
    s32 triggered;
};

// A tensor or bulk copy in work.
typedef struct Copy {
    struct Copy *next;
    Cta *cta;
    Warp *warp;
    s32 pc;                     // pc of a tensor copy, else 0
    s32 kind, group;            // 1 load, 2 store, 3 to another CTA, 4 prefetch
    u32 mask, mbarrier;         // mbarrier: its place
    u32 destination;
    s32 pair;
    s64 bytes;                  // to each destination
    const u32 *box;             // records
    s32 boxes;
    // Cursor over the lines.
    s32 row[4], entered;
    u64 inside;                 // finished bytes of the row
    const u32 *last_box;
    s64 outside, filled;        // bytes that lie outside of the tensor, those of them that are done
    f64 issued, began, last;    // latest arrival
    f64 read;
} Copy;

typedef struct {
    Server in, out;
    s32 warm;                // latest launch that has begun here; its parameters' arrival, its tensor maps in use
    s32 edits;               // a warp has edited a tensor map here
    f64 maps_ready;          // when those are there that a warp has asked for; 0: none has
    f64 parameters;
    u64 maps;
    f64 ports[PARTITIONS], pipes[PARTITIONS][PIPES];
    f64 lsu, shared;
    f64 tensor, tensor_front;  // when the tensor core has done its products; when it takes the next instruction
    f64 remote;              // when the way to other SMs' shared memory is free
    f64 engine;              // when the copy engine can take the next line
    Copy *copies, *last_copy;  // queue of the engine
    s32 engine_runs;
    f64 in_flight;           // bytes that the engine has asked for and not got
    f64 loads[LOADS];        // ring: when loads in flight are over
    s32 load_at;
    u64 *l1;                 // lines
    f64 *l1_ready;
    s32 threads, ctas, shared_bytes, registers, columns;
    Warp *column_waiters;
    f64 busy_tensor, bytes_in, bytes_out;
} Sm;

// A line of L2. Its tag lies apart, with those of its set: a look-up touches two lines of the host's caches.
typedef struct { f64 ready; u32 used; u8 sectors, dirty; } Line;

// A line that neighbouring SMs have asked L2 for: those of them that ask before it comes get it with the first.
typedef struct { u64 line; f64 ready; u32 sectors; } Asked;
enum { ASKED = 4096 };

typedef struct {
    f64 start, end, first_cta;
    f64 read;                   // bytes from DRAM before it
    s32 pending;                // clusters that have not started
    s32 alive;                  // CTAs that have not ended
    s32 copies;                 // copies out of shared memory that are not over
    s32 triggers;               // CTAs that have neither triggered nor exited
    s32 state;                  // 0 not launched, 1 launched, 2 over
    Warp *waiters;              // warps that wait for the end of this launch
} Progress;

enum EventKind { WARP_RUNS, ENGINE_RUNS, COPY_ENDS, COPY_READ, ARRIVES, PLACES, CTA_STARTS, GRID_STARTS, GRID_ENDS };
typedef struct {
    f64 time;
    u64 order;
    s32 kind, number;
    void *what;
    s64 a, b;
} Event;

// For timelines. Of a SIGNAL, from the end of an mbarrier's phase to a warp that has waited for it, pc is what has ended it:
// sm << 8 | track, a warp of a CTA there or one of those below.
enum SpanKind { CTA_LIVES, WAITS, STALLS, MULTIPLIES, COPIES, SIGNAL };
enum { ENGINE_TRACK = 254, TENSOR_TRACK = 255 };
typedef struct { f64 start, end; s32 sm, launch, cta, warp, kind, pc; } Span;

typedef struct Sim {
    Chip chip;
    Launch *launches;
    Progress *progress;
    s32 count, placing;
    s32 places_due, clusters_per_turn;
    Sm *sms;
    Line *l2;
    u32 *tags;
    Asked *asked;               // [groups of l2_coalesces SMs][ASKED]
    s64 l2_sets;
    u32 l2_clock;
    Cleaner *cleaners;          // of the channels
    f64 dirty;                  // bytes in L2 that are to be written
    Server *slices, *channels, *links;  // links: between the halves of L2, to each
    Event *heap;
    s64 events, room;
    u64 order;
    f64 now;
    f64 dram_read, dram_written, l2_hits, l2_misses;
    f64 dispatch;               // when the next CTA can be dispatched
    Cluster *clusters;          // all that there were
    Span *spans;
    s64 span_count, span_room;
    const s32 *gpc_ends;        // [gpcs]: number of the last SM of each, plus 1
    s32 gpcs, next_gpc;
    f64 flushed;                // bytes in L2 that someone else has written before the first launch
    const char *error;
    s64 error_detail[4];
} Sim;

void post(Sim *sim, f64 time, s32 kind, void *what, s64 a, s64 b);
void post_from(Sim *sim, f64 time, s32 kind, s32 number, void *what, s64 a, s64 b);
f64 access_line(Sim *sim, s32 sm, u64 line, u32 sectors, f64 time, int writes);
f64 zeros_of_l2(Sim *sim, s32 sm, u64 line, f64 bytes, f64 time);
f64 load_lines(Sim *sim, Sm *sm, const u32 *words, int lines, u64 salt, f64 time, int cached);
f64 store_lines(Sim *sim, Sm *sm, const u32 *words, int lines, u64 salt, f64 time);
f64 to_peer(Sim *sim, Sm *sm, f64 bytes, f64 time);
void issue_copy(Sim *sim, Warp *warp, const u32 *words, s32 pc, f64 time);
void run_engine(Sim *sim, s32 sm);
void end_copy(Sim *sim, Copy *copy);
void copy_read(Sim *sim, Copy *copy);
Barrier *barrier_at(Cta *cta, u32 offset);
void init_barrier(Cta *cta, u32 offset, s32 count);
void take_early(Sim *sim, Cta *cta, u32 offset, f64 time);
void arrive(Sim *sim, Cta *cta, u32 offset, s64 arrivals, s64 bytes, s32 cause, f64 time);
void note(Sim *sim, s32 kind, const Cta *cta, s32 warp, s32 pc, f64 start, f64 end);
void find_predicated(Launch *launch);
void run_warp(Sim *sim, Warp *warp);
void resume(Sim *sim, Warp *warp, f64 time);
void wake_all(Sim *sim, Warp **list, f64 time);
void start_grid(Sim *sim, s32 launch, f64 time);
void place_clusters(Sim *sim);
void start_cta(Sim *sim, Cta *cta);
void warp_over(Sim *sim, Warp *warp, f64 time);
void trigger(Sim *sim, Cta *cta, f64 time);
void end_grid(Sim *sim, s32 launch);
void end_if_over(Sim *sim, s32 launch, f64 time);
void cluster_arrives(Sim *sim, Cluster *cluster, f64 time);
void fail(Sim *sim, const char *error, s64 a, s64 b, s64 c, s64 d);
static inline Cta *peer(Cta *cta, u32 place) { return cta->cluster->ctas[place >> 24]; }
static inline f64 later(f64 a, f64 b) { return a > b ? a : b; }
static inline s32 words_of(const u32 *record, const u32 **operands) {
    u32 n = *record >> 24;
    if (n == 255) { *operands = record + 2; return (s32)record[1]; }
    *operands = record + 1;
    return (s32)n;
}
static inline u32 pc_of(u32 word) { return word & 0x7fffff; }
