// Bulk and tensor copies and tcgen05.cp: the movement of bytes, and the marks of their traffic.
//
// Python (hardware/tma/boxes.py, hardware/tensor/copy.py) calls these functions for copies that nobody observes. One
// that is not proven legal does nothing and returns REFUSED: then Python's own code raises the error or does the rare
// legal thing. The structures are declared again in hardware/copying.py.

#include "copies.h"

enum { LINE_CHUNKS = 8, SECTOR = 32 };
enum { TILE_ALIGNMENT = 128, ROW_LIMIT = 256 * 8, PARTS = 1024 };

// The part of a box that lies inside the tensor.
typedef struct {
    s64 low[RANKS], high[RANKS];  // positions in the box, by dimension
    s64 skip, kept;      // bytes of a row before the part, and in it
    u64 corner;          // address of the box's first element, inside the tensor or not
} Clip;

// Returns 1 if `nbytes` > 0 bytes of shared memory are the CTA's, and no live mbarrier has any of them.
static int is_open(const Window *window, u64 offset, u64 nbytes) {
    if (offset < SHARED_BASE || offset > window->end || nbytes > window->end - offset) return 0;
    u64 first = offset >> 3, end = (offset + nbytes + 7) >> 3;
    return !memchr(window->guarded + first, 1, end - first);
}

static int holds(const Traffic *traffic, u64 first, u64 end) { return traffic->start <= first && end <= traffic->end; }

static void mark_loaded(const Traffic *loads, u64 address, u64 nbytes) {
    u64 offset = address - loads->origin, first = offset / SECTOR;
    memset(loads->first_mark + first, 1, (offset + nbytes - 1) / SECTOR - first + 1);
}

static void mark_stored(const Traffic *stores, u64 address, u64 nbytes) {
    memset(stores->first_mark + (address - stores->origin), 1, nbytes);
}

static void count_stored(Traffic *stores, u64 first, u64 end, s64 nbytes) {
    s64 low = (s64)(first - stores->origin), high = (s64)(end - stores->origin);
    stores->requested += nbytes;
    if (low < stores->low) stores->low = low;
    if (high > stores->high) stores->high = high;
}

static s64 ceiling(s64 a, s64 b) { return a >= 0 ? (a + b - 1) / b : -(-a / b); }

// Clips the box at coordinates `at`. Returns the bytes inside; extends [first, end) to the addresses that they span.
static s64 clip_box(const Tile *tile, const s64 *at, Clip *clip, u64 *first, u64 *end) {
    s64 inside = 1;
    u64 low_end = tile->address, high_end = tile->address;
    clip->corner = tile->address;
    for (int d = 0; d < RANKS; d++) {
        s64 count = tile->counts[d], step = tile->steps[d];
        s64 low = ceiling(-at[d], step), high = ceiling(tile->dims[d] - at[d], step);
        low = low < 0 ? 0 : low > count ? count : low;
        high = high < low ? low : high > count ? count : high;
        clip->low[d] = low, clip->high[d] = high;
        inside *= high - low;
        // Outside the tensor the products may wrap; an address inside is right all the same.
        u64 stride = (u64)tile->strides[d], origin = (u64)at[d], pitch = (u64)step;
        if (d == 0) continue;
        clip->corner += origin * stride;
        low_end += (origin + (u64)low * pitch) * stride;
        high_end += (origin + (u64)(high - 1) * pitch) * stride;
    }
    if (!inside) return 0;
    clip->skip = clip->low[0] * tile->bits / 8;
    clip->kept = (clip->high[0] - clip->low[0]) * tile->bits / 8;
    u64 column = (u64)((at[0] + clip->low[0]) * tile->bits / 8);
    clip->corner += column;
    low_end += column;
    high_end += column + (u64)clip->kept;
    if (low_end < *first) *first = low_end;
    if (high_end > *end) *end = high_end;
    return inside * tile->bits / 8;
}

