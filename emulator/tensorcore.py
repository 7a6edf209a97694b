"""The tensor core: tcgen05.cp from shared to tensor memory, and tcgen05.mma.

Operands are decoded to float32 and multiplied by a float32 matrix product; the order and the width of the hardware's
accumulation inside one instruction are not modelled. Scaled e2m1 elements, and the products of two of them, are exact
in float32 before they are summed. A pair of CTAs (cta_group::2) is given as (even, odd); a call does the work of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from emulator.descriptors import OPERAND_ROW_BYTES, MmaInstruction, decode_instruction, operand_chunks
from emulator.errors import Fault
from emulator.numerics import UE4M3, UE8M0, bf16_to_f32, unpack_e2m1
from emulator.tma import CHUNK, chunk_view
from emulator.tmem import COLUMNS, LANES, POISON, QUADRANT, TensorMemory, split_address

if TYPE_CHECKING:
    from emulator.memory import SharedMemory

_SCALES = {
    (name, block): np.repeat(table[:, None], block, axis=1)
    for name, table in (("ue4m3", UE4M3), ("ue8m0", UE8M0))
    for block in (16, 32)
}
"""(scale type, block) -> float32[256, block]: a code's value once for each element that it scales."""

_PARTITIONS = LANES // QUADRANT

_COPIES: dict[tuple[str, str | None], tuple[int, int, tuple[int, ...]]] = {
    ("128x256b", None): (128, 2, (0, 1, 2, 3)),
    ("128x128b", None): (128, 1, (0, 1, 2, 3)),
    ("64x128b", "warpx2::02_13"): (64, 1, (0, 1, 0, 1)),
    ("64x128b", "warpx2::01_23"): (64, 1, (0, 0, 1, 1)),
    ("32x128b", "warpx4"): (32, 1, (0, 0, 0, 0)),
}
"""(shape, multicast) -> (rows, 16-byte chunks of a row, which 32 rows go to each quadrant of lanes).

PTX ISA, "tcgen05.cp"; that a row of two chunks (256b) lies in shared memory as an operand's row does is an assumption.
"""


def _gather(shared: SharedMemory, descriptor: int, rows: int, row_chunks: int, user: str, who: object) -> np.ndarray:
    """The operand at a shared memory descriptor, uint8[rows, 16 row_chunks]."""
    chunks, lowest, highest = operand_chunks(descriptor, rows, row_chunks)
    try:
        shared.check(lowest * CHUNK, (highest + 1 - lowest) * CHUNK)
    except Fault as fault:
        raise Fault(f"{user}, shared memory descriptor {descriptor:#018x}: {fault}") from None
    if shared.observer is not None:
        shared.observer("load", "async", chunks.ravel() * CHUNK, (CHUNK,), (1,), who)
    return chunk_view(shared).take(chunks).view(np.uint8)


def copy(
    shape: str,
    multicast: str | None,
    taddr: int,
    descriptor: int,
    pairs: Sequence[tuple[SharedMemory, TensorMemory]],
    who: object = None,
) -> None:
    """tcgen05.cp in each of the given CTAs, from its own shared memory (descriptor) to its own tensor memory (taddr).

    shape: 128x256b, 128x128b, 64x128b or 32x128b; multicast: None, "warpx2::02_13", "warpx2::01_23" or "warpx4".
    """
    if (shape, multicast) not in _COPIES:
        raise Fault(f"tcgen05.cp.{shape}{'.' + multicast if multicast else ''} is not modelled (PTX ISA, tcgen05.cp)")
    rows, row_chunks, source = _COPIES[shape, multicast]
    lane, column = split_address(taddr)
    if lane:
        raise Fault(f"tcgen05.cp to lane {lane}; must be 0 for .{shape} (PTX ISA, tcgen05.cp)")
    width = row_chunks * CHUNK // 4
    for shared, tmem in pairs:
        tmem.check_columns(column, width, "tcgen05.cp")
        data = _gather(shared, descriptor, rows, row_chunks, "tcgen05.cp", who).view(np.uint32)
        quadrants = tmem.words.reshape(_PARTITIONS, QUADRANT, COLUMNS)[:, :, column : column + width]
        if rows == QUADRANT:
            quadrants[...] = data
        else:
            quadrants[...] = data.reshape(-1, QUADRANT, width)[list(source)]


