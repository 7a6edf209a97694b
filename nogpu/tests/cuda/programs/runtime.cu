// Checks of the CUDA runtime that test_cuda_programs.py calls: each returns 0, or the line that fails.
#include <cooperative_groups.h>
#include <cuda.h>
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>

#include <cstring>

#define CHECK(condition) \
    do {                 \
        if (!(condition)) return __LINE__; \
    } while (0)
#define OK(call) CHECK((call) == cudaSuccess)
#define CUDA(call) CHECK((call) == CUDA_SUCCESS)

__constant__ float factors[4];
__device__ int count = 5;
__managed__ int managed = 7;

__global__ void add(const float *x, const float *y, float *z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = x[i] + y[i];
}

__global__ void scale(float *x) {
    x[threadIdx.x] *= factors[threadIdx.x % 4];
    if (threadIdx.x == 0) count += 1, managed += 1;
}

__global__ void reverse(int *x, int n) {
    extern __shared__ int buffer[];
    buffer[n - 1 - threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = buffer[threadIdx.x];
}

__global__ void ranks(int *x) {
    auto cluster = cooperative_groups::this_cluster();
    if (threadIdx.x == 0) x[blockIdx.x] = 10 * cluster.num_blocks() + cluster.block_rank();
}

__global__ void sum_of_all(int *x, int *sums) {
    auto grid = cooperative_groups::this_grid();
    if (!grid.is_valid()) {
        sums[blockIdx.x] = -1;
        return;
    }
    for (int round = 0; round < 2; round++) {
        if (threadIdx.x == 0) x[blockIdx.x] = blockIdx.x + round;
        grid.sync();
        int sum = 0;
        for (int i = 0; i < gridDim.x; i++) sum += x[i];
        grid.sync();
        if (threadIdx.x == 0) sums[blockIdx.x] = sum;
    }
}

__global__ void __launch_bounds__(64) bounded(int *x) {
    __shared__ int buffer[300];
    buffer[threadIdx.x] = threadIdx.x;
    __syncthreads();
    x[threadIdx.x] = buffer[63 - threadIdx.x];
}

__global__ void store(int *x, int index) { x[index] = 1; }

struct Place {
    int value;
    Place *next;
};
__device__ Place *kept;

__global__ void allocate(int *x, size_t most) {
    Place *place = new Place{(int)threadIdx.x, nullptr};
    int *words = (int *)malloc(20000);
    words[4999] = place->value;
    x[threadIdx.x] = words[4999] + (malloc(most) != nullptr);
    free(words);
    if (threadIdx.x == 5 && !kept) kept = place;
    else delete place;
}

__global__ void release(int *x) {
    x[0] = kept->value;
    delete kept;
    kept = nullptr;
}

extern "C" int vector_add() {
    const int n = 200;
    float host[n], *x, *z;
    for (int i = 0; i < n; i++) host[i] = i;
    OK(cudaMalloc(&x, sizeof host));
    OK(cudaMallocAsync(&z, sizeof host, 0));
    OK(cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice));
    cudaStream_t queue;
    OK(cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking));
    add<<<2, 128, 0, queue>>>(x, x, z, n);
    OK(cudaGetLastError());
    OK(cudaMemcpyAsync(host, z, sizeof host, cudaMemcpyDefault, queue));
    OK(cudaStreamSynchronize(queue));
    OK(cudaStreamDestroy(queue));
    for (int i = 0; i < n; i++) CHECK(host[i] == 2 * i);
    OK(cudaFree(x));
    OK(cudaFreeAsync(z, 0));
    return 0;
}

extern "C" int symbols() {
    float host[8] = {1, 1, 1, 1, 1, 1, 1, 1}, *x, four[4] = {1, 2, 3, 4};
    int seen;
    void *address;
    size_t size;
    OK(cudaMalloc(&x, sizeof host));
    OK(cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice));
    OK(cudaMemcpyToSymbol(factors, four, sizeof four));
    OK(cudaMemcpyToSymbol(factors, four, sizeof(float), 2 * sizeof(float)));
    CHECK(managed == 7);
    scale<<<1, 8>>>(x);
    OK(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 8; i++) CHECK(host[i] == (i % 4 == 2 ? 1 : i % 4 + 1));
    OK(cudaMemcpyFromSymbol(&seen, count, sizeof seen));
    CHECK(seen == 6 && managed == 8);
    OK(cudaGetSymbolAddress(&address, count));
    float *place;
    OK(cudaGetSymbolAddress((void **)&place, factors));
    OK(cudaMemcpy(place, four, sizeof four, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(place + 1, four, sizeof four, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    OK(cudaGetSymbolSize(&size, factors));
    CHECK(size == sizeof four);
    OK(cudaMemcpy(&seen, address, sizeof seen, cudaMemcpyDeviceToHost));
    CHECK(seen == 6);
    CHECK(cudaMemcpyToSymbol(factors, four, sizeof four, 1) == cudaErrorInvalidValue);
    CHECK(cudaGetSymbolAddress(&address, host) == cudaErrorInvalidSymbol);
    return 0;
}

extern "C" int queues() {
    cudaStream_t queue, unknown = reinterpret_cast<cudaStream_t>(0x1234);
    int *x, flags;
    OK(cudaMalloc(&x, sizeof *x));
    OK(cudaStreamCreate(&queue));
    store<<<1, 1, 0, queue>>>(x, 0);
    OK(cudaGetLastError());
    for (cudaStream_t known : {cudaStream_t(0), cudaStreamLegacy, cudaStreamPerThread}) {
        store<<<1, 1, 0, known>>>(x, 0);
        OK(cudaMemsetAsync(x, 0, sizeof *x, known));
        OK(cudaStreamSynchronize(known));
    }
    OK(cudaStreamDestroy(queue));
    for (cudaStream_t wrong : {queue, unknown}) {
        store<<<1, 1, 0, wrong>>>(x, 0);
        CHECK(cudaGetLastError() == cudaErrorInvalidResourceHandle);
        cudaLaunchConfig_t config = {};
        config.gridDim = config.blockDim = 1;
        config.stream = wrong;
        CHECK(cudaLaunchKernelEx(&config, store, x, 0) == cudaErrorInvalidResourceHandle);
        CHECK(cudaMemsetAsync(x, 0, sizeof *x, wrong) == cudaErrorInvalidResourceHandle);
        CHECK(cudaStreamSynchronize(wrong) == cudaErrorInvalidResourceHandle);
        CHECK(cudaStreamGetFlags(wrong, reinterpret_cast<unsigned *>(&flags)) == cudaErrorInvalidResourceHandle);
        CHECK(cudaStreamDestroy(wrong) == cudaErrorInvalidResourceHandle);
        (void)cudaGetLastError();
    }
    OK(cudaFree(x));
    return 0;
}

extern "C" int dynamic_shared() {
    const int n = 256, most = 232448;
    int host[n], *x;
    for (int i = 0; i < n; i++) host[i] = i;
    OK(cudaMalloc(&x, sizeof host));
    OK(cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice));
    reverse<<<1, n, 48 * 1024>>>(x, n);
    OK(cudaGetLastError());
    reverse<<<1, n, 48 * 1024 + 1>>>(x, n);
    CHECK(cudaPeekAtLastError() == cudaErrorInvalidValue && cudaGetLastError() == cudaErrorInvalidValue);
    OK(cudaGetLastError());
    OK(cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, most));
    CHECK(cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, most + 1) == cudaErrorInvalidValue);
    reverse<<<1, n, most>>>(x, n);
    OK(cudaDeviceSynchronize());
    OK(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) CHECK(host[i] == i);
    return 0;
}

