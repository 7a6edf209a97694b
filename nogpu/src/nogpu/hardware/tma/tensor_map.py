"""Tensor map of tensor copies, 128 bytes (CUtensorMap): decoding, and editing as `tensormap.replace` does.

Only the first 64 bytes describe the tensor; the rest is ignored. Little endian:

| byte | bits | field |
|---|---|---|
| 0-7 | | global address |
| 8-11 | 0-3 | 0 or 2 |
| | 4-6 | rank - 1 |
| | 7-10, 16 | element type, bit 16 selects the TF32 variant of F32 |
| | 11-12 | interleave |
| | 13-14, 19-20, 22 | swizzle, its atomicity, 96-byte mode |
| | 15 | out-of-bounds fill: NaN |
| | 17-18 | L2 promotion |
| 12-27 | 32 each | stride of dimensions 1..4 in bytes, bits 4..35 |
| 28-29 | 4 each | the same, bits 36..39 |
| 32-51 | 32 each | size of dimensions 0..4, minus 1 |
| 52-53 | 3 each | element stride of dimensions 0..4, minus 1 |
| 55-59 | 8 each | box size of dimensions 0..4, minus 1 |

The format is not published. This table was derived from maps that NVIDIA's encoders made of known arguments, and from
the code that ptxas emits for `tensormap.replace`. A map for im2col copies has bits of nogpu's own in place of the box
(im2col.py). The rules that are checked are those of cuTensorMapEncodeTiled (CUDA Driver API) and of PTX ISA, "Tensor
Dimension, size and format" and "Restriction on Tensor Copy instructions".
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from nogpu.errors import Fault
from nogpu.hardware.copying import FILL_BYTES, RANKS, Tile
from nogpu.hardware.tma.im2col import IM2COL, IM2COL_RULES, Im2col, unpacked
from nogpu.hardware.tma.swizzle import PATTERNS

RULES = "cuTensorMapEncodeTiled, CUDA Driver API"
SIGNIFICANT_BYTES = 64
TENSOR_MAP_BYTES = 128
TENSOR_MAP_ALIGNMENT = 64


@dataclass(frozen=True)
class ElementType:
    """Element type of a tensor map."""

    name: str
    bits: int  # number of bits in global memory
    nan: bytes | None = None  # NaN with which floats are filled


_NAN16 = b"\xff\x7f"
_NAN32 = b"\xff\xff\xff\x7f"
_NAN64 = b"\xff\xff\xff\xff\xff\xff\xff\x7f"

ELEMENT_TYPES: dict[tuple[int, int], ElementType] = {
    (0, 0): ElementType("u8", 8),
    (1, 0): ElementType("u16", 16),
    (2, 0): ElementType("u32", 32),
    (3, 0): ElementType("s32", 32),
    (4, 0): ElementType("u64", 64),
    (5, 0): ElementType("s64", 64),
    (6, 0): ElementType("f16", 16, _NAN16),
    (7, 0): ElementType("f32", 32, _NAN32),
    (7, 1): ElementType("tf32", 32, _NAN32),
    (8, 0): ElementType("f32.ftz", 32, _NAN32),
    (8, 1): ElementType("tf32.ftz", 32, _NAN32),
    (9, 0): ElementType("f64", 64, _NAN64),
    (10, 0): ElementType("bf16", 16, _NAN16),
    (11, 0): ElementType("b4x16", 4),
    (12, 0): ElementType("b4x16_p64", 4),
    (13, 0): ElementType("b6x16_p32", 6),
}
"""(bits 7-10, bit 16) -> element type."""

PADDED_TYPES = ("b4x16_p64", "b6x16_p32")
SWIZZLE_SPANS = (0, 32, 64, 128)
ATOMS, FLIPPED = (16, 32, 32, 64), 2
INTERLEAVES = {0: "none", 1: "16B", 2: "32B"}


@dataclass(frozen=True)
class TensorMap:
    """A decoded tensor map. Tuples start with dimension 0, the contiguous one."""

    address: int  # address of the tensor in global memory
    rank: int
    element: ElementType
    interleave: str  # a value of INTERLEAVES
    swizzle: int  # span in bytes, 0: none
    atom: int  # bytes that the swizzle keeps together
    flip: bool  # 8-byte halves change places in odd lines (swizzle.py)
    fill_nan: bool  # elements outside the tensor read as NaN, not as zero
    dims: tuple[int, ...]  # elements
    strides: tuple[int, ...]  # bytes, of dimensions 1 to rank - 1
    box: tuple[int, ...]  # elements traversed, of which every element_strides[i]-th is copied
    element_strides: tuple[int, ...]
    im2col: Im2col | None = None  # pixels of a map for im2col copies, whose box is one pixel

    @staticmethod
    def decode(raw: bytes | bytearray | memoryview | np.ndarray) -> TensorMap:
        """Tensor map in the first 64 bytes of `raw` (bytes, or uint8[>=64]).

        Raises Fault, naming the field, for unknown encodings and for maps that the driver refuses to make.
        """
        return _decode(bytes(raw[:SIGNIFICANT_BYTES]))

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Elements copied along each dimension: box / element stride, rounded up."""
        return tuple(-(-box // step) for box, step in zip(self.box, self.element_strides, strict=True))

    @cached_property
    def packed_bytes(self) -> int:
        """Bytes of a row of the box (dimension 0) in global memory."""
        return self.counts[0] * self.element.bits // 8

    @cached_property
    def inner_bytes(self) -> int:
        """Bytes of a row of the box in shared memory, where its rows are adjacent. 16 padded elements have 16 bytes."""
        return self.counts[0] if self.padded else self.packed_bytes

    @cached_property
    def rows(self) -> int:
        """Number of rows of the box."""
        return int(np.prod(self.counts[1:], dtype=np.int64))

    @cached_property
    def padded(self) -> bool:
        """True if padding follows every 16 elements in shared memory (PTX ISA, "Sub-byte types")."""
        return self.element.name in PADDED_TYPES

    @cached_property
    def box_bytes(self) -> int:
        """Bytes of the whole box in shared memory."""
        return self.inner_bytes * self.rows

    @cached_property
    def fill(self) -> bytes:
        """The bytes of an element outside the tensor; a single zero byte if elements are filled with zeros.

        PTX leaves the fill NaN open; it is assumed to have all bits set but the sign.
        """
        return self.element.nan if self.fill_nan and self.element.nan is not None else b"\0"

    @cached_property
    def modelled(self) -> bool:
        """True if copies with this map are modelled (`rules.check_map`)."""
        return self.interleave == "none" and self.element_strides[0] == 1

    @cached_property
    def tile(self) -> int | None:
        """Address of the structure that compiled copies take; None if they do not copy with this map."""
        reach = self.address + (self.dims[0] * self.element.bits + 7) // 8
        reach += sum((dim - 1) * stride for dim, stride in zip(self.dims[1:], self.strides))
        if not self.modelled or self.padded or reach >= 1 << 63:
            return None
        bits, shift = PATTERNS[self.swizzle, self.atom]
        fill = (self.fill * FILL_BYTES)[:FILL_BYTES]
        ones = (1,) * (RANKS - self.rank)
        self.__dict__["_tile"] = tile = Tile(
            *(self.address, self.element.bits, self.inner_bytes, bits, shift, self.flip, tuple(fill)),
            *((*self.dims, *ones), (0, *self.strides), (*self.counts, *ones), (*self.element_strides, *ones)),
        )
        return ctypes.addressof(tile)


@lru_cache(maxsize=4096)
def _decode(raw: bytes) -> TensorMap:
    if len(raw) < SIGNIFICANT_BYTES:
        raise Fault(f"tensor map of {len(raw)} bytes; a tensor map has {TENSOR_MAP_BYTES}")
    words = np.frombuffer(raw, "<u4").astype(np.int64).tolist()
    flags = words[2]
    rank = (flags >> 4 & 7) + 1
    if rank > 5:
        raise Fault(f"tensor map rank {rank}; limit 1 to 5 ({RULES})")
    if flags & 15 not in (0, 2) or flags >> 24:
        raise Fault(f"not a tensor map: flags {flags:#010x} at byte 8 have bits that no encoder sets")
    key = (flags >> 7 & 15, flags >> 16 & 1)
    if key not in ELEMENT_TYPES:
        raise Fault(f"tensor map element type code {key[0]} (variant {key[1]}) is not known")
    interleave = flags >> 11 & 3
    if interleave not in INTERLEAVES:
        raise Fault(f"tensor map interleave code {interleave} is not known")
    span, atomicity = SWIZZLE_SPANS[flags >> 13 & 3], flags >> 19 & 3
    if flags >> 22 & 1:
        raise Fault("tensor map swizzle of 96 bytes is not modelled")
    if atomicity and span != 128:
        raise Fault(
            f"tensor map swizzle of {span} bytes with atoms of {ATOMS[atomicity]} bytes; other atoms than 16 bytes "
            "take a swizzle of 128 bytes (PTX ISA, Swizzling Modes)"
        )
    high = words[7]
    tensor_map = TensorMap(
        address=words[0] | words[1] << 32,
        rank=rank,
        element=ELEMENT_TYPES[key],
        interleave=INTERLEAVES[interleave],
        swizzle=span,
        atom=ATOMS[atomicity],
        flip=atomicity == FLIPPED,
        fill_nan=bool(flags >> 15 & 1),
        dims=tuple(words[8 + i] + 1 for i in range(rank)),
        strides=tuple(words[3 + i] << 4 | (high >> 4 * i & 15) << 36 for i in range(rank - 1)),
        box=(raw[55] + 1, *((1 if flags & IM2COL else raw[55 + i] + 1) for i in range(1, rank))),
        element_strides=tuple((words[13] >> 3 * i & 7) + 1 for i in range(rank)),
        im2col=unpacked(raw, rank) if flags & IM2COL else None,
    )
    _check(tensor_map)
    return tensor_map


def _check(tensor_map: TensorMap) -> None:
    """Raises Fault for a map that the driver refuses to make."""
    if tensor_map.im2col is not None:
        for i, (dim, low, high) in enumerate(zip(tensor_map.dims[1:], *tensor_map.im2col[:2]), start=1):
            if dim - 1 + high < low:
                raise Fault(
                    f"tensor map bounding box from {low} to {dim - 1 + high} in dimension {i} has no element "
                    f"({IM2COL_RULES})"
                )
    name = tensor_map.element.name
    wide = tensor_map.interleave == "32B" or name in PADDED_TYPES
    alignment = 32 if wide else 16
    if tensor_map.address % alignment:
        raise Fault(f"tensor map address {tensor_map.address:#x} is not a multiple of {alignment} ({RULES})")
    for i, stride in enumerate(tensor_map.strides):
        if stride % alignment:
            raise Fault(f"tensor map stride {stride} of dimension {i + 1} is not a multiple of {alignment} ({RULES})")
    if tensor_map.fill_nan and tensor_map.element.nan is None:
        raise Fault(f"tensor map fills with NaN, but its elements are {name}: only floats can ({RULES})")
    if tensor_map.interleave != "none":
        if tensor_map.rank < 3:
            raise Fault(
                f"tensor map rank {tensor_map.rank} with interleave {tensor_map.interleave}; at least 3 ({RULES})"
            )
        if tensor_map.interleave == "32B" and tensor_map.swizzle != 32:
            raise Fault(f"tensor map swizzle {tensor_map.swizzle} with interleave 32B; must be 32 ({RULES})")
        return
    if name in PADDED_TYPES:
        if tensor_map.dims[0] % 128 or tensor_map.box[0] != 128:
            raise Fault(
                f"tensor map of {name}: dimension 0 is {tensor_map.dims[0]} and its box {tensor_map.box[0]}; "
                f"must be a multiple of 128, and 128 ({RULES})"
            )
        if tensor_map.swizzle not in (0, 128) or tensor_map.flip:
            raise Fault(
                f"tensor map of {name} with a swizzle of {tensor_map.swizzle} bytes"
                f"{' with 8-byte flip' if tensor_map.flip else ''}: must be none or 128 without the flip "
                "(PTX ISA, Restriction on Tensor Copy instructions)"
            )
        return
    if name == "b4x16" and tensor_map.dims[0] % 2:
        raise Fault(f"tensor map of b4x16: dimension 0 has {tensor_map.dims[0]} elements, must be even ({RULES})")
    row_bits = tensor_map.box[0] * tensor_map.element.bits
    if row_bits % 128:
        raise Fault(f"tensor map box: {tensor_map.box[0]} {name} in a row are no multiple of 16 bytes ({RULES})")
    if tensor_map.swizzle and row_bits // 8 > tensor_map.swizzle:
        raise Fault(
            f"tensor map box: a row of {row_bits // 8} bytes is wider than the {tensor_map.swizzle}-byte swizzle span "
            f"({RULES})"
        )


def _set_bits(raw: np.ndarray, byte: int, shift: int, width: int, value: int) -> None:
    word = raw[byte : byte + 4].view("<u4")
    mask = (1 << width) - 1
    word[0] = int(word[0]) & ~(mask << shift) & 0xFFFFFFFF | (value & mask) << shift


_ELEMTYPE_CODES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 7, 8, 11, 12, 13)
_TF32_CODES = (11, 12)


def _range(field: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise Fault(f"tensormap.replace {field}: value {value}, limit {low} to {high} (PTX ISA, tensormap.replace)")


def edit(raw: np.ndarray, field: str, ordinal: int | None, value: int) -> None:
    """Replaces one field of the tensor map in `raw` (uint8[128]), as `tensormap.replace.tile.FIELD` does.

    field: global_address, rank, box_dim, global_dim, global_stride, element_stride, elemtype, interleave_layout,
    swizzle_mode, swizzle_atomicity or fill_mode. ordinal: the dimension (for global_stride, dimension - 1), None for
    fields without one. value: the instruction's operand, for rank the rank minus one, for global_stride bytes (PTX ISA,
    "tensormap.replace"). Raises Fault for values that the instruction does not allow, and for maps for im2col copies.
    """
    if int(raw[8:12].view("<u4")[0]) & IM2COL:
        raise Fault("tensormap.replace.tile of a tensor map for im2col copies (PTX ISA, tensormap.replace)")
    if field in _ORDINALS:
        if ordinal is None:
            raise Fault(f"tensormap.replace {field} needs an ordinal (PTX ISA, tensormap.replace)")
        _range(f"{field} ordinal", ordinal, 0, _ORDINALS[field])
        _edit_dimension(raw, field, ordinal, value)
    elif ordinal is not None:
        raise Fault(f"tensormap.replace {field} takes no ordinal, got {ordinal} (PTX ISA, tensormap.replace)")
    else:
        _edit_field(raw, field, value)


_ORDINALS = {"box_dim": 4, "global_dim": 4, "element_stride": 4, "global_stride": 3}
"""Field with an ordinal -> largest ordinal."""


def _edit_dimension(raw: np.ndarray, field: str, ordinal: int, value: int) -> None:
    match field:
        case "box_dim":
            _range(field, value, 1, 256)
            raw[55 + ordinal] = value - 1
        case "global_dim":
            # The operand has 32 bits, so the size 2**32 arrives as 0.
            raw[32 + 4 * ordinal : 36 + 4 * ordinal].view("<u4")[0] = (value - 1) & 0xFFFFFFFF
        case "global_stride":
            if value % 16 or not 0 <= value < 1 << 40:
                raise Fault(f"tensormap.replace global_stride {value} is not a multiple of 16 below 2**40 ({RULES})")
            raw[12 + 4 * ordinal : 16 + 4 * ordinal].view("<u4")[0] = value >> 4 & 0xFFFFFFFF
            _set_bits(raw, 28, 4 * ordinal, 4, value >> 36)
        case "element_stride":
            _range(field, value, 1, 8)
            _set_bits(raw, 52, 3 * ordinal, 3, value - 1)


def _edit_field(raw: np.ndarray, field: str, value: int) -> None:
    match field:
        case "global_address":
            if value % 16:
                raise Fault(f"tensormap.replace global_address {value:#x} is not a multiple of 16 ({RULES})")
            raw[:8].view("<u8")[0] = value
        case "rank":
            _range(field, value, 0, 4)
            _set_bits(raw, 8, 4, 3, value)
        case "elemtype":
            _range(field, value, 0, len(_ELEMTYPE_CODES) - 1)
            _set_bits(raw, 8, 7, 4, _ELEMTYPE_CODES[value])
            _set_bits(raw, 8, 16, 1, int(value in _TF32_CODES))
        case "interleave_layout":
            _range(field, value, 0, 2)
            _set_bits(raw, 8, 11, 2, value)
        case "swizzle_mode":
            _range(field, value, 0, 3)
            _set_bits(raw, 8, 13, 2, value)
            _set_bits(raw, 8, 22, 1, 0)
        case "swizzle_atomicity":
            _range(field, value, 0, 3)
            _set_bits(raw, 8, 19, 2, value)
        case "fill_mode":
            _range(field, value, 0, 1)
            _set_bits(raw, 8, 15, 1, value)
        case _:
            raise Fault(f"tensormap.replace of {field} is not known (PTX ISA, tensormap.replace)")
