// Matrix products of one warp by nvcuda::wmma, as programs write them: tiles over K, elements of fragments, an epilogue.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda::wmma;

// d[M, N] = 2 * a[M, k] * b[k, N] + c[M, N], all row-major but b, which is column-major.
template <int M, int N, int K, typename Operand, typename Memory, typename Result>
__device__ void product(const Memory *a, const Memory *b, const Result *c, Result *d, int k) {
    fragment<matrix_a, M, N, K, Operand, row_major> left;
    fragment<matrix_b, M, N, K, Operand, col_major> right;
    fragment<accumulator, M, N, K, Result> sum, before;
    fill_fragment(sum, static_cast<Result>(0.0f));
    for (int i = 0; i < k; i += K) {
        load_matrix_sync(left, a + i, k);
        load_matrix_sync(right, b + i, k);
        if constexpr (K == 8) {
            for (int e = 0; e < left.num_elements; e++) left.x[e] = __float_to_tf32(left.x[e]);
            for (int e = 0; e < right.num_elements; e++) right.x[e] = __float_to_tf32(right.x[e]);
        }
        mma_sync(sum, left, right, sum);
    }
    load_matrix_sync(before, c, N, mem_row_major);
    for (int e = 0; e < sum.num_elements; e++) sum.x[e] = sum.x[e] + sum.x[e] + before.x[e];
    store_matrix_sync(d, sum, N, mem_row_major);
}

extern "C" {
__global__ void bf16(const __nv_bfloat16 *a, const __nv_bfloat16 *b, const float *c, float *d, int k) {
    product<16, 16, 16, __nv_bfloat16>(a, b, c, d, k);
}
__global__ void bf16_wide(const __nv_bfloat16 *a, const __nv_bfloat16 *b, const float *c, float *d, int k) {
    product<8, 32, 16, __nv_bfloat16>(a, b, c, d, k);
}
__global__ void f16(const half *a, const half *b, const half *c, half *d, int k) {
    product<32, 8, 16, half>(a, b, c, d, k);
}
__global__ void tf32(const float *a, const float *b, const float *c, float *d, int k) {
    product<16, 16, 8, precision::tf32>(a, b, c, d, k);
}
__global__ void s8(const signed char *a, const signed char *b, const int *c, int *d, int k) {
    product<16, 16, 16, signed char>(a, b, c, d, k);
}
__global__ void f64(const double *a, const double *b, const double *c, double *d, int k) {
    product<8, 8, 4, double>(a, b, c, d, k);
}

// d = a * b of 16 x 16 matrices of bf16 through shared memory, whose lines are 24 elements apart.
__global__ void through_shared(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *d) {
    __shared__ __align__(32) __nv_bfloat16 tiles[2][16][24];
    __shared__ __align__(32) float result[16][20];
    for (int i = threadIdx.x; i < 256; i += 32) {
        tiles[0][i / 16][i % 16] = a[i];
        tiles[1][i / 16][i % 16] = b[i];
    }
    __syncwarp();
    fragment<matrix_a, 16, 16, 16, __nv_bfloat16, row_major> left;
    fragment<matrix_b, 16, 16, 16, __nv_bfloat16, row_major> right;
    fragment<accumulator, 16, 16, 16, float> sum;
    fill_fragment(sum, 0.0f);
    load_matrix_sync(left, &tiles[0][0][0], 24);
    load_matrix_sync(right, &tiles[1][0][0], 24);
    mma_sync(sum, left, right, sum);
    store_matrix_sync(&result[0][0], sum, 20, mem_col_major);
    __syncwarp();
    for (int i = threadIdx.x; i < 256; i += 32) d[i] = result[i % 16][i / 16];
}
}
