// Programs that nvcc has linked with the static CUDA runtime, its default: their calls are led to this library.
//
// Before main the first instructions of each entry point that the executable defines are overwritten with a jump to the
// one here. The executable's symbol table says where they are, so it must not be stripped (programs.py refuses one).

#define _GNU_SOURCE
#include "runtime.h"
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__x86_64__)
enum { JUMP_BYTES = 13 };
static void write_jump(unsigned char *code, u64 target) {  // movabs $target, %r11; jmp *%r11
    static const unsigned char MOVE[] = {0x49, 0xbb}, JUMP[] = {0x41, 0xff, 0xe3};
    memcpy(code, MOVE, 2);
    memcpy(code + 2, &target, 8);
    memcpy(code + 10, JUMP, 3);
}
#elif defined(__aarch64__)
enum { JUMP_BYTES = 16 };
static void write_jump(unsigned char *code, u64 target) {  // ldr x16, .+8; br x16; target
    static const u32 INSTRUCTIONS[] = {0x58000050, 0xd61f0200};
    memcpy(code, INSTRUCTIONS, 8);
    memcpy(code + 8, &target, 8);
}
#else
#error "no jump is known for this architecture"
#endif

// Difference between the addresses of the executable in memory and in its file.
static int load_offset(struct dl_phdr_info *info, size_t size, void *offset) {
    (void)size;
    *(word *)offset = info->dlpi_addr;
    return 1;  // the executable comes first
}

static void redirect(unsigned char *code, word target) {
    word page = sysconf(_SC_PAGESIZE), first = (word)code & -page, end = (word)code + JUMP_BYTES;
    if (mprotect((void *)first, end - first, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) {
        perror("the emulator could not redirect the static CUDA runtime");
        _exit(1);
    }
    write_jump(code, target);
    mprotect((void *)first, end - first, PROT_READ | PROT_EXEC);
    __builtin___clear_cache((char *)code, (char *)code + JUMP_BYTES);
}

static void redirect_all(const unsigned char *file, void *own, word offset) {
    const ElfW(Ehdr) *header = (const void *)file;
    const ElfW(Shdr) *sections = (const void *)(file + header->e_shoff);
    for (int i = 0; i < header->e_shnum; i++) {
        if (sections[i].sh_type != SHT_SYMTAB) continue;
        const ElfW(Sym) *symbols = (const void *)(file + sections[i].sh_offset);
        const char *names = (const char *)file + sections[sections[i].sh_link].sh_offset;
        for (size_t n = 0; n < sections[i].sh_size / sizeof *symbols; n++) {
            const char *name = names + symbols[n].st_name;
            int defined = symbols[n].st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbols[n].st_info) == STT_FUNC;
            if (!defined || symbols[n].st_size < JUMP_BYTES) continue;
            if (strncmp(name, "cuda", 4) != 0 && strncmp(name, "__cuda", 6) != 0) continue;
            void *target = dlsym(own, name);
            if (target) redirect((unsigned char *)(offset + symbols[n].st_value), (word)target);
        }
    }
}

__attribute__((constructor)) static void redirect_static_runtime(void) {
    const char *program = getenv("NOGPU_CUDA_PROGRAM");  // real path of the executable that programs.py starts
    char running[4096] = {0};
    if (!program || readlink("/proc/self/exe", running, sizeof running - 1) < 0 || strcmp(program, running) != 0)
        return;  // another program of the process tree
    Dl_info info;
    struct stat status;
    word offset = 0;
    int descriptor = open(running, O_RDONLY);
    if (descriptor < 0 || fstat(descriptor, &status) != 0 || dladdr((void *)redirect_static_runtime, &info) == 0)
        return;
    void *own = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    void *file = mmap(0, status.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    close(descriptor);
    if (!own || file == MAP_FAILED) return;
    dl_iterate_phdr(load_offset, &offset);
    redirect_all(file, own, offset);
    munmap(file, status.st_size);
}
