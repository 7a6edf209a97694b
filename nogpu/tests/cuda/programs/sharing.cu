// Memory and events that two processes share: the program starts itself a second time, with handles in a file, or with
// a descriptor that the second process inherits.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <cuda_runtime.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#define OK(call)                                                                                                       \
    if (int code = call; code) {                                                                                       \
        printf("line %d: %d\n", __LINE__, code);                                                                       \
        exit(1);                                                                                                       \
    }
#define IS(condition)                                                                                                  \
    if (!(condition)) {                                                                                                \
        printf("line %d\n", __LINE__);                                                                                 \
        exit(1);                                                                                                       \
    }

extern char **environ;
constexpr int N = 1000;
constexpr size_t UNIT = 2 << 20;

struct Handles {
    cudaIpcMemHandle_t memory;
    cudaIpcEventHandle_t event;
};

__global__ void add(int *x, int n, int value) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += value;
}

static int run_again(const char *program, const char *mode, const char *text) {
    pid_t child;
    int status;
    char *arguments[] = {(char *)program, (char *)mode, (char *)text, nullptr};
    OK(posix_spawn(&child, program, nullptr, nullptr, arguments, environ));
    IS(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

static void check(const int *x, int n, int value) {
    std::vector<int> found(n);
    OK(cudaMemcpy(found.data(), x, n * sizeof(int), cudaMemcpyDefault));
    for (int i = 0; i < n; i++) IS(found[i] == value);
}

static void open_handles(const char *path) {
    Handles handles;
    FILE *file = fopen(path, "rb");
    IS(file && fread(&handles, sizeof handles, 1, file) == 1);
    int *x, *again;
    cudaEvent_t event;
    OK(cudaIpcOpenMemHandle((void **)&x, handles.memory, cudaIpcMemLazyEnablePeerAccess));
    OK(cudaIpcOpenMemHandle((void **)&again, handles.memory, cudaIpcMemLazyEnablePeerAccess));
    IS(x == again);
    OK(cudaIpcCloseMemHandle(again));
    OK(cudaIpcOpenEventHandle(&event, handles.event));
    OK(cudaStreamWaitEvent(0, event, 0));
    check(x, N, 3);
    add<<<(N + 127) / 128, 128>>>(x, N, 4);
    OK(cudaEventRecord(event));
    IS(cudaFree(x) == cudaErrorInvalidValue);
    OK(cudaIpcCloseMemHandle(x));
    IS(cudaIpcCloseMemHandle(x) == cudaErrorInvalidValue);
    handles.memory.reserved[0] ^= 1;
    IS(cudaIpcOpenMemHandle((void **)&x, handles.memory, 1) == cudaErrorInvalidResourceHandle);
}

static void share_handles(const char *program, const char *path) {
    int *x;
    Handles handles;
    cudaEvent_t event, plain;
    OK(cudaMalloc(&x, N * sizeof(int)));
    OK(cudaMemset(x, 0, N * sizeof(int)));
    add<<<(N + 127) / 128, 128>>>(x, N, 1);
    OK(cudaIpcGetMemHandle(&handles.memory, x));
    add<<<(N + 127) / 128, 128>>>(x, N, 2);
    OK(cudaEventCreate(&plain));
    IS(cudaIpcGetEventHandle(&handles.event, plain) == cudaErrorInvalidResourceHandle);
    IS(cudaEventCreateWithFlags(&event, cudaEventInterprocess) == cudaErrorInvalidValue);
    OK(cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming));
    OK(cudaIpcGetEventHandle(&handles.event, event));
    OK(cudaEventRecord(event));
    int *own, on_stack;
    IS(cudaIpcOpenMemHandle((void **)&own, handles.memory, 1) == cudaErrorDeviceUninitialized);
    IS(cudaIpcGetMemHandle(&handles.memory, &on_stack) == cudaErrorInvalidValue);
    FILE *file = fopen(path, "wb");
    IS(file && fwrite(&handles, sizeof handles, 1, file) == 1 && !fclose(file));
    OK(cuMemsetD32((CUdeviceptr)x, 3, N));
    IS(run_again(program, "open", path) == 0);
    OK(cudaEventSynchronize(event));
    check(x, N, 7);
    OK(cuMemsetD32((CUdeviceptr)x, 3, N));  // not in vain: the other process has written
    check(x, N, 3);
    OK(cudaFree(x));
    OK(cudaMalloc(&x, N * sizeof(int)));
    OK(cudaMemset(x, 0, N * sizeof(int)));
    add<<<(N + 127) / 128, 128>>>(x, N, 5);
    check(x, N, 5);
    IS(run_again(program, "gone", path) == 0);
}

static void open_freed(const char *path) {
    Handles handles;
    FILE *file = fopen(path, "rb");
    IS(file && fread(&handles, sizeof handles, 1, file) == 1);
    void *x;
    IS(cudaIpcOpenMemHandle(&x, handles.memory, 1) == cudaErrorInvalidResourceHandle);
}

static CUmemAllocationProp properties() {
    CUmemAllocationProp made = {};
    made.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    made.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    made.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return made;
}

static void let(CUdeviceptr at, size_t bytes, CUmemAccess_flags flags) {
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.flags = flags;
    OK(cuMemSetAccess(at, bytes, &access, 1));
}

static void map_memory(const char *program) {
    CUdeviceptr at, other;
    CUmemGenericAllocationHandle one, two;
    CUmemAllocationProp wanted = properties();
    size_t unit;
    OK(cuMemGetAllocationGranularity(&unit, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    IS(unit == UNIT);
    IS(cuMemAddressReserve(&at, UNIT + 1, 0, 0, 0) == CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAddressReserve(&at, 3 * UNIT, 0, 0, 0));
    OK(cuMemAddressReserve(&other, UNIT, 8 * UNIT, 0, 0));
    IS(at % UNIT == 0 && other % (8 * UNIT) == 0);
    OK(cuMemCreate(&one, UNIT, &wanted, 0));
    OK(cuMemCreate(&two, UNIT, &wanted, 0));
    OK(cuMemMap(at, UNIT, 0, one, 0));
    OK(cuMemMap(at + UNIT, UNIT, 0, two, 0));
    IS(cuMemMap(at, UNIT, 0, two, 0) == CUDA_ERROR_INVALID_VALUE);
    IS(cuMemMap(other + UNIT, UNIT, 0, two, 0) == CUDA_ERROR_INVALID_VALUE);
    OK(cuMemMap(other, UNIT, 0, one, 0));
    IS(cuMemsetD32(at, 1, N) == CUDA_ERROR_INVALID_VALUE);  // no access yet
    let(at, 2 * UNIT, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    let(other, UNIT, CU_MEM_ACCESS_FLAGS_PROT_READ);
    unsigned long long flags;
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    OK(cuMemGetAccess(&flags, &here, other));
    IS(flags == CU_MEM_ACCESS_FLAGS_PROT_READ);
    int across = 2 * UNIT / sizeof(int);
    OK(cuMemsetD32(at, 1, across));
    add<<<(across + 1023) / 1024, 1024>>>((int *)at, across, 2);
    check((int *)at, across, 3);
    check((int *)other, UNIT / sizeof(int), 3);  // the same memory at another address
    IS(cuMemsetD32(other, 1, 1) == CUDA_ERROR_INVALID_VALUE);

    int file;
    OK(cuMemExportToShareableHandle(&file, one, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    IS(cuMemExportToShareableHandle(&file, one, CU_MEM_HANDLE_TYPE_FABRIC, 0) == CUDA_ERROR_NOT_SUPPORTED);
    char text[20];
    snprintf(text, sizeof text, "%d", dup(file));  // which a new program inherits
    IS(run_again(program, "import", text) == 0);
    check((int *)at, N, 10);

    OK(cuMemRelease(one));
    OK(cuMemRelease(two));
    IS(cuMemRelease(two) == CUDA_ERROR_INVALID_HANDLE);
    OK(cuMemRetainAllocationHandle(&two, (void *)(at + UNIT)));
    OK(cuMemUnmap(at, UNIT));
    IS(cuMemAddressFree(at, 3 * UNIT) == CUDA_ERROR_INVALID_VALUE);
    check((int *)(at + UNIT), N, 3);
    OK(cuMemUnmap(other, UNIT));
    OK(cuMemAddressFree(other, UNIT));
    fflush(stdout);
    add<<<1, 1>>>((int *)at, 1, 1);  // unmapped
    IS(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
}

static void import_memory(int file) {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    OK(cuMemImportFromShareableHandle(&handle, (void *)(size_t)file, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    OK(cuMemAddressReserve(&at, UNIT, 0, 0, 0));
    OK(cuMemMap(at, UNIT, 0, handle, 0));
    OK(cuMemRelease(handle));
    let(at, UNIT, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    check((int *)at, N, 3);
    add<<<(N + 127) / 128, 128>>>((int *)at, N, 7);
    OK(cudaDeviceSynchronize());
    let(at, UNIT, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    OK(cuMemUnmap(at, UNIT));
    OK(cuMemAddressFree(at, UNIT));
}

int main(int, char **arguments) {
    const char *mode = arguments[1], *text = arguments[2];
    if (!strcmp(mode, "share")) share_handles(arguments[0], text);
    if (!strcmp(mode, "open")) open_handles(text);
    if (!strcmp(mode, "gone")) open_freed(text);
    if (!strcmp(mode, "map")) map_memory(arguments[0]);
    if (!strcmp(mode, "import")) import_memory(atoi(text));
}
