// The base of compiled kernels: structures, which Python reads from this text (headers.py), and macros.
//
// A program is an array of Ops. Each names a kernel, a C function that works on the warp's register file and returns the
// next Op, or NULL if the turn ends; Context.result then gives the reason. A slot of the register file holds a row of 32
// lanes, or one value that is the same in every lane, in 8 bytes. A predicate is a mask of lanes, or 0 or 1.

#pragma once

#include "vectors.h"

#define FULL 0xffffffffu

enum { LANES = 32, WARPS = 32, RANKS_OF_CLUSTER = 16 };  // lanes of a warp; warps of a CTA, CTAs of a cluster, at most

// Shared addresses: the first 1 KiB of a CTA's window belongs to the system; the bits from RANK_SHIFT on are the CTA's rank
// in its cluster.
enum { SHARED_BASE = 0x400, RANK_SHIFT = 24 };
enum { SHARED_TAG = 1, LOCAL_TAG = 2, TAG_SHIFT = 56 };  // tags of generic addresses
enum { UNWRITTEN = 0x7fb1a5ed };  // a word in memory that is uninitialised for the sanitizer
enum { COUNT_LIMIT = (1 << 20) - 1 };  // of an mbarrier (PTX ISA, "Size and alignment of mbarrier object")

// A live allocation of global memory; arrays of them are in order of the addresses and end with an empty one.
typedef struct {
    u64 start, end;      // addresses
    u8 *marks;           // marks of stores, one per byte; NULL: nobody asks which bytes are stored
    s64 requested;       // bytes of the stores
    s64 low, high;       // offsets: all marks that stores have set are in [low, high)
    s64 writable;
    s64 first, last;     // offsets: all that threads have loaded, stored or changed, if not is_whole, is in [first, last)
    s64 is_whole;        // nonzero if any of it may have been accessed
} Allocation;

typedef struct Context Context;
typedef struct Op Op;

// An mbarrier (hardware/mbarriers.py).
typedef struct Barrier {
    s32 expected, pending;  // arrivals per phase; arrivals missing in this phase
    s64 bytes;              // tx-count
    s64 phase;
    s64 ended;              // time when the last phase ended
    u64 heard, news;        // ranks known to those who have arrived: so far; until the last phase's end
    s32 delivered;          // nonzero if bytes have arrived in this phase
    s32 waiting;            // groups that wait and that Python keeps
    s32 last_warp, last_pc; // warp and pc of the last arrival if compiled code has performed it, else -1
    s32 offset;             // offset in the CTA's shared memory
    s32 last_kind;          // BY_THREAD to BY_COMMIT, and
    s32 last_rank;          // rank of the CTA, of the last arrival if compiled code has performed it
    s32 hidden;             // those who may not see its initialisation: nobody (0), FROM_ASYNC or FROM_ALL
    s32 initial_warp, initial_pc;  // warp and pc of its initialisation
    s64 initialised;        // time of that
    struct Barrier *next_hidden;  // next one of the CTA's that is hidden from anybody
    s64 warp_phases[WARPS]; // phase of each warp's last arrival in compiled code; -1: none
    s64 rank_phases[RANKS_OF_CLUSTER];  // the same of a warp of another CTA, by its rank
    s64 rank_warps[RANKS_OF_CLUSTER];   // 1 + that warp; 0: none
    Context *first, *last_listed;  // list of the warps whose one group waits; all have waited longer than those of Python
} Barrier;

enum { BY_THREAD, BY_TILE_LOAD, BY_COMMIT };
enum { FROM_ASYNC = 1, FROM_ALL };  // the async proxy; it and threads of other CTAs

// Doubts that Python has reported in this run: arrivals at mbarriers of the own CTA that may not see the initialisation.
enum { DOUBTS = 64 };
typedef struct {
    s64 count;
    u64 places[DOUBTS];     // by `doubt_of`
} Doubts;

// A doubt's place: the instructions of the initialisation and of the arrival.
static inline u64 doubt_of(const Barrier *barrier, s64 pc) { return (u64)barrier->initial_pc << 32 | (u64)pc; }

// The groups into which the lanes of a warp have parted during its turn, and their reconvergence points (parted.c).
typedef struct Parted {
    s64 groups, running;    // groups; the one that runs
    u32 lanes[LANES];       // by group, in the order in which Python would list them
    s32 pcs[LANES];         // their next instructions
    s32 ends[LANES];        // the points at which they end
    s32 joins[LANES];       // by point: its instruction
    s32 parents[LANES];     // the points of the groups that parted; -1: none
    u32 expected[LANES];    // lanes of the groups that parted, 0: the place is free
    u32 arrived[LANES];     // lanes that wait there
} Parted;

