"""Control flow of a program in row code: segments, nested branches, guards, exits.

A segment starts where a program can be entered or resumed (the start, branch targets, instructions that may wait) and
runs to the next such place. Short forward branches are part of it: their lanes become the active ones for a while.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from nogpu.compiler.chains import Chain, chains_of
from nogpu.compiler.flow import EXIT, Block, Step
from nogpu.compiler.links import described
from nogpu.compiler.plan import Plan
from nogpu.compiler.python_rows import PythonTexts, refusals
from nogpu.compiler.rowcode.assembler import Assembler, Unsupported
from nogpu.compiler.rowcode.image import Image
from nogpu.compiler.rowcode.registers import slots_of
from nogpu.errors import EmulatorError
from nogpu.ptx.ir import Predicate, located

SEGMENT_LIMIT = 3000  # instructions after which a segment ends


class RowCode:
    """The row code of an entry."""

    def __init__(
        self, plan: Plan, watched: bool = False, follows_registers: bool = False, starts: Collection[int] = ()
    ) -> None:
        """watched: an operation `watch` precedes each instruction. follows_registers: `check_uninitialised` does.
        starts: blocks at which segments start in any case.

        Raises EmulatorError, with instruction and line, for whatever is not modelled.
        """
        self._plan, self._flow, self._steps = plan, plan.flow, plan.flow.steps
        # Operations before each instruction.
        self._before = ["watch"] * watched + ["check_uninitialised"] * follows_registers
        self.slots = slots_of(plan.entry, plan.flow)
        self.python_rows = PythonTexts(plan, self.slots)
        self.code = Assembler(plan.flow, plan.layout.symbols, self.slots)
        self.starts: dict[int, int] = {}
        """First instruction of a segment -> index of its first operation."""
        self._start = 0  # first instruction of the current segment
        self._emitted = 0  # instructions of the segment so far
        self._exits: set[int] = set()  # instructions at which a group may go on after the segment
        self._jumps: list[tuple[int, int]] = []
        self._emit_all({0, *starts})

    def image(self) -> Image:
        """The row code as plain data."""
        planned, flow, slots, texts = self._plan, self._flow, self.slots, self.python_rows
        texts.read_clocks(self.code.clocks)
        places = {*self.starts, *(block.join for block in flow.blocks.values())} - {EXIT}
        return Image(
            name=planned.entry.name,
            **self.code.assembled(),
            starts=self.starts,
            registers=slots.initial(),
            specials=slots.special_places(),
            texts=texts.by_index,
            without_kernel=sorted(texts.without_kernel),
            destinations=texts.destinations(),
            first_uses={index: sorted(loads) for index, loads in planned.first_uses.items()},
            live_words={place: slots.words_of(flow.blocks[place].live_in) for place in places},
            static_shared=planned.layout.static_shared,
            dynamic_shared_offset=planned.layout.dynamic_offset,
            local_bytes=planned.layout.local_bytes,
        )

    def _emit_all(self, seen: set[int]) -> None:
        """Emits the segments that start at these blocks, and those to which they lead."""
        pending = sorted(seen, reverse=True)
        while pending:
            self._start, self._emitted, self._exits = pending.pop(), 0, set()
            self.starts[self._start] = len(self.code)
            self._chain(self._start, None)
            for exit_ in sorted(self._exits - seen):
                seen.add(exit_)
                pending.append(exit_)
        for index, target in self._jumps:
            self.code.patch(index, self.starts[target])

    def _chain(self, start: int, stop: int | None) -> None:
        """Emits blocks from `start` to `stop`, the end of a nested side; for EXIT, up to the exit of all lanes, which
        the caller emits; for None, to the end of the segment.
        """
        current, joined = start, False
        while current != stop:
            if current == EXIT and self._ends_in_a_trap():
                return
            if current == EXIT:
                raise self._no_exit()
            if stop is None and (self._emitted if current == self._start else self._is_boundary(current, joined)):
                self._leave(current)
                return
            block = self._flow.blocks[current]
            self._block(block)
            following = self._terminator(block, stop)
            if following is None:
                return
            current, joined = following

    def _ends_in_a_trap(self) -> bool:
        """True if nothing passes the last instruction: compilers put no exit behind a trap."""
        last = self._steps[-1].instruction
        return last.opcode in ("trap", "brkpt") and last.predicate is None

    def _no_exit(self) -> EmulatorError:
        return located("control flow falls off the end of the entry", self._plan.entry, self._steps[-1].instruction)

    def _is_boundary(self, start: int, joined: bool) -> bool:
        """True if a block starts a segment of its own. joined: all ways to it are in this segment."""
        block = self._flow.blocks[start]
        parts = self._steps[start].parts or (start > 0 and self._steps[start - 1].parts)
        if parts or self._steps[start].blocks or start in self._plan.nesting.stops or self._emitted > SEGMENT_LIMIT:
            return True
        if any(predecessor >= start for predecessor in block.predecessors):
            return True
        return not joined and len(block.predecessors) > 1

    def _block(self, block: Block) -> None:
        """Emits a block's instructions, its last one only if that is neither a branch nor an exit."""
        code, length = self.code, block.end - block.start
        code.pc = block.start
        code.address_rows.begin()
        waits = self._steps[block.start].blocks  # true for a first instruction that may run twice and counts once
        if not waits:
            code.emit("count", x=length)
        self._emitted += length
        chains = {} if self._before else chains_of(self._plan, block)
        index = block.start
        while index < block.end:
            step, chain = self._steps[index], chains.get(index)
            if chain is not None:
                self._chained(chain)
            elif step.target is None and not step.ends:
                self._passed(index)
            if waits and index == block.start:
                code.emit("count", x=length)
            index = index + 1 if chain is None else chain.end

    def _passed(self, index: int) -> None:
        """Emits an instruction that is neither a branch nor an exit."""
        step = self._steps[index]
        self.code.pc = index
        self._instruction(index, step)
        self.code.address_rows.pass_by(step, index not in self.python_rows.without_kernel)

    def _chained(self, chain: Chain) -> None:
        """Emits a chain, and behind it the operations of its instructions."""
        code, instructions = self.code, self._plan.entry.instructions
        for index in chain.ahead:
            self._passed(index)
        for index in chain.sums:
            code.address_rows.note(self._steps[index], in_chain=True)
        rows = {code.address_rows.row_name(instructions[index].operands[1].base) for index in chain.loads}
        values = sorted(chain.loads + chain.arithmetic)
        code.pc = values[0]
        start = code.emit("count")  # of nothing
        places = {}
        for index in sorted(chain.sums + values):
            places[index] = len(code) - start
            if index in chain.sums:
                code.pc = index
                self._instruction(index, self._steps[index])
            else:
                self._passed(index)
        # The kernel finds rows as they are at the chain's start, and loads by their descriptions.
        is_overwritten = any(instructions[index].operands[0].name in rows for index in values)
        if not is_overwritten and self.python_rows.without_kernel.isdisjoint(chain.loads):
            code.become(start, "chain", described(code, chain, instructions, places, len(code) - start))

    def _terminator(self, block: Block, stop: int | None) -> tuple[int, bool] | None:
        """Emits the block's last instruction if it is a branch or an exit.

        Returns (the next block, whether the lanes of a nested branch meet there), None if the segment ends.
        """
        code, last = self.code, self._steps[block.end - 1]
        code.pc = block.end - 1
        guard = last.instruction.predicate
        if last.ends or last.target is not None:
            self._watch(None)
        if last.ends:
            return self._exit(block, guard, stop)
        label, following = self._flow.target_of(last), self._flow.start_of(block.end)
        if label is None:
            return following, False
        target = self._flow.start_of(label)
        if guard is None or target == following:
            return target, False
        if self._plan.nesting.inlinable(block):
            self._nested(block, guard, target, following)
            return block.join, True
        if self._is_uniform(guard):
            skip = code.emit("unless", a=self._slot(guard), b=not guard.negated)
            self._leave(target)
            code.patch(skip)
            return following, False
        if block.join != EXIT:
            self._exits.add(block.join)
        code.emit("split", self._slot(guard), target, following, guard.negated, x=block.join)
        self._leave(target)
        self._leave(following)
        return None

    def _exit(self, block: Block, guard: Predicate | None, stop: int | None) -> tuple[int, bool] | None:
        """Emits ret or exit for the lanes in which the guard holds. Returns what `_terminator` does."""
        code = self.code
        if guard is not None and self._plan.nesting.exits(block) and not self._is_uniform(guard):
            outer = code.temporary(1, row=True).offset
            skip = code.emit("narrow", outer, self._slot(guard), not guard.negated)
            self._chain(self._flow.start_of(block.end), EXIT)
            code.emit("restore", a=outer)
            code.patch(skip)
            guard = None
        if guard is None and stop == EXIT:
            return EXIT, True
        if guard is None:
            code.emit("leave")
            return None
        following = self._flow.start_of(block.end)
        if self._is_uniform(guard):
            skip = code.emit("unless", a=self._slot(guard), b=not guard.negated)
            code.emit("leave")
            code.patch(skip)
            return following, False
        if following == EXIT:
            raise self._no_exit()
        code.emit("leave_some", a=self._slot(guard), b=following, c=guard.negated)
        self._leave(following)
        return None

    def _leave(self, target: int) -> None:
        """Emits the end of the segment: the group goes on at `target`."""
        if target == EXIT:
            raise self._no_exit()
        self._exits.add(target)
        self._jumps.append((self.code.emit("go", b=target), target))

    def _watch(self, guard: Predicate | None) -> None:
        for name in self._before:
            if guard is None:
                self.code.emit(name, a=-1)
            else:
                self.code.emit(name, a=self._slot(guard), b=guard.negated, c=self._is_uniform(guard))

    def _slot(self, guard: Predicate) -> int:
        return self.slots[guard.register.name].offset

    def _is_uniform(self, guard: Predicate) -> bool:
        return self._flow.kinds[guard.register.name] == "uniform"

    def _nested(self, block: Block, guard: Predicate, target: int, following: int) -> None:
        """Emits both sides of a branch, up to where they meet."""
        code, slot, uniform = self.code, self._slot(guard), self._is_uniform(guard)
        if block.join not in (target, following):  # the first side may write the guard
            kept = code.temporary(1, row=not uniform).offset
            code.emit("mov_pred_s" if uniform else "mov_pred", kept, slot)
            slot = kept
        for start, holds in ((following, guard.negated), (target, not guard.negated)):
            if start == block.join:
                continue
            code.pc = block.end - 1
            if uniform:
                skip = code.emit("unless", a=slot, b=holds)
                self._chain(start, block.join)
            else:
                outer = code.temporary(1, row=True).offset
                skip = code.emit("narrow", outer, slot, not holds)
                self._chain(start, block.join)
                code.emit("restore", a=outer)
            code.patch(skip)

    def _instruction(self, index: int, step: Step) -> None:
        """Emits an instruction that is neither a branch nor an exit."""
        code, guard = self.code, step.instruction.predicate
        if index in self._plan.first_uses:
            loads = sorted(self._plan.first_uses[index])
            words = np.array([len(loads), *loads, *[-1] * (1 - len(loads) % 2)], np.int32)
            code.emit_described("settle", words.tobytes())
        self._watch(guard)
        if guard is None:
            self._operations(index, step)
        elif self._is_uniform(guard):
            skip = code.emit("unless", a=self._slot(guard), b=not guard.negated)
            self._operations(index, step)
            code.patch(skip)
        else:
            outer = code.temporary(1, row=True).offset
            skip = code.emit("narrow", outer, self._slot(guard), guard.negated)
            code.guarded = True
            self._operations(index, step)
            code.guarded = False
            code.emit("restore", a=outer)
            code.patch(skip)

    def _operations(self, index: int, step: Step) -> None:
        """Emits an instruction's kernels, or a call of Python."""
        code, (row, match) = self.code, self._plan.rows[index]
        code.kind, code.waits = step.kind(self._flow.kind_of), step.blocks
        count = len(code)
        if row.emit is not None:
            self.python_rows.add(index)
        try:
            if row.kernels is None:
                raise Unsupported
            with refusals(self._plan.entry, step.instruction):
                row.kernels(code, step.instruction, match)
            if row.emit is not None and index in code.clocks:
                raise Unsupported
        except Unsupported:
            if row.emit is None:
                raise located("operands not understood", self._plan.entry, step.instruction) from None
            code.clocks.pop(index, None)
            code.drop(count)
            code.emit("python")
            self.python_rows.without_kernel.add(index)
