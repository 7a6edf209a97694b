"""Entry -> Program: the entry's row code and its runner."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Collection
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from nogpu.compiler.flow import EXIT
from nogpu.compiler.plan import Plan, plan
from nogpu.compiler.python_rows import PythonRows
from nogpu.compiler.rowcode.image import OP, Image
from nogpu.compiler.rowcode.registers import Slots, slots_of
from nogpu.compiler.segments import RowCode
from nogpu.compiler.stored import StoredEntry, keep
from nogpu.hardware.native import ANYTHING, FAULT, LEAVE, LEAVE_SOME, WAITS, Calls, Move, PythonRow, Wake, library
from nogpu.hardware.program import DONE, Program, RegisterUses
from nogpu.ptx.ir import Entry

if TYPE_CHECKING:
    from nogpu.hardware.warp import ActiveGroup


class Recorder(Protocol):
    """Records what a program's instructions do."""

    names: dict[str, Any]
    """Modules that replace those of the same names in `compiler.namespace`."""

    def attach(self, planned: Plan, slots: Slots) -> tuple[int, int]:
        """Returns (watch, watcher) for a program, as `translate` takes them."""

    def executed(self, index: int, group: ActiveGroup, mask: int) -> None:
        """Notes that the Python row of an instruction has run and its group need not wait."""


def translate(
    entry: Entry,
    watch: int = 0,
    watcher: int = 0,
    recorder: Recorder | None = None,
    follows_registers: bool = False,
    parted: bool = False,
    starts: Collection[int] | None = None,
) -> Program:
    """The program of an entry.

    watch: address of a C function that is called before each instruction, for the lanes that execute it, with
    `watcher`, the warp's context and an operation that names the instruction (native/engine.h). The operations behind
    that one execute the instruction. recorder: chooses `watch` and `watcher`. follows_registers: an instruction that
    names uninitialised bits first calls `Events.uninitialised_named`. parted: turns may end on either side of an
    instruction by which threads communicate. starts: instructions at which segments start in any case, for a program by
    lane (`Flow`).

    Raises EmulatorError, with instruction and line, for whatever is not modelled.
    """
    watched = watch != 0 or recorder is not None
    is_plain = not (watched or follows_registers or parted or starts is not None)
    if isinstance(entry, StoredEntry) and not is_plain:
        entry = entry.parsed()
    linked: Entry
    register_uses: RegisterUses | None = None
    if isinstance(entry, StoredEntry):
        linked, image, (inter_cta, awaits) = entry, entry.image, entry.communication
    else:
        planned = plan(entry, parted, starts is not None)
        code = RowCode(planned, watched, follows_registers, starts or ())
        if recorder is not None:
            watch, watcher = recorder.attach(planned, code.slots)
        linked, image = planned.entry, code.image()
        register_uses = _register_uses(planned, code.slots) if follows_registers else None
        inter_cta, awaits = communication = _communication(planned)
        if is_plain:
            keep(entry, linked, image, communication)
    runner = Runner(image, watch, watcher, recorder)

    @cache
    def by_lane() -> tuple[Program, ctypes.Array[Move]]:
        parsed = entry.parsed() if isinstance(entry, StoredEntry) else entry
        program = translate(parsed, watch, watcher, recorder, follows_registers, parted, image.starts.keys())
        return program, _moves(plan(parsed, parted), plan(parsed, parted, True))

    return Program(
        entry=linked,
        run=runner.run,
        run_turns=runner.run_turns,
        conclude=runner.conclude,
        starts=runner.starts,
        registers=image.register_file(),
        calls=runner.calls,
        live_words=_live_words(image),
        static_shared=image.static_shared,
        dynamic_shared_offset=image.dynamic_shared_offset,
        local_bytes=image.local_bytes,
        inter_cta=inter_cta,
        awaits=awaits,
        by_lane=by_lane if starts is None else None,
        register_uses=register_uses,
    )


