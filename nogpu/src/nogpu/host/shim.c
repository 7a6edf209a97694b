// Stands in for libcute_dsl_runtime.so, the library that CuTe DSL links its compiled host code against.
//
// The host code calls the CUDA runtime by these symbols. Loading a library, looking up a kernel, setting its
// attributes and launching it are forwarded to Python (nogpu/src/nogpu/host/runtime.py); the rest is answered here. All
// functions return a cudaError_t. Where a symbol is missing, the DSL fails at compile time with its name.

#include "../native/types.h"

enum { SUCCESS = 0, INVALID_VALUE = 1 };
enum { ATTRIBUTE_CLUSTER = 4, ATTRIBUTE_COOPERATIVE = 2, ATTRIBUTE_PROGRAMMATIC = 6 };
enum { ATTRIBUTE_PROGRAMMATIC_EVENT = 7, ATTRIBUTE_COMPLETION_EVENT = 12 };
// Preferences without effect on results: cluster scheduling policy, priority, shared memory carveout, preferred cluster
// dimension (the device may always use the regular one, and does).
enum { HINT_CLUSTER_POLICY = 5, HINT_PRIORITY = 8, HINT_PREFERRED_CLUSTER = 11, HINT_CARVEOUT = 14 };

typedef struct {
    s32 id, padding;
    u32 words[16];
} Attribute;  // cudaLaunchAttribute

typedef struct {
    u32 grid[3], block[3];
    u64 shared;  // bytes of dynamic shared memory
    word queue;
    Attribute *attributes;
    u32 count;
} Config;  // cudaLaunchConfig_t

typedef struct {
    u32 grid[3], block[3], cluster[3];
    u32 programmatic, cooperative;
    s32 unknown_attribute;  // 0: none
    u64 dynamic_shared_bytes;
    void *event;  // recorded by the launch; 0: none
    word queue;
} Launch;

typedef struct {
    u32 data_type, rank, interleave, swizzle, l2_promotion, fill;
    u64 address;
    const u64 *dims, *strides;
    const u32 *box, *element_strides;
} TensorMapArguments;  // of cuTensorMapEncodeTiled

static struct {
    int (*load)(void **library);
    int (*get_kernel)(void **kernel, void *library, const char *name);
    int (*set_attribute)(void *kernel, int attribute, int value);
    int (*launch)(void *kernel, const Launch *launch, void **parameters);
    int (*device_attribute)(int *value, int attribute);
    int (*encode)(void *tensor_map, const TensorMapArguments *arguments);
} python;

void emulator_register(void *load, void *get_kernel, void *set_attribute, void *launch, void *device_attribute,
                       void *encode) {
    python.load = load;
    python.get_kernel = get_kernel;
    python.set_attribute = set_attribute;
    python.launch = launch;
    python.device_attribute = device_attribute;
    python.encode = encode;
}

// Devices

int _cudaGetDevice(int *device) {
    *device = 0;
    return SUCCESS;
}

int _cudaSetDevice(int device) { return device == 0 ? SUCCESS : INVALID_VALUE; }

int _cudaGetDeviceCount(int *count) {
    *count = 1;
    return SUCCESS;
}

int _cudaDeviceGetAttribute(int *value, int attribute, int device) {
    return device == 0 ? python.device_attribute(value, attribute) : INVALID_VALUE;
}

int _cudaDeviceSynchronize(void) { return SUCCESS; }

int _cudaStreamSynchronize(void *queue) {
    (void)queue;
    return SUCCESS;
}

// Libraries and kernels

int _cudaLibraryLoadData(void **library, const void *code, void *jit_options, void *jit_values, unsigned jit_count,
                         void *options, void *values, unsigned count) {
    (void)code, (void)jit_options, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    return python.load(library);
}

int _cudaLibraryUnload(void *library) {
    (void)library;
    return SUCCESS;
}

int _cudaLibraryGetKernel(void **kernel, void *library, const char *name) {
    return python.get_kernel(kernel, library, name);
}

