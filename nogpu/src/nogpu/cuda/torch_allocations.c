// Memory that torch's CPU allocator gives out: aligned as CUDA's allocators align, and watched for writes.
//
// CUDA's allocators align to 256 bytes or more, and kernels rely on it; torch's CPU allocator asks posix_memalign for 64.
// Blocks of WATCHED_BYTES or more have pages of their own. watch() makes them read-only: the first write by any code of
// this process faults, the handler ends the watch and lets the write go on. So a watch that is under way proves that the
// block has the bytes that it had when the watch began. System calls that fill memory do not fault but fail (EFAULT): those
// of libtorch_cpu.so, of torch.distributed among them, end the watch first.
//
// Blocks are given out again, the last one of a size first, as torch does it on a GPU, so that a loop that makes and drops
// results has them in the same places: launches are known by their arguments.

#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    WATCHED_BYTES = 1 << 16,  // least bytes of a block that is watched: fewer are compared as fast
    MOST_WATCHED = 4096,      // blocks: each may take two of the 65,530 mappings that Linux gives a process
    BUCKETS = 1 << 12,
    UNIT = 512,               // blocks have a multiple of it, and are aligned to it
    CLASSES = 61,             // of sizes, by units
    MOST_DROPPED = 64,        // blocks of a class that wait to be given out again
    MOST_BYTES = 256 << 20,   // of all of them
};

typedef struct Block {
    struct Block *next;
    size_t address, bytes;  // whole pages
    long watch;             // number of the watch that is under way, 0: none
} Block;

typedef struct {
    void *memory;
    size_t bytes;
} Dropped;

static Block *blocks[BUCKETS];
static size_t minimum_alignment, page;
static long watches;  // that have begun
static int watched;   // blocks
static Dropped dropped[CLASSES][MOST_DROPPED];
static int dropped_count[CLASSES];
static size_t dropped_bytes;
static struct sigaction before;
static int is_locked, is_ending;

// The handler takes the lock, too: whoever holds it writes to no block.
static void lock(void) {
    while (__atomic_exchange_n(&is_locked, 1, __ATOMIC_ACQUIRE)) sched_yield();
}

static void unlock(void) { __atomic_store_n(&is_locked, 0, __ATOMIC_RELEASE); }

static Block **place_of(size_t address) {
    Block **place = &blocks[address / page % BUCKETS];
    while (*place && (*place)->address != address) place = &(*place)->next;
    return place;
}

// Ends the watch of a block. Returns 0 if it cannot be written to.
static int end_watch(Block *block) {
    if (!block->watch) return 1;
    if (mprotect((void *)block->address, block->bytes, PROT_READ | PROT_WRITE)) return 0;
    block->watch = 0;
    watched--;
    return 1;
}

// Ends the watches of the blocks that have some of the bytes. Returns the number of blocks that can be written to.
int end_watches(size_t address, size_t bytes) {
    int found = 0;
    lock();
    for (int i = 0; i < BUCKETS; i++)
        for (Block *block = blocks[i]; block; block = block->next)
            if (address < block->address + block->bytes && block->address < address + bytes) found += end_watch(block);
    unlock();
    return found;
}

// Returns the block of a size and alignment that was dropped last, 0 if there is none.
static void *again(size_t bytes, size_t alignment) {
    int class = (int)(bytes / UNIT % CLASSES);
    Dropped *all = dropped[class];
    void *memory = 0;
    lock();
    for (int i = dropped_count[class] - 1; i >= 0 && !memory; i--) {
        if (all[i].bytes != bytes || (size_t)all[i].memory % alignment) continue;
        memory = all[i].memory;
        memmove(all + i, all + i + 1, sizeof *all * (size_t)(--dropped_count[class] - i));
        dropped_bytes -= bytes;
    }
    unlock();
    return memory;
}

// Frees all blocks that wait to be given out again.
static void free_dropped(void) {
    for (int class = 0; class < CLASSES; class++) {
        Dropped all[MOST_DROPPED];
        lock();
        int count = dropped_count[class];
        memcpy(all, dropped[class], sizeof all);
        dropped_count[class] = 0;
        for (int i = 0; i < count; i++) dropped_bytes -= all[i].bytes;
        unlock();
        for (int i = 0; i < count; i++) free(all[i].memory);
    }
}

