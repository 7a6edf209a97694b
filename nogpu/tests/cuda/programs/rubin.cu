// A Rubin in CUDA C++: its properties, 327 KiB of shared memory, and kind::mxf4nvf4 with K of 96 and 128 against the host.
// Sums are exact: values are multiples of a half, scale factors powers of two.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM107_ALL)
#error "compiled for another architecture"
#endif

constexpr int M = 128, N = 64, THREADS = 128, BLOCK = 16, MOST_K = 128;
constexpr int D = 512, SFA = 0, SFB = 16, COLUMNS = 576;  // columns of tensor memory
constexpr int B_PLACE = 288 << 10;                         // behind the 256 KiB that 14 bits of a descriptor reach
constexpr int SHARED = B_PLACE + N * MOST_K / 2;

struct Operands {
    uint8_t a[M][MOST_K / 2], b[N][MOST_K / 2], sfa[M][MOST_K / BLOCK], sfb[N][MOST_K / BLOCK];
};

__device__ uint32_t shared_address(const void *pointer) { return (uint32_t)__cvta_generic_to_shared(pointer); }

__device__ void wait(uint32_t barrier) {
    asm volatile("{ .reg .pred p;\n"
                 "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0;\n"
                 "@!p bra AGAIN; }" ::"r"(barrier) : "memory");
}

// Not swizzled: chunks of 16 bytes are 128 bytes apart, groups of eight rows `chunks` times as much.
__device__ void place(uint8_t *shared, const uint8_t (*rows)[MOST_K / 2], int count, int chunks) {
    for (int i = threadIdx.x; i < count * chunks * 16; i += THREADS) {
        int row = i / (chunks * 16), byte = i % (chunks * 16);
        shared[row / 8 * chunks * 128 + byte / 16 * 128 + row % 8 * 16 + byte % 16] = rows[row][byte];
    }
}

__device__ uint64_t descriptor(uint32_t start, int chunks) {
    return start >> 4 | 128ull >> 4 << 16 | (uint64_t)(chunks * 128 >> 4) << 32 | 1ull << 46;
}

__device__ uint32_t word_of(const uint8_t *factors, int word) {
    return factors[4 * word] | factors[4 * word + 1] << 8 | factors[4 * word + 2] << 16 | factors[4 * word + 3] << 24;
}

// The words of all rows, in every quadrant of the lanes: row r in lane r % 32, column r / 32.
__device__ void place_factors(uint32_t tmem, const uint8_t (*factors)[MOST_K / BLOCK], int count, int words) {
    for (int word = 0; word < words; word++)
        for (int column = 0; column < (count + 31) / 32; column++)
            asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {%1};" ::"r"(
                             tmem + (threadIdx.x / 32 * 32 << 16) + word * 4 + column),
                         "r"(word_of(factors[column * 32 + threadIdx.x % 32], word)));
}

// Row r in lane r.
__device__ void place_factors_in_lanes(uint32_t tmem, const uint8_t (*factors)[MOST_K / BLOCK], int words) {
    for (int word = 0; word < words; word++)
        asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {%1};" ::"r"(tmem + (threadIdx.x / 32 * 32 << 16) +
                                                                            word),
                     "r"(word_of(factors[threadIdx.x], word)));
}

