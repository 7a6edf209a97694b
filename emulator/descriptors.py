"""The two descriptors of a tcgen05 operation: where an operand lies in shared memory, what the instruction computes.

Both are decoded completely: a field that contradicts the instruction, a reserved bit that is set, and a mode that the
emulator does not have raise Fault by name. PTX ISA, "Shared Memory Descriptor" and "Instruction Descriptor".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from emulator.errors import Fault
from emulator.tma import CHUNK, swizzle

SMEM_DESCRIPTOR = "PTX ISA, Shared Memory Descriptor"
INSTRUCTION_DESCRIPTOR = "PTX ISA, Instruction Descriptor"
MATRIX_SHAPE = "PTX ISA, tcgen05: Matrix Shape"
BLOCK_SCALING = "PTX ISA, Valid combinations of scale_vectorsize with types and MMA-Kind"

_SWIZZLE_SPANS = {0: 0, 2: 128, 4: 64, 6: 32}
_CORE_ROWS = 8


@dataclass(frozen=True)
class SmemDescriptor:
    """A K-major matrix in shared memory: groups of eight rows, each row made of 16-byte chunks.

    start: byte offset in the CTA's window. leading: bytes between a row's chunks where nothing is swizzled (else
    unused). stride: bytes between groups of eight rows. swizzle: span in bytes, 0 for none; rows are that far apart (16
    for none).
    """

    start: int
    leading: int
    stride: int
    swizzle: int

    @staticmethod
    @lru_cache(maxsize=4096)
    def decode(value: int) -> SmemDescriptor:
        """The descriptor in a 64-bit register. Raises Fault for reserved bits, a wrong version, modes not modelled."""
        version, mode = value >> 46 & 7, value >> 61

        def refuse(what: str) -> Fault:
            return Fault(f"shared memory descriptor {value:#018x}: {what} ({SMEM_DESCRIPTOR})")

        if version != 1:
            raise refuse(f"bits 46-48 are {version}, must be 1")
        if value & (0xFF << 53 | 3 << 30 | 3 << 14):
            raise refuse("reserved bits (14, 15, 30, 31 or 53-60) are set")
        if value >> 49 & 7:
            raise refuse(f"base offset {value >> 49 & 7} is not modelled, only 0")
        if value >> 52 & 1:
            raise refuse("an absolute leading address (bit 52) needs sm_103a")
        if mode == 1:
            raise refuse("128-byte swizzling with 32-byte atoms is not modelled")
        if mode not in _SWIZZLE_SPANS:
            raise refuse(f"swizzling mode {mode} is invalid")
        span, stride = _SWIZZLE_SPANS[mode], (value >> 32 & 0x3FFF) << 4
        if span and stride % (_CORE_ROWS * span):
            raise refuse(
                f"stride {stride} is not a multiple of the {_CORE_ROWS * span} bytes that the swizzle repeats after"
            )
        return SmemDescriptor((value & 0x3FFF) << 4, (value >> 16 & 0x3FFF) << 4, stride, span)


@lru_cache(maxsize=2048)
def operand_chunks(descriptor: int, rows: int, row_chunks: int) -> tuple[np.ndarray, int, int]:
    """Where an operand's 16-byte chunks lie: chunk numbers int64[rows, row_chunks], their lowest and their highest.

    A chunk number is an offset in the CTA's window / 16. PTX ISA, "Shared Memory Layout and Swizzling", K-major
    layouts; swizzling goes by absolute address, so a descriptor may start inside the pattern.
    """
    matrix = SmemDescriptor.decode(descriptor)
    row, chunk = np.arange(rows)[:, None], np.arange(row_chunks)
    pitch, step = (matrix.swizzle, CHUNK) if matrix.swizzle else (CHUNK, matrix.leading)
    linear = matrix.start + row // _CORE_ROWS * matrix.stride + row % _CORE_ROWS * pitch + chunk * step
    chunks = swizzle(linear // CHUNK, matrix.swizzle)
    chunks.flags.writeable = False
    return chunks, int(chunks.min()), int(chunks.max())


@dataclass(frozen=True)
class Kind:
    """What a tcgen05.mma kind allows.

    k: elements of a row in one instruction. m: cta_group -> values of M. scales: block -> scale types.
    """

    k: int
    m: dict[int, tuple[int, ...]]
    scales: dict[int, tuple[str, ...]]


KINDS = {
    "f16": Kind(16, {1: (64, 128), 2: (128, 256)}, {}),
    "mxf4": Kind(64, {1: (128,), 2: (128, 256)}, {32: ("ue8m0",)}),
    "mxf4nvf4": Kind(64, {1: (128,), 2: (128, 256)}, {16: ("ue4m3", "ue8m0"), 32: ("ue8m0",)}),
}
"""The modelled kinds (PTX ISA, "Matrix Shape", "Valid combinations of scale_vectorsize with types and MMA-Kind")."""

OPERAND_ROW_BYTES = 32
"""Bytes of a row of A or B in one instruction, for every modelled kind."""


@dataclass(frozen=True)
class MmaInstruction:
    """A decoded, legal instruction descriptor. m, n, k: of the whole instruction, both CTAs of a pair together.

    a_type, b_type: e2m1, f16 or bf16. d_type: f32 or f16. scale_type: ue4m3, ue8m0 or None. block: elements per scale
    factor, 0 for none. sfa_id, sfb_id: byte of the 32-bit word where a row's scale factors start. negate: the product
    changes its sign.
    """

    cta_group: int
    m: int
    n: int
    k: int
    a_type: str
    b_type: str
    d_type: str
    scale_type: str | None
    block: int
    sfa_id: int
    sfb_id: int
    negate: bool

    @cached_property
    def rows(self) -> int:
        """Rows of A, and of D, in each CTA."""
        return self.m // self.cta_group

    @cached_property
    def layout(self) -> str:
        """Letter of D's layout in tensor memory (PTX ISA, "Data Path Layout Organization")."""
        return {(1, 64): "F", (1, 128): "D", (2, 128): "B", (2, 256): "A"}[self.cta_group, self.m]

    @cached_property
    def flops(self) -> int:
        """Multiplications and additions of one instruction, scaling not counted."""
        return 2 * self.m * self.n * self.k


