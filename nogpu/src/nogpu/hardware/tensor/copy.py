"""tcgen05.cp: copies from shared to tensor memory."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nogpu.errors import Fault
from nogpu.hardware.copying import TensorCopy
from nogpu.hardware.native import library
from nogpu.hardware.tensor.descriptors import Chunks, k_major
from nogpu.hardware.tensor.elements import SOURCE_BITS, hold, unpad
from nogpu.hardware.tensor.order import COLUMNS, columns_mask
from nogpu.hardware.tensor.tmem import LANES, QUADRANT, TensorMemory, split_address
from nogpu.hardware.tma.swizzle import CHUNK, chunk_view

if TYPE_CHECKING:
    from nogpu.hardware.shared_memory import SharedMemory
    from nogpu.hardware.warp import Issuer

_QUADRANTS = LANES // QUADRANT


class _Shape(NamedTuple):
    """Source of a copy, and its distribution over the quadrants of lanes."""

    rows: int
    row_chunks: int  # 16-byte chunks per row
    source: tuple[int, ...]  # per quadrant: the group of 32 rows that it gets; of 4x256b, the row


_SHAPES = {
    ("128x256b", None): _Shape(128, 2, (0, 1, 2, 3)),
    ("128x128b", None): _Shape(128, 1, (0, 1, 2, 3)),
    ("64x128b", "warpx2::02_13"): _Shape(64, 1, (0, 1, 0, 1)),
    ("64x128b", "warpx2::01_23"): _Shape(64, 1, (0, 0, 1, 1)),
    ("32x128b", "warpx4"): _Shape(32, 1, (0, 0, 0, 0)),
    ("4x256b", None): _Shape(4, 2, (0, 1, 2, 3)),
}
"""(shape, multicast) -> source and distribution (PTX ISA, "tcgen05.cp").

It is an assumption that a row of two chunks (256b) has the layout of an operand's row in shared memory. Each row of
4x256b goes to one lane of a quadrant, the lane that the address names: CUTLASS (copy_traits_sm100.hpp) has them 32
lanes apart; PTX does not say.
"""


def observe_chunks(shared: SharedMemory, chunks: Chunks, issuer: Issuer | None) -> None:
    """Reports the read of the chunks to the memory's observer, if there is one."""
    if shared.observer is not None:
        shared.observer("load", "async", chunks.offsets, (CHUNK,), (1,), issuer)


def read_chunks(shared: SharedMemory, chunks: Chunks, issuer: Issuer | None) -> np.ndarray:
    """Bytes of the chunks, uint8[..., 16 * last axis]."""
    observe_chunks(shared, chunks, issuer)
    return chunk_view(shared).take(chunks.places).view(np.uint8)


def check_chunks(shared: SharedMemory, chunks: Chunks, descriptor: int, user: str) -> None:
    """Raises Fault, naming the user, unless the chunks lie in the CTA's shared memory."""
    try:
        shared.check_range(chunks.lowest * CHUNK, (chunks.highest + 1 - chunks.lowest) * CHUNK)
    except Fault as fault:
        raise Fault(f"{user}, shared memory descriptor {descriptor:#018x}: {fault}") from None


