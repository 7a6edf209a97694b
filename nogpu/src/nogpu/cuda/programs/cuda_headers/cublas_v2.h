// cuBLAS for programs on the device: each function describes what it asks for, and programs/blas.py computes it.
// The guards are those of NVIDIA's headers, which a toolkit's others include by their own path.
#ifndef CUBLAS_V2_H_
#define CUBLAS_V2_H_
#define CUBLAS_API_H_
#include <cuComplex.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <library_types.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define CUBLAS_VER_MAJOR 13
#define CUBLAS_VERSION 130000
#define CUBLASAPI
#define CUBLASWINAPI

typedef enum {
    CUBLAS_STATUS_SUCCESS = 0,
    CUBLAS_STATUS_NOT_INITIALIZED = 1,
    CUBLAS_STATUS_ALLOC_FAILED = 3,
    CUBLAS_STATUS_INVALID_VALUE = 7,
    CUBLAS_STATUS_ARCH_MISMATCH = 8,
    CUBLAS_STATUS_MAPPING_ERROR = 11,
    CUBLAS_STATUS_EXECUTION_FAILED = 13,
    CUBLAS_STATUS_INTERNAL_ERROR = 14,
    CUBLAS_STATUS_NOT_SUPPORTED = 15,
    CUBLAS_STATUS_LICENSE_ERROR = 16
} cublasStatus_t;
typedef cublasStatus_t cublasStatus;
typedef enum { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1, CUBLAS_OP_C = 2, CUBLAS_OP_HERMITAN = 2, CUBLAS_OP_CONJG = 3 } cublasOperation_t;
typedef enum { CUBLAS_FILL_MODE_LOWER = 0, CUBLAS_FILL_MODE_UPPER = 1, CUBLAS_FILL_MODE_FULL = 2 } cublasFillMode_t;
typedef enum { CUBLAS_DIAG_NON_UNIT = 0, CUBLAS_DIAG_UNIT = 1 } cublasDiagType_t;
typedef enum { CUBLAS_SIDE_LEFT = 0, CUBLAS_SIDE_RIGHT = 1 } cublasSideMode_t;
typedef enum { CUBLAS_POINTER_MODE_HOST = 0, CUBLAS_POINTER_MODE_DEVICE = 1 } cublasPointerMode_t;
typedef enum { CUBLAS_ATOMICS_NOT_ALLOWED = 0, CUBLAS_ATOMICS_ALLOWED = 1 } cublasAtomicsMode_t;
typedef enum {
    CUBLAS_DEFAULT_MATH = 0,
    CUBLAS_TENSOR_OP_MATH = 1,
    CUBLAS_PEDANTIC_MATH = 2,
    CUBLAS_TF32_TENSOR_OP_MATH = 3,
    CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16
} cublasMath_t;
typedef enum {
    CUBLAS_GEMM_DFALT = -1,
    CUBLAS_GEMM_DEFAULT = -1,
    CUBLAS_GEMM_ALGO0 = 0,
    CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99,
    CUBLAS_GEMM_DFALT_TENSOR_OP = 99
} cublasGemmAlgo_t;
typedef enum {
    CUBLAS_COMPUTE_16F = 64,
    CUBLAS_COMPUTE_16F_PEDANTIC = 65,
    CUBLAS_COMPUTE_32F = 68,
    CUBLAS_COMPUTE_32F_PEDANTIC = 69,
    CUBLAS_COMPUTE_64F = 70,
    CUBLAS_COMPUTE_64F_PEDANTIC = 71,
    CUBLAS_COMPUTE_32I = 72,
    CUBLAS_COMPUTE_32I_PEDANTIC = 73,
    CUBLAS_COMPUTE_32F_FAST_16F = 74,
    CUBLAS_COMPUTE_32F_FAST_16BF = 75,
    CUBLAS_COMPUTE_32F_FAST_TF32 = 77
} cublasComputeType_t;
typedef cudaDataType cublasDataType_t;

struct cublasContext {
    cudaStream_t stream;
    cublasPointerMode_t pointers;
    cublasMath_t math;
    cublasAtomicsMode_t atomics;
};
typedef struct cublasContext *cublasHandle_t;