// The turns of a machine's warps (execution/turns.py). Every field has 8 bytes.
typedef struct {
    Context **ready;        // ring of the warps that can run
    s64 room;               // places in it, a power of two
    s64 head, count;        // place of the first; warps
    const Op *const *starts;  // by instruction: the first Op of the segment that starts there
    const u8 *open_points;  // by instruction: nonzero for a reconvergence point at which lanes do not wait; NULL: none
    s64 progress, quiet;    // fields of the same names of Python's machine
    s64 quantum;            // segments of a turn
    s64 ticks, limit;       // turns so far; their number at which compiled code ends
    s64 effects;            // events so far that could have changed what a lane reads
    s64 idle;               // turns since the last effect
    s64 delayed;            // turns with an effect since the last asynchronous operation
    s64 overdue;            // limit of `delayed`, for each warp that can run
    s64 outstanding;        // asynchronous operations that Python keeps
    s64 arrivals;           // those among them that are arrivals at mbarriers of other CTAs
    s64 issued;             // asynchronous operations issued, but for tile loads and the tensor core's work of compiled code
    s64 lane_copies;        // cp.async that compiled code has outstanding
    struct LaneQueue *lane_queues;  // the CTAs that have any (lane_copies.h)
    s64 stale;              // nonzero if the live allocations have changed
    Context *current;       // the warp whose turn it is
    struct Loads *loads;    // tile loads (loads.h), NULL: all are Python's
    struct TensorWork *work;  // work of the tensor core (tensor_work.h), NULL: all is Python's
    Parted *parted;         // room for the groups of the warp whose turn it is
    Doubts *doubts;
} Turns;

// A register in the register files of two programs of a kernel, of which the second is by lane (compiler/translate.py).
typedef struct {
    s64 width;               // bits
    s64 source, is_uniform;  // slot in the first; nonzero if it has one value for all lanes there
    s64 target, is_row;      // slot in the second; nonzero if it has a value for each lane there
} Move;

enum { LOOK, SERVE, CONCLUDE };  // why compiled turns end (turns.c)

enum { UNCOUNTED = -1, NAMED_BARRIERS = 16 };

// Warps that wait at a named barrier of a CTA that Python keeps (hardware/barriers.py). Every field has 8 bytes.
typedef struct {
    s64 in_python;          // nonzero if Python may have arrivals: the barrier is then Python's
    s64 arrived;            // warps that wait
    s64 threads;            // the threads that bar.sync has named, or UNCOUNTED
    u64 heard;              // ranks known to those who have arrived
    Context *waiting[WARPS];  // the warps, in order
} WaitingWarps;

typedef struct {
    s64 warps;              // those that have not exited
    s64 waiting;            // those that wait
    WaitingWarps at[NAMED_BARRIERS];
} NamedBarriers;

// A CTA, alone in its cluster, for which Python has done nothing since its start: compiled code keeps its named barrier
// and its exits, and may start other CTAs in its place (execution/kept_ctas.py). Every field has 8 bytes.
typedef struct KeptCta {
    s64 warps, gone;        // warps; those that have exited
    s64 number, arrived;    // the named barrier at which warps wait, and their number
    s64 threads;            // the threads that bar.sync has named there, or UNCOUNTED
    s64 issued;             // warp instructions of the CTAs that have ended
    s64 started, most;      // CTAs that have been started in this one's place; most that may be
    s64 is_last, is_over;   // nonzero if the grid has no CTA behind these; if they all have ended
    s64 specials;           // special registers by CTA
    const s64 *slots;       // their slots
    const u64 *values;      // their values, by CTA: of the first, and of those that may be started
    const u8 *files;        // register files of the warps at their start
    s64 file_bytes;
    const Context *contexts;  // contexts of the warps at their start
    s64 shared_bytes;       // end of its shared memory
    struct AccessLog *notes;  // notes of accesses to global memory that are moved from the warps' logs, NULL: there are none
    Context *all[WARPS];    // its warps
    Context *left[WARPS];   // those that have exited, in order
    Context *waiting[WARPS];  // those that wait at the barrier, in order
} KeptCta;

