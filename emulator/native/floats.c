// Floating-point arithmetic, comparisons and conversions. A NaN of a result is the one that NVIDIA GPUs make.

#include <math.h>

#include "engine.h"

static inline f32 nan32(f32 x) {
    u32 n = 0x7fffffff;
    f32 q;
    memcpy(&q, &n, 4);
    return x != x ? q : x;
}

static inline f16 nan16(f16 x) {  // by integers: gcc 12 does not vectorise the comparison of halves
    u16 b;
    memcpy(&b, &x, 2);
    b = (u16)((b & 0x7fff) > 0x7c00 ? 0x7fff : b);
    memcpy(&x, &b, 2);
    return x;
}

#define ARITHMETIC(NAME, T, n, CANONICAL, FMA)                      \
    BINARY(add_##NAME, T, T, T, n, CANONICAL(x + y))                \
    BINARY(sub_##NAME, T, T, T, n, CANONICAL(x - y))                \
    BINARY(mul_##NAME, T, T, T, n, CANONICAL(x * y))                \
    TERNARY(fma_##NAME, T, T, T, T, n, CANONICAL(FMA))
#ifdef __AVX512FP16__
#define FMA16 __builtin_fmaf16(x, y, z)
#else
#define FMA16 (f16)((f64)x * y + z) // no sum that is inexact in double is a tie in half
#endif
ARITHMETIC(f32, f32, 32, nan32, __builtin_fmaf(x, y, z))
ARITHMETIC(f32x2, f32, 64, nan32, __builtin_fmaf(x, y, z))
ARITHMETIC(f64, f64, 32, , __builtin_fma(x, y, z))
ARITHMETIC(f16, f16, 32, nan16, FMA16)
ARITHMETIC(f16x2, f16, 64, nan16, FMA16)
BINARY(div_f32, f32, f32, f32, 32, nan32(x / y))

COMPARED(eq_f32, f32, x == y)
COMPARED(ne_f32, f32, x < y || x > y)
COMPARED(lt_f32, f32, x < y)
COMPARED(le_f32, f32, x <= y)
COMPARED(gt_f32, f32, x > y)
COMPARED(ge_f32, f32, x >= y)

UNARY(cvt_f32_f16, f32, f16, 32, nan32((f32)x))
UNARY(cvt_f16_f32, f16, f32, 32, nan16((f16)x))

static inline u32 pair16(f32 high, f32 low) {
    f16 h = nan16((f16)high), g = nan16((f16)low);
    u16 x, y;
    memcpy(&x, &h, 2);
    memcpy(&y, &g, 2);
    return (u32)x << 16 | y;
}
BINARY(cvt_f16x2_f32, u32, f32, f32, LANES, pair16(x, y))

KERNEL(cvt_f16x2_e2m1x2) {  // the bits in a half are 2**14 times too small
    SOURCE(u8, a, 0, LANES)
    u32 r[LANES];
    for (int l = 0; l < LANES; l++) {
        u32 w = a[l];
        r[l] = (w << 9 & 0x0e00) | (w << 12 & 0x8000) | (w << 21 & 0x0e000000) | (w << 24 & 0x80000000);
    }
    f16 *h = (f16 *)r;
    for (int l = 0; l < 64; l++) h[l] *= (f16)16384.0f;
    COMMIT_ROW(r);
    return op + 1;
}

KERNEL(cvt_f16x2_e4m3x2) {  // the bits in a half are 2**8 times too small
    SOURCE(u16, a, 0, LANES)
    const u8 *octets = (const u8 *)a;
    u16 r[64];
    for (int l = 0; l < 64; l++) r[l] = (u16)((octets[l] & 0x7f) << 7 | (octets[l] & 0x80) << 8);
    f16 *h = (f16 *)r;
    for (int l = 0; l < 64; l++) h[l] *= (f16)256.0f;
    for (int l = 0; l < 64; l++) r[l] = (octets[l] & 0x7f) == 0x7f ? 0x7fff : r[l];
    COMMIT_ROW(r);
    return op + 1;
}
