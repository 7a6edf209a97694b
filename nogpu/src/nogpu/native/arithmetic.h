// Macros for arithmetic kernels, beside those of engine.h.

#pragma once

#include "engine.h"

enum { FOURTH = 32 };  // flag of an Op whose x is the slot of a fourth source that is one value

// TERNARY with a fourth source w, whose slot is the Op's x.
#define QUATERNARY(NAME, D, A, B, C, W, n, E)                                                       \
    KERNEL(NAME) {                                                                                  \
        SOURCE(A, a, 0, n) SOURCE(B, b, 1, n) SOURCE(C, c, 2, n)                                    \
        W fourth_row[n];                                                                            \
        const W *fourth = (const W *)(ctx->file + op->x);                                           \
        if (op->flags & FOURTH) {                                                                   \
            for (int l = 0; l < (n); l++) fourth_row[l] = *fourth;                                  \
            fourth = fourth_row;                                                                    \
        }                                                                                           \
        D r[n];                                                                                     \
        for (int l = 0; l < (n); l++) { A x = a[l]; B y = b[l]; C z = c[l]; W w = fourth[l]; r[l] = E; } \
        COMMIT_ROW(r);                                                                              \
        return op + 1;                                                                              \
    }                                                                                               \
    KERNEL(NAME##_s) {                                                                              \
        A x = *AT(A, a); B y = *AT(B, b); C z = *AT(C, c); W w = *(const W *)(ctx->file + op->x);   \
        STORE_ONE(D, E);                                                                            \
        return op + 1;                                                                              \
    }

// The mask of a predicate source, whose bit in Op.flags says whether it is one value.
#define MASK_OF(x, bit) (op->flags & 1 << bit ? -*AT(u32, x) : *AT(u32, x))

// Modifiers of floating-point instructions, bits of Op.x
enum { FTZ = 1, SAT = 2, RELU = 4, PROPAGATE = 8, XORSIGN = 16, ABSOLUTE = 32, OOB = 64 };
enum { ROUNDING = 8 };  // x >> ROUNDING & 3: to nearest, toward zero, down, up