// blas.py reads these structures, too.
typedef struct {
    const void *address;
    int32_t type, conjugated;
    int64_t row, column, batch;
} emulator_blas_operand;
typedef struct {
    emulator_blas_operand a, b, c, d, bias;
    int64_t m, n, k, batch;
    const void *alpha, *beta, *scale_a, *scale_b;
    int32_t scale_type, operation, pointers, activation;
} emulator_blas_problem;
enum { EMULATOR_MULTIPLY, EMULATOR_ADD, EMULATOR_NORM, EMULATOR_ABSOLUTE_SUM, EMULATOR_LARGEST, EMULATOR_SMALLEST };

#ifdef __cplusplus
extern "C" {
#endif
size_t emulator_blas(const emulator_blas_problem *problem, cudaStream_t stream);

static inline cublasStatus_t emulator_blas_status(size_t code) {
    return code == 0     ? CUBLAS_STATUS_SUCCESS
           : code == 1   ? CUBLAS_STATUS_INVALID_VALUE
           : code == 801 ? CUBLAS_STATUS_NOT_SUPPORTED
                         : CUBLAS_STATUS_EXECUTION_FAILED;
}

// A matrix by columns, or its transpose.
static inline emulator_blas_operand emulator_blas_matrix(const void *address, cudaDataType type, int64_t leading,
                                                         cublasOperation_t transposed, int64_t batch) {
    emulator_blas_operand made = {address, type, transposed == CUBLAS_OP_C || transposed == CUBLAS_OP_CONJG, 1, leading, batch};
    if (transposed == CUBLAS_OP_T || transposed == CUBLAS_OP_C) made.row = leading, made.column = 1;
    return made;
}

static inline cublasStatus_t emulator_blas_gemm(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
                                                int64_t m, int64_t n, int64_t k, const void *alpha, cudaDataType scale,
                                                emulator_blas_operand a, emulator_blas_operand b, const void *beta,
                                                emulator_blas_operand c, int64_t batch, int pointers) {
    emulator_blas_problem problem;
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (m < 0 || n < 0 || k < 0 || batch < 0 || c.column < (m > 1 ? m : 1) ||
        (transa == CUBLAS_OP_N ? a.column < (m > 1 ? m : 1) : a.row < (k > 1 ? k : 1)) ||
        (transb == CUBLAS_OP_N ? b.column < (k > 1 ? k : 1) : b.row < (n > 1 ? n : 1)))
        return CUBLAS_STATUS_INVALID_VALUE;
    memset(&problem, 0, sizeof problem);
    problem.a = a, problem.b = b, problem.c = c, problem.d = c, problem.alpha = alpha, problem.beta = beta;
    problem.m = m, problem.n = n, problem.k = k, problem.batch = batch, problem.pointers = pointers;
    problem.scale_type = scale;
    return emulator_blas_status(emulator_blas(&problem, handle->stream));
}

// y = alpha x + beta y, or a reduction of x and y, of vectors as rows.
static inline cublasStatus_t emulator_blas_vectors(cublasHandle_t handle, int operation, int64_t n, cudaDataType type,
                                                   const void *alpha, const void *x, int64_t incx, const void *beta,
                                                   const void *y, int64_t incy, void *result, int result_type) {
    emulator_blas_problem problem;
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    memset(&problem, 0, sizeof problem);
    problem.a = emulator_blas_matrix(x, type, incx, CUBLAS_OP_N, 0);
    problem.alpha = alpha, problem.beta = beta, problem.scale_type = type, problem.operation = operation;
    problem.m = problem.batch = 1;
    if (operation == EMULATOR_ADD) {
        problem.c = problem.d = emulator_blas_matrix(y, type, incy, CUBLAS_OP_N, 0);
        problem.n = n > 0 ? n : 0;
    } else {
        problem.b = emulator_blas_matrix(y, type, incy, CUBLAS_OP_T, 0);
        problem.d = emulator_blas_matrix(result, (cudaDataType)result_type, 1, CUBLAS_OP_N, 0);
        problem.n = 1, problem.k = n > 0 ? n : 0;
    }
    return emulator_blas_status(emulator_blas(&problem, handle->stream));
}

static inline cublasStatus_t cublasCreate_v2(cublasHandle_t *handle) {
    if (!handle) return CUBLAS_STATUS_INVALID_VALUE;
    *handle = (cublasHandle_t)calloc(1, sizeof(struct cublasContext));
    return *handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}
static inline cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int *version) {
    (void)handle, *version = CUBLAS_VERSION;
    return CUBLAS_STATUS_SUCCESS;
}
#define EMULATOR_PROPERTY(name, type, member)                                             \
    static inline cublasStatus_t cublasSet##name(cublasHandle_t handle, type value) {     \
        if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;                                \
        handle->member = value;                                                           \
        return CUBLAS_STATUS_SUCCESS;                                                     \
    }                                                                                     \
    static inline cublasStatus_t cublasGet##name(cublasHandle_t handle, type *value) {    \
        if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;                                \
        *value = handle->member;                                                          \
        return CUBLAS_STATUS_SUCCESS;                                                     \
    }