extern "C" int clusters() {
    int host[4], *x;
    OK(cudaMalloc(&x, sizeof host));
    cudaLaunchAttribute attributes[3];
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim = {2, 1, 1};
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = 1;
    attributes[2].id = cudaLaunchAttributePriority;
    attributes[2].val.priority = 0;
    cudaLaunchConfig_t config = {4, 32, 0, 0, attributes, 3};
    OK(cudaLaunchKernelEx(&config, ranks, x));
    OK(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 4; i++) CHECK(host[i] == 20 + i % 2);
    int fit;
    OK(cudaOccupancyMaxActiveClusters(&fit, ranks, &config));
    CHECK(fit == 148 * 32 / 2);
    config.gridDim = 3;
    CHECK(cudaLaunchKernelEx(&config, ranks, x) == cudaErrorInvalidClusterSize);
    config.gridDim = 16, attributes[0].val.clusterDim = {16, 1, 1};
    CHECK(cudaLaunchKernelEx(&config, ranks, x) == cudaErrorInvalidClusterSize);
    OK(cudaFuncSetAttribute(ranks, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    OK(cudaFree(x));
    OK(cudaMalloc(&x, 16 * sizeof *x));
    OK(cudaLaunchKernelEx(&config, ranks, x));
    OK(cudaMemcpy(host, x + 12, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 4; i++) CHECK(host[i] == 160 + 12 + i);
    return 0;
}

extern "C" int cooperative() {
    int host[2], *x;
    OK(cudaMalloc(&x, sizeof host));
    void *arguments[] = {&x};
    OK(cudaLaunchCooperativeKernel((void *)ranks, 2, 32, arguments, 0, 0));
    OK(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
    CHECK(host[0] == 10 && host[1] == 10);
    CHECK(cudaLaunchCooperativeKernel((void *)ranks, 148 * 32 + 1, 32, arguments, 0, 0) ==
          cudaErrorCooperativeLaunchTooLarge);
    return 0;
}

extern "C" int grid_barrier() {
    int host[12], *x, *sums;
    OK(cudaMalloc(&x, sizeof host));
    OK(cudaMalloc(&sums, sizeof host));
    void *arguments[] = {&x, &sums};
    for (int launches = 0; launches < 2; launches++) {
        OK(cudaMemset(sums, 0, sizeof host));
        OK(cudaLaunchCooperativeKernel((void *)sum_of_all, 12, 64, arguments, 0, 0));
        OK(cudaMemcpy(host, sums, sizeof host, cudaMemcpyDeviceToHost));
        for (int sum : host) CHECK(sum == 66 + 12);
    }
    sum_of_all<<<12, 64>>>(x, sums);
    OK(cudaMemcpy(host, sums, sizeof host, cudaMemcpyDeviceToHost));
    for (int sum : host) CHECK(sum == -1);
    return 0;
}

extern "C" int occupancy() {
    cudaFuncAttributes attributes;
    int resident;
    size_t free;
    OK(cudaFuncGetAttributes(&attributes, bounded));
    CHECK(attributes.sharedSizeBytes == 1200 && attributes.maxThreadsPerBlock == 64);
    CHECK(attributes.maxDynamicSharedSizeBytes == 48 * 1024 - 1200 && attributes.binaryVersion == 100);
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, bounded, 64, 0));
    CHECK(resident == 32);
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, bounded, 64, 100000));
    CHECK(resident == 2);
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, add, 1024, 0));
    CHECK(resident == 2);
    OK(cudaOccupancyAvailableDynamicSMemPerBlock(&free, bounded, 2, 64));
    CHECK(free == 228 * 1024 / 2 - 1024 - 1200);
    return 0;
}

extern "C" int device() {
    cudaDeviceProp properties;
    int value;
    OK(cudaGetDeviceProperties(&properties, 0));
    CHECK(strstr(properties.name, "B200") && properties.major == 10 && properties.minor == 0);
    CHECK(properties.multiProcessorCount == 148 && properties.sharedMemPerBlockOptin == 232448);
    CHECK(properties.maxGridSize[2] == 65535 && properties.clusterLaunch == 1 && properties.warpSize == 32);
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    CHECK(value == 232448);
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrComputeMode, 0));
    CHECK(value == cudaComputeModeDefault);
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrClockRate, 0));
    CHECK(value == 1965000);
    CHECK(cudaSetDevice(1) == cudaErrorInvalidDevice);
    CHECK(cudaGetDeviceCount(&value) == cudaSuccess && value == 1);
    CHECK(cudaDeviceGetAttribute(&value, (cudaDeviceAttr)9999, 0) != cudaSuccess);
    cudaGetLastError();
    return 0;
}

