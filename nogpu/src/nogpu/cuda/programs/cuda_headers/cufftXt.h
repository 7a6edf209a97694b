// cuFFT's extensions: plans by data types. Transforms on several devices and callbacks are not modelled.
#pragma once
#include "cufft.h"

#ifdef __cplusplus
extern "C" {
#endif
static inline cufftResult cufftXtMakePlanMany(cufftHandle plan, int rank, long long *n, long long *inembed,
                                              long long istride, long long idist, cudaDataType from,
                                              long long *onembed, long long ostride, long long odist, cudaDataType to,
                                              long long batch, size_t *work, cudaDataType execution) {
    cufftType type = from == CUDA_C_32F && to == CUDA_C_32F   ? CUFFT_C2C
                     : from == CUDA_R_32F && to == CUDA_C_32F ? CUFFT_R2C
                     : from == CUDA_C_32F && to == CUDA_R_32F ? CUFFT_C2R
                     : from == CUDA_C_64F && to == CUDA_C_64F ? CUFFT_Z2Z
                     : from == CUDA_R_64F && to == CUDA_C_64F ? CUFFT_D2Z
                     : from == CUDA_C_64F && to == CUDA_R_64F ? CUFFT_Z2D
                                                              : (cufftType)0;
    (void)execution;
    if (!type) return CUFFT_NOT_SUPPORTED;
    return cufftMakePlanMany64(plan, rank, n, inembed, istride, idist, onembed, ostride, odist, type, batch, work);
}
#ifdef __cplusplus
}
#endif