// Keeps a block of some bytes, a multiple of UNIT, to be given out again, or frees it.
static void drop(void *memory, size_t bytes) {
    int class = (int)(bytes / UNIT % CLASSES);
    if (bytes <= MOST_BYTES && __atomic_load_n(&dropped_bytes, __ATOMIC_RELAXED) + bytes > MOST_BYTES) free_dropped();
    lock();
    int kept = dropped_bytes + bytes <= MOST_BYTES && dropped_count[class] < MOST_DROPPED;
    if (kept) {
        dropped[class][dropped_count[class]++] = (Dropped){memory, bytes};
        dropped_bytes += bytes;
    }
    unlock();
    if (!kept) free(memory);
}

static int aligned(void **out, size_t alignment, size_t size) {
    if (alignment < minimum_alignment) alignment = minimum_alignment;
    if (size > SIZE_MAX / 2) return posix_memalign(out, alignment, size);
    Block *block = size < WATCHED_BYTES ? 0 : malloc(sizeof *block);
    size_t unit = block ? page : UNIT;
    size = size ? (size + unit - 1) & -unit : unit;
    if (alignment < unit) alignment = unit;
    void *memory = again(size, alignment);
    int error = memory ? 0 : posix_memalign(&memory, alignment, size);
    if (error || !block) {
        free(block);
        if (!error) *out = memory;
        return error;
    }
    *out = memory;
    *block = (Block){.address = (size_t)memory, .bytes = size};
    lock();
    Block **place = place_of(block->address);
    block->next = *place;
    *place = block;
    unlock();
    return 0;
}

static void released(void *memory) {
    size_t address = (size_t)memory, bytes = 0;
    Block *block = 0;
    if (memory && address % page == 0) {
        lock();
        Block **place = place_of(address);
        block = *place;
        if (block) {
            *place = block->next;
            end_watch(block);
        }
        unlock();
    }
    if (block) bytes = block->bytes;
    else if (memory && address % UNIT == 0) bytes = malloc_usable_size(memory) / UNIT * UNIT;
    free(block);
    if (bytes) drop(memory, bytes);
    else free(memory);
}

static void on_fault(int number, siginfo_t *fault, void *context) {
    (void)context;
    int error = errno;
    // Another thread's fault may have ended the watch already: the access is tried again in any case.
    if (fault->si_code == SEGV_ACCERR && end_watches((size_t)fault->si_addr, 1)) {
        errno = error;
        return;
    }
    struct sigaction none = {.sa_handler = SIG_DFL};
    sigaction(number, is_ending++ ? &none : &before, 0);  // the access is tried again, and ends the program
    if (fault->si_code <= 0) raise(number);
}

// Puts the handler ahead of others that the program has installed since.
void handle_writes(void) {
    struct sigaction now, action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    if (sigaction(SIGSEGV, 0, &now) || now.sa_sigaction == on_fault) return;
    before = now;
    sigaction(SIGSEGV, &action, 0);
}

// Begins to watch the block that starts at an address, unless a watch is under way. Returns the watch's number, 0 if the
// block cannot be watched.
long watch(size_t address) {
    handle_writes();
    lock();
    Block *block = *place_of(address);
    if (block && !block->watch && watched < MOST_WATCHED) {
        if (mprotect((void *)address, block->bytes, PROT_READ) == 0) {
            block->watch = ++watches;
            watched++;
        } else {
            mprotect((void *)address, block->bytes, PROT_READ | PROT_WRITE);
        }
    }
    long number = block ? block->watch : 0;
    unlock();
    return number;
}

// Number of the watch of the block that starts at an address, 0 if none is under way.
long watch_of(size_t address) {
    lock();
    Block *block = *place_of(address);
    long number = block ? block->watch : 0;
    unlock();
    return number;
}

static void filled(void *memory, size_t bytes) {
    if (__atomic_load_n(&watched, __ATOMIC_ACQUIRE)) end_watches((size_t)memory, bytes);
}

static void all_filled(const struct iovec *parts, size_t count) {
    for (size_t i = 0; i < count; i++) filled(parts[i].iov_base, parts[i].iov_len);
}