extern "C" int memory() {
    char host[6][4] = {"abc", "def", "ghi"}, back[6][4] = {};
    char *rows, *pinned;
    size_t pitch;
    OK(cudaMallocPitch(&rows, &pitch, 4, 3));
    CHECK(pitch >= 4 && pitch % 256 == 0);
    OK(cudaMemset2D(rows, pitch, 'x', pitch, 3));
    OK(cudaMemcpy2D(rows, pitch, host, 4, 3, 3, cudaMemcpyHostToDevice));
    OK(cudaMemcpy2D(back, 4, rows, pitch, 4, 3, cudaMemcpyDeviceToHost));
    CHECK(memcmp(back, "abcxdefxghix", 12) == 0);
    OK(cudaMallocHost(&pinned, 16));
    OK(cudaMemset(pinned, 3, 16));
    CHECK(pinned[15] == 3);
    cudaPointerAttributes attributes;
    OK(cudaPointerGetAttributes(&attributes, rows + 1));
    CHECK(attributes.type == cudaMemoryTypeDevice && attributes.devicePointer == rows + 1);
    OK(cudaPointerGetAttributes(&attributes, pinned));
    CHECK(attributes.type == cudaMemoryTypeHost);
    int *both;
    OK(cudaMallocManaged(&both, 64));
    OK(cudaPointerGetAttributes(&attributes, both + 1));
    CHECK(attributes.type == cudaMemoryTypeManaged && attributes.devicePointer == both + 1);
    CHECK(attributes.hostPointer == both + 1);
    OK(cudaFree(both));
    OK(cudaPointerGetAttributes(&attributes, host));
    CHECK(attributes.type == cudaMemoryTypeUnregistered);
    OK(cudaHostRegister(host, sizeof host, 0));
    store<<<1, 1>>>((int *)host, 0);
    OK(cudaDeviceSynchronize());
    OK(cudaHostUnregister(host));
    CHECK(host[0][0] == 1 && host[0][1] == 0);
    OK(cudaFreeHost(pinned));
    CHECK(cudaMemcpy(rows + 3 * pitch - 1, host, 2, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    CHECK(cudaMalloc(&rows, (size_t)1 << 50) == cudaErrorMemoryAllocation);
    cudaGetLastError();
    return 0;
}

static void CUDART_CB add_one(void *data) { ++*(int *)data; }

extern "C" int events() {
    cudaEvent_t start, end;
    float milliseconds = -1;
    int called = 0, *x;
    OK(cudaMalloc(&x, 4));
    OK(cudaEventCreate(&start));
    OK(cudaEventCreateWithFlags(&end, cudaEventDefault));
    CHECK(cudaEventElapsedTime(&milliseconds, start, end) == cudaErrorInvalidResourceHandle);
    OK(cudaEventRecord(start));
    store<<<1, 1>>>(x, 0);
    OK(cudaLaunchHostFunc(0, add_one, &called));
    OK(cudaEventRecord(end));
    OK(cudaEventSynchronize(end));
    OK(cudaEventElapsedTime(&milliseconds, start, end));
    CHECK(milliseconds > 0 && called == 1);
    OK(cudaEventDestroy(start));
    cudaGetLastError();
    return 0;
}

extern "C" int illegal_address() {
    int *x, value;
    OK(cudaMalloc(&x, 4));
    store<<<1, 1>>>(x, 1);
    cudaError_t error = cudaDeviceSynchronize();
    CHECK(error == cudaErrorIllegalAddress && cudaMemcpy(&value, x, 4, cudaMemcpyDefault) == error);
    CHECK(cudaGetLastError() == error && cudaGetLastError() == error);
    CHECK(strcmp(cudaGetErrorName(error), "cudaErrorIllegalAddress") == 0);
    CHECK(strcmp(cudaGetErrorString(error), "an illegal memory access was encountered") == 0);
    OK(cudaDeviceReset());
    OK(cudaFree(x));
    return 0;
}

extern "C" int driver_entry_points() {
    void *found = nullptr;
    cudaDriverEntryPointQueryResult outcome;
    OK(cudaGetDriverEntryPointByVersion("cuGetErrorName", &found, 12000, cudaEnableDefault, &outcome));
    const char *name;
    CHECK(found && outcome == cudaDriverEntryPointSuccess);
    CHECK(((CUresult(*)(CUresult, const char **))found)(CUDA_ERROR_INVALID_VALUE, &name) == CUDA_SUCCESS);
    CHECK(strcmp(name, "CUDA_ERROR_INVALID_VALUE") == 0);
    OK(cudaGetDriverEntryPointByVersion("cuNoSuchFunction", &found, 12000, cudaEnableDefault, &outcome));
    CHECK(!found && outcome == cudaDriverEntryPointSymbolNotFound);
    cudaMipmappedArray_t array;
    cudaChannelFormatDesc floats = {32, 0, 0, 0, cudaChannelFormatKindFloat};
    CHECK(cudaMallocMipmappedArray(&array, &floats, {8, 8, 0}, 2, 0) == cudaErrorNotSupported);
    return 0;
}

static const char MODULE[] =
    ".version 8.7\n.target sm_100a\n.address_size 64\n.visible .global .u32 seed = 40;\n"
    ".visible .entry put(.param .u64 pointer, .param .u32 value) {\n"
    ".reg .u64 %p; .reg .u32 %v, %s;\n"
    "ld.param.u64 %p, [pointer]; ld.param.u32 %v, [value]; ld.global.u32 %s, [seed];\n"
    "add.u32 %v, %v, %s; st.global.u32 [%p], %v; ret; }\n";

extern "C" int modules_by_driver() {
    CUmodule module;
    CUfunction function;
    CUdeviceptr pointer, variable;
    size_t bytes;
    int value = 2, seed = 50, count;
    CHECK(cuInit(0) == CUDA_SUCCESS && cuModuleLoadData(&module, MODULE) == CUDA_SUCCESS);
    CHECK(cuModuleGetFunction(&function, module, "put") == CUDA_SUCCESS);
    CHECK(cuModuleGetFunction(&function, module, "get") == CUDA_ERROR_NOT_FOUND);
    CHECK(cuModuleGetFunction(&function, module, "put") == CUDA_SUCCESS);
    CHECK(cuMemAlloc(&pointer, 4) == CUDA_SUCCESS);
    void *arguments[] = {&pointer, &value};
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, arguments, nullptr) == CUDA_SUCCESS);
    CHECK(cuMemcpyDtoH(&count, pointer, 4) == CUDA_SUCCESS && count == 42);
    CHECK(cuModuleGetGlobal(&variable, &bytes, module, "seed") == CUDA_SUCCESS && bytes == 4);
    CHECK(cuMemcpyHtoD(variable, &seed, 4) == CUDA_SUCCESS);
    struct {
        CUdeviceptr pointer;
        int value;
    } packed = {pointer, 3};
    size_t size = 12;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, 0, nullptr, 0};
    CHECK(cuLaunchKernelEx(&config, function, nullptr, extra) == CUDA_SUCCESS);
    CHECK(cuMemcpyDtoH(&count, pointer, 4) == CUDA_SUCCESS && count == 53);
    CHECK(cuFuncGetAttribute(&count, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function) == CUDA_SUCCESS && count == 1024);
    CHECK(cuMemFree(pointer) == CUDA_SUCCESS && cuModuleUnload(module) == CUDA_SUCCESS);
    CHECK(cuModuleGetFunction(&function, module, "put") == CUDA_ERROR_INVALID_HANDLE);
    return 0;
}

