// Kernels that launch kernels, in the order that CUDA promises. Prints "no error", or the line of a check that fails.

#include <cstdio>

#define CHECK(condition) \
    if (!(condition)) return printf("line %d: %s\n", __LINE__, cudaGetErrorString(cudaGetLastError())), 1
#define OK(call) CHECK((call) == cudaSuccess)

enum { CTAS = 16, DEPTH = 5, PENDING = 40 };

struct Step { int factor, offset; char unused[3]; };

__global__ void step(int *x, Step s) { x[threadIdx.x] = x[threadIdx.x] * s.factor + s.offset; }

// A CTA's queue keeps the order; what the tail queue gets comes last, behind what the children launch.
__global__ void in_order(int *x, int depth) {
    int *own = x + 32 * blockIdx.x;
    if (threadIdx.x) return;
    own[0] = 3;
    step<<<1, 1, 0, cudaStreamTailLaunch>>>(own, {1, 1});
    step<<<1, 1>>>(own, {2, 0});
    step<<<1, 1>>>(own, {1, 5});
    if (depth) in_order<<<1, 32>>>(own + 1, depth - 1);
}

// One launch of each warp, of two that hand over a word.
__global__ void counting(int *x) {
    extern __shared__ int words[];
    words[threadIdx.x] = threadIdx.x;
    __syncthreads();
    if (threadIdx.x % 32 == 0) step<<<1, 2>>>(x + 4 * blockIdx.x + 2 * (words[threadIdx.x ^ 32] / 32), {1, 3});
}

__global__ void shared_sum(int *x) {
    extern __shared__ int parts[];
    int i = threadIdx.x + blockDim.x * threadIdx.y;
    parts[i] = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    __syncthreads();
    if (i == 0) {
        int sum = 0;
        for (int j = 0; j < blockDim.x * blockDim.y; j++) sum += parts[j];
        atomicAdd(x, sum);
    }
}

__global__ void services(int *x, int *errors) {
    cudaStream_t queue, other;
    cudaEvent_t event;
    int device = 7, devices = 0, sms = 0;
    int *memory = nullptr;
    int failed = 0;
    failed += cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking) != cudaSuccess;
    failed += cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking) != cudaSuccess || queue == other;
    failed += cudaEventCreateWithFlags(&event, cudaEventDisableTiming) != cudaSuccess;
    failed += cudaMemsetAsync(x, 1, 64, queue) != cudaSuccess;
    failed += cudaMemcpyAsync(x + 16, x, 32, cudaMemcpyDeviceToDevice, queue) != cudaSuccess;
    failed += cudaEventRecord(event, queue) != cudaSuccess || cudaStreamWaitEvent(other, event, 0) != cudaSuccess;
    step<<<1, 1, 0, other>>>(x + 16, {2, 1});
    shared_sum<<<dim3(2, 3, 4), dim3(8, 4), 128, cudaStreamFireAndForget>>>(x + 32);
    failed += cudaStreamDestroy(queue) != cudaSuccess || cudaEventDestroy(event) != cudaSuccess;
    failed += cudaGetDevice(&device) != cudaSuccess || device != 0;
    failed += cudaGetDeviceCount(&devices) != cudaSuccess || devices != 1;
    failed += cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0) != cudaSuccess || sms < 100;
    failed += cudaDeviceGetAttribute(&sms, (cudaDeviceAttr)100000, 0) != cudaErrorInvalidValue;
    failed += cudaMalloc(&memory, 100) != cudaSuccess || (memory[3] = 4) != 4 || cudaFree(memory) != cudaSuccess;
    failed += cudaPeekAtLastError() != cudaSuccess || cudaGetErrorString(cudaSuccess)[0] != 'n';
    failed += cudaGetParameterBufferV2((void *)step, dim3(1), dim3(1), 0) == nullptr;  // which nobody launches
    *errors = failed;
}

__global__ void too_many(int *x, int *errors) {
    for (int i = 0; i < PENDING + 2; i++) step<<<1, 1>>>(x, {1, 1});
    bool right = cudaPeekAtLastError() == cudaErrorLaunchPendingCountExceeded;
    right = right && cudaGetLastError() == cudaErrorLaunchPendingCountExceeded && cudaGetLastError() == cudaSuccess;
    *errors = !right;
}

int main() {
    int *x, *errors, host[32 * CTAS], failed;
    size_t limit;
    OK(cudaDeviceSetLimit(cudaLimitDevRuntimePendingLaunchCount, PENDING));
    OK(cudaDeviceGetLimit(&limit, cudaLimitDevRuntimePendingLaunchCount));
    CHECK(limit == PENDING);
    OK(cudaMalloc(&x, sizeof host));
    OK(cudaMalloc(&errors, 4));
    OK(cudaMemset(x, 0, sizeof host));

    in_order<<<8, 32>>>(x, DEPTH);
    OK(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
    for (int cta = 0; cta < 8; cta++)
        for (int i = 0; i < 32; i++) CHECK(host[32 * cta + i] == (i <= DEPTH ? 3 * 2 + 5 + 1 : 0));

    OK(cudaMemset(x, 0, sizeof host));
    counting<<<CTAS, 64, 256>>>(x);
    OK(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 4 * CTAS; i++) CHECK(host[i] == 3);

    OK(cudaMemset(x, 0, sizeof host));
    services<<<1, 1>>>(x, errors);
    OK(cudaMemcpy(&failed, errors, 4, cudaMemcpyDeviceToHost));
    OK(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
    CHECK(failed == 0);
    for (int i = 0; i < 24; i++) CHECK(host[i] == (i == 16 ? 0x2020203 : 0x1010101));
    CHECK(host[24] == 0 && host[32] == 32 * 23 * 24 / 2);

    OK(cudaMemset(x, 0, sizeof host));
    too_many<<<1, 1>>>(x, errors);
    OK(cudaMemcpy(&failed, errors, 4, cudaMemcpyDeviceToHost));
    OK(cudaMemcpy(host, x, 4, cudaMemcpyDeviceToHost));
    CHECK(failed == 0 && host[0] == PENDING);
    puts("no error");
}
