"""The tensor core's arithmetic: calls of `mma` in the package's C library (native/mma.h).

A call holds all of an MMA that is known when it is issued; the addresses of the memories are added when it runs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nogpu import headers
from nogpu.arithmetic.numerics import DECODED, E2M1, E2M1_PAIRS, UE4M3, UE5M3, UE8M0
from nogpu.hardware.native import library
from nogpu.hardware.tensor.elements import NARROW_BITS

if TYPE_CHECKING:
    from nogpu.hardware.shared_memory import SharedMemory
    from nogpu.hardware.tensor.descriptors import Chunks
    from nogpu.hardware.tensor.instruction import MmaInstruction
    from nogpu.hardware.tensor.scale_factors import ScaleFactors
    from nogpu.hardware.tensor.sparsity import Metadata
    from nogpu.hardware.tensor.tmem import TensorMemory

_Operand = headers.structure("native/mma.h", "Operand")
_PAIRS, _BYTES, _PADDED, _PACKED, _HELD = headers.constants(
    "native/mma.h", "PAIRS", "BYTES", "PADDED", "PACKED", "HELD"
)
ILLEGAL_INDEX, ROW_CHUNKS, PART_K = headers.constants("native/mma.h", "ILLEGAL_INDEX", "ROW_CHUNKS", "PART_K")
_WHOLE = dict(zip(("f16", "bf16", "tf32"), headers.constants("native/mma.h", "F16", "BF16", "TF32")))
_D_TYPES = dict(zip(("f32", "f16", "s32"), headers.constants("native/mma.h", "D_F32", "D_F16", "D_S32")))
_SCALES = {"ue4m3": UE4M3, "ue5m3": UE5M3, "ue8m0": UE8M0}


def _frozen(table: np.ndarray) -> np.ndarray:
    table = np.ascontiguousarray(table)
    table.flags.writeable = False
    return table


_ELEMENTS = {
    **{name: DECODED[name] for name in ("e4m3", "e5m2", "e2m1", "e2m3", "e3m2")},
    "u8": _frozen(np.arange(256, dtype=np.float32)),
    "s8": _frozen(np.arange(256).astype(np.int8).astype(np.float32)),
}
"""Element -> float32[codes]. bfloat16 holds each value, and its product with a scale factor, exactly."""


def _bf16_bits(values: np.ndarray) -> np.ndarray:
    """uint16 of float32 values that bfloat16 holds exactly, or that are NaN."""
    return (values.view(np.uint32) >> 16).astype(np.uint16)


with np.errstate(over="ignore", under="ignore"):
    _PRODUCTS = {name: _frozen(_bf16_bits(np.multiply.outer(table, E2M1))) for name, table in _SCALES.items()}
"""Scale type -> bfloat16 bits uint16[256, 16] of a scale factor's code, times a code of e2m1.

