/* Operands of tcgen05.mma: bytes from the memories, and their numbers. */

#include "mma.h"

/* Rows along K, two items each. */
static void fetch_rows(const struct emu_operand *operand, const uint8_t *shared, uint8_t *packed) {
    for (int i = 0; i < 2 * operand->rows; i++)
        memcpy(packed + EMU_CHUNK * i, shared + EMU_CHUNK * operand->chunks[i], EMU_CHUNK);
}

/* Rows along M or N, `k` of them, whose elements of `width` bytes become rows along K. */
#define TRANSPOSE(type)                                                                                \
    for (int row = 0; row < per_chunk; row++) {                                                        \
        type element;                                                                                  \
        memcpy(&element, item + row * sizeof element, sizeof element);                                 \
        memcpy(to + row * EMU_ROW_BYTES, &element, sizeof element);                                    \
    }

static void fetch_transposed(const struct emu_operand *operand, int k, const uint8_t *shared, uint8_t *packed) {
    int width = operand->width, per_chunk = EMU_CHUNK / width, chunks = operand->rows / per_chunk;
    const int64_t *place = operand->chunks;
    for (int i = 0; i < k; i++)
        for (int chunk = 0; chunk < chunks; chunk++) {
            const uint8_t *item = shared + EMU_CHUNK * *place++;
            uint8_t *to = packed + chunk * per_chunk * EMU_ROW_BYTES + i * width;
            if (width == 1)
                TRANSPOSE(uint8_t)
            else if (width == 2)
                TRANSPOSE(uint16_t)
            else
                TRANSPOSE(uint32_t)
        }
}

/* A in tensor memory, in the lanes of D's rows; where both halves of the lanes have D's rows they have A's as well. */
static int fetch_lanes(const struct emu_operand *operand, const struct emu_mma *call, const uint32_t *tensor,
                       uint8_t *packed) {
    for (int row = 0; row < operand->rows; row++) {
        int lane = call->spread ? row / 16 * EMU_QUADRANT + row % 16 + call->lane : row;
        const uint32_t *words = tensor + lane * EMU_COLUMNS + operand->column;
        memcpy(packed + row * EMU_ROW_BYTES, words, EMU_ROW_BYTES);
        if (call->parts == 2 && memcmp(words, words + EMU_LANES / 2 * EMU_COLUMNS, EMU_ROW_BYTES))
            return 1;
    }
    return 0;
}

/* Returns 1 if copies of A differ. */
int emu_fetch(const struct emu_operand *operand, const struct emu_mma *call, const struct emu_cta *cta,
              uint8_t *packed) {
    if (!operand->chunks)
        return fetch_lanes(operand, call, cta->tensor, packed);
    if (operand->width)
        fetch_transposed(operand, call->k, cta->shared, packed);
    else
        fetch_rows(operand, cta->shared, packed);
    return 0;
}

/* The factors of row r are bytes of the word in lane r % 32, column r / 32, of every quadrant of its part. Returns 1 if
 * the quadrants differ. */
int emu_fetch_scales(const struct emu_operand *operand, const struct emu_cta *cta, uint32_t *codes) {
    int quadrants = EMU_LANES / EMU_QUADRANT / operand->scale_parts, shift = 8 * operand->scale_byte;
    uint32_t mask = (operand->scale_count == 4 ? ~0u : (1u << 8 * operand->scale_count) - 1) << shift;
    uint32_t differing = 0;
    for (int part = 0; part < operand->scale_parts; part++) {
        const uint32_t *first = cta->tensor + part * quadrants * EMU_QUADRANT * EMU_COLUMNS + operand->scale_column;
        uint32_t *to = codes + part * operand->scale_rows;
        for (int lane = 0; lane < EMU_QUADRANT; lane++)
            for (int row = lane; row < operand->scale_rows; row += EMU_QUADRANT) {
                const uint32_t *word = first + lane * EMU_COLUMNS + row / EMU_QUADRANT;
                for (int quadrant = 1; quadrant < quadrants; quadrant++)
                    differing |= *word ^ word[quadrant * EMU_QUADRANT * EMU_COLUMNS];
                differing &= mask;
                if (differing)
                    return 1;
                to[row] = (*word & mask) >> shift;
            }
    }
    return 0;
}

