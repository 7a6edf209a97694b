// Floating-point sums, products, quotients and roots, to nearest even (PTX ISA, "Floating Point Instructions", "Half
// Precision Floating Point Instructions").
//
// Kernels are k_<operation>_<type>, and with modifiers in Op.x k_<operation>_<type>_m.

#include "numbers.h"

#define ONE_SOURCE(NAME, F, n, E)                                                                    \
    KERNEL(NAME) {                                                                                   \
        TAKE_##F(a, 0, n)                                                                            \
        NUMBER_##F r[n];                                                                             \
        for (int l = 0; l < n; l++) { NUMBER_##F x = av[l]; r[l] = CANONICAL_##F(E, x, x, x); }      \
        GIVE_##F(n);                                                                                 \
        return op + 1;                                                                               \
    }
#define TWO_SOURCES(NAME, F, n, E)                                                                   \
    KERNEL(NAME) {                                                                                   \
        TAKE_##F(a, 0, n) TAKE_##F(b, 1, n)                                                          \
        NUMBER_##F r[n];                                                                             \
        for (int l = 0; l < n; l++) { NUMBER_##F x = av[l], y = bv[l]; r[l] = CANONICAL_##F(E, x, y, y); } \
        GIVE_##F(n);                                                                                 \
        return op + 1;                                                                               \
    }
#define THREE_SOURCES(NAME, F, n, E)                                                                 \
    KERNEL(NAME) {                                                                                   \
        TAKE_##F(a, 0, n) TAKE_##F(b, 1, n) TAKE_##F(c, 2, n)                                        \
        NUMBER_##F r[n];                                                                             \
        for (int l = 0; l < n; l++) {                                                                \
            NUMBER_##F x = av[l], y = bv[l], z = cv[l];                                              \
            r[l] = CANONICAL_##F(E, x, y, z);                                                        \
        }                                                                                            \
        GIVE_##F(n);                                                                                 \
        return op + 1;                                                                               \
    }

// With modifiers
#define TINY(F) f32 tiny = op->x & FTZ ? TINY_##F : 0;
#define ONE_MODIFIED(NAME, F, n, E)                                                                  \
    KERNEL(NAME) {                                                                                   \
        TAKE_##F(a, 0, n) TINY(F)                                                                    \
        f32 r[n];                                                                                    \
        for (int l = 0; l < n; l++) { f32 x = flushed(av[l], tiny); r[l] = CANONICAL_##F(E, x, x, x); } \
        FINISH_##F(n);                                                                               \
        return op + 1;                                                                               \
    }
#define TWO_MODIFIED(NAME, F, n, E)                                                                  \
    KERNEL(NAME) {                                                                                   \
        TAKE_##F(a, 0, n) TAKE_##F(b, 1, n) TINY(F)                                                  \
        f32 r[n];                                                                                    \
        for (int l = 0; l < n; l++) {                                                                \
            f32 x = flushed(av[l], tiny), y = flushed(bv[l], tiny);                                  \
            r[l] = CANONICAL_##F(E, x, y, y);                                                        \
        }                                                                                            \
        FINISH_##F(n);                                                                               \
        return op + 1;                                                                               \
    }
#define THREE_MODIFIED(NAME, F, n, E)                                                                \
    KERNEL(NAME) {                                                                                   \
        TAKE_##F(a, 0, n) TAKE_##F(b, 1, n) TAKE_##F(c, 2, n) TINY(F)                                \
        f32 r[n];                                                                                    \
        for (int l = 0; l < n; l++) {                                                                \
            f32 x = flushed(av[l], tiny), y = flushed(bv[l], tiny), z = flushed(cv[l], tiny);        \
            r[l] = CANONICAL_##F(E, x, y, z);                                                        \
        }                                                                                            \
        if (op->x & OOB) without_##F(r, a, b, n);                                                    \
        FINISH_##F(n);                                                                               \
        return op + 1;                                                                               \
    }

// `.oob`: the result is 0 where a factor is the NaN that tensor copies fill with (PTX ISA, "fma").
static inline void without_fill(f32 *r, const u16 *a, const u16 *b, int n) {
    for (int l = 0; l < n; l++) r[l] = a[l] == 0x7fff || b[l] == 0x7fff ? 0 : r[l];
}
#define without_f16 without_fill
#define without_bf16 without_fill
#define without_f32(r, a, b, n) (void)0

#define ARITHMETIC(NAME, F, n, PRODUCT, FUSED)                                                       \
    TWO_SOURCES(add_##NAME, F, n, x + y)                                                             \
    TWO_SOURCES(sub_##NAME, F, n, x - y)                                                             \
    TWO_SOURCES(mul_##NAME, F, n, PRODUCT)                                                           \
    THREE_SOURCES(fma_##NAME, F, n, FUSED)
#define MODIFIED(NAME, F, n, PRODUCT, FUSED)                                                         \
    TWO_MODIFIED(add_##NAME##_m, F, n, x + y)                                                        \
    TWO_MODIFIED(sub_##NAME##_m, F, n, x - y)                                                        \
    TWO_MODIFIED(mul_##NAME##_m, F, n, PRODUCT)                                                      \
    THREE_MODIFIED(fma_##NAME##_m, F, n, FUSED)
#define BOTH(NAME, F, n, PRODUCT, FUSED) ARITHMETIC(NAME, F, n, PRODUCT, FUSED) MODIFIED(NAME, F, n, PRODUCT, FUSED)

BOTH(f32, f32, 32, x * y, __builtin_fmaf(x, y, z))
BOTH(f32x2, f32, 64, x * y, __builtin_fmaf(x, y, z))
ARITHMETIC(f64, f64, 32, x * y, __builtin_fma(x, y, z))
// A product of halves is exact in f32, and a sum rounds to half as the exact one does: 24 bits hold twice 11, and two more.
BOTH(f16, f16, 32, x * y, odd_sum(x * y, z))
BOTH(f16x2, f16, 64, x * y, odd_sum(x * y, z))
// A product of bf16 may be too small for f32.
#define BRAIN_PRODUCT odd_single((f64)x * y)
#define BRAIN_FUSED odd_single(odd_sum_f64((f64)x * y, z))
BOTH(bf16, bf16, 32, BRAIN_PRODUCT, BRAIN_FUSED)
BOTH(bf16x2, bf16, 64, BRAIN_PRODUCT, BRAIN_FUSED)

#define DIVIDING(NAME, KIND, F, ONE, SQRT)                                                           \
    TWO_##KIND(div_##NAME, F, 32, x / y)                                                             \
    ONE_##KIND(rcp_##NAME, F, 32, ONE / x)                                                           \
    ONE_##KIND(sqrt_##NAME, F, 32, SQRT(x))
#define TWO_SOURCE TWO_SOURCES
DIVIDING(f32, SOURCE, f32, 1.0f, __builtin_sqrtf)
DIVIDING(f32_m, MODIFIED, f32, 1.0f, __builtin_sqrtf)
DIVIDING(f64, SOURCE, f64, 1.0, __builtin_sqrt)
// rsqrt.approx, computed in double
ONE_MODIFIED(rsqrt_f32, f32, 32, (f32)(1 / __builtin_sqrt((f64)x)))
ONE_SOURCE(rsqrt_f64, f64, 32, 1 / __builtin_sqrt(x))

// approx.ftz.f64 takes and gives the upper 32 bits of a number (PTX ISA, "rcp.approx.ftz.f64").
static inline f64 upper_half(f64 x) {
    u64 bits;
    if (x != x) return x;
    memcpy(&bits, &x, sizeof bits);
    bits &= 0xffffffff00000000;
    if (!(bits & 0x7ff0000000000000)) bits &= 0x8000000000000000;
    memcpy(&x, &bits, sizeof x);
    return x;
}
ONE_SOURCE(rcp_upper_f64, f64, 32, upper_half(1 / upper_half(x)))
ONE_SOURCE(rsqrt_upper_f64, f64, 32, upper_half(1 / __builtin_sqrt(upper_half(x))))

// neg and abs change the sign's bit, of NaNs too, except that NaNs of bf16 become the canonical one. Elements of 16 or
// 32 bits are flushed if the exponent is 0.
#define SIGNS(NAME, U, n, EXPONENT, E)                                                               \
    KERNEL(NAME) {                                                                                   \
        SOURCE(U, a, 0, n)                                                                           \
        U r[n], sign = (U)1 << (8 * sizeof(U) - 1), exponent = op->x & FTZ ? EXPONENT : 0;           \
        for (int l = 0; l < n; l++) {                                                                \
            U x = a[l];                                                                              \
            x = exponent && !(x & exponent) ? x & sign : x;                                          \
            r[l] = E;                                                                                \
        }                                                                                            \
        COMMIT_ROW(r);                                                                               \
        return op + 1;                                                                               \
    }
#define SIGNS_OF(NAME, U, n, EXPONENT)                                                               \
    SIGNS(neg_##NAME, U, n, EXPONENT, (U)(x ^ sign))                                                 \
    SIGNS(abs_##NAME, U, n, EXPONENT, (U)(x & ~sign))
SIGNS_OF(f32, u32, 32, 0x7f800000)
SIGNS_OF(f64, u64, 32, 0)
SIGNS_OF(f16, u16, 32, 0x7c00)
SIGNS_OF(f16x2, u16, 64, 0x7c00)
#define BRAIN_SIGNS(NAME, n)                                                                         \
    SIGNS(neg_##NAME, u16, n, 0, (x & 0x7fff) > 0x7f80 ? 0x7fff : (u16)(x ^ sign))                   \
    SIGNS(abs_##NAME, u16, n, 0, (x & 0x7fff) > 0x7f80 ? 0x7fff : (u16)(x & ~sign))
BRAIN_SIGNS(bf16, 32)
BRAIN_SIGNS(bf16x2, 64)

// copysign: the sign of the first source, the magnitude of the second
BINARY(copysign_f32, u32, u32, u32, LANES, (x & 0x80000000) | (y & 0x7fffffff))
BINARY(copysign_f64, u64, u64, u64, LANES, (x >> 63 << 63) | (y << 1 >> 1))