template <int K, bool IN_LANES>
__global__ void product(const Operands *in, float *out) {
    extern __shared__ __align__(1024) uint8_t shared[];
    __shared__ uint32_t allocated;
    __shared__ uint64_t barriers[2];  // A has been read; all is complete
    constexpr int CHUNKS = K / 32, WORDS = (K / BLOCK + 3) / 4;
    uint32_t a_read = shared_address(&barriers[0]), complete = shared_address(&barriers[1]);
    if (threadIdx.x < 32)
        asm volatile("tcgen05.alloc.exclusive.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(
                         shared_address(&allocated)),
                     "r"(COLUMNS)
                     : "memory");
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(a_read) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(complete) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    place(shared, in->a, M, CHUNKS);
    place(shared + B_PLACE, in->b, N, CHUNKS);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    uint32_t tmem = allocated;
    if (IN_LANES) place_factors_in_lanes(tmem + SFA, in->sfa, WORDS);
    else place_factors(tmem + SFA, in->sfa, M, WORDS);
    place_factors(tmem + SFB, in->sfb, N, WORDS);
    asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
        uint32_t k_bits = K == 96 ? 1u << 31 : K == 128 ? 1u << 3 : 0;
        uint32_t idesc = 1 << 7 | 1 << 10 | N / 8 << 17 | (uint32_t)IN_LANES << 26 | M / 128 << 27 | k_bits;
        uint64_t a = descriptor(shared_address(shared), CHUNKS), b = descriptor(shared_address(shared + B_PLACE), CHUNKS);
        asm volatile("{ .reg .pred p; setp.ne.u32 p, 0, 0;\n"
                     "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16.collector::b::fill "
                     "[%0], %1, %2, %3, [%4], [%5], p;\n"
                     "setp.eq.u32 p, 0, 0;\n"
                     "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16.collector::b::lastuse "
                     "[%0], %1, %2, %3, [%4], [%5], p; }" ::"r"(tmem + D), "l"(a), "l"(b), "r"(idesc), "r"(tmem + SFA),
                     "r"(tmem + SFB)
                     : "memory");
        asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.sync_restrict::shared::read::mma::a"
                     ".shared::cluster.b64 [%0];" ::"r"(a_read)
                     : "memory");
        asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(complete)
                     : "memory");
    }
    wait(a_read);
    shared[threadIdx.x] = 0;  // A may be written again
    wait(complete);
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    for (int column = 0; column < N; column++) {
        uint32_t value;
        asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%0}, [%1];\n tcgen05.wait::ld.sync.aligned;"
                     : "=r"(value)
                     : "r"(tmem + (threadIdx.x / 32 * 32 << 16) + D + column));
        out[threadIdx.x * N + column] = __uint_as_float(value);
    }
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    __syncthreads();
    if (threadIdx.x < 32)
        asm volatile("tcgen05.dealloc.exclusive.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(tmem), "r"(COLUMNS));
}

float element(const uint8_t *row, int k) {
    static const float values[] = {0, .5, 1, 1.5, 2, 3, 4, 6};
    int code = row[k / 2] >> 4 * (k % 2) & 15;
    return code & 8 ? -values[code & 7] : values[code];
}

float factor(uint8_t code) { return code == 0x30 ? .5f : code == 0x38 ? 1 : 2; }  // of ue4m3

template <int K, bool IN_LANES>
int check(const Operands &host, const Operands *device, float *out) {
    static float found[M][N];
    if (cudaFuncSetAttribute(product<K, IN_LANES>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED)) return __LINE__;
    product<K, IN_LANES><<<1, THREADS, SHARED>>>(device, out);
    if (cudaMemcpy(found, out, sizeof found, cudaMemcpyDeviceToHost)) return __LINE__;
    for (int m = 0; m < M; m++)
        for (int n = 0; n < N; n++) {
            float sum = 0;
            for (int k = 0; k < K; k++)
                sum += element(host.a[m], k) * factor(host.sfa[m][k / BLOCK]) * element(host.b[n], k) *
                       factor(host.sfb[n][k / BLOCK]);
            if (found[m][n] != 2 * sum) {
                printf("K of %d: D[%d][%d] is %g, not %g\n", K, m, n, found[m][n], 2 * sum);
                return __LINE__;
            }
        }
    return 0;
}

int main() {
    cudaDeviceProp properties;
    cudaFuncAttributes attributes;
    cudaGetDeviceProperties(&properties, 0);
    cudaFuncGetAttributes(&attributes, product<96, false>);
    printf("%d.%d, %zu bytes of shared memory, PTX %d\n", properties.major, properties.minor,
           properties.sharedMemPerBlockOptin, attributes.ptxVersion);
    static Operands host;
    uint8_t *bytes = (uint8_t *)&host;
    for (size_t i = 0; i < sizeof host; i++) bytes[i] = rand() >> 8;
    for (uint8_t *at = host.sfa[0]; at < bytes + sizeof host; at++) *at = 0x30 + 8 * (*at % 3);
    Operands *device;
    float *out;
    cudaMalloc(&device, sizeof host);
    cudaMalloc(&out, M * N * sizeof *out);
    cudaMemcpy(device, &host, sizeof host, cudaMemcpyHostToDevice);
    int line = check<64, false>(host, device, out);
    if (!line) line = check<96, false>(host, device, out);
    if (!line) line = check<128, false>(host, device, out);
    if (!line) line = check<128, true>(host, device, out);
    puts(line ? "wrong" : "right");
    return line != 0;
}
