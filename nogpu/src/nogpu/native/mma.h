// tcgen05.mma: D = A B (+ D), from operands as they lie in the memories to D in tensor memory.
//
//   fetch         an operand's bytes, 32 a row, from shared or tensor memory
//   decode        numbers, times their scale factors, exact: bfloat16, float or double
//   arrange       B in panels of 32 columns
//   multiply      rows of A by a panel; sums in float (double for what exceeds float's range)
//   accumulate    D in place; sums in float of whole panels go to D from registers

#pragma once

#include "floats.h"
#include "tensor_memory.h"

enum {
    ROW_BYTES = 32,      // bytes of an operand's row in one instruction; B's has two halves if A is sparse
    CHUNK = 16,          // bytes that lie together in shared memory
    STRIP = 32,          // rows of D that are computed together
    BLOCK = 64,          // columns of D that are computed together: a few cache lines of a lane
    PANEL = 32,          // columns that are multiplied together
    MAX_ROWS = 256,      // rows of an operand: N; A has up to 128 in a CTA
    PART_K = 64,         // elements of a row, or of a half of it with a sparse A
    MAX_K = 2 * PART_K,
    ROW_CHUNKS = 16,     // chunks of a row of a sparse A, each with an index of its metadata
    ILLEGAL_INDEX = 2,
    NAN_SCALE = 255,     // NaN of ue8m0
    SCALE_BIAS = 127     // bias of ue8m0
};

enum {
    PAIRS,   // two 4-bit codes a byte
    BYTES,   // a code a byte, also codes of fewer than 8 bits after their transposition
    PADDED,  // 16 codes of `bits` bits, then padding, in 16 bytes
    PACKED,  // codes of `bits` bits, one after the other, from byte `first` on
    HELD,    // a code of `bits` bits in the middle of a byte
    F16,
    BF16,
    TF32,
};

enum { D_F32, D_F16, D_S32 };

typedef enum { IN_BF16, IN_FLOAT, IN_DOUBLE } Precision;

typedef struct {
    const s64 *chunks;    // numbers of the 16-byte items in shared memory, [rows][2] or, transposed, [k][...];
                          // 0: in tensor memory
    const f32 *values;    // values of codes, or float[256][2] for PAIRS; 0 if elements are numbers themselves
    const f32 *scales;    // values of scale factors' 256 codes; 0: none
    const u16 *products;  // bfloat16[256][16]: a scale factor's code, times a 4-bit element's; else 0
    s32 format;           // PAIRS to TF32
    s32 bits;             // bits of a code
    s32 first;            // byte of the first item at which a row of PACKED codes begins
    s32 width;            // bytes of an element that is transposed; 0: rows are along K
    s32 rows;             // rows in one CTA
    s32 column;           // column of tensor memory, if the operand is there
    s32 low, high;        // all values are multiples of 2**low and less than 2**high in magnitude
    s32 scale_column;     // first column of the scale factors in tensor memory
    s32 scale_rows;       // rows whose factors each part of the lanes holds
    s32 scale_parts;      // parts of the lanes, whose rows follow each other: 1 or 2
    s32 scale_byte;       // first factor's byte in the word
    s32 scales_in_lanes;  // nonzero if the factors of row r are in lane r, without copies
    s32 row_scales;       // factors of a row
    s32 scale_count;      // factors of a row, or of a half of it, when it is decoded
} Operand;

