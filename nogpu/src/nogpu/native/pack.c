// cvt to and from pairs of 8, 6 and 4 bits, cvt.pack, stochastic rounding (PTX ISA, "cvt", "cvt.pack").
//
// A pair is in the two low bytes of a register, a pair of e2m1 in the lowest. The second source is the lower number.

#include "narrow.h"

// A number -> a code of `fraction` bits of fraction, exponents from `lowest` on, and a sign at bit `sign`: to nearest even,
// saturated to the largest number. NaN becomes the code with all bits set but the sign.
static inline u32 encoded(f32 x, int fraction, int lowest, f32 largest, int sign) {
    f32 y = __builtin_fabsf(x);
    y = y > largest ? largest : y;
    s32 exponent = (s32)(bits_of(y) >> 23) - 127;
    exponent = exponent < lowest ? lowest : exponent;
    s32 count = (s32)__builtin_rintf(y * f32_of((u32)(127 + fraction - exponent) << 23));
    u32 code = (u32)(((exponent - lowest) << fraction) + count) | bits_of(x) >> 31 << sign;
    return x != x ? (1u << sign) - 1 : code;
}

// A code -> a number; `scale` is 2**(127 - bias). The code `infinite` is infinity, those from `nan` on are NaN.
static inline f32 decoded(u32 code, int fraction, f32 scale, int sign, u32 infinite, u32 nan) {
    u32 magnitude = code & ((1u << sign) - 1);
    f32 y = f32_of(magnitude << (23 - fraction)) * scale;
    y = magnitude == infinite ? INFINITY : y;
    y = magnitude >= nan ? NAN : y;
    return f32_of(bits_of(y) | (code >> sign & 1) << 31);
}
static inline f32 decoded_scale(u32 code) {
    return f32_of(code == 0 ? 0x00400000 : code == 255 ? 0x7fffffff : code << 23);
}

// Magnitudes -> powers of two, rounded down or up
static inline u32 encoded_scale(f32 x, s64 flags) {
    u64 bits = bits_of_f64(__builtin_fabs((f64)x));
    s64 code = (s64)(bits >> 52) - 1023 + 127;
    if ((flags >> DIRECTION & 3) == UP && bits << 12) code++;
    code = x == 0 || code < 0 ? 0 : code;
    if (code > 254) code = flags & SATFINITE ? 254 : 255;
    return x != x ? 255 : (u32)code;
}

// s2f6, two's complement with six bits behind the point, to nearest even; NaN becomes the largest number.
static inline f32 fixed(u32 code) { return (f32)(signed char)code * 0x1p-6f; }
static inline u32 encoded_fixed(f64 x) {
    x = __builtin_rint(x * 64);
    return (u32)(s32)(x != x || x > 127 ? 127 : x < -128 ? -128 : x) & 255;
}

#define ENCODE(NAME, D, BITS, E)                                                                     \
    KERNEL(NAME) {                                                                                   \
        SOURCE(f32, a, 0, 32) SOURCE(f32, b, 1, 32)                                                  \
        f32 v[64];                                                                                   \
        for (int l = 0; l < 32; l++) v[l] = b[l], v[l + 32] = a[l];                                  \
        if (op->x & RELU)                                                                            \
            for (int l = 0; l < 64; l++) v[l] = v[l] <= 0 ? 0 : v[l];                                \
        u32 codes[64];                                                                               \
        for (int l = 0; l < 64; l++) { f32 x = v[l]; codes[l] = E; }                                 \
        D r[32];                                                                                     \
        for (int l = 0; l < 32; l++) r[l] = (D)(codes[l] | codes[l + 32] << BITS);                   \
        COMMIT_ROW(r);                                                                               \
        return op + 1;                                                                               \
    }