Products outside float32's normal numbers are not used (`fits_float` in native/mma.c).
"""


@headers.mirrors("native/mma.h", "Mma")
class _Call(ctypes.Structure):
    """A call of `mma`."""


class Place(NamedTuple):
    """Place of an operand: in tensor memory if `chunks` is None."""

    chunks: Chunks | None
    transposed: bool
    width: int  # bytes of an element
    rows: int  # number of rows in one CTA
    column: int  # first column in tensor memory
    first: int  # byte of the first chunk at which a row of packed elements begins
    sparse: bool = False  # half of the elements are stored


class Result(NamedTuple):
    """Destination of the product."""

    lane: int  # first lane of D
    column: int  # first column of D
    accumulate: bool
    disabled: tuple[int, ...]  # lanes that D keeps (`core.Mma.disabled`)
    d_shift: int


def use_amx(wanted: bool) -> bool:
    """Switches AMX on or off for this process. Returns True if it is wanted and CPU, compiler and Linux have it."""
    return bool(library().use_amx(wanted))


def _exponents(values: np.ndarray) -> tuple[int, int]:
    """(low, high): finite values are multiples of 2**low, and less than 2**high in magnitude."""
    magnitudes = np.abs(values[np.isfinite(values) & (values != 0)])
    return int(np.frexp(magnitudes.min())[1]) - 1, int(np.frexp(magnitudes.max())[1])


class Multiplication:
    """The arithmetic of one MMA: D = A B (+ D), with their scale factors, in the CTAs' memories."""

    def __init__(
        self,
        op: MmaInstruction,
        a: Place,
        b: Place,
        scales: Sequence[ScaleFactors],
        result: Result,
        metadata: Metadata | None = None,
        zero_columns: int = 0,
    ) -> None:
        self._kept = a.chunks, b.chunks  # the call holds their addresses
        types = op.a_type, op.b_type
        self._call = _Call(
            a=_operand(op.a_type, op, a, scales[0] if scales else None),
            b=_operand(op.b_type, op, b, scales[1] if scales else None),
            ctas=op.cta_group,
            k=op.k,
            n=op.n,
            parts=op.parts,
            apart=op.stationary and a.chunks is None,
            spread=op.spread,
            halves=op.halves,
            lane=result.lane,
            column=result.column,
            d_type=_D_TYPES[op.d_type],
            accumulate=result.accumulate,
            negate=op.negate,
            saturate=op.saturate,
            d_shift=result.d_shift,
            # Two roundings to a 16-bit D would magnify the difference between orders of summation.
            narrow=op.d_type != "f16" and not any(name in _WHOLE for name in types),
            wide=op.scale_type == "ue8m0",
            disabled=tuple(_words(mask, 128) for mask in result.disabled),
            zero_columns=_words(zero_columns, 256),
        )
        if metadata is not None:
            self._call.metadata, self._call.unit, self._call.legal = metadata.column, metadata.unit, metadata.legal
        self._function = library().mma
        self.address = ctypes.addressof(self._call)

    def run(self, ctas: Sequence[tuple[SharedMemory, TensorMemory]]) -> int:
        """Computes D in every CTA. Returns what `core.Mma.multiply` does."""
        (shared, tensor), (odd_shared, odd_tensor) = ctas[0], ctas[-1]
        return self._function(self.address, shared.address, tensor.address, odd_shared.address, odd_tensor.address)


def _words(mask: int, bits: int) -> tuple[int, ...]:
    return tuple(mask >> shift & 0xFFFFFFFF for shift in range(0, bits, 32))


def _operand(element: str, op: MmaInstruction, place: Place, scales: ScaleFactors | None) -> ctypes.Structure:
    width = place.width if place.transposed else 0
    operand = _Operand(rows=place.rows, column=place.column, first=place.first, width=width)
    if place.chunks is not None:
        operand.chunks = place.chunks.places.ctypes.data
    if element in _WHOLE:
        operand.format = _WHOLE[element]
        return operand
    values = _ELEMENTS[element]
    operand.values = values.ctypes.data
    operand.low, operand.high = _exponents(values)
    operand.bits = NARROW_BITS.get(element, 8)
    if op.packs(element):
        operand.format = _PACKED
    elif operand.bits == 8 or not op.padded:
        operand.format = _BYTES if operand.bits == 8 else _PAIRS
    elif place.chunks is None:
        operand.format = _HELD
    else:
        operand.format = _BYTES if place.transposed or place.sparse else _PADDED
    if scales is not None:
        operand.scales = _SCALES[scales.scale_type].ctypes.data
        if operand.format == _PAIRS:
            operand.values = E2M1_PAIRS.ctypes.data
            if op.k // op.halves == PART_K:  # products are looked up by whole rows
                operand.products = _PRODUCTS[scales.scale_type].ctypes.data
        operand.scale_column, operand.scale_byte, operand.row_scales = scales.column, scales.first_byte, scales.count
        # Each half of a row has the table's two blocks, even if all of it has one factor (`pairs_to_bf16`).
        operand.scale_count = min(scales.count, 2) if op.sparse else scales.count
        operand.scale_rows, operand.scale_parts = scales.rows // scales.halves, scales.halves
        operand.scales_in_lanes = scales.in_lanes
    return operand
