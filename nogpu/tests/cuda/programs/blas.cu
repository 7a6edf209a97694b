// Checks of cuBLAS's functions that test_blas.py calls: each returns 0, or the line that fails.
#include <cublasLt.h>
#include <cublas_v2.h>
#ifndef CUBLAS_API_H_ // NVIDIA's own header, which another of a toolkit's may include
int cublasIdamin_v2(cublasHandle_t handle, int n, const double *x, int step, int *result);
#endif

#include <cmath>
#include <complex>
#include <vector>

#define CHECK(condition) \
    do {                 \
        if (!(condition)) return __LINE__; \
    } while (0)
#define OK(call) CHECK((call) == CUBLAS_STATUS_SUCCESS)

template <class T>
struct Device {
    T *at;
    size_t count;
    explicit Device(const std::vector<T> &values) : count(values.size()) {
        cudaMalloc(&at, count * sizeof(T));
        cudaMemcpy(at, values.data(), count * sizeof(T), cudaMemcpyHostToDevice);
    }
    ~Device() { cudaFree(at); }
    std::vector<T> values() const {
        std::vector<T> found(count);
        cudaMemcpy(found.data(), at, count * sizeof(T), cudaMemcpyDeviceToHost);
        return found;
    }
};

static int state = 1;
static double small() {  // an integer, so that sums are exact
    state = state * 1103515245 + 12345;
    return (state >> 16 & 7) - 3;
}
template <class T>
static std::vector<T> drawn(size_t count) {
    std::vector<T> values;
    for (size_t i = 0; i < count; i++) values.push_back(T(float(small())));
    return values;
}
template <class T>
static double value(T x) { return double(float(x)); }
static double value(double x) { return x; }

struct Handle {
    cublasHandle_t it;
    Handle() { cublasCreate(&it); }
    ~Handle() { cublasDestroy(it); }
};

enum { M = 5, N = 4, K = 3, LDA = 7, LDB = 6, LDC = 8, BATCH = 2 };

// Element (row, column) of op(X).
template <class T>
static double element(const std::vector<T> &x, int ld, cublasOperation_t op, int row, int column, int start = 0) {
    return value(op == CUBLAS_OP_N ? x[start + row + column * ld] : x[start + column + row * ld]);
}

template <class T, class Call>
static int products(Call call) {
    Handle handle;
    for (int ops = 0; ops < 4; ops++) {
        auto ta = ops & 1 ? CUBLAS_OP_T : CUBLAS_OP_N, tb = ops & 2 ? CUBLAS_OP_T : CUBLAS_OP_N;
        auto a = drawn<T>(BATCH * 64), b = drawn<T>(BATCH * 64), c = drawn<T>(BATCH * 64);
        Device<T> da(a), db(b), dc(c);
        OK(call(handle.it, ta, tb, da.at, db.at, dc.at));
        auto found = dc.values();
        for (int batch = 0; batch < BATCH; batch++)
            for (int column = 0; column < LDC; column++)
                for (int row = 0; row < LDC; row++) {
                    int place = batch * 64 + row + column * LDC;
                    double expected = value(c[place]);
                    if (row < M && column < N) {
                        expected *= 3;
                        for (int k = 0; k < K; k++)
                            expected += 2 * element(a, LDA, ta, row, k, batch * 64) * element(b, LDB, tb, k, column, batch * 64);
                    }
                    CHECK(value(found[place]) == expected);
                }
    }
    return 0;
}

#define OF_ONE_TYPE(letter, type)                                                                                      \
    int line = products<type>([](auto handle, auto ta, auto tb, type *a, type *b, type *c) {                           \
        type two = type(2.f), three = type(3.f);                                                                       \
        return cublas##letter##gemmStridedBatched(handle, ta, tb, M, N, K, &two, a, LDA, 64, b, LDB, 64, &three, c, LDC, \
                                                  64, BATCH);                                                          \
    });                                                                                                                \
    CHECK(!line);                                                                                                      \
    return products<type>([](auto handle, auto ta, auto tb, type *a, type *b, type *c) {                               \
        type two = type(2.f), three = type(3.f);                                                                       \
        Device<type *> as({a, a + 64}), bs({b, b + 64}), cs({c, c + 64});                                              \
        return cublas##letter##gemmBatched(handle, ta, tb, M, N, K, &two, as.at, LDA, bs.at, LDB, &three, cs.at, LDC,  \
                                           BATCH);                                                                     \
    });
