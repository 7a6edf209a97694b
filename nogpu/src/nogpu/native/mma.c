// tcgen05.mma: one instruction in its CTAs (mma.h).

#include "mma.h"

// Python's lock protects these matrices: the library's functions run under it.
static Matrix a_matrix, b_rows, b_panels;
static f32 sums[STRIP * BLOCK] __attribute__((aligned(64)));

typedef struct {
    int low, high;  // exponents: multiples of 2**low, less than 2**high in magnitude
} Range;

// Range of the scaled elements, without NaN.
static Range range_of(const Operand *operand, int rows, const u32 *codes) {
    int low = NAN_SCALE, high = -1;
    for (int row = 0; row < rows; row++)
        for (int i = 0; i < operand->scale_count; i++) {
            int code = codes[row] >> 8 * i & 0xFF;
            low = code < low ? code : low;
            high = code > high && code != NAN_SCALE ? code : high;
        }
    if (high < 0) low = high = SCALE_BIAS;
    return (Range){low - SCALE_BIAS + operand->low, high - SCALE_BIAS + operand->high};
}

// Returns 1 if floats suffice: operands, products and sums are neither subnormal nor infinite.
static int fits_float(Range a, Range b, int k) {
    int lowest = -126, highest = 127, low = a.low + b.low, high = a.high + b.high;
    while (k > 1) {
        k = (k + 1) / 2;
        high++;
    }
    return a.low >= lowest && b.low >= lowest && low >= lowest && a.high <= highest && b.high <= highest &&
           high <= highest;
}

static Precision precision_of(const Mma *call, const u32 *a_codes, const u32 *b_codes) {
    if (call->wide &&
        !fits_float(range_of(&call->a, call->a.rows * call->halves, a_codes),
                    range_of(&call->b, call->n * call->halves, b_codes), call->k))
        return IN_DOUBLE;
    return call->narrow && multiplies_by_amx() ? IN_BF16 : IN_FLOAT;
}

