"""Spread of uninitialised bits from the sources of an instruction to its results.

Logic, shifts, selections, permutations, conversions of integers and packing spread bit by bit, since programs count on
it. Sums and products spread to the left of the lowest such bit, and a product by a known zero has none. For any
other instruction all bits of a lane's result are uninitialised if a bit of its sources is. Results that depend on
several lanes are in `between_lanes.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from nogpu.ptx.ir import Instruction, Register, Vector
from nogpu.ptx.types import type_width
from nogpu.sanitizer import between_lanes
from nogpu.sanitizer.registers import NOTHING, ONE, Bits, WarpRegisters, full

if TYPE_CHECKING:
    from nogpu.hardware.warp import ActiveGroup

_Handler = Callable[[Instruction, WarpRegisters], "Bits | None"]
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_TYPE = re.compile(r"[busf](8|16|32|64|128)(?:x2)?$|pred$")
_WHOLE_WARP = ("vote", "match", "redux", "activemask", "elect", "movmatrix")


def spread(
    g: ActiveGroup, mask: int, i: Instruction, defines: tuple[str, ...], uses: list[str], w: WarpRegisters
) -> Bits:
    """Uninitialised bits of the results of an instruction without an effect. mask: of the lanes that execute it. uses:
    names of its sources, without the guard.
    """
    base = i.opcode.partition(".")[0]
    if base == "shfl":
        return between_lanes.shuffle(g, mask, i, w)
    if base == "mma":
        return between_lanes.multiply(i, w)
    if base in _WHOLE_WARP:
        return between_lanes.exchange(mask, i, defines, uses, w)
    handler = _HANDLERS.get(base)
    found = handler(i, w) if handler is not None else None
    if found is None:
        found = _halves(i, w) if re.search(r"\.[a-z0-9]+x2$", i.opcode) else None
    return found if found is not None else _anything(defines, uses, w)


def _anything(defines: tuple[str, ...], uses: list[str], w: WarpRegisters) -> Bits:
    anywhere = np.zeros(32, bool)
    for name in uses:
        anywhere |= w.bits(Register(name, 0)) != 0
    return {name: np.where(anywhere, full(w.width(name)), NOTHING) for name in defines}


def _result(i: Instruction, bits: np.ndarray) -> Bits | None:
    destination = i.operands[0]
    return {destination.name: bits & full(destination.width)} if isinstance(destination, Register) else None


def _types(opcode: str) -> list[str]:
    return [part for part in opcode.split(".")[1:] if _TYPE.match(part)]


def _left(bits: np.ndarray) -> np.ndarray:
    """Mask of all bits from the lowest set one on."""
    return bits | (~bits + ONE)


def _is_integer(opcode: str) -> bool:
    types = _types(opcode)
    return bool(types) and all(name[0] in "bus" and "x" not in name for name in types)


def _mov(i: Instruction, w: WarpRegisters) -> Bits | None:
    destination, source = i.operands
    if isinstance(destination, Vector):
        widths = [item.width for item in destination.items if isinstance(item, Register)]
        if isinstance(source, Vector) or not isinstance(source, Register) or source.width > 64:
            return None
        bits, step = w.bits(source), np.uint64(widths[0])
        return {
            item.name: bits >> np.uint64(n) * step & full(widths[0])
            for n, item in enumerate(destination.items)
            if isinstance(item, Register)
        }
    if isinstance(source, Vector):
        if not isinstance(destination, Register) or destination.width > 64:
            return None
        step, total = np.uint64(destination.width // len(source.items)), NOTHING
        for n, item in enumerate(source.items):
            total = total | w.bits(item) << np.uint64(n) * step
        return _result(i, total)
    return _result(i, w.bits(source))


def _logic(i: Instruction, w: WarpRegisters) -> Bits | None:
    """Uninitialised bits of and, or: a known bit of one source may decide the result's."""
    a, b = i.operands[1:3]
    ta, tb, va, vb = w.bits(a), w.bits(b), w.value(a), w.value(b)
    if va is None or vb is None:
        return _result(i, ta | tb)
    if i.opcode.startswith("or"):
        va, vb = ~va, ~vb
    return _result(i, (ta | tb) & ~(~ta & ~va) & ~(~tb & ~vb))


def _each_bit(i: Instruction, w: WarpRegisters) -> Bits | None:
    total = NOTHING
    for operand in i.operands[1:]:
        total = total | w.bits(operand)
    return _result(i, total)


def _shift(i: Instruction, w: WarpRegisters) -> Bits | None:
    a, by = i.operands[1:3]
    value, width = w.value(by), type_width(i.opcode.rpartition(".")[2])
    if value is None or w.bits(by).any():
        return None
    bits, count = w.bits(a), np.minimum(value, np.uint64(63))
    gone = value >= np.uint64(width)
    if i.opcode.startswith("shl"):
        return _result(i, np.where(gone, NOTHING, bits << count))
    sign = (bits >> np.uint64(width - 1) & ONE).astype(bool) if ".s" in i.opcode else np.zeros(32, bool)
    moved = np.where(gone, NOTHING, bits >> count)
    kept = np.uint64(width) - np.minimum(value, np.uint64(width))
    filled = full(width) & ~((ONE << np.minimum(kept, np.uint64(63))) - ONE)
    return _result(i, np.where(sign, moved | filled | np.where(gone, full(width), NOTHING), moved))