EMULATOR_PROPERTY(Stream_v2, cudaStream_t, stream)
EMULATOR_PROPERTY(PointerMode_v2, cublasPointerMode_t, pointers)
EMULATOR_PROPERTY(MathMode, cublasMath_t, math)
EMULATOR_PROPERTY(AtomicsMode, cublasAtomicsMode_t, atomics)
static inline cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t nbytes) {
    (void)workspace, (void)nbytes;
    return handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}

static inline const char *cublasGetStatusName(cublasStatus_t status) {
    switch (status) {
#define EMULATOR_STATUS(name) case name: return #name;
        EMULATOR_STATUS(CUBLAS_STATUS_SUCCESS) EMULATOR_STATUS(CUBLAS_STATUS_NOT_INITIALIZED)
        EMULATOR_STATUS(CUBLAS_STATUS_ALLOC_FAILED) EMULATOR_STATUS(CUBLAS_STATUS_INVALID_VALUE)
        EMULATOR_STATUS(CUBLAS_STATUS_ARCH_MISMATCH) EMULATOR_STATUS(CUBLAS_STATUS_MAPPING_ERROR)
        EMULATOR_STATUS(CUBLAS_STATUS_EXECUTION_FAILED) EMULATOR_STATUS(CUBLAS_STATUS_INTERNAL_ERROR)
        EMULATOR_STATUS(CUBLAS_STATUS_NOT_SUPPORTED) EMULATOR_STATUS(CUBLAS_STATUS_LICENSE_ERROR)
#undef EMULATOR_STATUS
    }
    return "unknown cuBLAS status";
}
static inline const char *cublasGetStatusString(cublasStatus_t status) { return cublasGetStatusName(status); }

// Copies between the host and the device
static inline cublasStatus_t cublasSetMatrix(int rows, int columns, int size, const void *a, int lda, void *b, int ldb) {
    return emulator_blas_status(cudaMemcpy2D(b, (size_t)ldb * size, a, (size_t)lda * size, (size_t)rows * size, columns,
                                             cudaMemcpyHostToDevice));
}
static inline cublasStatus_t cublasGetMatrix(int rows, int columns, int size, const void *a, int lda, void *b, int ldb) {
    return emulator_blas_status(cudaMemcpy2D(b, (size_t)ldb * size, a, (size_t)lda * size, (size_t)rows * size, columns,
                                             cudaMemcpyDeviceToHost));
}
static inline cublasStatus_t cublasSetVector(int n, int size, const void *x, int incx, void *y, int incy) {
    return cublasSetMatrix(1, n, size, x, incx, y, incy);
}
static inline cublasStatus_t cublasGetVector(int n, int size, const void *x, int incx, void *y, int incy) {
    return cublasGetMatrix(1, n, size, x, incx, y, incy);
}

