/* tcgen05.mma: D = A B (+ D), from operands as they lie in the memories to D in tensor memory.
 *
 *   fetch         an operand's bytes, 32 a row, from shared or tensor memory
 *   decode        numbers, times their scale factors, exact: bfloat16, float or double
 *   arrange       B in panels of 32 columns
 *   multiply      rows of A by a panel; sums in float (double for what exceeds float's range)
 *   accumulate    D in place
 *
 * hardware/tensor/multiply.py has the same structures; a test compares them. */

#ifndef EMU_MMA_H
#define EMU_MMA_H

#include <stdint.h>
#include <string.h>

enum {
    EMU_ROW_BYTES = 32,  /* of an operand in one instruction */
    EMU_CHUNK = 16,      /* bytes that lie together in shared memory */
    EMU_STRIP = 32,      /* rows of D that are computed together */
    EMU_BLOCK = 64,      /* and columns: a few cache lines of a lane */
    EMU_PANEL = 32,      /* columns that are multiplied together */
    EMU_MAX_ROWS = 256,  /* of an operand: N; A has up to 128 in a CTA */
    EMU_MAX_K = 64,
    EMU_LANES = 128,
    EMU_QUADRANT = 32,   /* lanes */
    EMU_COLUMNS = 512,   /* 32-bit words of a lane of tensor memory */
    EMU_NAN_SCALE = 255, /* of ue8m0 */
    EMU_SCALE_BIAS = 127 /* of ue8m0 */
};

enum emu_format {
    EMU_PAIRS,  /* two 4-bit codes a byte */
    EMU_BYTES,   /* a code a byte */
    EMU_PADDED,  /* 16 codes of `bits` bits, then padding, in 16 bytes */
    EMU_HELD,    /* a code of `bits` bits in the middle of a byte */
    EMU_F16,
    EMU_BF16,
    EMU_TF32,
};

enum emu_d_type { EMU_D_F32, EMU_D_F16, EMU_D_S32 };

enum emu_precision { EMU_IN_BF16, EMU_IN_FLOAT, EMU_IN_DOUBLE };

struct emu_operand {
    const int64_t *chunks;    /* numbers of the 16-byte items in shared memory, [rows][2] or, transposed, [k][...];
                                 0: in tensor memory */
    const float *values;      /* of codes, or float[256][2] of PAIRS; 0 where elements are numbers themselves */
    const float *scales;      /* values of scale factors' 256 codes; 0: none */
    const uint16_t *products; /* bfloat16[256][16]: a scale factor's code, times a 4-bit element's; else 0 */
    int32_t format;           /* emu_format */
    int32_t bits;             /* of codes that are PADDED or HELD */
    int32_t width;            /* bytes of an element that is transposed; 0: rows are along K */
    int32_t rows;             /* in one CTA */
    int32_t column;           /* of tensor memory, where the operand is there */
    int32_t low, high;        /* all values are multiples of 2**low and less than 2**high in magnitude */
    int32_t scale_column;     /* of tensor memory: first one of the scale factors */
    int32_t scale_rows;       /* whose factors each part of the lanes holds */
    int32_t scale_parts;      /* of the lanes, whose rows follow each other: 1 or 2 */
    int32_t scale_byte;       /* first one in the word */
    int32_t scale_count;      /* of a row */
};

struct emu_mma {
    struct emu_operand a, b;
    int32_t ctas;        /* 1, or 2 of a pair: each has its rows of A and its part of B's */
    int32_t k;
    int32_t n;
    int32_t parts;       /* of N, each in its own half of the lanes: 1 or 2 */
    int32_t spread;      /* D's rows lie in the lower halves of quadrants */
    int32_t lane, column; /* of D */
    int32_t d_type;      /* emu_d_type */
    int32_t accumulate;
    int32_t negate;
    int32_t saturate;
    int32_t d_shift;     /* D counts 2**-d_shift */
    int32_t narrow;      /* bfloat16 holds all values of A and B exactly, and their products are no subnormals */
    int32_t wide;        /* scale factors are powers of two whose products may exceed float's range */
    uint32_t disabled[2][4]; /* per CTA, a bit per lane that keeps D */
};

/* An operand as numbers: [rows][k], or B in panels, [panel][k][EMU_PANEL], with bfloat16 in pairs along K. */
union emu_matrix {
    uint16_t bf16[EMU_MAX_ROWS * EMU_MAX_K];
    uint32_t words[EMU_MAX_ROWS * EMU_MAX_K];
    float f32[EMU_MAX_ROWS * EMU_MAX_K];
    double f64[EMU_MAX_ROWS * EMU_MAX_K];
};

/* The executed instruction's CTAs: their memories from the first byte on. */
struct emu_cta {
    const uint8_t *shared;
    uint32_t *tensor;
};

/* Returns 0, or 1 if copies of A or of scale factors in tensor memory differ: D may be computed in part then. */
int emu_mma(const struct emu_mma *call, const uint8_t *shared, uint32_t *tensor, const uint8_t *odd_shared,
            uint32_t *odd_tensor);

/* Whether AMX multiplies from now on: if wanted and if CPU, compiler and operating system have it. */
int emu_mma_amx(int wanted);

static inline uint32_t emu_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

static inline float emu_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

/* Exact: a float holds every half, and 2**112 is the ratio of the formats' units. */
static inline float emu_half_to_float(uint16_t half) {
    uint32_t magnitude = half & 0x7FFF, sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t bits = emu_bits(emu_float(magnitude << 13) * 0x1p112f);
    return emu_float((magnitude >= 0x7C00 ? 0x7F800000 | magnitude << 13 : bits) | sign);
}

/* mma_decode.c. packed: uint8[rows][32]. codes: per row, scale factors' codes from the low byte on. */
int emu_fetch(const struct emu_operand *operand, const struct emu_mma *call, const struct emu_cta *cta,
              uint8_t *packed);
int emu_fetch_scales(const struct emu_operand *operand, const struct emu_cta *cta, uint32_t *codes);
void emu_decode(const struct emu_operand *operand, int rows, int k, const uint8_t *packed, const uint32_t *codes,
                enum emu_precision precision, union emu_matrix *out);

/* mma_multiply.c */
int emu_amx(void);
void emu_pairs_to_bf16(const struct emu_operand *operand, int rows, const uint8_t *packed, const uint32_t *codes,
                         uint16_t *out);
void emu_arrange(const struct emu_mma *call, enum emu_precision precision, const union emu_matrix *rows,
                 union emu_matrix *panels);
/* Around calls of emu_multiply. */
void emu_begin(enum emu_precision precision);
void emu_end(enum emu_precision precision);
/* sums, float[EMU_STRIP][EMU_BLOCK], the first EMU_PANEL of each row: the rows of A from `row` on by a panel of B. */
void emu_multiply(enum emu_precision precision, const union emu_matrix *a, int row, int k,
                  const union emu_matrix *panels, int panel, float *sums);

#endif
