// Textures, as compiled code sees them (hardware/textures.py).

#pragma once

#include "engine.h"

enum { MOST_KNOWN = 4096 };  // bound of the handles of textures that compiled code knows
enum { AXES = 3, CHANNELS = 4, TAPS = 8 };  // of a texture; of a texel; texels of a filtered fetch

// Values of cudaChannelFormatKind, and of cudaTextureAddressMode
enum { SIGNED, UNSIGNED, FLOAT };
enum { WRAP, CLAMP, MIRROR, BORDER };

typedef struct {
    u64 address;         // address of the first texel
    s64 sizes[AXES];     // sizes in texels; 1 beyond the texture's dimensions
    s64 strides[AXES];   // bytes
    s32 modes[AXES];     // address modes, for coordinates outside
    s32 dimensions;
    s32 channels, bits;  // channels of a texel; bits of a channel
    s32 kind;            // format of the channels' numbers
    s32 is_filtered;     // nonzero for linear filtering
    s32 is_normalized;   // nonzero if coordinates are fractions of the sizes
    s32 is_fraction;     // nonzero if integers are read as fractions of the largest
    s32 is_linear;       // nonzero if the memory is linear, addressed by integers
    f32 border[CHANNELS];
} Texture;
