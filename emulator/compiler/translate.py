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
from emulator.hardware.barriers import PARITIES
from emulator.hardware.native import FAULT, LEAVE, LEAVE_SOME, WAITS, Calls, PythonRow, Wake, library
from emulator.hardware.program import DONE, Program
from emulator.ptx.ir import Entry, Instruction

if TYPE_CHECKING:
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
        self._addresses = {start: ops.ctypes.data + OP.itemsize * index for start, index in code.starts.items()}
        self._run_ops = library().run_ops
        self._group: ActiveGroup | None = None
        self._error: BaseException | None = None
        self.calls = Calls(PythonRow(self._python), Wake(self._wake), watch, watcher)

    def run(self, group: ActiveGroup, quantum: int) -> tuple[int, int]:
        """As `Program.run`."""
        registers, machine, waiting = group.warp.registers, group.cta.machine, group.waiting
        registers.enter(group, quantum)
        context, outer, self._group = registers.context, self._group, group
        try:
            result = self._run_ops(registers.context_address, self._addresses[group.pc])
        finally:
            self._group = outer
        left, machine.progress, issued, waited, phase, parity, pc = registers.left()
        group.issued += issued
        if waiting is not None and waiting is group.waiting and not waited:
            group.waiting = None
        if result == WAITS:
            barrier = group.cta.shared.live_barriers.by_address[waited]
            group.waiting = (PARITIES[parity], barrier, phase)
            barrier.await_phase(group)
            return quantum - left, ~pc
        if result == FAULT:
            error, self._error = self._error, None
            # Without an error a signal has ended the Python function before it could keep one.
            raise error or KeyboardInterrupt
        if result == DONE:
            if context.action == LEAVE:
                result = group.leave(context.lanes)
            elif context.action == LEAVE_SOME:
                result = group.leave_some(context.lanes, context.following)
            else:
                result = group.split(context.lanes, context.target, context.following, context.join)
        return quantum - left, result

    def _wake(self, offset: int) -> None:
        """A `Wake`."""
        group = self._group
        assert group is not None
        group.cta.mbarriers[offset].wake()
        group.warp.registers.context.answer = 0

    def _python(self, index: int, mask: int) -> None:
        """A `PythonRow`."""
        group = self._group
        assert group is not None
        context, machine = group.warp.registers.context, group.cta.machine
        machine.progress = context.progress
        waited = context.waited
        if not waited:
            group.waiting = None
        try:
            answer = self._python_rows.run(index, group, mask) or 0
        except BaseException as error:
            self._error, answer = error, FAULT
        context.progress = machine.progress
        if waited and group.waiting is None:
            context.waited = None
        context.answer = answer


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
