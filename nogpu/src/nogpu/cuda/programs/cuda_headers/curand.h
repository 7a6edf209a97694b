// cuRAND's host functions for programs on the device; programs/random_numbers.py draws the numbers.
#pragma once
#include <cuda_runtime_api.h>
#include <library_types.h>
#include <stdint.h>
#include <stdlib.h>

// curand_kernel.h includes the toolkit's own header, which has these types and declarations, by a path of its own.
#if __has_include_next(<curand.h>)
#include_next <curand.h>
#else
#define CURAND_VERSION 10400
#define CURANDAPI

typedef enum {
    CURAND_STATUS_SUCCESS = 0,
    CURAND_STATUS_VERSION_MISMATCH = 100,
    CURAND_STATUS_NOT_INITIALIZED = 101,
    CURAND_STATUS_ALLOCATION_FAILED = 102,
    CURAND_STATUS_TYPE_ERROR = 103,
    CURAND_STATUS_OUT_OF_RANGE = 104,
    CURAND_STATUS_LENGTH_NOT_MULTIPLE = 105,
    CURAND_STATUS_DOUBLE_PRECISION_REQUIRED = 106,
    CURAND_STATUS_LAUNCH_FAILURE = 201,
    CURAND_STATUS_PREEXISTING_FAILURE = 202,
    CURAND_STATUS_INITIALIZATION_FAILED = 203,
    CURAND_STATUS_ARCH_MISMATCH = 204,
    CURAND_STATUS_INTERNAL_ERROR = 999
} curandStatus_t;
typedef curandStatus_t curandStatus;
typedef enum {
    CURAND_RNG_TEST = 0,
    CURAND_RNG_PSEUDO_DEFAULT = 100,
    CURAND_RNG_PSEUDO_XORWOW = 101,
    CURAND_RNG_PSEUDO_MRG32K3A = 121,
    CURAND_RNG_PSEUDO_MTGP32 = 141,
    CURAND_RNG_PSEUDO_MT19937 = 142,
    CURAND_RNG_PSEUDO_PHILOX4_32_10 = 161,
    CURAND_RNG_QUASI_DEFAULT = 200,
    CURAND_RNG_QUASI_SOBOL32 = 201,
    CURAND_RNG_QUASI_SCRAMBLED_SOBOL32 = 202,
    CURAND_RNG_QUASI_SOBOL64 = 203,
    CURAND_RNG_QUASI_SCRAMBLED_SOBOL64 = 204
} curandRngType_t;
typedef curandRngType_t curandRngType;
typedef enum {
    CURAND_ORDERING_PSEUDO_BEST = 100,
    CURAND_ORDERING_PSEUDO_DEFAULT = 101,
    CURAND_ORDERING_PSEUDO_SEEDED = 102,
    CURAND_ORDERING_PSEUDO_LEGACY = 103,
    CURAND_ORDERING_PSEUDO_DYNAMIC = 104,
    CURAND_ORDERING_QUASI_DEFAULT = 201
} curandOrdering_t;
typedef struct curandGenerator_st *curandGenerator_t;
#endif

struct curandGenerator_st {
    uint64_t seed, offset;
    cudaStream_t stream;
    int32_t type, on_host;
};

// random_numbers.py reads this structure, too.
typedef struct {
    void *result;
    uint64_t count, seed, offset;
    double mean, deviation;  // of a Poisson distribution the mean is lambda
    int32_t type, on_host, distribution, bytes;
} emulator_random_request;
enum { EMULATOR_BITS, EMULATOR_UNIFORM, EMULATOR_NORMAL, EMULATOR_LOG_NORMAL, EMULATOR_POISSON };

// As the toolkit declares them, and in every file that includes this one
#define EMULATOR_FUNCTION __attribute__((weak)) curandStatus_t