ENCODE(cvt_e4m3x2_f32, u16, 8, encoded(x, 3, -6, 448, 7))
ENCODE(cvt_e5m2x2_f32, u16, 8, encoded(x, 2, -14, 57344, 7))
ENCODE(cvt_e2m3x2_f32, u16, 8, encoded(x, 3, 0, 7.5f, 5))
ENCODE(cvt_e3m2x2_f32, u16, 8, encoded(x, 2, -2, 28, 5))
ENCODE(cvt_e2m1x2_f32, u8, 4, encoded(x, 1, 0, 6, 3))
ENCODE(cvt_ue8m0x2_f32, u16, 8, encoded_scale(x, op->x))

// The numbers divided by powers of two, the scale factors
#define ENCODE_FIXED(NAME, SCALED, FACTOR)                                                           \
    KERNEL(NAME) {                                                                                   \
        SOURCE(f32, a, 0, 32) SOURCE(f32, b, 1, 32)                                                  \
        SCALED                                                                                       \
        u16 r[32];                                                                                   \
        for (int l = 0; l < 32; l++) {                                                               \
            f64 low = (f64)b[l] FACTOR(0), high = (f64)a[l] FACTOR(8);                               \
            if (op->x & RELU) low = low <= 0 ? 0 : low, high = high <= 0 ? 0 : high;                 \
            r[l] = (u16)(encoded_fixed(low) | encoded_fixed(high) << 8);                             \
        }                                                                                            \
        COMMIT_ROW(r);                                                                               \
        return op + 1;                                                                               \
    }
#define UNSCALED(shift)
#define DIVIDED(shift) / decoded_scale(c[l] >> shift & 255)
ENCODE_FIXED(cvt_s2f6x2_f32, , UNSCALED)
ENCODE_FIXED(scaled_s2f6x2_f32, SOURCE(u16, c, 2, 32), DIVIDED)

