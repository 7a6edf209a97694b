"""Uninitialised elements of an MMA's result: from rows of A, columns of B, their scale factors, and D where it is
added.

The tensor core's own arithmetic finds them: an element is 1, or 2 where it has uninitialised bits, and so is a scale
factor. An element of D that differs from the one of known operands depends on uninitialised bits.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nogpu.hardware.tensor.elements import NARROW_BITS
from nogpu.hardware.tensor.order import COLUMNS
from nogpu.hardware.tensor.tmem import LANES, TensorMemory, split_address
from nogpu.hardware.tma.swizzle import CHUNK, CHUNK_TYPE, chunk_view
from nogpu.sanitizer.shadow_tables import is_zero

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nogpu.hardware.shared_memory import SharedMemory
    from nogpu.hardware.tensor.core import Mma
    from nogpu.hardware.tensor.descriptors import Chunks

Memories = tuple["SharedMemory", TensorMemory]
_SENTINEL = 0x55AA33CC
_CODES = {  # codes of 1 and 2
    "e4m3": (0x38, 0x40),
    "e5m2": (0x3C, 0x40),
    "e2m1": (0x2, 0x4),
    "e2m3": (0x08, 0x10),
    "e3m2": (0x0C, 0x10),
    "u8": (1, 2),
    "s8": (1, 2),
    "f16": (0x3C00, 0x4000),
    "bf16": (0x3F80, 0x4000),
    "tf32": (0x3F800000, 0x40000000),
    "ue4m3": (0x38, 0x40),
    "ue5m3": (0x78, 0x80),
    "ue8m0": (0x7F, 0x80),
}
_WIDTHS = {"f16": 2, "bf16": 2, "tf32": 4}
_HELD_SHIFT = {4: 2, 6: 1}  # shift of elements in tensor memory (elements.hold)


def _chosen(invalid: np.ndarray, one: int, two: int, kind: type) -> np.ndarray:
    return np.where(invalid, kind(two), kind(one))


def _codes(element: str, is_padded: bool, invalid: np.ndarray, in_tensor_memory: bool) -> np.ndarray:
    """uint8, in the shape of `invalid`: bytes of an operand whose elements are 2 where `invalid` is not 0, else 1."""
    one, two = _CODES[element]
    width = _WIDTHS.get(element)
    if width is not None:
        kind = {2: np.uint16, 4: np.uint32}[width]
        return _chosen(invalid.view(kind) != 0, one, two, kind).view(np.uint8)
    bits = NARROW_BITS.get(element, 8)
    if bits == 8:
        return _chosen(invalid != 0, one, two, np.uint8)
    if is_padded and in_tensor_memory:
        return _chosen(invalid != 0, one << _HELD_SHIFT[bits], two << _HELD_SHIFT[bits], np.uint8)
    group = CHUNK if is_padded else math.lcm(bits, 8) // 8  # bytes that begin and end with a code
    chunks = invalid.reshape(-1, group)
    packed = [_packed(code, bits)[:group] for code in (one, two)]
    found = np.where((chunks[:, : 2 * bits] != 0).any(axis=1)[:, None], packed[1], packed[0])
    return np.ascontiguousarray(found).reshape(invalid.shape)


def _packed(code: int, bits: int) -> np.ndarray:
    """uint8[16]: 16 elements of 4 or 6 bits, and padding."""
    digits = np.array([code >> n & 1 for n in range(bits)] * 16, np.uint8)
    return np.resize(np.packbits(digits, bitorder="little"), 2 * bits + CHUNK)[:CHUNK]


def _legal_words(words: np.ndarray, legal: int) -> np.ndarray:
    """Metadata whose illegal indices, which zeros of A have, are legal ones. legal: `Metadata.legal`."""
    indices = np.array([index if legal >> index & 1 else 0b0100 for index in range(16)], np.uint8)
    raw = np.ascontiguousarray(words).view(np.uint8)
    return (indices[raw & 15] | indices[raw >> 4] << 4).view(np.uint32)


def _bytes_of(shared: SharedMemory, chunks: Chunks) -> np.ndarray:
    return chunk_view(shared).take(chunks.places).view(np.uint8)


def _scale_words(tensor: TensorMemory, column: int, columns: int) -> np.ndarray:
    return tensor.words[:, column : column + columns]


class Products:
    """MMAs on shadows (`origins.py`)."""

    def __init__(self) -> None:
        self._footprints: dict[tuple, list[np.ndarray]] = {}
        self._scratch: list[Memories] = []

    def invalid_operand(self, mma: Mma, shadows: Sequence[Memories]) -> tuple[int, str, int] | None:
        """(number of the CTA, "shared" or "tensor", offset or column) of an operand's invalid byte, if it has one."""
        op = mma.op
        for number, (shared, tensor) in enumerate(shadows):
            for chunks in (mma.a_chunks, mma.b_chunks):
                if chunks is not None:
                    found = chunk_view(shared).take(chunks.places).view(np.uint64)
                    if not is_zero(found):
                        flat = found.view(np.uint8).reshape(-1, CHUNK)
                        row, byte = np.argwhere(flat)[0].tolist()
                        return number, "shared", int(chunks.places.ravel()[row]) * CHUNK + byte
            if mma.a_chunks is None:
                column = split_address(mma.a)[1]
                whole = op.rows == LANES or op.stationary
                lanes = slice(None) if whole else slice(mma.lane, mma.lane + op.rows)
                words = tensor.words[lanes, column : column + op.row_bytes // 4]
                if not is_zero(words):
                    return number, "tensor", column + int(np.argwhere(words)[0][1])
            if mma.metadata is not None:
                words = mma.metadata.words(tensor)
                if not is_zero(words):
                    return number, "tensor", mma.metadata.column
            for scales in mma.scales:
                words = _scale_words(tensor, scales.column, scales.columns)
                used = np.ascontiguousarray(words).view(np.uint8).reshape(LANES, -1, 4)
                used = used[..., scales.first_byte : scales.first_byte + scales.count]
                if not is_zero(used):
                    return number, "tensor", scales.column + int(np.argwhere(used)[0][1])
        return None

    def multiply(
        self, mma: Mma, shadows: Sequence[Memories], is_plain: bool, memories: Sequence[TensorMemory] = ()
    ) -> bool:
        """Writes the shadows of D. is_plain: no operand is invalid. Returns True if a word of D becomes so.

        memories: those of the CTAs, of which a sparse MMA's metadata are read.
        """
        fresh, footprint = self._footprint(mma, shadows)
        if is_plain:
            invalid = [np.zeros((LANES, COLUMNS), bool)] * len(shadows)
        else:
            found = self._run(mma, shadows, None, memories)
            invalid = [
                footprint[n] if found is None else (found[n] != fresh[n]) & footprint[n] for n in range(len(shadows))
            ]
            if mma.metadata is not None:
                for bad, written, (_, tensor) in zip(invalid, footprint, shadows, strict=True):
                    lanes = mma.metadata.lanes[mma.metadata.words(tensor).any(axis=1)]
                    bad[lanes] = written[lanes]
        for (_, tensor), bad, written in zip(shadows, invalid, footprint, strict=True):
            where = self._moved(written, mma)
            if not mma.accumulate:
                tensor.words[where] = 0
            tensor.words[self._moved(bad, mma)] = 0xFFFFFFFF
        return any(bad.any() for bad in invalid)

    @staticmethod
    def _moved(of_column_0: np.ndarray, mma: Mma) -> np.ndarray:
        return np.roll(of_column_0, mma.column, axis=1) if mma.column else of_column_0

    def _footprint(self, mma: Mma, shadows: Sequence[Memories]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """(D of known operands, uint32[LANES, COLUMNS]; mask of its written words), by CTA, as if D began at
        column 0.
        """
        key = mma.op, mma.lane, mma.disabled, mma.zero_columns
        known = self._footprints.get(key)
        if known is None:
            known = self._run(mma, shadows, 0)
            assert known is not None  # all scale factors are alike
            self._footprints[key] = known
        return known, [words != _SENTINEL for words in known]

    def _run(
        self, mma: Mma, shadows: Sequence[Memories], known: int | None, memories: Sequence[TensorMemory] = ()
    ) -> list[np.ndarray] | None:
        """D, uint32[LANES, COLUMNS], by CTA, as if it began at column 0, _SENTINEL elsewhere; None if copies of scale
        factors differ.

        known: 0 takes all operands as known.
        """
        op = mma.op
        scratch = self._scratch_for(shadows)
        for (shared, tensor), (shadow, words) in zip(scratch, shadows, strict=True):
            for chunks, element in ((mma.a_chunks, op.a_type), (mma.b_chunks, op.b_type)):
                if chunks is not None:
                    invalid = (
                        _bytes_of(shadow, chunks)
                        if known is None
                        else np.zeros((*chunks.places.shape[:-1], chunks.places.shape[-1] * CHUNK), np.uint8)
                    )
                    codes = _codes(element, op.padded, invalid, False)
                    chunk_view(shared)[chunks.places] = codes.view(CHUNK_TYPE)
            places = [(scales.column, scales.columns, scales.scale_type) for scales in mma.scales]
            if mma.a_chunks is None:
                places.append((split_address(mma.a)[1], op.row_bytes // 4, ""))
            for column, columns, scale_type in places:
                part = words.words[:, column : column + columns]
                raw = np.ascontiguousarray(part if known is None else np.zeros_like(part)).view(np.uint8)
                if scale_type:
                    codes = _chosen(raw != 0, *_CODES[scale_type], np.uint8)
                else:
                    codes = _codes(op.a_type, op.padded, raw, True)
                tensor.words[:, column : column + columns] = codes.view(np.uint32)
            tensor.words[:, mma.column : mma.column + op.columns] = _SENTINEL
        if mma.metadata is not None:
            places_of_a = slice(mma.metadata.column, mma.metadata.column + mma.metadata.columns)
            for number, (_, tensor) in enumerate(scratch):
                source = memories[number] if known is None else tensor
                tensor.words[:, places_of_a] = _legal_words(source.words[:, places_of_a], mma.metadata.legal)
        if replace(mma, accumulate=False).multiply(scratch):
            return None
        found = []
        for _, tensor in scratch:
            d = np.full((LANES, COLUMNS), _SENTINEL, np.uint32)
            d[:, : op.columns] = tensor.words[:, mma.column : mma.column + op.columns]
            found.append(d)
        return found

    def _scratch_for(self, shadows: Sequence[Memories]) -> list[Memories]:
        size = max(len(shared.data) for shared, _ in shadows)
        if len(self._scratch) < len(shadows) or len(self._scratch[0][0].data) < size:
            kind = type(shadows[0][0])
            self._scratch = [(kind(size), TensorMemory()) for _ in shadows]
        return self._scratch[: len(shadows)]
