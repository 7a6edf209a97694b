// See emulator/cuda.h.
#pragma once

#include <emulator/cuda.h>
