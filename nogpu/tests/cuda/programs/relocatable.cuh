// Relocatable device code: one file defines what the other uses. Static functions and templates are in both.
#pragma once
__device__ int twice(int x);
extern __device__ int counter;
extern __constant__ int table[4];
__global__ void other(int *y);
template <class T> __device__ __noinline__ T plus_one(T x) { return x + 1; }