extern "C" int libraries_by_runtime() {
    cudaLibrary_t library;
    cudaKernel_t kernel;
    void *pointer, *variable;
    size_t bytes;
    int value = 2, count;
    OK(cudaLibraryLoadData(&library, MODULE, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CHECK(cudaLibraryGetKernel(&kernel, library, "get") == cudaErrorSymbolNotFound);
    OK(cudaLibraryGetKernel(&kernel, library, "put"));
    OK(cudaLibraryGetGlobal(&variable, &bytes, library, "seed"));
    OK(cudaMalloc(&pointer, 4));
    void *arguments[] = {&pointer, &value};
    OK(cudaLaunchKernel((void *)kernel, dim3(1), dim3(1), arguments, 0, 0));
    OK(cudaMemcpy(&count, pointer, 4, cudaMemcpyDeviceToHost));
    CHECK(count == 42 && bytes == 4);
    OK(cudaFree(pointer));
    OK(cudaLibraryUnload(library));
    CHECK(cudaLibraryGetKernel(&kernel, library, "put") == cudaErrorInvalidResourceHandle);
    return 0;
}

static void CUDART_CB note(void *data) { ++*(int *)data; }

extern "C" int graph_by_nodes() {
    const int n = 4;
    int *x, host[n], calls = 0;
    OK(cudaProfilerStart());
    OK(cudaMalloc(&x, sizeof host));
    cudaGraph_t graph, clone;
    OK(cudaGraphCreate(&graph, 0));
    cudaMemsetParams fill = {};
    fill.dst = x, fill.value = 9, fill.elementSize = 4, fill.width = n, fill.height = 1;
    int index = 2;
    void *arguments[] = {&x, &index};
    cudaKernelNodeParams kernel = {};
    kernel.func = (void *)store, kernel.gridDim = kernel.blockDim = dim3(1), kernel.kernelParams = arguments;
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr(x, sizeof host, n, 1), copy.dstPtr = make_cudaPitchedPtr(host, sizeof host, n, 1);
    copy.extent = make_cudaExtent(sizeof host, 1, 1), copy.kind = cudaMemcpyDeviceToHost;
    cudaHostNodeParams call = {note, &calls};
    cudaGraphNode_t filled, stored, copied, called, child;
    // Added before what it depends on, which an edge says later.
    OK(cudaGraphAddMemcpyNode(&copied, graph, nullptr, 0, &copy));
    OK(cudaGraphAddMemsetNode(&filled, graph, nullptr, 0, &fill));
    OK(cudaGraphAddKernelNode(&stored, graph, &filled, 1, &kernel));
    OK(cudaGraphAddDependencies(graph, &stored, &copied, nullptr, 1));
    OK(cudaGraphAddHostNode(&called, graph, &copied, 1, &call));
    OK(cudaGraphClone(&clone, graph));
    cudaGraphExec_t executable;
    OK(cudaGraphInstantiate(&executable, graph, 0));
    cudaStream_t queue;
    OK(cudaStreamCreate(&queue));
    OK(cudaGraphLaunch(executable, queue));
    OK(cudaStreamSynchronize(queue));
    CHECK(host[0] == 9 && host[2] == 1 && calls == 1);
    index = 3;
    OK(cudaGraphExecKernelNodeSetParams(executable, stored, &kernel));
    OK(cudaGraphLaunch(executable, queue));
    CHECK(host[2] == 9 && host[3] == 1 && calls == 2);
    OK(cudaGraphAddChildGraphNode(&child, graph, &called, 1, clone));
    size_t count = 0;
    OK(cudaGraphGetNodes(graph, nullptr, &count));
    cudaGraphNodeType type;
    OK(cudaGraphNodeGetType(stored, &type));
    CHECK(count == 5 && type == cudaGraphNodeTypeKernel);
    cudaGraphNode_t foreign, refused, pair[2] = {filled, child};
    OK(cudaGraphGetNodes(clone, &foreign, &(count = 1)));
    CHECK(cudaGraphAddDependencies(graph, &foreign, &child, nullptr, 1) == cudaErrorInvalidValue);
    cudaGraphNode_t targets[] = {stored, foreign};
    CHECK(cudaGraphAddDependencies(graph, pair, targets, nullptr, 2) == cudaErrorInvalidValue);
    CHECK(cudaGraphAddEmptyNode(&refused, graph, &foreign, 1) == cudaErrorInvalidValue);
    OK(cudaGraphGetNodes(graph, nullptr, &count));
    CHECK(count == 5);
    cudaGraphExec_t circle;
    OK(cudaGraphInstantiate(&circle, graph, 0));
    OK(cudaGraphExecDestroy(circle));
    OK(cudaGraphAddDependencies(graph, &child, &filled, nullptr, 1));
    CHECK(cudaGraphInstantiate(&circle, graph, 0) == cudaErrorInvalidValue);
    OK(cudaGraphExecDestroy(executable));
    OK(cudaGraphDestroy(graph));
    CHECK(cudaGraphGetNodes(graph, nullptr, &count) == cudaErrorInvalidValue);
    OK(cudaProfilerStop());
    OK(cudaFree(x));
    return 0;
}

extern "C" int graph_by_driver() {
    const int n = 4;
    int host[n], calls = 0, value = 2;
    CUmodule module;
    CUfunction function;
    CUdeviceptr x;
    CUDA(cuModuleLoadData(&module, MODULE));
    CUDA(cuModuleGetFunction(&function, module, "put"));
    CUDA(cuMemAlloc(&x, sizeof host));
    CUgraph graph, clone;
    CUDA(cuGraphCreate(&graph, 0));
    void *arguments[] = {&x, &value};
    CUDA_KERNEL_NODE_PARAMS kernel = {function, 1, 1, 1, 1, 1, 1, 0, arguments};
    CUDA_MEMSET_NODE_PARAMS fill = {x, 0, 9, 4, n, 1};
    CUDA_MEMCPY3D copy = {};
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE, copy.srcDevice = x, copy.srcPitch = sizeof host;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST, copy.dstHost = host, copy.dstPitch = sizeof host;
    copy.WidthInBytes = sizeof host, copy.Height = copy.Depth = 1;
    CUDA_HOST_NODE_PARAMS call = {note, &calls};
    CUgraphNode copied, filled, stored, called, joined, child;
    CUDA(cuGraphAddMemcpyNode(&copied, graph, nullptr, 0, &copy, nullptr));
    CUDA(cuGraphAddMemsetNode(&filled, graph, nullptr, 0, &fill, nullptr));
    CUDA(cuGraphAddKernelNode(&stored, graph, &filled, 1, &kernel));
    CUDA(cuGraphAddDependencies(graph, &stored, &copied, nullptr, 1));
    CUDA(cuGraphAddHostNode(&called, graph, &copied, 1, &call));
    CUDA(cuGraphClone(&clone, graph));
    CUDA(cuGraphAddEmptyNode(&joined, graph, &called, 1));
    CUDA(cuGraphAddChildGraphNode(&child, graph, &joined, 1, clone));
    CUgraphExec executable;
    CUstream queue;
    CUDA(cuGraphInstantiate(&executable, graph, 0));
    CUDA(cuStreamCreate(&queue, 0));
    CUDA(cuGraphUpload(executable, queue));
    CUDA(cuGraphLaunch(executable, queue));
    CUDA(cuStreamSynchronize(queue));
    CHECK(host[0] == 42 && host[1] == 9 && calls == 2);
    value = 5;
    CUDA(cuGraphExecKernelNodeSetParams(executable, stored, &kernel));
    CUDA(cuGraphKernelNodeSetParams(stored, &kernel));
    CUgraphExecUpdateResultInfo updated;
    CUDA(cuGraphExecUpdate(executable, graph, &updated));
    size_t nodes = 0, roots = 0;
    CUgraphNodeType type;
    CUDA(cuGraphGetNodes(graph, nullptr, &nodes));
    CUDA(cuGraphGetRootNodes(graph, nullptr, &roots));
    CUDA(cuGraphNodeGetType(filled, &type));
    CHECK(nodes == 6 && roots == 1 && type == CU_GRAPH_NODE_TYPE_MEMSET);
    CUDA(cuGraphExecDestroy(executable));
    CUDA(cuGraphDestroy(graph));
    CHECK(cuGraphDestroy(graph) == CUDA_ERROR_INVALID_VALUE);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUstreamCaptureStatus capturing;
    CUDA(cuThreadExchangeStreamCaptureMode(&mode));
    CUDA(cuStreamBeginCapture(queue, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CUDA(cuStreamIsCapturing(queue, &capturing));
    CUDA(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, queue, arguments, nullptr));
    CUDA(cuStreamEndCapture(queue, &graph));
    CUDA(cuGraphInstantiate(&executable, graph, 0));
    CUDA(cuMemcpyDtoH(host, x, 4));
    CHECK(capturing == CU_STREAM_CAPTURE_STATUS_ACTIVE && host[0] == 42);
    CUDA(cuGraphLaunch(executable, queue));
    CUDA(cuMemcpyDtoH(host, x, 4));
    CHECK(host[0] == 45);
    CUDA(cuMemFree(x));
    CUDA(cuModuleUnload(module));
    return 0;
}

extern "C" int graph_by_capture() {
    int *x, *other, host[2] = {5, 5}, seen[2] = {0, 0}, calls = 0;
    OK(cudaMalloc(&x, sizeof host));
    OK(cudaMalloc(&other, sizeof host));
    cudaStream_t queue, second, outside;
    cudaEvent_t fork, join;
    OK(cudaStreamCreate(&queue));
    OK(cudaStreamCreate(&second));
    OK(cudaStreamCreate(&outside));
    OK(cudaEventCreate(&fork));
    OK(cudaEventCreate(&join));
    OK(cudaStreamBeginCapture(queue, cudaStreamCaptureModeRelaxed));
    OK(cudaMemcpyAsync(x, host, sizeof host, cudaMemcpyHostToDevice, queue));
    OK(cudaEventRecord(fork, queue));
    OK(cudaStreamWaitEvent(second, fork, 0));
    store<<<1, 1, 0, second>>>(x, 0);
    OK(cudaEventRecord(join, second));
    OK(cudaStreamWaitEvent(queue, join, 0));
    store<<<1, 1, 0, outside>>>(other, 1);  // no part of the capture: it runs at once
    OK(cudaMemcpyAsync(seen, x, sizeof seen, cudaMemcpyDeviceToHost, queue));
    OK(cudaLaunchHostFunc(queue, note, &calls));
    cudaStreamCaptureStatus state;
    OK(cudaStreamIsCapturing(second, &state));
    CHECK(state == cudaStreamCaptureStatusActive);
    OK(cudaStreamIsCapturing(outside, &state));
    CHECK(state == cudaStreamCaptureStatusNone);
    CHECK(cudaStreamSynchronize(queue) == cudaErrorStreamCaptureUnsupported);
    CHECK(cudaMemcpy(host, other, sizeof host, cudaMemcpyDeviceToHost) == cudaErrorStreamCaptureImplicit);
    cudaGraph_t graph;
    CHECK(cudaStreamEndCapture(outside, &graph) == cudaErrorStreamCaptureUnmatched);
    OK(cudaStreamEndCapture(queue, &graph));
    CHECK(calls == 0 && seen[1] == 0);
    int now[2];
    OK(cudaMemcpy(now, other, sizeof now, cudaMemcpyDeviceToHost));
    CHECK(now[1] == 1);
    cudaGraphExec_t executable;
    OK(cudaGraphInstantiate(&executable, graph, 0));
    OK(cudaGraphDestroy(graph));
    for (int i = 1; i <= 2; i++) {
        host[1] = 5 + i;
        OK(cudaGraphLaunch(executable, outside));
        OK(cudaStreamSynchronize(outside));
        CHECK(seen[0] == 1 && seen[1] == 5 + i && calls == i);
    }
    OK(cudaGraphExecDestroy(executable));
    OK(cudaFree(x));
    OK(cudaFree(other));
    return 0;
}

extern "C" int device_heap() {
    const int n = 64;
    int *x, host[n];
    size_t limit;
    OK(cudaDeviceGetLimit(&limit, cudaLimitMallocHeapSize));
    OK(cudaMalloc(&x, sizeof host));
    for (int round = 0; round < 8; round++) {  // 1.3 MB each: the heap would be full without what is freed
        allocate<<<1, n>>>(x, limit);
        OK(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
        for (int i = 0; i < n; i++) CHECK(host[i] == i);
        release<<<1, 1>>>(x);
        OK(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
        CHECK(host[0] == 5);
    }
    OK(cudaFree(x));
    return 0;
}

extern "C" int pools() {
    cudaMemPool_t pool, current, usual;
    cudaMemPoolProps wanted = {};
    cudaStream_t queue;
    void *x, *y;
    unsigned long long used, most, threshold = 1 << 20, kept = 0;
    wanted.allocType = cudaMemAllocationTypePinned;
    wanted.location.type = cudaMemLocationTypeDevice;
    OK(cudaStreamCreate(&queue));
    OK(cudaMemPoolCreate(&pool, &wanted));
    OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept));
    CHECK(kept == threshold);
    OK(cudaMallocFromPoolAsync(&x, 1000, pool, queue));
    OK(cudaDeviceGetDefaultMemPool(&usual, 0));
    OK(cudaDeviceSetMemPool(0, pool));
    OK(cudaDeviceGetMemPool(&current, 0));
    CHECK(current == pool && usual != pool);
    OK(cudaMallocAsync(&y, 500, queue));
    OK(cudaFreeAsync(x, queue));
    OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &most));
    CHECK(used == 500 && most == 1500);
    OK(cudaFreeAsync(y, queue));
    cudaMemAccessDesc access = {};
    access.location = wanted.location, access.flags = cudaMemAccessFlagsProtReadWrite;
    OK(cudaMemPoolSetAccess(pool, &access, 1));
    access.location.id = 1;
    CHECK(cudaMemPoolSetAccess(pool, &access, 1) == cudaErrorNotSupported);
    OK(cudaMemPoolTrimTo(pool, 0));
    OK(cudaMemPoolDestroy(pool));
    CHECK(cudaMallocFromPoolAsync(&x, 4, pool, queue) == cudaErrorInvalidResourceHandle);
    wanted.handleTypes = cudaMemHandleTypePosixFileDescriptor;
    CHECK(cudaMemPoolCreate(&pool, &wanted) == cudaErrorNotSupported);
    OK(cudaDeviceGetMemPool(&current, 0));
    CHECK(current == usual);
    return 0;
}

extern "C" int linked_by_driver() {
    char log[8] = "before";
    CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)sizeof log}, *image;
    CUlinkState state;
    CUmodule module;
    CUfunction function;
    size_t bytes;
    CUDA(cuLinkCreate(2, options, values, &state));
    CHECK(log[0] == 0 && values[1] == nullptr);
    CHECK(cuLinkComplete(state, &image, &bytes) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuLinkAddData(state, CU_JIT_INPUT_LIBRARY, log, 1, "", 0, 0, 0) == CUDA_ERROR_NOT_SUPPORTED);
    CUDA(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)MODULE, strlen(MODULE) + 1, "put", 0, 0, 0));
    const char *second = ".version 8.7\n.target sm_100a\n.address_size 64\n.visible .global .align 4 .u32 linked[5];";
    CUDA(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)second, strlen(second) + 1, "", 0, 0, 0));
    CUDA(cuLinkComplete(state, &image, &bytes));
    CUDA(cuModuleLoadData(&module, image));
    CUdeviceptr variable;
    CUDA(cuModuleGetGlobal(&variable, &bytes, module, "linked"));
    CHECK(bytes == 20);
    CUDA(cuModuleGetFunction(&function, module, "put"));
    int grid, block;
    CUDA(cuOccupancyMaxPotentialBlockSize(&grid, &block, function, nullptr, 0, 0));
    CHECK(grid == 2 * 148 && block == 1024);
    CUDA(cuOccupancyMaxPotentialBlockSize(&grid, &block, function, [](int threads) { return (size_t)threads * 200; }, 0, 0));
    CHECK(grid == 2 * 148 && block == 576);  // 2 (200 * 576 + 1024) bytes fill an SM best
    CUDA(cuOccupancyMaxPotentialBlockSize(&grid, &block, function, nullptr, 200 << 10, 100));
    CHECK(grid == 148 && block == 100);
    CUDA(cuLinkDestroy(state));
    CHECK(cuLinkDestroy(state) == CUDA_ERROR_INVALID_HANDLE);
    return 0;
}

