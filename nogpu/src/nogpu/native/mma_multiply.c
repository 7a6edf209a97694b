// Products of decoded operands: with AMX where the CPU has it and bfloat16 holds the operands, else by vectors.
//
// Both ways sum in float, from zero, each in its own order. AMX takes subnormals for zero: its operands have none, and
// D is added outside of it.

#include "mma.h"
#include "fused.h"

static void store_f32(f32 *to, v_f32 values) { *(v_f32_in_memory *)to = values; }

static void store_f64(f32 *to, v_f64 values) {
    for (unsigned lane = 0; lane < VECTOR / sizeof *to / 2; lane++) to[lane] = values[lane];
}

// sums[STRIP][BLOCK] = a[STRIP][k] panel[k][PANEL], in blocks of ROWS by VECTORS kept in registers.
#define DEFINE_PRODUCT(type, real)                                                                                   \
    static void multiply_##type(const real *a, int k, const real *panel, f32 *sums) {                              \
        enum { LANES = VECTOR / sizeof(real), WIDTH = LANES * VECTORS };                                             \
        for (int column = 0; column < PANEL; column += WIDTH)                                                    \
            for (int row = 0; row < STRIP; row += ROWS) {                                                        \
                v_##type sum[ROWS][VECTORS] = {0};                                                                   \
                for (int i = 0; i < k; i++) {                                                                        \
                    const v_##type##_in_memory *b = (const void *)(panel + i * PANEL + column);                  \
                    for (int r = 0; r < ROWS; r++) {                                                                 \
                        v_##type element = a[(row + r) * k + i] - (v_##type){0};                                     \
                        for (int v = 0; v < VECTORS; v++)                                                            \
                            sum[r][v] = FUSED_##type(element, b[v], sum[r][v]);                                      \
                    }                                                                                                \
                }                                                                                                    \
                for (int r = 0; r < ROWS; r++)                                                                       \
                    for (int v = 0; v < VECTORS; v++)                                                                \
                        store_##type(sums + (row + r) * BLOCK + column + v * LANES, sum[r][v]);                  \
            }                                                                                                        \
    }

DEFINE_PRODUCT(f32, f32)
DEFINE_PRODUCT(f64, f64)

static inline __attribute__((always_inline)) void add_block(const f32 *a, int k, const f32 *panel, int column,
                                                            f32 *const *d, int at, f32 sign, int accumulate) {
    v_f32 sum[ROWS][VECTORS] = {0};
    for (int i = 0; i < k; i++) {
        const v_f32_in_memory *b = (const void *)(panel + i * PANEL + column);
        for (int r = 0; r < ROWS; r++) {
            v_f32 element = a[r * k + i] - (v_f32){0};
            for (int v = 0; v < VECTORS; v++) sum[r][v] = FUSED_f32(element, b[v], sum[r][v]);
        }
    }
    for (int r = 0; r < ROWS; r++) {
        v_f32_in_memory *to = (void *)(d[r] + at + column);
        for (int v = 0; v < VECTORS; v++) {
            v_f32 result = sum[r][v] * sign;
            // A product with 1 is exact, and it is the NaN of D that is kept if the sum is one, too.
            if (accumulate) result = FUSED_f32(to[v], (v_f32){0} + 1, result);
            to[v] = result;
        }
    }
}

void add_products(const Matrix *a, int row, int k, const Matrix *panels, int panel, int count, f32 *const *d, f32 sign,
                  int accumulate) {
    for (int r = 0; r < TOGETHER; r += ROWS)
        for (int p = 0; p < count; p++) {
            const f32 *rows = a->singles + (row + r) * k, *b = panels->singles + (panel + p) * k * PANEL;
            for (int column = 0; column < PANEL; column += VECTOR / sizeof(f32) * VECTORS)
                if (k == 16) add_block(rows, 16, b, column, d + r, p * PANEL, sign, accumulate);
                else add_block(rows, k, b, column, d + r, p * PANEL, sign, accumulate);
        }
}

#if defined(__AMX_BF16__) && defined(__AVX512BW__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>

enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };  // arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)
enum { TILE_ROWS = 16, TILE_BYTES = 64, TILE_K = 32 };

static int has_amx(void) { return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0; }

// Configuration of all eight tiles. It is constant because GCC thinks that the instruction reads its first bytes only.
static const struct {
    u8 palette, start_row, reserved[14];
    u16 row_bytes[16];
    u8 rows[16];
} configuration = {
    .palette = 1,
    .row_bytes = {TILE_BYTES, TILE_BYTES, TILE_BYTES, TILE_BYTES, TILE_BYTES, TILE_BYTES, TILE_BYTES, TILE_BYTES},
    .rows = {TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS},
};

static void begin_bf16(void) {
    _tile_loadconfig(&configuration);
    // GCC does not know that tiles are loaded from memory, where the operands are.
    __asm__ volatile("" ::: "memory");
}

static void end_bf16(void) { _tile_release(); }

// sums[STRIP][BLOCK] = a[STRIP][k] panel[k / 2][PANEL], elements in pairs: two by two tiles.
static void multiply_bf16(const u16 *a, int k, const u32 *panel, f32 *sums) {
    f32 *lower = sums + TILE_ROWS * BLOCK;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int i = 0; i < k; i += TILE_K) {
        const u32 *b = panel + i / 2 * PANEL;
        _tile_loadd(4, a + i, k * 2);
        _tile_loadd(5, a + TILE_ROWS * k + i, k * 2);
        _tile_loadd(6, b, PANEL * 4);
        _tile_loadd(7, b + TILE_ROWS, PANEL * 4);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sums, BLOCK * 4);
    _tile_stored(1, sums + TILE_ROWS, BLOCK * 4);
    _tile_stored(2, lower, BLOCK * 4);
    _tile_stored(3, lower + TILE_ROWS, BLOCK * 4);
}

