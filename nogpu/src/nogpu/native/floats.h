// Conversions among floating-point formats, number by number and by row.

#pragma once

#include <math.h>
#ifdef __F16C__
#include <immintrin.h>
#endif

#include "arithmetic.h"

static inline f32 f32_of(u32 bits) { f32 x; memcpy(&x, &bits, 4); return x; }
static inline u32 bits_of(f32 x) { u32 bits; memcpy(&bits, &x, 4); return bits; }
static inline f64 f64_of(u64 bits) { f64 x; memcpy(&x, &bits, 8); return x; }
static inline u64 bits_of_f64(f64 x) { u64 bits; memcpy(&bits, &x, 8); return bits; }

// f16 -> f32, exact. A subnormal half is its fraction times 2**-24.
static inline f32 single_of_half(u16 bits) {
    u32 sign = (u32)(bits & 0x8000) << 16, rest = bits & 0x7fff;
    u32 normal = (rest << 13) + (112u << 23);
    normal = rest >= 0x7c00 ? normal + (112u << 23) : normal;
    f32 small = (f32)(s32)rest * 0x1p-24f;
    return f32_of(sign | (rest < 0x400 ? bits_of(small) : normal));
}

// bf16 -> f32, exact
static inline f32 single_of_brain(u16 bits) { return f32_of((u32)bits << 16); }

// f32 -> bf16, to nearest even; a NaN becomes the canonical one.
static inline u16 brain_of_single(f32 x) {
    u32 bits = bits_of(x), rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (u16)((bits & 0x7fffffff) > 0x7f800000 ? 0x7fff : rounded);
}

// f32 -> f16, to nearest even; a NaN becomes the canonical one. A sum with 2**13 times the unit of the result's last
// place rounds there.
static inline u16 half_of_single(f32 x) {
    u32 bits = bits_of(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    u32 normal = (magnitude + 0xfff + (magnitude >> 13 & 1) - (112u << 23)) >> 13;
    u32 small = bits_of(f32_of(magnitude) + 0.5f) - 0x3f000000;
    u32 rounded = magnitude < 0x38800000 ? small : magnitude >= 0x47800000 ? 0x7c00 : normal;
    return (u16)(magnitude > 0x7f800000 ? 0x7fff : sign | rounded);
}

static inline f32 nan32(f32 x) { return x != x ? f32_of(0x7fffffff) : x; }

// a + b rounded to odd: an inexact sum has its last bit set, so that a later rounding to two bits less is exact.
static inline f32 odd_sum(f32 a, f32 b) {
    f32 total = a + b, carried = total - a, error = (a - (total - carried)) + (b - carried);
    u32 bits = bits_of(total), step = (error > 0 ? 1u : -1u), changed;
    step = total > 0 ? step : -step;
    changed = error != 0 ? bits + (bits & 1 ? 0 : step) : bits;
    return f32_of((bits & 0x7f800000) == 0x7f800000 ? bits : changed);
}
static inline f64 odd_sum_f64(f64 a, f64 b) {
    f64 total = a + b, carried = total - a, error = (a - (total - carried)) + (b - carried);
    u64 bits = bits_of_f64(total), infinite = (u64)0x7ff << 52, step = error > 0 ? 1 : -(u64)1, changed;
    step = total > 0 ? step : -step;
    changed = error != 0 ? bits + (bits & 1 ? 0 : step) : bits;
    return f64_of((bits & infinite) == infinite ? bits : changed);
}
static inline f32 odd_single(f64 x) {
    f32 nearest = (f32)x;
    f64 back = nearest;
    u32 bits = bits_of(nearest) - (__builtin_fabs(back) > __builtin_fabs(x));
    return f32_of(back < x || back > x ? bits | 1 : bits);
}

// Rows of n numbers, a multiple of 16
static inline void singles_of_halves(f32 *restrict r, const u16 *restrict a, int n) {
#ifdef __AVX512F__
    for (int l = 0; l < n; l += 16) _mm512_storeu_ps(r + l, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(a + l))));
#elif defined(__F16C__)
    for (int l = 0; l < n; l += 8) _mm256_storeu_ps(r + l, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(a + l))));
#else
    for (int l = 0; l < n; l++) r[l] = single_of_half(a[l]);
#endif
}

static inline void halves_of_singles(u16 *restrict r, const f32 *restrict a, int n) {
#ifdef __AVX512F__
    for (int l = 0; l < n; l += 16) _mm256_storeu_si256((__m256i *)(r + l), _mm512_cvtps_ph(_mm512_loadu_ps(a + l), 0));
#elif defined(__F16C__)
    for (int l = 0; l < n; l += 8) _mm_storeu_si128((__m128i *)(r + l), _mm256_cvtps_ph(_mm256_loadu_ps(a + l), 0));
#else
    for (int l = 0; l < n; l++) r[l] = half_of_single(a[l]);
#endif
    for (int l = 0; l < n; l++) r[l] = (r[l] & 0x7fff) > 0x7c00 ? 0x7fff : r[l];
}