extern "C" int queries_by_driver() {
    CUdeviceptr x, first;
    size_t bytes, pitch;
    int able = 1, device = 1;
    char bus[16];
    CUDA(cuMemAlloc(&x, 1000));
    CUDA(cuMemGetAddressRange(&first, &bytes, x + 10));
    CHECK(first == x && bytes == 1000);
    CHECK(cuMemGetAddressRange(&first, &bytes, 8) == CUDA_ERROR_INVALID_VALUE);
    unsigned kind, managed = 1;
    CUdeviceptr start;
    CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                   CU_POINTER_ATTRIBUTE_RANGE_START_ADDR};
    void *results[] = {&kind, &managed, &start};
    CUDA(cuPointerGetAttributes(3, asked, results, x + 4));
    CHECK(kind == CU_MEMORYTYPE_DEVICE && managed == 0 && start == x);
    CUDA(cuPointerGetAttributes(3, asked, results, (CUdeviceptr)&kind));
    CHECK(kind == 0 && start == 0);
    CUDA(cuMemFree(x));
    CUDA(cuMemAllocPitch(&x, &pitch, 100, 3, 4));
    CHECK(pitch == 512);
    CUDA(cuMemFree(x));
    CUDA(cuDeviceCanAccessPeer(&able, 0, 0));
    CHECK(able == 0 && cudaDeviceEnablePeerAccess(0, 0) == cudaErrorInvalidDevice);
    CHECK(cuCtxEnablePeerAccess(nullptr, 0) == CUDA_ERROR_INVALID_CONTEXT);
    CUDA(cuCtxPopCurrent(nullptr));
    CUDA(cuDeviceGetPCIBusId(bus, sizeof bus, 0));
    CUDA(cuDeviceGetByPCIBusId(&device, bus));
    CHECK(device == 0 && cudaDeviceGetByPCIBusId(&device, "0000:99:00.0") == cudaErrorInvalidDevice);
    CUDA(cuDeviceGetAttribute(&able, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    CHECK(able == 1);
    CUDA(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 8 << 20));
    CUDA(cuCtxGetLimit(&bytes, CU_LIMIT_MALLOC_HEAP_SIZE));
    CHECK(bytes == 8 << 20);
    CHECK(cuGraphDebugDotPrint(nullptr, "", 0) == CUDA_ERROR_NOT_SUPPORTED);
    return 0;
}

