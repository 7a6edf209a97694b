"""NumPy and integer helpers that translated programs call: masks, shifts, bit fields, integer division, comparisons.

A row is an array of 32 lanes (uint16, uint32, uint64, or bool for a predicate). Rows are never changed in place, so
that registers may share them. A mask of lanes is an integer with bit i for lane i.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

FULL = 0xFFFFFFFF
UINTS = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
INTS = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
LANE_ID = np.arange(32, dtype=np.uint32)


@lru_cache(maxsize=65536)
def lanes(bits: int) -> np.ndarray:
    """Mask bits -> bool[32]."""
    row = (np.uint32(bits) >> LANE_ID & 1).astype(bool)
    row.flags.writeable = False
    return row


def only(bits: int) -> np.ndarray | None:
    """Mask bits -> bool[32], or None for all lanes."""
    return None if bits == FULL else lanes(bits)


def bits_of(row: np.ndarray) -> int:
    """bool[32] -> mask bits."""
    return int.from_bytes(np.packbits(row, bitorder="little").tobytes(), "little")


@lru_cache(maxsize=1024)
def _constant_row(value: int, width: int) -> np.ndarray:
    row = np.full(32, value, UINTS[width])
    row.flags.writeable = False
    return row


def row_of(value: int | np.ndarray, width: int) -> np.ndarray:
    """A row that holds an integer in every lane; rows pass through, contiguous so that they can be viewed as pairs."""
    if isinstance(value, int):
        return _constant_row(value, width)
    return value if value.flags.c_contiguous else np.ascontiguousarray(value)


def lane_list(bits: int) -> list[int]:
    return [lane for lane in range(32) if bits >> lane & 1]


def signed(value: int, width: int) -> int:
    half = 1 << width - 1
    return ((value & (1 << width) - 1) ^ half) - half


def shift_left(a, b, width: int) -> np.ndarray:
    """PTX clamps shift counts at the width (PTX ISA, "shl")."""
    a, b = row_of(a, width), row_of(b, 32)
    count = np.minimum(b, np.uint32(width - 1)).astype(a.dtype)
    return np.where(b >= width, a.dtype.type(0), a << count)


def shift_right(a, b, width: int, is_signed: bool) -> np.ndarray:
    """Arithmetic if signed, else logical; counts are clamped at the width (PTX ISA, "shr")."""
    dtype = (INTS if is_signed else UINTS)[width]
    a, b = np.asarray(a, dtype), row_of(b, 32)
    shifted = a >> np.minimum(b, np.uint32(width - 1)).astype(dtype)
    return shifted if is_signed else np.where(b >= width, dtype(0), shifted)


def divide(a, b, width: int, is_signed: bool) -> np.ndarray:
    """Truncates; division by zero has all bits set, as on NVIDIA GPUs (PTX leaves it open)."""
    dtype = (INTS if is_signed else UINTS)[width]
    a, b = np.broadcast_arrays(np.asarray(a, dtype), np.asarray(b, dtype))
    zero = b == 0
    divisor = np.where(zero, dtype(1), b)
    if is_signed:
        with np.errstate(over="ignore"):
            quotient = a // divisor
            quotient = quotient + ((a - quotient * divisor != 0) & ((a < 0) != (divisor < 0)))
    else:
        quotient = a // divisor
    return np.where(zero, dtype(-1) if is_signed else dtype(~dtype(0)), quotient).astype(dtype)


def remainder(a, b, width: int, is_signed: bool) -> np.ndarray:
    dtype = (INTS if is_signed else UINTS)[width]
    quotient = divide(a, b, width, is_signed)
    with np.errstate(over="ignore"):
        return np.asarray(a, dtype) - quotient * np.asarray(b, dtype)


def divide_scalar(a: int, b: int) -> int:
    if b == 0:
        return -1
    quotient = abs(a) // abs(b)
    return -quotient if (a < 0) != (b < 0) else quotient


def remainder_scalar(a: int, b: int) -> int:
    return a - divide_scalar(a, b) * b


def multiply_high(a, b, width: int, is_signed: bool) -> np.ndarray:
    """The upper half of the double-width product."""
    if width < 64:
        dtype = (INTS if is_signed else UINTS)[2 * width]
        return (np.multiply(a, b, dtype=dtype) >> dtype(width)).astype((INTS if is_signed else UINTS)[width])
    product = np.asarray(a).astype(object) * np.asarray(b).astype(object)
    return np.array([int(p) >> 64 & (1 << 64) - 1 for p in np.broadcast_to(product, 32)], np.uint64)


def bit_count(a: np.ndarray) -> np.ndarray:
    return np.bitwise_count(a).astype(np.uint32)


def leading_zeros(a: np.ndarray, width: int) -> np.ndarray:
    return np.array([width - int(value).bit_length() for value in a.tolist()], np.uint32)


def find_leading(a: int, width: int, is_signed: bool, shift_amount: bool) -> int:
    """bfind: position of the most significant bit that differs from the sign; -1 if there is none."""
    value = ~a if is_signed and a < 0 else a
    position = value.bit_length() - 1
    if position < 0:
        return FULL
    return width - 1 - position if shift_amount else position


def reverse_bits(a: int, width: int) -> int:
    return int(f"{a:0{width}b}"[::-1], 2)


def extract_field(a: int, start: int, length: int, width: int, is_signed: bool) -> int:
    """bfe; `a` is the unsigned value (PTX ISA, "bfe")."""
    start, length = start & 0xFF, length & 0xFF
    if length == 0:
        return 0
    sign_position = min(start + length - 1, width - 1)
    sign = is_signed and a >> sign_position & 1
    kept = max(0, min(length, width - start))
    value = (a >> start) & ((1 << kept) - 1) if kept else 0
    return value | (-1 << kept) if sign else value


def insert_field(a: int, b: int, start: int, length: int, width: int) -> int:
    """bfi: the low bits of `a` go into `b`."""
    start, length = start & 0xFF, length & 0xFF
    mask = ((1 << length) - 1) << start & (1 << width) - 1
    return (b & ~mask) | (a << start & mask)


def permute_bytes(a: int, b: int, selector: int) -> int:
    """prmt without a mode (PTX ISA, "prmt")."""
    source, result = a | b << 32, 0
    for i in range(4):
        choice = selector >> 4 * i & 0xF
        byte = source >> 8 * (choice & 7) & 0xFF
        if choice & 8:
            byte = 0xFF if byte & 0x80 else 0
        result |= byte << 8 * i
    return result


_NIBBLES = np.arange(0, 16, 4, dtype=np.uint32)
_ROWS = np.arange(32)[:, None]


def permute_bytes_row(a: np.ndarray, b: np.ndarray, selector) -> np.ndarray:
    source = np.stack((a, b), axis=1).astype(np.uint32, copy=False).view(np.uint8)
    choice = np.asarray(selector).astype(np.uint32).reshape(-1, 1) >> _NIBBLES & np.uint32(0xF)
    result = source[_ROWS, choice & np.uint32(7)]
    if (choice & np.uint32(8)).any():
        spread = np.where(result & np.uint8(0x80), np.uint8(0xFF), np.uint8(0))
        result = np.where(choice & np.uint32(8), spread, result)
    return result.view(np.uint32)[:, 0]


def logic3(a, b, c, table: int):
    """lop3: the truth table's bit (a << 2 | b << 1 | c) for every bit position; integers or rows."""
    if isinstance(a, int) and isinstance(b, int) and isinstance(c, int):
        invert, result = FULL, 0
    else:
        a, b, c = row_of(a, 32), row_of(b, 32), row_of(c, 32)
        invert, result = np.uint32(FULL), np.zeros(32, np.uint32)
    for index in range(8):
        if table >> index & 1:
            term_a = a if index & 4 else a ^ invert
            term_b = b if index & 2 else b ^ invert
            term_c = c if index & 1 else c ^ invert
            result = result | (term_a & term_b & term_c)
    return result


def funnel_shift(a: int, b: int, count: int, left: bool, clamp: bool) -> int:
    """shf: of the 64-bit value b:a (PTX ISA, "shf")."""
    count = min(count, 32) if clamp else count & 31
    value = b << 32 | a
    return (value << count >> 32 if left else value >> count) & FULL


def per_lane(function, width: int, *operands) -> np.ndarray:
    """Applies an integer function lane by lane: for rare instructions."""
    columns = [operand.tolist() if isinstance(operand, np.ndarray) else [operand] * 32 for operand in operands]
    mask = (1 << width) - 1
    return np.array([function(*values) & mask for values in zip(*columns, strict=True)], UINTS[width])