def _select(i: Instruction, w: WarpRegisters) -> Bits | None:
    a, b, p = i.operands[1:4]
    held, va, vb = w.value(p), w.value(a), w.value(b)
    if held is None or not isinstance(i.operands[0], Register):
        return None
    known = np.where(held != 0, w.bits(a), w.bits(b))
    if va is None or vb is None:
        either = full(i.operands[0].width)
    else:
        either = (va ^ vb) | w.bits(a) | w.bits(b)
    return _result(i, np.where(w.bits(p) != 0, either, known))


def _permute(i: Instruction, w: WarpRegisters) -> Bits | None:
    a, b, c = i.operands[1:4]
    selector = w.value(c)
    if i.opcode != "prmt.b32" or selector is None or w.bits(c).any():
        return None
    both, total = w.bits(a) | w.bits(b) << np.uint64(32), NOTHING
    for n in range(4):
        nibble = selector >> np.uint64(4 * n)
        byte = both >> (nibble & np.uint64(7)) * np.uint64(8) & np.uint64(0xFF)
        byte = np.where(
            nibble & np.uint64(8) != 0, np.where(byte & np.uint64(0x80) != 0, np.uint64(0xFF), NOTHING), byte
        )
        total = total | byte << np.uint64(8 * n)
    return _result(i, total)


def _convert(i: Instruction, w: WarpRegisters) -> Bits | None:
    destination, sources = i.operands[0], i.operands[1:]
    if not isinstance(destination, Register):
        return None
    if len(sources) == 2 and re.search(r"x2\.f32$", i.opcode):
        half = destination.width // 2
        low, high = w.bits(sources[1]) != 0, w.bits(sources[0]) != 0
        return _result(i, np.where(low, full(half), NOTHING) | np.where(high, full(half) << np.uint64(half), NOTHING))
    types = _types(i.opcode)
    if len(types) != 2 or not _is_integer(i.opcode) or ".sat" in i.opcode:
        return None
    of, bits = type_width(types[1]), w.bits(sources[0]) & full(type_width(types[1]))
    if types[1][0] == "s" and of < 64:
        negative = (bits >> np.uint64(of - 1) & ONE).astype(bool)
        bits = np.where(negative, bits | ~full(of), bits)
    return _result(i, bits & full(type_width(types[0])) if types[0][0] == "u" else bits)


def _sum(i: Instruction, w: WarpRegisters) -> Bits | None:
    if not _is_integer(i.opcode) or ".sat" in i.opcode or ".cc" in i.opcode:
        return None
    total = NOTHING
    for operand in i.operands[1:]:
        total = total | w.bits(operand)
    return _result(i, np.where(total != 0, _left(total), NOTHING))


def _product(i: Instruction, w: WarpRegisters) -> Bits | None:
    """Uninitialised bits of mul, mad."""
    if not _is_integer(i.opcode) or ".hi" in i.opcode or ".sat" in i.opcode or ".cc" in i.opcode:
        return None
    a, b = i.operands[1:3]
    factors = [(w.bits(x), w.value(x)) for x in (a, b)]
    total = factors[0][0] | factors[1][0]
    for bits, value in factors:
        if value is not None:
            total = np.where((bits == 0) & (value == 0), NOTHING, total)
    if len(i.operands) == 4:
        total = total | w.bits(i.operands[3])
    return _result(i, np.where(total != 0, _left(total), NOTHING))


def _compare(i: Instruction, w: WarpRegisters) -> Bits | None:
    """Uninitialised bits of setp.eq, .ne: known bits that differ decide the result."""
    parts = i.opcode.split(".")
    destination, a, b = i.operands[:3]
    if parts[1] not in ("eq", "ne") or len(i.operands) != 3 or not _is_integer(i.opcode):
        return None
    va, vb = w.value(a), w.value(b)
    if va is None or vb is None or not isinstance(destination, Register):
        return None
    unknown = w.bits(a) | w.bits(b)
    decided = ((va ^ vb) & ~unknown & full(type_width(parts[-1]))) != 0
    return _result(i, np.where((unknown != 0) & ~decided, ONE, NOTHING))


def _extract(i: Instruction, w: WarpRegisters) -> Bits | None:
    a, position, length = i.operands[1:4]
    at, count = w.value(position), w.value(length)
    if ".u" not in i.opcode or at is None or count is None or w.bits(position).any() or w.bits(length).any():
        return None
    mask = (ONE << np.minimum(count & np.uint64(0xFF), np.uint64(63))) - ONE
    return _result(i, w.bits(a) >> np.minimum(at & np.uint64(0xFF), np.uint64(63)) & mask)


def _halves(i: Instruction, w: WarpRegisters) -> Bits | None:
    """Uninitialised bits of two numbers in a register: each has its own."""
    destination, total = i.operands[0], NOTHING
    if not isinstance(destination, Register) or any(
        isinstance(x, Register) and x.width != destination.width for x in i.operands
    ):
        return None
    for operand in i.operands[1:]:
        total = total | w.bits(operand)
    half = np.uint64(destination.width // 2)
    low, high = total & full(int(half)), total >> half
    return _result(
        i, np.where(low != 0, full(int(half)), NOTHING) | np.where(high != 0, full(int(half)) << half, NOTHING)
    )


_HANDLERS: dict[str, _Handler] = {
    "mov": _mov,
    "and": _logic,
    "or": _logic,
    "xor": _each_bit,
    "not": _each_bit,
    "lop3": _each_bit,
    "shl": _shift,
    "shr": _shift,
    "selp": _select,
    "prmt": _permute,
    "cvt": _convert,
    "add": _sum,
    "sub": _sum,
    "neg": _sum,
    "mul": _product,
    "mad": _product,
    "setp": _compare,
    "bfe": _extract,
}
