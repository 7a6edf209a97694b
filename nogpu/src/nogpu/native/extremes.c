// min and max of floating-point numbers (PTX ISA, "min", "max"): -0 is below +0; the other source where one is NaN, unless
// NaNs propagate. Op.x has the modifiers; of f64 there are none.

#include "numbers.h"

#define EXTREME(NAME, F, n, LESS)                                                              \
    KERNEL(NAME) {                                                                                   \
        TAKE_##F(a, 0, n) TAKE_##F(b, 1, n)                                                          \
        f32 tiny = op->x & FTZ ? TINY_##F : 0, r[n];                                                 \
        u32 kept = op->x & ABSOLUTE ? 0x7fffffff : ~0u, negated = op->x & XORSIGN ? 0x80000000 : 0;  \
        u32 propagate = op->x & PROPAGATE;                                                           \
        for (int l = 0; l < n; l++) {                                                                \
            u32 p = bits_of(flushed(av[l], tiny)), q = bits_of(flushed(bv[l], tiny));                \
            f32 x = f32_of(p & kept), y = f32_of(q & kept);                                          \
            u32 first = (y != y) | (LESS) | ((x != x) & (propagate != 0));                           \
            f32 chosen = first ? x : y;                                                              \
            chosen = (y != y) & (propagate != 0) ? y : chosen;                                       \
            r[l] = chosen != chosen ? f32_of(0x7fffffff) : f32_of(bits_of(chosen) ^ ((p ^ q) & negated)); \
        }                                                                                            \
        GIVE_##F(n);                                                                                 \
        return op + 1;                                                                               \
    }
#define SMALLER (x < y) | ((x == y) & (bits_of(x) >> 31))
#define LARGER (x > y) | ((x == y) & !(bits_of(x) >> 31))
#define EXTREMES(NAME, F, n) EXTREME(min_##NAME, F, n, SMALLER) EXTREME(max_##NAME, F, n, LARGER)
EXTREMES(f32, f32, 32)
EXTREMES(f16, f16, 32)
EXTREMES(f16x2, f16, 64)
EXTREMES(bf16, bf16, 32)
EXTREMES(bf16x2, bf16, 64)

static inline f64 smaller(f64 x, f64 y) {
    return y != y || x < y || (x == y && bits_of_f64(x) >> 63) ? x : y;
}
static inline f64 larger(f64 x, f64 y) {
    return y != y || x > y || (x == y && !(bits_of_f64(x) >> 63)) ? x : y;
}
BINARY(min_f64, f64, f64, f64, LANES, smaller(x, y))
BINARY(max_f64, f64, f64, f64, LANES, larger(x, y))
