"""Uninitialised bits in the registers of a warp.

Compiled code raises an event for instructions that name a register with such bits (`Context.uninitialised`); a warp
without any runs as fast as without a sanitizer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nogpu.ptx.ir import Immediate, Negated, Register
from nogpu.sanitizer.origins import Origin

if TYPE_CHECKING:
    from nogpu.hardware.cluster import Cluster
    from nogpu.hardware.program import RegisterUses
    from nogpu.hardware.warp import Warp

LANES = 32
LOADS = ("ld", "ldu", "ldmatrix")
ATOMICS = ("atom", "red")
NOTHING = np.zeros(LANES, np.uint64)
LANE = np.arange(LANES, dtype=np.uint64)
ONE = np.uint64(1)
Bits = dict[str, np.ndarray]
"""Register -> uint64[32]: the uninitialised bits of a result."""


def full(width: int) -> np.uint64:
    """Mask of `width` bits, of 64 at most."""
    return np.uint64((1 << min(width, 64)) - 1)


def chosen(mask: int) -> np.ndarray:
    """bool[32]: True for the lanes of a mask."""
    return (np.uint64(mask) >> LANE & ONE).astype(bool)


class WarpRegisters:
    """Uninitialised bits in the registers of one warp."""

    def __init__(self, warp: Warp, register_uses: RegisterUses) -> None:
        self._warp, self._mentions = warp, register_uses.mentions
        self._widths = {name: width for name, (_, width, _) in register_uses.places.items()}
        self._bits: dict[str, np.ndarray] = {}  # register -> uint64[32], where some are set
        self._origins: dict[str, Origin] = {}
        self._counts = np.zeros(
            len(register_uses.defines), np.int32
        )  # by instruction: number of registers with such bits that it names
        warp.registers.context.uninitialised = self._counts.ctypes.data
        for name in register_uses.unwritten:
            origin = Origin(f"register {name}, which nothing has written", None, "Register State Space")
            self.set(name, chosen(warp.live), np.full(LANES, full(self._widths[name])), origin)

    def __contains__(self, name: str) -> bool:
        return name in self._bits

    def bits(self, operand: object) -> np.ndarray:
        """uint64[32]: the uninitialised bits of a register; 0 for any other operand."""
        if isinstance(operand, Negated):
            operand = operand.register
        return self._bits.get(operand.name, NOTHING) if isinstance(operand, Register) else NOTHING

    def origin(self, name: str) -> Origin:
        """Origin of a register's uninitialised bits."""
        return self._origins[name]

    def width(self, name: str) -> int:
        """Number of a register's bits."""
        return self._widths[name]

    def value(self, operand: object) -> np.ndarray | None:
        """uint64[32]: the value of a register or a number; None for any other operand."""
        if isinstance(operand, Immediate):
            return np.full(LANES, operand.value & (1 << 64) - 1, np.uint64)
        negated = isinstance(operand, Negated)
        if isinstance(operand, Negated):
            operand = operand.register
        if not isinstance(operand, Register):
            return None
        uses, registers = self._warp.cta.grid.program.register_uses, self._warp.registers
        assert uses is not None
        offset, width, by_lane = uses.places[operand.name]
        if by_lane and width > 1:
            return registers.rows[offset, width].astype(np.uint64)
        word = np.uint64(registers.words[offset // 8])
        found = word >> LANE & ONE if by_lane else np.full(LANES, word)
        return found ^ ONE if negated else found

    def set(self, name: str, lanes: np.ndarray, bits: np.ndarray, origin: Origin | None) -> None:
        """Sets the uninitialised bits uint64[32] of a register in lanes bool[32], or clears them. origin: of those
        bits.
        """
        old = self._bits.get(name)
        new = np.where(lanes, bits, NOTHING if old is None else old)
        if new.any():
            self._bits[name] = new
            if origin is not None and (old is None or bits[lanes].any()):
                self._origins[name] = origin
        elif old is not None:
            del self._bits[name]
        if new.any() != (old is not None):
            self._counts[self._mentions[name]] += 1 if old is None else -1


class Files:
    """Uninitialised bits in the registers of a cluster's warps."""

    def __init__(self, cluster: Cluster) -> None:
        """Raises ValueError for a program that was not translated for a sanitizer."""
        register_uses = cluster.grid.program.register_uses
        if register_uses is None:
            raise ValueError(f"{cluster.grid.entry.name} was not translated with follows_registers=True")
        self.entry, self.register_uses = cluster.grid.entry, register_uses
        self.by_warp = {warp: WarpRegisters(warp, register_uses) for cta in cluster.ctas for warp in cta.warps}

    def set(self, warp: Warp, item: object, lanes: np.ndarray, bits: np.ndarray, origin: Origin) -> None:
        """Sets the bits of an operand (`WarpRegisters.set`); does nothing if it is no register."""
        if isinstance(item, Register):
            registers = self.by_warp[warp]
            registers.set(item.name, lanes, bits & full(registers.width(item.name)), origin)
