// cuFFT for programs on the device; programs/fourier.py has the plans and computes the transforms.
#pragma once
#include <cuComplex.h>
#include <cuda_runtime_api.h>
#include <library_types.h>
#include <stdint.h>
#include <string.h>

#define _CUFFT_H_  // by which other headers know that this one is included
#define CUFFT_VERSION 12000
#define CUFFTAPI
#define CUFFT_FORWARD -1
#define CUFFT_INVERSE 1

typedef enum {
    CUFFT_SUCCESS = 0,
    CUFFT_INVALID_PLAN = 1,
    CUFFT_ALLOC_FAILED = 2,
    CUFFT_INVALID_TYPE = 3,
    CUFFT_INVALID_VALUE = 4,
    CUFFT_INTERNAL_ERROR = 5,
    CUFFT_EXEC_FAILED = 6,
    CUFFT_SETUP_FAILED = 7,
    CUFFT_INVALID_SIZE = 8,
    CUFFT_UNALIGNED_DATA = 9,
    CUFFT_INVALID_DEVICE = 11,
    CUFFT_NO_WORKSPACE = 13,
    CUFFT_NOT_IMPLEMENTED = 14,
    CUFFT_NOT_SUPPORTED = 16,
    CUFFT_MISSING_DEPENDENCY = 17,
    CUFFT_NVRTC_FAILURE = 18,
    CUFFT_NVJITLINK_FAILURE = 19,
    CUFFT_NVSHMEM_FAILURE = 20
} cufftResult_t;
typedef cufftResult_t cufftResult;
typedef enum {
    CUFFT_R2C = 0x2a,
    CUFFT_C2R = 0x2c,
    CUFFT_C2C = 0x29,
    CUFFT_D2Z = 0x6a,
    CUFFT_Z2D = 0x6c,
    CUFFT_Z2Z = 0x69
} cufftType_t;
typedef cufftType_t cufftType;
typedef int cufftHandle;
typedef float cufftReal;
typedef double cufftDoubleReal;
typedef cuComplex cufftComplex;
typedef cuDoubleComplex cufftDoubleComplex;

// fourier.py reads this structure, too.
typedef struct {
    void *input, *output;
    cudaStream_t stream;
    int64_t sizes[3], input_embedding[3], output_embedding[3];
    int64_t input_stride, input_distance, output_stride, output_distance, batch;
    int32_t operation, plan, type, rank, direction, is_embedded;
} emulator_fft_request;
enum { EMULATOR_FFT_CREATE, EMULATOR_FFT_PLAN, EMULATOR_FFT_STREAM, EMULATOR_FFT_EXECUTE, EMULATOR_FFT_DESTROY };

