// Vectors of words, in the dialect that gcc and clang share.

#pragma once

#include "types.h"

typedef u8 Vector __attribute__((vector_size(32), aligned(1)));
#ifdef __AVX512F__
typedef u8 Widest __attribute__((vector_size(64), aligned(1)));
#else
typedef Vector Widest;
#endif
typedef u32 Four __attribute__((vector_size(16)));
typedef u64 Two __attribute__((vector_size(16)));
typedef u32 Eight __attribute__((vector_size(32)));

#ifdef __clang__
#define SHUFFLE(type, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(type, a, b, ...) __builtin_shuffle(a, b, (type){__VA_ARGS__})
#endif

// Copies 32, 64, 128 or 256 bytes by the widest vectors. gcc's memcpy halves them, and a load of a vector whose parts were
// stored apart, as the next instruction's, has to wait for them all.
static inline void copy_row(void *to, const void *from, int nbytes) {
    if (nbytes < (int)sizeof(Widest)) *(Vector *)to = *(const Vector *)from;
    for (int i = 0; i < nbytes / (int)sizeof(Widest); i++) ((Widest *)to)[i] = ((const Widest *)from)[i];
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
