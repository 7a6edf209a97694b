/* tcgen05.mma: one instruction in its CTAs (mma.h). */

#include "mma.h"

/* Python's lock protects them: the library's functions run under it. */
static union emu_matrix a_matrix, b_rows, b_panels;
static float sums[EMU_STRIP * EMU_BLOCK] __attribute__((aligned(64)));

struct range {
    int low, high; /* exponents: multiples of 2**low, less than 2**high in magnitude */
};

/* Of the scaled elements, NaN apart. */
static struct range range_of(const struct emu_operand *operand, int rows, const uint32_t *codes) {
    int low = EMU_NAN_SCALE, high = -1;
    for (int row = 0; row < rows; row++)
        for (int i = 0; i < operand->scale_count; i++) {
            int code = codes[row] >> 8 * i & 0xFF;
            low = code < low ? code : low;
            high = code > high && code != EMU_NAN_SCALE ? code : high;
        }
    if (high < 0)
        low = high = EMU_SCALE_BIAS;
    return (struct range){low - EMU_SCALE_BIAS + operand->low, high - EMU_SCALE_BIAS + operand->high};
}

/* Floats suffice if operands, products and sums are neither subnormal nor infinite. */
static int fits_float(struct range a, struct range b, int k) {
    int lowest = -126, highest = 127, low = a.low + b.low, high = a.high + b.high;
    while (k > 1) {
        k = (k + 1) / 2;
        high++;
    }
    return a.low >= lowest && b.low >= lowest && low >= lowest && a.high <= highest && b.high <= highest &&
           high <= highest;
}

static enum emu_precision precision_of(const struct emu_mma *call, const uint32_t *a_codes, const uint32_t *b_codes) {
    if (call->wide &&
        !fits_float(range_of(&call->a, call->a.rows, a_codes), range_of(&call->b, call->n, b_codes), call->k))
        return EMU_IN_DOUBLE;
    return call->narrow && emu_amx() ? EMU_IN_BF16 : EMU_IN_FLOAT;
}

