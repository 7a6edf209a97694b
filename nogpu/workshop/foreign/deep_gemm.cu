// DeepGEMM's bf16 kernel for SM100 with a host program of ours, which does what csrc/jit_kernels does: the package itself
// compiles kernels to machine code and loads that. D (M x N) = A (M x K) B^T (N x K), all row-major, D in bf16.
//
//     python tools/nvcc_run.py late -std=c++20 -I CHECKOUT/deep_gemm/include -I CUTLASS/include ... tools/deep_gemm.cu
//
// -DCTAS=1 or 2: CTAs of an MMA. Ends with "right" and exit code 0, or "wrong" and 1. The persistent kernel gets SMS SMs
// (deep_gemm.set_num_sms), so that each has several tiles.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <deep_gemm/impls/sm100_bf16_gemm.cuh>

#ifndef CTAS
#define CTAS 1
#endif

constexpr int M = 512, N = 512, K = 1024, SMS = 4;
constexpr int BLOCK_M = 128, BLOCK_N = 128, BLOCK_K = 64, SWIZZLE = 128;
constexpr int LOAD_M = BLOCK_M, LOAD_N = BLOCK_N / CTAS, ELEMENT = sizeof(__nv_bfloat16);
// SM100ArchSpec::get_pipeline_config
constexpr int OTHER_BYTES = BLOCK_M * SWIZZLE * 2 + 32 * 8 * 3 + 2 * 8 * 2 + 8 + 4;
constexpr int STAGE_BYTES = (LOAD_M + LOAD_N) * BLOCK_K * ELEMENT;
constexpr int STAGES = (232448 - OTHER_BYTES) / STAGE_BYTES < 32 ? (232448 - OTHER_BYTES) / STAGE_BYTES : 32;
constexpr int THREADS = 128;  // of each half: copies and MMAs, epilogue

static void check(cudaError_t error, const char* what) {
    if (error == cudaSuccess) return;
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    std::exit(1);
}

static CUtensorMap map(void* data, int rows, int columns, int box_rows) {
    CUtensorMap result;
    const cuuint64_t sizes[] = {cuuint64_t(columns), cuuint64_t(rows)}, strides[] = {cuuint64_t(columns) * ELEMENT};
    const cuuint32_t box[] = {SWIZZLE / ELEMENT, cuuint32_t(box_rows)}, steps[] = {1, 1};
    const CUresult error = cuTensorMapEncodeTiled(
        &result, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, data, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
        CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (error != CUDA_SUCCESS) {
        std::fprintf(stderr, "cuTensorMapEncodeTiled: %d\n", int(error));
        std::exit(1);
    }
    return result;
}

int main() {
    std::vector<float> a(M * K), b(N * K);
    std::vector<__nv_bfloat16> a_bf16(M * K), b_bf16(N * K), d(M * N);
    unsigned seed = 1;
    const auto fill = [&](std::vector<float>& values, std::vector<__nv_bfloat16>& rounded) {
        for (size_t i = 0; i < values.size(); ++i) {
            seed = seed * 1664525u + 1013904223u;
            rounded[i] = __float2bfloat16(float(int(seed >> 16) % 201 - 100) / 100);
            values[i] = __bfloat162float(rounded[i]);
        }
    };
    fill(a, a_bf16), fill(b, b_bf16);
    __nv_bfloat16 *da, *db, *dd;
    check(cudaMalloc(&da, M * K * ELEMENT), "A");
    check(cudaMalloc(&db, N * K * ELEMENT), "B");
    check(cudaMalloc(&dd, M * N * ELEMENT), "D");
    check(cudaMemcpy(da, a_bf16.data(), M * K * ELEMENT, cudaMemcpyHostToDevice), "copy of A");
    check(cudaMemcpy(db, b_bf16.data(), N * K * ELEMENT, cudaMemcpyHostToDevice), "copy of B");

    using namespace deep_gemm;
    constexpr auto kernel = &sm100_bf16_gemm_impl<
        cute::UMMA::Major::K, cute::UMMA::Major::K, 0, N, K, BLOCK_M, BLOCK_N, BLOCK_K, 1, SWIZZLE, SWIZZLE, SWIZZLE, STAGES,
        THREADS, THREADS, CTAS, false, SMS, 128, false, false, GemmType::Normal, false, cutlass::bfloat16_t, 100>;
    constexpr int bytes = OTHER_BYTES + STAGES * STAGE_BYTES;
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), "shared memory");
    cudaLaunchAttribute attributes[2];
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim = {CTAS, 1, 1};
    cudaLaunchConfig_t config = {SMS, 2 * THREADS, bytes, nullptr, attributes, 2};
    check(cudaLaunchKernelEx(&config, kernel, (int*)nullptr, uint32_t(M), uint32_t(N), uint32_t(K), map(da, M, K, LOAD_M),
                             map(db, N, K, LOAD_N), map(dd, M, N, BLOCK_M)), "launch");
    check(cudaDeviceSynchronize(), "kernel");
    check(cudaMemcpy(d.data(), dd, M * N * ELEMENT, cudaMemcpyDeviceToHost), "copy of D");

    int wrong = 0;
    for (int m = 0; m < M; ++m)
        for (int n = 0; n < N; ++n) {
            double sum = 0;
            for (int k = 0; k < K; ++k) sum += double(a[m * K + k]) * b[n * K + k];
            const float got = __bfloat162float(d[m * N + n]);
            // bf16 is rounded to one part in 256; the sums of K products of at most 1 are fp32.
            wrong += !(std::abs(got - sum) <= std::abs(sum) / 256 + 1e-3);
        }
    std::printf("%d x %d x %d, %d CTAs an MMA, %d stages: %s (%d of %d)\n", M, N, K, CTAS, STAGES, wrong ? "wrong" : "right",
                wrong, M * N);
    return wrong ? 1 : 0;
}