// A test of an mbarrier in vain: lanes of the warp have tested for the end of a phase with a parity.
typedef struct {
    const Barrier *barrier;
    s64 phase;           // the phase when they did so first
    u32 lanes;
    s32 parity;
} Poll;

enum { GROUP = 8, GROUPS = 4 };  // lanes of a group, groups of a warp

// The pattern of a register's addresses, or of what they are sums of (patterns.h).
typedef struct {
    s32 slot, pattern;
    u32 mask, width;     // active lanes, and bytes that each accesses, for which it was found
    u64 first[GROUPS];   // address of each group's first lane
    u64 low, reach, bits;  // lowest address; bytes from there to the end of what is accessed; bits that an address has
} AddressRow;

enum { ADDRESS_ROWS = 16, HINTS = 32 };

enum { POLLS = 8 };      // such tests that compiled code keeps for a warp

struct Context {
    u8 *file;            // registers
    // These fields are set at a turn's start and read at its end (hardware/register_file.py, Registers.enter).
    u32 mask, live;      // lanes of the group; lanes of the warp that have not exited
    s32 stop;            // index of the group's reconvergence point, or -1
    s32 quantum;         // segments left in the turn
    s64 progress;        // the time: events that other warps may see
    s64 issued;          // warp instructions of this turn so far
    const void *waited;  // the mbarrier that the group has waited for last, 1 for anything else;
                         // NULL: it has gone on since
    s64 waited_phase;
    u32 clock_reads;     // number so far, by the warp
    s32 parity;          // parity of the phase that the group has to wait for, if the result is WAITS
    s32 pc;              // instruction of the Op that has ended the turn, or has last called its Python row
    s32 result;          // index of the next instruction, or what `python` returned, DONE, or WAITS
    u8 *shared;          // the CTA's shared memory, by offset in its window
    u64 shared_end;      // offset
    const u8 *guarded;   // nonzero if a live mbarrier occupies the bytes, by offset / 8
    u32 rank;
    Allocation *allocations;
    s64 allocation_count, recent;
    void (*python)(s32 pc, u32 mask);  // the Python row of an instruction
    // `python` or `wake` puts its answer here: 0, ~pc if the group has to wait, or FAULT. It is FAULT before the call:
    // a signal may end a Python function before its first instruction, and ctypes then returns anything.
    s64 answer;
    s32 action;          // Python's task if the result is DONE
    s32 target, following, join;
    u32 lanes;           // lanes of the action
    s32 warp;            // index of the warp in the CTA
    u64 known;           // ranks whose CTAs have started, as far as the warp knows
    s64 synced;          // time of the latest event that the warp has waited for
    Barrier **barriers;  // live mbarriers, by offset / 8
    void (*wake)(s32 offset);  // lets the groups that wait for the mbarrier at an offset run again
    s32 polled;          // nonzero if the warp has tested mbarriers in vain and Python keeps that
    s32 touched;         // nonzero if the warp has used tensor memory and not released it
    void (*watch)(void *watcher, Context *ctx, const Op *op);  // called before each instruction, in programs that are watched
    void *watcher;
    // These fields serve compiled turns (turns.c).
    Turns *turns;
    const Op *resume;    // next Op of the warp's one group
    s32 at;              // instruction of `resume`
    s32 is_single;       // nonzero if the warp has one group, which these fields describe
    s32 blocked;         // nonzero if the group waits
    s32 queued;          // nonzero if the warp is in the ring, GONE if its cluster is over
    s32 moved;           // nonzero if Python does not know yet where the group is
    s32 observed;        // HEARD if somebody hears of the cluster's events, TOLD if what its warps tell each other counts
    Context *next;       // next warp in the list of the mbarrier `listed`
    Barrier *listed;
    struct Trace *trace; // records of the warp (trace.c), NULL: it is not recorded
    // These fields serve programs whose registers are followed (sanitizer/registers.py).
    const s32 *uninitialised;  // by instruction: nonzero if it names a register with uninitialised bits; NULL: not followed
    u32 outer;           // lanes that come to the checked instruction, whatever its predicate
    u32 cluster_size;    // CTAs of the cluster
    struct AccessLog *log;  // notes of accesses to global memory that can be written, NULL: none are taken
    struct AccessLog *shared_log;  // notes of accesses to the CTA's shared memory, of all its warps; NULL: none are taken
    u8 *unwritten;       // 0xFF for each byte of shared memory that nobody has written; NULL: not followed
    struct Window *const *windows;  // the shared memory of the cluster's CTAs, by rank (copies.h)
    NamedBarriers *named;    // the CTA's named barriers
    KeptCta *cta;            // what compiled code keeps of the CTA, NULL: Python keeps it
    s64 met;             // nonzero if the named barrier for which the group waits is complete
    struct LaneQueue *lane_queue;  // the cp.async that compiled code keeps of the CTA, NULL: it keeps none (lane_copies.h)
    const struct LaneCopies *copies;  // the cp.async whose Python row runs, if compiled code has found it legal; else NULL
    Parted *parted;      // the warp's groups while compiled code has several, else NULL
    u8 *local;           // local memory of its lanes, one after another
    s64 local_bytes;     // of a lane
    s64 local_is_written;  // nonzero if compiled code has stored to it
    s64 poll_count;      // tests of mbarriers in vain that compiled code keeps
    Poll polls[POLLS];
    AddressRow address_rows[ADDRESS_ROWS];
    s64 hints[HINTS];    // indices of allocations, by instruction modulo HINTS: the one that it has accessed last
    u64 lows[HINTS];     // the lowest address that it has loaded last
    struct TensorUser *tensor;  // the warp as a user of tensor memory (tensor_memory.h), NULL: Python executes its accesses
};

