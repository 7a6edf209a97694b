// mma.sync: the product of matrices in the registers of a warp.
//
// arithmetic/fragments.py says where the elements are. Products are exact, summed in order of k in double precision, C last,
// and rounded once.

#include "narrow.h"

enum { HALF, BRAIN, TF32, E4M3, E5M2, S8, U8, S4, U4 };  // types, as opcodes/warp_mma.py numbers them
enum { SINGLE_RESULT, HALF_RESULT, INTEGER_RESULT };
enum { COLUMNS = 8, MOST_ROWS = 16, MOST_K = 64 };
enum { ONE_VALUE = 1 << 30 };  // flag of a slot that holds one value for all lanes

typedef struct {
    s32 of_a, of_b, result, m, k, saturates;
    const f32 *a_numbers, *b_numbers;  // number of every code of 8 bits
    s32 a[4], b[2], c[4], d[4];        // slots
} WarpMma;

static const u32 *row_at(const Context *ctx, s32 slot, u32 *spread) {
    const u32 *found = (const u32 *)(ctx->file + (slot & ~ONE_VALUE));
    if (!(slot & ONE_VALUE)) return found;
    for (int l = 0; l < LANES; l++) spread[l] = *found;
    return spread;
}

// Unpacks the elements of a register's words, lane by lane. Returns the number of elements of a word.
static int unpack(const u32 *words, s32 kind, const f32 *numbers, f64 *to) {
    const u8 *codes = (const u8 *)words;
    switch (kind) {
    case HALF: {
        f32 singles[2 * LANES];
        singles_of_halves(singles, (const u16 *)words, 2 * LANES);
        for (int i = 0; i < 2 * LANES; i++) to[i] = singles[i];
        return 2;
    }
    case BRAIN:
        for (int i = 0; i < 2 * LANES; i++) to[i] = single_of_brain(((const u16 *)words)[i]);
        return 2;
    case TF32:
        for (int l = 0; l < LANES; l++) to[l] = f32_of(words[l] & 0xffffe000);
        return 1;
    case S4:
        for (int i = 0; i < 8 * LANES; i++) to[i] = (s32)(words[i / 8] << (28 - 4 * (i % 8))) >> 28;
        return 8;
    case U4:
        for (int i = 0; i < 8 * LANES; i++) to[i] = words[i / 8] >> 4 * (i % 8) & 15;
        return 8;
    case S8:
        for (int i = 0; i < 4 * LANES; i++) to[i] = (s8)codes[i];
        return 4;
    case U8:
        for (int i = 0; i < 4 * LANES; i++) to[i] = codes[i];
        return 4;
    default:
        for (int i = 0; i < 4 * LANES; i++) to[i] = numbers[codes[i]];
        return 4;
    }
}

// Gathers rows of A, or columns of B, of `halves` blocks of eight: element k of row i goes to to[k * stride + i].
static void matrix(const Context *ctx, const s32 *slots, int halves, int k, s32 kind, const f32 *numbers, f64 *to, int stride) {
    for (int r = 0, done = 0; done < k; r++) {
        int per = 0;
        for (int half = 0; half < halves; half++) {
            u32 spread[LANES];
            f64 found[8 * LANES];
            per = unpack(row_at(ctx, slots[r * halves + half], spread), kind, numbers, found);
            for (int column = 0; column < 4 * per; column++)
                for (int row = 0; row < 8; row++)
                    to[(done + column) * stride + 8 * half + row] = found[4 * per * row + column];
        }
        done += 4 * per;
    }
}

KERNEL(warp_mma) {
    const WarpMma *mma = (const WarpMma *)op->x;
    if (ctx->mask != FULL) return to_python(ctx, op);
    f64 a[MOST_K * MOST_ROWS], b[MOST_K * COLUMNS], sum[MOST_ROWS][COLUMNS] = {{0}};
    int halves = mma->m / 8, packed = mma->result == HALF_RESULT;
    matrix(ctx, mma->a, halves, mma->k, mma->of_a, mma->a_numbers, a, MOST_ROWS);
    matrix(ctx, mma->b, 1, mma->k, mma->of_b, mma->b_numbers, b, COLUMNS);
    for (int k = 0; k < mma->k; k++)
        for (int i = 0; i < mma->m; i++)
            for (int j = 0; j < COLUMNS; j++) sum[i][j] += a[k * MOST_ROWS + i] * b[k * COLUMNS + j];
    u32 d[4][LANES];
    for (int r = 0; r < halves * (packed ? 1 : 2); r++) {
        u32 spread[LANES];
        const u32 *c = row_at(ctx, mma->c[r], spread);
        f64 before[8 * LANES];
        if (packed) unpack(c, HALF, 0, before);
        for (int l = 0; l < LANES; l++) {
            const f64 *row = &sum[(packed ? r : r / 2) * 8 + (l >> 2)][2 * (l & 3)];
            if (packed) {
                d[r][l] = (u32)narrowed(row[0] + before[2 * l], 10, -14, 15, NEAREST)
                          | (u32)narrowed(row[1] + before[2 * l + 1], 10, -14, 15, NEAREST) << 16;
            } else if (mma->result == INTEGER_RESULT) {
                s64 total = (s64)row[r % 2] + (s32)c[l];
                if (mma->saturates) total = total > INT32_MAX ? INT32_MAX : total < INT32_MIN ? INT32_MIN : total;
                d[r][l] = (u32)total;
            } else {
                d[r][l] = bits_of(nan32((f32)(row[r % 2] + f32_of(c[l]))));
            }
        }
    }
    for (int r = 0; r < halves * (packed ? 1 : 2); r++) copy_row(ctx->file + mma->d[r], d[r], sizeof d[r]);
    return op + 1;
}

typedef struct {
    s32 m, k, a[8], b[4], c[4], d[4];  // slots
} DoubleMma;

static inline f64 double_at(const Context *ctx, s32 slot, int lane) {
    const f64 *found = (const f64 *)(ctx->file + (slot & ~ONE_VALUE));
    return slot & ONE_VALUE ? *found : found[lane];
}

// Products of f64 are fused to C in order of k.
KERNEL(warp_mma_f64) {
    const DoubleMma *mma = (const DoubleMma *)op->x;
    if (ctx->mask != FULL) return to_python(ctx, op);
    int halves = mma->m / 8;
    f64 d[4][LANES];
    for (int r = 0; r < 2 * halves; r++)
        for (int l = 0; l < LANES; l++) {
            int row = l & ~3, column = 4 * (2 * (l & 3) + r % 2);  // their first lanes
            d[r][l] = double_at(ctx, mma->c[r], l);
            for (int k = 0; k < mma->k; k++) {
                f64 a = double_at(ctx, mma->a[k / 4 * halves + r / 2], row + k % 4);
                d[r][l] = __builtin_fma(a, double_at(ctx, mma->b[k / 4], column + k % 4), d[r][l]);
            }
        }
    for (int r = 0; r < 2 * halves; r++) copy_row(ctx->file + mma->d[r], d[r], sizeof d[r]);
    return op + 1;
}
