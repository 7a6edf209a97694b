#define _GNU_SOURCE
#include "runtime.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The function of an entry. Python is asked once for those that it has not connected.
static void *function_of(Entry *entry) {
    if (!entry->function) start_python();
    if (!entry->function) fprintf(stderr, "%s is not modelled by the emulator\n", entry->name);
    return entry->function;
}

#define P0 void
#define P1 word a
#define P2 P1, word b
#define P3 P2, word c
#define P4 P3, word d
#define P5 P4, word e
#define P6 P5, word f
#define P7 P6, word g
#define P8 P7, word h
#define P9 P8, word i
#define P10 P9, word j
#define P11 P10, word k
#define P12 P11, word l
#define P13 P12, word m
#define P14 P13, word n
#define P15 P14, word o
#define A0
#define A1 a
#define A2 A1, b
#define A3 A2, c
#define A4 A3, d
#define A5 A4, e
#define A6 A5, f
#define A7 A6, g
#define A8 A7, h
#define A9 A8, i
#define A10 A9, j
#define A11 A10, k
#define A12 A11, l
#define A13 A12, m
#define A14 A13, n
#define A15 A14, o

#define ENTRY(count, name)                                                                                             \
    static Entry entry_##name = {#name, 0};                                                                            \
    EXPORT word name(P##count) {                                                                                       \
        word (*function)(P##count) = (word(*)(P##count))function_of(&entry_##name);                                    \
        if (!function) return NOT_SUPPORTED;                                                                           \
        if (python_has_ended()) return UNLOADING;                                                                      \
        enter();                                                                                                       \
        word result = function(A##count);                                                                              \
        leave();                                                                                                       \
        return result;                                                                                                 \
    }
#define ALIAS(name, entry) EXPORT word name(void) __attribute__((alias(#entry)));
#define PTSZ_ENTRY(count, name) ENTRY(count, name) ALIAS(name##_ptsz, name)
#define PTDS_ENTRY(count, name) ENTRY(count, name) ALIAS(name##_ptds, name)
#define REFUSED(name)                                                                                                  \
    EXPORT word name(void) {                                                                                           \
        fprintf(stderr, "%s is not modelled by the emulator\n", #name);                                                \
        return NOT_SUPPORTED;                                                                                          \
    }
#define IN_C(name)
#pragma GCC diagnostic ignored "-Wattribute-alias"
#include "entries.h"
#undef ENTRY
#undef ALIAS
#undef REFUSED

static Entry *const entries[] = {
#define ENTRY(count, name) &entry_##name,
#define ALIAS(name, entry)
#define REFUSED(name)
#include "entries.h"
};

// Functions that take or return structures.

typedef struct { word width, height, depth; } Extent;

EXPORT word cudaMalloc3DArray(void *array, const void *channels, Extent extent, u32 flags) {
    return emulator_malloc_3d_array((word)array, (word)channels, extent.width, extent.height, extent.depth, flags);
}

EXPORT word cudaMalloc3D(void *pitched, Extent extent) {
    return emulator_malloc_3d((word)pitched, extent.width, extent.height, extent.depth);
}

typedef struct { char bytes[64]; } Handle;  // cudaIpcMemHandle_t, cudaIpcEventHandle_t

EXPORT word cudaIpcOpenMemHandle(void **pointer, Handle handle, u32 flags) {
    return emulator_ipc_open_memory((word)pointer, (word)&handle, flags);
}

EXPORT word cudaIpcOpenEventHandle(void **event, Handle handle) {
    return emulator_ipc_open_event((word)event, (word)&handle);
}

EXPORT word cuIpcOpenMemHandle_v2(void **, Handle, u32) __attribute__((alias("cudaIpcOpenMemHandle")));
EXPORT word cuIpcOpenEventHandle(void **, Handle) __attribute__((alias("cudaIpcOpenEventHandle")));

typedef struct { s32 x, y, z, w, kind; } Channels;

EXPORT Channels cudaCreateChannelDesc(s32 x, s32 y, s32 z, s32 w, s32 kind) {
    return (Channels){x, y, z, w, kind};
}

// Connect an entry point to a function of Python. Returns 0 for a name that is no entry point.
EXPORT int emulator_connect(const char *name, void *function) {
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
        if (!strcmp(entries[i]->name, name)) {
            entries[i]->function = function;
            return 1;
        }
    return 0;
}

// Registration: crt/host_runtime.h of the CUDA toolkit declares these functions.

static pthread_mutex_t records_lock = PTHREAD_MUTEX_INITIALIZER;
static Record *records;
static size_t record_count, record_capacity;

static void record(Record added) {
    pthread_mutex_lock(&records_lock);
    if (record_count == record_capacity) {
        record_capacity = record_capacity ? 2 * record_capacity : 64;
        records = realloc(records, record_capacity * sizeof *records);
        if (!records) abort();
    }
    records[record_count++] = added;
    pthread_mutex_unlock(&records_lock);
}

// Copy the record of a number, counted from 0. Returns 0 if there are not so many.
EXPORT int emulator_record(word number, Record *copy) {
    pthread_mutex_lock(&records_lock);
    int found = number < record_count;
    if (found) *copy = records[number];
    pthread_mutex_unlock(&records_lock);
    return found;
}

EXPORT void **__cudaRegisterFatBinary(void *wrapper) {
    void **handle = malloc(sizeof *handle);  // an address that no other module has; never freed, so that it stays so
    *handle = wrapper;
    record((Record){RECORD_MODULE, (word)handle, (word)wrapper, 0, 0});
    return handle;
}

EXPORT void __cudaRegisterFatBinaryEnd(void **module) { (void)module; }

EXPORT void __cudaUnregisterFatBinary(void **module) {
    pthread_mutex_lock(&records_lock);
    for (size_t i = 0; i < record_count; i++)  // the strings may be gone when Python comes to read them
        if (records[i].module == (word)module) records[i].kind = RECORD_VOID;
    pthread_mutex_unlock(&records_lock);
    record((Record){RECORD_UNREGISTER, (word)module, 0, 0, 0});
}

EXPORT void __cudaRegisterFunction(void **module, const char *host, char *device, const char *name, int threads,
                                   void *tid, void *bid, void *block, void *grid, int *warp) {
    (void)device, (void)threads, (void)tid, (void)bid, (void)block, (void)grid, (void)warp;
    record((Record){RECORD_FUNCTION, (word)module, (word)host, name, 0});
}

EXPORT void __cudaRegisterVar(void **module, char *host, char *device, const char *name, int external, size_t size,
                              int constant, int global) {
    (void)device, (void)external, (void)constant, (void)global;
    record((Record){RECORD_VARIABLE, (word)module, (word)host, name, size});
}

EXPORT void __cudaRegisterHostVar(void **module, const char *name, char *host, size_t size) {
    record((Record){RECORD_VARIABLE, (word)module, (word)host, name, size});
}

EXPORT void __cudaRegisterManagedVar(void **module, void **host, char *device, const char *name, int external,
                                     size_t size, int constant, int global) {
    (void)device, (void)external, (void)constant, (void)global;
    record((Record){RECORD_MANAGED, (word)module, (word)host, name, size});
}

// kernel<<<grid, block, shared, queue>>>: the configuration is pushed, then the kernel's stub on the host pops it.

typedef struct { u32 x, y, z; } Dim3;

static _Thread_local struct {
    Dim3 grid, block;
    size_t shared;
    void *queue;
} pushed[16];
static _Thread_local unsigned depth;

EXPORT unsigned __cudaPushCallConfiguration(Dim3 grid, Dim3 block, size_t shared, void *queue) {
    if (depth == sizeof pushed / sizeof *pushed)
        return 1;  // the launch is left out
    pushed[depth].grid = grid;
    pushed[depth].block = block;
    pushed[depth].shared = shared;
    pushed[depth++].queue = queue;
    return 0;
}

EXPORT int __cudaPopCallConfiguration(Dim3 *grid, Dim3 *block, size_t *shared, void **queue) {
    if (depth == 0) return MISSING_CONFIGURATION;
    *grid = pushed[--depth].grid;
    *block = pushed[depth].block;
    *shared = pushed[depth].shared;
    *queue = pushed[depth].queue;
    return SUCCESS;
}
