// cuBLASLt for programs on the device: a matmul of descriptors, on emulator_blas of cublas_v2.h.
#pragma once
#include <cublas_v2.h>

typedef struct cublasLtContext *cublasLtHandle_t;
typedef enum { CUBLASLT_ORDER_COL = 0, CUBLASLT_ORDER_ROW = 1 } cublasLtOrder_t;
typedef enum {
    CUBLASLT_POINTER_MODE_HOST = 0,
    CUBLASLT_POINTER_MODE_DEVICE = 1
} cublasLtPointerMode_t;
typedef enum {
    CUBLASLT_MATRIX_LAYOUT_TYPE = 0,
    CUBLASLT_MATRIX_LAYOUT_ORDER = 1,
    CUBLASLT_MATRIX_LAYOUT_ROWS = 2,
    CUBLASLT_MATRIX_LAYOUT_COLS = 3,
    CUBLASLT_MATRIX_LAYOUT_LD = 4,
    CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,
    CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6
} cublasLtMatrixLayoutAttribute_t;
typedef enum {
    CUBLASLT_MATMUL_DESC_COMPUTE_TYPE = 0,
    CUBLASLT_MATMUL_DESC_SCALE_TYPE = 1,
    CUBLASLT_MATMUL_DESC_POINTER_MODE = 2,
    CUBLASLT_MATMUL_DESC_TRANSA = 3,
    CUBLASLT_MATMUL_DESC_TRANSB = 4,
    CUBLASLT_MATMUL_DESC_TRANSC = 5,
    CUBLASLT_MATMUL_DESC_FILL_MODE = 6,
    CUBLASLT_MATMUL_DESC_EPILOGUE = 7,
    CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8,
    CUBLASLT_MATMUL_DESC_A_SCALE_POINTER = 17,
    CUBLASLT_MATMUL_DESC_B_SCALE_POINTER = 18,
    CUBLASLT_MATMUL_DESC_FAST_ACCUM = 25,
    CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE = 26
} cublasLtMatmulDescAttributes_t;
typedef enum {
    CUBLASLT_EPILOGUE_DEFAULT = 1,
    CUBLASLT_EPILOGUE_RELU = 2,
    CUBLASLT_EPILOGUE_BIAS = 4,
    CUBLASLT_EPILOGUE_RELU_BIAS = 6,
    CUBLASLT_EPILOGUE_GELU = 32,
    CUBLASLT_EPILOGUE_GELU_BIAS = 36
} cublasLtEpilogue_t;
typedef enum {
    CUBLASLT_MATMUL_PREF_SEARCH_MODE = 0,
    CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1
} cublasLtMatmulPreferenceAttributes_t;

typedef struct {
    cudaDataType type;
    cublasLtOrder_t order;
    uint64_t rows, columns;
    int64_t leading, stride;
    int32_t batch;
} cublasLtMatrixLayoutOpaque_t;
typedef cublasLtMatrixLayoutOpaque_t *cublasLtMatrixLayout_t;
typedef struct {
    cublasComputeType_t compute;
    cudaDataType scale, bias_type;
    cublasOperation_t transa, transb;
    int32_t epilogue, has_bias_type;
    const void *bias, *scale_a, *scale_b;
} cublasLtMatmulDescOpaque_t;
typedef cublasLtMatmulDescOpaque_t *cublasLtMatmulDesc_t;
typedef struct { uint64_t workspace; } cublasLtMatmulPreferenceOpaque_t;
typedef cublasLtMatmulPreferenceOpaque_t *cublasLtMatmulPreference_t;
typedef struct { uint64_t data[8]; } cublasLtMatmulAlgo_t;
typedef struct {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    cublasStatus_t state;
    float wavesCount;
    int reserved[4];
} cublasLtMatmulHeuristicResult_t;

#ifdef __cplusplus
extern "C" {
#endif
static inline cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) { return cublasCreate_v2((cublasHandle_t *)handle); }
static inline cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return cublasDestroy_v2((cublasHandle_t)handle); }
static inline size_t cublasLtGetVersion(void) { return CUBLAS_VERSION; }

static inline cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayout_t layout, cudaDataType type, uint64_t rows,
                                                      uint64_t columns, int64_t leading) {
    cublasLtMatrixLayoutOpaque_t made = {type, CUBLASLT_ORDER_COL, rows, columns, leading, 0, 1};
    *layout = made;
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t rows,
                                                        uint64_t columns, int64_t leading) {
    *layout = (cublasLtMatrixLayout_t)malloc(sizeof **layout);
    return *layout ? cublasLtMatrixLayoutInit(*layout, type, rows, columns, leading) : CUBLAS_STATUS_ALLOC_FAILED;
}
static inline cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    free(layout);
    return CUBLAS_STATUS_SUCCESS;
}
// Stores an attribute if its size is right.
#define EMULATOR_ATTRIBUTE(name, member)                                      \
    case name:                                                                \
        if (nbytes != sizeof(member)) return CUBLAS_STATUS_INVALID_VALUE;     \
        memcpy(&(member), value, nbytes);                                     \
        return CUBLAS_STATUS_SUCCESS;
static inline cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                              cublasLtMatrixLayoutAttribute_t attribute, const void *value,
                                                              size_t nbytes) {
    switch (attribute) {
        EMULATOR_ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_TYPE, layout->type)
        EMULATOR_ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_ORDER, layout->order)
        EMULATOR_ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_ROWS, layout->rows)
        EMULATOR_ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_COLS, layout->columns)
        EMULATOR_ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_LD, layout->leading)
        EMULATOR_ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, layout->batch)
        EMULATOR_ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, layout->stride)
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

