// Fragments of tensor memory: tcgen05.ld, st and wait between its words and rows of registers.
//
// The Python rows (ops/tmem.py) execute what is not plainly legal, what somebody hears of, and what chance delays.

#include "engine.h"
#include "tensor_memory.h"

// A tcgen05.ld or st; compiler/opcodes/tcgen05.py packs it.
typedef struct Fragment {
    s64 displacement;    // of the address
    s32 address, is_row; // slot, -1: the displacement is the address; nonzero if it has a value for each lane
    s32 lanes, columns;  // what is accessed from the addressed word on
    s32 second;          // distance in columns of another such part, 0: there is none
    s32 packed;          // nonzero if a register has the low halves of a word and of the next one
    s32 count, unused;   // registers
    s32 places[LANES];   // word of each lane, relative to lane 0's; the registers follow
} Fragment;

typedef struct {
    s32 slot, word;      // a load's slot is negative for `_`, an odd one of a store has one value; lane 0's word, relative
                         // to the addressed word
} FragmentRegister;

static const FragmentRegister *registers_of(const Fragment *fragment) { return (const FragmentRegister *)(fragment + 1); }

// The loads of `settle`.
typedef struct {
    s32 count, loads[];
} Used;

// Register i of lane l gets word `places[32 i + l]`, if the mask has the lane and the register's slot is not negative.
// With `packed` its halves are the low halves of that word and of word `places[32 (count + i) + l]`.
void fragment_to_rows(u8 *file, const s32 *slots, s32 count, u32 mask, const u32 *words, const s64 *places, s32 packed) {
    for (int i = 0; i < count; i++, places += LANES) {
        if (slots[i] < 0) continue;
        u32 *row = (u32 *)(file + slots[i]);
        const s64 *high = places + LANES * count;
        for (int l = 0; l < LANES; l++) {
            u32 word = words[places[l]];
            if (packed) word = (word & 0xffff) | words[high[l]] << 16;
            row[l] = mask >> l & 1 ? word : row[l];
        }
    }
}

static void to_registers(u8 *file, const u32 *words, const Fragment *fragment) {
    const FragmentRegister *registers = registers_of(fragment);
    for (int i = 0; i < fragment->count; i++) {
        if (registers[i].slot < 0) continue;
        u32 *row = (u32 *)(file + registers[i].slot);
        const u32 *from = words + registers[i].word;
        if (fragment->packed)
            for (int l = 0; l < LANES; l++)
                row[l] = (from[fragment->places[l]] & 0xffff) | from[fragment->places[l] + 1] << 16;
        else
            for (int l = 0; l < LANES; l++) row[l] = from[fragment->places[l]];
    }
}

// The values that a store has at its issue.
static void take_rows(const u8 *file, const Fragment *fragment, u32 *rows) {
    for (int i = 0; i < fragment->count; i++, rows += LANES) {
        s32 slot = registers_of(fragment)[i].slot;
        const u32 *row = (const u32 *)(file + (slot & ~1));
        if (slot & 1)
            for (int l = 0; l < LANES; l++) rows[l] = row[0];
        else memcpy(rows, row, LANES * sizeof *rows);
    }
}

// PTX does not define the high halves of words that get 16 bits: they are poisoned.
static void to_words(const u32 *rows, u32 *words, const Fragment *fragment) {
    for (int i = 0; i < fragment->count; i++, rows += LANES) {
        u32 *to = words + registers_of(fragment)[i].word;
        for (int l = 0; l < LANES; l++) {
            u32 *word = to + fragment->places[l];
            word[0] = fragment->packed ? rows[l] | 0xffff0000 : rows[l];
            if (fragment->packed) word[1] = rows[l] >> 16 | 0xffff0000;
        }
    }
}

// Completes a load or a store of a warp.
void complete_fragment(Context *ctx, const PendingFragment *pending) {
    u32 *words = ctx->tensor->words + pending->start;
    if (pending->stores) to_words(pending->values, words, pending->fragment);
    else to_registers(ctx->file, words, pending->fragment);
}

// Completes the oldest n loads and stores.
static void complete_first(Context *ctx, s64 n) {
    TensorUser *user = ctx->tensor;
    for (s64 i = 0; i < n; i++) {
        complete_fragment(ctx, &user->pending[i]);
        ctx->progress += user->pending[i].stores;
        user->stores -= user->pending[i].stores;
    }
    user->count -= n;
    memmove(user->pending, user->pending + n, (size_t)user->count * sizeof *user->pending);
    if (!user->count) user->rows_used = 0;
}

// Completes all loads, or stores, and what was issued before them.
static void complete_all(Context *ctx, int stores) {
    s64 n = ctx->tensor->count;
    while (n && ctx->tensor->pending[n - 1].stores != stores) n--;
    complete_first(ctx, n);
}

void complete_stores(Context *ctx) {
    if (ctx->tensor->stores) complete_all(ctx, 1);
}

