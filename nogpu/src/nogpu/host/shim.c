/* Stands in for libcute_dsl_runtime.so, the library that CuTe DSL links its compiled host code against.
 *
 * The host code calls the CUDA runtime by these symbols. Loading a library, looking up a kernel, setting its
 * attributes and launching it are forwarded to Python (nogpu/src/nogpu/host/runtime.py); the rest is answered here. All
 * functions return a cudaError_t. Where a symbol is missing, the DSL fails at compile time with its name. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_VALUE = 1 };
enum { ATTRIBUTE_CLUSTER = 4, ATTRIBUTE_COOPERATIVE = 2, ATTRIBUTE_PROGRAMMATIC = 6 };
enum { ATTRIBUTE_PROGRAMMATIC_EVENT = 7, ATTRIBUTE_COMPLETION_EVENT = 12 };
/* Preferences without effect on results: cluster scheduling policy, priority, shared memory carveout, preferred cluster
 * dimension (the device may always use the regular one, and does). */
enum { HINT_CLUSTER_POLICY = 5, HINT_PRIORITY = 8, HINT_PREFERRED_CLUSTER = 11, HINT_CARVEOUT = 14 };

typedef struct {
    int32_t id;
    int32_t padding;
    union {
        uint32_t words[16];
        int32_t flag;
        void *event; /* and its flags */
    } value;
} attribute_t; /* cudaLaunchAttribute */

typedef struct {
    uint32_t grid[3];
    uint32_t block[3];
    uint64_t dynamic_shared_bytes;
    void *queue;
    attribute_t *attributes;
    uint32_t attribute_count;
} config_t; /* cudaLaunchConfig_t */

typedef struct {
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t cluster[3];
    uint32_t programmatic;
    uint32_t cooperative;
    int32_t unknown_attribute; /* 0: none */
    uint64_t dynamic_shared_bytes;
    void *event; /* recorded by the launch; NULL: none */
    void *queue;
} launch_t; /* runtime.Launch */

typedef struct {
    uint32_t data_type, rank, interleave, swizzle, l2_promotion, fill;
    uint64_t address;
    const uint64_t *dims, *strides;
    const uint32_t *box, *element_strides;
} tensor_map_t; /* runtime.TensorMapArguments */

static struct {
    int (*load)(void **library);
    int (*get_kernel)(void **kernel, void *library, const char *name);
    int (*set_attribute)(void *kernel, int attribute, int value);
    int (*launch)(void *kernel, const launch_t *launch, void **parameters);
    int (*device_attribute)(int *value, int attribute);
    int (*encode)(void *tensor_map, const tensor_map_t *arguments);
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

/* Devices */

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

/* Libraries and kernels */

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
    if (attribute != 1) /* CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: the DSL's kernels have dynamic shared memory only */
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

int _cudaLaunchKernelEx(const config_t *config, void *kernel, void **parameters) {
    launch_t launch = {.cluster = {1, 1, 1},
                       .dynamic_shared_bytes = config->dynamic_shared_bytes,
                       .queue = config->queue};
    memcpy(launch.grid, config->grid, sizeof launch.grid);
    memcpy(launch.block, config->block, sizeof launch.block);
    for (uint32_t i = 0; i < config->attribute_count; i++) {
        const attribute_t *attribute = &config->attributes[i];
        switch (attribute->id) {
        case 0: break;
        case ATTRIBUTE_CLUSTER: memcpy(launch.cluster, attribute->value.words, sizeof launch.cluster); break;
        case ATTRIBUTE_COOPERATIVE: launch.cooperative = attribute->value.flag != 0; break;
        case ATTRIBUTE_PROGRAMMATIC: launch.programmatic = attribute->value.flag != 0; break;
        case ATTRIBUTE_PROGRAMMATIC_EVENT:
        case ATTRIBUTE_COMPLETION_EVENT: launch.event = attribute->value.event; break;
        case HINT_CLUSTER_POLICY:
        case HINT_PRIORITY:
        case HINT_PREFERRED_CLUSTER:
        case HINT_CARVEOUT: break;
        default: launch.unknown_attribute = attribute->id;
        }
    }
    return python.launch(kernel, &launch, parameters);
}

int _cuTensorMapEncodeTiled(void *tensor_map, uint32_t data_type, uint32_t rank, void *address, const uint64_t *dims,
                            const uint64_t *strides, const uint32_t *box, const uint32_t *element_strides,
                            uint32_t interleave, uint32_t swizzle, uint32_t l2_promotion, uint32_t fill) {
    tensor_map_t arguments = {data_type, rank, interleave, swizzle, l2_promotion, fill, (uint64_t)address,
                              dims, strides, box, element_strides};
    return python.encode(tensor_map, &arguments);
}

/* The original ends the process. Here Python keeps the failure and raises it when the host code returns. */
void cuda_dialect_assert_success(int error) { (void)error; }

/* TVM-FFI builds load their library on the first call. A call that fails must leave an error with the FFI, whose
 * setters are arguments here; the user sees the exception that Python has kept. */

typedef void set_error_t(const char *kind, const char *message);
typedef void set_error_parts_t(const char *kind, const char **parts, int32_t count);

int cuda_dialect_init_library_once(void **state, int (*init)(void **), int (*load_to_device)(void **, int),
                                   set_error_t *set_error) {
    if (*state != NULL)
        return SUCCESS;
    void *library = NULL;
    int error = init(&library);
    if (error == SUCCESS && load_to_device != NULL)
        error = load_to_device(&library, 0);
    if (error == SUCCESS)
        *state = library;
    else
        set_error("RuntimeError", "the emulator could not load the kernel library");
    return error;
}

void cuda_dialect_unload_library_once(void **state) { *state = NULL; }

const char *cuda_dialect_get_error_name(int error) {
    return error == SUCCESS ? "cudaSuccess" : "cudaErrorLaunchFailure";
}

void CuteDSLRT_TVMFFISetRaisedCudaError(set_error_parts_t *set_error, int error) {
    (void)error;
    const char *message = "the emulated launch failed";
    set_error("RuntimeError", &message, 1);
}

/* Called where a figure of the launch exceeds the device's limit; the figures are the other arguments. */
void CuteDSLRT_TVMFFISetRaisedCudaLaunchError(set_error_parts_t *set_error, ...) {
    const char *message = "the launch exceeds a limit of the emulated device";
    set_error("RuntimeError", &message, 1);
}
