// Device memory of a program's own process: the host's code cannot reach it, as beside a GPU, while no entry point runs.
#define _GNU_SOURCE
#include "runtime.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST = 256 };  // allocations, the first ones: each costs two system calls at every entry point

static struct {
    word address, bytes;  // as allocated; 0 for an empty place
} guarded[MOST];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned inside;  // entry points that are under way
static struct sigaction before;

static void protect(int place, int access) {
    word page = sysconf(_SC_PAGESIZE);
    mprotect((void *)guarded[place].address, (guarded[place].bytes + page - 1) & -page, access);
}

static void protect_all(int access) {
    for (int i = 0; i < MOST; i++)
        if (guarded[i].bytes) protect(i, access);
}

void enter(void) {
    pthread_mutex_lock(&lock);
    if (inside++ == 0) protect_all(PROT_READ | PROT_WRITE);
    pthread_mutex_unlock(&lock);
}

void leave(void) {
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
        return 1;
    }
    return 0;
}

EXPORT void emulator_unguard(word address) {
    for (int i = 0; i < MOST; i++)
        if (guarded[i].bytes && guarded[i].address == address) guarded[i].bytes = 0;
}