/* 16 bytes hold 16 codes of 4 or 6 bits, then padding; eight codes begin at a byte. */
static void unpack_chunk(const uint8_t *chunk, int bits, uint8_t *codes) {
    for (int start = 0; start < EMU_CHUNK; start += 8) {
        uint64_t word;
        memcpy(&word, chunk + start / 8 * bits, sizeof word);
        for (int i = 0; i < 8; i++)
            codes[start + i] = word >> bits * i & ((1 << bits) - 1);
    }
}

static void look_up(const float *values, const uint8_t *codes, float *out) {
    for (int i = 0; i < EMU_ROW_BYTES; i++)
        out[i] = values[codes[i]];
}

static void elements_of_row(const struct emu_operand *operand, const uint8_t *packed, float *out) {
    int bits = operand->bits;
    uint8_t codes[EMU_ROW_BYTES];
    switch (operand->format) {
    case EMU_PAIRS:
        for (int i = 0; i < EMU_ROW_BYTES; i++)
            memcpy(out + 2 * i, operand->values + 2 * packed[i], 2 * sizeof *out);
        break;
    case EMU_BYTES:
        look_up(operand->values, packed, out);
        break;
    case EMU_PADDED:
        unpack_chunk(packed, bits, codes);
        unpack_chunk(packed + EMU_CHUNK, bits, codes + EMU_CHUNK);
        look_up(operand->values, codes, out);
        break;
    case EMU_HELD:
        for (int i = 0; i < EMU_ROW_BYTES; i++)
            codes[i] = packed[i] >> (8 - bits) / 2 & ((1 << bits) - 1);
        look_up(operand->values, codes, out);
    }
}

static void decode_numbers(int format, int nbytes, const void *packed, float *out) {
    const uint16_t *halves = packed;
    const uint32_t *words = packed;
    if (format == EMU_F16)
        for (int i = 0; i < nbytes / 2; i++)
            out[i] = emu_half_to_float(halves[i]);
    else if (format == EMU_BF16)
        for (int i = 0; i < nbytes / 2; i++)
            out[i] = emu_float((uint32_t)halves[i] << 16);
    else
        for (int i = 0; i < nbytes / 4; i++)
            /* The low 13 bits are not part of a tf32. */
            out[i] = emu_float(words[i] & 0xFFFFE000);
}

static void decode_codes(const struct emu_operand *operand, int rows, int k, const uint8_t *packed,
                         const uint32_t *codes, enum emu_precision precision, union emu_matrix *out) {
    int block = operand->scales ? k / operand->scale_count : k;
    for (int row = 0; row < rows; row++) {
        float elements[EMU_MAX_K], factors[4] = {1};
        elements_of_row(operand, packed + row * EMU_ROW_BYTES, elements);
        if (operand->scales)
            for (int i = 0; i < operand->scale_count; i++)
                factors[i] = operand->scales[codes[row] >> 8 * i & 0xFF];
        for (int start = 0; start < k; start += block) {
            float factor = factors[start / block];
            int at = row * k + start;
            for (int i = 0; i < block; i++)
                if (precision == EMU_IN_DOUBLE)
                    out->f64[at + i] = (double)elements[start + i] * factor;
                else if (precision == EMU_IN_FLOAT)
                    out->f32[at + i] = elements[start + i] * factor;
                else
                    out->bf16[at + i] = emu_bits(elements[start + i] * factor) >> 16;
        }
    }
}

void emu_decode(const struct emu_operand *operand, int rows, int k, const uint8_t *packed, const uint32_t *codes,
                enum emu_precision precision, union emu_matrix *out) {
    if (!operand->values)
        decode_numbers(operand->format, rows * EMU_ROW_BYTES, packed, out->f32);
    else if (precision == EMU_IN_BF16 && operand->products)
        emu_pairs_to_bf16(operand, rows, packed, codes, out->bf16);
    else
        decode_codes(operand, rows, k, packed, codes, precision, out);
}