enum { GONE = 2 };
enum { HEARD = 1, TOLD = 2 };

// Log of accesses to global or shared memory (sanitizer/access_log.py): each has 2 words, then the lanes' addresses, but
// only the first of them where the others follow from it.
typedef struct AccessLog {
    s64 used, room;      // accesses
    u64 words[];
} AccessLog;

enum { NOTE = 2 + LANES };  // words of an access; `KeptCta.notes` has one more, the number of the CTA, 0 for the first
// Flags of its second word. A run is a full warp's access to words in a row.
enum { NOTED_STORE = 1, NOTED_LANES = 2, NOTED_RUN = 4 };

enum { DONE = -(1 << 30), FAULT = DONE + 1, WAITS = DONE + 2, LEFT = DONE + 3 };
enum { LEAVE = 1, LEAVE_SOME, SPLIT };
// `python` of UNINITIALISED - pc follows the registers of an instruction; of ARRIVES it handles the arrival on a barrier of a
// warp that has used tensor memory; of SHARES it makes Context.tensor.
enum { UNINITIALISED = -(1 << 28), ARRIVES = -(1 << 27), SHARES = -(1 << 26) };

typedef const Op *Kernel(Context *, const Op *);
struct Op {
    Kernel *run;
    s32 d, a, b, c;  // slots: offsets in the register file
    u32 flags;       // bits 0 to 2: source a, b, c is one value; KEEPS
    s32 pc;          // index of the instruction
    s64 x;           // a constant, a distance in Ops, or the address of a description
};

enum { KEEPS = 8, TO_ROW = 16 };  // flags: inactive lanes keep their value; the result goes to every lane of a row

#define KERNEL(NAME) const Op *k_##NAME(Context *restrict ctx, const Op *restrict op)
#define AT(T, x) ((T *)(ctx->file + op->x))

enum { ONE_VALUE = 1 << 30 };  // flag of a slot in a description: it holds one value for all lanes

// The row of such a slot, or its value in `spread`
static inline const u32 *row_at(const Context *ctx, s32 slot, u32 *spread) {
    const u32 *found = (const u32 *)(ctx->file + (slot & ~ONE_VALUE));
    if (!(slot & ONE_VALUE)) return found;
    for (int l = 0; l < LANES; l++) spread[l] = *found;
    return spread;
}

// The live allocation that holds an address, 0 if there is none. Who accesses it notes which bytes.
static inline Allocation *find_allocation(Context *ctx, u64 address) {
    Allocation *all = ctx->allocations, *recent = &all[ctx->recent];
    if (recent->start <= address && address < recent->end) return recent;
    s64 low = 0, high = ctx->allocation_count;
    while (low < high) {
        s64 middle = (low + high) / 2;
        if (all[middle].start <= address) low = middle + 1;
        else high = middle;
    }
    if (low == 0 || address >= all[low - 1].end) return 0;
    ctx->recent = low - 1;
    return &all[low - 1];
}

// As `find_allocation`, for any access.
static inline Allocation *allocation_at(Context *ctx, u64 address) {
    Allocation *found = find_allocation(ctx, address);
    if (found) found->is_whole = 1;
    return found;
}

