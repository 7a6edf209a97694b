"""Reports uninitialised bits in registers where they count, and follows them through other instructions.

They count in an address, in a guard or a branch, in the condition of an effect, in a store to global memory, and in any
other effect. A store to shared or tensor memory passes them on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nogpu.hardware.memory import UNWRITTEN
from nogpu.ops.memory import LOCAL_TAG, SHARED_TAG, TAG_SHIFT
from nogpu.ptx.ir import Address, Instruction, Register, items_of
from nogpu.ptx.types import type_width
from nogpu.sanitizer.origins import INVALID, Origin
from nogpu.sanitizer.propagate import spread
from nogpu.sanitizer.registers import ATOMICS, LANES, LOADS, NOTHING, Files, WarpRegisters, chosen, full

if TYPE_CHECKING:
    from nogpu.hardware.warp import ActiveGroup, Issuer, Warp
    from nogpu.sanitizer.report import Reporter

_BRANCHES = ("bra", "brx", "ret", "exit", "call")
_HINTS = ("prefetch", "prefetchu", "applypriority", "createpolicy", "nanosleep")
_EFFECTS = _BRANCHES + ATOMICS + ("st", "stmatrix", "cp", "mbarrier", "bar", "barrier", "tcgen05", "multimem")
_SYSTEM = ("clusterlaunchcontrol", "griddepcontrol", "setmaxnreg", "discard", "fence", "membar", "trap")
_HAS_EFFECT = frozenset(_EFFECTS + _SYSTEM)


def _registers_of(address: Address) -> list[Register]:
    found = [address.base, *(address.coordinates or ())]
    return [item for operand in found for item in items_of(operand) if isinstance(item, Register)]


def _finish(issuer: Issuer) -> None:
    """Runs all asynchronous operations that can run: one that should have been waited for reports that it was not."""
    queues = issuer[0].cta.machine.queues
    while ready := [(queue, n) for queue, n in queues.heads() if not (waits := queue[n].waits) or not waits()]:
        queues.run_at(*ready[0])


class Stored:
    """Uninitialised bits that a store writes: one that a warp executes, or an asynchronous one that it has issued."""

    def __init__(self, mask: int, invalid: np.ndarray, origin: Origin) -> None:
        self.mask, self.invalid, self.origin = mask, invalid, origin  # invalid: uint8[32 or rows, bytes]

    def by_place(self, places: int | np.ndarray, width: int) -> np.ndarray:
        """uint8[places, width]: the uninitialised bits of the bytes at each place."""
        count = len(places) if isinstance(places, np.ndarray) else 1
        rows = self.invalid if len(self.invalid) != LANES else self.invalid[chosen(self.mask)]
        if count == len(rows) and rows.shape[1] == width:
            return rows
        if count == 1 and rows.shape[1] == width and (rows == rows[:1]).all():
            return rows[:1]
        return np.full((count, width), INVALID if rows.any() else 0, np.uint8)


class Effects:
    """Uninitialised bits in the registers of a cluster's warps, where they count."""

    def __init__(self, files: Files, reporter: Reporter) -> None:
        self._files, self._reporter = files, reporter
        self._entry, self._register_uses = files.entry, files.register_uses
        self.stored: dict[tuple[Warp, int], Stored] = {}
        """(warp, index of the instruction) -> uninitialised bits that its stores are about to write."""

    def uninitialised_named(self, g: ActiveGroup, mask: int, index: int) -> None:
        """Reports or passes on uninitialised bits that an instruction uses (`Events.uninitialised_named`)."""
        assert self._register_uses is not None
        registers, instruction, issuer = self._files.by_warp[g.warp], self._entry.instructions[index], (g, index)
        base, lanes = instruction.opcode.partition(".")[0], chosen(mask)
        guard = self._guard(registers, instruction, base, issuer)
        if base in _BRANCHES:
            self._check_uses(registers, "what decides where control goes", issuer, lanes, guard)
            return
        if base in _HINTS or instruction.opcode.startswith("cp.async.bulk.prefetch"):
            return
        for operand in instruction.operands:
            for register in _registers_of(operand) if isinstance(operand, Address) else ():
                self._check(registers, register, f"the address in {register.name}", issuer, lanes)
        defines = self._register_uses.defines[index]
        results = dict.fromkeys(defines, NOTHING)
        uses = [name for name in self._register_uses.uses[index] if name in registers and name not in guard]
        if base == "st" and ".async" not in instruction.opcode and ".bulk" not in instruction.opcode:
            self._store(registers, g, instruction, issuer, mask)
        elif base == "st" or base in ATOMICS:
            self._change(registers, instruction, issuer, mask, uses)
        elif base == "stmatrix":
            self._store_matrix(registers, instruction, issuer, mask, uses)
        elif base in _HAS_EFFECT and not instruction.opcode.startswith(("tcgen05.st.", "tcgen05.ld.")):
            self._check_uses(registers, "an operand", issuer, lanes, guard)
        elif base not in (*LOADS, "tcgen05") and mask:
            results = spread(g, mask, instruction, defines, uses, registers)
        origin = registers.origin(next(iter(uses or guard))) if uses or guard else None
        decided = self._undecided(registers, guard, g)
        for name in defines:
            bits = np.where(decided, full(registers.width(name)), results.get(name, NOTHING))
            registers.set(name, lanes | decided, bits, origin)

    @staticmethod
    def _undecided(registers: WarpRegisters, guard: tuple[str, ...], g: ActiveGroup) -> np.ndarray:
        """bool[32]: lanes whose guard is uninitialised."""
        found = np.zeros(LANES, bool)
        for name in guard:
            found |= (registers.bits(Register(name, 1)) != 0) & chosen(g.warp.registers.context.outer)
        return found

    def _guard(self, registers: WarpRegisters, instruction: Instruction, base: str, issuer: Issuer) -> tuple[str, ...]:
        """Name of an instruction's guard, if that has uninitialised bits in lanes that count; else ()."""
        if instruction.predicate is None or instruction.predicate.register.name not in registers:
            return ()
        register, outer = instruction.predicate.register, chosen(issuer[0].warp.registers.context.outer)
        if not (registers.bits(register) != 0)[outer].any():
            return ()
        if base in _HAS_EFFECT and base not in _BRANCHES:
            self._check(registers, register, f"the predicate {register.name}", issuer, outer)
        return (register.name,)

    def _check_uses(
        self, registers: WarpRegisters, what: str, issuer: Issuer, lanes: np.ndarray, guard: tuple[str, ...]
    ) -> None:
        assert self._register_uses is not None
        for name in self._register_uses.uses[issuer[1]]:
            if name in registers and (name not in guard or what.startswith("what")):
                self._check(registers, Register(name, 0), f"{what}, {name}", issuer, lanes)

    def _check(
        self, registers: WarpRegisters, register: Register, what: str, issuer: Issuer, lanes: np.ndarray
    ) -> None:
        bad = (registers.bits(register) != 0) & lanes
        if bad.any():
            self.report(what, issuer, bad, registers.origin(register.name), False)

    def report(self, what: str, issuer: Issuer, lanes: np.ndarray | None, origin: Origin, is_doubt: bool) -> None:
        """Reports a use of uninitialised bits. what: the use in words. lanes: bool[32]; None: not known."""
        mask = 0 if lanes is None else sum(1 << lane for lane in np.flatnonzero(lanes).tolist())
        if not is_doubt and not origin.is_global:
            _finish(issuer)
        self._reporter.report_uninitialised(what, issuer, mask, origin, is_doubt)

    def _data(self, registers: WarpRegisters, operand: object, nbytes: int) -> np.ndarray:
        """uint8[32, bytes]: INVALID for each byte that a lane stores with an uninitialised bit, else 0."""
        parts = [registers.bits(item)[:, None].view(np.uint8)[:, :nbytes] for item in items_of(operand)]
        found = np.concatenate(parts, axis=1)
        return np.where(found != 0, np.uint8(INVALID), np.uint8(0))

    def _store(
        self, registers: WarpRegisters, g: ActiveGroup, instruction: Instruction, issuer: Issuer, mask: int
    ) -> None:
        address, source = instruction.operands[:2]
        parts, nbytes = instruction.opcode.split("."), type_width(instruction.opcode.rpartition(".")[2]) // 8
        data, lanes = self._data(registers, source, nbytes), chosen(mask)
        tainted = next((item for item in items_of(source) if registers.bits(item)[lanes].any()), None)
        if tainted is None:
            return
        origin = registers.origin(tainted.name)
        if "local" in parts or "param" in parts:
            self.stored[g.warp, issuer[1]] = Stored(mask, data, origin)
            return
        shared = np.full(LANES, any(part.startswith("shared") for part in parts))
        if "global" not in parts and not shared.any():
            places = registers.value(address.base)
            tags = NOTHING if places is None else places >> np.uint64(TAG_SHIFT)
            shared = (tags == SHARED_TAG) | (tags == LOCAL_TAG)
        bad = lanes & ~shared & data.any(axis=1)
        if bad.any() and not self._is_copy(registers, items_of(source), bad, origin):
            what = f"the value that it stores to global memory, {tainted.name}"
            self.report(what, issuer, bad, origin, origin.is_global)
        if (lanes & shared).any():
            self.stored[g.warp, issuer[1]] = Stored(mask, data, origin)

    @staticmethod
    def _is_copy(registers: WarpRegisters, items: tuple, lanes: np.ndarray, origin: Origin) -> bool:
        """True if all uninitialised items are unchanged words of global memory."""
        if not origin.is_global:
            return False
        for item in items:
            bits, value = registers.bits(item), registers.value(item)
            for shift in (np.uint64(0), np.uint64(32)):
                bad = lanes & (bits >> shift & full(32) != 0)
                if bad.any() and (value is None or (value >> shift & full(32) != UNWRITTEN)[bad].any()):
                    return False
        return True

    def _change(
        self, registers: WarpRegisters, instruction: Instruction, issuer: Issuer, mask: int, uses: list[str]
    ) -> None:
        """Follows atom, red, st.async, st.bulk: all bits that they store are uninitialised if one of an operand is."""
        addressed = {x.name for o in instruction.operands if isinstance(o, Address) for x in _registers_of(o)}
        lanes = chosen(mask)
        tainted = [n for n in uses if n not in addressed and registers.bits(Register(n, 0))[lanes].any()]
        if not tainted:
            return
        origin, bad = registers.origin(tainted[0]), np.zeros(LANES, bool)
        for name in tainted:
            bad |= (registers.bits(Register(name, 0)) != 0) & lanes
        if ".shared" not in instruction.opcode and ".async" not in instruction.opcode:
            self.report(f"an operand, {tainted[0]}", issuer, bad, origin, origin.is_global)
        invalid = np.where(bad[:, None], np.uint8(INVALID), np.uint8(0))
        self.stored[issuer[0].warp, issuer[1]] = Stored(mask, invalid, origin)

    def _store_matrix(
        self, registers: WarpRegisters, instruction: Instruction, issuer: Issuer, mask: int, uses: list[str]
    ) -> None:
        items = items_of(instruction.operands[1])
        tainted = next((item for item in items if registers.bits(item).any()), None)
        if tainted is None:
            return
        values = np.array([registers.bits(item) for item in items], np.uint32)
        halves = np.where(values.view(np.uint16) != 0, np.uint16(0xFFFF), np.uint16(0)).reshape(-1, 8, 8)
        if ".b16" not in instruction.opcode:
            halves = np.full_like(halves, 0xFFFF)
        elif ".trans" in instruction.opcode:
            halves = halves.transpose(0, 2, 1)
        rows = np.ascontiguousarray(halves).reshape(-1, 8).view(np.uint8)
        self.stored[issuer[0].warp, issuer[1]] = Stored(mask, rows, registers.origin(tainted.name))
