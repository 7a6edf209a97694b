"""Rows of 32 lanes and masks of lanes: conversion between them, widening, stacking.

A row is an array of 32 lanes (uint16, uint32, uint64, or bool for a predicate). Operations change no row in place: they
get a copy of a register's slot. A mask of lanes is an integer with bit i for lane i.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

FULL = 0xFFFFFFFF
UINTS: dict[int, type[np.unsignedinteger]] = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
INTS: dict[int, type[np.signedinteger]] = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
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
    """A row that holds an integer in every lane, or the given row, contiguous so that it can be viewed as pairs."""
    if isinstance(value, int):
        return _constant_row(value, width)
    return value if value.flags.c_contiguous else np.ascontiguousarray(value)


def lane_list(bits: int) -> list[int]:
    """Mask bits -> numbers of the lanes."""
    return [lane for lane in range(32) if bits >> lane & 1]


def sharers(mask: int, values: int | np.ndarray) -> dict[int, int]:
    """Value -> mask of the lanes that hold it, in the order of their lowest lanes."""
    if isinstance(values, int):
        return {values: mask}
    found: dict[int, int] = {}
    for lane in lane_list(mask):
        value = int(values[lane])
        found[value] = found.get(value, 0) | 1 << lane
    return found


def signed(value: int, width: int) -> int:
    """The low `width` bits as a two's complement number."""
    half = 1 << width - 1
    return ((value & (1 << width) - 1) ^ half) - half


def extend(row: np.ndarray, width: int, is_signed: bool) -> np.ndarray:
    """A row of loaded words -> a register's row of `width` bits, sign- or zero-extended."""
    if row.dtype.itemsize * 8 == width:
        return row
    if is_signed:
        return row.view(INTS[8 * row.dtype.itemsize]).astype(INTS[width]).view(UINTS[width])
    return row.astype(UINTS[width])


def stack(values: list[int | np.ndarray], width: int) -> np.ndarray:
    """Rows and integers -> uint[count, 32] of `width` bits."""
    rows = [
        row_of(value & (1 << width) - 1, width) if isinstance(value, int) else value.astype(UINTS[width], copy=False)
        for value in values
    ]
    return np.stack(rows) if len(rows) > 1 else rows[0][None]
