"""Entry -> Program: the entry's row code, and what runs it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from emulator.compiler.flow import EXIT, Flow
from emulator.compiler.plan import plan
from emulator.compiler.rowcode.assembler import OP
from emulator.compiler.rowcode.control import RowCode
from emulator.compiler.rowcode.registers import Slots
from emulator.hardware.native import ANYTHING, FAULT, LEAVE, LEAVE_SOME, WAITS, Calls, PythonRow, Wake, library
from emulator.hardware.program import DONE, Program
from emulator.ptx.ir import Entry, Instruction

if TYPE_CHECKING:
    from emulator.hardware.turns import Turns
    from emulator.hardware.warp import ActiveGroup


def translate(entry: Entry, kernels: bool = True, watch: int = 0, watcher: int = 0) -> Program:
    """kernels: False executes every instruction by its Python row. watch: address of a C function that is called before
    each instruction with `watcher`, the warp's context and an operation that names the instruction (native/engine.h).
    The operations that follow that one execute it.

    Raises EmulatorError, with instruction and line, for whatever is not modelled.
    """
    planned = plan(entry)
    code = RowCode(planned, kernels, watched=watch != 0)
    runner = Runner(code, watch, watcher)
    return Program(
        entry=planned.entry,
        run=runner.run,
        run_turns=runner.run_turns,
        conclude=runner.conclude,
        starts=runner.starts,
        registers=code.slots.file(),
        calls=runner.calls,
        live_words=_live_words(planned.flow, code.slots),
        static_shared=planned.layout.static_shared,
        dynamic_shared_offset=planned.layout.dynamic_offset,
        local_bytes=planned.layout.local_bytes,
        inter_cta=any(_communicates(instruction) for instruction in planned.entry.instructions),
    )


class Runner:
    """Runs the groups of a program's warps."""

    def __init__(self, code: RowCode, watch: int, watcher: int) -> None:
        ops, self._descriptions = code.code.assembled()
        self._ops, self._python_rows = ops, code.python_rows
        self.starts = np.zeros(max(code.starts) + 1, np.uint64)
        """As `Program.starts`."""
        for start, index in code.starts.items():
            self.starts[start] = ops.ctypes.data + OP.itemsize * index
        self._addresses = self.starts.tolist()
        self._run_ops, self._run_turns = library().run_ops, library().run_turns
        self._group: ActiveGroup | None = None
        self._turns: Turns | None = None
        self._error: BaseException | None = None
        self.calls = Calls(PythonRow(self._python), Wake(self._wake), watch, watcher)

    def run(self, group: ActiveGroup, quantum: int) -> tuple[int, int]:
        """As `Program.run`."""
        registers = group.warp.registers
        registers.enter(group, quantum)
        outer, self._group = self._group, group
        try:
            self._run_ops(registers.context_address, self._addresses[group.pc])
        finally:
            self._group = outer
        context = registers.context
        group.cta.machine.progress = context.progress
        group.issued += context.issued
        context.issued = 0
        if not context.waited:
            group.waiting = None
        left, pc = self.conclude(group)
        return quantum - left, pc

    def run_turns(self, turns: Turns) -> int:
        """As `Program.run_turns`."""
        outer, self._group, self._turns = (self._group, self._turns), None, turns
        try:
            return self._run_turns(turns.address)
        finally:
            self._group, self._turns = outer

    def conclude(self, group: ActiveGroup) -> tuple[int, int]:
        """As `Program.conclude`."""
        context = group.warp.registers.context
        result = context.result
        if result == WAITS:
            group.warp.registers.hear_of_wait(group)
            group.cta.shared.live_barriers.by_address[context.waited].await_phase(group)
            result = ~context.pc
        elif result == FAULT:
            error, self._error = self._error, None
            # Without an error a signal has ended the Python function before it could keep one.
            raise error or KeyboardInterrupt
        elif result == DONE:
            if context.action == LEAVE:
                result = group.leave(context.lanes)
            elif context.action == LEAVE_SOME:
                result = group.leave_some(context.lanes, context.following)
            else:
                result = group.split(context.lanes, context.target, context.following, context.join)
        return context.quantum, result

    def _wake(self, offset: int) -> None:
        """A `Wake`."""
        group = self._active()
        group.cta.mbarriers[offset].wake()
        group.warp.registers.context.answer = 0

    def _python(self, index: int, mask: int) -> None:
        """A `PythonRow`."""
        group, turns = self._active(), self._turns
        registers, machine = group.warp.registers, group.cta.machine
        context = registers.context
        machine.progress = context.progress
        waited = context.waited
        if not waited:
            group.waiting = None
        elif waited != ANYTHING:
            registers.hear_of_wait(group)
        try:
            answer = self._python_rows.run(index, group, mask) or 0
        except BaseException as error:
            self._error, answer = error, FAULT
        context.progress = machine.progress
        if waited or group.waiting is not None:
            registers.tell_of_wait(group)
        if turns is not None:
            machine.tell(turns)
        context.answer = answer

    def _active(self) -> ActiveGroup:
        """The group that runs."""
        if self._group is not None:
            return self._group
        assert self._turns is not None
        return self._turns.group()


def _live_words(flow: Flow, slots: Slots) -> Callable[[int], np.ndarray]:
    """As `Program.live_words`."""

    @cache
    def words(start: int) -> np.ndarray:
        return slots.words_of(flow.blocks[start].live_in if start != EXIT else ())

    return words


def _communicates(instruction: Instruction) -> bool:
    """Whether an instruction lets CTAs communicate: an atomic on global memory, a load that may await other stores."""
    parts = instruction.opcode.split(".")
    local = any(part.startswith("shared") for part in parts)
    if parts[0] in ("atom", "red"):
        return not local
    if parts[:2] == ["cp", "reduce"]:
        return "global" in parts
    return parts[0] == "ld" and not local and bool({"volatile", "acquire", "relaxed", "mmio"} & set(parts))