extern "C" int single_products() { OF_ONE_TYPE(S, float) }
extern "C" int double_products() { OF_ONE_TYPE(D, double) }
extern "C" int half_products() { OF_ONE_TYPE(H, __half) }

extern "C" int mixed_products() {
    return products<__nv_bfloat16>([](auto handle, auto ta, auto tb, auto *a, auto *b, auto *c) {
        Device<float> two({2}), three({3});  // scalars on the device
        cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_DEVICE);
        for (int batch = 0; batch < BATCH; batch++)
            if (auto status = cublasGemmEx(handle, ta, tb, M, N, K, two.at, a + batch * 64, CUDA_R_16BF, LDA, b + batch * 64,
                                           CUDA_R_16BF, LDB, three.at, c + batch * 64, CUDA_R_16BF, LDC,
                                           CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT))
                return status;
        return CUBLAS_STATUS_SUCCESS;
    });
}

extern "C" int integer_products() {
    Handle handle;
    Device<int8_t> a({127, -128, 3, 4}), b({127, 127, -1, 2});
    Device<int> c(std::vector<int>(4, 1 << 24));
    int one = 1;
    OK(cublasGemmEx(handle.it, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, a.at, CUDA_R_8I, 2, b.at, CUDA_R_8I, 2, &one, c.at,
                    CUDA_R_32I, 2, CUBLAS_COMPUTE_32I, CUBLAS_GEMM_DEFAULT));
    CHECK((c.values() == std::vector<int>{(1 << 24) + 130 * 127, (1 << 24) - 124 * 127, (1 << 24) - 121, (1 << 24) + 136}));
    return 0;
}

extern "C" int complex_products() {
    Handle handle;
    Device<cuComplex> a({{1, 2}, {3, -1}}), b({{2, 1}, {0, 1}}), c({{NAN, NAN}});
    cuComplex one{1, 0}, zero{0, 0};  // with beta of 0 what C holds does not count
    OK(cublasCgemm(handle.it, CUBLAS_OP_C, CUBLAS_OP_N, 1, 1, 2, &one, a.at, 2, b.at, 2, &zero, c.at, 1));
    CHECK(c.values()[0].x == 3 && c.values()[0].y == 0);  // (1 - 2i)(2 + i) + (3 + i)(i)
    return 0;
}

extern "C" int vectors() {
    Handle handle;
    std::vector<float> x{1, 9, -2, 9, 3}, y{4, 5, 6};
    Device<float> dx(x), dy(y), matrix({1, 2, 3, 4, 5, 6});
    float two = 2, one = 1, found = 0;
    int place = 0;
    OK(cublasSdot(handle.it, 3, dx.at, 2, dy.at, 1, &found));
    CHECK(found == 4 - 10 + 18);
    OK(cublasSnrm2(handle.it, 2, dy.at, 1, &found));
    CHECK(std::fabs(found - std::sqrt(41.f)) < 1e-6);
    OK(cublasSasum(handle.it, 3, dx.at, 2, &found));
    CHECK(found == 6);
    OK(cublasIsamax(handle.it, 3, dx.at, 2, &place));
    CHECK(place == 3);
    OK(cublasIsamin(handle.it, 3, dx.at, 2, &place));
    CHECK(place == 1);
    OK(cublasSasum(handle.it, 0, dx.at, 1, &found));
    CHECK(found == 0);
    OK(cublasSaxpy(handle.it, 3, &two, dx.at, 2, dy.at, 1));
    CHECK((dy.values() == std::vector<float>{6, 1, 12}));
    OK(cublasSscal(handle.it, 2, &two, dy.at, 2));
    CHECK((dy.values() == std::vector<float>{12, 1, 24}));
    OK(cublasSgemv(handle.it, CUBLAS_OP_N, 2, 3, &one, matrix.at, 2, dx.at, 2, &two, dy.at, 2));
    CHECK((dy.values() == std::vector<float>{24 + 1 - 6 + 15, 1, 48 + 2 - 8 + 18}));
    OK(cublasSgemv(handle.it, CUBLAS_OP_T, 2, 3, &one, matrix.at, 2, dx.at, 4, 0, dy.at, 1));
    CHECK((dy.values() == std::vector<float>{1 + 6, 3 + 12, 5 + 18}));
    OK(cublasSger(handle.it, 2, 3, &two, dx.at, 2, dy.at, 1, matrix.at, 2));
    CHECK((matrix.values() == std::vector<float>{1 + 14, 2 - 28, 3 + 30, 4 - 60, 5 + 46, 6 - 92}));
    OK(cublasScopy(handle.it, 2, dy.at, 1, dx.at, 4));
    CHECK((dx.values() == std::vector<float>{7, 9, -2, 9, 15}));
    Device<float> sum(std::vector<float>(4));
    OK(cublasSgeam(handle.it, CUBLAS_OP_T, CUBLAS_OP_N, 2, 2, &one, matrix.at, 2, &two, matrix.at, 2, sum.at, 2));
    CHECK((sum.values() == std::vector<float>{15 + 30, 33 - 52, -26 + 66, -56 - 112}));
    return 0;
}