// Calls action(job, row, address) for each row of a box, in order. address: that of the row's first byte inside the
// tensor, 0 if there is none. The function is inlined with its action.
typedef struct {
    const Tile *tile;
    const Clip *clip;
    const Traffic *traffic;
    u8 *bytes;           // shared memory by offset, or the box
    u64 offset;          // offset of the box in shared memory
} Job;
typedef void Action(const Job *job, u64 row, u64 address);
static inline __attribute__((always_inline)) void each_row(const Job *job, int empty, Action *action) {
    const Tile *tile = job->tile;
    const Clip *clip = job->clip;
    u64 row = 0;
    for (s64 i = 0; i < tile->counts[4]; i++)
        for (s64 j = 0; j < tile->counts[3]; j++)
            for (s64 k = 0; k < tile->counts[2]; k++) {
                int inside = !empty && i >= clip->low[4] && i < clip->high[4] && j >= clip->low[3] && j < clip->high[3]
                             && k >= clip->low[2] && k < clip->high[2];
                u64 address = clip->corner + (u64)(i * tile->steps[4]) * (u64)tile->strides[4]
                              + (u64)(j * tile->steps[3]) * (u64)tile->strides[3]
                              + (u64)(k * tile->steps[2]) * (u64)tile->strides[2];
                u64 pitch = (u64)(tile->steps[1] * tile->strides[1]);
                for (s64 l = 0; l < tile->counts[1]; l++, row++, address += pitch)
                    action(job, row, inside && l >= clip->low[1] && l < clip->high[1] ? address : 0);
            }
}

// A row of a box moves between `row` and its place in shared memory, swizzled.
static inline __attribute__((always_inline)) void move_row(const Tile *tile, u8 *shared, u64 place, u8 *row, int load) {
    if (!tile->pattern) {
        memcpy(load ? shared + place : row, load ? row : shared + place, (size_t)tile->row_bytes);
        return;
    }
    u64 chunk = place / CHUNK, end = chunk + (u64)tile->row_bytes / CHUNK;
    for (; chunk < end; chunk++, row += CHUNK) {
        u64 line = chunk / LINE_CHUNKS, half = line & (u64)tile->flip ? 8 : 0;
        u8 *there = shared + CHUNK * (chunk ^ (line & (u64)tile->pattern) << tile->shift);
        if (!half) {
            memcpy(load ? there : row, load ? row : there, CHUNK);
            continue;
        }
        u64 words[2];
        memcpy(words, load ? row : there, CHUNK);
        u8 *to = load ? there : row;
        memcpy(to + half, &words[0], 8);
        memcpy(to, &words[1], 8);
    }
}

static void load_row(const Job *job, u64 row, u64 address) {
    const Tile *tile = job->tile;
    const Clip *clip = job->clip;
    u8 filled[ROW_LIMIT], *from = (u8 *)address;
    if (!address || clip->kept < tile->row_bytes) {
        for (s64 i = 0; i < tile->row_bytes; i += CHUNK) memcpy(filled + i, tile->fill, CHUNK);
        if (address) memcpy(filled + clip->skip, from, (size_t)clip->kept);
        from = filled;
    }
    move_row(tile, job->bytes, job->offset + row * (u64)tile->row_bytes, from, 1);
    if (address) mark_loaded(job->traffic, address, (u64)clip->kept);
}

static void store_row(const Job *job, u64 row, u64 address) {
    if (!address) return;
    const Clip *clip = job->clip;
    memcpy((u8 *)address, job->bytes + row * (u64)job->tile->row_bytes + clip->skip, (size_t)clip->kept);
    mark_stored(job->traffic, address, (u64)clip->kept);
}

static u64 box_bytes(const Tile *tile, int parts) {
    return (u64)(parts * tile->row_bytes * tile->counts[1] * tile->counts[2] * tile->counts[3] * tile->counts[4]);
}

// Clips each box of a copy, at RANKS coordinates each. Returns the bytes inside the tensor, REFUSED unless the
// allocation holds them.
static s64 clip_parts(const Tile *tile, const Traffic *traffic, const s64 *at, int parts, Clip *clips, s64 *inside,
                      u64 *first, u64 *end) {
    s64 total = 0;
    *first = UINT64_MAX, *end = 0;
    for (int i = 0; i < parts; i++) total += inside[i] = clip_box(tile, at + i * RANKS, &clips[i], first, end);
    return total && !holds(traffic, *first, *end) ? REFUSED : total;
}

