// A program: transposes 8x8 tiles of a matrix that TMA brings, by a tensor map that the driver encodes.
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

constexpr int ROWS = 24, COLUMNS = 16, TILE = 8;

#define OK(call)                                                                              \
    do {                                                                                      \
        if (cudaError_t error = (call)) {                                                     \
            printf("line %d: %s\n", __LINE__, cudaGetErrorString(error));                     \
            exit(1);                                                                          \
        }                                                                                     \
    } while (0)

__global__ void transpose(const __grid_constant__ CUtensorMap map, float *out) {
    __shared__ alignas(128) float tile[TILE][TILE];
    __shared__ alignas(8) unsigned long long barrier;
    unsigned to = __cvta_generic_to_shared(tile), on = __cvta_generic_to_shared(&barrier);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(on));
        asm volatile("fence.proxy.async.shared::cta;");
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(on), "r"((int)sizeof tile));
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
            "l"(&map), "r"(blockIdx.x * TILE), "r"(blockIdx.y * TILE), "r"(on)
            : "memory");
    }
    __syncthreads();
    asm volatile(
        "{\n.reg .pred done;\nWAIT:\nmbarrier.try_wait.parity.shared.b64 done, [%0], 0;\n@!done bra WAIT;\n}" ::"r"(on)
        : "memory");
    int row = threadIdx.x / TILE, column = threadIdx.x % TILE;
    out[(blockIdx.x * TILE + row) * ROWS + blockIdx.y * TILE + column] = tile[column][row];
}

int main(int argc, char **argv) {
    float host[ROWS][COLUMNS], back[COLUMNS][ROWS], *in, *out;
    for (int i = 0; i < ROWS * COLUMNS; i++) host[0][i] = i;
    OK(cudaMalloc(&in, sizeof host));
    OK(cudaMalloc(&out, sizeof back));
    OK(cudaMemcpy(in, host, sizeof host, cudaMemcpyHostToDevice));

    decltype(&cuTensorMapEncodeTiled) encode;
    cudaDriverEntryPointQueryResult outcome;
    OK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&encode, 12000, cudaEnableDefault, &outcome));
    CUtensorMap map;
    cuuint64_t dims[] = {COLUMNS, ROWS}, strides[] = {COLUMNS * sizeof(float)};
    cuuint32_t box[] = {TILE, TILE}, steps[] = {1, 1};
    CUresult made = encode(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, in, dims, strides, box, steps,
                           CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                           CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (made != CUDA_SUCCESS) return printf("encode: %d\n", made), 1;

    transpose<<<dim3(COLUMNS / TILE, ROWS / TILE), TILE * TILE>>>(map, argc > 1 ? out + 1 : out);
    OK(cudaDeviceSynchronize());
    OK(cudaMemcpy(back, out, sizeof back, cudaMemcpyDeviceToHost));
    for (int row = 0; row < ROWS; row++)
        for (int column = 0; column < COLUMNS; column++)
            if (back[column][row] != host[row][column]) return printf("wrong at %d, %d\n", row, column), 1;
    printf("right, %s\n", argv[0] + strlen(argv[0]) - 1);
    return 0;
}
