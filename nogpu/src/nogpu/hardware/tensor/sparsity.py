"""Sparsity metadata of tcgen05.mma.sp in tensor memory: where the stored elements of a row of A stand in K.

A row of A is divided into chunks, of which half is stored. An index of four bits places what is stored of a chunk: two
units, the first where the lower two bits say, the second where the upper two do. A unit is an element in kinds f16,
f8f6f4, mxf8f6f4 and i8 (2:4), two elements in kinds mxf4 and mxf4nvf4 (4:8 in pairs), half an element in kind tf32
(1:2). The legal indices are those of the PTX ISA ("Sparse Matrices"). An illegal one counts only where what it places
has a bit set: CUTLASS's compressor (transform/kernel/sm90_sparse_gemm_compressor.hpp) writes 0b0000 for chunks of
zeros, and tensor copies fill what lies outside of a tensor with zeros.

The indices of a row take 64 bits, two columns of the lane that D's row is in. In kinds f16 and tf32 they take 32 bits,
in one column, which the sparsity selector picks out of two: bit 3 of row r tells which halves of words are its own, and
they are in the lanes of rows r & ~8 and r | 8. Of 128 rows in a CTA CUTLASS has all that (`tmem_e_frg` in
cute/atom/mma_traits_sm100_frag.hpp). The PTX ISA shows it in figures, which were not to be had: that 64 rows of a CTA
are in D's lanes has been reported right on a GPU of sm_110 for all kinds but tf32, for which it is an assumption, and
so is the refusal of selectors 2 and 3. That GPU reports a misaligned address for an odd column.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nogpu.errors import Fault
from nogpu.hardware.tensor.instruction import PAIRED_METADATA, SPARSITY, MmaInstruction
from nogpu.hardware.tensor.tmem import QUADRANT, TensorMemory, split_address

SPARSE_MATRICES = "PTX ISA, tcgen05: Sparse Matrices"
_ONE_OF_TWO = (0b0100, 0b1110)
_TWO_OF_FOUR = (0b0100, 0b0110, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110)
_ELEMENTS = {"tf32": 2, "mxf4": 8, "mxf4nvf4": 8}  # elements of a chunk, where there are not four
_PAIR = 8  # rows between those that share a word
_GRANULE = 2  # columns


@dataclass(frozen=True, eq=False)
class Metadata:
    """The metadata of one MMA's A."""

    column: int  # first column that is read
    columns: int
    unit: int  # bytes of a unit, where elements of 4 and 6 bits in kinds f8f6f4 and mxf8f6f4 have one each
    indices: tuple[int, ...]  # the legal ones
    elements: int  # elements of a chunk
    lanes: np.ndarray  # lane of each row of A

    @staticmethod
    def at(op: MmaInstruction, taddr: int, d_lane: int) -> Metadata:
        """The metadata of an MMA at a tensor memory address. Raises Fault for one that is not legal."""
        lane, column = split_address(taddr)
        if lane != d_lane:
            raise Fault(f"tcgen05.mma.sp: metadata at lane {lane}, D at lane {d_lane}; must be the same ({SPARSITY})")
        if column % _GRANULE:
            raise Fault(f"tcgen05.mma.sp: metadata at column {column}, must be a multiple of {_GRANULE} ({SPARSITY})")
        rows = np.arange(op.rows)
        half = QUADRANT // 2
        lanes = rows // half * QUADRANT + rows % half + d_lane if op.spread else rows
        paired = op.kind in PAIRED_METADATA
        return Metadata(
            column=column + op.selector,
            columns=1 if paired else _GRANULE,
            unit=2 if paired else 1,
            indices=_ONE_OF_TWO if op.kind == "tf32" else _TWO_OF_FOUR,
            elements=_ELEMENTS.get(op.kind, 4),
            lanes=lanes,
        )

    @property
    def legal(self) -> int:
        """The legal indices as a mask of 16 bits."""
        return sum(1 << index for index in self.indices)

    def check(self, tmem: TensorMemory) -> None:
        """Raises Fault unless the columns are allocated."""
        tmem.check_columns(self.column, self.columns, "tcgen05.mma.sp metadata")

    def words(self, tmem: TensorMemory) -> np.ndarray:
        """The indices of each row, uint32[rows, 2]: two words, or its halves of two words."""
        if self.columns == _GRANULE:
            return tmem.words[self.lanes, self.column : self.column + _GRANULE]
        rows = np.arange(len(self.lanes))[:, None]
        lanes = self.lanes[np.concatenate([rows & ~_PAIR, rows | _PAIR], axis=1)]
        return tmem.words[lanes, self.column] >> ((rows & _PAIR) * 2).astype(np.uint32) & 0xFFFF

    def refusal(self, tmem: TensorMemory, row: int, chunk: int) -> Fault:
        """Fault that names the illegal index of a chunk of a row."""
        bit = 4 * chunk
        if self.columns == 1:
            lane, word, bit = self.lanes[row & ~_PAIR | bit // 16 * _PAIR], 0, bit % 16 + (row & _PAIR) * 2
        else:
            lane, word, bit = self.lanes[row], *divmod(bit, 32)
        index = int(tmem.words[lane, self.column + word]) >> bit & 15
        first = chunk * self.elements
        return Fault(
            f"tcgen05.mma.sp: row {row} of A, elements {first} to {first + self.elements - 1} of K, has index "
            f"{index:#06b} in bits {bit}-{bit + 3} of lane {lane}, column {self.column + word}; must be "
            f"{', '.join(f'{legal:#06b}' for legal in self.indices)} ({SPARSE_MATRICES})"
        )
