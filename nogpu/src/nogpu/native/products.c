// Products of more bits than a source has, saturation, quotients, dot products (PTX ISA, "Integer Arithmetic
// Instructions"), and sums and differences with the carry flag ("Extended-Precision Integer Arithmetic Instructions").

#include "arithmetic.h"

typedef __int128 s128;
typedef unsigned __int128 u128;

static inline s32 saturated(s64 x) { return (s32)(x > INT32_MAX ? INT32_MAX : x < INT32_MIN ? INT32_MIN : x); }

#define HIGH(B, WIDE)                                                                                     \
    BINARY(mulhi_u##B, u##B, u##B, u##B, LANES, (u##B)((u##WIDE)x * y >> B))                              \
    BINARY(mulhi_s##B, u##B, s##B, s##B, LANES, (u##B)((s##WIDE)x * y >> B))                              \
    TERNARY(madhi_u##B, u##B, u##B, u##B, u##B, LANES, (u##B)((u##B)((u##WIDE)x * y >> B) + z))           \
    TERNARY(madhi_s##B, u##B, s##B, s##B, u##B, LANES, (u##B)((u##B)((s##WIDE)x * y >> B) + z))
HIGH(16, 32)
HIGH(32, 64)
HIGH(64, 128)

#define WIDE(B, W)                                                                                        \
    BINARY(mulwide_u##B, u##W, u##B, u##B, LANES, (u##W)x * y)                                            \
    BINARY(mulwide_s##B, s##W, s##B, s##B, LANES, (s##W)x * y)                                            \
    TERNARY(madwide_u##B, u##W, u##B, u##B, u##W, LANES, (u##W)x * y + z)                                 \
    TERNARY(madwide_s##B, u##W, s##B, s##B, u##W, LANES, (u##W)((s##W)x * y) + z)
WIDE(16, 32)
WIDE(32, 64)

BINARY(addsat_s32, s32, s32, s32, LANES, saturated((s64)x + y))
BINARY(subsat_s32, s32, s32, s32, LANES, saturated((s64)x - y))
TERNARY(madhisat_s32, s32, s32, s32, s32, LANES, saturated(((s64)x * y >> 32) + z))

static inline s64 low24(s32 x) { return (s32)((u32)x << 8) >> 8; }
static inline s64 product24_s32(s32 x, s32 y) { return low24(x) * low24(y); }
static inline s64 product24_u32(u32 x, u32 y) { return (s64)((u64)(x & 0xffffff) * (y & 0xffffff)); }
#define PRODUCT24(T)                                                                                      \
    BINARY(mul24lo_##T, u32, T, T, LANES, (u32)product24_##T(x, y))                                       \
    BINARY(mul24hi_##T, u32, T, T, LANES, (u32)(product24_##T(x, y) >> 16))                               \
    TERNARY(mad24lo_##T, u32, T, T, u32, LANES, (u32)product24_##T(x, y) + z)                             \
    TERNARY(mad24hi_##T, u32, T, T, u32, LANES, (u32)(product24_##T(x, y) >> 16) + z)
PRODUCT24(u32)
PRODUCT24(s32)
TERNARY(mad24hisat_s32, s32, s32, s32, s32, LANES, saturated((product24_s32(x, y) >> 16) + z))

// Quotients truncate; one by zero has all bits set, as on NVIDIA GPUs, and its remainder is the dividend. Quotients of
// up to 32 bits are exact in double: one that is no integer is farther from the next one than the rounding error.
static inline u32 quotient_u32(u32 x, u32 y) { return y ? (u32)(s64)((f64)x / (f64)y) : ~0u; }
static inline s32 quotient_s32(s32 x, s32 y) { return y ? (s32)(s64)((f64)x / (f64)y) : -1; }
static inline u64 quotient_u64(u64 x, u64 y) { return y ? x / y : ~(u64)0; }
static inline s64 quotient_s64(s64 x, s64 y) { return y == 0 ? -1 : y == -1 ? (s64)(0 - (u64)x) : x / y; }
#define QUOTIENT(T, U, BY)                                                                                \
    BINARY(div_##T, U, T, T, LANES, (U)quotient_##BY(x, y))                                               \
    BINARY(rem_##T, U, T, T, LANES, (U)((u64)(U)x - (u64)(U)quotient_##BY(x, y) * (u64)(U)y))
QUOTIENT(u16, u16, u32)
QUOTIENT(s16, u16, s32)
QUOTIENT(u32, u32, u32)
QUOTIENT(s32, u32, s32)
QUOTIENT(u64, u64, u64)
QUOTIENT(s64, u64, s64)

#define OCTET_u32(x, i) (u8)(x >> 8 * (i))
#define OCTET_s32(x, i) (s8)(x >> 8 * (i))
#define HALF_u32(x, i) (u16)(x >> 16 * (i))
#define HALF_s32(x, i) (s16)(x >> 16 * (i))
#define DOT(A, B)                                                                                         \
    TERNARY(dp4a_##A##_##B, u32, u32, u32, u32, LANES,                                                    \
            z + (u32)(OCTET_##A(x, 0) * OCTET_##B(y, 0) + OCTET_##A(x, 1) * OCTET_##B(y, 1) +             \
                      OCTET_##A(x, 2) * OCTET_##B(y, 2) + OCTET_##A(x, 3) * OCTET_##B(y, 3)))             \
    TERNARY(dp2alo_##A##_##B, u32, u32, u32, u32, LANES,                                                  \
            z + (u32)(HALF_##A(x, 0) * OCTET_##B(y, 0) + HALF_##A(x, 1) * OCTET_##B(y, 1)))               \
    TERNARY(dp2ahi_##A##_##B, u32, u32, u32, u32, LANES,                                                  \
            z + (u32)(HALF_##A(x, 0) * OCTET_##B(y, 2) + HALF_##A(x, 1) * OCTET_##B(y, 3)))
// SIMD video instructions: an operation on each byte or half of the sources.
enum Video { VIDEO_ADD, VIDEO_SUB, VIDEO_AVRG, VIDEO_ABSDIFF, VIDEO_MIN, VIDEO_MAX,
             VIDEO_EQ, VIDEO_NE, VIDEO_LT, VIDEO_LE, VIDEO_GT, VIDEO_GE };
enum { VIDEO_HALVES = 16, VIDEO_SIGNED = 32, VIDEO_SIGNED_A = 64, VIDEO_SIGNED_B = 128, VIDEO_SAT = 256, VIDEO_SUMS = 512 };

static inline s32 part_of(u32 word, int at, int bits, int is_signed) {
    u32 top = word << (32 - bits - at);
    return is_signed ? (s32)top >> (32 - bits) : (s32)(top >> (32 - bits));
}

static inline s32 video_part(int operation, s32 x, s32 y) {
    switch (operation) {
    case VIDEO_ADD: return x + y;
    case VIDEO_SUB: return x - y;
    case VIDEO_AVRG: return (x + y + (x + y >= 0)) >> 1;
    case VIDEO_ABSDIFF: return x > y ? x - y : y - x;
    case VIDEO_MIN: return x < y ? x : y;
    case VIDEO_MAX: return x > y ? x : y;
    case VIDEO_EQ: return x == y;
    case VIDEO_NE: return x != y;
    case VIDEO_LT: return x < y;
    case VIDEO_LE: return x <= y;
    case VIDEO_GT: return x > y;
    default: return x >= y;
    }
}

// The results side by side, or their sum and c. form: the operation and flags.
static u32 video(u32 a, u32 b, u32 c, int form) {
    int bits = form & VIDEO_HALVES ? 16 : 8;
    s32 low = form & VIDEO_SIGNED ? -(1 << (bits - 1)) : 0, high = low + (1 << bits) - 1;
    u32 merged = 0;
    for (int at = 0; at < 32; at += bits) {
        s32 x = part_of(a, at, bits, form & VIDEO_SIGNED_A), y = part_of(b, at, bits, form & VIDEO_SIGNED_B);
        s32 result = video_part(form & 15, x, y);
        if (form & VIDEO_SAT) result = result < low ? low : result > high ? high : result;
        merged |= ((u32)result & ((1u << bits) - 1)) << at;
        c += (u32)result;
    }
    return form & VIDEO_SUMS ? c : merged;
}
TERNARY(video_32, u32, u32, u32, u32, LANES, video(x, y, z, (int)op->x))

DOT(u32, u32)
DOT(u32, s32)
DOT(s32, u32)
DOT(s32, s32)

BINARY(minrelu_s32, s32, s32, s32, LANES, (x < y ? x : y) > 0 ? (x < y ? x : y) : 0)
BINARY(maxrelu_s32, s32, s32, s32, LANES, (x > y ? x : y) > 0 ? (x > y ? x : y) : 0)

// Pairs of 16 bits
BINARY(minrelu_s16x2, s16, s16, s16, 64, (x < y ? x : y) > 0 ? (x < y ? x : y) : 0)
BINARY(maxrelu_s16x2, s16, s16, s16, 64, (x > y ? x : y) > 0 ? (x > y ? x : y) : 0)
BINARY(add_u16x2, u16, u16, u16, 64, x + y)
BINARY(min_u16x2, u16, u16, u16, 64, x < y ? x : y)
BINARY(max_u16x2, u16, u16, u16, 64, x > y ? x : y)
BINARY(min_s16x2, s16, s16, s16, 64, x < y ? x : y)
BINARY(max_s16x2, s16, s16, s16, 64, x > y ? x : y)

// a + b + flag and a - b - flag: the result, and the predicate that holds the carry or borrow. The flag is source c.
#define CARRIED(NAME, T, RESULT, FLAG)                                                                    \
    KERNEL(NAME) {                                                                                        \
        SOURCE(T, a, 0, LANES) SOURCE(T, b, 1, LANES)                                                     \
        u32 flags = MASK_OF(c, 2);                                                                        \
        T r[LANES];                                                                                       \
        for (int l = 0; l < LANES; l++) { T x = a[l], y = b[l], z = flags >> l & 1; r[l] = RESULT; }      \
        COMMIT_ROW(r);                                                                                    \
        return op + 1;                                                                                    \
    }                                                                                                     \
    KERNEL(NAME##_s) {                                                                                    \
        T x = *AT(T, a), y = *AT(T, b), z = *AT(u32, c);                                                  \
        STORE_ONE(T, RESULT);                                                                             \
        return op + 1;                                                                                    \
    }                                                                                                     \
    KERNEL(NAME##_flag) {                                                                                 \
        SOURCE(T, a, 0, LANES) SOURCE(T, b, 1, LANES)                                                     \
        u32 flags = MASK_OF(c, 2), m = 0;                                                                 \
        for (int l = 0; l < LANES; l++) { T x = a[l], y = b[l], z = flags >> l & 1; m |= (u32)(FLAG) << l; } \
        *AT(u32, d) = m;                                                                                  \
        return op + 1;                                                                                    \
    }                                                                                                     \
    KERNEL(NAME##_flag_s) {                                                                               \
        T x = *AT(T, a), y = *AT(T, b), z = *AT(u32, c);                                                  \
        *AT(u64, d) = (FLAG);                                                                             \
        return op + 1;                                                                                    \
    }
CARRIED(addc_32, u32, x + y + z, (x + y < x) | (x + y + z < z))
CARRIED(addc_64, u64, x + y + z, (x + y < x) | (x + y + z < z))
CARRIED(subc_32, u32, x - y - z, (x < y) | (x - y < z))
CARRIED(subc_64, u64, x - y - z, (x < y) | (x - y < z))
