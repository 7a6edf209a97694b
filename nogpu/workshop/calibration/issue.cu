// Instructions between registers: a chain of dependent ones (latency) and eight independent chains (rate).
// Grid 1, any number of warps. count: rounds of the loop; a round has kSteps steps of each chain.

#include "common.cuh"

constexpr int kSteps = 64, kRateSteps = 16, kChains = 8;

template <class Op, int chains, int steps>
__device__ __forceinline__ void run(uint64_t *out, int count, uint32_t seed) {
    typename Op::Type x[chains], k = seed | 1;
#pragma unroll
    for (int i = 0; i < chains; ++i) x[i] = seed + threadIdx.x + i;
    __syncthreads();
    Timer timer;
#pragma unroll 1
    for (int round = 0; round < count; ++round) {
#pragma unroll
        for (int step = 0; step < steps; ++step) {
#pragma unroll
            for (int i = 0; i < chains; ++i) Op::step(x[i], k);
        }
    }
    uint64_t sum = 0;
#pragma unroll
    for (int i = 0; i < chains; ++i) sum += x[i];
    if (threadIdx.x % 32 == 0 || sum == 0x123456789) timer.stop(warp_record(out), sum);
}

#define KERNELS(name, type, letter, text)                                                                          \
    struct Op_##name {                                                                                                \
        using Type = type;                                                                                         \
        static __device__ __forceinline__ void step(Type &x, Type k) { asm volatile(text : "+" letter(x) : letter(k)); } \
    };                                                                                                             \
    extern "C" __global__ void latency_##name(uint64_t *out, int count, int seed) {                                \
        run<Op_##name, 1, kSteps>(out, count, seed);                                                                    \
    }                                                                                                              \
    extern "C" __global__ void rate_##name(uint64_t *out, int count, int seed) {                                   \
        run<Op_##name, kChains, kRateSteps>(out, count, seed);                                                          \
    }

// Alternate operations where ptxas would join two of one kind.
KERNELS(add_xor, uint32_t, "r", "add.u32 %0, %0, %1;\n\txor.b32 %0, %0, %1;")
KERNELS(add64_xor64, uint64_t, "l", "add.u64 %0, %0, %1;\n\txor.b64 %0, %0, %1;")
KERNELS(mad, uint32_t, "r", "mad.lo.u32 %0, %0, %1, %1;")
KERNELS(prmt, uint32_t, "r", "prmt.b32 %0, %0, %1, 0x2143;")
KERNELS(popc, uint32_t, "r", "popc.b32 %0, %0;")
KERNELS(setp_selp, uint32_t, "r",
        "{\n\t.reg .pred p;\n\tsetp.lt.u32 p, %0, %1;\n\tselp.b32 %0, %1, 77, p;\n\t}")
KERNELS(fma_f32, uint32_t, "r", "fma.rn.f32 %0, %0, %1, %1;")
KERNELS(fma_f16x2, uint32_t, "r", "fma.rn.f16x2 %0, %0, %1, %1;")
KERNELS(fma_f64, uint64_t, "l", "fma.rn.f64 %0, %0, %1, %1;")
KERNELS(ex2, uint32_t, "r", "ex2.approx.ftz.f32 %0, %0;")
KERNELS(rsqrt, uint32_t, "r", "rsqrt.approx.ftz.f32 %0, %0;")
KERNELS(tanh, uint32_t, "r", "tanh.approx.f32 %0, %0;")
KERNELS(ex2_scaled, float, "f", "ex2.approx.f32 %0, %0;")
KERNELS(rcp_scaled, float, "f", "rcp.approx.f32 %0, %0;")
KERNELS(rcp_rn, float, "f", "rcp.rn.f32 %0, %0;")
KERNELS(sqrt_rn, float, "f", "sqrt.rn.f32 %0, %0;")
KERNELS(div_rn, float, "f", "div.rn.f32 %0, %1, %0;")
KERNELS(div_full, float, "f", "div.full.f32 %0, %1, %0;")
KERNELS(div_u32, uint32_t, "r", "div.u32 %0, %1, %0;")
KERNELS(div_u64, uint64_t, "l", "div.u64 %0, %1, %0;")
KERNELS(mul_u64, uint64_t, "l", "mul.lo.u64 %0, %0, %1;")
KERNELS(cvt_f16x2_f32, uint32_t, "r", "cvt.rn.f16x2.f32 %0, %0, %1;")
KERNELS(cvt_f32_f16, uint32_t, "r", "{\n\t.reg .b16 a, b;\n\tmov.b32 {a, b}, %0;\n\tcvt.f32.f16 %0, a;\n\t}")
KERNELS(cvt_f16x2_e4m3x2, uint32_t, "r",
        "{\n\t.reg .b16 a, b;\n\tmov.b32 {a, b}, %0;\n\tcvt.rn.f16x2.e4m3x2 %0, a;\n\t}")
KERNELS(cvt_e4m3x2_f32_and_back, uint32_t, "r",
        "{\n\t.reg .b16 a;\n\tcvt.rn.satfinite.e4m3x2.f32 a, %0, %1;\n\tcvt.rn.f16x2.e4m3x2 %0, a;\n\t}")
KERNELS(cvt_f32_u32, uint32_t, "r", "cvt.rn.f32.u32 %0, %0;")
KERNELS(shfl, uint32_t, "r", "shfl.sync.bfly.b32 %0, %0, 1, 31, 0xffffffff;")
KERNELS(ballot, uint32_t, "r", "{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %0, %1;\n\tvote.sync.ballot.b32 %0, p, 0xffffffff;\n\t}")
KERNELS(redux, uint32_t, "r", "redux.sync.add.s32 %0, %0, 0xffffffff;")
KERNELS(syncwarp, uint32_t, "r", "bar.warp.sync 0xffffffff;")
#if __CUDA_ARCH__ >= 1000
KERNELS(fma_f32x2, uint64_t, "l", "fma.rn.f32x2 %0, %0, %1, %1;")
KERNELS(cvt_f16x2_e2m1x2, uint32_t, "r",
        "{\n\t.reg .b8 a, b, c, d;\n\tmov.b32 {a, b, c, d}, %0;\n\tcvt.rn.f16x2.e2m1x2 %0, a;\n\t}")
#endif