#define DECODE(NAME, S, F, BITS, SCALED, E)                                                          \
    KERNEL(NAME) {                                                                                   \
        SOURCE(S, a, 0, 32)                                                                          \
        SCALED                                                                                       \
        f32 r[64];                                                                                   \
        for (int l = 0; l < 32; l++) {                                                               \
            u32 code = a[l] & ((1 << BITS) - 1), upper = a[l] >> BITS;                               \
            r[2 * l] = (E(code)) FACTOR(0);                                                          \
            r[2 * l + 1] = (E(upper)) FACTOR(8);                                                     \
        }                                                                                            \
        if (op->x & SATFINITE)                                                                       \
            for (int l = 0; l < 64; l++) r[l] = (f32)prepared(r[l], SATFINITE, LARGEST_##F);         \
        FINISH_##F(64);                                                                              \
        return op + 1;                                                                               \
    }
#define E4M3(code) decoded(code, 3, 0x1p120f, 7, FULL, 0x7f)
#define E5M2(code) decoded(code, 2, 0x1p112f, 7, 0x7c, 0x7d)
#define E2M3(code) decoded(code, 3, 0x1p126f, 5, FULL, FULL)
#define E3M2(code) decoded(code, 2, 0x1p124f, 5, FULL, FULL)
#define E2M1(code) decoded(code, 1, 0x1p126f, 3, FULL, FULL)
#define FACTOR(shift)
#define DECODES(F)                                                                                   \
    DECODE(cvt_##F##x2_e4m3x2, u16, F, 8, , E4M3)                                                    \
    DECODE(cvt_##F##x2_e5m2x2, u16, F, 8, , E5M2)                                                    \
    DECODE(cvt_##F##x2_e2m3x2, u16, F, 8, , E2M3)                                                    \
    DECODE(cvt_##F##x2_e3m2x2, u16, F, 8, , E3M2)                                                    \
    DECODE(cvt_##F##x2_e2m1x2, u8, F, 4, , E2M1)
DECODES(f16)
DECODES(bf16)
DECODE(cvt_bf16x2_ue8m0x2, u16, bf16, 8, , decoded_scale)
DECODE(cvt_bf16x2_s2f6x2, u16, bf16, 8, , fixed)

// .scaled::n2::ue8m0: each number times its power of two
#undef FACTOR
#define FACTOR(shift) *decoded_scale(b[l] >> shift & 255)
#define SCALES SOURCE(u16, b, 1, 32)
DECODE(scaled_bf16x2_e4m3x2, u16, bf16, 8, SCALES, E4M3)
DECODE(scaled_bf16x2_e5m2x2, u16, bf16, 8, SCALES, E5M2)
DECODE(scaled_bf16x2_e2m3x2, u16, bf16, 8, SCALES, E2M3)
DECODE(scaled_bf16x2_e3m2x2, u16, bf16, 8, SCALES, E3M2)
DECODE(scaled_bf16x2_e2m1x2, u8, bf16, 4, SCALES, E2M1)
DECODE(scaled_bf16x2_s2f6x2, u16, bf16, 8, SCALES, fixed)

// cvt.pack: x and y saturated to Op.x & 31 bits, signed with SIGNED; y is lowest, then x, then the low bits of z.
enum { SIGNED = 32 };
static inline u32 clamped(s32 x, s32 width, s32 is_signed) {
    s32 low = is_signed ? -(1 << (width - 1)) : 0, high = is_signed ? (1 << (width - 1)) - 1 : (1 << width) - 1;
    return (u32)(x < low ? low : x > high ? high : x) & ((1u << width) - 1);
}
KERNEL(cvt_pack) {
    SOURCE(s32, a, 0, LANES) SOURCE(s32, b, 1, LANES) SOURCE(u32, c, 2, LANES)
    s32 width = op->x & 31, is_signed = op->x & SIGNED;
    u32 r[LANES];
    for (int l = 0; l < LANES; l++)
        r[l] = clamped(b[l], width, is_signed) | clamped(a[l], width, is_signed) << width |
               (width < 16 ? c[l] << 2 * (width & 15) : 0);
    COMMIT_ROW(r);
    return op + 1;
}

// Stochastic rounding (`.rs`): random bits, y >> (x >> RANDOM), are added to those cut off; a carry rounds away from zero.
// f16 uses 13 random bits, and adds them to the first bits cut off if the result is subnormal.
enum { RANDOM = 16 };
static inline u16 brain_by_chance(f32 x, u32 random) {
    u32 bits = bits_of(x), finite = (bits & 0x7f800000) != 0x7f800000;
    return (u16)(x != x ? 0x7fff : (finite ? bits + (random & 0xffff) : bits) >> 16);
}
static inline u16 half_by_chance(f32 x, u32 random) {
    u32 code = (u32)narrowed(x, 10, -14, 15, ZERO), magnitude = code & 0x7fff;
    if (magnitude >= 0x7c00) return (u16)code;
    int exponent = magnitude >> 10 ? (int)(magnitude >> 10) - 15 : -14;
    f64 kept = magnitude >> 10 ? (magnitude & 0x3ff) + 0x400 : magnitude;  // in units of the last place
    f64 unit = f64_of((u64)(1023 + 10 - exponent) << 52), cut = (__builtin_fabs((f64)x) * unit - kept) * 0x1p13;
    cut = cut < 0x1p13 ? cut : 0x1p13;
    return (u16)(code + ((u32)cut + (random & 0x1fff) >= 1 << 13));
}
#define BY_CHANCE(NAME, ROUNDED, LARGEST)                                                            \
    KERNEL(NAME) {                                                                                   \
        SOURCE(f32, a, 0, 32) SOURCE(u32, b, 1, 32)                                                  \
        u16 r[32];                                                                                   \
        for (int l = 0; l < 32; l++)                                                                 \
            r[l] = ROUNDED((f32)prepared(a[l], op->x & (RELU | SATFINITE), LARGEST), b[l] >> (op->x >> RANDOM)); \
        COMMIT_ROW(r);                                                                               \
        return op + 1;                                                                               \
    }
BY_CHANCE(stochastic_f16, half_by_chance, 65504)
BY_CHANCE(stochastic_bf16, brain_by_chance, 0x1.fep127)