#ifdef __cplusplus
extern "C" {
#endif
size_t emulator_fft(emulator_fft_request *request);

static inline cufftResult emulator_fft_done(emulator_fft_request *request) {
    size_t code = emulator_fft(request);
    return code == 0     ? CUFFT_SUCCESS
           : code == 1   ? CUFFT_INVALID_VALUE
           : code == 400 ? CUFFT_INVALID_PLAN
           : code == 801 ? CUFFT_NOT_SUPPORTED
                         : CUFFT_EXEC_FAILED;
}

static inline emulator_fft_request emulator_fft_asked(int operation, cufftHandle plan) {
    emulator_fft_request request;
    memset(&request, 0, sizeof request);
    request.operation = operation, request.plan = plan;
    return request;
}

static inline cufftResult cufftCreate(cufftHandle *plan) {
    emulator_fft_request request = emulator_fft_asked(EMULATOR_FFT_CREATE, 0);
    cufftResult result = emulator_fft_done(&request);
    *plan = request.plan;
    return result;
}

static inline cufftResult cufftMakePlanMany64(cufftHandle plan, int rank, long long *n, long long *inembed,
                                              long long istride, long long idist, long long *onembed,
                                              long long ostride, long long odist, cufftType type, long long batch,
                                              size_t *work) {
    emulator_fft_request request = emulator_fft_asked(EMULATOR_FFT_PLAN, plan);
    int i;
    if (rank < 1 || rank > 3) return CUFFT_INVALID_SIZE;
    request.type = type, request.rank = rank, request.batch = batch, request.is_embedded = inembed && onembed;
    for (i = 0; i < rank; i++) {
        request.sizes[i] = n[i];
        if (!request.is_embedded) continue;
        request.input_embedding[i] = inembed[i], request.output_embedding[i] = onembed[i];
    }
    request.input_stride = istride, request.input_distance = idist;
    request.output_stride = ostride, request.output_distance = odist;
    if (work) *work = 0;
    return emulator_fft_done(&request);
}

static inline cufftResult cufftMakePlanMany(cufftHandle plan, int rank, int *n, int *inembed, int istride, int idist,
                                            int *onembed, int ostride, int odist, cufftType type, int batch,
                                            size_t *work) {
    long long sizes[3], from[3], to[3];
    int i;
    for (i = 0; i < rank && i < 3; i++)
        sizes[i] = n[i], from[i] = inembed ? inembed[i] : 0, to[i] = onembed ? onembed[i] : 0;
    return cufftMakePlanMany64(plan, rank, sizes, inembed ? from : 0, istride, idist, onembed ? to : 0, ostride, odist,
                               type, batch, work);
}

static inline cufftResult cufftMakePlan1d(cufftHandle plan, int nx, cufftType type, int batch, size_t *work) {
    return cufftMakePlanMany(plan, 1, &nx, 0, 1, 0, 0, 1, 0, type, batch, work);
}

static inline cufftResult cufftMakePlan2d(cufftHandle plan, int nx, int ny, cufftType type, size_t *work) {
    int n[2] = {nx, ny};
    return cufftMakePlanMany(plan, 2, n, 0, 1, 0, 0, 1, 0, type, 1, work);
}

static inline cufftResult cufftMakePlan3d(cufftHandle plan, int nx, int ny, int nz, cufftType type, size_t *work) {
    int n[3] = {nx, ny, nz};
    return cufftMakePlanMany(plan, 3, n, 0, 1, 0, 0, 1, 0, type, 1, work);
}

static inline cufftResult cufftPlanMany(cufftHandle *plan, int rank, int *n, int *inembed, int istride, int idist,
                                        int *onembed, int ostride, int odist, cufftType type, int batch) {
    cufftResult result = cufftCreate(plan);
    if (result != CUFFT_SUCCESS) return result;
    return cufftMakePlanMany(*plan, rank, n, inembed, istride, idist, onembed, ostride, odist, type, batch, 0);
}

static inline cufftResult cufftPlan1d(cufftHandle *plan, int nx, cufftType type, int batch) {
    return cufftPlanMany(plan, 1, &nx, 0, 1, 0, 0, 1, 0, type, batch);
}

static inline cufftResult cufftPlan2d(cufftHandle *plan, int nx, int ny, cufftType type) {
    int n[2] = {nx, ny};
    return cufftPlanMany(plan, 2, n, 0, 1, 0, 0, 1, 0, type, 1);
}

static inline cufftResult cufftPlan3d(cufftHandle *plan, int nx, int ny, int nz, cufftType type) {
    int n[3] = {nx, ny, nz};
    return cufftPlanMany(plan, 3, n, 0, 1, 0, 0, 1, 0, type, 1);
}

static inline cufftResult cufftDestroy(cufftHandle plan) {
    emulator_fft_request request = emulator_fft_asked(EMULATOR_FFT_DESTROY, plan);
    return emulator_fft_done(&request);
}

static inline cufftResult cufftSetStream(cufftHandle plan, cudaStream_t stream) {
    emulator_fft_request request = emulator_fft_asked(EMULATOR_FFT_STREAM, plan);
    request.stream = stream;
    return emulator_fft_done(&request);
}

static inline cufftResult cufftSetAutoAllocation(cufftHandle plan, int is_automatic) {
    (void)plan, (void)is_automatic;
    return CUFFT_SUCCESS;
}

static inline cufftResult cufftSetWorkArea(cufftHandle plan, void *area) {
    (void)plan, (void)area;
    return CUFFT_SUCCESS;
}

static inline cufftResult cufftGetSize(cufftHandle plan, size_t *bytes) {
    (void)plan;
    *bytes = 0;
    return CUFFT_SUCCESS;
}

static inline cufftResult cufftGetVersion(int *version) {
    *version = CUFFT_VERSION;
    return CUFFT_SUCCESS;
}

static inline cufftResult emulator_fft_executed(cufftHandle plan, cufftType type, void *input, void *output,
                                                int direction) {
    emulator_fft_request request = emulator_fft_asked(EMULATOR_FFT_EXECUTE, plan);
    request.type = type, request.input = input, request.output = output, request.direction = direction;
    return emulator_fft_done(&request);
}

#define EMULATOR_FFT_EXECUTES(kind, from, to)                                                             \
    static inline cufftResult cufftExec##kind(cufftHandle plan, from *input, to *output, int direction) { \
        return emulator_fft_executed(plan, CUFFT_##kind, input, output, direction);                       \
    }
#define EMULATOR_FFT_EXECUTES_ONE_WAY(kind, from, to, direction)                           \
    static inline cufftResult cufftExec##kind(cufftHandle plan, from *input, to *output) { \
        return emulator_fft_executed(plan, CUFFT_##kind, input, output, direction);        \
    }
EMULATOR_FFT_EXECUTES(C2C, cufftComplex, cufftComplex)
EMULATOR_FFT_EXECUTES(Z2Z, cufftDoubleComplex, cufftDoubleComplex)
EMULATOR_FFT_EXECUTES_ONE_WAY(R2C, cufftReal, cufftComplex, CUFFT_FORWARD)
EMULATOR_FFT_EXECUTES_ONE_WAY(C2R, cufftComplex, cufftReal, CUFFT_INVERSE)
EMULATOR_FFT_EXECUTES_ONE_WAY(D2Z, cufftDoubleReal, cufftDoubleComplex, CUFFT_FORWARD)
EMULATOR_FFT_EXECUTES_ONE_WAY(Z2D, cufftDoubleComplex, cufftDoubleReal, CUFFT_INVERSE)
#ifdef __cplusplus
}
#endif
