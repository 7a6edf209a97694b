// Operands of tcgen05.mma: bytes from the memories, and their numbers.

#include "mma.h"

// 16 bytes hold 16 codes of 4 or 6 bits, then padding; eight codes begin at a byte.
static void unpack_chunk(const u8 *chunk, int bits, u8 *codes) {
    for (int start = 0; start < CHUNK; start += 8) {
        u64 word;
        memcpy(&word, chunk + start / 8 * bits, sizeof word);
        for (int i = 0; i < 8; i++) codes[start + i] = word >> bits * i & ((1 << bits) - 1);
    }
}

static int is_unpacked(const Operand *operand) { return operand->format == BYTES && operand->bits < 8; }

// Gathers rows along K, two items each.
static void fetch_rows(const Operand *operand, int rows, const u8 *shared, u8 *packed) {
    for (int i = 0; i < 2 * rows; i++) {
        const u8 *item = shared + CHUNK * operand->chunks[i];
        if (is_unpacked(operand)) unpack_chunk(item, operand->bits, packed + CHUNK * i);
        else memcpy(packed + CHUNK * i, item, CHUNK);
    }
}

// Transposes `k` rows along M or N, with elements of `width` bytes, to rows along K.
#define TRANSPOSE(type)                                                                                \
    for (int row = 0; row < per_chunk; row++) {                                                        \
        type element;                                                                                  \
        memcpy(&element, item + row * sizeof element, sizeof element);                                 \
        memcpy(to + row * pitch, &element, sizeof element);                                        \
    }

static void fetch_transposed(const Operand *operand, int k, int pitch, const u8 *shared, u8 *packed) {
    int width = operand->width, per_chunk = CHUNK / width, chunks = operand->rows / per_chunk;
    const s64 *place = operand->chunks;
    for (int i = 0; i < k; i++)
        for (int chunk = 0; chunk < chunks; chunk++) {
            const u8 *item = shared + CHUNK * *place++;
            u8 *to = packed + chunk * per_chunk * pitch + i * width, codes[CHUNK];
            if (is_unpacked(operand)) {
                unpack_chunk(item, operand->bits, codes);
                item = codes;
            }
            if (width == 1)
                TRANSPOSE(u8)
            else if (width == 2)
                TRANSPOSE(u16)
            else
                TRANSPOSE(u32)
        }
}

// A in tensor memory is in the lanes of D's rows. If both halves of the lanes have D's rows, they have A's as well.
int fetch_lanes(const Operand *operand, const Mma *call, const u32 *tensor, int part, u8 *packed) {
    for (int row = 0; row < operand->rows; row++) {
        const u32 *words = tensor + (lane_of(call, row) + part * operand->rows) * TMEM_COLUMNS + operand->column;
        memcpy(packed + row * ROW_BYTES, words, ROW_BYTES);
        if (call->parts == 2 && !call->apart && memcmp(words, words + TMEM_LANES / 2 * TMEM_COLUMNS, ROW_BYTES)) return 1;
    }
    return 0;
}

// Returns 1 if copies of A differ.
int fetch_operand(const Operand *operand, const Mma *call, const Cta *cta, int halves, u8 *packed) {
    if (!operand->chunks) return fetch_lanes(operand, call, cta->tensor, 0, packed);
    if (operand->width)
        fetch_transposed(operand, call->k / call->halves * halves, ROW_BYTES * halves, cta->shared, packed);
    else fetch_rows(operand, operand->rows * halves, cta->shared, packed);
    return 0;
}

// Indices of a row, four bits a chunk. Of units of two bytes, rows that are eight apart share words.
static u64 indices_of(const Mma *call, const u32 *tensor, int row) {
    const u32 *word = tensor + call->metadata + lane_of(call, call->unit == 1 ? row : row & ~8) * TMEM_COLUMNS;
    if (call->unit == 1) return word[0] | (u64)word[1] << 32;
    int shift = row & 8 ? 16 : 0;
    return (word[0] >> shift & 0xFFFF) | (word[8 * TMEM_COLUMNS] >> shift) << 16;
}

int expand_rows(const Mma *call, const Cta *cta, const u8 *stored, u8 *rows) {
    static const u8 zeros[4] = {0};
    int unit = call->unit, chunks = ROW_BYTES / (2 * unit);
    memset(rows, 0, 2 * call->a.rows * ROW_BYTES);
    for (int row = 0; row < call->a.rows; row++) {
        u64 indices = indices_of(call, cta->tensor, row);
        for (int chunk = 0; chunk < chunks; chunk++, indices >>= 4, stored += 2 * unit, rows += 4 * unit) {
            int index = indices & 15;
            if (call->legal >> index & 1) {
                memcpy(rows + (index & 3) * unit, stored, unit);
                memcpy(rows + (index >> 2) * unit, stored + unit, unit);
            } else if (memcmp(stored, zeros, 2 * unit)) return 1 + row * ROW_CHUNKS + chunk;
        }
    }
    return 0;
}

// Factors of a half of a row, a byte each.
static u32 of_half(u32 factors, const Operand *operand, int halves, int half) {
    u32 found = 0;
    for (int i = 0; i < operand->scale_count; i++) {
        int factor = (half * operand->scale_count + i) * operand->row_scales / (halves * operand->scale_count);
        found |= (factors >> 8 * factor & 0xFF) << 8 * i;
    }
    return found;
}

