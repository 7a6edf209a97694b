// cvt among floating-point types and between them and integers (PTX ISA, "cvt"). Rows of f16 and bf16 are made f32 first.

#include <float.h>

#include "narrow.h"

#define WIDENED(NAME, F)                                                                             \
    KERNEL(NAME) {                                                                                   \
        TAKE_##F(a, 0, 32)                                                                           \
        f32 r[32];                                                                                   \
        for (int l = 0; l < 32; l++) r[l] = nan32(av[l]);                                            \
        COMMIT_ROW(r);                                                                               \
        return op + 1;                                                                               \
    }
WIDENED(cvt_f32_f16, f16)
WIDENED(cvt_f32_bf16, bf16)
WIDENED(cvt_f32_f32, f32)
#define PLAIN(NAME, A, R, GIVEN, E)                                                                  \
    KERNEL(NAME) {                                                                                   \
        SOURCE(A, a, 0, 32)                                                                          \
        R r[32];                                                                                     \
        for (int l = 0; l < 32; l++) { A x = a[l]; r[l] = E; }                                       \
        GIVEN                                                                                        \
        return op + 1;                                                                               \
    }
PLAIN(cvt_f16_f32, f32, f32, GIVE_f16(32);, x)
PLAIN(cvt_bf16_f32, f32, f32, GIVE_bf16(32);, x)
PLAIN(cvt_f64_f32, f32, f64, COMMIT_ROW(r);, (f64)nan32(x))
PLAIN(cvt_f32_f64, f64, f32, COMMIT_ROW(r);, nan32((f32)x))
#define OF_INTEGER(T)                                                                                \
    PLAIN(cvt_f32_##T, T, f32, COMMIT_ROW(r);, (f32)x)                                               \
    PLAIN(cvt_f64_##T, T, f64, COMMIT_ROW(r);, (f64)x)
OF_INTEGER(s32)
OF_INTEGER(u32)
OF_INTEGER(s64)
OF_INTEGER(u64)

// Integers of 64 bits -> f64, rounded to odd
static inline f64 odd_magnitude(u64 m) { return m >> 53 ? (f64)(m >> 11 | ((m & 0x7ff) != 0)) * 2048 : (f64)m; }
PLAIN(odd_f64_u64, u64, f64, COMMIT_ROW(r);, odd_magnitude(x))
PLAIN(odd_f64_s64, s64, f64, COMMIT_ROW(r);, x < 0 ? -odd_magnitude(0 - (u64)x) : odd_magnitude((u64)x))

// Two f32 as a pair, the second one in the lower half
#define PAIRED(NAME, GIVEN)                                                                          \
    KERNEL(NAME) {                                                                                   \
        SOURCE(f32, a, 0, 32) SOURCE(f32, b, 1, 32)                                                  \
        f32 r[64];                                                                                   \
        for (int l = 0; l < 32; l++) r[2 * l] = b[l], r[2 * l + 1] = a[l];                           \
        GIVEN(64);                                                                                   \
        return op + 1;                                                                               \
    }
PAIRED(cvt_f16x2_f32, GIVE_f16)
PAIRED(cvt_bf16x2_f32, GIVE_bf16)

#define LARGEST_f32 0x1.fffffep127
#define LARGEST_tf32 0x1.ffcp127
#define NARROW_f16(x, direction) (u16)narrowed(x, 10, -14, 15, direction)
#define NARROW_bf16(x, direction) (u16)narrowed(x, 7, -126, 127, direction)
#define NARROW_f32(x, direction) (u32)narrowed(x, 23, -126, 127, direction)
#define MODIFIED(TO, FROM, U)                                                                        \
    KERNEL(cvt_##TO##_##FROM##_m) {                                                                  \
        SOURCE(FROM, a, 0, 32)                                                                       \
        U r[32];                                                                                     \
        for (int l = 0; l < 32; l++)                                                                 \
            r[l] = NARROW_##TO(prepared(a[l], op->x, LARGEST_##TO), (int)(op->x >> DIRECTION & 3));  \
        if (sizeof(U) == 4 && op->x & FTZ)                                                           \
            for (int l = 0; l < 32; l++) r[l] = r[l] & 0x7f800000 ? r[l] : r[l] & 0x80000000;        \
        COMMIT_ROW(r);                                                                               \
        return op + 1;                                                                               \
    }
MODIFIED(f16, f32, u16)
MODIFIED(f16, f64, u16)
MODIFIED(bf16, f32, u16)
MODIFIED(bf16, f64, u16)
MODIFIED(f32, f64, u32)
KERNEL(cvt_f32_f32_m) {
    SOURCE(f32, a, 0, 32)
    f32 r[32], tiny = op->x & FLUSH_SOURCE ? TINY_f32 : 0;
    int rounds = op->x >> INTEGRAL & 7;
    for (int l = 0; l < 32; l++) r[l] = nan32(flushed(a[l], tiny));
    for (int l = 0; rounds && l < 32; l++) r[l] = nan32((f32)integral(r[l], rounds - 1));
    if (op->x & SATFINITE)
        for (int l = 0; l < 32; l++) r[l] = r[l] > FLT_MAX ? FLT_MAX : r[l] < -FLT_MAX ? -FLT_MAX : r[l];
    finished(r, 32, op->x, TINY_f32);
    COMMIT_ROW(r);
    return op + 1;
}
PLAIN(cvt_f64_f32_m, f32, f64, COMMIT_ROW(r);, prepared(nan32(x), op->x, 0))
PLAIN(cvt_f64_f64_m, f64, f64, COMMIT_ROW(r);, prepared(x, op->x, 0))

// tf32: the upper 19 bits of a f32; to nearest even, toward zero, or with AWAY to nearest, ties away from zero
enum { AWAY = 2 };
KERNEL(cvt_tf32_f32) {
    SOURCE(f32, a, 0, 32)
    u32 r[32], direction = op->x >> DIRECTION & 3;
    for (int l = 0; l < 32; l++) {
        u32 bits = bits_of((f32)prepared(a[l], op->x, LARGEST_tf32)), finite = (bits & 0x7f800000) != 0x7f800000;
        u32 added = direction == ZERO ? 0 : direction == AWAY ? 0x1000 : 0xfff + (bits >> 13 & 1);
        r[l] = finite ? (bits + added) >> 13 << 13 : (bits & 0x7fffffff) > 0x7f800000 ? 0x7fffffff : bits;
    }
    COMMIT_ROW(r);
    return op + 1;
}

// Floats -> integers: rounded, saturated to the integer's range. NaN becomes 0, or the top bit alone if source or
// result has 64 bits.
#define INTEGER(T, U, FROM, LOW, END)                                                                \
    KERNEL(cvt_##T##_##FROM) {                                                                       \
        SOURCE(FROM, a, 0, 32)                                                                       \
        f64 v[32];                                                                                   \
        f64 tiny = op->x & FLUSH_SOURCE ? 0x1p-126 : 0;                                              \
        for (int l = 0; l < 32; l++) v[l] = a[l];                                                    \
        for (int l = 0; l < 32; l++) v[l] = __builtin_fabs(v[l]) < tiny ? 0 : v[l];                  \
        switch (op->x >> DIRECTION & 3) {                                                            \
        case NEAREST: for (int l = 0; l < 32; l++) v[l] = __builtin_rint(v[l]); break;               \
        case ZERO: for (int l = 0; l < 32; l++) v[l] = __builtin_trunc(v[l]); break;                 \
        case DOWN: for (int l = 0; l < 32; l++) v[l] = __builtin_floor(v[l]); break;                 \
        case UP: for (int l = 0; l < 32; l++) v[l] = __builtin_ceil(v[l]); break;                    \
        }                                                                                            \
        U r[32], top = (U)1 << (8 * sizeof(U) - 1), low = (U)(T)(LOW), high = (T)-1 < 0 ? top - 1 : (U)~(U)0; \
        U of_nan = sizeof(U) == 8 || sizeof(FROM) == 8 ? top : 0;                                    \
        for (int l = 0; l < 32; l++) {                                                               \
            f64 x = v[l], inside = x > LOW && x < END ? x : 0;                                       \
            U value = (U)(T)inside;                                                                  \
            value = x <= LOW ? low : x >= END ? high : value;                                        \
            r[l] = x != x ? of_nan : value;                                                          \
        }                                                                                            \
        COMMIT_ROW(r);                                                                               \
        return op + 1;                                                                               \
    }
#define INTEGERS(FROM)                                                                               \
    INTEGER(s8, u8, FROM, -128.0, 128.0)                                                             \
    INTEGER(u8, u8, FROM, 0.0, 256.0)                                                                \
    INTEGER(s16, u16, FROM, -32768.0, 32768.0)                                                       \
    INTEGER(u16, u16, FROM, 0.0, 65536.0)                                                            \
    INTEGER(s32, u32, FROM, -0x1p31, 0x1p31)                                                         \
    INTEGER(u32, u32, FROM, 0.0, 0x1p32)                                                             \
    INTEGER(s64, u64, FROM, -0x1p63, 0x1p63)                                                         \
    INTEGER(u64, u64, FROM, 0.0, 0x1p64)
INTEGERS(f32)
INTEGERS(f64)
