"""Entry -> Program: the entry's row code, and what runs it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from emulator.compiler.flow import EXIT
from emulator.compiler.plan import plan
from emulator.compiler.rowcode.control import RowCode
from emulator.compiler.rowcode.image import OP, Image
from emulator.compiler.rowcode.python_rows import PythonRows
from emulator.compiler.stored import StoredEntry, keep
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
    if isinstance(entry, StoredEntry) and (watch or not kernels):
        entry = entry.parsed()
    linked: Entry
    if isinstance(entry, StoredEntry):
        linked, image, inter_cta = entry, entry.image, entry.inter_cta
    else:
        planned = plan(entry)
        linked, image = planned.entry, RowCode(planned, kernels, watched=watch != 0).image()
        inter_cta = any(_communicates(instruction) for instruction in linked.instructions)
        if kernels and not watch:
            keep(entry, linked, image, inter_cta)
    runner = Runner(image, watch, watcher)
    return Program(
        entry=linked,
        run=runner.run,
        registers=image.register_file(),
        calls=runner.calls,
        live_words=_live_words(image),
        static_shared=image.static_shared,
        dynamic_shared_offset=image.dynamic_shared_offset,
        local_bytes=image.local_bytes,
        inter_cta=inter_cta,
    )


class Runner:
    """Runs the groups of a program's warps."""

    def __init__(self, image: Image, watch: int, watcher: int) -> None:
        ops, self._descriptions = image.assembled()
        self._ops, self._python_rows = ops, PythonRows(image)
        self._addresses = {start: ops.ctypes.data + OP.itemsize * index for start, index in image.starts.items()}
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


def _live_words(image: Image) -> Callable[[int], np.ndarray]:
    """As `Program.live_words`."""

    @cache
    def words(start: int) -> np.ndarray:
        return np.frombuffer(image.live_words[start], np.int32) if start != EXIT else np.empty(0, np.int32)

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
