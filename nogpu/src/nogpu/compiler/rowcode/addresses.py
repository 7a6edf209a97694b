"""Rows of which the addresses of loads are sums, so that compiled code looks for a row's pattern once in a block."""

from __future__ import annotations

import re
from collections.abc import Callable

from nogpu import headers
from nogpu.compiler.flow import Flow, Step
from nogpu.ptx.ir import Immediate, Instruction, Register

(_PLACES,) = headers.constants("native/engine.h", "ADDRESS_ROWS")
_SUM = re.compile(r"add\.[us](?:32|64)")


class AddressRows:
    """Knowledge of rows of addresses at an instruction of a block, which holds up to the block's end."""

    def __init__(self, flow: Flow, add: Callable[[object, object, int], int]) -> None:
        """add: emits the sum of two values that all lanes share, of a width in bits; returns its slot."""
        self._flow, self._emit = flow, add
        self._places: dict[str, int] = {}
        self._sums: dict[str, tuple[Register, Register | Immediate | int]] = {}
        self._known: set[str] = set()
        self._loaded: str | None = None  # row of the current instruction, a load

    def begin(self) -> None:
        """Begins a block."""
        self._places.clear()
        self._sums.clear()
        self._known.clear()
        self._loaded = None

    def row_of(self, base: Register) -> tuple[Register, Register | Immediate | int | None, int, bool]:
        """(row; what is added to it, the same in all lanes, or the slot of that; its place in Context.address_rows;
        whether an access before has looked for its pattern) of a load's base, a row.
        """
        row, added = self._sums.get(base.name, (base, None))
        self._loaded = row.name
        place = self._places.setdefault(row.name, len(self._places) % _PLACES)
        return row, added, place, row.name in self._known

    def row_name(self, base: Register) -> str:
        """The row of which a load's base is a sum, or the base itself."""
        return self._sums.get(base.name, (base, None))[0].name

    def pass_by(self, step: Step, has_kernel: bool) -> None:
        """Goes on behind an instruction. has_kernel: compiled code executes it, if its lanes are active."""
        if self._loaded is not None and has_kernel and step.instruction.predicate is None:
            self._known.add(self._loaded)
        self._loaded = None
        self.note(step)

    def note(self, step: Step, in_chain: bool = False) -> None:
        """Notes what an instruction writes, and a sum of a row, or of a sum with a row that is known, and a value that
        all lanes share. in_chain: what it is a sum of may not have been computed.
        """
        written = {register.name for register in step.defines}
        self._known -= written
        for name, operands in list(self._sums.items()):
            if name in written or any(isinstance(x, Register) and x.name in written for x in operands):
                del self._sums[name]
        found = shared_sum(self._flow, step.instruction)
        if found is None:
            return
        result, a, b = found
        row, added = self._sums.get(a.name, (a, None))
        if added is not None and (in_chain or row.name in self._known):
            self._sums[result.name] = row, self._emit(added, b, row.width)
        else:
            self._sums[result.name] = a, b


def shared_sum(flow: Flow, instruction: Instruction) -> tuple[Register, Register, Register | Immediate] | None:
    """(result, row, what is added to it, the same in all lanes) of an instruction that is such a sum, else None."""

    def is_row(operand: object) -> bool:
        return isinstance(operand, Register) and flow.kinds[operand.name] == "lanes"

    if instruction.predicate is not None or not _SUM.fullmatch(instruction.opcode):
        return None
    result, a, b = instruction.operands
    if is_row(b):
        a, b = b, a
    if not isinstance(result, Register) or not isinstance(a, Register) or not (is_row(result) and is_row(a)):
        return None
    if not isinstance(b, Register | Immediate) or is_row(b) or result.name in (a.name, getattr(b, "name", None)):
        return None
    return result, a, b
