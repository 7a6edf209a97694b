"""The tensor core: tcgen05.mma.

Operands are decoded to numbers and multiplied as matrices, in C (native/mma.h). The order and the width of the
hardware's accumulation inside one instruction are not modelled. Elements, scaled elements and products of two of them
are exact. The products are summed in float32 (in float64 where ue8m0 scale factors exceed float32's range), and the sum
is rounded to float32 and added to D in float32. In any order of summation, one instruction's result is within

    K 2**-24 / (1 - K 2**-24) * (sum over k of |a b| + |D|)

of the exact sum, K being the elements of a row (8 to 128); it is exact where every partial sum has at most 24
significant bits. A 16-bit D is rounded once more. kind::i8 is exact. The order depends on whether the CPU has AMX.

A sparse A (tcgen05.mma.sp) is expanded by its metadata (`sparsity.py`), and multiplied as a dense one. A doubled K
(Rubin) is two products, the second of which is added to the first. K of 96 is three, each of a chunk of 16 bytes a row.

A pair of CTAs (cta_group::2) is given as (even, odd), and one call does the work of both.

tcgen05.mma.ws divides N among 128 / M parts of the lanes. A in tensor memory is then read in the lanes of each part.
The parts may differ: FlashInfer's block-sparse attention (cute_dsl/sparse/sm100_blk64) so computes two products with
one instruction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, reduce
from operator import or_
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import numpy as np

from nogpu.errors import Fault
from nogpu.hardware.tensor.copy import check_chunks, observe_chunks
from nogpu.hardware.tensor.descriptors import Chunks, SmemDescriptor, k_major, mn_major
from nogpu.hardware.tensor.elements import WIDTHS
from nogpu.hardware.tensor.instruction import MIDDLE_K, OPERAND_ROW_BYTES, MmaInstruction, decode_instruction
from nogpu.hardware.tensor.multiply import ILLEGAL_INDEX, ROW_CHUNKS, Multiplication, Place, Result
from nogpu.hardware.tensor.order import ALL_HALVES, COLUMNS, LOWER_HALVES, UPPER_HALVES, columns_mask
from nogpu.hardware.tensor.scale_factors import ScaleFactors
from nogpu.hardware.tensor.sparsity import Metadata
from nogpu.hardware.tensor.tmem import LANES, QUADRANT, TensorMemory, split_address
from nogpu.hardware.tensor.zero_columns import zero_columns
from nogpu.hardware.tma.swizzle import CHUNK, chunk_view

if TYPE_CHECKING:
    from nogpu.hardware.shared_memory import SharedMemory
    from nogpu.hardware.warp import Issuer

_QUADRANTS = LANES // QUADRANT
COLLECTOR = "PTX ISA, tcgen05.mma: collector buffers"
DATA_PATH = "PTX ISA, tcgen05: Data Path Layout Organization"


def _operand_chunks(
    name: str, descriptor: int, rows: range, element: str, transposed: bool, row: tuple[int, int], rubin: bool
) -> Chunks:
    """Chunks of the rows of A or B that lie in one CTA's shared memory. row: elements and bytes of one."""
    try:
        if transposed:
            _check_transposed_swizzle(descriptor, name, element, rubin)
            width = WIDTHS.get(element, 1)
            if rows.start * width % CHUNK:
                raise Fault(
                    f"an N-major matrix from column {rows.start} on, no multiple of {CHUNK // width}: not modelled"
                )
            whole = mn_major(descriptor, row[0], rows.stop * width // CHUNK, rubin)
            return whole.beyond(rows.start * width // CHUNK, 1)
        return k_major(descriptor, rows.stop, row[1] // CHUNK, rubin).beyond(rows.start, 0)
    except Fault as fault:
        raise Fault(f"tcgen05.mma {name}, {fault}") from None


def _check_transposed_swizzle(descriptor: int, name: str, element: str, rubin: bool) -> None:
    """Raises Fault for an illegal swizzle (PTX ISA, "Valid Combinations of Type-Size, Major-ness and Swizzling")."""
    matrix = SmemDescriptor.decode(descriptor, rubin)
    wide = matrix.atom > CHUNK
    if wide != (WIDTHS.get(element) == 4):
        raise matrix.refuse(
            f"transposed {name} of type {element} {'must not' if wide else 'must'} have 128-byte swizzling with "
            "32-byte atoms (mode 1)",
            "PTX ISA, tcgen05: Valid Combinations of Type-Size, Major-ness and Swizzling",
        )


class MmaForm(NamedTuple):
    """Part of a tcgen05.mma that its text fixes."""

    kind: str  # a key of `instruction.KINDS`
    cta_group: int
    scale_block: int | None = None  # elements per scale factor, 16 or 32
    a_in_tmem: bool = False
    d_shift: int = 0  # scale-input-d
    shifts_a: bool = False  # .ashift
    b_collector: str | None = None  # operation on the collector of B
    b_buffer: str = "b"  # collector of B: "b" on Rubin, "b0" to "b3" with .ws
    sparse: bool = False  # .sp
    stationary: bool = False  # .ws


class MmaOperands(NamedTuple):
    """Values that a tcgen05.mma reads when it is issued."""

    d: int  # tensor memory address
    a: int  # shared memory descriptor, or tensor memory address
    b: int  # shared memory descriptor
    idesc: int  # instruction descriptor
    sfa: int = 0  # tensor memory address of A's scale factors
    sfb: int = 0  # tensor memory address of B's scale factors
    accumulate: bool = False  # enable-input-d
    disabled: tuple[int, ...] = ()  # disable-output-lane, 32-bit words
    metadata: int = 0  # tensor memory address of the sparsity metadata
    zero_columns: int = 0  # zero-column mask descriptor


@dataclass(frozen=True)
class Mma:
    """One tcgen05.mma, checked as far as it can be when it is issued (PTX ISA, "tcgen05.mma").

    D = A B (+ D / 2**d_shift if `accumulate`); the kinds with scale factors scale A and B by block.
    """

    op: MmaInstruction
    lane: int  # first lane of D
    column: int  # first column of D
    a: int  # as in MmaOperands
    b: int
    a_chunks: Chunks | None  # None: A is in tensor memory
    b_chunks: Chunks
    scales: tuple[ScaleFactors, ...]  # of A and of B, for each part of K; empty without block scaling
    metadata: Metadata | None  # None: A is dense
    accumulate: bool
    disabled: tuple[int, ...]  # lanes that D keeps, a mask of 128 bits per CTA; empty: none
    d_shift: int
    shifts_a: bool
    b_collector: str | None  # operation on the collector of B
    b_buffer: str  # name of that collector
    zero_columns: int  # columns of B that are taken as zeros, a mask

    @staticmethod
    @lru_cache(maxsize=4096)
    def decode(form: MmaForm, operands: MmaOperands, rubin: bool = False) -> Mma:
        """MMA of a form and its operands. rubin: True on sm_107. Raises Fault if they are illegal whatever the memories
        contain.
        """
        if form.b_collector and not rubin and not form.stationary:
            raise Fault(f"tcgen05.mma.collector::b::{form.b_collector} needs sm_107 (ptxas 13.5)")
        op = decode_instruction(
            form.kind, form.cta_group, form.scale_block, operands.idesc, rubin, form.sparse, form.stationary
        )
        zeros, shift = zero_columns(op, operands.zero_columns)
        a, b, disabled = operands.a, operands.b, operands.disabled
        lane, column = split_address(operands.d)
        allowed = (0, 16) if op.spread else (0,)
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
            if op.k == MIDDLE_K:
                raise Fault("tcgen05.mma with K of 96 and A in tensor memory is not modelled")
            if op.packs(op.a_type):
                raise Fault(f"tcgen05.mma with K of {op.k} and A of type {op.a_type} in tensor memory is not modelled")
            _check_a_in_tmem(op, a, lane)
        else:
            row = op.k // op.halves, op.shared_row_bytes(op.a_type)
            a_chunks = _operand_chunks("A", a, range(op.rows), op.a_type, op.a_transposed, row, rubin)
        b_rows = range(shift, shift + op.n // form.cta_group)
        row = op.k, op.shared_row_bytes(op.b_type) * op.halves
        b_chunks = _operand_chunks("B", b, b_rows, op.b_type, op.b_transposed, row, rubin)
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
            metadata=Metadata.at(op, operands.metadata, lane) if op.sparse else None,
            accumulate=operands.accumulate,
            disabled=tuple(masks) if any(masks) else (),
            d_shift=form.d_shift,
            shifts_a=form.shifts_a,
            b_collector=form.b_collector,
            b_buffer=form.b_buffer,
            zero_columns=zeros,
        )

    def check(self, ctas: Sequence[tuple[SharedMemory, TensorMemory]]) -> None:
        """Raises Fault unless all operands exist in every CTA."""
        for shared, tmem in ctas:
            self._check_columns(tmem)
            if self.a_chunks is not None:
                check_chunks(shared, self.a_chunks, self.a, "tcgen05.mma A")
            check_chunks(shared, self.b_chunks, self.b, "tcgen05.mma B")

    def shift_rows(self, words: np.ndarray) -> None:
        """Executes .ashift of A in tensor memory, uint32[LANES, COLUMNS], or in an array that stands for it."""
        if self.shifts_a:
            _shift_rows(words, split_address(self.a)[1], self.op.row_bytes // 4)

    def _check_columns(self, tmem: TensorMemory) -> None:
        if not self._touched & ~tmem.owned:
            return
        tmem.check_columns(self.column, self.op.columns, "tcgen05.mma D")
        if self.a_chunks is None:
            tmem.check_columns(split_address(self.a)[1], self.op.row_bytes // 4, "tcgen05.mma A")
        for scales in self.scales:
            scales.check(tmem)
        if self.metadata is not None:
            self.metadata.check(tmem)

    @cached_property
    def writes(self) -> int:
        """The columns that are written, as a mask."""
        halves = (UPPER_HALVES if self.lane else LOWER_HALVES) if self.op.spread else ALL_HALVES
        columns = columns_mask(self.column, self.op.columns, halves)
        return columns | self._a_columns if self.shifts_a else columns

    @cached_property
    def reads(self) -> int:
        """The columns that are read besides D's, as a mask."""
        columns = [columns_mask(scales.column, scales.columns) for scales in self.scales]
        if self.metadata is not None:
            columns.append(columns_mask(self.metadata.column, self.metadata.columns))
        return reduce(or_, columns, self._a_columns)

    @cached_property
    def _touched(self) -> int:
        """The columns that are read or written, as a mask."""
        return self.reads | self.writes

    @cached_property
    def _a_columns(self) -> int:
        if self.a_chunks is not None:
            return 0
        return columns_mask(split_address(self.a)[1], self.op.row_bytes // 4)

    @cached_property
    def _multiplications(self) -> list[Multiplication]:
        """Multiplications of the parts of K, to be run in this order."""
        return [self._multiplication(number) for number in range(self.op.passes)]

    @property
    def calls(self) -> list[int]:
        """Addresses of the calls of `mma` in native/mma.h that compute D, one after the other."""
        return [multiplication.address for multiplication in self._multiplications]

    @property
    def chunks(self) -> list[Chunks]:
        """The chunks of the operands in shared memory."""
        return [self.b_chunks] if self.a_chunks is None else [self.a_chunks, self.b_chunks]

    def _multiplication(self, number: int) -> Multiplication:
        op, passes = self.op, self.op.passes
        a_chunks = self.a_chunks and self.a_chunks.part(number, passes, op.a_transposed)
        b_chunks = self.b_chunks.part(number, passes, op.b_transposed)
        a_column = split_address(self.a)[1] + number * OPERAND_ROW_BYTES // 4
        firsts = [number * op.shared_row_bytes(element) // passes % CHUNK for element in (op.a_type, op.b_type)]
        a = Place(a_chunks, op.a_transposed, WIDTHS.get(op.a_type, 1), op.rows, a_column, firsts[0], op.sparse)
        b = Place(b_chunks, op.b_transposed, WIDTHS.get(op.b_type, 1), op.n // op.cta_group, 0, firsts[1])
        result = Result(self.lane, self.column, self.accumulate or number > 0, self.disabled, self.d_shift)
        scales = self.scales[2 * number :][:2]
        part = replace(op, k=op.k // passes)
        return Multiplication(part, a, b, scales, result, self.metadata, self.zero_columns)

    def multiply(self, ctas: Sequence[tuple[SharedMemory, TensorMemory]]) -> int:
        """Computes D in every CTA. Returns 0; else D may be partial, and what is wrong is what `mma` in native/mma.h
        returns.
        """
        for multiplication in self._multiplications:
            if refused := multiplication.run(ctas):
                return refused
        return 0

    def run(
        self, ctas: Sequence[tuple[SharedMemory, TensorMemory]], issuer: Issuer | None = None, multiplies: bool = True
    ) -> int:
        """Executes the MMA. ctas: one, or (even, odd) of a pair. multiplies: False only checks what does not depend on
        the memories' contents, and leaves D as it is. Returns `MmaInstruction.flops`.
        """
        op = self.op
        if len(ctas) != op.cta_group:
            raise ValueError(f"cta_group::{op.cta_group} needs {op.cta_group} CTAs, got {len(ctas)}")
        for shared, tmem in ctas:
            self._check_columns(tmem)
            tmem.touch(self.reads, self.writes)
            observe_chunks(shared, self.b_chunks, issuer)
        if self.a_chunks is not None:
            for shared, _ in ctas:
                observe_chunks(shared, self.a_chunks, issuer)
        self._collect(ctas)
        if multiplies and (refused := self.multiply(ctas)):
            self._refuse([tmem for _, tmem in ctas], refused)
        values = ctas[0][1].values
        if values is not None and issuer is not None and multiplies:
            values.multiplied(self, [tmem for _, tmem in ctas], issuer)
        if self.shifts_a:
            for _, tmem in ctas:
                self.shift_rows(tmem.words)
        return op.flops

    def _collect(self, ctas: Sequence[tuple[SharedMemory, TensorMemory]]) -> None:
        """Keeps B in the collector, or checks that the collector has it: .use and .lastuse read B as it was filled in,
        which has to be B as it is in memory.
        """
        collected, buffer = ctas[0][1].b_collected, self.b_buffer
        if self.b_collector in ("use", "lastuse"):
            held, name = collected.get(buffer), f"tcgen05.mma.collector::{buffer}::{self.b_collector}"
            if held is None:
                raise Fault(f"{name}: no B has been filled in since the last .lastuse or .discard ({COLLECTOR})")
            if held[0] != self._b_identity:
                raise Fault(
                    f"{name}: B is {_b_named(self._b_identity)}, the collector holds {_b_named(held[0])} ({COLLECTOR})"
                )
            # A use may shift columns that the fill has not shifted: what both have read is compared.
            if any(held[1].get(place, item) != item for place, item in self._b_items(ctas).items()):
                raise Fault(f"{name}: B has changed in shared memory since it was filled in ({COLLECTOR})")
        if self.b_collector == "fill":
            collected[buffer] = self._b_identity, self._b_items(ctas)
        elif self.b_collector != "use":
            collected.pop(buffer, None)

    @property
    def _b_identity(self) -> tuple[int, int, int, str]:
        return self.b, self.op.n, self.op.k, self.op.b_type

    def _b_items(self, ctas: Sequence[tuple[SharedMemory, TensorMemory]]) -> dict[tuple[int, int], bytes]:
        """The 16-byte items of B by the CTA's number and their own."""
        return {
            (number, place): item.tobytes()
            for number, (shared, _) in enumerate(ctas)
            for place, item in zip(
                self.b_chunks.places.ravel().tolist(), chunk_view(shared).take(self.b_chunks.places.ravel())
            )
        }

    def _refuse(self, memories: Sequence[TensorMemory], refused: int) -> NoReturn:
        """Raises Fault for an illegal index of metadata, or the first copies of A or of scale factors that differ.

        refused: what `multiply` has returned.
        """
        if self.metadata is not None and refused >= ILLEGAL_INDEX:
            place, chunk = divmod(refused - ILLEGAL_INDEX, ROW_CHUNKS)
            rank, row = divmod(place, LANES)
            raise self.metadata.refusal(memories[rank], row, chunk)
        for tmem in memories:
            if self.a_chunks is None and self.op.layout == "B":
                column = split_address(self.a)[1]
                upper, lower = np.split(tmem.words[:, column : column + self.op.row_bytes // 4], 2)
                if not np.array_equal(upper, lower):
                    raise Fault(f"tcgen05.mma: A in lanes 64-127 differs from lanes 0-63 ({DATA_PATH}, Layout B)")
            for scales in self.scales:
                scales.check_copies(tmem)
        raise AssertionError("copies of operands in tensor memory differ only for the C library")


def _scales(op: MmaInstruction, sfa: int, sfb: int) -> tuple[ScaleFactors, ...]:
    if not op.scale_type:
        return ()
    halves = 2 if op.layout == "B" else 1
    return tuple(
        factors
        for number in range(op.passes)
        for factors in (
            ScaleFactors.at(op, "tcgen05.mma SFA", sfa, op.rows, 1, op.sfa_id, number, op.sfa_in_lanes),
            ScaleFactors.at(op, "tcgen05.mma SFB", sfb, op.n, halves, op.sfb_id, number),
        )
    )


def _b_named(identity: tuple[int, int, int, str]) -> str:
    descriptor, n, k, element = identity
    return f"{n} x {k} of {element} at shared memory descriptor {descriptor:#018x}"


def _check_a_in_tmem(op: MmaInstruction, taddr: int, d_lane: int) -> None:
    lane, _ = split_address(taddr)
    if lane != d_lane:
        raise Fault(f"tcgen05.mma: A at lane {lane}, D at lane {d_lane}; must be the same ({DATA_PATH})")
    if op.a_transposed:
        raise Fault(
            "tcgen05.mma: transposed A (bit 15 of the instruction descriptor) in tensor memory, where it is row-major "
            "(PTX ISA, tcgen05: Matrix Layout Organization)"
        )


def _shift_rows(words: np.ndarray, column: int, width: int) -> None:
    """Executes .ashift: after the product, each row of A but a quadrant's last takes the next row's elements.

    PTX says "shifts the rows of the A matrix down by one row, except for the last row". The direction, the time and the
    division into quadrants were observed on a B200 (CUTLASS, examples/.../tcgen05/1cta_mma_a_from_tmem.py).
    """
    quadrants = words.reshape(_QUADRANTS, QUADRANT, COLUMNS)[:, :, column : column + width]
    quadrants[:, :-1] = quadrants[:, 1:].copy()