def _refuse(idesc: int, what: str, section: str = INSTRUCTION_DESCRIPTOR) -> Fault:
    return Fault(f"instruction descriptor {idesc:#010x}: {what} ({section})")


@lru_cache(maxsize=1024)
def decode_instruction(kind: str, cta_group: int, scale_block: int | None, idesc: int) -> MmaInstruction:
    """The instruction descriptor of a dense tcgen05.mma without .ws.

    kind: a key of KINDS. scale_block: 16 (.block16, .scale_vec::4X), 32 (.block32, .scale_vec::2X) or None.
    """
    if kind not in KINDS:
        raise Fault(f"tcgen05.mma kind::{kind} is not modelled; modelled: {', '.join(KINDS)}")
    rules = KINDS[kind]
    if cta_group not in rules.m:
        raise Fault(f"tcgen05.mma cta_group::{cta_group}; must be 1 or 2 (PTX ISA, tcgen05.mma)")
    block = scale_block or 0
    if (block not in rules.scales) if rules.scales else block:
        allowed = ", ".join(f"block{size}" for size in rules.scales) or "no block scaling"
        raise Fault(f"tcgen05.mma kind::{kind} with block{block}; allowed: {allowed} ({BLOCK_SCALING})")
    if idesc & 7:
        raise _refuse(idesc, "sparsity bits 0-2 are set, but the instruction is dense")
    if idesc >> 15 & 3:
        if rules.scales:
            raise _refuse(
                idesc, f"transposed A or B (bits 15, 16) with kind::{kind}", "PTX ISA, Transpose and Negate operations"
            )
        raise _refuse(idesc, "transposed (M- or N-major) A or B is not modelled")
    m, n = (idesc >> 24 & 31) << 4, (idesc >> 17 & 63) << 3
    if m not in rules.m[cta_group]:
        limit = " or ".join(map(str, rules.m[cta_group]))
        raise _refuse(idesc, f"M is {m}, must be {limit} for kind::{kind} with cta_group::{cta_group}", MATRIX_SHAPE)
    if not 0 < n <= 256 or n % (8 * cta_group):
        raise _refuse(
            idesc, f"N is {n}, must be a multiple of {8 * cta_group} up to 256 for cta_group::{cta_group}", MATRIX_SHAPE
        )
    if rules.scales and (cta_group, m) == (2, 128):
        raise _refuse(idesc, "block scaling with M = 128 for a pair of CTAs is not modelled")
    types = _block_scaled_types(idesc, kind, rules, block) if rules.scales else _float_types(idesc)
    negate = bool((idesc >> 13 ^ idesc >> 14) & 1)
    return MmaInstruction(cta_group=cta_group, m=m, n=n, k=rules.k, block=block, negate=negate, **types)


def _float_types(idesc: int) -> dict:
    if idesc & (1 << 3 | 1 << 6 | 1 << 23 | 1 << 29):
        raise _refuse(idesc, "saturation or reserved bits (3, 6, 23, 29) are set for kind::f16")
    if idesc >> 30:
        raise _refuse(idesc, f"maximum shift {idesc >> 30} (bits 30-31) is for .ws only")
    formats, results = {0: "f16", 1: "bf16"}, {0: "f16", 1: "f32"}
    a, b, d = idesc >> 7 & 7, idesc >> 10 & 7, idesc >> 4 & 3
    if a not in formats or b not in formats or d not in results:
        raise _refuse(idesc, f"formats A {a}, B {b}, D {d}; kind::f16 has 0 and 1 for A and B, 0 and 1 for D")
    if d == 0 and (a or b):
        raise _refuse(idesc, "D of type f16 needs A and B of type f16", MATRIX_SHAPE)
    return {
        "a_type": formats[a],
        "b_type": formats[b],
        "d_type": results[d],
        "scale_type": None,
        "sfa_id": 0,
        "sfb_id": 0,
    }


def _block_scaled_types(idesc: int, kind: str, rules: Kind, block: int) -> dict:
    if idesc & (1 << 3 | 1 << 6):
        raise _refuse(idesc, f"reserved bits (3, 6) are set for kind::{kind}")
    a, b = idesc >> 7 & 7, idesc >> 10 & 7
    if a != 1 or b != 1:
        raise _refuse(idesc, f"formats A {a}, B {b}; kind::{kind} has only 1 (e2m1)")
    if idesc >> 31:
        raise _refuse(idesc, "K of 96 (bit 31) needs sm_103a")
    scale_type = ("ue4m3", "ue8m0")[idesc >> 23 & 1]
    if scale_type not in rules.scales[block]:
        raise _refuse(idesc, f"scale type {scale_type} with kind::{kind} and block{block}", BLOCK_SCALING)
    ids = {"sfa_id": idesc >> 29 & 3, "sfb_id": idesc >> 4 & 3}
    for name, value in ids.items():
        if value not in ((0,) if block == 16 else (0, 2)):
            raise _refuse(
                idesc,
                f"{name.upper()} is {value}, must be {'0' if block == 16 else '0 or 2'} for block{block}",
                "PTX ISA, Scale Factor A ID and Scale Factor B ID",
            )
    return {"a_type": "e2m1", "b_type": "e2m1", "d_type": "f32", "scale_type": scale_type, **ids}
