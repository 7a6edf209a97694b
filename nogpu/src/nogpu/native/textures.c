// Texels by coordinates, filtered (CUDA C++ Programming Guide, "Texture Fetching").
//
// tex is done here if all lanes name one texture, for which the instruction is legal, and nobody takes notes of
// accesses. For any other tex the instruction's Python row is called (ops/textures.py), which raises the error, or has
// checked fetches done here.

#include "textures.h"
#include <math.h>

enum { WEIGHTS = 256 };  // a weight has 8 bits of fraction, and 1 is one

// The index, within the size, of the texel that is read for an index; -1 for the border.
static s64 inside(s64 i, s64 size, s32 mode) {
    if (i >= 0 && i < size) return i;
    if (mode == CLAMP) return i < 0 ? 0 : size - 1;
    if (mode == BORDER) return -1;
    s64 period = mode == WRAP ? size : 2 * size;
    i = (i % period + period) % period;
    return i < size ? i : period - 1 - i;
}

// The address of a texel, 0 for the border.
static u64 place_of(const Texture *texture, const s64 *at) {
    u64 address = texture->address;
    for (int d = 0; d < texture->dimensions; d++) {
        s64 i = inside(at[d], texture->sizes[d], texture->modes[d]);
        if (i < 0) return 0;
        address += (u64)(i * texture->strides[d]);
    }
    return address;
}

// The value of a channel: an integer extended to 32 bits, or the bits of a float.
static u32 bits_of(const Texture *texture, u64 address, int channel) {
    u64 place = address + (u64)(channel * texture->bits / 8);
    u32 bits = 0;
    memcpy(&bits, (const void *)place, (size_t)texture->bits / 8);
    int above = 32 - texture->bits;
    if (texture->kind == SIGNED) return (u32)((s32)(bits << above) >> above);
    if (texture->kind == UNSIGNED || texture->bits == 32) return bits;
    f16 half;
    memcpy(&half, &bits, sizeof half);
    f32 wide = (f32)half;
    memcpy(&bits, &wide, sizeof bits);
    return bits;
}

// The value of a channel as a number: a float, or an integer as a fraction of the largest one.
static f64 number_of(const Texture *texture, u64 address, int channel) {
    if (!address) return texture->border[channel];
    u32 bits = bits_of(texture, address, channel);
    if (texture->kind == FLOAT) {
        f32 value;
        memcpy(&value, &bits, sizeof value);
        return value;
    }
    if (texture->kind == UNSIGNED) return bits / (f64)((1ll << texture->bits) - 1);
    f64 fraction = (s32)bits / (f64)((1ll << (texture->bits - 1)) - 1);
    return fraction < -1 ? -1 : fraction;
}

static void put(u32 *word, f64 value) {
    f32 single = (f32)value;
    memcpy(word, &single, sizeof single);
}

// Finds the first texel of a fetch by floats, and the weights in 1/256 of those behind it, which a filtered fetch has.
static void locate(const Texture *texture, const u32 *coordinates, int lane, int filtered, s64 *at, s64 *weights) {
    for (int d = 0; d < texture->dimensions; d++) {
        f32 given;
        memcpy(&given, &coordinates[LANES * d + lane], sizeof given);
        f64 x = texture->is_normalized ? given * (f64)texture->sizes[d] : given;
        x = x != x ? 0 : fmin(fmax(x, -0x1p40), 0x1p40);
        s64 steps = (s64)(filtered ? floor((x - 0.5) * WEIGHTS + 0.5) : floor(x) * WEIGHTS);
        weights[d] = steps & (WEIGHTS - 1);
        at[d] = (steps - weights[d]) / WEIGHTS;
    }
}

static void fetch_lane(const Texture *texture, const s64 *at, const s64 *weights, int lane, u32 *result, u64 *touched) {
    int taps = texture->is_filtered ? 1 << texture->dimensions : 1, is_sum = texture->is_fraction;
    f64 sums[CHANNELS] = {0};
    for (int tap = 0; tap < taps; tap++) {
        s64 place[AXES];
        f64 weight = 1;
        for (int d = 0; d < texture->dimensions; d++) {
            int next = tap >> d & 1;
            place[d] = at[d] + next;
            if (texture->is_filtered) weight *= (next ? weights[d] : WEIGHTS - weights[d]) / (f64)WEIGHTS;
        }
        u64 address = place_of(texture, place);
        if (touched) touched[LANES * tap + lane] = address;
        is_sum |= texture->kind == FLOAT && (texture->is_filtered || !address);
        for (int c = 0; c < texture->channels; c++) {
            if (is_sum) sums[c] += weight * number_of(texture, address, c);
            else result[LANES * c + lane] = address ? bits_of(texture, address, c) : 0;
        }
    }
    for (int c = 0; is_sum && c < texture->channels; c++) put(&result[LANES * c + lane], sums[c]);
}