extern "C" int memory_of_graphs() {
    cudaStream_t queue;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    int *x, host[4] = {};
    OK(cudaStreamCreate(&queue));
    OK(cudaStreamBeginCapture(queue, cudaStreamCaptureModeGlobal));
    OK(cudaMallocAsync(&x, sizeof host, queue));
    OK(cudaMemsetAsync(x, 1, sizeof host, queue));
    OK(cudaMemcpyAsync(host, x, sizeof host, cudaMemcpyDeviceToHost, queue));
    OK(cudaFreeAsync(x, queue));
    OK(cudaStreamEndCapture(queue, &graph));
    CHECK(host[0] == 0);
    cudaGraphNode_t nodes[4], made, gone;
    cudaGraphNodeType first, last;
    size_t count = 4;
    OK(cudaGraphGetNodes(graph, nodes, &count));
    OK(cudaGraphNodeGetType(nodes[0], &first));
    OK(cudaGraphNodeGetType(nodes[3], &last));
    CHECK(count == 4 && first == cudaGraphNodeTypeMemAlloc && last == cudaGraphNodeTypeMemFree);
    OK(cudaGraphInstantiate(&executable, graph, 0));
    for (int i = 0; i < 2; i++) {
        host[3] = 0;
        OK(cudaGraphLaunch(executable, queue));
        OK(cudaStreamSynchronize(queue));
        CHECK(host[3] == 0x01010101);
    }
    cudaMemAllocNodeParams wanted = {};
    wanted.poolProps.allocType = cudaMemAllocationTypePinned;
    wanted.poolProps.location.type = cudaMemLocationTypeDevice;
    wanted.bytesize = 64;
    OK(cudaGraphCreate(&graph, 0));
    OK(cudaGraphAddMemAllocNode(&made, graph, nullptr, 0, &wanted));
    CHECK(wanted.dptr && cudaMemset(wanted.dptr, 0, 64) == cudaSuccess);
    CHECK(cudaMemset(wanted.dptr, 0, 65) == cudaErrorInvalidValue);
    OK(cudaGraphAddMemFreeNode(&gone, graph, &made, 1, wanted.dptr));
    return 0;
}

