"""The instruction descriptor of tcgen05.mma: shapes, types, and the combinations of them that are legal.

The descriptor is decoded completely. A field that contradicts the instruction, a reserved bit that is set, and a shape
or type that the kind does not have raise Fault with the field, its value, the legal values, and the section of the PTX
ISA (release 9.2: "Matrix Shape", "Instruction Descriptor", "Block Scaling", "Transpose and Negate operations"). Where
CUTLASS's static assertions require larger steps of N than the PTX ISA's table of shapes (f16 with M = 128, A in tensor
memory), the table decides.

On Rubin (sm_107) a bit of the descriptor doubles K for kinds f8f6f4, mxf8f6f4 and mxf4nvf4, bit 31 makes K of
mxf4nvf4 96, and the field of the scale type has two bits: cute/arch/mma_sm107_desc.hpp of CUTLASS has the bits of both
kinds with scale factors, and nvidia-cutlass-dsl 4.8.1 sets bit 29 when it compiles SM107MmaFP8Op with K of 64. The
docstrings of that package's SM107 operations (cute/nvgpu/tcgen05/mma.py) say which types, scale types and shapes go
with a doubled K, those of its SM103 operations which go with K of 96. CUTLASS's example
rubin/kernel/blockscaled_gemm/dense_blockscaled_mxfp6_gemm_persistent.py says that 4- and 6-bit elements of mxf8f6f4 are
packed without padding then, rows of 32 and 48 bytes. Bit 26 puts A's scale factors of K of 128 with blocks of 16 into
128 lanes: kernels that cite PTX ISA 9.4 name the bit, ThunderKittens' tests of SM107 have the layout. What no source
says is refused: a 16-bit D with K of 64 (how often it is rounded), bit 26 with another K, packed elements along M or N
or in tensor memory. The codes of the scale type are those of `MxScaleFormat` (cutlass/experimental/primitives).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NamedTuple

from nogpu.errors import Fault
from nogpu.hardware.tensor.elements import NARROW_BITS, WIDTHS

INSTRUCTION_DESCRIPTOR = "PTX ISA, tcgen05: Instruction Descriptor"
MATRIX_SHAPE = "PTX ISA, tcgen05: Matrix Shape"
BLOCK_SCALING = "PTX ISA, Valid combinations of scale_vectorsize with types and MMA-Kind"
TRANSPOSE = "PTX ISA, tcgen05: Transpose and Negate operations"
WIDE = "nvidia-cutlass-dsl 4.8.1, SM107 operations of cute/nvgpu/tcgen05/mma.py"
SCALE_FACTOR_ID = "PTX ISA, Scale Factor A ID and Scale Factor B ID"

SPARSITY = "PTX ISA, tcgen05: Sparse Matrices, Sparsity selector"

MIDDLE_K = 96  # of mxf4nvf4 on Rubin
OPERAND_ROW_BYTES = 32
"""Bytes of a row of A or B in one instruction without a doubled K (padding of 4- and 6-bit elements included).

