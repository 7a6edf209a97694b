// Alignment of torch's allocations. CUDA's allocators align to 256 bytes or more, and kernels rely on it; torch's CPU
// allocator asks posix_memalign for 64. align_allocations() makes the import table of one loaded library point to a
// posix_memalign that aligns to more.

#define _GNU_SOURCE
#include <elf.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t minimum_alignment;

static int aligned(void **out, size_t alignment, size_t size) {
    return posix_memalign(out, alignment < minimum_alignment ? minimum_alignment : alignment, size);
}

typedef struct {
    const char *library;
    int replaced;
} Search;

static int patch_table(struct dl_phdr_info *object, const ElfW(Rela) *table, size_t bytes, const ElfW(Sym) *symbols,
                       const char *strings) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    int replaced = 0;
    for (size_t i = 0; i < bytes / sizeof *table; i++) {
        const ElfW(Sym) *symbol = symbols + ELF64_R_SYM(table[i].r_info);
        if (strcmp(strings + symbol->st_name, "posix_memalign") != 0) continue;
        void **slot = (void **)(object->dlpi_addr + table[i].r_offset);
        void *start = (void *)((size_t)slot & ~(page - 1));
        if (mprotect(start, page, PROT_READ | PROT_WRITE) != 0) continue;
        *slot = (void *)aligned;
        replaced++;
    }
    return replaced;
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
        search->replaced += patch_table(object, calls, calls_bytes, symbols, strings);
        search->replaced += patch_table(object, data_references, data_bytes, symbols, strings);
    }
    return 1;
}

// Align the allocations of the first loaded library whose path contains `library` to `alignment` bytes or more. Returns
// the number of import table entries that were replaced.
int align_allocations(const char *library, size_t alignment) {
    Search search = {library, 0};
    minimum_alignment = alignment;
    dl_iterate_phdr(visit, &search);
    return search.replaced;
}
