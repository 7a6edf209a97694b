// Textures, as compiled code sees them (hardware/textures.py).

#pragma once

#include "engine.h"

enum { MOST_KNOWN = 4096 };  // handles below it name textures that compiled code knows
enum { AXES = 3, CHANNELS = 4, TAPS = 8 };  // of a texture; of a texel; texels of a filtered fetch, at most

// cudaChannelFormatKind; cudaTextureAddressMode
enum { SIGNED, UNSIGNED, FLOAT };
enum { WRAP, CLAMP, MIRROR, BORDER };

typedef struct {
    u64 address;         // of the first texel
    s64 sizes[AXES];     // texels; 1 beyond the texture's dimensions
    s64 strides[AXES];   // bytes
    s32 modes[AXES];     // of coordinates outside
    s32 dimensions;
    s32 channels, bits;  // of a texel; of a channel
    s32 kind;            // of its numbers
    s32 is_filtered;     // linearly
    s32 is_normalized;   // coordinates are fractions of the sizes
    s32 is_fraction;     // integers are read as fractions of the largest
    s32 is_linear;       // the memory is linear: integers address it
    f32 border[CHANNELS];
} Texture;
