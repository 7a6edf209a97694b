"""Spread of uninitialised bits between the lanes of a warp: shuffles, votes, products of matrices."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from nogpu.arithmetic import fragments
from nogpu.ops import exchange as lane_exchange
from nogpu.ptx.ir import Instruction, Pair, Register, Vector
from nogpu.sanitizer.registers import NOTHING, ONE, Bits, WarpRegisters, chosen, full

if TYPE_CHECKING:
    from nogpu.hardware.warp import ActiveGroup


def shuffle(g: ActiveGroup, mask: int, i: Instruction, w: WarpRegisters) -> Bits:
    """Uninitialised bits of shfl's result."""
    destination, a, b, c, members = i.operands
    held = destination.second if isinstance(destination, Pair) else None
    target = destination.first if isinstance(destination, Pair) else destination
    places = [w.value(x) for x in (b, c, members)]
    found: Bits = {held.name: NOTHING} if isinstance(held, Register) else {}
    if not isinstance(target, Register):
        return found
    if any(x is None for x in places) or any(w.bits(x).any() for x in (b, c, members)):
        return found | {target.name: np.full(32, full(32))}
    lane, clamp, named = (np.asarray(x, np.uint32) for x in places)
    named_by_all = int(named[0]) if (named == named[0]).all() else named
    values, _ = lane_exchange.shuffle(
        g, mask, i.opcode.split(".")[2], w.bits(a).astype(np.uint32), lane, clamp, named_by_all
    )
    return found | {target.name: values.astype(np.uint64)}


def exchange(mask: int, i: Instruction, defines: tuple[str, ...], uses: list[str], w: WarpRegisters) -> Bits:
    """Uninitialised bits of a result that depends on all lanes."""
    lanes = chosen(mask)
    anywhere = np.zeros(32, bool)
    for name in uses:
        anywhere |= (w.bits(Register(name, 0)) != 0) & lanes
    if ".ballot" in i.opcode:
        bits = np.bitwise_or.reduce(np.where(anywhere, ONE << np.arange(32, dtype=np.uint64), NOTHING))
        return {name: np.full(32, bits) for name in defines}
    return {name: np.full(32, full(w.width(name)) if anywhere.any() else 0, np.uint64) for name in defines}


def _matrix(operand: object, bits: int, w: WarpRegisters) -> tuple[np.ndarray, int]:
    """(uint[registers, 32] with all bits set in each element that has an uninitialised one, bits of an element)."""
    items = operand.items if isinstance(operand, Vector) else (operand,)
    wide = bits == 64
    found: np.ndarray = np.array([w.bits(item) for item in items], np.uint64 if wide else np.uint32)
    if bits == 4:
        codes = found[..., None] >> np.arange(0, 32, 4, dtype=np.uint32) & np.uint32(15)
        ones = np.where(codes != 0, np.uint32(15), np.uint32(0)) << np.arange(0, 32, 4, dtype=np.uint32)
        return np.bitwise_or.reduce(ones, axis=-1), bits
    parts = found.view(f"u{bits // 8}")
    return np.where(parts != 0, ~parts.dtype.type(0), parts.dtype.type(0)).view(found.dtype), bits


def multiply(i: Instruction, w: WarpRegisters) -> Bits:
    """Uninitialised bits of mma.sync's D: those of a row of A or a column of B spoil that row or column of D."""
    parts = i.opcode.split(".")
    m = int(re.match(r"m(\d+)", parts[3])[1]) if re.match(r"m(\d+)", parts[3]) else 16  # type: ignore[index]
    result, of_a, of_b = [part for part in parts[4:] if part not in ("row", "col", "satfinite")][:3]
    widths = [_element_width(name) for name in (of_a, of_b, result)]
    a, b, c = (_matrix(x, width, w) for x, width in zip(i.operands[1:4], widths))
    rows = (fragments.rows_of_a(*a, m) != 0).any(axis=1)
    columns = (fragments.columns_of_b(*b) != 0).any(axis=1)
    bad = rows[:, None] | columns | (fragments.matrix_of_c(*c, m) != 0)
    matrix = np.where(bad, full(widths[2]), full(0)).astype(f"u{widths[2] // 8}")
    found = fragments.registers_of_d(matrix.view(np.float16) if widths[2] == 16 else matrix, m)
    items = i.operands[0].items if isinstance(i.operands[0], Vector) else (i.operands[0],)
    return {item.name: bits.astype(np.uint64) for item, bits in zip(items, found) if isinstance(item, Register)}


def _element_width(name: str) -> int:
    return {"tf32": 32, "bf16": 16, "s4": 4, "u4": 4}.get(name) or (int(name[1:]) if name[0] in "fsu" else 8)
