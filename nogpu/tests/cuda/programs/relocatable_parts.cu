#include "relocatable.cuh"
static __device__ int own = 100;
static __device__ __noinline__ int local(int x) { return x + own; }
__device__ int counter = 40;
__constant__ int table[4] = {1, 2, 3, 4};
__device__ int twice(int x) { return 2 * x; }
__global__ void other(int *y) { y[threadIdx.x] = local(plus_one(threadIdx.x)); }
