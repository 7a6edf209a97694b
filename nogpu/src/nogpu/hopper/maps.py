"""Tensor maps of 4-bit elements, on a GPU that lacks them.

A Hopper loads the same bytes through a map of U8 elements with half the size in dimension 0, of the tensor and of the
box, if the first coordinate is halved; the image in shared memory is the same, swizzle included. So the maps among a
launch's parameters are rewritten, and the instructions that use them halve the coordinate.

`Origins` follows an address through moves and selects to the parameters. An address from memory, such as that of a map
that the kernel edits in a workspace, does not lead there: then the instruction looks for a mark in the map itself. The
mark is the box's size in a dimension that the tensor does not have.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from nogpu.compiler.flow import written_operands
from nogpu.errors import EmulatorError, Fault
from nogpu.hardware.tma.tensor_map import SIGNIFICANT_BYTES, TensorMap
from nogpu.ptx.ir import Entry, Instruction, Param, Register, Symbol

MAP_BYTES, MAP_ALIGNMENT = 128, 64
MARK_OFFSET, MARK_4_BIT = 59, 0xB4  # byte and value in a map whose elements had 4 bits: box of dimension 4, minus 1
_MARKABLE_RANK = 4
_ELEMENT_BITS = 0xF << 7 | 1 << 16  # bits of element type and its variant, in the word at byte 8


class MapFacts(NamedTuple):
    """The properties of a tensor map that lowering needs."""

    four_bit: bool
    box_bytes: int  # bytes in shared memory


def is_map(param: Param) -> bool:
    """True if a parameter has the size and alignment of a tensor map passed by value."""
    return param.size == MAP_BYTES and param.align >= MAP_ALIGNMENT


def holds_maps(param: Param) -> bool:
    """True if a parameter has the size and alignment of a structure with tensor maps, passed by value."""
    return param.size > MAP_BYTES and param.align >= MAP_ALIGNMENT


def patch(raw: bytes) -> tuple[bytes, MapFacts | None]:
    """A by-value parameter of 128 bytes in a form that a Hopper takes, and the facts of the map.

    A parameter that is no map stays unchanged, and its facts are None. Raises EmulatorError for a map without an
    equal on a Hopper.
    """
    # Decoding takes longer than the rest of a launch. The key omits addresses and sizes, which change from call to
    # call.
    key = raw[8:12] + raw[52:60]
    if key not in _known:
        _known[key] = _examine(raw)
    facts = _known[key]
    if facts is None:
        return raw, None
    patched = bytearray(raw[:SIGNIFICANT_BYTES])
    if facts.four_bit:
        flags, size = struct.unpack_from("<I", raw, 8)[0], struct.unpack_from("<I", raw, 32)[0]
        struct.pack_into("<I", patched, 8, flags & ~_ELEMENT_BITS)
        struct.pack_into("<I", patched, 32, (size + 1) // 2 - 1)
        patched[55] = (patched[55] + 1) // 2 - 1
    return bytes(patched).ljust(MAP_BYTES, b"\0"), facts


def patch_members(raw: bytes) -> bytes:
    """A by-value structure of more than 128 bytes, with its maps of 4-bit elements patched and marked.

    Members that are tensor maps are aligned to 64 bytes; any member that decodes as a map counts as one.
    """
    patched = bytearray(raw)
    for start in range(0, len(raw) - MAP_BYTES + 1, MAP_ALIGNMENT):
        member, facts = patch(raw[start : start + MAP_BYTES])
        if facts is not None and facts.four_bit:
            patched[start : start + SIGNIFICANT_BYTES] = mark(member)[:SIGNIFICANT_BYTES]
    return bytes(patched)


def mark(patched: bytes) -> bytes:
    """A patched map with the mark of 4-bit elements."""
    return patched[:MARK_OFFSET] + bytes((MARK_4_BIT,)) + patched[MARK_OFFSET + 1 :]


_known: dict[bytes, MapFacts | None] = {}


def _examine(raw: bytes) -> MapFacts | None:
    try:
        tensor_map = TensorMap.decode(raw)
    except Fault:
        return None
    if tensor_map.element.name in ("b4x16_p64", "b6x16_p32"):
        raise EmulatorError(
            f"a tensor map has elements of type {tensor_map.element.name}, which are unpacked in shared memory: "
            "a Hopper's TMA has no such copy"
        )
    if tensor_map.atom != 16:
        raise EmulatorError(
            f"a tensor map is swizzled in atoms of {tensor_map.atom} bytes: a Hopper's TMA has 16-byte atoms only"
        )
    if tensor_map.rank > _MARKABLE_RANK and (tensor_map.element.bits == 4 or raw[MARK_OFFSET] == MARK_4_BIT):
        raise EmulatorError(
            f"a tensor map of {tensor_map.element.name} has {tensor_map.rank} dimensions, the last with a box of "
            f"{tensor_map.box[-1]}: with 4-bit elements, or a box of {MARK_4_BIT + 1}, there may be only "
            f"{_MARKABLE_RANK}"
        )
    return MapFacts(tensor_map.element.bits == 4, tensor_map.box_bytes)


class Origins:
    """Origins of the addresses in an entry's registers: the tensor map parameters that they may point to."""

    def __init__(self, entry: Entry):
        self._params = {param.name for param in entry.params if is_map(param)}
        self._definitions: dict[str, list[Instruction]] = {}
        for instruction in entry.instructions:
            for register in written_operands(instruction, 1)[0]:
                self._definitions.setdefault(register.name, []).append(instruction)

    def defined_once(self, register: Register) -> bool:
        """True if exactly one instruction of the entry writes the register."""
        return len(self._definitions.get(register.name, [])) == 1

    def of(self, operand: object) -> frozenset[str] | None:
        """Names of the tensor map parameters to which `operand` may point; None if it may point to other memory."""
        found: set[str] = set()
        return frozenset(found) if self._follow(operand, found, set()) else None

    def _follow(self, operand: object, found: set[str], seen: set[str]) -> bool:
        """Add the names to `found`. Returns False if the operand may point to other memory."""
        if isinstance(operand, Symbol):
            found.add(operand.name)
            return operand.name in self._params
        if not isinstance(operand, Register):
            return False
        if operand.name in seen:
            return True
        seen.add(operand.name)
        definitions = self._definitions.get(operand.name, [])
        for definition in definitions:
            name = definition.opcode.split(".")[0]
            sources = {"mov": definition.operands[1:2], "cvta": definition.operands[1:2]}.get(name)
            if name == "selp":
                sources = definition.operands[1:3]
            if sources is None or not all(self._follow(source, found, seen) for source in sources):
                return False
        return bool(definitions)