// Ends the turn, and its segment, with a result.
static inline const Op *ends(Context *ctx, const Op *op, s32 result) {
    ctx->quantum--;
    ctx->result = result;
    ctx->pc = op->pc;
    return 0;
}

// The next Op, or the end of the turn if Python's answer is not 0.
static inline const Op *after(Context *ctx, const Op *op, s32 answer) { return answer ? ends(ctx, op, answer) : op + 1; }

// Python's answer to something else than the row of the instruction.
static inline s32 told(Context *ctx, s32 pc, s32 what) {
    ctx->answer = FAULT;
    ctx->pc = pc;
    ctx->python(what, ctx->mask);
    return (s32)ctx->answer;
}

// The answer of an instruction's Python row.
static inline s32 answer_of(Context *ctx, s32 pc) { return told(ctx, pc, pc); }

// Has Python follow the registers of an instruction.
static inline s32 followed(Context *ctx, s32 pc) { return told(ctx, pc, UNINITIALISED - pc); }

static inline const Op *to_python(Context *ctx, const Op *op) { return after(ctx, op, answer_of(ctx, op->pc)); }

s32 run_ops(Context *ctx, const Op *op);
void wake_listed(Barrier *barrier);
int keeps_notes(Context *ctx);
int can_part(const Context *ctx);
s32 run_parted(Context *ctx);

// Returns 1 if the warp runs in a compiled turn, as one group, and compiled code keeps its CTA.
static inline int is_kept(const Context *ctx) { return ctx->cta && ctx->mask == ctx->live; }

// Ends the phase of an mbarrier at a time if it is complete. Returns 1 if it was: those who wait have to be woken.
static inline int ends_phase(Barrier *barrier, s64 time) {
    if (barrier->pending || barrier->bytes) return 0;
    barrier->phase++;
    barrier->news = barrier->heard;
    barrier->ended = time;
    barrier->delivered = 0;
    barrier->pending = barrier->expected;
    return 1;
}

// Returns 1 if an arrival through the async proxy needs no report: it sees the initialisation, or Python has reported it.
static inline int needs_no_report(const Turns *turns, const Barrier *barrier, int is_own, s64 pc) {
    if (!barrier->hidden) return 1;
    if (is_own)
        for (s64 i = 0; i < turns->doubts->count; i++)
            if (turns->doubts->places[i] == doubt_of(barrier, pc)) return 1;
    return 0;
}

static inline u32 lane_bit(int lane) { return 1u << lane; }

// Returns 1 if the active lanes are the live ones of a membermask (PTX ISA, "shfl.sync").
static inline int are_members(const Context *ctx, u32 members) {
    return !(ctx->mask & ~members) && !(members & ctx->live & ~ctx->mask);
}

// Writes a result that all lanes share to the destination.
static inline void write_word(Context *ctx, const Op *op, u32 value) {
    if (!(op->flags & TO_ROW)) {
        *AT(u64, d) = value;
        return;
    }
    for (int l = 0; l < LANES; l++)
        if (!(op->flags & KEEPS) || ctx->mask >> l & 1) AT(u32, d)[l] = value;
}

static inline void write_long(Context *ctx, const Op *op, u64 value) {
    for (int l = 0; l < (op->flags & TO_ROW ? LANES : 1); l++)
        if (!(op->flags & KEEPS) || ctx->mask >> l & 1) AT(u64, d)[l] = value;
}

// Writes a predicate given as a mask.
static inline void write_mask(Context *ctx, const Op *op, u32 bits) {
    u32 *d = AT(u32, d);
    *d = op->flags & KEEPS ? (bits & ctx->mask) | (*d & ~ctx->mask) : bits;
}

static inline void write_truth(Context *ctx, const Op *op, int holds) {
    if (op->flags & TO_ROW) write_mask(ctx, op, holds ? FULL : 0);
    else *AT(u64, d) = holds != 0;
}

#define COMMIT(BITS)                                                                   \
    static inline void commit##BITS(Context *ctx, const Op *op, const void *row) {      \
        u##BITS *d = AT(u##BITS, d);                                                   \
        const u##BITS *r = row;                                                        \
        u32 mask = ctx->mask;                                                          \
        if (mask == FULL || !(op->flags & KEEPS))                                      \
            copy_row(d, r, LANES * BITS / 8);                                          \
        else                                                                           \
            for (int l = 0; l < LANES; l++) d[l] = mask & lane_bit(l) ? r[l] : d[l];   \
    }
