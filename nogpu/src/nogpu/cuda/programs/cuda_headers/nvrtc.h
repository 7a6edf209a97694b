// NVRTC for programs on the device; programs/nvrtc.py compiles by nvcc. Not declared: LTO IR, OptiX IR, precompiled headers.
#pragma once
#include <stddef.h>

typedef enum {
    NVRTC_SUCCESS = 0,
    NVRTC_ERROR_OUT_OF_MEMORY = 1,
    NVRTC_ERROR_PROGRAM_CREATION_FAILURE = 2,
    NVRTC_ERROR_INVALID_INPUT = 3,
    NVRTC_ERROR_INVALID_PROGRAM = 4,
    NVRTC_ERROR_INVALID_OPTION = 5,
    NVRTC_ERROR_COMPILATION = 6,
    NVRTC_ERROR_BUILTIN_OPERATION_FAILURE = 7,
    NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION = 8,
    NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION = 9,
    NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID = 10,
    NVRTC_ERROR_INTERNAL_ERROR = 11,
    NVRTC_ERROR_TIME_FILE_WRITE_FAILED = 12
} nvrtcResult;
typedef struct _nvrtcProgram *nvrtcProgram;

enum { EMULATOR_NVRTC_PTX, EMULATOR_NVRTC_LOG };

#ifdef __cplusplus
extern "C" {
#endif
size_t emulator_nvrtc_create(nvrtcProgram *program, const char *source, const char *name, int count,
                             const char *const *headers, const char *const *names);
size_t emulator_nvrtc_destroy(nvrtcProgram *program);
size_t emulator_nvrtc_add_name(nvrtcProgram program, const char *name);
size_t emulator_nvrtc_compile(nvrtcProgram program, int count, const char *const *options);
size_t emulator_nvrtc_text(nvrtcProgram program, int which, size_t *bytes, char *text);
size_t emulator_nvrtc_lowered_name(nvrtcProgram program, const char *name, const char **lowered);
size_t emulator_nvrtc_version(int *major, int *minor);

static inline const char *nvrtcGetErrorString(nvrtcResult result) {
    static const char *const names[] = {
        "NVRTC_SUCCESS",
        "NVRTC_ERROR_OUT_OF_MEMORY",
        "NVRTC_ERROR_PROGRAM_CREATION_FAILURE",
        "NVRTC_ERROR_INVALID_INPUT",
        "NVRTC_ERROR_INVALID_PROGRAM",
        "NVRTC_ERROR_INVALID_OPTION",
        "NVRTC_ERROR_COMPILATION",
        "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE",
        "NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION",
        "NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION",
        "NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID",
        "NVRTC_ERROR_INTERNAL_ERROR",
        "NVRTC_ERROR_TIME_FILE_WRITE_FAILED",
    };
    return (unsigned)result < sizeof names / sizeof *names ? names[result] : "NVRTC_ERROR unknown";
}

static inline nvrtcResult nvrtcVersion(int *major, int *minor) {
    return (nvrtcResult)emulator_nvrtc_version(major, minor);
}

static inline nvrtcResult nvrtcCreateProgram(nvrtcProgram *program, const char *source, const char *name, int count,
                                             const char *const *headers, const char *const *names) {
    return (nvrtcResult)emulator_nvrtc_create(program, source, name, count, headers, names);
}

static inline nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program) {
    return (nvrtcResult)emulator_nvrtc_destroy(program);
}

static inline nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int count, const char *const *options) {
    return (nvrtcResult)emulator_nvrtc_compile(program, count, options);
}

static inline nvrtcResult nvrtcAddNameExpression(nvrtcProgram program, const char *const name) {
    return (nvrtcResult)emulator_nvrtc_add_name(program, name);
}

static inline nvrtcResult nvrtcGetLoweredName(nvrtcProgram program, const char *const name, const char **lowered) {
    return (nvrtcResult)emulator_nvrtc_lowered_name(program, name, lowered);
}

#define EMULATOR_NVRTC_GETS(name, kind)                                                   \
    static inline nvrtcResult nvrtcGet##name##Size(nvrtcProgram program, size_t *bytes) { \
        return (nvrtcResult)emulator_nvrtc_text(program, kind, bytes, NULL);              \
    }                                                                                     \
    static inline nvrtcResult nvrtcGet##name(nvrtcProgram program, char *text) {          \
        return (nvrtcResult)emulator_nvrtc_text(program, kind, NULL, text);               \
    }
EMULATOR_NVRTC_GETS(PTX, EMULATOR_NVRTC_PTX)
EMULATOR_NVRTC_GETS(CUBIN, EMULATOR_NVRTC_PTX)
EMULATOR_NVRTC_GETS(ProgramLog, EMULATOR_NVRTC_LOG)
#ifdef __cplusplus
}
#endif