def _decode(packed: np.ndarray, element: str) -> np.ndarray:
    """float32[rows, k] of an operand's bytes, uint8[rows, 32]."""
    if element == "e2m1":
        return unpack_e2m1(packed)
    if element == "bf16":
        return bf16_to_f32(packed.view(np.uint16))
    return packed.view(np.float16).astype(np.float32)


def _a_from_tmem(op: MmaInstruction, taddr: int, d_lane: int, tmem: TensorMemory) -> np.ndarray:
    """A out of tensor memory, uint8[rows, 32]: in the lanes of D's rows, packed (PTX ISA, "Packing formats")."""
    lane, column = split_address(taddr)
    if lane != d_lane:
        raise Fault(
            f"tcgen05.mma: A at lane {lane}, D at lane {d_lane}; must be the same "
            "(PTX ISA, Data Path Layout Organization)"
        )
    width = OPERAND_ROW_BYTES // 4
    tmem.check_columns(column, width, "tcgen05.mma A")
    words = tmem.words[:, column : column + width]
    if op.layout == "F":
        words = words.reshape(_PARTITIONS, QUADRANT, width)[:, lane : lane + 16]
    elif op.layout == "B":
        if not np.array_equal(words[:64], words[64:]):
            raise Fault(
                "tcgen05.mma: A in lanes 64-127 differs from lanes 0-63 "
                "(PTX ISA, Data Path Layout Organization, Layout B)"
            )
        words = words[:64]
    return np.ascontiguousarray(words).view(np.uint8).reshape(op.rows, OPERAND_ROW_BYTES)