A sparse A has as many, of elements that are stored; B has twice as many then.
"""

_PLAIN_M = {1: (64, 128), 2: (128, 256)}
_SCALED_M = {1: (128,), 2: (128, 256)}
_EIGHTS = {1: range(8, 257, 8), 2: range(16, 257, 16)}
_SIXTEENS = {1: range(16, 257, 16), 2: range(32, 257, 32)}
_STATIONARY_M, _STATIONARY_N = (32, 64, 128), (64, 128, 256)  # of .ws, which is for one CTA
_SHIFTS = (0, 8, 16, 32)  # code -> largest shift of B's columns
_NARROW_TYPES = {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"}


@dataclass(frozen=True)
class Kind:
    """The shapes and types that a kind of tcgen05.mma allows."""

    k: int  # elements of a row in one instruction
    types: Mapping[int, str]  # code -> type of A and B
    results: Mapping[int, tuple[str, Collection[str]]]  # code -> type of D, and the types of A and B that go with it
    m: Mapping[int, Collection[int]]  # cta_group -> values of M
    n: Mapping[int, Collection[int]]  # cta_group -> values of N
    scales: Mapping[int, tuple[str, ...]]  # elements per scale factor -> scale types
    wide_scales: Mapping[int, tuple[str, ...]] = field(default_factory=dict)  # scale types that a doubled K adds
    b_format_bits: int = 3  # bits of the field of B's type
    transposes: bool = True
    negates: bool = True
    scales_d: bool = False  # the kind has the operand scale-input-d
    wide_bit: int | None = None  # bit of the descriptor that doubles K on Rubin


# In kinds mxf4 and mxf4nvf4 the field of B's type has two bits. The third bit is reserved, but CUTLASS sets it
# (examples/.../tcgen05/2cta_mma_blockscale_m128.py), so it is ignored.
_E2M1, _F32 = {1: "e2m1"}, {1: ("f32", ("e2m1", *_NARROW_TYPES.values()))}
KINDS = {
    "f16": Kind(
        16,
        {0: "f16", 1: "bf16"},
        {0: ("f16", ("f16",)), 1: ("f32", ("f16", "bf16"))},
        _PLAIN_M,
        _EIGHTS,
        {},
        scales_d=True,
    ),
    "tf32": Kind(8, {2: "tf32"}, {1: ("f32", ("tf32",))}, _PLAIN_M, _EIGHTS, {}, scales_d=True),
    "f8f6f4": Kind(
        32,
        _NARROW_TYPES,
        {0: ("f16", _NARROW_TYPES.values()), 1: ("f32", _NARROW_TYPES.values())},
        _PLAIN_M,
        _EIGHTS,
        {},
        wide_bit=29,
    ),
    "i8": Kind(
        32,
        {0: "u8", 1: "s8"},
        {2: ("s32", ("u8", "s8"))},
        _PLAIN_M,
        {1: (8, 16, 24, 32, *range(48, 257, 16)), 2: _SIXTEENS[2]},
        {},
        negates=False,
    ),
    "mxf8f6f4": Kind(32, _NARROW_TYPES, _F32, _SCALED_M, _EIGHTS, {32: ("ue8m0",)}, wide_bit=31),
    "mxf4": Kind(64, _E2M1, _F32, _SCALED_M, _EIGHTS, {32: ("ue8m0",)}, b_format_bits=2, transposes=False),
    "mxf4nvf4": Kind(
        64,
        _E2M1,
        _F32,
        _SCALED_M,
        _EIGHTS,
        {16: ("ue4m3", "ue8m0"), 32: ("ue8m0",)},
        {16: ("ue5m3",), 32: ("ue4m3", "ue5m3")},
        b_format_bits=2,
        transposes=False,
        wide_bit=3,
    ),
}
"""The kinds, as they are dense (PTX ISA, "Matrix Shape", "Valid combinations of scale_vectorsize").

With .ws M and N are others. A sparse A doubles K and the elements per scale factor; with scale factors a pair has
M = 256 only.