typedef struct {
    Operand a, b;
    s32 ctas;            // 1, or 2 for a pair, each with its rows of A and its part of B's
    s32 k;
    s32 n;
    s32 parts;           // parts of N, each in its own half or quarter of the lanes: 1, 2 or 4
    s32 apart;           // nonzero if each part has an A of its own, in tensor memory
    s32 spread;          // nonzero if D's rows lie in halves of the quadrants
    s32 halves;          // 2 if half of A's elements are stored, else 1
    s32 metadata;        // first column of their places
    s32 unit;            // bytes that an index of two bits places
    s32 legal;           // bits of the legal indices of four bits
    s32 lane, column;    // lane and column of D
    s32 d_type;          // D_F32 to D_S32
    s32 accumulate;
    s32 negate;
    s32 saturate;
    s32 d_shift;         // D is scaled by 2**-d_shift
    s32 narrow;          // nonzero if bfloat16 holds A and B exactly, and their products are no subnormals
    s32 wide;            // nonzero if products of scale factors, powers of two, may exceed float's range
    u32 disabled[2][4];  // bits of the lanes that keep D, per CTA
    u32 zero_columns[8];  // a bit for each column of B: it is taken as zeros
} Mma;

// An operand as numbers: [rows][k], or B in panels, [panel][k][PANEL], with bfloat16 in pairs along K.
typedef union {
    u16 bf16[MAX_ROWS * MAX_K];
    u32 words[MAX_ROWS * MAX_K];
    f32 singles[MAX_ROWS * MAX_K];
    f64 doubles[MAX_ROWS * MAX_K];
} Matrix;

// Memories of a CTA that executes the instruction, from the first byte on.
typedef struct {
    const u8 *shared;
    u32 *tensor;
} Cta;

// Lane of a row of A and of D, of a part of N that begins at lane 0.
static inline int lane_of(const Mma *call, int row) {
    return call->spread ? row / 16 * QUADRANT + row % 16 + call->lane : row;
}

// Returns 0, or 1 if copies of A or of scale factors in tensor memory differ, or ILLEGAL_INDEX + ((CTA * TMEM_LANES + row)
// * ROW_CHUNKS + chunk) if A's metadata are illegal there: D may be computed in part then.
int mma(const Mma *call, const u8 *shared, u32 *tensor, const u8 *odd_shared, u32 *odd_tensor);

// Lets AMX multiply from now on if it is wanted and CPU, compiler and operating system have it. Returns 1 if it does.
int use_amx(int wanted);

// mma_decode.c. packed: uint8[rows][32]. codes: per row, scale factors' codes from the low byte on. A row that has halves
// is two rows here; `halves` is their number.
int fetch_operand(const Operand *operand, const Mma *call, const Cta *cta, int halves, u8 *packed);
// The rows of an A in tensor memory, for a part of N.
int fetch_lanes(const Operand *operand, const Mma *call, const u32 *tensor, int part, u8 *packed);
// Places A's stored elements: `rows` has two halves of each row, `stored` one. Returns 0, or 1 + row * ROW_CHUNKS + chunk
// of an illegal index.
int expand_rows(const Mma *call, const Cta *cta, const u8 *stored, u8 *rows);
int fetch_scales(const Operand *operand, const Cta *cta, int halves, u32 *codes);
void decode_operand(const Operand *operand, int rows, int k, const u8 *packed, const u32 *codes,
                Precision precision, Matrix *out);

// mma_multiply.c
int multiplies_by_amx(void);
void pairs_to_bf16(const Operand *operand, int rows, const u8 *packed, const u32 *codes, u16 *out);
void arrange_panels(const Mma *call, Precision precision, const Matrix *rows, Matrix *panels);
// These functions must enclose calls of multiply_panel.
void begin_products(Precision precision);
void end_products(Precision precision);
// Multiplies the rows of A from `row` on by a panel of B. sums: float[STRIP][BLOCK]; the first PANEL of a row are set.
void multiply_panel(Precision precision, const Matrix *a, int row, int k, const Matrix *panels, int panel, f32 *sums);
enum { TOGETHER = 8 };  // rows of D that `add_products` computes together
// Multiplies TOGETHER rows of A, in single precision, from `row` on by `count` panels of B. The sums, times `sign`, are
// added to rows of D, or take their place.
void add_products(const Matrix *a, int row, int k, const Matrix *panels, int panel, int count, f32 *const *d, f32 sign,
                  int accumulate);

