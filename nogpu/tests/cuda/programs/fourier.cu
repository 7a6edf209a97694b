// Checks of cuFFT's functions that test_fourier.py calls: each returns 0, or the line that fails. Expected values are
// sums of the definition.
#include <cmath>
#include <complex>
#include <cuda_runtime.h>
#include <cufft.h>
#include <vector>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) return __LINE__;                                                                             \
    } while (0)
#define OK(call) CHECK((call) == 0)

using Number = std::complex<double>;

// The transform of (batch, height, width) numbers along the last two axes.
static std::vector<Number> expected(const std::vector<Number> &x, int batch, int height, int width, int sign) {
    std::vector<Number> sums(x.size());
    for (int b = 0; b < batch; b++)
        for (int u = 0; u < height; u++)
            for (int v = 0; v < width; v++)
                for (int i = 0; i < height; i++)
                    for (int j = 0; j < width; j++)
                        sums[(b * height + u) * width + v] +=
                            x[(b * height + i) * width + j] *
                            std::polar(1., sign * 2 * M_PI * (double(u * i) / height + double(v * j) / width));
    return sums;
}

static std::vector<Number> some(int count, bool is_real) {
    std::vector<Number> x(count);
    for (int i = 0; i < count; i++) x[i] = Number(sin(i * i + 1), is_real ? 0 : cos(3 * i));
    return x;
}

static bool near(Number a, Number b) { return std::abs(a - b) < 1e-4; }

extern "C" int complex_numbers() {
    enum { BATCH = 3, HEIGHT = 4, WIDTH = 5, COUNT = BATCH * HEIGHT * WIDTH };
    auto x = some(COUNT, false);
    cufftComplex *in, *out;
    cufftHandle plan;
    cudaStream_t queue;
    OK(cudaMallocManaged(&in, COUNT * sizeof *in));
    OK(cudaMallocManaged(&out, COUNT * sizeof *out));
    for (int i = 0; i < COUNT; i++) in[i] = make_cuComplex(x[i].real(), x[i].imag());
    OK(cudaStreamCreate(&queue));
    OK(cufftPlan1d(&plan, WIDTH, CUFFT_C2C, BATCH * HEIGHT));
    OK(cufftSetStream(plan, queue));
    OK(cufftExecC2C(plan, in, out, CUFFT_FORWARD));
    auto wanted = expected(x, BATCH * HEIGHT, 1, WIDTH, -1);
    for (int i = 0; i < COUNT; i++) CHECK(near(wanted[i], Number(out[i].x, out[i].y)));
    OK(cufftExecC2C(plan, out, out, CUFFT_INVERSE));
    for (int i = 0; i < COUNT; i++) CHECK(near(x[i] * double(WIDTH), Number(out[i].x, out[i].y)));
    CHECK(cufftExecZ2Z(plan, nullptr, nullptr, CUFFT_FORWARD) == CUFFT_INVALID_PLAN);
    CHECK(cufftExecC2C(plan, in, out, 0) == CUFFT_INVALID_VALUE);
    OK(cufftDestroy(plan));
    CHECK(cufftDestroy(plan) == CUFFT_INVALID_PLAN);
    int sizes[] = {HEIGHT, WIDTH};
    OK(cufftPlanMany(&plan, 2, sizes, nullptr, 1, 0, nullptr, 1, 0, CUFFT_C2C, BATCH));
    OK(cufftExecC2C(plan, in, out, CUFFT_INVERSE));
    wanted = expected(x, BATCH, HEIGHT, WIDTH, 1);
    for (int i = 0; i < COUNT; i++) CHECK(near(wanted[i], Number(out[i].x, out[i].y)));
    // columns: of COUNT / WIDTH numbers, WIDTH of them beside each other
    int rows = COUNT / WIDTH;
    OK(cufftPlanMany(&plan, 1, &rows, &rows, WIDTH, 1, &rows, 1, rows, CUFFT_C2C, WIDTH));
    OK(cufftExecC2C(plan, in, out, CUFFT_FORWARD));
    wanted = expected(x, 1, rows, WIDTH, -1);
    for (int v = 0; v < rows; v++) {
        Number sum;
        for (int j = 0; j < WIDTH; j++) sum += Number(out[j * rows + v].x, out[j * rows + v].y);
        CHECK(near(sum, wanted[v * WIDTH]));
    }
    CHECK(cufftPlan1d(&plan, 0, CUFFT_C2C, 1) == CUFFT_INVALID_VALUE);
    return 0;
}

extern "C" int real_numbers() {
    enum { HEIGHT = 3, WIDTH = 6, HALF = WIDTH / 2 + 1, COUNT = HEIGHT * WIDTH };
    auto x = some(COUNT, true), wanted = expected(x, 1, HEIGHT, WIDTH, -1);
    double *in, *back;
    cufftDoubleComplex *out;
    OK(cudaMallocManaged(&in, COUNT * sizeof *in));
    OK(cudaMallocManaged(&back, HEIGHT * 2 * HALF * sizeof *back));
    OK(cudaMallocManaged(&out, HEIGHT * HALF * sizeof *out));
    for (int i = 0; i < COUNT; i++) in[i] = x[i].real();
    cufftHandle forward, inverse;
    OK(cufftPlan2d(&forward, HEIGHT, WIDTH, CUFFT_D2Z));
    OK(cufftPlan2d(&inverse, HEIGHT, WIDTH, CUFFT_Z2D));
    OK(cufftExecD2Z(forward, in, out));
    for (int u = 0; u < HEIGHT; u++)
        for (int v = 0; v < HALF; v++)
            CHECK(near(wanted[u * WIDTH + v], Number(out[u * HALF + v].x, out[u * HALF + v].y)));
    OK(cufftExecZ2D(inverse, out, back));
    for (int i = 0; i < COUNT; i++) CHECK(near(x[i] * double(COUNT), back[i]));
    // in place: rows of HALF complex numbers
    for (int i = 0; i < COUNT; i++) back[i / WIDTH * 2 * HALF + i % WIDTH] = x[i].real();
    OK(cufftExecD2Z(forward, back, (cufftDoubleComplex *)back));
    for (int i = 0; i < HEIGHT * HALF; i++) CHECK(near(out[i].x, back[2 * i]) && near(out[i].y, back[2 * i + 1]));
    OK(cudaFree(out));
    return 0;
}

extern "C" int past_the_end() {
    cufftComplex *x;
    cufftHandle plan;
    OK(cudaMalloc(&x, 100 * sizeof *x));
    OK(cufftPlan1d(&plan, 101, CUFFT_C2C, 1));
    CHECK(cufftExecC2C(plan, x, x, CUFFT_FORWARD) == CUFFT_EXEC_FAILED);
    CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
    return 0;
}