// Products of any types
static inline cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k, const void *alpha,
    const void *A, cudaDataType Atype, int lda, long long strideA, const void *B, cudaDataType Btype, int ldb,
    long long strideB, const void *beta, void *C, cudaDataType Ctype, int ldc, long long strideC, int batch,
    cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
    cudaDataType scale = compute <= CUBLAS_COMPUTE_16F_PEDANTIC   ? CUDA_R_16F
                         : compute == CUBLAS_COMPUTE_64F          ? (Ctype == CUDA_C_64F ? CUDA_C_64F : CUDA_R_64F)
                         : compute == CUBLAS_COMPUTE_64F_PEDANTIC ? (Ctype == CUDA_C_64F ? CUDA_C_64F : CUDA_R_64F)
                         : compute == CUBLAS_COMPUTE_32I || compute == CUBLAS_COMPUTE_32I_PEDANTIC ? CUDA_R_32I
                         : Ctype == CUDA_C_32F                                                     ? CUDA_C_32F
                                                                                                   : CUDA_R_32F;
    (void)algorithm;
    return emulator_blas_gemm(handle, transa, transb, m, n, k, alpha, scale,
                              emulator_blas_matrix(A, Atype, lda, transa, strideA),
                              emulator_blas_matrix(B, Btype, ldb, transb, strideB), beta,
                              emulator_blas_matrix(C, Ctype, ldc, CUBLAS_OP_N, strideC), batch, 0);
}
static inline cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m,
                                          int n, int k, const void *alpha, const void *A, cudaDataType Atype, int lda,
                                          const void *B, cudaDataType Btype, int ldb, const void *beta, void *C,
                                          cudaDataType Ctype, int ldc, cublasComputeType_t compute,
                                          cublasGemmAlgo_t algorithm) {
    return cublasGemmStridedBatchedEx(handle, transa, transb, m, n, k, alpha, A, Atype, lda, 0, B, Btype, ldb, 0, beta, C,
                                      Ctype, ldc, 0, 1, compute, algorithm);
}
static inline cublasStatus_t cublasSgemmEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m,
                                           int n, int k, const float *alpha, const void *A, cudaDataType Atype, int lda,
                                           const void *B, cudaDataType Btype, int ldb, const float *beta, void *C,
                                           cudaDataType Ctype, int ldc) {
    return cublasGemmEx(handle, transa, transb, m, n, k, alpha, A, Atype, lda, B, Btype, ldb, beta, C, Ctype, ldc,
                        CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

// Products of one type
#define EMULATOR_GEMM(letter, type, data)                                                                                \
    static inline cublasStatus_t cublas##letter##gemmStridedBatched(                                                     \
        cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,                  \
        const type *alpha, const type *A, int lda, long long strideA, const type *B, int ldb, long long strideB,         \
        const type *beta, type *C, int ldc, long long strideC, int batch) {                                              \
        return emulator_blas_gemm(handle, transa, transb, m, n, k, alpha, data,                                          \
                                  emulator_blas_matrix(A, data, lda, transa, strideA),                                   \
                                  emulator_blas_matrix(B, data, ldb, transb, strideB), beta,                             \
                                  emulator_blas_matrix(C, data, ldc, CUBLAS_OP_N, strideC), batch, 0);                   \
    }                                                                                                                    \
    static inline cublasStatus_t cublas##letter##gemm_v2(                                                                \
        cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,                  \
        const type *alpha, const type *A, int lda, const type *B, int ldb, const type *beta, type *C, int ldc) {         \
        return cublas##letter##gemmStridedBatched(handle, transa, transb, m, n, k, alpha, A, lda, 0, B, ldb, 0, beta, C, \
                                                  ldc, 0, 1);                                                            \
    }                                                                                                                    \
    static inline cublasStatus_t cublas##letter##gemmBatched(                                                            \
        cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,                  \
        const type *alpha, const type *const A[], int lda, const type *const B[], int ldb, const type *beta,             \
        type *const C[], int ldc, int batch) {                                                                           \
        return emulator_blas_gemm(handle, transa, transb, m, n, k, alpha, data,                                          \
                                  emulator_blas_matrix(A, data, lda, transa, 0),                                         \
                                  emulator_blas_matrix(B, data, ldb, transb, 0), beta,                                   \
                                  emulator_blas_matrix(C, data, ldc, CUBLAS_OP_N, 0), batch, 1);                         \
    }
