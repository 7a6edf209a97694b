// Work of the tensor core that compiled code issues and executes (tensor_work.c).

#pragma once

#include "copies.h"
#include "tensor_memory.h"

enum {
    WORK_OPERANDS = 20,  // operands of an instruction that are in registers
    PLACES = 8192,       // places of the table of plans
    PROBES = 8,          // places in a row that are looked at for a plan
    PARTS_OF_K = 3,
    READ_OPERANDS = 2,   // operands in shared memory
    ARRIVALS = 64,       // arrivals at mbarriers of other CTAs that may be pending
    RELEASES = 64        // commits of a warp between two calls of Python
};

enum { BY_PYTHON, BY_PLAN, BY_COMMITTING };

// An MMA or a copy that Python has decoded and found legal wherever its operands are. Its key is the instruction's
// description and the registers that it reads.
typedef struct TensorPlan {
    u64 description;
    u64 values[WORK_OPERANDS];
    const void *products[PARTS_OF_K];  // calls of `mma`, one after the other
    const TensorCopy *copy;            // NULL: it is an MMA
    s64 parts, ctas;
    const s64 *places[READ_OPERANDS];    // chunks of each operand in shared memory
    s64 place_counts[READ_OPERANDS];
    u64 end;                           // offset behind the last byte of shared memory that it reads
    s64 flops;
    u8 columns[TMEM_COLUMNS];          // 1 for each column that it accesses
    u64 reads[MASK_WORDS], writes[MASK_WORDS];
} TensorPlan;

// The tensor memory of a CTA.
typedef struct TensorMemory {
    u32 *words;
    TensorOrder *order;
    const u8 *owned;     // nonzero for each allocated column
    s64 cta_group;       // that of the instructions so far that the CTA has issued, 0: there are none
} TensorMemory;

// Work that a thread has issued.
typedef struct {
    s64 kind;
    const TensorPlan *plan;
    Context *issuer;
    s64 pc;
    Release *release;    // of its accesses; a commit's is that of the work before it
    s64 after, synced;   // releases that are visible to the issuer (TensorUser.seen)
    u64 known;           // ranks that the issuer knew
    u64 ranks;           // bits of the CTAs at whose mbarriers a commit arrives
    Barrier *targets[RANKS_OF_CLUSTER];  // those mbarriers, in the order of the ranks
} IssuedWork;

// A thread's work in the order of issue.
typedef struct TensorQueue {
    IssuedWork *entries; // a ring
    s64 room;            // places in it, a power of two
    s64 first, count;
} TensorQueue;

// A commit's arrival at an mbarrier of another CTA.
typedef struct {
    Barrier *target;
    s64 rank;            // of that CTA
    Context *issuer;
    s64 pc;
    u64 known;
} PendingArrival;

// The tensor core's work in a machine's run.
typedef struct TensorWork {
    TensorPlan *const *plans;          // table of PLACES
    TensorQueue *const *queues;        // by thread, in the order of their first work
    s64 queue_count;
    s64 count;                         // entries of all queues
    PendingArrival arrivals[ARRIVALS]; // a ring
    s64 first_arrival, arrival_count;
    s64 mma, flops;                    // that have been executed
    s64 is_missed;                     // nonzero while Python executes an instruction for which there is no plan
    u64 description;                   // its key
    u64 values[WORK_OPERANDS];
} TensorWork;

int run_tensor(Turns *turns);