extern "C" int bytes_of_graphs() {
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    cudaGraphNode_t made;
    size_t bytes = 1, zero = 0;
    auto now = [&](cudaGraphMemAttributeType which) {
        size_t found = 1;
        return cudaDeviceGetGraphMemAttribute(0, which, &found) == cudaSuccess ? found : 1;
    };
    cudaMemAllocNodeParams wanted = {};
    wanted.poolProps.allocType = cudaMemAllocationTypePinned;
    wanted.poolProps.location.type = cudaMemLocationTypeDevice;
    wanted.bytesize = 4096;
    OK(cudaDeviceGraphMemTrim(0));
    OK(cudaGraphCreate(&graph, 0));
    OK(cudaGraphAddMemAllocNode(&made, graph, nullptr, 0, &wanted));
    OK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(now(cudaGraphMemAttrUsedMemCurrent) == 0);
    OK(cudaGraphLaunch(executable, 0));
    OK(cudaDeviceGraphMemTrim(0));
    CHECK(now(cudaGraphMemAttrUsedMemCurrent) == 4096 && now(cudaGraphMemAttrReservedMemCurrent) == 4096);
    OK(cudaFree(wanted.dptr));
    CHECK(now(cudaGraphMemAttrUsedMemCurrent) == 4096);
    OK(cudaGraphLaunch(executable, 0));
    CHECK(now(cudaGraphMemAttrUsedMemCurrent) == 4096);
    OK(cudaFree(wanted.dptr));
    OK(cudaDeviceGraphMemTrim(0));
    CHECK(now(cudaGraphMemAttrUsedMemCurrent) == 0 && now(cudaGraphMemAttrUsedMemHigh) >= 4096);
    OK(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrUsedMemHigh, &zero));
    CHECK(now(cudaGraphMemAttrUsedMemHigh) == 0);
    CHECK(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrUsedMemHigh, &bytes) == cudaErrorInvalidValue);
    return 0;
}

