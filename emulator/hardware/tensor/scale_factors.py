"""Scale factors of block-scaled MMAs in tensor memory.

The factor of block i of an operand's row r is byte `first_byte` + i of the word in lane r % 32, column r / 32, and the
same in every quadrant of 32 lanes (PTX ISA, tcgen05: "Block Scaling", "Scale Factor A ID", "Scale Factor B ID"). With
M = 128 for a pair of CTAs, lanes 0-63 compute the lower half of N and lanes 64-127 the upper half, and each half of the
lanes holds only the factors of the rows of B that it needs (CUTLASS,
examples/.../tcgen05/2cta_mma_blockscale_m128.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from emulator.arithmetic.numerics import UE4M3, UE8M0
from emulator.errors import Fault
from emulator.hardware.tensor.tmem import LANES, QUADRANT, TensorMemory, split_address

# Products with ue8m0 exceed float32's range of exponents: 2**127 and 2**-127 may scale the same product.
_TABLES = {
    (name, block): np.repeat(table.astype(dtype)[:, None], block, axis=1)
    for name, table, dtype in (("ue4m3", UE4M3, np.float32), ("ue8m0", UE8M0, np.float64))
    for block in (16, 32)
}
"""(scale type, block) -> float[256, block]: a code's value once for each element that it scales."""

_QUADRANTS = LANES // QUADRANT
_ID_BITS = 0x3FFFFFFF  # mask: kernels note the scale factor ID in the upper two bits of an address


@dataclass(frozen=True)
class ScaleFactors:
    """The scale factors of A or of B in one MMA."""

    column: int  # the first one that holds them
    columns: int
    rows: int  # of the operand
    halves: int  # 2 if each half of the lanes holds the factors of half of the rows, else 1
    first_byte: int  # of a row's factors in their word
    count: int  # factors of a row
    scale_type: str  # ue4m3 or ue8m0
    block: int  # elements per factor
    user: str  # name in messages

    @staticmethod
    def at(
        taddr: int, rows: int, halves: int, first_byte: int, count: int, scale_type: str, block: int, user: str
    ) -> ScaleFactors:
        """The factors at tensor memory address `taddr`. Raises Fault for a lane other than 0."""
        lane, column = split_address(taddr & _ID_BITS)
        if lane:
            raise Fault(f"{user} at lane {lane}; must be 0 (PTX ISA, tcgen05: Block Scaling)")
        columns = -(-rows // halves // QUADRANT)
        return ScaleFactors(column, columns, rows, halves, first_byte, count, scale_type, block, user)

    def check(self, tmem: TensorMemory) -> None:
        """Raises Fault unless their columns are allocated."""
        tmem.check_columns(self.column, self.columns, self.user)

    def read(self, tmem: TensorMemory) -> np.ndarray:
        """The factor of every element of the operand, float[rows, count * block]: float32 of ue4m3, float64 of ue8m0.

        Raises Fault where the copies in the quadrants differ for a row that is in use.
        """
        self.check(tmem)
        raw = tmem.words[:, self.column : self.column + self.columns].tobytes()
        codes = np.ndarray((_QUADRANTS, QUADRANT, self.columns, 4), np.uint8, raw)
        if self.count != 4:
            codes = codes[..., self.first_byte : self.first_byte + self.count]
        if self.halves > 1:
            parts = np.split(codes, self.halves)
            for half, part in enumerate(parts):
                self._check_copies(part, half * len(part))
            return np.concatenate([self._values(part) for part in parts])
        if raw != raw[: len(raw) // _QUADRANTS] * _QUADRANTS:
            self._check_copies(codes, 0)
        return self._values(codes)

    def _values(self, codes: np.ndarray) -> np.ndarray:
        # Any 8-bit code is an index of the table; "wrap" only spares the check.
        values = _TABLES[self.scale_type, self.block].take(codes[0].swapaxes(0, 1), axis=0, mode="wrap")
        return values.reshape(-1, self.count * self.block)[: self.rows // self.halves]

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