int _cuKernelGetAttribute(int *value, int attribute, void *kernel, int device) {
    (void)kernel, (void)device;
    if (attribute != 1)  // CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: the DSL's kernels have dynamic shared memory only
        return INVALID_VALUE;
    *value = 0;
    return SUCCESS;
}

int _cudaFuncSetAttribute(void *kernel, int attribute, int value) {
    return python.set_attribute(kernel, attribute, value);
}

int _cudaKernelSetAttributeForDevice(void *kernel, int attribute, int value, int device) {
    return device == 0 ? python.set_attribute(kernel, attribute, value) : INVALID_VALUE;
}

int _cudaLaunchKernelEx(const Config *config, void *kernel, void **parameters) {
    Launch launch = {.cluster = {1, 1, 1}, .dynamic_shared_bytes = config->shared, .queue = config->queue};
    memcpy(launch.grid, config->grid, sizeof launch.grid);
    memcpy(launch.block, config->block, sizeof launch.block);
    for (u32 i = 0; i < config->count; i++) {
        const Attribute *attribute = &config->attributes[i];
        switch (attribute->id) {
        case 0: break;
        case ATTRIBUTE_CLUSTER: memcpy(launch.cluster, attribute->words, sizeof launch.cluster); break;
        case ATTRIBUTE_COOPERATIVE: launch.cooperative = attribute->words[0] != 0; break;
        case ATTRIBUTE_PROGRAMMATIC: launch.programmatic = attribute->words[0] != 0; break;
        case ATTRIBUTE_PROGRAMMATIC_EVENT:
        case ATTRIBUTE_COMPLETION_EVENT: memcpy(&launch.event, attribute->words, 8); break;
        case HINT_CLUSTER_POLICY:
        case HINT_PRIORITY:
        case HINT_PREFERRED_CLUSTER:
        case HINT_CARVEOUT: break;
        default: launch.unknown_attribute = attribute->id;
        }
    }
    return python.launch(kernel, &launch, parameters);
}

int _cuTensorMapEncodeTiled(void *tensor_map, u32 data_type, u32 rank, void *address, const u64 *dims,
                            const u64 *strides, const u32 *box, const u32 *element_strides,
                            u32 interleave, u32 swizzle, u32 l2_promotion, u32 fill) {
    TensorMapArguments arguments = {data_type, rank, interleave, swizzle, l2_promotion, fill,
                                    (u64)address, dims, strides, box, element_strides};
    return python.encode(tensor_map, &arguments);
}

// The original ends the process. Here Python keeps the failure and raises it when the host code returns.
void cuda_dialect_assert_success(int error) { (void)error; }

// TVM-FFI builds load their library on the first call. A call that fails must leave an error with the FFI, whose
// setters are arguments here; the user sees the exception that Python has kept.

typedef void SetError(const char *kind, const char *message);
typedef void SetErrorParts(const char *kind, const char **parts, s32 count);

int cuda_dialect_init_library_once(void **state, int (*init)(void **), int (*load_to_device)(void **, int),
                                   SetError *set_error) {
    if (*state) return SUCCESS;
    void *library = 0;
    int error = init(&library);
    if (error == SUCCESS && load_to_device) error = load_to_device(&library, 0);
    if (error == SUCCESS) *state = library;
    else set_error("RuntimeError", "the emulator could not load the kernel library");
    return error;
}

void cuda_dialect_unload_library_once(void **state) { *state = 0; }

const char *cuda_dialect_get_error_name(int error) {
    return error == SUCCESS ? "cudaSuccess" : "cudaErrorLaunchFailure";
}

void CuteDSLRT_TVMFFISetRaisedCudaError(SetErrorParts *set_error, int error) {
    (void)error;
    const char *message = "the emulated launch failed";
    set_error("RuntimeError", &message, 1);
}

// Called where a figure of the launch exceeds the device's limit; the figures are the other arguments.
void CuteDSLRT_TVMFFISetRaisedCudaLaunchError(SetErrorParts *set_error, ...) {
    const char *message = "the launch exceeds a limit of the emulated device";
    set_error("RuntimeError", &message, 1);
}