__global__ void countdown(int *x, cudaGraphConditionalHandle going) {
    *x -= 1;
    x[1] += 1;
    cudaGraphSetConditional(going, *x > 0);
}

__global__ void mark(int *x, int value) { x[2] = value; }

extern "C" int conditional_nodes() {
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    cudaGraphConditionalHandle going, chosen;
    cudaGraphNode_t loop, pick, node;
    int *x, host[3] = {3, 0, 0};
    OK(cudaMalloc(&x, sizeof host));
    OK(cudaGraphCreate(&graph, 0));
    OK(cudaGraphConditionalHandleCreate(&going, graph, 1, cudaGraphCondAssignDefault));
    OK(cudaGraphConditionalHandleCreate(&chosen, graph, 1));
    cudaGraphNodeParams wanted = {cudaGraphNodeTypeConditional};
    wanted.conditional.handle = going;
    wanted.conditional.type = cudaGraphCondTypeWhile;
    wanted.conditional.size = 2;
    CHECK(cudaGraphAddNode(&loop, graph, nullptr, nullptr, 0, &wanted) == cudaErrorInvalidValue);
    wanted.conditional.size = 1;
    OK(cudaGraphAddNode(&loop, graph, nullptr, nullptr, 0, &wanted));
    void *arguments[] = {&x, &going};
    cudaGraphNodeParams launched = {cudaGraphNodeTypeKernel};
    launched.kernel.func = (void *)countdown;
    launched.kernel.gridDim = launched.kernel.blockDim = dim3(1);
    launched.kernel.kernelParams = arguments;
    OK(cudaGraphAddNode(&node, wanted.conditional.phGraph_out[0], nullptr, nullptr, 0, &launched));
    // The bodies of the second node: of one branch a kernel, of the other a captured one
    wanted.conditional.handle = chosen;
    wanted.conditional.type = cudaGraphCondTypeIf;
    wanted.conditional.size = 2;
    OK(cudaGraphAddNode(&pick, graph, &loop, nullptr, 1, &wanted));
    cudaStream_t queue;
    OK(cudaStreamCreate(&queue));
    for (int i = 0; i < 2; i++) {
        cudaGraph_t body = wanted.conditional.phGraph_out[i];
        OK(cudaStreamBeginCaptureToGraph(queue, body, nullptr, nullptr, 0, cudaStreamCaptureModeGlobal));
        mark<<<1, 1, 0, queue>>>(x, 10 + i);
        OK(cudaStreamEndCapture(queue, nullptr));
    }
    OK(cudaGraphInstantiate(&executable, graph, 0));
    for (int i = 0; i < 2; i++) {
        OK(cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice));
        OK(cudaGraphLaunch(executable, queue));
        OK(cudaStreamSynchronize(queue));
        int found[3];
        OK(cudaMemcpy(found, x, sizeof found, cudaMemcpyDeviceToHost));
        CHECK(found[0] == 0 && found[1] == 3 && found[2] == 10);
    }
    wanted.conditional.handle = 16;
    CHECK(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &wanted) == cudaErrorInvalidValue);
    wanted.type = cudaGraphNodeTypeExtSemaphoreWait;
    CHECK(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &wanted) == cudaErrorNotSupported);
    return 0;
}

extern "C" int capture_with_added_nodes() {
    cudaStream_t queue;
    cudaGraph_t graph, ended;
    cudaGraphExec_t executable;
    cudaStreamCaptureStatus state;
    const cudaGraphNode_t *needed;
    cudaGraphNode_t node;
    size_t count;
    int *x, host[3];
    OK(cudaMalloc(&x, sizeof host));
    OK(cudaStreamCreate(&queue));
    OK(cudaStreamGetCaptureInfo(queue, &state));
    CHECK(state == cudaStreamCaptureStatusNone);
    OK(cudaStreamBeginCapture(queue, cudaStreamCaptureModeGlobal));
    OK(cudaMemsetAsync(x, 0, sizeof host, queue));
    OK(cudaStreamGetCaptureInfo(queue, &state, nullptr, &graph, &needed, nullptr, &count));
    CHECK(state == cudaStreamCaptureStatusActive && count == 1);
    int value = 7;
    void *arguments[] = {&x, &value};
    cudaGraphNodeParams wanted = {cudaGraphNodeTypeKernel};
    wanted.kernel.func = (void *)mark;
    wanted.kernel.gridDim = wanted.kernel.blockDim = dim3(1);
    wanted.kernel.kernelParams = arguments;
    OK(cudaGraphAddNode(&node, graph, needed, nullptr, count, &wanted));
    OK(cudaStreamUpdateCaptureDependencies(queue, &node, nullptr, 1, cudaStreamSetCaptureDependencies));
    cudaGraphNode_t none = (cudaGraphNode_t)-8;
    CHECK(cudaStreamUpdateCaptureDependencies(queue, &none, nullptr, 1, 0) == cudaErrorInvalidValue);
    OK(cudaMemcpyAsync(host, x, sizeof host, cudaMemcpyDeviceToHost, queue));
    OK(cudaStreamEndCapture(queue, &ended));
    CHECK(ended == graph);
    OK(cudaGraphGetNodes(graph, nullptr, &count));
    CHECK(count == 3);
    OK(cudaGraphInstantiate(&executable, graph, 0));
    OK(cudaGraphLaunch(executable, queue));
    OK(cudaStreamSynchronize(queue));
    CHECK(host[0] == 0 && host[2] == 7);
    return 0;
}
