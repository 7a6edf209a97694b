// Device memory of a program's own process: the host's code cannot reach it, as beside a GPU, while no entry point runs.
// Its pages have a protection key, which a thread may use inside of entry points. Where there are no keys, the pages of all
// threads are protected by system calls, whose time grows with the memory.
#define _GNU_SOURCE
#include "runtime.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST = 256 };  // allocations, the first ones: without keys each costs two system calls at every entry point

static struct {
    word address, bytes;  // as allocated; 0 for an empty place
} guarded[MOST];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned inside;  // entry points that are under way
static __thread unsigned inside_here;  // those of this thread
static struct sigaction before;
static int key = -1;  // protection key, -1: there are none

// Before the program's threads: each starts with the rights of the one that creates it.
__attribute__((constructor)) static void take_key(void) { key = pkey_alloc(0, PKEY_DISABLE_ACCESS); }

static void protect(int place, int access, int by) {
    word page = sysconf(_SC_PAGESIZE);
    pkey_mprotect((void *)guarded[place].address, (guarded[place].bytes + page - 1) & -page, access, by);
}

static void protect_all(int access) {
    for (int i = 0; i < MOST; i++)
        if (guarded[i].bytes) protect(i, access, -1);
}

void enter(void) {
    if (key >= 0) {
        inside_here++;
        pkey_set(key, 0);  // always: a signal's handler starts without the right
        return;
    }
    pthread_mutex_lock(&lock);
    if (inside++ == 0) protect_all(PROT_READ | PROT_WRITE);
    pthread_mutex_unlock(&lock);
}

void leave(void) {
    if (key >= 0) {
        if (--inside_here == 0) pkey_set(key, PKEY_DISABLE_ACCESS);
        return;
    }
    pthread_mutex_lock(&lock);
    if (--inside == 0) protect_all(PROT_NONE);
    pthread_mutex_unlock(&lock);
}

static void on_fault(int number, siginfo_t *fault, void *context) {
    (void)context;
    word address = (word)fault->si_addr;
    for (int i = 0; i < MOST; i++) {
        if (address - guarded[i].address >= guarded[i].bytes) continue;
        char text[400];
        int length = snprintf(text, sizeof text,
                              "nogpu: the host's code accesses %#zx, byte %zu of the device memory cudaMalloc(%zu) at %#zx: "
                              "with a GPU this faults; cudaMemcpy copies it, cudaMallocManaged is for both\n",
                              address, address - guarded[i].address, guarded[i].bytes, guarded[i].address);
        if (write(2, text, length) < 0) break;
    }
    sigaction(number, &before, 0);  // the access is tried again, and ends the program
}

// Called by Python inside of an entry point. address: the start of a page; the last page has nothing else. Returns 0 if
// there is no place left.
EXPORT int emulator_guard(word address, word bytes) {
    static int is_installed;  // Python's lock is held
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    if (!is_installed) is_installed = sigaction(SIGSEGV, &action, &before) == 0;
    for (int i = 0; i < MOST; i++) {
        if (guarded[i].bytes) continue;
        guarded[i].address = address;
        guarded[i].bytes = bytes;
        if (key >= 0) protect(i, PROT_READ | PROT_WRITE, key);
        return 1;
    }
    return 0;
}

EXPORT void emulator_unguard(word address) {
    for (int i = 0; i < MOST; i++) {
        if (!guarded[i].bytes || guarded[i].address != address) continue;
        if (key >= 0) protect(i, PROT_READ | PROT_WRITE, 0);
        guarded[i].bytes = 0;
    }
}