Kinds f8f6f4 and mxf8f6f4 transpose types of 4 and 6 bits, too: the ISA's table names 8 bits alone, but CUTLASS
documents and tests all layouts of them (blackwell_functionality.md, tables 2 and 3).
"""

SCALE_BLOCKS: dict[str, dict[str | None, int]] = {
    "mxf8f6f4": {None: 32, "scale_vec::1X": 32, "block32": 32},
    "mxf4": {None: 32, "scale_vec::2X": 32, "block32": 32},
    "mxf4nvf4": {"scale_vec::2X": 32, "block32": 32, "scale_vec::4X": 16, "block16": 16},
}
"""Kind -> .scale_vectorsize of the opcode (None where it is left out) -> elements per scale factor."""


PAIRED_METADATA = ("f16", "tf32")
"""Kinds of which two rows share a 32-bit word of the sparsity metadata."""


@dataclass(frozen=True)
class MmaInstruction:
    """A decoded, legal instruction descriptor."""

    kind: str
    cta_group: int
    m: int  # rows of the whole instruction, both CTAs of a pair together
    n: int
    k: int
    a_type: str  # e2m1, e2m3, e3m2, e4m3, e5m2, f16, bf16, tf32, u8 or s8
    b_type: str
    d_type: str  # f32, f16 or s32
    scale_type: str | None  # ue4m3, ue8m0 or ue5m3
    block: int  # elements per scale factor, 0: none
    sfa_id: int  # byte of a 32-bit word where the scale factors of a row of A start
    sfb_id: int
    negate: bool  # the product changes its sign
    a_transposed: bool  # A is M-major, not K-major
    b_transposed: bool  # B is N-major, not K-major
    saturate: bool  # s32 sums stop at the largest and smallest value instead of wrapping
    sparse: bool = False  # half of A's elements are stored; K counts all
    selector: int = 0  # sparsity selector: the column of the metadata's two that counts, of kinds that need one
    stationary: bool = False  # .ws
    max_shift: int = 0  # largest shift of B's columns, with .ws
    sfa_in_lanes: bool = False  # A's scale factors are in the lanes of its rows
    packed: bool = False  # 4- and 6-bit elements of mxf8f6f4 have no padding in shared memory

    @cached_property
    def rows(self) -> int:
        """Rows of A, and of D, in each CTA."""
        return self.m // self.cta_group

    @cached_property
    def layout(self) -> str:
        """Letter of D's layout in tensor memory (PTX ISA, "Data Path Layout Organization")."""
        if self.stationary and self.m < 128:
            return {64: "E", 32: "G"}[self.m]
        pair = "C" if self.sparse else "B"
        return {(1, 64): "F", (1, 128): "D", (2, 128): pair, (2, 256): "A"}[self.cta_group, self.m]

    @cached_property
    def spread(self) -> bool:
        """True if D's rows lie in halves of the quadrants of lanes."""
        return self.layout in ("C", "F")

    @cached_property
    def parts(self) -> int:
        """Parts of N, each of which has lanes of its own."""
        return {"B": 2, "E": 2, "G": 4}.get(self.layout, 1)

    @cached_property
    def columns(self) -> int:
        """Columns of D in tensor memory."""
        return self.n // self.parts

    @cached_property
    def padded(self) -> bool:
        """True if 4- and 6-bit elements take a byte each (PTX ISA, "Packing format for matrix A and B")."""
        return self.kind in ("f8f6f4", "mxf8f6f4") and not self.packed

    @cached_property
    def passes(self) -> int:
        """Parts of K that are multiplied one after the other: 2 if a dense K is doubled, 3 of a K of 96, else 1."""
        return 3 if self.k == MIDDLE_K else self.k // self.halves // KINDS[self.kind].k

    @cached_property
    def halves(self) -> int:
        """2 if half of A's elements are stored, else 1."""
        return 2 if self.sparse else 1

    @cached_property
    def row_bytes(self) -> int:
        """Bytes of a stored row of A, padding of 4- and 6-bit elements included."""
        return OPERAND_ROW_BYTES * self.k // self.halves // KINDS[self.kind].k

    def shared_row_bytes(self, element: str) -> int:
        """Bytes of a stored row of elements of this type in shared memory, a row of B being as long as one of A."""
        return self.k * NARROW_BITS[element] // 8 if self.packs(element) else self.row_bytes

    def packs(self, element: str) -> bool:
        """True if elements of this type have no padding where a B200's have it."""
        return self.packed and element in NARROW_BITS

    @cached_property
    def flops(self) -> int:
        """Multiplications and additions of one instruction, without scaling, but with those of a sparse A's zeros."""
        return 2 * self.m * self.n * self.k


def _refuse(idesc: int, what: str, section: str = INSTRUCTION_DESCRIPTOR) -> Fault:
    return Fault(f"tcgen05.mma, instruction descriptor {idesc:#010x}: {what} ({section})")


def _listed(values: Collection) -> str:
    if isinstance(values, range):
        return f"a multiple of {values.step} from {values[0]} to {values[-1]}"
    return " or ".join(map(str, values))


