"""Naturally aligned words in a range of bytes, read and written for one lane (struct) or a warp's lanes (NumPy)."""

from __future__ import annotations

import struct

import numpy as np

from nogpu.errors import Fault

UINT = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
STRUCT = {(n, c): struct.Struct(f"<{c}{code}") for n, code in zip((1, 2, 4, 8), "BHIQ") for c in (1, 2, 4, 8)}

_POSITIVE = np.array(np.iinfo(np.int64).max, np.uint64)


def misaligned(kind: str, address: int, width: int) -> Fault:
    """Fault for an access of `width` bytes that is not aligned to its size. kind: "load" or "store"."""
    return Fault(
        f"{kind} of {width} bytes at {address:#x}: misaligned by {address & (width - 1)} bytes, an access must be "
        f"aligned to its size (PTX ISA, Addresses as Operands)"
    )


class Words:
    """Naturally aligned words of one width in a range of bytes, indexed by lanes' addresses.

    The index of a word is its address's distance from the first word, rotated right by log2(width). A misaligned
    address and one outside the range both give an index outside the array, so that NumPy's own bounds check finds them:
    it raises IndexError before anything is stored.
    """

    __slots__ = ("down", "lanes", "origin", "plain", "up", "wide")

    def __init__(self, data: np.ndarray, start: int, nbytes: int, count: int, address_type: type[np.unsignedinteger]):
        """data: uint8, its first byte at address `start`; a word is `count` elements of `nbytes` bytes."""
        width = nbytes * count
        first = -(-start // width) * width
        length = max(0, start + len(data) - first) // width
        words = data[first - start :][: length * width].view(UINT[nbytes])
        self.lanes = words if count == 1 else words.reshape(length, count)
        self.plain = count == 1
        self.wide = address_type is np.uint64
        shift = width.bit_length() - 1
        self.origin = np.array(first, address_type)
        self.down = np.array(shift, address_type)
        self.up = np.array(np.dtype(address_type).itemsize * 8 - shift, address_type) if shift else None

    def index(self, addresses: np.ndarray) -> np.ndarray:
        """int64[lanes]: indices of the words, out of bounds where an address is not a word's."""
        index = addresses - self.origin
        if self.up is not None:
            index = (index >> self.down) | (index << self.up)
        elif self.wide:  # A distance below zero would stay a valid negative index.
            index &= _POSITIVE
        return index.view(np.int64) if self.wide else index.astype(np.int64)

    def load(self, addresses: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
        """Loads uint[count, lanes]; lanes outside the mask read the first word."""
        index = self.index(addresses)
        if mask is not None:
            index *= mask
        return self.lanes[index][None] if self.plain else self.lanes.take(index, axis=0).T

    def store(self, addresses: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Stores values uint[count, lanes]. Returns the words' indices."""
        index = self.index(addresses)
        self.lanes[index] = values[0] if self.plain else values.T
        return index
