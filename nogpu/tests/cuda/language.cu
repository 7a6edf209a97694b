// CUDA C++ whose PTX has more than straight code: calls, constants, variables, assertions, clusters, wide integers.

#include <cassert>
#include <cstdint>
#include <cstdio>
#include <cuda_fp16.h>

struct Pair {
    float x, y;
};

struct Table {
    int32_t* out;
    int8_t values[24];
};

__constant__ float weights[8] = {0.5f, 1.f, 1.5f, 2.f, 2.5f, 3.f, 3.5f, 4.f};
__device__ int counter = 5;
__device__ int history[4];
__device__ int* latest = &history[2];
__device__ const char* greeting = "hello";

__device__ __noinline__ Pair rotate(Pair p, int times) {
    for (int i = 0; i < times; ++i) p = Pair{-p.y, p.x};
    return p;
}

__device__ __noinline__ float spread(float value, int from) {
    __shared__ float exchanged[64];
    exchanged[threadIdx.x] = value;
    __syncthreads();
    float result = exchanged[from] + rotate(Pair{value, 1.f}, from & 3).x;
    __syncthreads();
    return result;
}

extern "C" __global__ void calls(float* values) {
    const int i = threadIdx.x;
    float value = values[i];
    if (i % 3 == 0) value = rotate(Pair{value, 2.f * i}, i & 3).y;
    values[i] = spread(value, (i * 7) & 63) + spread(values[i], 5);
}

__device__ __noinline__ int twice(int value) { return 2 * value; }
__device__ __noinline__ int square(int value) { return value * value; }
using Function = int (*)(int);
__device__ Function functions[2] = {twice, square};

extern "C" __global__ void pointers(int* values, int shift) {
    values[threadIdx.x] = functions[(threadIdx.x + shift) & 1](values[threadIdx.x]);
}

extern "C" __global__ void constants(float* out, int shift) { out[threadIdx.x] = weights[(threadIdx.x + shift) & 7]; }

extern "C" __global__ void variables(int* out) {
    if (threadIdx.x == 0) {
        *latest = counter;
        atomicAdd(&counter, 1);
    }
    __syncthreads();
    out[threadIdx.x] = history[threadIdx.x & 3] * 100 + counter + greeting[threadIdx.x % 5];
}

extern "C" __global__ void past_the_end(int index) { history[index] = 1; }

extern "C" __global__ void by_value(const __grid_constant__ Table table, int shift) {
    table.out[threadIdx.x] = table.values[(threadIdx.x + shift) % 24];
}

extern "C" __global__ void print(int value) {
    if (threadIdx.x < 2) {
        printf("%d|%5d|%-5d|%05d|%+d|%u|%x|%#X|%o|%c|%%\n", value, value, value, value, value, 4000000000u, 255u, 255u,
               8, 'q');
        printf("[%s] %10.3f %e %g %lld %llu %hhd %.*f\n", greeting, 1.5 * value, 12345.678, 1e-7, -(1ll << 40), ~0ull,
               300, 2, 2.0 / 3);
    }
    if (threadIdx.x == 1) printf("last of %d arguments\n", printf("plain, "));
}

extern "C" __global__ void checked(const int* values, int limit) { assert(values[threadIdx.x] < limit); }

extern "C" __global__ void wide(const uint64_t* in, uint64_t* out) {
    const unsigned __int128 a = (unsigned __int128)in[0] << 64 | in[1], b = (unsigned __int128)in[2] << 64 | in[3];
    const unsigned __int128 results[] = {a + b, a - b, a * b};
    for (int i = 0; i < 3; ++i) {
        out[2 * i] = uint64_t(results[i] >> 64);
        out[2 * i + 1] = uint64_t(results[i]);
    }
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) neighbours(int* out) {
    __shared__ int own;
    uint32_t rank, address = static_cast<uint32_t>(__cvta_generic_to_shared(&own)), other;
    int seen;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (threadIdx.x == 0) own = 10 * blockIdx.x;
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(other) : "r"(address), "r"(rank ^ 1));
    asm volatile("ld.shared::cluster.s32 %0, [%1];" : "=r"(seen) : "r"(other));
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
    out[blockIdx.x * blockDim.x + threadIdx.x] = seen + threadIdx.x;
}

extern "C" __global__ void __launch_bounds__(64) bounded(int* out) { out[threadIdx.x] = 1; }

extern "C" __global__ void counted(int* out, int limit) {
    out[threadIdx.x] = __syncthreads_count(threadIdx.x < limit) + 100 * __syncthreads_or(threadIdx.x == limit) +
                       200 * __syncthreads_and(limit);
}

extern "C" __global__ void halves(__half* out, const __half* in, int n) {
    __half2 sum = __float2half2_rn(0.f);
    const __half2* pairs = reinterpret_cast<const __half2*>(in);
    for (int i = 0; i < n; ++i) sum = __hfma2(pairs[i], __half2half2(in[threadIdx.x]), sum);
    out[threadIdx.x] = __hadd(__low2half(sum), __high2half(sum));
}

extern "C" __global__ void functions_of(double* doubles, float* floats) {
    const int i = threadIdx.x;
    doubles[i] = exp(doubles[i]) / 3.0 + sqrt(fabs(doubles[i]));
    floats[i] = expf(floats[i]) + sinf(floats[i]) * tanhf(floats[i]) + rsqrtf(fabsf(floats[i]) + 1.f);
}