@lru_cache(maxsize=1024)
def decode_instruction(
    kind: str,
    cta_group: int,
    scale_block: int | None,
    idesc: int,
    rubin: bool = False,
    sparse: bool = False,
    stationary: bool = False,
) -> MmaInstruction:
    """The instruction descriptor of a tcgen05.mma. Raises Fault for an illegal one.

    kind: a key of KINDS. scale_block: 16 (.block16, .scale_vec::4X), 32 (.block32, .scale_vec::1X, ::2X) or None.
    rubin: True on sm_107. sparse: True with .sp. stationary: True with .ws.
    """
    block = scale_block or 0
    rules = _rules(kind, cta_group, block, rubin)
    selector = _selector(idesc, kind, rubin) if sparse else 0
    wide = rubin and rules.wide_bit is not None and bool(idesc >> rules.wide_bit & 1)
    if not sparse and idesc & 7:
        raise _refuse(idesc, f"sparsity bits 0-2 are {idesc & 7}, must be 0 without .sp")
    if idesc >> 6 & 1:
        raise _refuse(idesc, "reserved bit 6 is set, must be 0")
    if rubin and rules.scales and idesc >> 25 & 1:
        raise _refuse(idesc, "reserved bit 25 of sm_107, which is not modelled")
    k = 2 * rules.k if wide else rules.k
    if rubin and kind == "mxf4nvf4" and not (wide or sparse) and idesc >> 31:
        k = MIDDLE_K
    sfa_in_lanes = rubin and bool(rules.scales) and bool(idesc >> 26 & 1)
    if sfa_in_lanes and not (kind == "mxf4nvf4" and wide and block == 16):
        raise _refuse(idesc, f"bit 26, A's scale factors in 128 lanes, with K of {k} and block{block}: not modelled")
    # A sparse A has as many scale factors as a dense one, of twice as many elements.
    if rules.scales:
        own = _block_scaled_fields(idesc, kind, rules, block, k, rubin)
    else:
        own = _plain_fields(idesc, kind, rules, k, stationary)
    a_type, b_type = _operand_types(idesc, kind, rules)
    if not {a_type, b_type} <= set(own.inputs):
        raise _refuse(idesc, f"D of type {own.d_type} with A of type {a_type} and B of type {b_type}", MATRIX_SHAPE)
    negate_a, negate_b = idesc >> 13 & 1, idesc >> 14 & 1
    if not rules.negates and (negate_a or negate_b):
        raise _refuse(idesc, f"negated A or B (bits 13, 14), not supported by kind::{kind}", TRANSPOSE)
    b_transposed = bool(idesc >> 16 & 1)
    # Rubin's descriptor has bits 24 and 26 for scale factors; M is a multiple of 128 there.
    m, n = _shape(
        idesc & ~(5 << 24) if rubin and rules.scales else idesc,
        kind,
        cta_group,
        rules,
        b_transposed,
        b_type,
        stationary,
    )
    if sparse and rules.scales and m != 128 * cta_group:
        raise _refuse(idesc, f"M is {m}, must be {128 * cta_group} for sparse kind::{kind} of a pair", MATRIX_SHAPE)
    if wide and stationary:
        raise _refuse(idesc, f"K of {k} with .ws on sm_107, which is not modelled: no source has it", WIDE)
    if wide or k == MIDDLE_K:
        _check_wide(idesc, kind, cta_group, k, m, (a_type, b_type, own.d_type))
    return MmaInstruction(
        kind=kind,
        cta_group=cta_group,
        m=m,
        n=n,
        k=2 * k if sparse else k,
        a_type=a_type,
        b_type=b_type,
        d_type=own.d_type,
        scale_type=own.scale_type,
        block=2 * block if sparse else block,
        sfa_id=own.sfa_id,
        sfb_id=own.sfb_id,
        negate=bool(negate_a ^ negate_b),
        a_transposed=bool(idesc >> 15 & 1),
        b_transposed=b_transposed,
        saturate=own.saturate,
        sparse=sparse,
        selector=selector,
        stationary=stationary,
        max_shift=_SHIFTS[idesc >> 30] if stationary else 0,
        sfa_in_lanes=sfa_in_lanes,
        packed=wide and kind == "mxf8f6f4",
    )