#ifdef __cplusplus
extern "C" {
#endif
size_t emulator_random(const emulator_random_request *request, cudaStream_t stream);

static inline curandStatus_t emulator_drawn(curandGenerator_t generator, int distribution, void *result, size_t count,
                                            int bytes, double mean, double deviation) {
    emulator_random_request request;
    size_t code;
    if (!generator) return CURAND_STATUS_NOT_INITIALIZED;
    // Normal numbers come in pairs (cuRAND, "Generation Functions").
    if ((distribution == EMULATOR_NORMAL || distribution == EMULATOR_LOG_NORMAL) && count % 2)
        return CURAND_STATUS_LENGTH_NOT_MULTIPLE;
    request.result = result, request.count = count, request.seed = generator->seed, request.offset = generator->offset;
    request.mean = mean, request.deviation = deviation, request.type = generator->type;
    request.on_host = generator->on_host, request.distribution = distribution, request.bytes = bytes;
    code = emulator_random(&request, generator->stream);
    generator->offset += count;
    return code == 0     ? CURAND_STATUS_SUCCESS
           : code == 1   ? CURAND_STATUS_OUT_OF_RANGE
           : code == 801 ? CURAND_STATUS_TYPE_ERROR
                         : CURAND_STATUS_LAUNCH_FAILURE;
}

static inline curandStatus_t emulator_generator(curandGenerator_t *generator, curandRngType_t type, int on_host) {
    *generator = (curandGenerator_t)calloc(1, sizeof **generator);
    if (!*generator) return CURAND_STATUS_ALLOCATION_FAILED;
    (*generator)->type = type, (*generator)->on_host = on_host;
    return CURAND_STATUS_SUCCESS;
}
EMULATOR_FUNCTION curandCreateGenerator(curandGenerator_t *generator, curandRngType_t type) {
    return emulator_generator(generator, type, 0);
}
EMULATOR_FUNCTION curandCreateGeneratorHost(curandGenerator_t *generator, curandRngType_t type) {
    return emulator_generator(generator, type, 1);
}
EMULATOR_FUNCTION curandDestroyGenerator(curandGenerator_t generator) {
    if (!generator) return CURAND_STATUS_NOT_INITIALIZED;
    free(generator);
    return CURAND_STATUS_SUCCESS;
}
EMULATOR_FUNCTION curandGetVersion(int *version) {
    *version = CURAND_VERSION;
    return CURAND_STATUS_SUCCESS;
}
EMULATOR_FUNCTION curandSetStream(curandGenerator_t generator, cudaStream_t stream) {
    if (!generator) return CURAND_STATUS_NOT_INITIALIZED;
    generator->stream = stream;
    return CURAND_STATUS_SUCCESS;
}
EMULATOR_FUNCTION curandSetPseudoRandomGeneratorSeed(curandGenerator_t generator, unsigned long long seed) {
    if (!generator) return CURAND_STATUS_NOT_INITIALIZED;
    generator->seed = seed, generator->offset = 0;
    return CURAND_STATUS_SUCCESS;
}
EMULATOR_FUNCTION curandSetQuasiRandomGeneratorDimensions(curandGenerator_t generator, unsigned int dimensions) {
    if (!generator) return CURAND_STATUS_NOT_INITIALIZED;
    return generator->type < CURAND_RNG_QUASI_DEFAULT ? CURAND_STATUS_TYPE_ERROR : CURAND_STATUS_SUCCESS;
}
EMULATOR_FUNCTION curandSetGeneratorOffset(curandGenerator_t generator, unsigned long long offset) {
    if (!generator) return CURAND_STATUS_NOT_INITIALIZED;
    generator->offset = offset;
    return CURAND_STATUS_SUCCESS;
}
EMULATOR_FUNCTION curandSetGeneratorOrdering(curandGenerator_t generator, curandOrdering_t order) {
    (void)order;
    return generator ? CURAND_STATUS_SUCCESS : CURAND_STATUS_NOT_INITIALIZED;
}
EMULATOR_FUNCTION curandGenerateSeeds(curandGenerator_t generator) {
    return generator ? CURAND_STATUS_SUCCESS : CURAND_STATUS_NOT_INITIALIZED;
}

EMULATOR_FUNCTION curandGenerate(curandGenerator_t generator, unsigned int *result, size_t count) {
    return emulator_drawn(generator, EMULATOR_BITS, result, count, 4, 0, 0);
}
EMULATOR_FUNCTION curandGeneratePoisson(curandGenerator_t generator, unsigned int *result, size_t count,
                                                   double lambda) {
    return emulator_drawn(generator, EMULATOR_POISSON, result, count, 4, lambda, 0);
}
#define EMULATOR_DRAWS(suffix, type)                                                                              \
    EMULATOR_FUNCTION curandGenerateUniform##suffix(curandGenerator_t generator, type *result,         \
                                                               size_t count) {                                    \
        return emulator_drawn(generator, EMULATOR_UNIFORM, result, count, sizeof(type), 0, 0);                    \
    }                                                                                                             \
    EMULATOR_FUNCTION curandGenerateNormal##suffix(curandGenerator_t generator, type *result,          \
                                                              size_t count, type mean, type deviation) {          \
        return emulator_drawn(generator, EMULATOR_NORMAL, result, count, sizeof(type), mean, deviation);          \
    }                                                                                                             \
    EMULATOR_FUNCTION curandGenerateLogNormal##suffix(curandGenerator_t generator, type *result,       \
                                                                 size_t count, type mean, type deviation) {       \
        return emulator_drawn(generator, EMULATOR_LOG_NORMAL, result, count, sizeof(type), mean, deviation);      \
    }
EMULATOR_DRAWS(, float)
EMULATOR_DRAWS(Double, double)
#ifdef __cplusplus
}
#endif