static void add_columns(u64 *mask, int half, int column, int count) {
    for (int bit = TMEM_COLUMNS * half + column; count--; bit++) mask[bit >> 6] |= (u64)1 << (bit & 63);
}

// The index of the addressed word, -1 if the access is not plainly legal. Else its columns are added to a mask.
static s64 place_of(const Context *ctx, const Fragment *fragment, u64 *mask) {
    u32 address = (u32)fragment->displacement;
    if (fragment->address >= 0) {
        const u32 *values = (const u32 *)(ctx->file + fragment->address);
        for (int l = 1; fragment->is_row && l < LANES; l++)
            if (values[l] != values[0]) return -1;
        address += values[0];
    }
    int lane = (int)(address >> 16), column = address & 0xffff, quadrant = QUADRANT * (ctx->warp % 4);
    int within = lane % QUADRANT, first = lane % TMEM_LANES - within;
    if ((first && first != quadrant) || within % fragment->lanes) return -1;
    for (int part = 0; part < (fragment->second ? 2 : 1); part++) {
        int from = column + part * fragment->second;
        if (from + fragment->columns > TMEM_COLUMNS) return -1;
        if (memchr(ctx->tensor->owned + from, 0, (size_t)fragment->columns)) return -1;
        for (int half = (quadrant + within) / HALF, n = fragment->lanes / HALF; n--; half++)
            add_columns(mask, half, from, fragment->columns);
    }
    return (s64)(quadrant + within) * TMEM_COLUMNS + column;
}

// Records an access of the warp. Returns its place, or -1 with nothing changed if Python has to do it.
static s64 access_fragment(Context *ctx, const Op *op, int stores) {
    TensorUser *user = ctx->tensor;
    u64 touched[MASK_WORDS] = {0}, none[MASK_WORDS] = {0};
    if (!user || user->in_python || user->count == PENDING_FRAGMENTS || ctx->mask != FULL) return -1;
    s64 start = place_of(ctx, (const Fragment *)op->x, touched);
    const u64 *read = stores ? none : touched, *written = stores ? touched : none;
    int fences = user->fences != 0;
    if (start < 0) return -1;
    if (!order_access(user->order, ctx, user->own, op->pc, user->after, fences, read, written, 0)) return -1;
    ctx->touched = 1;
    return start;
}

// Returns 1 if compiled code may execute the warp's loads and stores.
static int may_share(const Context *ctx) { return ctx->turns && !(ctx->observed & HEARD) && !ctx->watch; }

// Has Python make Context.tensor at the warp's first load or store. Returns Python's answer.
static s32 share(Context *ctx, s32 pc) {
    return ctx->tensor || !may_share(ctx) || ctx->mask != FULL || ctx->parted ? 0 : told(ctx, pc, SHARES);
}

KERNEL(tensor_load) {
    s32 answer = share(ctx, op->pc);
    if (answer) return ends(ctx, op, answer);
    s64 start = access_fragment(ctx, op, 0);
    if (start < 0) return to_python(ctx, op);
    TensorUser *user = ctx->tensor;
    complete_stores(ctx);
    PendingFragment load = {(const Fragment *)op->x, start, 0, op->pc, 0};
    if (user->late) user->pending[user->count++] = load;
    else complete_fragment(ctx, &load);
    return op + 1;
}

KERNEL(tensor_store) {
    const Fragment *fragment = (const Fragment *)op->x;
    s32 answer = share(ctx, op->pc);
    if (answer) return ends(ctx, op, answer);
    TensorUser *user = ctx->tensor;
    if (!user || !user->rows || user->rows_used + fragment->count > STORED_ROWS) return to_python(ctx, op);
    s64 start = access_fragment(ctx, op, 1);
    if (start < 0) return to_python(ctx, op);
    u32 *rows = user->rows + LANES * user->rows_used;
    take_rows(ctx->file, fragment, rows);
    ctx->progress++;
    PendingFragment store = {fragment, start, rows, op->pc, 1};
    if (user->late || user->count) {
        user->rows_used += fragment->count;
        user->stores++;
        user->pending[user->count++] = store;
    } else complete_fragment(ctx, &store);
    return op + 1;
}

// tcgen05.wait::ld, with a ::st.
KERNEL(tensor_wait) {
    if (!ctx->tensor || ctx->tensor->in_python || ctx->mask != FULL) return to_python(ctx, op);
    complete_all(ctx, op->a);
    return op + 1;
}

// Completes loads of tensor memory whose results the next instruction uses, and what was issued before them.
KERNEL(settle) {
    const Used *used = (const Used *)op->x;
    TensorUser *user = ctx->tensor;
    if (!user && may_share(ctx)) return op + 1;  // there are no loads
    if (!user || user->in_python) return after(ctx, op, answer_of(ctx, ~op->pc));
    for (s64 n = user->count; n; n--)
        for (int i = 0; i < used->count; i++)
            if (user->pending[n - 1].pc == used->loads[i]) {
                complete_first(ctx, n);
                return op + 1;
            }
    return op + 1;
}