/* To nearest even. */
static uint16_t float_to_half(float value) {
    uint32_t bits = emu_bits(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7FFFFFFF;
    /* Adding 2**-1 rounds to multiples of 2**-24, the unit of subnormal halves. */
    uint32_t subnormal = emu_bits(emu_float(magnitude) + 0.5f) - 0x3F000000;
    uint32_t normal = (magnitude - 0x38000000 + 0xFFF + (magnitude >> 13 & 1)) >> 13;
    uint32_t finite = magnitude < 0x38800000 ? subnormal : normal;
    uint32_t half = magnitude > 0x7F800000 ? 0x7E00 : magnitude >= 0x47800000 ? 0x7C00 : finite;
    return sign | half;
}

static void accumulate_f32(const struct emu_mma *call, uint32_t *words, const float *row, int count) {
    float *d = (float *)words, sign = call->negate ? -1 : 1, factor = 1.0f / (1 << call->d_shift);
    if (call->accumulate)
        for (int i = 0; i < count; i++)
            d[i] = d[i] * factor + sign * row[i];
    else
        for (int i = 0; i < count; i++)
            d[i] = sign * row[i];
}

/* A 16-bit element takes the low half of a word (PTX ISA, Packing format for matrix D in Tensor Memory). */
static void accumulate_f16(const struct emu_mma *call, uint32_t *words, const float *row, int count) {
    float sign = call->negate ? -1 : 1, factor = 1.0f / (1 << call->d_shift);
    for (int i = 0; i < count; i++) {
        float sum = sign * row[i];
        if (call->accumulate)
            sum += emu_half_to_float(words[i]) * factor;
        words[i] = 0xFFFF0000 | float_to_half(sum);
    }
}

static void accumulate_s32(const struct emu_mma *call, uint32_t *words, const float *row, int count) {
    if (!call->accumulate)
        for (int i = 0; i < count; i++)
            words[i] = (uint32_t)(int32_t)row[i];
    else if (!call->saturate)
        for (int i = 0; i < count; i++)
            words[i] += (uint32_t)(int32_t)row[i];
    else
        for (int i = 0; i < count; i++) {
            int64_t sum = (int64_t)(int32_t)words[i] + (int32_t)row[i];
            words[i] = (uint32_t)(sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum);
        }
}

/* EMU_STRIP rows of D by `count` columns, in the lanes of a part of N. */
struct block {
    int part, row, column, count;
};

static void accumulate(const struct emu_mma *call, const uint32_t *disabled, struct block d, uint32_t *tensor) {
    for (int i = 0; i < EMU_STRIP; i++) {
        int row = d.row + i, below = row + d.part * (EMU_LANES / 2);
        int lane = call->spread ? row / 16 * EMU_QUADRANT + row % 16 + call->lane : below;
        if (disabled[lane / 32] >> lane % 32 & 1)
            continue;
        uint32_t *words = tensor + lane * EMU_COLUMNS + call->column + d.column;
        const float *from = sums + i * EMU_BLOCK;
        if (call->d_type == EMU_D_F16)
            accumulate_f16(call, words, from, d.count);
        else if (call->d_type == EMU_D_S32)
            accumulate_s32(call, words, from, d.count);
        else if (d.count == EMU_BLOCK)
            accumulate_f32(call, words, from, EMU_BLOCK);
        else
            accumulate_f32(call, words, from, d.count);
    }
}

static void multiply(const struct emu_mma *call, const struct emu_cta *cta, const uint32_t *disabled,
                     enum emu_precision precision) {
    int count = call->n / call->parts, panel = 0;
    emu_begin(precision);
    for (int part = 0; part < call->parts; part++)
        for (int column = 0; column < count; column += EMU_BLOCK) {
            int columns = count - column < EMU_BLOCK ? count - column : EMU_BLOCK;
            int panels = (columns + EMU_PANEL - 1) / EMU_PANEL;
            for (int row = 0; row < call->a.rows; row += EMU_STRIP) {
                for (int i = 0; i < panels; i++)
                    emu_multiply(precision, &a_matrix, row, call->k, &b_panels, panel + i, sums + i * EMU_PANEL);
                accumulate(call, disabled, (struct block){part, row, column, columns}, cta->tensor);
            }
            panel += panels;
        }
    emu_end(precision);
}

int emu_mma(const struct emu_mma *call, const uint8_t *shared, uint32_t *tensor, const uint8_t *odd_shared,
            uint32_t *odd_tensor) {
    const struct emu_cta ctas[2] = {{shared, tensor}, {odd_shared, odd_tensor}};
    uint8_t a_bytes[EMU_LANES * EMU_ROW_BYTES], b_bytes[EMU_MAX_ROWS * EMU_ROW_BYTES];
    uint32_t a_codes[EMU_LANES], b_codes[2][EMU_MAX_ROWS];
    enum emu_precision precision, arranged = 0;
    for (int i = 0; i < call->ctas; i++)
        emu_fetch(&call->b, call, &ctas[i], b_bytes + i * call->b.rows * EMU_ROW_BYTES);
    for (int i = 0; i < call->ctas; i++) {
        if (emu_fetch(&call->a, call, &ctas[i], a_bytes))
            return 1;
        if (call->a.scales && (emu_fetch_scales(&call->a, &ctas[i], a_codes) ||
                               emu_fetch_scales(&call->b, &ctas[i], b_codes[i])))
            return 1;
        precision = precision_of(call, a_codes, b_codes[i]);
        emu_decode(&call->a, call->a.rows, call->k, a_bytes, a_codes, precision, &a_matrix);
        /* Both CTAs of a pair use B, and usually have the same scale factors of it. */
        if (i == 0 || precision != arranged ||
            (call->b.scales && memcmp(b_codes[0], b_codes[1], call->n * sizeof **b_codes))) {
            emu_decode(&call->b, call->n, call->k, b_bytes, b_codes[i], precision, &b_rows);
            emu_arrange(call, precision, &b_rows, &b_panels);
            arranged = precision;
        }
        multiply(call, &ctas[i], call->disabled[i], precision);
    }
    return 0;
}
