// Arithmetic rounded toward zero, down or up (`.rz`, `.rm`, `.rp`), by the CPU's rounding mode.
//
// Kernels are k_<operation>_<type>_r; Op.x has modifiers and rounding. The loops are functions that the compiler cannot
// look into, so that it moves no operation across the changes of the mode.

#include <fenv.h>

#include "numbers.h"

#define LOOP(NAME, T, E)                                                                             \
    __attribute__((noipa)) static void NAME(T *r, const T *a, const T *b, const T *c, int n) {       \
        for (int l = 0; l < n; l++) { T x = a[l], y = b[l], z = c[l]; (void)y; (void)z; r[l] = E; }  \
    }

static const int MODES[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};

#define ROUNDED_f32(NAME, LOOP, n, TAKEN)                                                            \
    KERNEL(NAME) {                                                                                   \
        TAKEN                                                                                        \
        f32 tiny = op->x & FTZ ? TINY_f32 : 0, r[n], sources[3][n];                                  \
        for (int l = 0; l < n; l++) {                                                                \
            sources[0][l] = flushed(av[l], tiny);                                                    \
            sources[1][l] = flushed(bv[l], tiny);                                                    \
            sources[2][l] = flushed(cv[l], tiny);                                                    \
        }                                                                                            \
        fesetround(MODES[op->x >> ROUNDING & 3]);                                                    \
        LOOP(r, sources[0], sources[1], sources[2], n);                                              \
        fesetround(FE_TONEAREST);                                                                    \
        for (int l = 0; l < n; l++) r[l] = nan32(r[l]);                                              \
        FINISH_f32(n);                                                                               \
        return op + 1;                                                                               \
    }
#define ROUNDED_f64(NAME, LOOP, n, TAKEN)                                                            \
    KERNEL(NAME) {                                                                                   \
        TAKEN                                                                                        \
        f64 r[n];                                                                                    \
        fesetround(MODES[op->x >> ROUNDING & 3]);                                                    \
        LOOP(r, av, bv, cv, n);                                                                      \
        fesetround(FE_TONEAREST);                                                                    \
        for (int l = 0; l < n; l++) r[l] = nan64(r[l], av[l], bv[l], cv[l]);                         \
        COMMIT_ROW(r);                                                                               \
        return op + 1;                                                                               \
    }
#define ONE(T, n) TAKE_##T(a, 0, n) const T *bv = av, *cv = av;
#define TWO(T, n) TAKE_##T(a, 0, n) TAKE_##T(b, 1, n) const T *cv = bv;
#define THREE(T, n) TAKE_##T(a, 0, n) TAKE_##T(b, 1, n) TAKE_##T(c, 2, n)

#define LOOPS(T, FMA, SQRT)                                                                          \
    LOOP(sum_##T, T, x + y)                                                                          \
    LOOP(difference_##T, T, x - y)                                                                   \
    LOOP(product_##T, T, x * y)                                                                      \
    LOOP(fused_##T, T, FMA(x, y, z))                                                                 \
    LOOP(quotient_##T, T, x / y)                                                                     \
    LOOP(reciprocal_##T, T, 1 / x)                                                                   \
    LOOP(root_##T, T, SQRT(x))
LOOPS(f32, __builtin_fmaf, __builtin_sqrtf)
LOOPS(f64, __builtin_fma, __builtin_sqrt)

#define ARITHMETIC(NAME, T, n)                                                                       \
    ROUNDED_##T(add_##NAME##_r, sum_##T, n, TWO(T, n))                                               \
    ROUNDED_##T(sub_##NAME##_r, difference_##T, n, TWO(T, n))                                        \
    ROUNDED_##T(mul_##NAME##_r, product_##T, n, TWO(T, n))                                           \
    ROUNDED_##T(fma_##NAME##_r, fused_##T, n, THREE(T, n))
ARITHMETIC(f32, f32, 32)
ARITHMETIC(f32x2, f32, 64)
ARITHMETIC(f64, f64, 32)
#define DIVIDING(T)                                                                                  \
    ROUNDED_##T(div_##T##_r, quotient_##T, 32, TWO(T, 32))                                           \
    ROUNDED_##T(rcp_##T##_r, reciprocal_##T, 32, ONE(T, 32))                                         \
    ROUNDED_##T(sqrt_##T##_r, root_##T, 32, ONE(T, 32))
DIVIDING(f32)
DIVIDING(f64)