static inline cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDesc_t desc, cublasComputeType_t compute,
                                                    cudaDataType scale) {
    memset(desc, 0, sizeof *desc);
    desc->compute = compute, desc->scale = scale, desc->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
                                                      cudaDataType scale) {
    *desc = (cublasLtMatmulDesc_t)malloc(sizeof **desc);
    return *desc ? cublasLtMatmulDescInit(*desc, compute, scale) : CUBLAS_STATUS_ALLOC_FAILED;
}
static inline cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
    free(desc);
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                                            cublasLtMatmulDescAttributes_t attribute, const void *value,
                                                            size_t nbytes) {
    switch (attribute) {
        EMULATOR_ATTRIBUTE(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, desc->compute)
        EMULATOR_ATTRIBUTE(CUBLASLT_MATMUL_DESC_SCALE_TYPE, desc->scale)
        EMULATOR_ATTRIBUTE(CUBLASLT_MATMUL_DESC_TRANSA, desc->transa)
        EMULATOR_ATTRIBUTE(CUBLASLT_MATMUL_DESC_TRANSB, desc->transb)
        EMULATOR_ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE, desc->epilogue)
        EMULATOR_ATTRIBUTE(CUBLASLT_MATMUL_DESC_BIAS_POINTER, desc->bias)
        EMULATOR_ATTRIBUTE(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, desc->scale_a)
        EMULATOR_ATTRIBUTE(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, desc->scale_b)
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        if (nbytes != sizeof desc->bias_type) return CUBLAS_STATUS_INVALID_VALUE;
        memcpy(&desc->bias_type, value, nbytes);
        desc->has_bias_type = 1;
        return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:  // a pointer tells by itself where it points
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM: return CUBLAS_STATUS_SUCCESS;
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

static inline cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference) {
    *preference = (cublasLtMatmulPreference_t)calloc(1, sizeof **preference);
    return *preference ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}
static inline cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    free(preference);
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                                  cublasLtMatmulPreferenceAttributes_t attribute,
                                                                  const void *value, size_t nbytes) {
    (void)preference, (void)attribute, (void)value, (void)nbytes;
    return CUBLAS_STATUS_SUCCESS;
}
// One algorithm, which needs no workspace
static inline cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                                            cublasLtMatrixLayout_t Adesc, cublasLtMatrixLayout_t Bdesc,
                                                            cublasLtMatrixLayout_t Cdesc, cublasLtMatrixLayout_t Ddesc,
                                                            cublasLtMatmulPreference_t preference, int requested,
                                                            cublasLtMatmulHeuristicResult_t results[], int *returned) {
    (void)handle, (void)desc, (void)Adesc, (void)Bdesc, (void)Cdesc, (void)Ddesc, (void)preference;
    if (requested < 1) return CUBLAS_STATUS_INVALID_VALUE;
    memset(results, 0, sizeof *results);
    *returned = 1;
    return CUBLAS_STATUS_SUCCESS;
}

static inline emulator_blas_operand emulator_blas_laid_out(const void *address, cublasLtMatrixLayout_t layout,
                                                           cublasOperation_t transposed) {
    emulator_blas_operand made =
        emulator_blas_matrix(address, layout->type, layout->leading, transposed, layout->stride);
    if (layout->order == CUBLASLT_ORDER_ROW) {
        int64_t row = made.row;
        made.row = made.column, made.column = row;
    }
    return made;
}
static inline cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                                            const void *A, cublasLtMatrixLayout_t Adesc, const void *B,
                                            cublasLtMatrixLayout_t Bdesc, const void *beta, const void *C,
                                            cublasLtMatrixLayout_t Cdesc, void *D, cublasLtMatrixLayout_t Ddesc,
                                            const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t workspace_size,
                                            cudaStream_t stream) {
    emulator_blas_problem problem;
    (void)algorithm, (void)workspace, (void)workspace_size;
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (desc->epilogue & ~(CUBLASLT_EPILOGUE_DEFAULT | CUBLASLT_EPILOGUE_RELU | CUBLASLT_EPILOGUE_GELU_BIAS) ||
        Adesc->order > CUBLASLT_ORDER_ROW || Bdesc->order > CUBLASLT_ORDER_ROW || Ddesc->order > CUBLASLT_ORDER_ROW)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    memset(&problem, 0, sizeof problem);
    problem.a = emulator_blas_laid_out(A, Adesc, desc->transa);
    problem.b = emulator_blas_laid_out(B, Bdesc, desc->transb);
    if (C) problem.c = emulator_blas_laid_out(C, Cdesc, CUBLAS_OP_N);
    problem.d = emulator_blas_laid_out(D, Ddesc, CUBLAS_OP_N);
    problem.m = Ddesc->rows, problem.n = Ddesc->columns, problem.batch = Ddesc->batch;
    problem.k = desc->transa == CUBLAS_OP_N ? Adesc->columns : Adesc->rows;
    if (problem.k != (int64_t)(desc->transb == CUBLAS_OP_N ? Bdesc->rows : Bdesc->columns)) return CUBLAS_STATUS_INVALID_VALUE;
    problem.alpha = alpha, problem.beta = beta, problem.scale_type = desc->scale;
    problem.scale_a = desc->scale_a, problem.scale_b = desc->scale_b;
    if (desc->epilogue & CUBLASLT_EPILOGUE_BIAS) {
        emulator_blas_operand bias = {desc->bias, desc->has_bias_type ? desc->bias_type : Ddesc->type, 0, 1, 0, 0};
        problem.bias = bias;
    }
    problem.activation = (desc->epilogue & CUBLASLT_EPILOGUE_RELU ? 1 : 0) | (desc->epilogue & CUBLASLT_EPILOGUE_GELU ? 2 : 0);
    return emulator_blas_status(emulator_blas(&problem, stream));
}
#ifdef __cplusplus
}
#endif