static ssize_t read_to(int file, void *memory, size_t bytes) {
    filled(memory, bytes);
    return read(file, memory, bytes);
}

static ssize_t pread_to(int file, void *memory, size_t bytes, off64_t from) {
    filled(memory, bytes);
    return pread64(file, memory, bytes, from);
}

static ssize_t readv_to(int file, const struct iovec *parts, int count) {
    all_filled(parts, count < 0 ? 0 : count);
    return readv(file, parts, count);
}

static ssize_t recv_to(int socket, void *memory, size_t bytes, int flags) {
    filled(memory, bytes);
    return recv(socket, memory, bytes, flags);
}

static ssize_t recvmsg_to(int socket, struct msghdr *message, int flags) {
    all_filled(message->msg_iov, message->msg_iovlen);
    return recvmsg(socket, message, flags);
}

static size_t fread_to(void *memory, size_t size, size_t count, FILE *file) {
    filled(memory, size * count);
    return fread(memory, size, count, file);
}

typedef struct {
    const char *name;
    void *function;
} Import;

static const Import allocator[] = {{"posix_memalign", aligned}, {"free", released}, {0}};
static const Import fillers[] = {{"read", read_to}, {"pread64", pread_to}, {"readv", readv_to}, {"recv", recv_to},
                                 {"recvmsg", recvmsg_to}, {"fread", fread_to}, {0}};

typedef struct {
    const char *library;
    const Import *imports;
    int replaced;
} Search;

static void patch_table(Search *search, struct dl_phdr_info *object, const ElfW(Rela) *table, size_t bytes,
                        const ElfW(Sym) *symbols, const char *strings) {
    for (size_t i = 0; i < bytes / sizeof *table; i++) {
        size_t number = ELF64_R_SYM(table[i].r_info);
        for (const Import *import = search->imports; number && import->name; import++) {
            if (strcmp(strings + symbols[number].st_name, import->name) != 0) continue;
            void **slot = (void **)(object->dlpi_addr + table[i].r_offset);
            if (mprotect((void *)((size_t)slot & -page), page, PROT_READ | PROT_WRITE) != 0) continue;
            *slot = import->function;
            search->replaced |= 1 << (import - search->imports);
        }
    }
}

static int visit(struct dl_phdr_info *object, size_t size, void *data) {
    (void)size;
    Search *search = data;
    if (!object->dlpi_name || !strstr(object->dlpi_name, search->library)) return 0;
    const ElfW(Sym) *symbols = 0;
    const ElfW(Rela) *calls = 0, *data_references = 0;
    const char *strings = 0;
    size_t calls_bytes = 0, data_bytes = 0;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        if (object->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
        const ElfW(Dyn) *entry = (const ElfW(Dyn) *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
        for (; entry->d_tag != DT_NULL; entry++) {
            switch (entry->d_tag) {
            case DT_SYMTAB: symbols = (const ElfW(Sym) *)entry->d_un.d_ptr; break;
            case DT_STRTAB: strings = (const char *)entry->d_un.d_ptr; break;
            case DT_JMPREL: calls = (const ElfW(Rela) *)entry->d_un.d_ptr; break;
            case DT_PLTRELSZ: calls_bytes = entry->d_un.d_val; break;
            case DT_RELA: data_references = (const ElfW(Rela) *)entry->d_un.d_ptr; break;
            case DT_RELASZ: data_bytes = entry->d_un.d_val; break;
            default: break;
            }
        }
    }
    if (symbols && strings) {
        patch_table(search, object, calls, calls_bytes, symbols, strings);
        patch_table(search, object, data_references, data_bytes, symbols, strings);
    }
    return 1;
}

static int replace(const char *library, const Import *imports) {
    Search search = {library, imports, 0};
    dl_iterate_phdr(visit, &search);
    return search.replaced;
}

// Aligns the allocations of torch's allocator to `alignment` bytes or more from now on, and makes blocks of WATCHED_BYTES or
// more ready to be watched. Returns 0 if its library cannot be patched.
int align_allocations(size_t alignment) {
    minimum_alignment = alignment;
    page = sysconf(_SC_PAGESIZE);
    pthread_atfork(lock, unlock, unlock);
    replace("libtorch_cpu.so", fillers);
    return replace("libc10.so", allocator) == 3;
}
