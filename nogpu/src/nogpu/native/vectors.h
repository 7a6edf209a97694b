// Vectors of words, in the dialect that gcc and clang share.

#pragma once

#include "types.h"

typedef u8 Vector __attribute__((vector_size(32), aligned(1)));
typedef u32 Four __attribute__((vector_size(16)));
typedef u64 Two __attribute__((vector_size(16)));
typedef u32 Eight __attribute__((vector_size(32)));

#ifdef __clang__
#define SHUFFLE(type, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(type, a, b, ...) __builtin_shuffle(a, b, (type){__VA_ARGS__})
#endif

// Copies 32, 64, 128 or 256 bytes by whole vectors. gcc's memcpy halves them, and a load of a vector whose halves were
// stored apart, as the next instruction's, has to wait for both.
static inline void copy_row(void *to, const void *from, int nbytes) {
    Vector *t = to;
    const Vector *f = from;
    t[0] = f[0];
    if (nbytes >= 64) t[1] = f[1];
    if (nbytes >= 128) t[2] = f[2], t[3] = f[3];
    if (nbytes >= 256) t[4] = f[4], t[5] = f[5], t[6] = f[6], t[7] = f[7];
}

// Transposes 4x4 words in the lower halves of four vectors, and in their upper halves.
static inline void transpose_halves(Eight v[4]) {
    Eight low01 = SHUFFLE(Eight, v[0], v[1], 0, 8, 1, 9, 4, 12, 5, 13);
    Eight high01 = SHUFFLE(Eight, v[0], v[1], 2, 10, 3, 11, 6, 14, 7, 15);
    Eight low23 = SHUFFLE(Eight, v[2], v[3], 0, 8, 1, 9, 4, 12, 5, 13);
    Eight high23 = SHUFFLE(Eight, v[2], v[3], 2, 10, 3, 11, 6, 14, 7, 15);
    v[0] = SHUFFLE(Eight, low01, low23, 0, 1, 8, 9, 4, 5, 12, 13);
    v[1] = SHUFFLE(Eight, low01, low23, 2, 3, 10, 11, 6, 7, 14, 15);
    v[2] = SHUFFLE(Eight, high01, high23, 0, 1, 8, 9, 4, 5, 12, 13);
    v[3] = SHUFFLE(Eight, high01, high23, 2, 3, 10, 11, 6, 7, 14, 15);
}
