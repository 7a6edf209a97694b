// Integers of one width: arithmetic, logic, shifts, comparisons, selection; moves, cvt among integers, predicates.

#include "arithmetic.h"

#define OF_WIDTH(B)                                                                 \
    BINARY(add_##B, u##B, u##B, u##B, LANES, x + y)                                 \
    BINARY(sub_##B, u##B, u##B, u##B, LANES, x - y)                                 \
    BINARY(mul_##B, u##B, u##B, u##B, LANES, (u##B)((u64)x * y))                    \
    TERNARY(mad_##B, u##B, u##B, u##B, u##B, LANES, (u##B)((u64)x * y + z))         \
    BINARY(and_##B, u##B, u##B, u##B, LANES, x & y)                                 \
    BINARY(or_##B, u##B, u##B, u##B, LANES, x | y)                                  \
    BINARY(xor_##B, u##B, u##B, u##B, LANES, x ^ y)                                 \
    UNARY(not_##B, u##B, u##B, LANES, ~x)                                           \
    UNARY(neg_##B, u##B, u##B, LANES, -x)                                           \
    UNARY(abs_##B, u##B, u##B, LANES, (s##B)x < 0 ? -x : x)                         \
    UNARY(cnot_##B, u##B, u##B, LANES, x == 0)                                      \
    TERNARY(sad_u##B, u##B, u##B, u##B, u##B, LANES, (u##B)(z + (x > y ? x - y : y - x)))          \
    TERNARY(sad_s##B, u##B, s##B, s##B, u##B, LANES, (u##B)(z + (x > y ? (u##B)x - (u##B)y : (u##B)y - (u##B)x))) \
    UNARY(mov_##B, u##B, u##B, LANES, x)                                            \
    BINARY(min_u##B, u##B, u##B, u##B, LANES, x < y ? x : y)                        \
    BINARY(max_u##B, u##B, u##B, u##B, LANES, x > y ? x : y)                        \
    BINARY(min_s##B, s##B, s##B, s##B, LANES, x < y ? x : y)                        \
    BINARY(max_s##B, s##B, s##B, s##B, LANES, x > y ? x : y)                        \
    BINARY(shl_##B, u##B, u##B, u32, LANES, y < B ? (u##B)((u64)x << y) : 0)        \
    BINARY(shr_u##B, u##B, u##B, u32, LANES, y < B ? (u##B)(x >> y) : 0)            \
    BINARY(shr_s##B, s##B, s##B, u32, LANES, (s##B)(x >> (y < B ? y : B - 1)))      \
    COMPARED(eq_##B, u##B, x == y)                                                  \
    COMPARED(ne_##B, u##B, x != y)                                                  \
    COMPARED(lt_u##B, u##B, x < y)                                                  \
    COMPARED(le_u##B, u##B, x <= y)                                                 \
    COMPARED(gt_u##B, u##B, x > y)                                                  \
    COMPARED(ge_u##B, u##B, x >= y)                                                 \
    COMPARED(lt_s##B, s##B, x < y)                                                  \
    COMPARED(le_s##B, s##B, x <= y)                                                 \
    COMPARED(gt_s##B, s##B, x > y)                                                  \
    COMPARED(ge_s##B, s##B, x >= y)                                                 \
    KERNEL(selp_##B) {                                                              \
        SOURCE(u##B, a, 0, LANES) SOURCE(u##B, b, 1, LANES)                         \
        u32 m = *AT(u32, c);                                                        \
        u##B r[LANES];                                                              \
        if (op->flags & 4) m = -m;                                                  \
        for (int l = 0; l < LANES; l++) r[l] = m & lane_bit(l) ? a[l] : b[l];       \
        COMMIT_ROW(r);                                                              \
        return op + 1;                                                              \
    }                                                                               \
    KERNEL(selp_##B##_s) { STORE_ONE(u##B, *AT(u32, c) ? *AT(u##B, a) : *AT(u##B, b)); return op + 1; }
OF_WIDTH(16)
OF_WIDTH(32)
OF_WIDTH(64)

// cvt among integers: k_cvt_<register>_<source>
#define RESIZE(A, D) UNARY(cvt_##D##_##A, D, A, LANES, (D)x)
#define RESIZES(A) \
    RESIZE(A, u8) RESIZE(A, s8) RESIZE(A, u16) RESIZE(A, s16) RESIZE(A, u32) RESIZE(A, s32) RESIZE(A, u64) RESIZE(A, s64)
RESIZES(u8)
RESIZES(s8)
RESIZES(u16)
RESIZES(s16)
RESIZES(u32)
RESIZES(s32)
RESIZES(u64)
RESIZES(s64)

// mov between a register of W bits and its parts of P bits: the part from bit x on; two parts together
#define PARTS(W, P)                                                                 \
    KERNEL(part_##W##_##P) {                                                        \
        SOURCE(u##W, a, 0, LANES)                                                   \
        u##P r[LANES];                                                              \
        int shift = (int)op->x;                                                     \
        for (int l = 0; l < LANES; l++) r[l] = (u##P)(a[l] >> shift);               \
        COMMIT_ROW(r);                                                              \
        return op + 1;                                                              \
    }                                                                               \
    KERNEL(part_##W##_##P##_s) { STORE_ONE(u##P, (u##P)(*AT(u##W, a) >> op->x)); return op + 1; } \
    BINARY(join_##W##_##P, u##W, u##P, u##P, LANES, (u##W)((u##W)x | (u##W)y << P))
PARTS(64, 32)
PARTS(64, 16)
PARTS(32, 16)
PARTS(32, 8)
PARTS(16, 8)

// Predicates: masks, or 0 and 1
#define PREDICATE(NAME, E)                                                          \
    KERNEL(NAME) {                                                                  \
        u32 x = MASK_OF(a, 0), y = MASK_OF(b, 1);                                   \
        (void)y;                                                                    \
        write_mask(ctx, op, E);                                                     \
        return op + 1;                                                              \
    }                                                                               \
    KERNEL(NAME##_s) { u32 x = *AT(u32, a), y = *AT(u32, b); (void)y; *AT(u64, d) = (E) & 1; return op + 1; }
PREDICATE(and_pred, x & y)
PREDICATE(or_pred, x | y)
PREDICATE(xor_pred, x ^ y)
PREDICATE(not_pred, ~x)
PREDICATE(mov_pred, x)