EMULATOR_GEMM(S, float, CUDA_R_32F)
EMULATOR_GEMM(D, double, CUDA_R_64F)
EMULATOR_GEMM(H, __half, CUDA_R_16F)
EMULATOR_GEMM(C, cuComplex, CUDA_C_32F)
EMULATOR_GEMM(Z, cuDoubleComplex, CUDA_C_64F)
#define cublasHgemm cublasHgemm_v2

// Vectors and matrices
#define EMULATOR_VECTORS(letter, index, type, data)                                                                       \
    static inline cublasStatus_t cublas##letter##axpy_v2(cublasHandle_t handle, int n, const type *alpha, const type *x,  \
                                                         int incx, type *y, int incy) {                                   \
        type one = 1;                                                                                                     \
        return emulator_blas_vectors(handle, EMULATOR_ADD, n, data, alpha, x, incx, &one, y, incy, 0, 0);                 \
    }                                                                                                                     \
    static inline cublasStatus_t cublas##letter##scal_v2(cublasHandle_t handle, int n, const type *alpha, type *x,        \
                                                         int incx) {                                                      \
        return emulator_blas_vectors(handle, EMULATOR_ADD, n, data, alpha, x, incx, 0, x, incx, 0, 0);                    \
    }                                                                                                                     \
    static inline cublasStatus_t cublas##letter##copy_v2(cublasHandle_t handle, int n, const type *x, int incx, type *y,  \
                                                         int incy) {                                                      \
        return emulator_blas_vectors(handle, EMULATOR_ADD, n, data, 0, x, incx, 0, y, incy, 0, 0);                        \
    }                                                                                                                     \
    static inline cublasStatus_t cublas##letter##dot_v2(cublasHandle_t handle, int n, const type *x, int incx,            \
                                                        const type *y, int incy, type *result) {                          \
        return emulator_blas_vectors(handle, EMULATOR_MULTIPLY, n, data, 0, x, incx, 0, y, incy, result, data);           \
    }                                                                                                                     \
    static inline cublasStatus_t cublas##letter##nrm2_v2(cublasHandle_t handle, int n, const type *x, int incx,           \
                                                         type *result) {                                                  \
        return emulator_blas_vectors(handle, EMULATOR_NORM, n, data, 0, x, incx, 0, x, incx, result, data);               \
    }                                                                                                                     \
    static inline cublasStatus_t cublas##letter##asum_v2(cublasHandle_t handle, int n, const type *x, int incx,           \
                                                         type *result) {                                                  \
        return emulator_blas_vectors(handle, EMULATOR_ABSOLUTE_SUM, n, data, 0, x, incx, 0, 0, 0, result, data);          \
    }                                                                                                                     \
    static inline cublasStatus_t cublasI##index##amax_v2(cublasHandle_t handle, int n, const type *x, int incx,           \
                                                         int *result) {                                                   \
        return emulator_blas_vectors(handle, EMULATOR_LARGEST, n, data, 0, x, incx, 0, 0, 0, result, CUDA_R_32I);         \
    }                                                                                                                     \
    static inline cublasStatus_t cublasI##index##amin_v2(cublasHandle_t handle, int n, const type *x, int incx,           \
                                                         int *result) {                                                   \
        return emulator_blas_vectors(handle, EMULATOR_SMALLEST, n, data, 0, x, incx, 0, 0, 0, result, CUDA_R_32I);        \
    }                                                                                                                     \
    /* y' = x' op(A)', with vectors as rows: their steps are leading dimensions */                                        \
    static inline cublasStatus_t cublas##letter##gemv_v2(cublasHandle_t handle, cublasOperation_t trans, int m, int n,    \
                                                         const type *alpha, const type *A, int lda, const type *x,        \
                                                         int incx, const type *beta, type *y, int incy) {                 \
        cublasOperation_t other = trans == CUBLAS_OP_N ? CUBLAS_OP_T : CUBLAS_OP_N;                                       \
        int rows = trans == CUBLAS_OP_N ? m : n, columns = trans == CUBLAS_OP_N ? n : m;                                  \
        return emulator_blas_gemm(handle, CUBLAS_OP_N, other, 1, rows, columns, alpha, data,                              \
                                  emulator_blas_matrix(x, data, incx, CUBLAS_OP_N, 0),                                    \
                                  emulator_blas_matrix(A, data, lda, other, 0), beta,                                     \
                                  emulator_blas_matrix(y, data, incy, CUBLAS_OP_N, 0), 1, 0);                             \
    }                                                                                                                     \
    static inline cublasStatus_t cublas##letter##ger_v2(cublasHandle_t handle, int m, int n, const type *alpha,           \
                                                        const type *x, int incx, const type *y, int incy, type *A,        \
                                                        int lda) {                                                        \
        type one = 1;                                                                                                     \
        return emulator_blas_gemm(handle, CUBLAS_OP_T, CUBLAS_OP_N, m, n, 1, alpha, data,                                 \
                                  emulator_blas_matrix(x, data, incx, CUBLAS_OP_T, 0),                                    \
                                  emulator_blas_matrix(y, data, incy, CUBLAS_OP_N, 0), &one,                              \
                                  emulator_blas_matrix(A, data, lda, CUBLAS_OP_N, 0), 1, 0);                              \
    }                                                                                                                     \
    static inline cublasStatus_t cublas##letter##geam(cublasHandle_t handle, cublasOperation_t transa,                    \
                                                      cublasOperation_t transb, int m, int n, const type *alpha,          \
                                                      const type *A, int lda, const type *beta, const type *B, int ldb,   \
                                                      type *C, int ldc) {                                                 \
        emulator_blas_problem problem;                                                                                    \
        if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;                                                                \
        memset(&problem, 0, sizeof problem);                                                                              \
        problem.a = emulator_blas_matrix(A, data, lda, transa, 0), problem.alpha = alpha;                                 \
        problem.c = emulator_blas_matrix(B, data, ldb, transb, 0), problem.beta = beta;                                   \
        problem.d = emulator_blas_matrix(C, data, ldc, CUBLAS_OP_N, 0);                                                   \
        problem.m = m, problem.n = n, problem.batch = 1, problem.scale_type = data, problem.operation = EMULATOR_ADD;     \
        return emulator_blas_status(emulator_blas(&problem, handle->stream));                                             \
    }
