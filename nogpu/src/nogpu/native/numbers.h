// Sources and results of floating-point kernels: rows of f32, to which f16 and bf16 are widened, or of f64.
//
// A family is f32, f64, f16 or bf16; n is 32, or 64 for pairs.

#pragma once

#include "floats.h"

// TAKE_<family>: source s of a kernel as the numbers sv[n]
#define TAKE_f32(s, bit, n) SOURCE(f32, s, bit, n) const f32 *restrict s##v = s;
#define TAKE_f64(s, bit, n) SOURCE(f64, s, bit, n) const f64 *restrict s##v = s;
#define TAKE_f16(s, bit, n) SOURCE(u16, s, bit, n) f32 s##v[n]; singles_of_halves(s##v, s, n);
#define TAKE_bf16(s, bit, n) SOURCE(u16, s, bit, n) f32 s##v[n]; for (int l = 0; l < n; l++) s##v[l] = single_of_brain(s[l]);

// GIVE_<family>: the numbers r[n] to the destination
#define GIVE_f32(n) COMMIT_ROW(r)
#define GIVE_f64(n) COMMIT_ROW(r)
#define GIVE_f16(n) u16 h[n]; halves_of_singles(h, r, n); COMMIT_ROW(h)
#define GIVE_bf16(n) u16 h[n]; for (int l = 0; l < n; l++) h[l] = brain_of_single(r[l]); COMMIT_ROW(h)

#define NUMBER_f32 f32
#define NUMBER_f64 f64
#define NUMBER_f16 f32
#define NUMBER_bf16 f32

// The smallest normal number
#define TINY_f32 0x1p-126f
#define TINY_f64 0x1p-1022
#define TINY_f16 0x1p-14f
#define TINY_bf16 0x1p-126f

// Subnormals become zeros of the same sign; tiny is 0 if they are kept.
static inline f32 flushed(f32 x, f32 tiny) { return f32_of(__builtin_fabsf(x) < tiny ? bits_of(x) & 0x80000000 : bits_of(x)); }

// Results: `.ftz`, `.sat` (NaN and -0 become +0), `.relu` (negative numbers and -0 become +0, NaNs the canonical one).
// A row of halves is clamped before it is rounded, and flushed after.
static inline void finished(f32 *r, int n, s64 x, f32 tiny) {
    if (x & FTZ)
        for (int l = 0; l < n; l++) r[l] = flushed(r[l], tiny);
    if (x & SAT)
        for (int l = 0; l < n; l++) r[l] = r[l] > 0 ? (r[l] < 1 ? r[l] : 1) : 0;
    if (x & RELU)
        for (int l = 0; l < n; l++) r[l] = r[l] <= 0 ? 0 : nan32(r[l]);
}
static inline void flushed_halves(u16 *h, int n) {
    for (int l = 0; l < n; l++) h[l] = (h[l] & 0x7fff) < 0x400 ? h[l] & 0x8000 : h[l];
}

#define FINISH_f32(n) finished(r, n, op->x, TINY_f32); COMMIT_ROW(r)
#define FINISH_bf16(n) finished(r, n, op->x, TINY_bf16); GIVE_bf16(n)
#define FINISH_f16(n)                                            \
    finished(r, n, op->x & ~FTZ, 0);                             \
    u16 h[n];                                                    \
    halves_of_singles(h, r, n);                                  \
    if (op->x & FTZ) flushed_halves(h, n);                       \
    COMMIT_ROW(h)
#define FINISH_f64(n) COMMIT_ROW(r)

// A NaN result of f32 is the canonical one; f16 and bf16 get theirs when they are rounded. In f64 it is the first
// source that is a NaN, made quiet, else the NaN that the operation makes.
#define CANONICAL_f32(e, x, y, z) nan32(e)
#define CANONICAL_f16(e, x, y, z) (e)
#define CANONICAL_bf16(e, x, y, z) (e)
#define CANONICAL_f64(e, x, y, z) nan64(e, x, y, z)
static inline f64 nan64(f64 r, f64 x, f64 y, f64 z) {
    u64 quiet = (u64)1 << 51, made = (u64)0xfff8 << 48;
    u64 of = x != x ? bits_of_f64(x) | quiet : y != y ? bits_of_f64(y) | quiet : z != z ? bits_of_f64(z) | quiet : made;
    return r != r ? f64_of(of) : r;
}
