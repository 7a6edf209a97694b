// mma.sync: the product of matrices in the registers of a warp.
//
// arithmetic/fragments.py says where the elements are, and in which order they are summed: both give the same bits.

#include "narrow.h"

enum { HALF, BRAIN, TF32, E4M3, E5M2, S8, U8, S4, U4 };  // opcodes/warp_mma.py numbers them
enum { SINGLE_RESULT, HALF_RESULT, INTEGER_RESULT };
enum { COLUMNS = 8, MOST_ROWS = 16, MOST_K = 64 };
enum { ONE_VALUE = 1 << 30 };  // of a slot that holds one value for all lanes

typedef struct {
    s32 of_a, of_b, result, m, k, saturates;
    const f32 *a_numbers, *b_numbers;  // of every code of 8 bits
    s32 a[4], b[2], c[4], d[4];        // slots
} WarpMma;

static const u32 *row_at(const Context *ctx, s32 slot, u32 *spread) {
    const u32 *found = (const u32 *)(ctx->file + (slot & ~ONE_VALUE));
    if (!(slot & ONE_VALUE)) return found;
    for (int l = 0; l < LANES; l++) spread[l] = *found;
    return spread;
}

// The elements of a register's word.
static int unpack(u32 word, s32 kind, const f32 *numbers, f64 *to) {
    switch (kind) {
    case HALF: {
        u16 halves[2] = {(u16)word, (u16)(word >> 16)};
        f32 singles[2];
        singles_of_halves(singles, halves, 2);
        to[0] = singles[0], to[1] = singles[1];
        return 2;
    }
    case BRAIN: to[0] = f32_of(word << 16), to[1] = f32_of(word & 0xffff0000); return 2;
    case TF32: to[0] = f32_of(word & 0xffffe000); return 1;
    case S4: case U4:
        for (int i = 0; i < 8; i++) to[i] = kind == S4 ? (s32)(word << (28 - 4 * i)) >> 28 : (s32)(word >> 4 * i & 15);
        return 8;
    default:
        for (int i = 0; i < 4; i++) {
            u8 code = (u8)(word >> 8 * i);
            to[i] = kind == S8 ? (s8)code : kind == U8 ? code : numbers[code];
        }
        return 4;
    }
}

// Rows of A, or columns of B, of `halves` blocks of eight: element k of row i goes to to[k * stride + i].
static void matrix(const Context *ctx, const s32 *slots, int halves, int k, s32 kind, const f32 *numbers, f64 *to, int stride) {
    for (int r = 0, done = 0; done < k; r++) {
        int per = 0;
        for (int half = 0; half < halves; half++) {
            u32 spread[LANES];
            const u32 *row = row_at(ctx, slots[r * halves + half], spread);
            for (int l = 0; l < LANES; l++) {
                f64 found[8];
                per = unpack(row[l], kind, numbers, found);
                for (int i = 0; i < per; i++) to[(done + per * (l & 3) + i) * stride + 8 * half + (l >> 2)] = found[i];
            }
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
        for (int l = 0; l < LANES; l++) {
            const f64 *row = &sum[(packed ? r : r / 2) * 8 + (l >> 2)][2 * (l & 3)];
            if (packed) {
                f64 before[2];
                unpack(c[l], HALF, 0, before);
                d[r][l] = (u32)narrowed(row[0] + before[0], 10, -14, 15, NEAREST)
                          | (u32)narrowed(row[1] + before[1], 10, -14, 15, NEAREST) << 16;
            } else if (mma->result == INTEGER_RESULT) {
                s64 total = (s64)row[r % 2] + (s32)c[l];
                if (mma->saturates) total = total > INT32_MAX ? INT32_MAX : total < INT32_MIN ? INT32_MIN : total;
                d[r][l] = (u32)total;
            } else {
                d[r][l] = bits_of(nan32((f32)(row[r % 2] + f32_of(c[l]))));
            }
        }
    }
    for (int r = 0; r < halves * (packed ? 1 : 2); r++) memcpy(ctx->file + mma->d[r], d[r], sizeof d[r]);
    return op + 1;
}
