// Fragments of tensor memory: rows of registers gathered from its words.

#include "engine.h"

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
