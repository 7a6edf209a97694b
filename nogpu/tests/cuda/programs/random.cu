// Checks of cuRAND's functions that test_random_numbers.py calls: each returns 0, or the line that fails.
#include <curand.h>

#include <cmath>
#include <vector>

#define CHECK(condition) \
    do {                 \
        if (!(condition)) return __LINE__; \
    } while (0)
#define OK(call) CHECK((call) == CURAND_STATUS_SUCCESS)

enum { COUNT = 20000 };
template <class T>
static std::vector<T> of_device(const T *at) {
    std::vector<T> values(COUNT);
    cudaMemcpy(values.data(), at, COUNT * sizeof(T), cudaMemcpyDeviceToHost);
    return values;
}
template <class T>
static bool has(const std::vector<T> &values, double mean, double deviation) {
    double sum = 0, squares = 0;
    for (double x : values) sum += x, squares += x * x;
    sum /= COUNT;
    double found = std::sqrt(squares / COUNT - sum * sum);
    return std::fabs(sum - mean) < 0.05 * deviation && std::fabs(found - deviation) < 0.05 * deviation;
}

extern "C" int distributions() {
    curandGenerator_t generator;
    float *x;
    unsigned *bits;
    double *wide;
    cudaMalloc(&x, COUNT * sizeof *x), cudaMalloc(&bits, COUNT * sizeof *bits), cudaMalloc(&wide, COUNT * sizeof *wide);
    OK(curandCreateGenerator(&generator, CURAND_RNG_PSEUDO_DEFAULT));
    OK(curandSetPseudoRandomGeneratorSeed(generator, 7));
    OK(curandGenerateUniform(generator, x, COUNT));
    auto uniform = of_device(x);
    for (float value : uniform) CHECK(value > 0 && value <= 1);
    CHECK(has(uniform, 0.5, std::sqrt(1 / 12.)));
    OK(curandGenerateUniform(generator, x, COUNT));
    CHECK(of_device(x) != uniform);
    OK(curandSetGeneratorOffset(generator, 0));
    OK(curandGenerateUniform(generator, x, COUNT));
    CHECK(of_device(x) == uniform);
    OK(curandGenerateNormalDouble(generator, wide, COUNT, 3, 2));
    CHECK(has(of_device(wide), 3, 2));
    OK(curandGenerateLogNormal(generator, x, COUNT, 0, 0.5));
    CHECK(has(of_device(x), std::exp(0.125), std::sqrt((std::exp(0.25) - 1) * std::exp(0.25))));
    OK(curandGeneratePoisson(generator, bits, COUNT, 4));
    CHECK(has(of_device(bits), 4, 2));
    OK(curandGenerate(generator, bits, COUNT));
    CHECK(has(of_device(bits), 2147483648., 4294967296. * std::sqrt(1 / 12.)));
    CHECK(curandGenerateNormal(generator, x, 3, 0, 1) == CURAND_STATUS_LENGTH_NOT_MULTIPLE);
    OK(curandDestroyGenerator(generator));
    OK(curandCreateGeneratorHost(&generator, CURAND_RNG_PSEUDO_MRG32K3A));
    OK(curandSetPseudoRandomGeneratorSeed(generator, 7));
    std::vector<float> host(COUNT);
    OK(curandGenerateUniform(generator, host.data(), COUNT));
    CHECK(host == uniform);
    OK(curandCreateGenerator(&generator, CURAND_RNG_QUASI_SOBOL32));
    CHECK(curandGenerateUniform(generator, x, COUNT) == CURAND_STATUS_TYPE_ERROR);
    OK(curandCreateGenerator(&generator, CURAND_RNG_PSEUDO_DEFAULT));
    CHECK(curandGenerateUniform(generator, x, COUNT + 1) == CURAND_STATUS_LAUNCH_FAILURE);  // writes past the end
    return 0;
}
