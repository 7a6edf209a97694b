// Stands in for libcudart.so and libcuda.so in CUDA C++ programs on the emulated device.
//
// Each entry point passes its arguments on, as words, to the function of cuda/programs that has its name (entries.py).
// What happens before main, the registration of kernels and variables, is kept in a list that Python reads when it
// first needs it. In a process that is no Python the first call of an entry point starts one.

#pragma once
#include "../../../native/types.h"

#define EXPORT __attribute__((visibility("default")))

typedef struct {
    const char *name;
    void *function;  // 0 until Python has connected it
} Entry;

// CUDA Runtime API and CUDA Driver API, "error types"; the two share these numbers.
enum { SUCCESS = 0, UNLOADING = 4, MISSING_CONFIGURATION = 52, NOT_SUPPORTED = 801 };

// What a program has registered.
enum { RECORD_VOID, RECORD_MODULE, RECORD_FUNCTION, RECORD_VARIABLE, RECORD_MANAGED, RECORD_UNREGISTER };

typedef struct {
    word kind;
    word module;       // handle
    word host;         // of a module its fat binary's wrapper, of a function or variable the address on the host
    const char *name;  // in the PTX
    word size;         // bytes, of a variable
} Record;

void start_python(void);
int python_has_ended(void);  // asked once Python has connected the entries

// Around whatever may reach device memory.
void enter(void);
void leave(void);