class Runner:
    """Runs the groups of a program's warps."""

    def __init__(self, image: Image, watch: int, watcher: int, recorder: Recorder | None) -> None:
        ops, self._descriptions = image.assembled()
        self._ops, self._recorder = ops, recorder
        self._python_rows = PythonRows(image, {} if recorder is None else recorder.names)
        self.starts = np.zeros(max(image.starts) + 1, np.uint64)
        """Value of `Program.starts`."""
        for start, index in image.starts.items():
            self.starts[start] = ops.ctypes.data + OP.itemsize * index
        self._addresses = self.starts.tolist()
        self._run_ops, self._run_turns = library().run_ops, library().run_turns
        self._group: ActiveGroup | None = None
        self._current: Callable[[], ActiveGroup] | None = None  # function that gives the group of a compiled turn
        self._error: BaseException | None = None
        self.calls = Calls(PythonRow(self._python), Wake(self._wake), watch, watcher)

    def run(self, group: ActiveGroup, quantum: int) -> tuple[int, int]:
        """Implements `Program.run`."""
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

    def run_turns(self, turns: int, current: Callable[[], ActiveGroup]) -> int:
        """Implements `Program.run_turns`."""
        outer, self._group, self._current = (self._group, self._current), None, current
        try:
            return self._run_turns(turns)
        finally:
            self._group, self._current = outer

    def conclude(self, group: ActiveGroup) -> tuple[int, int]:
        """Implements `Program.conclude`."""
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
        """Implements `Wake`, for the mbarrier at an offset."""
        group = self._active()
        group.cta.mbarriers[offset].wake()
        group.warp.registers.context.answer = 0

    def _python(self, index: int, mask: int) -> None:
        """Implements `PythonRow`. An error is kept for `conclude`."""
        try:
            group, in_turns = self._active(), self._current is not None
        except BaseException as error:
            self._error = error
            return
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
            if self._recorder is not None and index >= 0 and not answer:
                self._recorder.executed(index, group, mask)
        except BaseException as error:
            self._error, answer = error, FAULT
        context.progress = machine.progress
        if waited or group.waiting is not None:
            registers.tell_of_wait(group)
        if in_turns:
            machine.tell()
        context.answer = answer

    def _active(self) -> ActiveGroup:
        """The group that runs."""
        if self._group is not None:
            return self._group
        assert self._current is not None
        return self._current()


def _moves(old: Plan, new: Plan) -> ctypes.Array[Move]:
    """The moves of an entry's registers to its program by lane."""
    sources, targets = slots_of(old.entry, old.flow), slots_of(new.entry, new.flow)
    moves = [
        Move(
            width=register.width,
            source=sources[name].offset,
            is_uniform=old.flow.kinds[name] == "uniform",
            target=targets[name].offset,
            is_row=new.flow.kinds[name] != "uniform",
        )
        for name, register in old.entry.registers.items()
    ]
    return (Move * len(moves))(*moves)


def _register_uses(planned: Plan, slots: Slots) -> RegisterUses:
    flow = planned.flow
    return RegisterUses(
        defines=[tuple(dict.fromkeys(register.name for register in step.defines)) for step in flow.steps],
        uses=[tuple(dict.fromkeys(register.name for register in step.uses)) for step in flow.steps],
        unwritten=frozenset(flow.blocks[0].live_in),
        places={
            name: (slot.offset, slot.width, flow.kinds.get(name, "uniform") != "uniform")
            for name, slot in slots.by_name.items()
            if name in flow.kinds
        },
    )


def _live_words(image: Image) -> Callable[[int], np.ndarray]:
    """The function `Program.live_words` of an image."""

    @cache
    def words(start: int) -> np.ndarray:
        return np.frombuffer(image.live_words[start], np.int32) if start != EXIT else np.empty(0, np.int32)

    return words


def _communication(planned: Plan) -> tuple[bool, bool]:
    """`Program.inter_cta` and `Program.awaits` of a plan.

    An atomic on global memory combines what CTAs write. One whose result nothing uses tells its CTA nothing of others.
    """
    combines = awaits = False
    used: Counter[str] | None = None
    for instruction, step in zip(planned.entry.instructions, planned.flow.steps):
        parts = instruction.opcode.split(".")
        local = any(part.startswith("shared") for part in parts)
        if parts[0] == "atom" and not local:
            if used is None:
                used = Counter(name for each in planned.flow.steps for name in {use.name for use in each.uses})
            own = {use.name for use in step.uses}
            combines = True
            awaits |= any(used[result.name] > (result.name in own) for result in step.defines)
        elif parts[0] == "red" and not local:
            combines = True
        elif parts[:2] == ["cp", "reduce"]:
            combines |= "global" in parts
        elif parts[0] == "ld" and not local and {"volatile", "acquire", "relaxed", "mmio"} & set(parts):
            awaits = True
    return combines or awaits, awaits