// D of rows, with a bias for each row of D, and GELU or ReLU
extern "C" int descriptors() {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    OK(cublasLtCreate(&handle));
    OK(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    OK(cublasLtMatrixLayoutCreate(&a, CUDA_R_16F, 2, 2, 2));
    OK(cublasLtMatrixLayoutCreate(&b, CUDA_R_16F, 2, 3, 2));
    OK(cublasLtMatrixLayoutCreate(&d, CUDA_R_32F, 2, 3, 3));
    auto rows = CUBLASLT_ORDER_ROW;
    OK(cublasLtMatrixLayoutSetAttribute(d, CUBLASLT_MATRIX_LAYOUT_ORDER, &rows, sizeof rows));
    auto transposed = CUBLAS_OP_T;
    OK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed));
    CHECK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, 1) == CUBLAS_STATUS_INVALID_VALUE);
    Device<__half> da({1, 2, 3, -4}), db({1, 0, 0, 1, 2, 2});
    Device<float> bias({10, -1}), dd(std::vector<float>(6)), scale({0.5});
    auto epilogue = CUBLASLT_EPILOGUE_RELU_BIAS;
    OK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    OK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias.at, sizeof bias.at));
    float one = 1, zero = 0;
    OK(cublasLtMatmul(handle, desc, &one, da.at, a, db.at, b, &zero, dd.at, d, dd.at, d, 0, 0, 0, 0));
    CHECK((dd.values() == std::vector<float>{11, 12, 16, 2, 0, 0}));
    epilogue = CUBLASLT_EPILOGUE_GELU_BIAS;
    OK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    OK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &scale.at, sizeof scale.at));
    OK(cublasLtMatmul(handle, desc, &one, da.at, a, db.at, b, &zero, dd.at, d, dd.at, d, 0, 0, 0, 0));
    auto found = dd.values();
    CHECK(found[0] == 10.5f && std::fabs(found[3] - 0.345714f) < 1e-6 && std::fabs(found[5] + 0.045402f) < 1e-6);
    OK(cublasLtMatmulDescDestroy(desc));
    OK(cublasLtDestroy(handle));
    return 0;
}

extern "C" int a_matrix_on_the_host() {
    Handle handle;
    Device<float> x(std::vector<float>(4));
    float host[4] = {}, one = 1;
    CHECK(cublasSgemm(handle.it, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, x.at, 1, x.at, 1, &one, host, 1) ==
          CUBLAS_STATUS_EXECUTION_FAILED);
    return 0;
}

extern "C" int refusals() {
    Handle handle;
    Device<float> x(std::vector<float>(16));
    float one = 1;
    auto multiply = [&](cublasHandle_t handle, int m, int lda) {
        return cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, 2, 2, &one, x.at, lda, x.at, 2, &one, x.at, m > 0 ? m : 1);
    };
    CHECK(multiply(0, 2, 2) == CUBLAS_STATUS_NOT_INITIALIZED);
    CHECK(multiply(handle.it, 2, 1) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(multiply(handle.it, -1, 2) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK(multiply(handle.it, 2, 15) == CUBLAS_STATUS_EXECUTION_FAILED);  // reads past the end
    return 0;
}