// f32 -> f16, to nearest even.
static u16 float_to_half(f32 value) {
    u32 bits = bits_of(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7FFFFFFF;
    // Adding 2**-1 rounds to multiples of 2**-24, the unit of subnormal halves.
    u32 subnormal = bits_of(f32_of(magnitude) + 0.5f) - 0x3F000000;
    u32 normal = (magnitude - 0x38000000 + 0xFFF + (magnitude >> 13 & 1)) >> 13;
    u32 finite = magnitude < 0x38800000 ? subnormal : normal;
    u32 half = magnitude > 0x7F800000 ? 0x7E00 : magnitude >= 0x47800000 ? 0x7C00 : finite;
    return sign | half;
}

static void accumulate_f32(const Mma *call, u32 *words, const f32 *row, int count) {
    f32 *d = (f32 *)words, sign = call->negate ? -1 : 1, factor = 1.0f / (1 << call->d_shift);
    if (call->accumulate)
        for (int i = 0; i < count; i++) d[i] = d[i] * factor + sign * row[i];
    else
        for (int i = 0; i < count; i++) d[i] = sign * row[i];
}

// A 16-bit element takes the low half of a word (PTX ISA, Packing format for matrix D in Tensor Memory).
static void accumulate_f16(const Mma *call, u32 *words, const f32 *row, int count) {
    f32 sign = call->negate ? -1 : 1, factor = 1.0f / (1 << call->d_shift), before[BLOCK];
    u16 halves[BLOCK] = {0};
    for (int i = 0; i < count; i++) halves[i] = (u16)words[i];
    singles_of_halves(before, halves, BLOCK);
    for (int i = 0; i < count; i++) {
        f32 sum = sign * row[i];
        if (call->accumulate) sum += before[i] * factor;
        words[i] = 0xFFFF0000 | float_to_half(sum);
    }
}

static void accumulate_s32(const Mma *call, u32 *words, const f32 *row, int count) {
    if (!call->accumulate)
        for (int i = 0; i < count; i++) words[i] = (u32)(s32)row[i];
    else if (!call->saturate)
        for (int i = 0; i < count; i++) words[i] += (u32)(s32)row[i];
    else
        for (int i = 0; i < count; i++) {
            s64 sum = (s64)(s32)words[i] + (s32)row[i];
            words[i] = (u32)(sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum);
        }
}

// Block of D: STRIP rows by `count` columns, in the lanes of a part of N.
typedef struct {
    int part, row, column, count;
} Block;

static void accumulate(const Mma *call, const u32 *disabled, Block d, u32 *tensor) {
    for (int i = 0; i < STRIP; i++) {
        int lane = lane_of(call, d.row + i) + d.part * (TMEM_LANES / call->parts);
        if (disabled[lane / 32] >> lane % 32 & 1) continue;
        u32 *words = tensor + lane * TMEM_COLUMNS + call->column + d.column;
        const f32 *from = sums + i * BLOCK;
        if (call->d_type == D_F16) accumulate_f16(call, words, from, d.count);
        else if (call->d_type == D_S32) accumulate_s32(call, words, from, d.count);
        else if (d.count == BLOCK) accumulate_f32(call, words, from, BLOCK);
        else accumulate_f32(call, words, from, d.count);
    }
}

// Multiplies A by a part of B in whole panels, and adds the sums to a D in single precision of which every lane changes.
static void add_in_place(const Mma *call, const Cta *cta, int part, int panel, int panels) {
    for (int row = 0; row < call->a.rows; row += TOGETHER) {
        f32 *d[TOGETHER];
        for (int i = 0; i < TOGETHER; i++) {
            int lane = lane_of(call, row + i) + part * (TMEM_LANES / call->parts);
            d[i] = (f32 *)(cta->tensor + lane * TMEM_COLUMNS + call->column);
        }
        add_products(&a_matrix, row, call->k, &b_panels, panel, panels, d, call->negate ? -1 : 1, call->accumulate);
    }
}

// Multiplies A by a part of B, the first of whose panels is `panel`. Returns the next part's first.
static int multiply(const Mma *call, const Cta *cta, const u32 *disabled, Precision precision, int part, int panel) {
    int count = call->n / call->parts;
    u32 kept = disabled[0] | disabled[1] | disabled[2] | disabled[3];
    if (precision == IN_FLOAT && call->d_type == D_F32 && !call->d_shift && count % PANEL == 0 && !kept) {
        add_in_place(call, cta, part, panel, count / PANEL);
        return panel + count / PANEL;
    }
    begin_products(precision);
    for (int column = 0; column < count; column += BLOCK) {
        int columns = count - column < BLOCK ? count - column : BLOCK;
        int panels = (columns + PANEL - 1) / PANEL;
        for (int row = 0; row < call->a.rows; row += STRIP) {
            for (int i = 0; i < panels; i++)
                multiply_panel(precision, &a_matrix, row, call->k, &b_panels, panel + i, sums + i * PANEL);
            accumulate(call, disabled, (Block){part, row, column, columns}, cta->tensor);
        }
        panel += panels;
    }
    end_products(precision);
    return panel;
}

int mma(const Mma *call, const u8 *shared, u32 *tensor, const u8 *odd_shared, u32 *odd_tensor) {
    const Cta ctas[2] = {{shared, tensor}, {odd_shared, odd_tensor}};
    int halves = call->halves, a_count = call->a.rows * halves, b_count = call->n * halves, k = call->k / halves;
    u8 stored[TMEM_LANES * ROW_BYTES], a_bytes[2 * TMEM_LANES * ROW_BYTES], b_bytes[2 * MAX_ROWS * ROW_BYTES];
    u32 a_codes[2 * TMEM_LANES], b_codes[2][2 * MAX_ROWS];
    Precision precision, arranged = 0;
    for (int i = 0; i < call->ctas; i++)
        fetch_operand(&call->b, call, &ctas[i], halves, b_bytes + i * call->b.rows * halves * ROW_BYTES);
    for (int column = 0; column < call->n; column++)
        if (call->zero_columns[column / 32] >> column % 32 & 1)
            memset(b_bytes + column * halves * ROW_BYTES, 0, halves * ROW_BYTES);
    for (int i = 0; i < call->ctas; i++) {
        if (fetch_operand(&call->a, call, &ctas[i], 1, halves == 1 ? a_bytes : stored)) return 1;
        int illegal = halves == 1 ? 0 : expand_rows(call, &ctas[i], stored, a_bytes);
        if (illegal) return ILLEGAL_INDEX + i * TMEM_LANES * ROW_CHUNKS + illegal - 1;
        if (call->a.scales && (fetch_scales(&call->a, &ctas[i], halves, a_codes) ||
                               fetch_scales(&call->b, &ctas[i], halves, b_codes[i])))
            return 1;
        precision = precision_of(call, a_codes, b_codes[i]);
        decode_operand(&call->a, a_count, k, a_bytes, a_codes, precision, &a_matrix);
        // Both CTAs of a pair use B, and usually have the same scale factors of it.
        if (i == 0 || precision != arranged ||
            (call->b.scales && memcmp(b_codes[0], b_codes[1], b_count * sizeof **b_codes))) {
            decode_operand(&call->b, b_count, k, b_bytes, b_codes[i], precision, &b_rows);
            arrange_panels(call, precision, &b_rows, &b_panels);
            arranged = precision;
        }
        for (int part = 0, panel = 0; part < call->parts; part++) {
            if (part && call->apart) {
                fetch_lanes(&call->a, call, ctas[i].tensor, part, a_bytes);
                decode_operand(&call->a, call->a.rows, call->k, a_bytes, a_codes, precision, &a_matrix);
            }
            panel = multiply(call, &ctas[i], call->disabled[i], precision, part, panel);
        }
    }
    return 0;
}

int multiply_parts(const void *const *products, s64 count, const u8 *shared, u32 *tensor, const u8 *odd_shared,
                   u32 *odd_tensor) {
    int refused = 0;
    for (s64 i = 0; i < count && !refused; i++) refused = mma(products[i], shared, tensor, odd_shared, odd_tensor);
    return refused;
}
