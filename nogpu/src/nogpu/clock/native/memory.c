// Global memory: L2, DRAM and the ports of SMs.

#include "clock.h"

// When a server has done an amount of work that arrives at a time.
f64 serve(Server *s, f64 time, f64 amount) {
    s64 b = (s64)(time / BUCKET);
    if (b >= s->base + WINDOW) {
        s64 base = b - WINDOW / 2;
        if (base - s->base >= WINDOW) memset(s->used, 0, sizeof s->used);
        else for (s64 i = s->base; i < base; i++) s->used[i & (WINDOW - 1)] = 0;
        s->base = base;
    }
    if (b < s->base) b = s->base;
    if (b >= s->low && b < s->open) b = s->open;
    s64 first = b;
    f64 whole = amount / s->capacity * BUCKET;
    for (;;) {
        if (b >= s->base + WINDOW) {  // a queue that is longer than the window
            s->used[s->base & (WINDOW - 1)] = 0;
            s->base++;
        }
        f32 *used = &s->used[b & (WINDOW - 1)];
        f64 left = s->capacity - *used;
        if (left > amount) {
            *used += (f32)amount;
            break;
        }
        *used = (f32)s->capacity;
        amount -= left;
        b++;
    }
    if (first >= s->low && first <= s->open) s->open = later(s->open, b);
    else if (b > first) { s->low = first; s->open = b; }
    return later((b + s->used[b & (WINDOW - 1)] / s->capacity) * BUCKET, time + whole);
}

static inline u64 mixed(u64 x) {
    x ^= x >> 31;
    x *= 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    return x ^ x >> 32;
}

// L2 writes dirty lines to DRAM before their eviction, at a rate, while a channel has nothing else to do between its
// reads: an L2 that rests before the first one cleans nothing.
static Cleaner *cleaned(Sim *sim, s64 channel, f64 time) {
    Cleaner *cleaner = &sim->cleaners[channel];
    const Chip *chip = &sim->chip;
    if (cleaner->at == 0) cleaner->at = time;
    if (time > cleaner->at) {
        f64 rate = chip->dram_rate / chip->dram_channels, idle = (time - cleaner->at) * rate - cleaner->work;
        if (idle > 0) {
            f64 most = sim->dirty / chip->dram_channels;
            cleaner->bytes += idle * chip->dram_idle_clean_share;
            if (cleaner->bytes > most) cleaner->bytes = most;
            cleaner->work = 0;
        } else {
            cleaner->work = -idle;
        }
        cleaner->at = time;
    }
    return cleaner;
}

static s64 channel_of(const Sim *sim, u64 line) { return (s64)(mixed(line >> 2) % (u64)sim->chip.dram_channels); }

static f64 dram(Sim *sim, u64 line, f64 bytes, f64 time) {
    s64 channel = channel_of(sim, line);
    cleaned(sim, channel, time)->work += bytes;
    return serve(&sim->channels[channel], time, bytes);
}

// Bytes that give way to a line of a channel: a slice of L2 has its own channels.
static void write_back(Sim *sim, f64 bytes, s64 channel, f64 time) {
    Cleaner *cleaner = cleaned(sim, channel, time);
    sim->dram_written += bytes;
    sim->dirty -= bytes;
    f64 before = cleaner->bytes < bytes ? cleaner->bytes : bytes;
    cleaner->bytes -= before;
    bytes = (bytes - before) * sim->chip.dram_write_cost;
    cleaner->work += bytes;
    if (bytes > 0) serve(&sim->channels[channel], time, bytes);
}

// When a half of L2 has 32-byte sectors of a line. A half that is not the line's own keeps a copy, which it reads from the
// own one through the link between them.
static f64 at_half(Sim *sim, int half, int own, u64 line, u32 sectors, f64 time, int writes) {
    const Chip *chip = &sim->chip;
    f64 bytes = 32.0 * __builtin_popcount(sectors);
    u64 h = mixed(line), halves = chip->l2_halves > 1 ? 2 : 1;
    u64 slices = (u64)chip->l2_slices / halves, sets = (u64)sim->l2_sets / halves;
    f64 at_slice = serve(&sim->slices[(u64)half * slices + h % slices], time, writes ? bytes * chip->l2_write_cost : bytes);
    s32 ways = (s32)chip->l2_ways, way = 0;
    s64 set = (s64)((u64)half * sets + (h >> 8) % sets) * ways;
    u32 *tags = sim->tags + set, tag = (u32)(h >> 32) | 1;
    while (way < ways && tags[way] != tag) way++;
    if (way == ways) {
        way = 0;
        for (s32 w = 1; w < ways; w++)
            if (sim->l2[set + w].used < sim->l2[set + way].used) way = w;
        Line *oldest = &sim->l2[set + way];
        f64 written = 32.0 * __builtin_popcount(oldest->dirty);
        if (sim->flushed > 0) {  // of what was there before the first launch a line takes any one's place
            f64 flushed = 128 * sim->flushed / chip->l2_storage;
            sim->flushed -= flushed;
            written += flushed;
        }
        if (written > 0) write_back(sim, written, channel_of(sim, line), at_slice);
        *oldest = (Line){0};
        tags[way] = tag;
    }
    Line *found = &sim->l2[set + way];
    found->used = ++sim->l2_clock;
    if (writes) {
        found->sectors |= sectors;
        sim->dirty += 32.0 * __builtin_popcount(sectors & ~(u32)found->dirty);
        found->dirty |= sectors;
        return at_slice;
    }
    u32 missing = sectors & ~found->sectors;
    if (missing) {
        f64 asked = 32.0 * __builtin_popcount(missing);
        if (half != own) {
            found->sectors |= missing;
            f64 far = at_half(sim, own, own, line, missing, at_slice + chip->l2_far / 2, 0);
            f64 ready = serve(&sim->links[half], far, asked) + chip->l2_far / 2;
            if (tags[way] == tag) found->ready = ready;
            return ready;
        }
        sim->l2_misses += asked;
        sim->dram_read += asked;
        found->sectors |= missing;
        f64 spread = chip->dram_spread * (f64)(mixed(~line) & 1023) / 1023;
        found->ready = dram(sim, line, asked, at_slice) + (chip->dram_latency - chip->l2_latency) + spread;
    } else {
        sim->l2_hits += bytes;
    }
    return later(at_slice, found->ready);
}

