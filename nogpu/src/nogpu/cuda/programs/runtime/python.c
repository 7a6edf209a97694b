#define _GNU_SOURCE
#include "runtime.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

// Python, in the process of a program that is none. programs.py sets the variables of the environment.

static const char CONNECT[] = "import nogpu.cuda.programs.connection as c; c.connect()";

static void (*finish)(void);

static void *need(void *library, const char *symbol) {
    void *found = dlsym(library, symbol);
    if (!found) {
        fprintf(stderr, "the emulator found no %s in the Python library: %s\n", symbol, dlerror());
        _exit(1);
    }
    return found;
}

static void at_exit(void) {
    enter();
    if (finish) finish();
}

// Called by Python: what to do when the program ends.
EXPORT void emulator_at_exit(void (*function)(void)) {
    if (!finish) atexit(at_exit);
    finish = function;
}

static void start(void) {
    void *self = dlopen(0, RTLD_NOW);
    int (*initialized)(void) = (int (*)(void))dlsym(self, "Py_IsInitialized");
    if (initialized && initialized()) {  // a Python whose program has loaded a library itself
        int (*ensure)(void) = (int (*)(void))need(self, "PyGILState_Ensure");
        int state = ensure();
        ((int (*)(const char *))need(self, "PyRun_SimpleString"))(CONNECT);
        ((void (*)(int))need(self, "PyGILState_Release"))(state);
        return;
    }
    const char *path = getenv("NOGPU_LIBPYTHON"), *name = getenv("NOGPU_PYTHON");
    if (!path || !name) {
        fprintf(stderr, "this program's CUDA library is the emulator's: start it by nogpu run\n");
        _exit(1);
    }
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);  // global: extension modules look for its symbols
    if (!library) {
        fprintf(stderr, "the emulator could not load Python: %s\n", dlerror());
        _exit(1);
    }
    typedef wchar_t *Decode(const char *, size_t *);
    Decode *decode = (Decode *)need(library, "Py_DecodeLocale");
    ((void (*)(const wchar_t *))need(library, "Py_SetProgramName"))(decode(name, 0));
    ((void (*)(int))need(library, "Py_InitializeEx"))(0);  // signals are the program's
    if (((int (*)(const char *))need(library, "PyRun_SimpleString"))(CONNECT) != 0) _exit(1);
    ((void *(*)(void))need(library, "PyEval_SaveThread"))();
}

void start_python(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start);
}

// Static objects of C++ call the runtime after that.
int python_has_ended(void) {
    static int (*initialized)(void);
    if (!initialized) initialized = (int (*)(void))dlsym(RTLD_DEFAULT, "Py_IsInitialized");
    return initialized && !initialized();
}