def _scales(op: MmaInstruction, tmem: TensorMemory, taddr: int, rows: int, first_byte: int, user: str) -> np.ndarray:
    """The scale factor of every element of an operand, float32[rows, k].

    Row r, block i: byte first_byte + i of lane r % 32, column r / 32, in every quadrant (PTX ISA, "Scale Factor A ID").
    """
    lane, column = split_address(taddr & 0x3FFFFFFF)
    if lane:
        raise Fault(f"{user} at lane {lane}; must be 0 (PTX ISA, Block Scaling)")
    columns = -(-rows // QUADRANT)
    tmem.check_columns(column, columns, user)
    raw = tmem.words[:, column : column + columns].tobytes()
    codes = np.ndarray((_PARTITIONS, QUADRANT, columns, 4), np.uint8, raw)
    if op.block != 16:
        codes = codes[..., first_byte : first_byte + op.k // op.block]
    if raw != raw[: len(raw) // _PARTITIONS] * _PARTITIONS:
        _check_copies(codes, rows, column, user)
    table = _SCALES[op.scale_type, op.block]
    # Any 8-bit code is an index of the table; "wrap" only spares the check.
    return table.take(codes[0].swapaxes(0, 1), axis=0, mode="wrap").reshape(-1, op.k)[:rows]


def _check_copies(codes: np.ndarray, rows: int, column: int, user: str) -> None:
    """Raise Fault where the quadrants' codes, uint8[quadrants, 32, columns, count], differ for a row that is in use."""
    by_row = codes.transpose(0, 2, 1, 3).reshape(len(codes), -1, codes.shape[-1])[:, :rows]
    differing = np.argwhere(by_row != by_row[0])
    if len(differing):
        quadrant, row, _ = differing[0].tolist()
        raise Fault(
            f"{user}: row {row} in column {column + row // QUADRANT} differs between lanes {row % QUADRANT} and "
            f"{row % QUADRANT + QUADRANT * quadrant}; scale factors are needed in all four quadrants "
            "(PTX ISA, Block Scaling)"
        )


def mma(
    kind: str,
    cta_group: int,
    scale_block: int | None,
    d: int,
    a: int,
    b: int,
    idesc: int,
    sfa: int,
    sfb: int,
    accumulate: bool,
    ctas: Sequence[tuple[SharedMemory, TensorMemory]],
    *,
    a_in_tmem: bool = False,
    who: object = None,
) -> int:
    """tcgen05.mma: D = A B (+ D if `accumulate`), A and B scaled by block where the kind has scale factors.

    kind: f16, mxf4 or mxf4nvf4. scale_block: 16, 32 or None. d, sfa, sfb: tensor memory addresses (sfa and sfb unused
    without block scaling). a, b: shared memory descriptors; with a_in_tmem `a` is a tensor memory address. ctas: one,
    or (even, odd) of a pair. Returns the floating-point operations done. PTX ISA, "tcgen05.mma".
    """
    op = decode_instruction(kind, cta_group, scale_block, idesc)
    if len(ctas) != cta_group:
        raise ValueError(f"cta_group::{cta_group} needs {cta_group} CTAs, got {len(ctas)}")
    lane, column = split_address(d)
    if lane not in ((0, 16) if op.layout == "F" else (0,)):
        raise Fault(
            f"tcgen05.mma: D at lane {lane}, not allowed for M = {op.m} (PTX ISA, Data Path Layout Organization)"
        )
    width = op.n // 2 if op.layout == "B" else op.n
    for _, tmem in ctas:
        tmem.check_columns(column, width, "tcgen05.mma D")
    row_chunks = OPERAND_ROW_BYTES // CHUNK
    b_rows = [
        _decode(_gather(shared, b, op.n // cta_group, row_chunks, "tcgen05.mma B", who), op.b_type)
        for shared, _ in ctas
    ]
    b_values = b_rows[0] if cta_group == 1 else np.concatenate(b_rows)
    with np.errstate(all="ignore"):
        for shared, tmem in ctas:
            if a_in_tmem:
                packed = _a_from_tmem(op, a, lane, tmem)
            else:
                packed = _gather(shared, a, op.rows, row_chunks, "tcgen05.mma A", who)
            a_scaled, b_scaled = _decode(packed, op.a_type), b_values
            if op.scale_type:
                a_scaled *= _scales(op, tmem, sfa, op.rows, op.sfa_id, "tcgen05.mma SFA")
                scales = _scales(op, tmem, sfb, op.n, op.sfb_id, "tcgen05.mma SFB")
                b_scaled = np.multiply(b_values, scales, out=scales)
            product = np.matmul(a_scaled, b_scaled.T)
            _update(op, tmem, lane, column, np.negative(product) if op.negate else product, accumulate)
    return op.flops


def _update(
    op: MmaInstruction, tmem: TensorMemory, lane: int, column: int, product: np.ndarray, accumulate: bool
) -> None:
    """D = product (+ D), product float32[rows, n]. PTX ISA, "Data Path Layout Organization"."""
    width = op.n // 2 if op.layout == "B" else op.n
    if op.layout == "F":
        words = tmem.words.reshape(_PARTITIONS, QUADRANT, COLUMNS)[:, lane : lane + 16, column : column + width]
        product = product.reshape(_PARTITIONS, 16, width)
    elif op.layout == "B":
        words = tmem.words.reshape(2, LANES // 2, COLUMNS)[:, :, column : column + width]
        product = product.reshape(op.rows, 2, width).swapaxes(0, 1)
    else:
        words = tmem.words[:, column : column + width]
    if op.d_type == "f32":
        values = words.view(np.float32)
        if accumulate:
            np.add(values, product, out=values)
        else:
            values[...] = product
        return
    if accumulate:
        product = product + words.astype(np.uint16).view(np.float16)
    # A 16-bit element takes the low half of a word (PTX ISA, Packing format for matrix D in Tensor Memory).
    words[...] = product.astype(np.float16).view(np.uint16) | np.uint32(POISON << 16 & POISON)
