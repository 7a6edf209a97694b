// cuFFT's extensions, transforms on several devices and callbacks, are not modelled.
#pragma once
#include "cufft.h"
