"""The Python function of one segment: consecutive blocks, short branches nested as `if` statements, exits."""

from __future__ import annotations

from emulator.compiler.code import Code
from emulator.compiler.flow import EXIT, Block, Step
from emulator.compiler.plan import Plan
from emulator.errors import EmulatorError
from emulator.ptx.ir import Predicate, located

SEGMENT_LIMIT = 3000  # instructions


class Segment:
    """The function of the segment that starts at an instruction."""

    def __init__(self, plan: Plan, start: int) -> None:
        """Raises EmulatorError, with instruction and line, for whatever is not modelled."""
        self.plan, self.flow, self.steps = plan, plan.flow, plan.flow.steps
        self.start = start
        self.exits: set[int] = set()  # instructions at which the group may go on after this segment
        self.emitted = 0  # instructions
        self.code = Code(plan.flow, plan.numbers, plan.layout.symbols)
        self._chain(start, None)

    def lines(self) -> list[tuple[str, int]]:
        """(text, index of the instruction) of each line of the function."""
        head = [(f"def s{self.start}(g):", self.start)]
        loads = sorted(self.plan.numbers[name] for name in self.code.preload)
        head.append(("    m = g.bits; S = g.registers", self.start))
        if loads:
            head.append(("    " + "; ".join(f"r{number} = S[{number}]" for number in loads), self.start))
        return head + self.code.lines

    def _chain(self, start: int, stop: int | None) -> None:
        """Emits blocks from `start` to `stop`, the end of an inlined part; to the end of the segment if it is None."""
        current, joined = start, False
        while current != stop:
            top = stop is None
            if current == EXIT:
                raise self._no_exit()
            if top and current != self.start and self._is_boundary(current, joined):
                self._leave(current)
                return
            if top and current == self.start and self.emitted:
                self._leave(current)
                return
            block = self.flow.blocks[current]
            self.code.pc = block.start
            counted = f"g.issued += {block.end - block.start}"
            waits = self.steps[block.start].blocks  # executed again when the wait is over, and to be counted once
            if not waits:
                self.code.line(counted)
            self.emitted += block.end - block.start
            for index in range(block.start, block.end):
                step = self.steps[index]
                self.code.pc = index
                if step.target is None and not step.ends:
                    self._instruction(index, step)
                if waits and index == block.start:
                    self.code.line(counted)
            following = self._terminator(block)
            if following is None:
                return
            current, joined = following

    def _no_exit(self) -> EmulatorError:
        return located("control flow falls off the end of the entry", self.plan.entry, self.steps[-1].instruction)

    def _is_boundary(self, start: int, joined: bool) -> bool:
        """Whether a block starts a segment of its own. joined: all ways to it are in this segment."""
        block = self.flow.blocks[start]
        if self.steps[start].blocks or start in self.plan.nesting.stops or self.emitted > SEGMENT_LIMIT:
            return True
        if any(predecessor >= start for predecessor in block.predecessors):
            return True
        return not joined and len(block.predecessors) > 1

    def _terminator(self, block: Block) -> tuple[int, bool] | None:
        """Emits the block's last instruction if it is a branch or an exit.

        Returns (the next block, whether the lanes of a nested branch meet there), None if the segment ends.
        """
        last, index = self.steps[block.end - 1], block.end - 1
        guard = last.instruction.predicate
        if last.ends:
            return self._exit(block, guard)
        label, following = self.flow.target_of(last), self.flow.start_of(block.end)
        if label is None:
            return following, False
        target = self.flow.start_of(label)
        if guard is None or target == following:
            return target, False
        if self.plan.nesting.inlinable(block):
            self._branch_inline(block, guard, target, following)
            return block.join, True
        self.code.pc = index
        if self.flow.kinds[guard.register.name] == "uniform":
            condition = self.code.name(guard.register)
            with self.code.indented(f"if {'not ' if guard.negated else ''}{condition}:"):
                self._leave(target)
            return following, False
        bits = self._guard_bits(guard)
        self._save(self._live(target) | self._live(following))
        self.exits |= {target, following} - {EXIT}
        if block.join != EXIT:
            self.exits.add(block.join)
        self.code.line(f"return g.split(m & {bits}, {target}, {following}, {block.join})")
        return None

    def _exit(self, block: Block, guard: Predicate | None) -> tuple[int, bool] | None:
        """Emits ret or exit, with a guard for the lanes in which it holds. Returns what `_terminator` does."""
        if guard is None:
            self.code.line("return g.leave(m)")
            return None
        if self.flow.kinds[guard.register.name] == "uniform":
            with self.code.indented(f"if {'not ' if guard.negated else ''}{self.code.name(guard.register)}:"):
                self.code.line("return g.leave(m)")
            return self.flow.start_of(block.end), False
        bits = self._guard_bits(guard)
        following = self.flow.start_of(block.end)
        self._save(self._live(following))
        self.exits.add(following)
        self.code.line(f"return g.leave_some(m & {bits}, {following})")
        return None

    def _guard_bits(self, guard: Predicate) -> str:
        bits = self.code.predicate_bits(guard.register)
        return f"({bits} ^ FULL)" if guard.negated else bits

    def _live(self, start: int) -> set[str]:
        return self.flow.blocks[start].live_in if start != EXIT else set()

    def _save(self, live: set[str]) -> None:
        """Emits stores of the live registers that the segment has written."""
        stored = sorted(self.plan.numbers[name] for name in self.code.defined & live)
        if stored:
            self.code.line("; ".join(f"S[{number}] = r{number}" for number in stored))

    def _leave(self, target: int) -> None:
        """Emits the end of the segment: the group goes on at `target`."""
        if target == EXIT:
            raise self._no_exit()
        self._save(self._live(target))
        self.exits.add(target)
        self.code.line(f"return {target}")

    def _branch_inline(self, block: Block, guard: Predicate, target: int, following: int) -> None:
        """Emits both sides of a branch, up to where they meet, as `if` statements."""
        code, flow = self.code, self.flow
        live = self._live(block.join)
        for side in (target, following):
            for start in flow.region(side, block.join):
                for step in self.steps[start : flow.blocks[start].end]:
                    for register in step.defines:
                        if register.name in live:
                            code.name(register)
        code.pc = block.end - 1
        before = set(code.defined)
        after = set(before)
        for start, header, mask in self._sides(block, guard, target, following):
            code.defined = set(before)
            with code.indented(header, mask):
                self._chain(start, block.join)
            after |= code.defined
        code.defined = after

    def _sides(self, block: Block, guard: Predicate, target: int, following: int) -> list[tuple[int, str, str]]:
        """(start, `if` statement, mask of active lanes) of each side of a nested branch that has instructions."""
        code, both = self.code, block.join not in (following, target)
        if self.flow.kinds[guard.register.name] == "uniform":
            condition = code.name(guard.register)
            taken, other = (f"not {condition}", condition) if guard.negated else (condition, f"not {condition}")
            if both:  # the first side may write the guard
                holds = code.temporary()
                code.line(f"{holds} = {taken}")
                taken, other = holds, f"not {holds}"
            sides = [(following, f"if {other}:", code.mask), (target, f"if {taken}:", code.mask)]
        else:
            bits = self._guard_bits(guard)
            if both:
                first, second = code.new_mask(f"~{bits}"), code.new_mask(bits)
            else:
                first = second = code.new_mask(bits if following == block.join else f"({bits} ^ FULL)")
            sides = [(following, f"if {first}:", first), (target, f"if {second}:", second)]
        return [side for side in sides if side[0] != block.join]

    def _instruction(self, index: int, step: Step) -> None:
        """Emits an instruction that is neither a branch nor an exit."""
        code, instruction = self.code, step.instruction
        row, match = self.plan.rows[index]
        code.kind = step.kind(self.flow.kind_of)
        code.writes, code.waits = row.writes, step.blocks
        guard = instruction.predicate
        loads = self.plan.first_uses.get(index)
        if loads is not None:
            code.line(f"if g.warp.tensor.queue: tmem.settle(g, {tuple(sorted(loads))})")
        try:
            if guard is None:
                row.emit(code, instruction, match)
                return
            for register in step.defines:
                code.name(register)
            if self.flow.kinds[guard.register.name] == "uniform":
                header, mask = f"if {'not ' if guard.negated else ''}{code.name(guard.register)}:", code.mask
            else:
                mask = code.new_mask(self._guard_bits(guard))
                header = f"if {mask}:"
            with code.indented(header, mask):
                row.emit(code, instruction, match)
        except EmulatorError as error:
            raise located(error.reason, self.plan.entry, instruction) from None
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise located(f"operands not understood: {error}", self.plan.entry, instruction) from error