// Fetches scale factors. Those of row r are bytes of the word in lane r % 32, column r / 32, of every quadrant of its
// part, or of lane r. Returns 1 if the quadrants differ.
int fetch_scales(const Operand *operand, const Cta *cta, int halves, u32 *codes) {
    int quadrants = TMEM_LANES / QUADRANT / operand->scale_parts, shift = 8 * operand->scale_byte;
    u32 mask = (operand->row_scales == 4 ? ~0u : (1u << 8 * operand->row_scales) - 1) << shift;
    u32 differing = 0;
    if (operand->scales_in_lanes) {
        for (int row = 0; row < operand->scale_rows; row++)
            codes[row] = (cta->tensor[row * TMEM_COLUMNS + operand->scale_column] & mask) >> shift;
        return 0;
    }
    for (int part = 0; part < operand->scale_parts; part++) {
        const u32 *first = cta->tensor + part * quadrants * QUADRANT * TMEM_COLUMNS + operand->scale_column;
        u32 *to = codes + part * operand->scale_rows * halves;
        for (int lane = 0; lane < QUADRANT; lane++)
            for (int row = lane; row < operand->scale_rows; row += QUADRANT) {
                const u32 *word = first + lane * TMEM_COLUMNS + row / QUADRANT;
                for (int quadrant = 1; quadrant < quadrants; quadrant++)
                    differing |= *word ^ word[quadrant * QUADRANT * TMEM_COLUMNS];
                differing &= mask;
                if (differing) return 1;
                u32 factors = (*word & mask) >> shift;
                if (halves == 1) to[row] = factors;
                else
                    for (int half = 0; half < halves; half++)
                        to[row * halves + half] = of_half(factors, operand, halves, half);
            }
    }
    return 0;
}

static void look_up(const f32 *values, const u8 *codes, f32 *out) {
    for (int i = 0; i < ROW_BYTES; i++) out[i] = values[codes[i]];
}

static void elements_of_row(const Operand *operand, const u8 *packed, f32 *out) {
    int bits = operand->bits;
    u8 codes[ROW_BYTES];
    switch (operand->format) {
    case PAIRS:
        for (int i = 0; i < ROW_BYTES; i++) memcpy(out + 2 * i, operand->values + 2 * packed[i], 2 * sizeof *out);
        break;
    case BYTES: look_up(operand->values, packed, out); break;
    case PADDED:
        unpack_chunk(packed, bits, codes);
        unpack_chunk(packed + CHUNK, bits, codes + CHUNK);
        look_up(operand->values, codes, out);
        break;
    case PACKED: {
        u8 row[ROW_BYTES + 8] = {0};  // eight bytes are read where six end
        memcpy(row, packed, ROW_BYTES);
        unpack_chunk(row + operand->first, bits, codes);
        unpack_chunk(row + operand->first + 2 * bits, bits, codes + CHUNK);
        look_up(operand->values, codes, out);
        break;
    }
    case HELD:
        for (int i = 0; i < ROW_BYTES; i++) codes[i] = packed[i] >> (8 - bits) / 2 & ((1 << bits) - 1);
        look_up(operand->values, codes, out);
    }
}

static void decode_numbers(int format, int nbytes, const void *packed, f32 *out) {
    const u16 *halves = packed;
    const u32 *words = packed;
    if (format == F16) singles_of_halves(out, halves, nbytes / 2);
    else if (format == BF16)
        for (int i = 0; i < nbytes / 2; i++) out[i] = single_of_brain(halves[i]);
    else
        for (int i = 0; i < nbytes / 4; i++) out[i] = f32_of(words[i] & 0xFFFFE000);  // a tf32 has 19 bits
}

static void decode_codes(const Operand *operand, int rows, int k, const u8 *packed,
                         const u32 *codes, Precision precision, Matrix *out) {
    int block = operand->scales ? k / operand->scale_count : k;
    for (int row = 0; row < rows; row++) {
        f32 elements[PART_K], factors[4] = {1};
        elements_of_row(operand, packed + row * ROW_BYTES, elements);
        if (operand->scales)
            for (int i = 0; i < operand->scale_count; i++) factors[i] = operand->scales[codes[row] >> 8 * i & 0xFF];
        for (int start = 0; start < k; start += block) {
            f32 factor = factors[start / block];
            int at = row * k + start;
            for (int i = 0; i < block; i++)
                if (precision == IN_DOUBLE) out->doubles[at + i] = (f64)elements[start + i] * factor;
                else if (precision == IN_FLOAT) out->singles[at + i] = elements[start + i] * factor;
                else out->bf16[at + i] = bits_of(elements[start + i] * factor) >> 16;
        }
    }
}

void decode_operand(const Operand *operand, int rows, int k, const u8 *packed, const u32 *codes,
                Precision precision, Matrix *out) {
    if (!operand->values) decode_numbers(operand->format, rows * ROW_BYTES, packed, out->singles);
    else if (precision == IN_BF16 && operand->products) pairs_to_bf16(operand, rows, packed, codes, out->bf16);
    else decode_codes(operand, rows, k, packed, codes, precision, out);
}
