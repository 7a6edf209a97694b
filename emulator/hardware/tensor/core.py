"""The tensor core: tcgen05.mma.

Operands are decoded to numbers and multiplied by a matrix product. The order and the width of the hardware's
accumulation inside one instruction are not modelled. Elements, scaled elements and products of two of them are exact.
The products are summed in float32 (in float64 with ue8m0 scale factors, whose range exceeds float32's), and the sum is
rounded to float32 and added to D in float32. In any order of summation, one instruction's result is within

    K 2**-24 / (1 - K 2**-24) * (sum over k of |a b| + |D|)

of the exact sum, K being the elements of a row (8 to 64); it is exact where every partial sum has at most 24
significant bits. A 16-bit D is rounded once more. kind::i8 is exact.

A pair of CTAs (cta_group::2) is given as (even, odd), and one call does the work of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from emulator.errors import Fault
from emulator.hardware.tensor.copy import check_chunks, read_chunks
from emulator.hardware.tensor.descriptors import Chunks, SmemDescriptor, k_major, mn_major
from emulator.hardware.tensor.elements import WIDTHS, decode
from emulator.hardware.tensor.instruction import OPERAND_ROW_BYTES, MmaInstruction, decode_instruction
from emulator.hardware.tensor.scale_factors import ScaleFactors
from emulator.hardware.tensor.tmem import COLUMNS, LANES, POISON, QUADRANT, TensorMemory, split_address
from emulator.hardware.tma.swizzle import CHUNK

if TYPE_CHECKING:
    from emulator.hardware.shared_memory import SharedMemory
    from emulator.hardware.warp import Issuer

_QUADRANTS = LANES // QUADRANT
_ROW_CHUNKS = OPERAND_ROW_BYTES // CHUNK
_INT32 = np.iinfo(np.int32)
DATA_PATH = "PTX ISA, tcgen05: Data Path Layout Organization"


def _operand_chunks(name: str, descriptor: int, rows: int, element: str, transposed: bool, k: int) -> Chunks:
    """The chunks of the rows of A or B that lie in one CTA's shared memory."""
    try:
        if transposed:
            _check_transposed_swizzle(descriptor, name, element)
            return mn_major(descriptor, k, rows * WIDTHS[element] // CHUNK)
        return k_major(descriptor, rows, _ROW_CHUNKS)
    except Fault as fault:
        raise Fault(f"tcgen05.mma {name}, {fault}") from None


def _check_transposed_swizzle(descriptor: int, name: str, element: str) -> None:
    """PTX ISA, "Valid Combinations of Type-Size, Major-ness and Swizzling"."""
    matrix = SmemDescriptor.decode(descriptor)
    wide = matrix.atom > CHUNK
    if wide != (WIDTHS[element] == 4):
        raise matrix.refuse(
            f"transposed {name} of type {element} {'must not' if wide else 'must'} have 128-byte swizzling with "
            "32-byte atoms (mode 1)",
            "PTX ISA, tcgen05: Valid Combinations of Type-Size, Major-ness and Swizzling",
        )


def _operand(
    shared: SharedMemory, chunks: Chunks, element: str, transposed: bool, padded: bool, issuer: Issuer | None
) -> np.ndarray:
    """float32[rows, k] of an operand in shared memory."""
    packed = read_chunks(shared, chunks, issuer)
    if transposed:
        width = WIDTHS[element]
        by_k = packed.reshape(len(packed), -1).view(f"u{width}")
        packed = np.ascontiguousarray(by_k.T).view(np.uint8)
    return decode(packed, element, padded)


class MmaForm(NamedTuple):
    """The part of a tcgen05.mma that its text fixes."""

    kind: str  # a key of `instruction.KINDS`
    cta_group: int
    scale_block: int | None = None  # elements per scale factor, 16 or 32
    a_in_tmem: bool = False
    d_shift: int = 0  # scale-input-d
    shifts_a: bool = False  # .ashift


class MmaOperands(NamedTuple):
    """The values that a tcgen05.mma reads when it is issued."""

    d: int  # tensor memory address
    a: int  # shared memory descriptor, or tensor memory address
    b: int  # shared memory descriptor
    idesc: int  # instruction descriptor
    sfa: int = 0  # tensor memory address of A's scale factors
    sfb: int = 0  # tensor memory address of B's scale factors
    accumulate: bool = False  # enable-input-d
    disabled: tuple[int, ...] = ()  # disable-output-lane, 32-bit words


@dataclass(frozen=True)
class Mma:
    """One tcgen05.mma, checked as far as it can be when it is issued (PTX ISA, "tcgen05.mma").

    D = A B (+ D / 2**d_shift if `accumulate`); the kinds with scale factors scale A and B by block.
    """

    op: MmaInstruction
    lane: int  # of D
    column: int  # of D
    a: int  # as in MmaOperands
    b: int
    a_chunks: Chunks | None  # None: A is in tensor memory
    b_chunks: Chunks
    scales: tuple[ScaleFactors, ...]  # of A and of B; empty without block scaling
    accumulate: bool
    disabled: tuple[int, ...]  # lanes that D keeps, a mask of 128 bits per CTA; empty: none
    d_shift: int
    shifts_a: bool

    @staticmethod
    @lru_cache(maxsize=4096)
    def decode(form: MmaForm, operands: MmaOperands) -> Mma:
        """The MMA of a form and its operands. Raises Fault if they are not legal with any contents of the memories."""
        op = decode_instruction(form.kind, form.cta_group, form.scale_block, operands.idesc)
        a, b, disabled = operands.a, operands.b, operands.disabled
        lane, column = split_address(operands.d)
        allowed = (0, 16) if op.layout == "F" else (0,)
        if lane not in allowed:
            raise Fault(
                f"tcgen05.mma: D at lane {lane}, not allowed for M = {op.m}; must be {' or '.join(map(str, allowed))} "
                f"({DATA_PATH})"
            )
        if form.shifts_a and (not form.a_in_tmem or op.m < LANES):
            raise Fault(
                f"tcgen05.mma.ashift with M = {op.m}; it needs A in tensor memory and M = 128 or 256 "
                "(PTX ISA, tcgen05.mma)"
            )
        a_chunks = None
        if form.a_in_tmem:
            _check_a_in_tmem(op, a, lane)
        else:
            a_chunks = _operand_chunks("A", a, op.rows, op.a_type, op.a_transposed, op.k)
        b_chunks = _operand_chunks("B", b, op.n // form.cta_group, op.b_type, op.b_transposed, op.k)
        masks = [sum(word << 32 * i for i, word in enumerate(disabled[j : j + 4])) for j in range(0, len(disabled), 4)]
        return Mma(
            op=op,
            lane=lane,
            column=column,
            a=a,
            b=b,
            a_chunks=a_chunks,
            b_chunks=b_chunks,
            scales=_scales(op, operands.sfa, operands.sfb),
            accumulate=operands.accumulate,
            disabled=tuple(masks) if any(masks) else (),
            d_shift=form.d_shift,
            shifts_a=form.shifts_a,
        )

    def check(self, ctas: Sequence[tuple[SharedMemory, TensorMemory]]) -> None:
        """Raises Fault unless all operands exist in every CTA."""
        for shared, tmem in ctas:
            tmem.check_columns(self.column, self.op.columns, "tcgen05.mma D")
            if self.a_chunks is None:
                tmem.check_columns(split_address(self.a)[1], OPERAND_ROW_BYTES // 4, "tcgen05.mma A")
            else:
                check_chunks(shared, self.a_chunks, self.a, "tcgen05.mma A")
            check_chunks(shared, self.b_chunks, self.b, "tcgen05.mma B")
            for scales in self.scales:
                scales.check(tmem)

    def run(self, ctas: Sequence[tuple[SharedMemory, TensorMemory]], issuer: Issuer | None = None) -> int:
        """Executes the MMA. ctas: one, or (even, odd) of a pair. Returns `MmaInstruction.flops`."""
        op = self.op
        if len(ctas) != op.cta_group:
            raise ValueError(f"cta_group::{op.cta_group} needs {op.cta_group} CTAs, got {len(ctas)}")
        for _, tmem in ctas:
            tmem.check_columns(self.column, op.columns, "tcgen05.mma D", writes=True)
        b_parts = [_operand(shared, self.b_chunks, op.b_type, op.b_transposed, op.padded, issuer) for shared, _ in ctas]
        b_values = b_parts[0] if len(b_parts) == 1 else np.concatenate(b_parts)
        with np.errstate(all="ignore"):
            for index, (shared, tmem) in enumerate(ctas):
                if self.a_chunks is None:
                    a_values = decode(_a_from_tmem(op, self.a, tmem), op.a_type, op.padded, in_tmem=True)
                else:
                    a_values = _operand(shared, self.a_chunks, op.a_type, op.a_transposed, op.padded, issuer)
                operands = [a_values, b_values]
                for i, factors in enumerate(self.scales):
                    scales = factors.read(tmem)
                    operands[i] = np.multiply(operands[i], scales, out=scales)
                product = np.matmul(operands[0], operands[1].T).astype(np.float32, copy=False)
                disabled = self.disabled[index] if self.disabled else 0
                self._update(tmem, np.negative(product) if op.negate else product, disabled)
                if self.shifts_a:
                    _shift_rows(tmem, split_address(self.a)[1])
        return op.flops

    def _update(self, tmem: TensorMemory, product: np.ndarray, disabled: int) -> None:
        """D = product (+ D), product float32[rows, n], except in the disabled lanes."""
        op = self.op
        columns = slice(self.column, self.column + op.columns)
        kept = np.array([bool(disabled >> lane & 1) for lane in range(LANES)]) if disabled else None
        before = tmem.words[kept, columns] if disabled else None
        words, shape = tmem.words[:, columns], product.shape
        if op.layout == "F":
            words = tmem.words.reshape(_QUADRANTS, QUADRANT, COLUMNS)[:, self.lane : self.lane + 16, columns]
            shape = _QUADRANTS, 16, op.columns
        elif op.layout == "B":
            words = tmem.words.reshape(2, LANES // 2, COLUMNS)[:, :, columns]
            product = product.reshape(op.rows, 2, op.columns).swapaxes(0, 1)
            shape = product.shape
        _ACCUMULATE[op.d_type](words, product.reshape(shape), self.accumulate, self.d_shift, op.saturate)
        if disabled:
            tmem.words[kept, columns] = before


def _scales(op: MmaInstruction, sfa: int, sfb: int) -> tuple[ScaleFactors, ...]:
    if not op.scale_type:
        return ()
    common = op.k // op.block, op.scale_type, op.block
    halves = 2 if op.layout == "B" else 1
    return (
        ScaleFactors.at(sfa, op.rows, 1, op.sfa_id, *common, "tcgen05.mma SFA"),
        ScaleFactors.at(sfb, op.n, halves, op.sfb_id, *common, "tcgen05.mma SFB"),
    )


def _accumulate_f32(words: np.ndarray, product: np.ndarray, accumulate: bool, d_shift: int, saturate: bool) -> None:
    values = words.view(np.float32)
    if not accumulate:
        values[...] = product
    elif d_shift:
        np.add(np.ldexp(values, -d_shift), product, out=values)
    else:
        np.add(values, product, out=values)


def _accumulate_f16(words: np.ndarray, product: np.ndarray, accumulate: bool, d_shift: int, saturate: bool) -> None:
    if accumulate:
        before = words.astype(np.uint16).view(np.float16).astype(np.float32)
        product = product + np.ldexp(before, -d_shift)
    # A 16-bit element takes the low half of a word (PTX ISA, Packing format for matrix D in Tensor Memory).
    words[...] = product.astype(np.float16).view(np.uint16) | np.uint32(POISON << 16 & POISON)


def _accumulate_s32(words: np.ndarray, product: np.ndarray, accumulate: bool, d_shift: int, saturate: bool) -> None:
    total = product.astype(np.int64)
    if accumulate:
        total += words.view(np.int32)
    if saturate:
        total = total.clip(_INT32.min, _INT32.max)
    words.view(np.int32)[...] = total.astype(np.int32)


_ACCUMULATE = {"f32": _accumulate_f32, "f16": _accumulate_f16, "s32": _accumulate_s32}


def _check_a_in_tmem(op: MmaInstruction, taddr: int, d_lane: int) -> None:
    lane, _ = split_address(taddr)
    if lane != d_lane:
        raise Fault(f"tcgen05.mma: A at lane {lane}, D at lane {d_lane}; must be the same ({DATA_PATH})")
    if op.a_transposed:
        raise Fault(
            "tcgen05.mma: transposed A (bit 15 of the instruction descriptor) in tensor memory, where it is row-major "
            "(PTX ISA, tcgen05: Matrix Layout Organization)"
        )


def _shift_rows(tmem: TensorMemory, column: int) -> None:
    """.ashift: after the product, every row of A takes the next row's elements, except the last row of each quadrant.

    PTX says "shifts the rows of the A matrix down by one row, except for the last row". The direction, the time and the
    division into quadrants were observed on a B200 (CUTLASS, examples/.../tcgen05/1cta_mma_a_from_tmem.py).
    """
    tmem.check_columns(column, OPERAND_ROW_BYTES // 4, "tcgen05.mma.ashift A", writes=True)
    quadrants = tmem.words.reshape(_QUADRANTS, QUADRANT, COLUMNS)[:, :, column : column + OPERAND_ROW_BYTES // 4]
    quadrants[:, :-1] = quadrants[:, 1:].copy()


def _a_from_tmem(op: MmaInstruction, taddr: int, tmem: TensorMemory) -> np.ndarray:
    """uint8[rows, 32]: A in tensor memory, packed, in the lanes of D's rows (PTX ISA, "Packing formats")."""
    lane, column = split_address(taddr)
    width = OPERAND_ROW_BYTES // 4
    tmem.check_columns(column, width, "tcgen05.mma A")
    words = tmem.words[:, column : column + width]
    if op.layout == "F":
        words = words.reshape(_QUADRANTS, QUADRANT, width)[:, lane : lane + 16]
    elif op.layout == "B":
        if not np.array_equal(words[:64], words[64:]):
            raise Fault(f"tcgen05.mma: A in lanes 64-127 differs from lanes 0-63 ({DATA_PATH}, Layout B)")
        words = words[:64]
    return np.ascontiguousarray(words).view(np.uint8).reshape(op.rows, OPERAND_ROW_BYTES)
