// Comparisons and properties of floating-point numbers (PTX ISA, "Comparisons", "testp").
//
// Op.x of a comparison: INVERTED negates the result; with FLUSHED, subnormal sources are zeros.

#include "floats.h"

enum { INVERTED = 1, FLUSHED = 2 };

// LOAD: conversion of an element before it is compared; TINY: the smallest normal number
#define FLOAT_COMPARED(NAME, T, F, LOAD, TINY, E)                                                   \
    KERNEL(NAME) {                                                                                  \
        SOURCE(T, a, 0, LANES) SOURCE(T, b, 1, LANES)                                               \
        F tiny = op->x & FLUSHED ? TINY : 0;                                                        \
        u32 m = 0;                                                                                  \
        for (int l = 0; l < LANES; l++) {                                                           \
            F x = LOAD(a[l]), y = LOAD(b[l]);                                                       \
            x = x < tiny && x > -tiny ? 0 : x;                                                      \
            y = y < tiny && y > -tiny ? 0 : y;                                                      \
            m |= (E) ? lane_bit(l) : 0;                                                             \
        }                                                                                           \
        write_mask(ctx, op, m ^ -(u32)(op->x & INVERTED));                                          \
        return op + 1;                                                                              \
    }
#define COMPARISONS(NAME, T, F, LOAD, TINY)                                                         \
    FLOAT_COMPARED(eq_##NAME, T, F, LOAD, TINY, x == y)                                             \
    FLOAT_COMPARED(lt_##NAME, T, F, LOAD, TINY, x < y)                                              \
    FLOAT_COMPARED(le_##NAME, T, F, LOAD, TINY, x <= y)                                             \
    FLOAT_COMPARED(ltgt_##NAME, T, F, LOAD, TINY, (x < y) | (x > y))                                \
    FLOAT_COMPARED(num_##NAME, T, F, LOAD, TINY, (x == x) & (y == y))
#define AS_IT_IS(x) (x)
COMPARISONS(f32, f32, f32, AS_IT_IS, 0x1p-126f)
COMPARISONS(f64, f64, f64, AS_IT_IS, 0)
COMPARISONS(f16, u16, f32, single_of_half, 0x1p-14f)
COMPARISONS(bf16, u16, f32, single_of_brain, 0)

// testp: true if the magnitude's bits are in [LOW, HIGH)
#define PROPERTY(NAME, U, LOW, HIGH)                                                                \
    KERNEL(NAME) {                                                                                  \
        SOURCE(U, a, 0, LANES)                                                                      \
        u32 m = 0;                                                                                  \
        for (int l = 0; l < LANES; l++) {                                                           \
            U x = a[l] << 1 >> 1;                                                                   \
            m |= (U)(x - (LOW)) < (U)((HIGH) - (LOW)) ? lane_bit(l) : 0;                            \
        }                                                                                           \
        write_mask(ctx, op, m);                                                                     \
        return op + 1;                                                                              \
    }
#define PROPERTIES(NAME, U, TINY, INFINITE, END)                                                    \
    PROPERTY(finite_##NAME, U, 0, INFINITE)                                                         \
    PROPERTY(infinite_##NAME, U, INFINITE, (INFINITE) + 1)                                          \
    PROPERTY(number_##NAME, U, 0, (INFINITE) + 1)                                                   \
    PROPERTY(notanumber_##NAME, U, (INFINITE) + 1, END)                                             \
    PROPERTY(normal_##NAME, U, TINY, INFINITE)                                                      \
    PROPERTY(subnormal_##NAME, U, 1, TINY)
PROPERTIES(f32, u32, (u32)1 << 23, (u32)0xff << 23, (u32)1 << 31)
PROPERTIES(f64, u64, (u64)1 << 52, (u64)0x7ff << 52, (u64)1 << 63)