@dataclass(frozen=True)
class Copy:
    """One tcgen05.cp, checked as far as it can be when it is issued."""

    shape: _Shape
    lane: int  # first lane of the destination
    column: int  # first column of the destination
    descriptor: int  # shared memory descriptor
    chunks: Chunks  # chunks of the source
    bits: int  # bits of an element that is unpacked to a byte, 0: none is

    @staticmethod
    @lru_cache(maxsize=4096)
    def decode(
        shape: str, multicast: str | None, source_format: str | None, taddr: int, descriptor: int, rubin: bool = False
    ) -> Copy:
        """The copy of an instruction and its operands. Raises Fault if they are not legal.

        shape: 128x256b, 4x256b, 128x128b, 64x128b or 32x128b. multicast: None, "warpx2::02_13", "warpx2::01_23" or
        "warpx4". source_format: None, "b4x16_p64" or "b6x16_p32". taddr: tensor memory address. rubin: True on sm_107.
        """
        if (shape, multicast) not in _SHAPES:
            legal = ", ".join(".".join(filter(None, key)) for key in _SHAPES)
            raise Fault(
                f"tcgen05.cp.{shape}{'.' + multicast if multicast else ''}; must be {legal} (PTX ISA, tcgen05.cp)"
            )
        rules = _SHAPES[shape, multicast]
        lane, column = split_address(taddr)
        if lane >= (QUADRANT if rules.rows == _QUADRANTS else 1):
            allowed = f"below {QUADRANT}" if rules.rows == _QUADRANTS else "0"
            raise Fault(f"tcgen05.cp to lane {lane}; must be {allowed} for .{shape} (PTX ISA, tcgen05.cp)")
        try:
            chunks = k_major(descriptor, rules.rows, rules.row_chunks, rubin)
        except Fault as fault:
            raise Fault(f"tcgen05.cp, {fault}") from None
        bits = SOURCE_BITS[source_format] if source_format else 0
        return Copy(rules, lane, column, descriptor, chunks, bits)

    @cached_property
    def width(self) -> int:
        """Number of columns written."""
        return self.shape.row_chunks * CHUNK // 4

    @cached_property
    def columns(self) -> int:
        """Columns written, as a mask (`order.columns_mask`)."""
        return columns_mask(self.column, self.width)

    @cached_property
    def compiled(self) -> int | None:
        """Address of the structure that compiled code takes; None if elements are unpacked."""
        if self.bits:
            return None
        words = np.arange(LANES * COLUMNS).reshape(_QUADRANTS, QUADRANT, COLUMNS)[:, :, self.column]
        if self.shape.rows == _QUADRANTS:
            words, rows = words[:, self.lane], np.arange(_QUADRANTS)
        else:
            rows = np.array(self.shape.source)[:, None] * QUADRANT + np.arange(QUADRANT)
        tables = [np.ascontiguousarray(table.ravel(), np.int64) for table in (self.chunks.places, words, rows)]
        structure = TensorCopy(words.size, self.shape.row_chunks, *(table.ctypes.data for table in tables))
        self.__dict__["_kept"] = structure, tables
        return ctypes.addressof(structure)

    def check(self, ctas: Sequence[tuple[SharedMemory, TensorMemory]]) -> None:
        """Raises Fault unless source and destination exist in every CTA."""
        for shared, tmem in ctas:
            tmem.check_columns(self.column, self.width, "tcgen05.cp")
            if shared.has(self.chunks.lowest * CHUNK, (self.chunks.highest + 1) * CHUNK):
                continue
            check_chunks(shared, self.chunks, self.descriptor, "tcgen05.cp")

    def run(self, ctas: Sequence[tuple[SharedMemory, TensorMemory]], issuer: Issuer | None = None) -> None:
        """Copies in each CTA, from its own shared to its own tensor memory."""
        for shared, tmem in ctas:
            tmem.check_columns(self.column, self.width, "tcgen05.cp")
            tmem.touch(0, self.columns)
            if not shared.refuses_copies and self.compiled is not None:
                observe_chunks(shared, self.chunks, issuer)
                library().copy_to_tensor_memory(self.compiled, shared.window, tmem.address)
                self._tell(tmem, issuer)
                continue
            data = read_chunks(shared, self.chunks, issuer)
            if self.bits:
                data = hold(unpad(data, self.bits), self.bits)
            self.distribute(data.view(np.uint32), tmem.words)
            self._tell(tmem, issuer)

    def _tell(self, tmem: TensorMemory, issuer: Issuer | None) -> None:
        if tmem.values is not None and issuer is not None:
            tmem.values.copied(self, tmem, issuer)

    def distribute(self, words: np.ndarray, to: np.ndarray) -> None:
        """Writes the words of the rows, uint32[rows, columns], to tensor memory, uint32[LANES, COLUMNS]."""
        quadrants = to.reshape(_QUADRANTS, QUADRANT, COLUMNS)[:, :, self.column :][:, :, : self.width]
        if self.shape.rows == QUADRANT:
            quadrants[...] = words
        elif self.shape.rows == _QUADRANTS:
            quadrants[:, self.lane] = words
        else:
            quadrants[...] = words.reshape(-1, QUADRANT, self.width)[list(self.shape.source)]
