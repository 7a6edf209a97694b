// mma.sync: the product of matrices in the registers of a warp.
//
// arithmetic/fragments.py says where the elements are. Products are exact, summed in order of k in double precision, C last,
// and rounded once.

#include "numbers.h"
#include "fused.h"

enum { HALF, BRAIN, TF32, E4M3, E5M2, S8, U8, S4, U4 };  // types, as opcodes/warp_mma.py numbers them
enum { SINGLE_RESULT, HALF_RESULT, INTEGER_RESULT };
enum { COLUMNS = 8, MOST_ROWS = 16, MOST_K = 64 };

typedef struct {
    s32 of_a, of_b, result, m, k, saturates;
    const f32 *a_numbers, *b_numbers;  // number of every code of 8 bits
    s32 a[4], b[2], c[4], d[4];        // slots
} WarpMma;

// Unpacks the elements of a register's words, lane by lane. Returns the number of elements of a word.
static int unpack(const u32 *words, s32 kind, const f32 *numbers, f32 *to) {
    const u8 *codes = (const u8 *)words;
    switch (kind) {
    case HALF:
        singles_of_halves(to, (const u16 *)words, 2 * LANES);
        return 2;
    case BRAIN:
        for (int i = 0; i < 2 * LANES; i++) to[i] = single_of_brain(((const u16 *)words)[i]);
        return 2;
    case TF32:
        for (int l = 0; l < LANES; l++) to[l] = f32_of(words[l] & 0xffffe000);
        return 1;
    case S4:
        for (int i = 0; i < 8 * LANES; i++) to[i] = (f32)((s32)(words[i / 8] << (28 - 4 * (i % 8))) >> 28);
        return 8;
    case U4:
        for (int i = 0; i < 8 * LANES; i++) to[i] = (f32)(words[i / 8] >> 4 * (i % 8) & 15);
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

// A register of A holds eight rows one after another, of as many columns as four words hold. Returns these columns.
static int numbers_of_a(const Context *ctx, const WarpMma *mma, f64 *to) {
    int count = mma->m * mma->k, width = 0;
    for (int r = 0, done = 0; done < count; r++, done += 8 * width) {
        u32 spread[LANES];
        f32 found[8 * LANES];
        width = 4 * unpack(row_at(ctx, mma->a[r], spread), mma->of_a, mma->a_numbers, found);
        for (int i = 0; i < 8 * width; i += 4) *(Doubles *)(to + done + i) = WIDENED(*(Singles *)(found + i));
    }
    return width;
}

// A register of B holds columns as one of A holds rows. to: [k][COLUMNS], the even columns before the odd ones: a
// register of D has either.
static void numbers_of_b(const Context *ctx, const WarpMma *mma, f64 *to) {
    for (int r = 0, done = 0; done < mma->k; r++) {
        u32 spread[LANES];
        f32 found[8 * LANES];
        int width = 4 * unpack(row_at(ctx, mma->b[r], spread), mma->of_b, mma->b_numbers, found);
        for (int k = 0; k < width; k += 4, done += 4)
            for (int odd = 0; odd < 2; odd++) {
                const f32 *corner = found + odd * width + k;
                Singles x[4];
                for (int i = 0; i < 4; i++) x[i] = *(Singles *)(corner + 2 * i * width);
                Singles low01 = SHUFFLE(Words, x[0], x[1], 0, 4, 1, 5), high01 = SHUFFLE(Words, x[0], x[1], 2, 6, 3, 7);
                Singles low23 = SHUFFLE(Words, x[2], x[3], 0, 4, 1, 5), high23 = SHUFFLE(Words, x[2], x[3], 2, 6, 3, 7);
                f64 *line = to + done * COLUMNS + 4 * odd;
                *(Doubles *)(line) = WIDENED(SHUFFLE(Words, low01, low23, 0, 1, 4, 5));
                *(Doubles *)(line + COLUMNS) = WIDENED(SHUFFLE(Words, low01, low23, 2, 3, 6, 7));
                *(Doubles *)(line + 2 * COLUMNS) = WIDENED(SHUFFLE(Words, high01, high23, 0, 1, 4, 5));
                *(Doubles *)(line + 3 * COLUMNS) = WIDENED(SHUFFLE(Words, high01, high23, 2, 3, 6, 7));
            }
    }
}

#define PARTS (COLUMNS * (int)sizeof(f64) / VECTOR)                                // vectors of a row of sums
#define TOGETHER (ROWS * VECTORS / PARTS < 8 ? ROWS * VECTORS / PARTS : 8)  // rows whose sums are in registers

// sums[m][COLUMNS] = a b. A product is exact: to add it in one rounding is to multiply and add. width: columns of a
// register of A.
static inline __attribute__((always_inline)) void multiply(const WarpMma *mma, const f64 *a, const f64 *b, int width,
                                                           f64 *sums) {
    for (int row = 0; row < mma->m; row += TOGETHER) {
        v_f64 sum[TOGETHER][PARTS] = {0};
        const f64 *block = a + row * width;
        for (int k = 0; k < mma->k; k += width, block += mma->m * width)
            for (int i = 0; i < width; i++) {
                const v_f64_in_memory *line = (const void *)(b + (k + i) * COLUMNS);
                v_f64 columns[PARTS];
                for (int p = 0; p < PARTS; p++) columns[p] = line[p];
                for (int r = 0; r < TOGETHER; r++) {
                    v_f64 element = block[r * width + i] - (v_f64){0};
                    for (int p = 0; p < PARTS; p++) sum[r][p] = FUSED_f64(element, columns[p], sum[r][p]);
                }
            }
        memcpy(sums + row * COLUMNS, sum, sizeof sum);
    }
}

KERNEL(warp_mma) {
    const WarpMma *mma = (const WarpMma *)op->x;
    if (ctx->mask != FULL) return to_python(ctx, op);
    f64 a[MOST_K * MOST_ROWS], b[MOST_K * COLUMNS], sums[MOST_ROWS * COLUMNS];
    int packed = mma->result == HALF_RESULT, count = mma->m / 8 * (packed ? 1 : 2), width = numbers_of_a(ctx, mma, a);
    numbers_of_b(ctx, mma, b);
    if (width == 8) multiply(mma, a, b, 8, sums);
    else multiply(mma, a, b, width, sums);
    u32 d[4][LANES];
    for (int r = 0; r < count; r++) {
        u32 spread[LANES];
        const u32 *c = row_at(ctx, mma->c[r], spread);
        const f64 *part = sums + (packed ? r * 8 * COLUMNS : r / 2 * 8 * COLUMNS + r % 2 * 4);  // every other four
        if (packed) {
            f32 before[2 * LANES], rounded[2 * LANES];
            unpack(c, HALF, 0, before);
            for (int i = 0; i < 2 * LANES; i++)
                rounded[i] = odd_single(part[i / 8 * COLUMNS + i % 2 * 4 + i % 8 / 2] + before[i]);
            halves_of_singles((u16 *)d[r], rounded, 2 * LANES);
        } else if (mma->result == INTEGER_RESULT) {
            for (int l = 0; l < LANES; l++) {
                s64 total = (s64)part[l / 4 * COLUMNS + l % 4] + (s32)c[l];
                if (mma->saturates) total = total > INT32_MAX ? INT32_MAX : total < INT32_MIN ? INT32_MIN : total;
                d[r][l] = (u32)total;
            }
        } else {
            for (int l = 0; l < LANES; l += 4, part += COLUMNS) {
                Singles total = NARROWED(*(Doubles *)part + WIDENED(*(Singles *)(c + l)));
                Words is_nan = total != total;
                *(Words *)(d[r] + l) = ((Words)total & ~is_nan) | (is_nan & 0x7fffffff);
            }
        }
    }
    for (int r = 0; r < count; r++) copy_row(ctx->file + mma->d[r], d[r], sizeof d[r]);
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
