// What CuTe DSL's host code calls beside the CUDA runtime, as libcute_dsl_runtime.so has it. The runtime's functions
// have names of their own there (entries.h). Where a symbol is missing, the DSL fails at compile time with its name.

#include "runtime.h"

// Work is complete when the call that submits it returns, or is pending until its results are needed.

EXPORT int _cudaDeviceSynchronize(void) { return SUCCESS; }
EXPORT int _cudaStreamSynchronize(void) { return SUCCESS; }
EXPORT int _cudaLibraryUnload(void) { return SUCCESS; }

// The original ends the process. Here Python keeps the failure and raises it when the host code returns.
EXPORT void cuda_dialect_assert_success(int error) { (void)error; }

// TVM-FFI builds load their library on the first call. A call that fails must leave an error with the FFI, whose
// setters are arguments here; the user sees the exception that Python has kept.

typedef void SetError(const char *kind, const char *message);
typedef void SetErrorParts(const char *kind, const char **parts, s32 count);

EXPORT int cuda_dialect_init_library_once(void **state, int (*init)(void **), int (*load_to_device)(void **, int),
                                          SetError *set_error) {
    if (*state) return SUCCESS;
    void *library = 0;
    int error = init(&library);
    if (error == SUCCESS && load_to_device) error = load_to_device(&library, 0);
    if (error == SUCCESS) *state = library;
    else set_error("RuntimeError", "the emulator could not load the kernel library");
    return error;
}

EXPORT void cuda_dialect_unload_library_once(void **state) { *state = 0; }

EXPORT const char *cuda_dialect_get_error_name(int error) {
    return error == SUCCESS ? "cudaSuccess" : "cudaErrorLaunchFailure";
}

EXPORT void CuteDSLRT_TVMFFISetRaisedCudaError(SetErrorParts *set_error, int error) {
    (void)error;
    const char *message = "the emulated launch failed";
    set_error("RuntimeError", &message, 1);
}

// Called where a figure of the launch exceeds the device's limit; the figures are the other arguments.
EXPORT void CuteDSLRT_TVMFFISetRaisedCudaLaunchError(SetErrorParts *set_error, ...) {
    const char *message = "the launch exceeds a limit of the emulated device";
    set_error("RuntimeError", &message, 1);
}