def _selector(idesc: int, kind: str, rubin: bool) -> int:
    """The sparsity selector of tcgen05.mma.sp. Raises Fault for an illegal one, and for a descriptor that is dense."""
    if rubin:
        raise Fault("tcgen05.mma.sp on sm_107 is not modelled")
    if not idesc >> 2 & 1:
        raise _refuse(idesc, "sparsity bit 2 is 0, must be 1 with .sp")
    selector, paired = idesc & 3, kind in PAIRED_METADATA
    if selector > int(paired):
        allowed = "0 or 1" if paired else "0"
        raise _refuse(idesc, f"sparsity selector {selector} (bits 0-1), must be {allowed} for kind::{kind}", SPARSITY)
    return selector


def _rules(kind: str, cta_group: int, block: int, rubin: bool) -> Kind:
    """Rules of the kind. Raises Fault if it does not exist, or not with this .cta_group and block size."""
    if kind not in KINDS:
        raise Fault(f"tcgen05.mma kind::{kind}; must be {', '.join(KINDS)} (PTX ISA, tcgen05.mma)")
    rules = KINDS[kind]
    if cta_group not in rules.m:
        raise Fault(f"tcgen05.mma cta_group::{cta_group}; must be 1 or 2 (PTX ISA, tcgen05.mma)")
    if (block not in rules.scales) if rules.scales else block:
        allowed = ", ".join(f"block{size}" for size in rules.scales) or "no block scaling"
        raise Fault(f"tcgen05.mma kind::{kind} with block{block}; allowed: {allowed} ({BLOCK_SCALING})")
    if rubin and kind == "i8":
        raise Fault("tcgen05.mma kind::i8: sm_107 does not have it (ptxas 13.5)")
    return rules


def _check_wide(idesc: int, kind: str, cta_group: int, k: int, m: int, types: tuple[str, str, str]) -> None:
    """Raises Fault for types and shapes that nvidia-cutlass-dsl's operations with a doubled K do not have."""
    a_type, b_type, d_type = types
    where = f"K of {k} for kind::{kind} on sm_107"
    if kind == "f8f6f4" and not {a_type, b_type} <= {"e4m3", "e5m2"}:
        raise _refuse(idesc, f"{where} with A of type {a_type} and B of type {b_type}; must be e4m3 or e5m2", WIDE)
    if d_type == "f16":
        raise _refuse(idesc, f"{where} with D of type f16 is not modelled: how often it is rounded is not said", WIDE)
    for name, element, bit in (("A", a_type, 15), ("B", b_type, 16)):
        if kind == "mxf8f6f4" and element in NARROW_BITS and idesc >> bit & 1:
            raise _refuse(idesc, f"{where} with a transposed {name} of type {element} is not modelled", WIDE)
    if kind != "f8f6f4" and m != 128 * cta_group:
        raise _refuse(idesc, f"{where} with M of {m}; must be {128 * cta_group}", WIDE)


def _shape(
    idesc: int, kind: str, cta_group: int, rules: Kind, b_transposed: bool, b_type: str, stationary: bool
) -> tuple[int, int]:
    m, n = (idesc >> 24 & 31) << 4, (idesc >> 17 & 63) << 3
    where = f"for kind::{kind} with {'.ws' if stationary else f'cta_group::{cta_group}'}"
    legal_m, legal_n = (_STATIONARY_M, _STATIONARY_N) if stationary else (rules.m[cta_group], rules.n[cta_group])
    if m not in legal_m:
        raise _refuse(idesc, f"M is {m}, must be {_listed(legal_m)} {where}", MATRIX_SHAPE)
    if n not in legal_n:
        raise _refuse(idesc, f"N is {n}, must be {_listed(legal_n)} {where}", MATRIX_SHAPE)
    if b_transposed and b_type not in WIDTHS and n not in _SIXTEENS[cta_group]:
        raise _refuse(
            idesc, f"N is {n}, must be {_listed(_SIXTEENS[cta_group])} {where} and an N-major B of 8 bits", TRANSPOSE
        )
    return m, n