// cp.async.bulk.tensor to shared memory. at: RANKS coordinates of each of `parts` boxes, at most PARTS. Returns the
// bytes read.
s64 load_tile(const Tile *tile, Traffic *loads, const Window *window, u64 offset, const s64 *at, int parts) {
    Clip clips[PARTS];
    s64 inside[PARTS];
    u64 first, end, nbytes = box_bytes(tile, parts);
    if (offset % TILE_ALIGNMENT || !is_open(window, offset, nbytes)) return REFUSED;
    s64 total = clip_parts(tile, loads, at, parts, clips, inside, &first, &end);
    if (total == REFUSED) return REFUSED;
    for (int i = 0; i < parts; i++)
        each_row(&(Job){tile, &clips[i], loads, window->data, offset + (u64)i * box_bytes(tile, 1)}, !inside[i], load_row);
    loads->requested += total;
    return total;
}

// The first half of cp.async.bulk.tensor from shared memory: packs the box densely. Returns its bytes.
s64 read_tile(const Tile *tile, const Window *window, u64 offset, int parts, u8 *box) {
    u64 nbytes = box_bytes(tile, parts);
    if (offset % TILE_ALIGNMENT || !is_open(window, offset, nbytes)) return REFUSED;
    for (u64 done = 0; done < nbytes; done += (u64)tile->row_bytes)
        move_row(tile, window->data, offset + done, box + done, 0);
    return (s64)nbytes;
}

// The second half of such a copy: writes the box to the tensor. Returns the bytes written.
s64 write_tile(const Tile *tile, Traffic *stores, const s64 *at, int parts, u8 *box) {
    Clip clips[PARTS];
    s64 inside[PARTS];
    u64 first, end;
    s64 total = clip_parts(tile, stores, at, parts, clips, inside, &first, &end);
    if (total <= 0) return total;
    for (int i = 0; i < parts; i++)
        each_row(&(Job){tile, &clips[i], stores, box + (u64)i * box_bytes(tile, 1), 0}, !inside[i], store_row);
    count_stored(stores, first, end, total);
    return total;
}

// cp.async.bulk to shared memory, of `nbytes` > 0 bytes.
s64 load_bulk(Traffic *loads, const Window *window, u64 address, u64 offset, u64 nbytes) {
    if ((address | offset | nbytes) % CHUNK || !is_open(window, offset, nbytes)) return REFUSED;
    if (!holds(loads, address, address + nbytes)) return REFUSED;
    memcpy(window->data + offset, (const u8 *)address, nbytes);
    mark_loaded(loads, address, nbytes);
    loads->requested += (s64)nbytes;
    return (s64)nbytes;
}

// The halves of cp.async.bulk from shared memory, of `nbytes` > 0 bytes.
s64 read_bulk(const Window *window, u64 offset, u64 nbytes, u8 *data) {
    if (!is_open(window, offset, nbytes)) return REFUSED;
    memcpy(data, window->data + offset, nbytes);
    return (s64)nbytes;
}

s64 write_bulk(Traffic *stores, u64 address, const u8 *data, u64 nbytes) {
    if (!holds(stores, address, address + nbytes)) return REFUSED;
    memcpy((u8 *)address, data, nbytes);
    mark_stored(stores, address, nbytes);
    count_stored(stores, address, address + nbytes, (s64)nbytes);
    return (s64)nbytes;
}

void copy_to_tensor_memory(const TensorCopy *copy, const Window *window, u32 *words) {
    for (s64 l = 0; l < copy->lanes; l++) {
        const s64 *chunks = copy->places + copy->rows[l] * copy->row_chunks;
        for (s64 i = 0; i < copy->row_chunks; i++)
            memcpy(words + copy->words[l] + i * CHUNK / 4, window->data + CHUNK * chunks[i], CHUNK);
    }
}
