"""The calls of a program's instructions, as functions on a warp's register file.

`p<index>(g, m)` executes one instruction for the lanes m of the active group g, or reads the clock for it. It returns
None, or ~index if the group has to wait. The functions of instructions without a kernel are compiled together when the
first of them runs. The others, which kernels call for rare accesses and errors, are compiled one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from nogpu.compiler.code import Code
from nogpu.compiler.namespace import namespace
from nogpu.compiler.plan import Plan
from nogpu.compiler.rowcode.image import Image
from nogpu.compiler.rowcode.registers import WORD, Slots
from nogpu.errors import EmulatorError
from nogpu.hardware.native import ARRIVES, SHARES, UNINITIALISED
from nogpu.hardware.tensor.order import arrives
from nogpu.ops import tmem
from nogpu.ptx.ir import Entry, Instruction, Register, items_of, located

if TYPE_CHECKING:
    from nogpu.hardware.warp import ActiveGroup

Function = Callable[["ActiveGroup", int], "int | None"]


@contextmanager
def refusals(entry: Entry, instruction: Instruction) -> Iterator[None]:
    """Makes errors that are raised while an instruction is emitted name its kernel and line."""
    try:
        yield
    except EmulatorError as error:
        raise located(error.reason, entry, instruction) from None
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise located(f"operands not understood: {error}", entry, instruction) from error


class PythonTexts:
    """Writes the text of each instruction's function."""

    def __init__(self, plan: Plan, slots: Slots) -> None:
        self._plan, self._slots = plan, slots
        self.without_kernel: set[int] = set()
        self.by_index: dict[int, str] = {}

    def add(self, index: int) -> None:
        """Writes an instruction's function. Raises EmulatorError for operands that do not fit."""
        if index not in self.by_index:
            self.by_index[index] = self._text(index)

    def destinations(self) -> dict[int, list[int]]:
        """Index of a tcgen05.ld -> the offset of each destination's slot, -1 for `_`: a load writes them late."""
        found = {}
        for index, step in enumerate(self._plan.flow.steps):
            if step.instruction.opcode.startswith("tcgen05.ld"):
                row, _ = self._plan.rows[index]
                items = [item for operand in step.instruction.operands[: row.writes] for item in items_of(operand)]
                found[index] = [self._slots[x.name].offset if isinstance(x, Register) else -1 for x in items]
        return found

    def _text(self, index: int) -> str:
        plan, step = self._plan, self._plan.flow.steps[index]
        row, match = plan.rows[index]
        code = Code(plan.flow, plan.numbers, plan.layout.symbols)
        code.pc, code.kind = index, step.kind(plan.flow.kind_of)
        code.writes, code.waits = row.writes, step.blocks
        assert row.emit is not None
        with refusals(plan.entry, step.instruction):
            row.emit(code, step.instruction, match)
        loads = [self._load(name) for name in sorted(code.preload)]
        stores = [self._store(name) for name in sorted(code.defined)]
        head = [f"def p{index}(g, m):", "    W = g.warp.registers.words; R = g.warp.registers.rows"]
        return "\n".join([*head, *loads, *code.lines, *stores]) + "\n"

    def read_clocks(self, clocks: dict[int, list[tuple[int, str]]]) -> None:
        """Writes the functions of instructions that read the clock. clocks: as `Assembler.clocks`."""
        for index, reads in clocks.items():
            lines = [f"    g.warp.registers.words[{slot // WORD}] = specials[{name!r}](g)\n" for slot, name in reads]
            self.by_index[index] = f"def p{index}(g, m):\n{''.join(lines)}"

    def _parts(self, name: str) -> tuple[str, str, str]:
        """(local variable, kind, text of the register's word)."""
        word = f"W[{self._slots[name].offset // WORD}]"
        return f"r{self._plan.numbers[name]}", self._plan.flow.kinds[name], word

    def _load(self, name: str) -> str:
        local, kind, word = self._parts(name)
        slot = self._slots[name]
        if slot.row:
            return f"    {local} = R[{slot.offset}, {slot.width}].copy()"
        if not slot.predicate or kind == "bits":
            return f"    {local} = {word}"
        return f"    {local} = " + (f"bool({word})" if kind == "uniform" else f"lanes({word})")

    def _store(self, name: str) -> str:
        local, kind, word = self._parts(name)
        slot = self._slots[name]
        if slot.row:
            return f"    R[{slot.offset}, {slot.width}][:] = {local}"
        return f"    {word} = " + (f"bits_of({local})" if kind == "lanes" else f"int({local})")


class PythonRows:
    """The functions of a program's instructions, by index."""

    def __init__(self, image: Image, names: dict[str, Any]) -> None:
        """names: modules that replace those of the same names in `compiler.namespace`."""
        self._image, self._replaced = image, names
        self._without_kernel = set(image.without_kernel)
        self._names: dict[str, Any] = {}
        self._functions: dict[int, Function] = {}

    def run(self, index: int, g: ActiveGroup, mask: int) -> int | None:
        """Executes an instruction; returns ~index if the group has to wait. For ~index it completes the loads of tensor
        memory that the instruction needs; for UNINITIALISED - index it calls `Events.uninitialised_named`; for ARRIVES
        it handles the arrival on a barrier of a warp that has used tensor memory; for SHARES it lets compiled code
        execute the warp's loads and stores of tensor memory.
        """
        if index <= UNINITIALISED:
            g.cta.cluster.events.uninitialised_named(g, mask, UNINITIALISED - index)
            return None
        if index == ARRIVES:
            arrives(g)
            return None
        if index == SHARES:
            tmem.share(g)
            return None
        if index < 0:
            tmem.settle(g, tuple(self._image.first_uses[~index]))
            return None
        function = self._functions.get(index) or self._compiled(index)
        return function(g, mask)

    def _compiled(self, index: int) -> Function:
        if not self._names:
            slots = {load: np.array(found, np.int32) for load, found in self._image.destinations.items()}
            self._names.update(namespace() | self._replaced, destinations=slots)
        chosen = sorted(self._without_kernel) if index in self._without_kernel else [index]
        text = "".join(self._image.texts[i] for i in chosen)
        exec(compile(text, f"<ptx {self._image.name}>", "exec"), self._names)
        for i in chosen:
            self._functions[i] = self._names[f"p{i}"]
        return self._functions[index]
