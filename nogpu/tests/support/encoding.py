"""Encoders for the tests: tensor maps and the two tcgen05 descriptors, from their fields."""

import numpy as np

ELEMENT_CODES = {"u8": 0, "u16": 1, "u32": 2, "s32": 3, "u64": 4, "f16": 6, "f32": 7, "f64": 9, "bf16": 10, "b4x16": 11}
ELEMENT_CODES |= {"b4x16_p64": 12, "b6x16_p32": 13, "s64": 5, "f32.ftz": 8}
ATOM_CODES = {"16B": 0, "32B": 1, "32B flip": 2, "64B": 3}
SWIZZLE_CODES = {0: 0, 32: 1, 64: 2, 128: 3}


def tensor_map(
    address, dims, strides, box, element="u8", swizzle=0, element_strides=None, interleave=0, fill_nan=False, atom="16B"
) -> np.ndarray:
    """A map, uint8[128]; dims, box in elements, strides in bytes (of dimensions 1..), garbage in the last 64 bytes."""
    rank = len(dims)
    value = address | (2 << 17 | int(fill_nan) << 15 | SWIZZLE_CODES[swizzle] << 13 | interleave << 11) << 64
    value |= (ATOM_CODES[atom] << 19 | ELEMENT_CODES[element] << 7 | (rank - 1) << 4 | 2) << 64
    for i, stride in enumerate(strides):
        value |= (stride >> 4 & 0xFFFFFFFF) << 96 + 32 * i | stride >> 36 << 224 + 4 * i
    for i, dim in enumerate(dims):
        value |= dim - 1 << 256 + 32 * i
    for i, step in enumerate(element_strides or [1] * rank):
        value |= step - 1 << 416 + 3 * i
    for i, size in enumerate(box):
        value |= size - 1 << 440 + 8 * i
    return np.frombuffer(value.to_bytes(64, "little") + b"\xa5" * 64, np.uint8).copy()


def smem_descriptor(start, stride, swizzle=0, leading=16, version=1) -> int:
    """The descriptor of a K-major matrix at byte offset `start`; stride, leading in bytes."""
    mode = {0: 0, 32: 6, 64: 4, 128: 2}[swizzle]
    return start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | version << 46 | mode << 61


def block_scaled_idesc(m, n, scale="ue4m3", sfa_id=0, sfb_id=0, negate_a=0, negate_b=0) -> int:
    """Instruction descriptor of kinds mxf4 and mxf4nvf4."""
    value = 1 << 7 | 1 << 10 | n >> 3 << 17 | m >> 4 << 24 | int(scale == "ue8m0") << 23
    return value | sfb_id << 4 | sfa_id << 29 | negate_a << 13 | negate_b << 14


def f16_idesc(m, n, a="f16", b="f16", d="f32", negate_a=0, negate_b=0) -> int:
    """Instruction descriptor of kind f16."""
    value = int(d == "f32") << 4 | int(a == "bf16") << 7 | int(b == "bf16") << 10 | n >> 3 << 17 | m >> 4 << 24
    return value | negate_a << 13 | negate_b << 14