COMMIT(8) COMMIT(16) COMMIT(32) COMMIT(64)

// Writes a row to the destination; its elements are items of 1, 2, 4 or 8 bytes per lane.
#define COMMIT_ROW(row)                                        \
    do {                                                       \
        if (sizeof row == 32) commit8(ctx, op, row);           \
        else if (sizeof row == 64) commit16(ctx, op, row);     \
        else if (sizeof row == 128) commit32(ctx, op, row);    \
        else commit64(ctx, op, row);                           \
    } while (0)

// Declares source x as a row of n elements of T. If it is one value, each lane gets all of its n / 32 elements.
#define SOURCE(T, x, bit, n)                                                       \
    T x##_row[n];                                                                  \
    const T *x = AT(const T, x);                                                   \
    if (op->flags & 1 << bit) {                                                    \
        if ((n) * sizeof(T) == 128) {                                              \
            u32 word; memcpy(&word, x, 4);                                         \
            for (int l = 0; l < LANES; l++) memcpy((u32 *)x##_row + l, &word, 4);  \
        } else if ((n) * sizeof(T) == 256) {                                       \
            u64 word; memcpy(&word, x, 8);                                         \
            for (int l = 0; l < LANES; l++) memcpy((u64 *)x##_row + l, &word, 8);  \
        } else {                                                                   \
            for (int l = 0; l < (n); l++) x##_row[l] = x[0];                       \
        }                                                                          \
        x = x##_row;                                                               \
    }
#define STORE_ONE(T, value) do { u64 word = 0; T v = (value); memcpy(&word, &v, sizeof v); *AT(u64, d) = word; } while (0)

// A kernel for rows and one, with _s, for values that are the same in every lane. E: an expression of x, y and z.
#define UNARY(NAME, D, A, n, E)                                                    \
    KERNEL(NAME) {                                                                 \
        SOURCE(A, a, 0, n)                                                         \
        D r[n];                                                                    \
        for (int l = 0; l < (n); l++) { A x = a[l]; r[l] = E; }                    \
        COMMIT_ROW(r);                                                             \
        return op + 1;                                                             \
    }                                                                              \
    KERNEL(NAME##_s) { A x = *AT(A, a); STORE_ONE(D, E); return op + 1; }
#define BINARY(NAME, D, A, B, n, E)                                                \
    KERNEL(NAME) {                                                                 \
        SOURCE(A, a, 0, n) SOURCE(B, b, 1, n)                                      \
        D r[n];                                                                    \
        for (int l = 0; l < (n); l++) { A x = a[l]; B y = b[l]; r[l] = E; }        \
        COMMIT_ROW(r);                                                             \
        return op + 1;                                                             \
    }                                                                              \
    KERNEL(NAME##_s) { A x = *AT(A, a); B y = *AT(B, b); STORE_ONE(D, E); return op + 1; }
#define TERNARY(NAME, D, A, B, C, n, E)                                            \
    KERNEL(NAME) {                                                                 \
        SOURCE(A, a, 0, n) SOURCE(B, b, 1, n) SOURCE(C, c, 2, n)                   \
        D r[n];                                                                    \
        for (int l = 0; l < (n); l++) { A x = a[l]; B y = b[l]; C z = c[l]; r[l] = E; } \
        COMMIT_ROW(r);                                                             \
        return op + 1;                                                             \
    }                                                                              \
    KERNEL(NAME##_s) { A x = *AT(A, a); B y = *AT(B, b); C z = *AT(C, c); STORE_ONE(D, E); return op + 1; }

// A comparison: a mask of the lanes in which it holds.
#define COMPARED(NAME, A, E)                                                       \
    KERNEL(NAME) {                                                                 \
        SOURCE(A, a, 0, LANES) SOURCE(A, b, 1, LANES)                              \
        u32 m = 0;                                                                 \
        for (int l = 0; l < LANES; l++) { A x = a[l], y = b[l]; m |= (E) ? lane_bit(l) : 0; } \
        write_mask(ctx, op, m);                                                    \
        return op + 1;                                                             \
    }                                                                              \
    KERNEL(NAME##_s) { A x = *AT(A, a), y = *AT(A, b); *AT(u64, d) = (E) != 0; return op + 1; }
