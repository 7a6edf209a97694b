// Checks of NVRTC that test_nvrtc.py calls: each returns 0, or the line that fails.
#include <cuda.h>
#include <nvrtc.h>

#include <cstring>
#include <string>

#define CHECK(condition) \
    do {                 \
        if (!(condition)) return __LINE__; \
    } while (0)
#define OK(call) CHECK((call) == NVRTC_SUCCESS)
#define CUDA(call) CHECK((call) == CUDA_SUCCESS)

static const char *source = R"(
#include "twice.h"
__constant__ int offset = 5;
namespace own { template <typename T> __global__ void add(T *x) { x[threadIdx.x] = twice(x[threadIdx.x]) + offset + MORE; } }
)";
static const char *header = "template <typename T> __device__ T twice(T x) { return 2 * x; }\n";

static std::string log_of(nvrtcProgram program) {
    size_t bytes = 0;
    if (nvrtcGetProgramLogSize(program, &bytes) != NVRTC_SUCCESS) return "";
    std::string text(bytes, ' ');
    nvrtcGetProgramLog(program, &text[0]);
    return text;
}

extern "C" int kernels() {
    nvrtcProgram program;
    const char *name = "twice.h", *lowered, *options[] = {"--gpu-architecture=compute_100", "-DMORE=1", "-pch"};
    size_t bytes;
    OK(nvrtcCreateProgram(&program, source, "own.cu", 1, &header, &name));
    OK(nvrtcAddNameExpression(program, "own::add<int>"));
    OK(nvrtcAddNameExpression(program, "&offset"));
    CHECK(nvrtcGetLoweredName(program, "own::add<int>", &lowered) == NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION);
    CHECK(nvrtcGetPTXSize(program, &bytes) == NVRTC_ERROR_INVALID_PROGRAM);
    OK(nvrtcCompileProgram(program, 3, options));
    CHECK(nvrtcAddNameExpression(program, "own::add<float>") == NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION);
    CHECK(nvrtcGetLoweredName(program, "own::add<float>", &lowered) == NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID);
    OK(nvrtcGetCUBINSize(program, &bytes));
    std::string image(bytes, ' ');
    OK(nvrtcGetCUBIN(program, &image[0]));
    CHECK(image.size() == bytes && !image.back());
    CUmodule module;
    CUfunction add;
    CUdeviceptr offset, x;
    CUcontext context;
    CUDA(cuInit(0));
    CUDA(cuDevicePrimaryCtxRetain(&context, 0));
    CUDA(cuCtxSetCurrent(context));
    CUDA(cuModuleLoadData(&module, image.data()));
    OK(nvrtcGetLoweredName(program, "own::add<int>", &lowered));
    CUDA(cuModuleGetFunction(&add, module, lowered));
    OK(nvrtcGetLoweredName(program, "&offset", &lowered));
    CUDA(cuModuleGetGlobal(&offset, &bytes, module, lowered));
    CHECK(bytes == 4);
    int more = 6;
    CUDA(cuMemcpyHtoD(offset, &more, sizeof more));  // kernels may not write a constant, the host may
    int values[4] = {1, 2, 3, 4};
    CUDA(cuMemAlloc(&x, sizeof values));
    CUDA(cuMemcpyHtoD(x, values, sizeof values));
    void *arguments[] = {&x};
    CUDA(cuLaunchKernel(add, 1, 1, 1, 4, 1, 1, 0, nullptr, arguments, nullptr));
    CUDA(cuMemcpyDtoH(values, x, sizeof values));
    CHECK(values[0] == 9 && values[3] == 15);
    OK(nvrtcDestroyProgram(&program));
    CHECK(!program && nvrtcDestroyProgram(&program) == NVRTC_ERROR_INVALID_PROGRAM);
    return 0;
}

extern "C" int beside(const char *name) {
    nvrtcProgram program;
    const char *without = "--no-source-include", *text = "#include \"beside.h\"\n__global__ void f(int *x) { *x = BESIDE; }";
    OK(nvrtcCreateProgram(&program, text, name, 0, nullptr, nullptr));
    OK(nvrtcCompileProgram(program, 0, nullptr));
    CHECK(nvrtcCompileProgram(program, 1, &without) == NVRTC_ERROR_COMPILATION);
    return 0;
}

extern "C" int failures() {
    nvrtcProgram program;
    const char *relocatable = "--relocatable-device-code=true";
    int major, minor;
    CHECK(nvrtcCreateProgram(&program, nullptr, nullptr, 0, nullptr, nullptr) == NVRTC_ERROR_INVALID_INPUT);
    OK(nvrtcCreateProgram(&program, "__global__ void f() {\n  undeclared;\n}", "wrong.cu", 0, nullptr, nullptr));
    CHECK(nvrtcCompileProgram(program, 0, nullptr) == NVRTC_ERROR_COMPILATION);
    CHECK(log_of(program).find("wrong.cu(2): error: identifier \"undeclared\"") != std::string::npos);
    CHECK(nvrtcCompileProgram(program, 1, &relocatable) == NVRTC_ERROR_INVALID_OPTION);
    CHECK(log_of(program).find("is not modelled") != std::string::npos);
    CHECK(!strcmp(nvrtcGetErrorString(NVRTC_ERROR_COMPILATION), "NVRTC_ERROR_COMPILATION"));
    OK(nvrtcVersion(&major, &minor));
    CHECK(major == 13);
    return 0;
}