EMULATOR_VECTORS(S, s, float, CUDA_R_32F)
EMULATOR_VECTORS(D, d, double, CUDA_R_64F)
#ifdef __cplusplus
}
#endif

#define cublasCreate cublasCreate_v2
#define cublasDestroy cublasDestroy_v2
#define cublasGetVersion cublasGetVersion_v2
#define cublasSetStream cublasSetStream_v2
#define cublasGetStream cublasGetStream_v2
#define cublasSetPointerMode cublasSetPointerMode_v2
#define cublasGetPointerMode cublasGetPointerMode_v2
#define cublasSetWorkspace cublasSetWorkspace_v2
#define cublasSgemm cublasSgemm_v2
#define cublasDgemm cublasDgemm_v2
#define cublasCgemm cublasCgemm_v2
#define cublasZgemm cublasZgemm_v2
#define cublasSaxpy cublasSaxpy_v2
#define cublasDaxpy cublasDaxpy_v2
#define cublasSscal cublasSscal_v2
#define cublasDscal cublasDscal_v2
#define cublasScopy cublasScopy_v2
#define cublasDcopy cublasDcopy_v2
#define cublasSdot cublasSdot_v2
#define cublasDdot cublasDdot_v2
#define cublasSnrm2 cublasSnrm2_v2
#define cublasDnrm2 cublasDnrm2_v2
#define cublasSasum cublasSasum_v2
#define cublasDasum cublasDasum_v2
#define cublasIsamax cublasIsamax_v2
#define cublasIdamax cublasIdamax_v2
#define cublasIsamin cublasIsamin_v2
#define cublasIdamin cublasIdamin_v2
#define cublasSgemv cublasSgemv_v2
#define cublasDgemv cublasDgemv_v2
#define cublasSger cublasSger_v2
#define cublasDger cublasDger_v2
#endif
