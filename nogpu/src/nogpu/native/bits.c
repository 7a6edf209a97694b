// Bit fields, funnel shifts, permutes and truth tables (PTX ISA, "Integer Arithmetic Instructions", "Logic and Shift
// Instructions", "prmt").

#include "arithmetic.h"

static inline u32 zeros_32(u32 x) { return x ? (u32)__builtin_clz(x) : 32; }
static inline u32 zeros_64(u64 x) { return x ? (u32)__builtin_clzll(x) : 64; }

static inline u32 reversed_32(u32 x) {
    x = (x >> 1 & 0x55555555) | (x & 0x55555555) << 1;
    x = (x >> 2 & 0x33333333) | (x & 0x33333333) << 2;
    x = (x >> 4 & 0x0f0f0f0f) | (x & 0x0f0f0f0f) << 4;
    return __builtin_bswap32(x);
}
static inline u64 reversed_64(u64 x) { return (u64)reversed_32((u32)x) << 32 | reversed_32((u32)(x >> 32)); }

// bfe: z & 255 bits, from bit y & 255 on; the sign, or zero, fills the bits above them.
#define FIELDS(B)                                                                                       \
    static inline u##B field_u##B(u##B x, u32 y, u32 z) {                                               \
        y &= 255, z &= 255;                                                                             \
        x = y < B ? x >> (y & (B - 1)) : 0;                                                             \
        return z < B ? x & (((u##B)1 << (z & (B - 1))) - 1) : x;                                        \
    }                                                                                                   \
    static inline s##B field_s##B(s##B x, u32 y, u32 z) {                                               \
        y &= 255, z &= 255;                                                                             \
        x >>= y < B ? y : B - 1;                                                                        \
        u32 above = z < B ? B - z : 0;                                                                  \
        return z ? (s##B)((u##B)x << (above & (B - 1))) >> (above & (B - 1)) : 0;                       \
    }                                                                                                   \
    static inline u##B inserted_##B(u##B x, u##B y, u32 start, u32 length) {                            \
        start &= 255, length &= 255;                                                                    \
        u##B ones = length < B ? ((u##B)1 << (length & (B - 1))) - 1 : ~(u##B)0;                        \
        u##B mask = start < B ? ones << (start & (B - 1)) : 0;                                          \
        return (y & ~mask) | (x << (start & (B - 1)) & mask);                                           \
    }                                                                                                   \
    UNARY(popc_##B, u32, u##B, LANES, (u32)__builtin_popcountll(x))                                     \
    UNARY(clz_##B, u32, u##B, LANES, zeros_##B(x))                                                      \
    UNARY(brev_##B, u##B, u##B, LANES, reversed_##B(x))                                                 \
    UNARY(bfind_u##B, u32, u##B, LANES, B - 1 - zeros_##B(x))                                           \
    UNARY(bfind_s##B, u32, s##B, LANES, B - 1 - zeros_##B((u##B)(x ^ x >> (B - 1))))                    \
    UNARY(bfindshift_u##B, u32, u##B, LANES, x ? zeros_##B(x) : FULL)                                   \
    UNARY(bfindshift_s##B, u32, s##B, LANES, x ^ x >> (B - 1) ? zeros_##B((u##B)(x ^ x >> (B - 1))) : FULL) \
    TERNARY(bfe_u##B, u##B, u##B, u32, u32, LANES, field_u##B(x, y, z))                                 \
    TERNARY(bfe_s##B, s##B, s##B, u32, u32, LANES, field_s##B(x, y, z))                                 \
    QUATERNARY(bfi_##B, u##B, u##B, u##B, u32, u32, LANES, inserted_##B(x, y, z, w))
FIELDS(32)
FIELDS(64)

// fns: the position of the |offset|-th set bit from `base` upwards, or downwards for a negative offset.
static inline u32 nth_set(u32 mask, u32 base, s32 offset) {
    if (offset == 0) return base < 32 && mask >> base & 1 ? base : FULL;
    s64 left = offset < 0 ? -(s64)offset : offset, step = offset < 0 ? -1 : 1;
    for (s64 at = base; at >= 0 && (step < 0 || at < 32); at += step) {
        if (at > 31) at = 32;  // the end of the word
        else if (mask >> at & 1 && --left == 0) return (u32)at;
    }
    return FULL;
}
TERNARY(fns_32, u32, u32, u32, s32, LANES, nth_set(x, y, z))

static inline u32 ones(u32 start, u32 length) { return (u32)((((u64)1 << length) - 1) << (start & 31)); }
BINARY(bmsk_clamp, u32, u32, u32, LANES, x < 32 ? ones(x, y < 32 ? y : 32) : 0)
BINARY(bmsk_wrap, u32, u32, u32, LANES, ones(x, y & 31))

static inline u32 extended(u32 x, u32 length) {
    return length ? (u32)((s32)(x << (32 - length)) >> (32 - length)) : 0;
}
BINARY(szext_clamp_u32, u32, u32, u32, LANES, y < 32 ? x & (((u32)1 << (y & 31)) - 1) : x)
BINARY(szext_wrap_u32, u32, u32, u32, LANES, x & (((u32)1 << (y & 31)) - 1))
BINARY(szext_clamp_s32, u32, u32, u32, LANES, extended(x, y < 32 ? y : 32))
BINARY(szext_wrap_s32, u32, u32, u32, LANES, extended(x, y & 31))

// shf: the upper or lower half of y:x, shifted left or right
#define COUNT_wrap (z & 31)
#define COUNT_clamp (z < 32 ? z : 32)
#define FUNNEL(MODE)                                                                                    \
    TERNARY(shf_l_##MODE, u32, u32, u32, u32, LANES, (u32)(((u64)y << 32 | x) << COUNT_##MODE >> 32))   \
    TERNARY(shf_r_##MODE, u32, u32, u32, u32, LANES, (u32)(((u64)y << 32 | x) >> COUNT_##MODE))
FUNNEL(wrap)
FUNNEL(clamp)

static inline u32 permuted(u32 a, u32 b, u32 selector) {
    u64 both = (u64)b << 32 | a;
    u32 r = 0;
    for (int i = 0; i < 4; i++) {
        u32 code = selector >> 4 * i & 15, octet = (u32)(both >> 8 * (code & 7)) & 0xff;
        r |= (code & 8 ? -(octet >> 7) & 0xff : octet) << 8 * i;
    }
    return r;
}
TERNARY(prmt_rows, u32, u32, u32, u32, LANES, permuted(x, y, z))

// With one selector for all lanes the bytes' places are the same in all of them.
KERNEL(prmt_32) {
    u32 selector = *AT(u32, c);
    if (!(op->flags & 4) || selector & 0x8888) return k_prmt_rows(ctx, op);
    SOURCE(u32, a, 0, LANES) SOURCE(u32, b, 1, LANES)
    const u32 *from[4];
    u32 shift[4], r[LANES];
    for (int i = 0; i < 4; i++) {
        u32 code = selector >> 4 * i & 7;
        from[i] = code & 4 ? b : a;
        shift[i] = 8 * (code & 3);
    }
    for (int l = 0; l < LANES; l++)
        r[l] = (from[0][l] >> shift[0] & 0xff) | (from[1][l] >> shift[1] & 0xff) << 8 |
               (from[2][l] >> shift[2] & 0xff) << 16 | (from[3][l] >> shift[3] & 0xff) << 24;
    COMMIT_ROW(r);
    return op + 1;
}
KERNEL(prmt_32_s) { return k_prmt_rows_s(ctx, op); }

// prmt with a mode: the selector is one of four in Op.x, by the two low bits of z
TERNARY(prmt_mode, u32, u32, u32, u32, LANES, permuted(x, y, (u32)((u64)op->x >> 16 * (z & 3)) & 0xffff))

// lop3: bit (x << 2 | y << 1 | z) of the truth table Op.x, for every bit position
static inline u32 looked_up(u32 x, u32 y, u32 z, const u32 *low, const u32 *change) {
    u32 r[4];
    for (int i = 0; i < 4; i++) r[i] = low[i] ^ (change[i] & z);
    u32 upper = r[2] ^ ((r[2] ^ r[3]) & y), lower = r[0] ^ ((r[0] ^ r[1]) & y);
    return lower ^ ((lower ^ upper) & x);
}
#define TABLE                                                                                           \
    u32 low[4], change[4];                                                                              \
    for (int i = 0; i < 4; i++) {                                                                       \
        low[i] = -(u32)(op->x >> 2 * i & 1);                                                            \
        change[i] = low[i] ^ -(u32)(op->x >> (2 * i + 1) & 1);                                          \
    }
KERNEL(lop3_32) {
    SOURCE(u32, a, 0, LANES) SOURCE(u32, b, 1, LANES) SOURCE(u32, c, 2, LANES)
    TABLE
    u32 r[LANES];
    for (int l = 0; l < LANES; l++) r[l] = looked_up(a[l], b[l], c[l], low, change);
    COMMIT_ROW(r);
    return op + 1;
}
KERNEL(lop3_32_s) { TABLE STORE_ONE(u32, looked_up(*AT(u32, a), *AT(u32, b), *AT(u32, c), low, change)); return op + 1; }
