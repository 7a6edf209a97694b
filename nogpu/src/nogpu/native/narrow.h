// Conversion of a number to a narrower format, with every modifier of cvt.

#pragma once

#include "numbers.h"

enum { SATFINITE = 128, FLUSH_SOURCE = 256, DIRECTION = 9, INTEGRAL = 12 };  // bits of Op.x, besides arithmetic.h's
enum { NEAREST, ZERO, DOWN, UP };  // values of x >> DIRECTION & 3, and of (x >> INTEGRAL & 7) - 1

static inline f64 integral(f64 x, int direction) {
    return direction == ZERO   ? __builtin_trunc(x)
           : direction == DOWN ? __builtin_floor(x)
           : direction == UP   ? __builtin_ceil(x)
                               : __builtin_rint(x);
}

// A number -> the bits of a format with `fraction` bits of fraction and exponents from `lowest` to `highest`. A NaN has all
// bits set but the sign.
static inline u64 narrowed(f64 x, int fraction, int lowest, int highest, int direction) {
    u64 infinity = (u64)(highest - lowest + 2) << fraction, sign = bits_of_f64(x) >> 63;
    if (x != x) return infinity + ((u64)1 << fraction) - 1;
    int exponent = (int)(bits_of_f64(x) >> 52 & 0x7ff) - 1023;
    exponent = exponent < lowest ? lowest : exponent;
    f64 count = __builtin_fabs(integral(x * f64_of((u64)(1023 + fraction - exponent) << 52), direction));
    u64 code = infinity;
    if (exponent <= highest) code = ((u64)(exponent - lowest) << fraction) + (u64)count;
    int outward = direction == NEAREST || (direction == UP && !sign) || (direction == DOWN && sign);
    if (code >= infinity) code = outward || __builtin_isinf(x) ? infinity : infinity - 1;
    int width = fraction + 1;
    for (int range = highest - lowest + 2; range; range >>= 1) width++;
    return code | sign << (width - 1);
}

#define LARGEST_f16 65504
#define LARGEST_bf16 0x1.fep127

// Applies the modifiers to a number before it is narrowed. largest: the largest number of the result's format.
static inline f64 prepared(f64 x, s64 flags, f64 largest) {
    if (flags & FLUSH_SOURCE && __builtin_fabs(x) < 0x1p-126) x = __builtin_copysign(0, x);
    if (flags >> INTEGRAL & 7) x = integral(x, (int)(flags >> INTEGRAL & 7) - 1);
    if (flags & SAT) x = x > 0 ? (x < 1 ? x : 1) : 0;
    if (flags & RELU) x = x <= 0 ? 0 : x;
    if (flags & SATFINITE) x = x > largest ? largest : x < -largest ? -largest : x;
    return x;
}