def _operand_types(idesc: int, kind: str, rules: Kind) -> list[str]:
    found = []
    for name, shift, bits, transpose in (("A", 7, 3, 15), ("B", 10, rules.b_format_bits, 16)):
        code = idesc >> shift & (1 << bits) - 1
        if code not in rules.types:
            legal = ", ".join(f"{legal} ({element})" for legal, element in rules.types.items())
            raise _refuse(idesc, f"format of {name} is {code}; kind::{kind} has {legal}")
        element = rules.types[code]
        if idesc >> transpose & 1 and not rules.transposes:
            raise _refuse(
                idesc,
                f"transposed {name} (bit {transpose}) of type {element}, not supported by kind::{kind}",
                TRANSPOSE,
            )
        found.append(element)
    return found


class _Fields(NamedTuple):
    """The fields whose bits differ between kinds with and without block scaling."""

    d_type: str
    inputs: Collection[str]  # types of A and B that go with d_type
    saturate: bool = False
    scale_type: str | None = None
    sfa_id: int = 0
    sfb_id: int = 0


def _wide_mask(rules: Kind, k: int) -> int:
    """Mask of the bit that makes K larger, 0 if it is not."""
    if k == MIDDLE_K:
        return 1 << 31
    return 0 if rules.wide_bit is None or k == rules.k else 1 << rules.wide_bit


def _plain_fields(idesc: int, kind: str, rules: Kind, k: int, stationary: bool) -> _Fields:
    if idesc & (1 << 23 | 1 << 29) & ~_wide_mask(rules, k):
        raise _refuse(idesc, f"reserved bits 23 or 29 are set for kind::{kind}")
    if idesc >> 30 and not stationary:
        raise _refuse(idesc, f"maximum shift {idesc >> 30} (bits 30-31), must be 0 without .ws")
    saturate = bool(idesc >> 3 & 1)
    if saturate and kind != "i8":
        raise _refuse(idesc, f"saturation (bit 3), which kind::i8 has and kind::{kind} has not")
    code = idesc >> 4 & 3
    if code not in rules.results:
        legal = ", ".join(f"{legal} ({element})" for legal, (element, _) in rules.results.items())
        raise _refuse(idesc, f"format of D is {code}; kind::{kind} has {legal}")
    d_type, inputs = rules.results[code]
    return _Fields(d_type, inputs, saturate)


def _block_scaled_fields(idesc: int, kind: str, rules: Kind, block: int, k: int, rubin: bool) -> _Fields:
    others = idesc & ~_wide_mask(rules, k)
    if others >> 3 & 1:
        raise _refuse(idesc, f"reserved bit 3 is set for kind::{kind}")
    if others >> 31:
        raise _refuse(
            idesc,
            "K of 96 (bit 31) needs sm_103a, or of dense kind::mxf4nvf4 sm_107a"
            if rules.k == 64
            else f"reserved bit 31 is set for kind::{kind}",
        )
    scale_type = ("ue4m3", "ue8m0", "ue5m3", "3 (bits 23-24)")[idesc >> 23 & (3 if rubin else 1)]
    if scale_type not in rules.scales[block] + (rules.wide_scales.get(block, ()) if k == 2 * rules.k else ()):
        raise _refuse(idesc, f"scale type {scale_type} with kind::{kind} and block{block}", BLOCK_SCALING)
    # A row of K of 96 may begin in the middle of a word and end in the next.
    legal = range(0, 4, 2 if k // block == 6 else 1 if k // block == 3 else k // block)
    ids = {"sfa_id": idesc >> 29 & 3, "sfb_id": idesc >> 4 & 3}
    for name, value in ids.items():
        if value not in legal:
            allowed = " or ".join(map(str, legal))
            raise _refuse(
                idesc,
                f"{name.upper()} is {value}, must be {allowed} for kind::{kind} with block{block}",
                SCALE_FACTOR_ID,
            )
    d_type, inputs = rules.results[1]
    return _Fields(d_type, inputs, scale_type=scale_type, sfa_id=ids["sfa_id"], sfb_id=ids["sfb_id"])