// When 32-byte sectors of a line are at the SM that asks for them at a time, or for a write at L2.
static f64 at_l2(Sim *sim, s32 sm, u64 line, u32 sectors, f64 time, int writes) {
    const Chip *chip = &sim->chip;
    int near = sm * 2 >= chip->sms, own = (int)(mixed(line) >> 40 & 1);
    if (chip->l2_halves > 1) {
        own = (int)(mixed(line >> 5) >> 40 & 1);  // 4 KiB
        f64 trip = chip->l2_latency / 2 + (writes && near != own ? chip->l2_far / 2 : 0);
        return at_half(sim, writes ? own : near, own, line, sectors, time + trip, writes) + trip;
    }
    f64 latency = chip->l2_latency + (near != own ? chip->l2_far : 0);
    return at_half(sim, 0, 0, line, sectors, time + latency / 2, writes) + latency / 2;
}

// The same, where reads of a line by neighbouring SMs are one while it is under way.
f64 access_line(Sim *sim, s32 sm, u64 line, u32 sectors, f64 time, int writes) {
    if (writes || !sim->chip.l2_coalesces) return at_l2(sim, sm, line, sectors, time, writes);
    s32 group = sm / (s32)sim->chip.l2_coalesces;
    Asked *asked = &sim->asked[group * ASKED + (s32)(mixed(line) % ASKED)];
    if (asked->line == line + 1 && time < asked->ready && !(sectors & ~asked->sectors))
        return later(asked->ready, time + sim->chip.l2_latency / 2);
    f64 ready = at_l2(sim, sm, line, sectors, time, 0);
    *asked = (Asked){line + 1, ready, sectors};
    return ready;
}

// When a line that lies outside of its tensor, and for which L2 gives zeros, is at the SM that asks for it at a time.
f64 zeros_of_l2(Sim *sim, s32 sm, u64 line, f64 bytes, f64 time) {
    const Chip *chip = &sim->chip;
    u64 halves = chip->l2_halves > 1 ? 2 : 1, slices = (u64)chip->l2_slices / halves, half = halves > 1 && sm * 2 >= chip->sms;
    Server *slice = &sim->slices[half * slices + mixed(line) % slices];
    return serve(slice, time + chip->l2_latency / 2, bytes * chip->l2_outside_cost) + chip->l2_latency / 2;
}

// The L1 cache: whether it has a line, which it has from then on.
static f64 *l1_entry(Sim *sim, Sm *sm, u64 line, int *hit) {
    u64 place = mixed(line) % (u64)sim->chip.l1_lines;
    *hit = sm->l1[place] == line + 1;
    sm->l1[place] = line + 1;
    return &sm->l1_ready[place];
}

// When a warp's load has its lines. words: (low, high) of each line, sectors in the top 4 bits.
f64 load_lines(Sim *sim, Sm *sm, const u32 *words, int lines, u64 salt, f64 time, int cached) {
    const Chip *chip = &sim->chip;
    f64 last = time;
    for (int i = 0; i < lines; i++) {
        u64 line = ((u64)(words[2 * i + 1] & 0xfffffff) << 32 | words[2 * i]) + salt;
        u32 sectors = words[2 * i + 1] >> 28;
        f64 start = sm->lsu = later(sm->lsu, time) + chip->lsu_line, ready;
        int hit = 0;
        f64 *entry = cached ? l1_entry(sim, sm, line << 4 | sectors, &hit) : 0;
        if (hit) {
            ready = later(*entry, start + chip->l1_latency);
        } else {
            f64 bytes = 32.0 * __builtin_popcount(sectors);
            f64 *slot = &sm->loads[sm->load_at++ % (int)(chip->lsu_in_flight < LOADS ? chip->lsu_in_flight : LOADS)];
            start = later(start, *slot);
            f64 back = access_line(sim, (s32)(sm - sim->sms), line, sectors, start, 0);
            ready = *slot = serve(&sm->in, back, bytes);
            sm->bytes_in += bytes;
            if (entry) *entry = ready;
        }
        last = later(last, ready);
    }
    return last;
}

// When a warp's store is at L2.
f64 store_lines(Sim *sim, Sm *sm, const u32 *words, int lines, u64 salt, f64 time) {
    f64 last = time;
    for (int i = 0; i < lines; i++) {
        u64 line = ((u64)(words[2 * i + 1] & 0xfffffff) << 32 | words[2 * i]) + salt;
        u32 sectors = words[2 * i + 1] >> 28;
        f64 bytes = 32.0 * __builtin_popcount(sectors);
        f64 start = sm->lsu = later(sm->lsu, time) + sim->chip.lsu_line;
        start = serve(&sm->out, start, bytes);
        sm->bytes_out += bytes;
        last = later(last, access_line(sim, (s32)(sm - sim->sms), line, sectors, start, 1));
    }
    return last;
}

// When bytes for, or from, another SM's shared memory have gone their way. They take turns.
f64 to_peer(Sim *sim, Sm *sm, f64 bytes, f64 time) {
    sm->remote = later(sm->remote, time) + bytes / sim->chip.remote_rate;
    return sm->remote + sim->chip.remote_latency;
}
