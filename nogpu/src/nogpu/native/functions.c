// ex2, lg2, sin, cos and tanh (`.approx`): computed in double to about 2**-51, then rounded once (PTX ISA, "Floating Point
// Instructions"). Plain sums and products, so that every CPU has the same result.

#include "numbers.h"

#define LN2 0x1.62e42fefa39efp-1

// e**x - 1 for |x| <= ln(2) / 2, relative error below 2**-52: its Taylor series
static inline f64 exponential_less_1(f64 x) {
    f64 p = 1.0 / 6227020800;
    p = p * x + 1.0 / 479001600;
    p = p * x + 1.0 / 39916800;
    p = p * x + 1.0 / 3628800;
    p = p * x + 1.0 / 362880;
    p = p * x + 1.0 / 40320;
    p = p * x + 1.0 / 5040;
    p = p * x + 1.0 / 720;
    p = p * x + 1.0 / 120;
    p = p * x + 1.0 / 24;
    p = p * x + 1.0 / 6;
    p = p * x + 0.5;
    return p * x * x + x;
}

// 2**n of an integer of [-1022, 1023]
static inline f64 power(f64 n) {
    const f64 shift = 0x1.8p52;
    return f64_of((bits_of_f64(n + shift) + 1023) << 52);
}

static inline f64 ex2(f64 x) {
    f64 y = x < -500 ? -500 : x > 500 ? 500 : x, n = __builtin_rint(y), p = exponential_less_1((y - n) * LN2) + 1;
    f64 r = p * power(n);
    return x == x ? r : x;
}

static inline f64 lg2(f64 x) {  // of a f32
    u64 bits = bits_of_f64(x), magnitude = bits & ~((u64)1 << 63);
    u64 above = bits - ((u64)0x3fe6a09e << 32);  // the exponent from sqrt(1/2) on
    f64 e = (f64)(s32)((s64)above >> 52), m = f64_of(bits - (above >> 52 << 52)) - 1;
    f64 s = m / (2 + m), t = s * s, p = 1.0 / 23;
    p = p * t + 1.0 / 21;
    p = p * t + 1.0 / 19;
    p = p * t + 1.0 / 17;
    p = p * t + 1.0 / 15;
    p = p * t + 1.0 / 13;
    p = p * t + 1.0 / 11;
    p = p * t + 1.0 / 9;
    p = p * t + 1.0 / 7;
    p = p * t + 1.0 / 5;
    p = p * t + 1.0 / 3;
    f64 r = e + (p * t * s + s) * (2 / LN2);
    r = x < 0 ? NAN : r;
    r = magnitude == 0 ? -INFINITY : r;
    return x == INFINITY || x != x ? x : r;
}

static inline f64 hyperbolic_tangent(f64 x) {
    f64 y = __builtin_fabs(x), z = 2 * (y < 20 ? y : 20), n = __builtin_rint(z * (1 / LN2));
    f64 rest = (z - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33, two = power(n);
    f64 e = exponential_less_1(rest) * two + (two - 1), r = __builtin_copysign(e / (e + 2), x);
    return x == x ? r : x;
}

// sin(x + quarter * pi / 2), for |x| < 2**20, where pi / 2 in three parts leaves an exact difference
static inline f64 turned(f64 x, s64 quarter) {
    f64 k = __builtin_rint(x * (2 / 3.14159265358979323846));
    f64 r = ((x - k * 0x1.921fb544p0) - k * 0x1.0b4611a6p-34) - k * 0x1.3198a2e037073p-69, t = r * r;
    s64 turn = (s64)bits_of_f64(k + 0x1.8p52) + quarter;
    f64 p = 1.0 / 355687428096000;
    p = p * t - 1.0 / 1307674368000;
    p = p * t + 1.0 / 6227020800;
    p = p * t - 1.0 / 39916800;
    p = p * t + 1.0 / 362880;
    p = p * t - 1.0 / 5040;
    p = p * t + 1.0 / 120;
    p = p * t - 1.0 / 6;
    f64 q = -1.0 / 6402373705728000;
    q = q * t + 1.0 / 20922789888000;
    q = q * t - 1.0 / 87178291200;
    q = q * t + 1.0 / 479001600;
    q = q * t - 1.0 / 3628800;
    q = q * t + 1.0 / 40320;
    q = q * t - 1.0 / 720;
    q = q * t + 1.0 / 24;
    q = q * t - 0.5;
    f64 value = turn & 1 ? q * t + 1 : p * t * r + r;
    return turn & 2 ? -value : value;
}
static inline f64 sine(f64 x) { return x == 0 ? x : turned(x, 0); }  // -0 stays
static inline f64 cosine(f64 x) { return turned(x, 1); }

#define FUNCTION(NAME, F, n, E, ROUNDED)                                                             \
    KERNEL(NAME) {                                                                                   \
        TAKE_##F(a, 0, n)                                                                            \
        f32 tiny = op->x & FTZ ? TINY_##F : 0, r[n];                                                 \
        for (int l = 0; l < n; l++) { f64 x = flushed(av[l], tiny); r[l] = ROUNDED(E); }             \
        FINISH_##F(n);                                                                               \
        return op + 1;                                                                               \
    }
#define SINGLE(e) nan32((f32)(e))
FUNCTION(ex2_f32, f32, 32, ex2(x), SINGLE)
FUNCTION(lg2_f32, f32, 32, lg2(x), SINGLE)
FUNCTION(tanh_f32, f32, 32, hyperbolic_tangent(x), SINGLE)
#define HALF_FUNCTIONS(NAME, F, n)                                                                   \
    FUNCTION(ex2_##NAME, F, n, ex2(x), odd_single)                                                   \
    FUNCTION(tanh_##NAME, F, n, hyperbolic_tangent(x), odd_single)
HALF_FUNCTIONS(f16, f16, 32)
HALF_FUNCTIONS(f16x2, f16, 64)
HALF_FUNCTIONS(bf16, bf16, 32)
HALF_FUNCTIONS(bf16x2, bf16, 64)

#define CIRCULAR(NAME, NEAR, FAR)                                                                  \
    KERNEL(NAME) {                                                                                   \
        TAKE_f32(a, 0, 32)                                                                           \
        f32 tiny = op->x & FTZ ? TINY_f32 : 0, r[32];                                                \
        u32 large = 0;                                                                               \
        for (int l = 0; l < 32; l++) {                                                               \
            f64 x = flushed(av[l], tiny);                                                            \
            r[l] = (f32)NEAR(x);                                                                    \
            large |= !(__builtin_fabs(x) < 0x1p20);                                                  \
        }                                                                                            \
        if (large)                                                                                   \
            for (int l = 0; l < 32; l++)                                                             \
                if (!(__builtin_fabsf(av[l]) < 0x1p20f)) r[l] = nan32((f32)FAR((f64)av[l]));         \
        FINISH_f32(32);                                                                              \
        return op + 1;                                                                               \
    }
CIRCULAR(sin_f32, sine, sin)
CIRCULAR(cos_f32, cosine, cos)