// Fetches texels for the lanes of a mask. coordinates: rows of floats, or of one integer; result: a row for each channel,
// of floats or integers; touched: rows of the addresses of texels, 0 for the border, if they are needed.
void fetch_texels(const Texture *texture, u32 mask, const u32 *coordinates, s32 is_integer, u32 *result, u64 *touched) {
    for (int lane = 0; lane < LANES; lane++) {
        s64 at[AXES] = {0}, weights[AXES] = {0};
        if (!(mask >> lane & 1)) continue;
        if (is_integer) at[0] = (s32)coordinates[lane];
        else locate(texture, coordinates, lane, texture->is_filtered, at, weights);
        fetch_lane(texture, at, weights, lane, result, touched);
    }
}

// One channel of the four texels that a filtered fetch would take: (0, 1), (1, 1), (1, 0), (0, 0) of (x, y).
void gather_texels(const Texture *texture, u32 mask, const u32 *coordinates, s32 channel, u32 *result, u64 *touched) {
    static const int ACROSS[] = {0, 1, 1, 0}, DOWN[] = {1, 1, 0, 0};
    for (int lane = 0; lane < LANES; lane++) {
        s64 at[AXES], weights[AXES];
        if (!(mask >> lane & 1)) continue;
        locate(texture, coordinates, lane, 1, at, weights);
        for (int n = 0; n < CHANNELS; n++) {
            s64 place[] = {at[0] + ACROSS[n], at[1] + DOWN[n]};
            u64 address = place_of(texture, place);
            if (touched) touched[LANES * n + lane] = address;
            u32 *word = &result[LANES * n + lane];
            if (channel >= texture->channels) *word = 0;
            else if (texture->kind == FLOAT || texture->is_fraction) put(word, number_of(texture, address, channel));
            else *word = address ? bits_of(texture, address, channel) : 0;
        }
    }
}

// tex; compiler/opcodes/textures.py packs it.
typedef struct {
    s32 handle, handle_is_row;  // slot; nonzero if it holds a row
    s32 dimensions, is_integer, is_float;  // number and type of coordinates; type of the result
    s32 unused;
    s32 coordinates[AXES], rows[AXES];  // slots; nonzero if they hold rows
    s32 destinations[CHANNELS]; // slots of rows, -1 for none
} Fetch;

static const Texture *known[MOST_KNOWN];

// Notes the texture of a handle; NULL forgets it.
void know_texture(u64 handle, const Texture *texture) {
    if (handle < MOST_KNOWN) known[handle] = texture;
}

// The texture that all active lanes name, 0 if Python has to check the fetch.
static const Texture *texture_of(Context *ctx, const Fetch *fetch) {
    const u64 *row = (const u64 *)(ctx->file + fetch->handle);
    u64 handle = row[fetch->handle_is_row ? __builtin_ctz(ctx->mask) : 0];
    for (int l = 0; fetch->handle_is_row && l < LANES; l++)
        if (ctx->mask >> l & 1 && row[l] != handle) return 0;
    const Texture *texture = handle < MOST_KNOWN ? known[handle] : 0;
    if (!texture || ctx->log || texture->dimensions != fetch->dimensions) return 0;
    int is_float = texture->is_fraction || texture->kind == FLOAT;
    if (texture->is_linear != fetch->is_integer || is_float != fetch->is_float) return 0;
    u64 end = texture->address + (u64)(texture->channels * texture->bits / 8);
    for (int d = 0; d < AXES; d++) end += (u64)((texture->sizes[d] - 1) * texture->strides[d]);
    const Allocation *allocation = allocation_at(ctx, texture->address);
    return allocation && end <= allocation->end ? texture : 0;
}

KERNEL(fetch) {
    const Fetch *fetch = (const Fetch *)op->x;
    const Texture *texture = ctx->mask ? texture_of(ctx, fetch) : 0;
    if (!texture) return to_python(ctx, op);
    u32 coordinates[AXES * LANES], result[CHANNELS * LANES] = {0};
    for (int d = 0; d < fetch->dimensions; d++) {
        const u32 *from = (const u32 *)(ctx->file + fetch->coordinates[d]);
        for (int l = 0; l < LANES; l++) coordinates[LANES * d + l] = from[fetch->rows[d] ? l : 0];
    }
    fetch_texels(texture, ctx->mask, coordinates, fetch->is_integer, result, 0);
    for (int c = 0; c < CHANNELS; c++) {
        u32 *to = (u32 *)(ctx->file + fetch->destinations[c]);
        for (int l = 0; fetch->destinations[c] >= 0 && l < LANES; l++)
            if (ctx->mask >> l & 1) to[l] = result[LANES * c + l];
    }
    return op + 1;
}
