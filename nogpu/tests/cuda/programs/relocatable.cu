#include "relocatable.cuh"
#include <cstdio>
static __device__ int own = 1000;
static __device__ __noinline__ int local(int x) { return x + own; }
__global__ void kernel(int *y) { y[threadIdx.x] = twice(threadIdx.x) + counter + table[threadIdx.x & 3] + local(plus_one(0)); }
__global__ void launching(int *y) { if (threadIdx.x == 0) other<<<1, 32>>>(y); }  // of the other file

int main() {
    int *device, host[32], two = 2;
    cudaMalloc(&device, sizeof host);
    for (int run = 0; run < 2; run++) {
        kernel<<<1, 32>>>(device);
        cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost);
        for (int i = 0; i < 32; i++)
            if (host[i] != 2 * i + (run ? 2 : 40) + i % 4 + 1 + 1001) return printf("kernel: %d at %d\n", host[i], i), 1;
        cudaMemcpyToSymbol(counter, &two, sizeof two);
    }
    for (int run = 0; run < 2; run++) {
        cudaMemset(device, 0, sizeof host);
        run ? launching<<<2, 32>>>(device) : other<<<1, 32>>>(device);
        cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost);
        for (int i = 0; i < 32; i++)
            if (host[i] != i + 1 + 100) return printf("other: %d at %d, run %d\n", host[i], i, run), 1;
    }
    puts(cudaGetErrorString(cudaGetLastError()));
}
