// Loads of a row of words from 32 places of the host's memory, by the pattern that the places form.
//
// Threads of a block of 8 or more columns access a row of a matrix, or a column, by groups of lanes: each group has a run
// of words, or one word. Such rows are loaded by four copies; others word by word, to whole vectors (vectors.h).

#pragma once

#include "engine.h"

typedef u64 FourLong __attribute__((vector_size(32)));
typedef u16 Sixteen __attribute__((vector_size(32)));

enum { APART, ALIKE, RUNS };  // patterns: each lane has its place; lanes of a group have one, or places in a row

static inline FourLong four_at(const u64 *at) { FourLong v; memcpy(&v, at, sizeof v); return v; }
static inline u64 any_bits(FourLong v) { return (v[0] | v[1]) | (v[2] | v[3]); }

// The pattern of the places of words of `width` bytes, a power of two
static inline int pattern_of(const u64 *at, u64 width) {
    FourLong steps = (FourLong){0, 1, 2, 3} << __builtin_ctzll(width), alike = {0}, runs = {0};
    for (int l = 0; l < LANES; l += GROUP) {
        FourLong low = four_at(at + l) - at[l], high = four_at(at + l + 4) - at[l];
        alike |= low | high;
        runs |= (low ^ steps) | (high ^ (steps + 4 * width));
    }
    return !any_bits(alike) ? ALIKE : !any_bits(runs) ? RUNS : APART;
}

// The same of 32-bit places
static inline int pattern_of_shared(const u32 *at, u32 width) {
    Eight steps = (Eight){0, 1, 2, 3, 4, 5, 6, 7} << (u32)__builtin_ctz(width), alike = {0}, runs = {0};
    for (int l = 0; l < LANES; l += GROUP) {
        Eight v;
        memcpy(&v, at + l, sizeof v);
        v -= at[l];
        alike |= v;
        runs |= v ^ steps;
    }
    return !any_bits((FourLong)alike) ? ALIKE : !any_bits((FourLong)runs) ? RUNS : APART;
}

#define FILL(T, NAME)                                                                             \
    static inline void NAME(T *at, u32 mask) {                                                   \
        T other = at[__builtin_ctz(mask)];                                                       \
        for (int l = 0; l < LANES; l++) at[l] = mask >> l & 1 ? at[l] : other;                    \
    }
// Gives lanes that are not active the place of an active one.
FILL(u64, fill_inactive)
FILL(u32, fill_inactive_shared)

// Stores a vector of 32 bytes, number i of a row.
#define TO_VECTOR(i, ...) do { FourLong four = __VA_ARGS__; memcpy(to + 32 * (i), &four, sizeof four); } while (0)

static inline u64 long_at(u64 place) { u64 x; memcpy(&x, (const u8 *)place, 8); return x; }

static inline void load_runs(u8 *to, int nbytes, const u64 *first) {
    switch (nbytes) {
    case 1: TO_VECTOR(0, {long_at(first[0]), long_at(first[1]), long_at(first[2]), long_at(first[3])}); break;
    case 2:
        for (int i = 0; i < 2; i++) {
            u64 low = first[2 * i], high = first[2 * i + 1];
            TO_VECTOR(i, {long_at(low), long_at(low + 8), long_at(high), long_at(high + 8)});
        }
        break;
    case 4: for (int g = 0; g < GROUPS; g++) copy_row(to + 32 * g, (const u8 *)first[g], 32); break;
    default: for (int g = 0; g < GROUPS; g++) copy_row(to + 64 * g, (const u8 *)first[g], 64); break;
    }
}

static inline void load_alike(u8 *to, int nbytes, const u64 *place) {
    u64 x[GROUPS];
    for (int g = 0; g < GROUPS; g++) {
        const u8 *p = (const u8 *)place[g];
        switch (nbytes) {
        case 1: x[g] = *p * 0x0101010101010101; break;
        case 2: x[g] = *(const u16 *)p * 0x0001000100010001; break;
        case 4: x[g] = *(const u32 *)p * 0x0000000100000001; break;
        default: x[g] = *(const u64 *)p; break;
        }
    }
    switch (nbytes) {
    case 1: TO_VECTOR(0, {x[0], x[1], x[2], x[3]}); break;
    case 2: for (int i = 0; i < 2; i++) TO_VECTOR(i, {x[2 * i], x[2 * i], x[2 * i + 1], x[2 * i + 1]}); break;
    case 4: for (int g = 0; g < GROUPS; g++) TO_VECTOR(g, {x[g], x[g], x[g], x[g]}); break;
    default: for (int i = 0; i < 2 * GROUPS; i++) TO_VECTOR(i, {x[i / 2], x[i / 2], x[i / 2], x[i / 2]}); break;
    }
}

#define WORD(T, i) *(const T *)at[l + i]
#define FOUR_WORDS(T, i) WORD(T, i), WORD(T, i + 1), WORD(T, i + 2), WORD(T, i + 3)
#define EIGHT_WORDS(T, i) FOUR_WORDS(T, i), FOUR_WORDS(T, i + 4)
#define LOAD_APART(V, T, ...) \
    for (int l = 0; l < LANES; l += (int)(32 / sizeof(T))) { \
        V words = {__VA_ARGS__}; \
        memcpy(to + l * (int)sizeof(T), &words, sizeof words); \
    }

static inline void load_apart(u8 *to, int nbytes, const u64 *at) {
    switch (nbytes) {
    case 1:
        LOAD_APART(Vector, u8, EIGHT_WORDS(u8, 0), EIGHT_WORDS(u8, 8), EIGHT_WORDS(u8, 16), EIGHT_WORDS(u8, 24));
        break;
    case 2: LOAD_APART(Sixteen, u16, EIGHT_WORDS(u16, 0), EIGHT_WORDS(u16, 8)); break;
    case 4: LOAD_APART(Eight, u32, EIGHT_WORDS(u32, 0)); break;
    default: LOAD_APART(FourLong, u64, FOUR_WORDS(u64, 0)); break;
    }
}

// Loads a row of words of `nbytes`, 1, 2, 4 or 8. at: places of the lanes, or of each group's first one.
static inline void load_words(u8 *to, int nbytes, int pattern, const u64 *at) {
    if (pattern == ALIKE) load_alike(to, nbytes, at);
    else if (pattern == RUNS) load_runs(to, nbytes, at);
    else load_apart(to, nbytes, at);
}