// 16 bytes are 32 elements, of two blocks of 16: one shuffle of a table of twice 16 products takes them all.
void pairs_to_bf16(const Operand *operand, int rows, const u8 *packed, const u32 *codes, u16 *out) {
    const __m128i low = _mm_set1_epi8(15), second = _mm_set1_epi8(16);
    int shift = operand->scale_count == 4 ? 8 : 0;  // distance to the second block's factor, if it has one of its own
    for (int row = 0; row < rows; row++)
        for (int half = 0; half < 2; half++) {
            u32 factors = codes[row] >> (8 + shift) * half;
            __m256i table = _mm256_loadu_si256((const void *)(operand->products + 16 * (factors & 0xFF)));
            __m256i next = _mm256_loadu_si256((const void *)(operand->products + 16 * (factors >> shift & 0xFF)));
            __m128i bytes = _mm_loadu_si128((const void *)(packed + row * ROW_BYTES + CHUNK * half));
            __m128i even = _mm_and_si128(bytes, low), odd = _mm_and_si128(_mm_srli_epi16(bytes, 4), low);
            __m256i index = _mm256_set_m128i(_mm_or_si128(_mm_unpackhi_epi8(even, odd), second),
                                             _mm_unpacklo_epi8(even, odd));
            __m512i tables = _mm512_inserti64x4(_mm512_castsi256_si512(table), next, 1);
            _mm512_storeu_si512(out + row * PART_K + 32 * half,
                                _mm512_permutexvar_epi16(_mm512_cvtepu8_epi16(index), tables));
        }
}

#else

static int has_amx(void) { return 0; }

// These functions are never called: without AMX nothing is decoded to bfloat16.
static void begin_bf16(void) {}

static void end_bf16(void) {}

static void multiply_bf16(const u16 *a, int k, const u32 *panel, f32 *sums) {
    (void)a, (void)k, (void)panel, (void)sums;
}

void pairs_to_bf16(const Operand *operand, int rows, const u8 *packed, const u32 *codes, u16 *out) {
    (void)operand, (void)rows, (void)packed, (void)codes, (void)out;
}

#endif

static int amx = -1;  // unknown

int multiplies_by_amx(void) {
    if (amx < 0) amx = has_amx();
    return amx;
}

int use_amx(int wanted) {
    amx = wanted && has_amx();
    return amx;
}

// to[columns][PANEL] = from[4][columns].
static void transpose_words(const u32 *from, int columns, u32 *to) {
    for (int column = 0; column < columns; column += 4) {
        Four row[4];
        for (int i = 0; i < 4; i++) memcpy(&row[i], from + i * columns + column, sizeof row[i]);
        Two low01 = (Two)SHUFFLE(Four, row[0], row[1], 0, 4, 1, 5);
        Two high01 = (Two)SHUFFLE(Four, row[0], row[1], 2, 6, 3, 7);
        Two low23 = (Two)SHUFFLE(Four, row[2], row[3], 0, 4, 1, 5);
        Two high23 = (Two)SHUFFLE(Four, row[2], row[3], 2, 6, 3, 7);
        Two out[4] = {
            SHUFFLE(Two, low01, low23, 0, 2),
            SHUFFLE(Two, low01, low23, 1, 3),
            SHUFFLE(Two, high01, high23, 0, 2),
            SHUFFLE(Two, high01, high23, 1, 3),
        };
        for (int i = 0; i < 4; i++) memcpy(to + (column + i) * PANEL, &out[i], sizeof out[i]);
    }
}

// Arranges rows, [n][k], in panels. Each part of N begins a panel. N and its parts are multiples of 8.
void arrange_panels(const Mma *call, Precision precision, const Matrix *rows, Matrix *panels) {
    int k = call->k, words = precision == IN_BF16 ? k / 2 : k, count = call->n / call->parts;
    int part_panels = (count + PANEL - 1) / PANEL;
    for (int row = 0; row < call->n; row += 4) {
        int panel = row / count * part_panels + row % count / PANEL, column = row % count % PANEL;
        int to = panel * words * PANEL + column;
        if (precision != IN_DOUBLE) {
            transpose_words(rows->words + row * words, words, panels->words + to);
            continue;
        }
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < k; j++) panels->doubles[to + j * PANEL + i] = rows->doubles[(row + i) * k + j];
    }
}

void begin_products(Precision precision) {
    if (precision == IN_BF16) begin_bf16();
}

void end_products(Precision precision) {
    if (precision == IN_BF16) end_bf16();
}

void multiply_panel(Precision precision, const Matrix *a, int row, int k, const Matrix *panels, int panel, f32 *sums) {
    if (precision == IN_BF16) multiply_bf16(a->bf16 + row * k, k, panels->words + panel * (k / 2) * PANEL, sums);
    else if (precision == IN_FLOAT) multiply_f32(a->singles + row * k, k, panels->singles + panel * k * PANEL, sums);
    else multiply_f64(a->doubles + row * k, k, panels->doubles + panel * k * PANEL, sums);
}
