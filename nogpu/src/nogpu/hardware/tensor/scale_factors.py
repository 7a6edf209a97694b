"""Scale factors of block-scaled MMAs in tensor memory.

The factor of block i of an operand's row r is byte `first_byte` + i of the word in lane r % 32, column r / 32, the
same in every quadrant of 32 lanes (PTX ISA, tcgen05: "Block Scaling", "Scale Factor A ID", "Scale Factor B ID"). With
M = 128 for a pair of CTAs, lanes 0-63 compute the lower half of N and lanes 64-127 the upper half, and each half of the
lanes holds only the factors of the rows of B that it needs (CUTLASS,
examples/.../tcgen05/2cta_mma_blockscale_m128.py).

Rubin's K of 128 with blocks of 16 has eight factors in a row. The words with the upper four of all rows follow those
with the lower four, rows rounded up to 128, as make_tmem_layout_sfa and _sfb of nvidia-cutlass-dsl 4.8.1 lay them out
(cutlass/utils/blockscaled_layout.py). So do those of K of 96, six or three factors from the scale factor ID on (PTX
ISA, "Layout of the Scale Factor A Matrix for block16 with K=96", "for block32 with K=96").

Bit 26 of the descriptor puts the eight of row r of A into lane r, in two columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nogpu.errors import Fault
from nogpu.hardware.tensor.instruction import MmaInstruction
from nogpu.hardware.tensor.tmem import LANES, QUADRANT, TensorMemory, split_address

_QUADRANTS = LANES // QUADRANT
_ATOM_ROWS = 128  # rows whose words lie together
_ID_BITS = 0x3FFFFFFF  # mask: kernels note the scale factor ID in the upper two bits of an address


@dataclass(frozen=True)
class ScaleFactors:
    """Scale factors of A or of B in one MMA."""

    column: int  # first column that holds them
    columns: int
    rows: int  # number of the operand's rows
    halves: int  # 2 if each half of the lanes holds the factors of half of the rows, else 1
    first_byte: int  # byte of a row's first factor in its word
    count: int  # number of factors of a row
    scale_type: str  # ue4m3, ue5m3 or ue8m0
    block: int  # elements per factor
    user: str  # name in messages
    in_lanes: bool = False  # the factors of row r are in lane r

    @staticmethod
    def at(
        op: MmaInstruction,
        user: str,
        taddr: int,
        rows: int,
        halves: int,
        first_byte: int,
        number: int = 0,
        in_lanes: bool = False,
    ) -> ScaleFactors:
        """Scale factors of an MMA at tensor memory address `taddr`, for part `number` of K.

        in_lanes: True if those of row r are in lane r. Raises Fault for a lane other than 0.
        """
        lane, column = split_address(taddr & _ID_BITS)
        if lane:
            raise Fault(f"{user} at lane {lane}; must be 0 (PTX ISA, tcgen05: Block Scaling)")
        assert op.scale_type is not None  # an MMA without block scaling has none
        columns = -(-rows // halves // QUADRANT)
        count = op.k // op.passes // op.block
        words, first_byte = divmod(first_byte + number * count, 4)
        if in_lanes:
            return ScaleFactors(
                column + words, 1, rows, halves, first_byte, count, op.scale_type, op.block, user, in_lanes=True
            )
        column += words * -(-rows // _ATOM_ROWS) * (_ATOM_ROWS // QUADRANT)
        return ScaleFactors(column, columns, rows, halves, first_byte, count, op.scale_type, op.block, user)

    def check(self, tmem: TensorMemory) -> None:
        """Raises Fault unless the factors' columns are allocated."""
        tmem.check_columns(self.column, self.columns, self.user)

    def check_copies(self, tmem: TensorMemory) -> None:
        """Raises Fault where the copies in the quadrants differ for a row that is in use."""
        if self.in_lanes:
            return
        words = np.ascontiguousarray(tmem.words[:, self.column : self.column + self.columns])
        codes = words.view(np.uint8).reshape(_QUADRANTS, QUADRANT, self.columns, 4)
        for half, part in enumerate(np.split(codes[..., self.first_byte : self.first_byte + self.count], self.halves)):
            self._check_copies(part, half * len(part))

    def _check_copies(self, codes: np.ndarray, first: int) -> None:
        """Raises Fault unless codes uint8[quadrants, 32, columns, count] are the same in all quadrants.

        first: number of the first quadrant.
        """
        by_row = codes.transpose(0, 2, 1, 3).reshape(len(codes), -1, codes.shape[-1])[:, : self.rows // self.halves]
        differing = np.argwhere(by_row != by_row[0])
        if len(differing):
            quadrant, row, _ = differing[0].tolist()
            lanes = [row % QUADRANT + QUADRANT * (first + index) for index in (0, quadrant)]
            raise Fault(
                f"{self.user}: row {row} in column {self.column + row // QUADRANT} differs between lanes {lanes[0]} "
                f"and {lanes[1]}; scale factors are needed in quadrants {first} to {first + len(codes) - 1} alike "
                "(PTX ISA, tcgen05: Block Scaling)"
            )
