// For torch's TensorBase.h: tensors of the emulated device are CPU tensors whose storage is a device allocation.
#pragma once

#include <c10/macros/Macros.h>

// Whether a c10::StorageImpl is on the device.
extern "C" int emulator_has_storage(const void* storage);
