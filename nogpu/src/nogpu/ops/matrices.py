"""ldmatrix, stmatrix, movmatrix: matrices between shared memory and the registers of a warp (PTX ISA, "ldmatrix",
"stmatrix", "movmatrix").

A row of a matrix is 16 bytes in shared memory. Lane i has the address of row i, the rows of all matrices counted.
Lane t holds, of row t / 4,

- elements 2 (t % 4) and 2 (t % 4) + 1 in an 8x8 matrix of 16-bit elements,
- bytes 4 (t % 4) to 4 (t % 4) + 3 in an 8x16 matrix of bytes.

The functions for transposed bytes describe their own fragments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nogpu.arithmetic.lanes import row_of
from nogpu.hardware.memory import RANK_SHIFT
from nogpu.ops.active_lanes import all_lanes
from nogpu.ops.memory import shared_target

if TYPE_CHECKING:
    from nogpu.hardware.warp import ActiveGroup, Issuer
    from nogpu.ops.active_lanes import Operand

ROW_BYTES = 16
_BITS = {"b8": 8, "b8x16.b6x16_p32": 6, "b8x16.b4x16_p64": 4}  # format -> bits of an element in shared memory


def _places(g: ActiveGroup, mask: int, address: Operand, rows: int, instruction: str) -> np.ndarray:
    """uint32[rows]: the rows' 32-bit addresses in this CTA's shared memory. address: 32-bit or generic addresses."""
    all_lanes(g, mask, instruction)
    places = row_of(address, 64)[:rows]
    if places.dtype == np.uint32:
        return places
    found = [shared_target(g, place) for place in places.tolist()]
    return np.array([cta.rank << RANK_SHIFT | offset for cta, offset in found], np.uint32)


def _loaded(g: ActiveGroup, mask: int, address: Operand, rows: int, issuer: Issuer) -> np.ndarray:
    """uint8[rows, 16]: the rows in shared memory."""
    words = g.cta.shared.gather(_places(g, mask, address, rows, "ldmatrix"), 8, 2, None, issuer)
    return np.ascontiguousarray(words.T).view(np.uint8)


def _stored(g: ActiveGroup, mask: int, address: Operand, data: np.ndarray, issuer: Issuer) -> None:
    """Writes rows to shared memory. data: uint8[rows, 16]."""
    places = _places(g, mask, address, len(data), "stmatrix")
    g.cta.machine.progress += 1
    g.cta.shared.scatter(places, np.ascontiguousarray(data.view(np.uint64).T), None, issuer)


def load_matrix(
    g: ActiveGroup, mask: int, address: Operand, count: int, transposed: bool, issuer: Issuer
) -> np.ndarray:
    """Executes ldmatrix.m8n8.xN.b16. Returns uint32[count, 32]."""
    halves = _loaded(g, mask, address, 8 * count, issuer).view(np.uint16).reshape(count, 8, 8)
    if transposed:
        halves = halves.transpose(0, 2, 1)
    return np.ascontiguousarray(halves).reshape(count, 64).view(np.uint32)


def store_matrix(
    g: ActiveGroup, mask: int, address: Operand, values: np.ndarray, transposed: bool, issuer: Issuer
) -> None:
    """Executes stmatrix.m8n8.xN.b16, the inverse of `load_matrix`. values: uint32[count, 32]."""
    halves = np.ascontiguousarray(values).view(np.uint16).reshape(-1, 8, 8)
    if transposed:
        halves = halves.transpose(0, 2, 1)
    _stored(g, mask, address, np.ascontiguousarray(halves).reshape(-1, 8).view(np.uint8), issuer)


def move_matrix(g: ActiveGroup, mask: int, value: Operand) -> np.ndarray:
    """movmatrix.m8n8.trans.b16: uint32[32], the transpose of an 8x8 matrix in registers."""
    all_lanes(g, mask, "movmatrix")
    halves = np.ascontiguousarray(row_of(value, 32)).view(np.uint16).reshape(8, 8)
    return np.ascontiguousarray(halves.T).reshape(64).view(np.uint32)


def _elements(rows: np.ndarray, form: str) -> np.ndarray:
    """uint8[rows, 16]: the 16 elements of each row, zero-extended. form: format in `rows`.

    Rows of narrow elements end in padding, which is ignored (PTX ISA, "ldmatrix", .b6x16_p32, .b4x16_p64).
    """
    bits = _BITS[form]
    if bits == 8:
        return rows
    fields = np.unpackbits(rows[:, : 2 * bits], axis=1, bitorder="little").reshape(len(rows), ROW_BYTES, bits)
    return np.packbits(fields, axis=2, bitorder="little")[:, :, 0]


def load_bytes(g: ActiveGroup, mask: int, address: Operand, count: int, form: str, issuer: Issuer) -> np.ndarray:
    """Executes ldmatrix.m8n16.xN. Returns uint32[count, 32]. form: format in shared memory."""
    return _elements(_loaded(g, mask, address, 8 * count, issuer), form).reshape(count, 128).view(np.uint32)


def load_bytes_transposed(
    g: ActiveGroup, mask: int, address: Operand, count: int, form: str, issuer: Issuer
) -> np.ndarray:
    """Executes ldmatrix.m16n16.xN.trans. Returns uint32[2 count, 32]. form: format in shared memory.

    The first register of lane t holds rows 4 (t % 4) to 4 (t % 4) + 3 of column t / 4, the second one the same rows of
    column t / 4 + 8. Rows and columns are those in shared memory.
    """
    columns = _elements(_loaded(g, mask, address, 16 * count, issuer), form).reshape(count, 16, 16).transpose(0, 2, 1)
    return np.ascontiguousarray(columns).reshape(2 * count, 128).view(np.uint32)


def store_bytes_transposed(g: ActiveGroup, mask: int, address: Operand, values: np.ndarray, issuer: Issuer) -> None:
    """Executes stmatrix.m16n8.xN.trans.b8. values: uint32[count, 32].

    Lane t holds rows 2 (t % 4) and 2 (t % 4) + 1 of column t / 4, then the same rows of column t / 4 + 8. Rows and
    columns are those in shared memory.
    """
    count = len(values)
    # Axes of the parts: matrix, column % 8, row / 2, column / 8, row % 2.
    parts = np.ascontiguousarray(values).view(np.uint8).reshape(count, 8, 4, 2, 2)
    rows = np.ascontiguousarray(parts.transpose(0, 2, 4, 3, 1)).reshape(8 * count, ROW_BYTES)
    _stored(g, mask, address, rows, issuer)
