"""Entry -> Program: segments of straight-line PTX become Python functions.

A segment starts where a program can be entered or resumed (the start, branch targets, instructions that may wait) and runs to the
next such place; short forward branches are made part of it as `if` statements. A segment's function takes the group of lanes
that runs it and returns the index of the next instruction, ~index if the group has to wait at that instruction, or DONE if the
group has parted or ended. Registers live in a list between segments and in local variables within one.
"""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from emulator import access, copies, exchange, floats, lanes, synchronization, tensorops
from emulator.code import Code, special_is_uniform
from emulator.errors import EmulatorError, Fault
from emulator.flow import EXIT, Block, Flow, Step, written_operands
from emulator.opcodes import lookup
from emulator.ptx import Entry, Instruction, Symbol

DONE = -(1 << 30)
POISON = 0xFFFFFFFFFFFFFFFF  # what registers hold before they are written
_SEGMENT_LIMIT = 3000  # instructions
_INLINE_LIMIT = 400

_numbers = itertools.count(1)


@dataclass
class Program:
    """segments: by the index of their first instruction. inter_cta: CTAs may communicate through global memory.

    static_shared, local_bytes: bytes per CTA and per thread that the entry's variables take.
    """

    entry: Entry
    segments: list[Callable | None]
    registers: list
    static_shared: int
    dynamic_shared_offset: int
    local_bytes: int
    inter_cta: bool
    filename: str
    source: str
    line_map: list[int]

    def instruction_at(self, traceback: types.TracebackType | None) -> int | None:
        """The index of the instruction that a traceback of generated code passes through."""
        found = None
        while traceback is not None:
            if traceback.tb_frame.f_code.co_filename == self.filename:
                found = self.line_map[traceback.tb_lineno - 1]
            traceback = traceback.tb_next
        return found


def _namespace() -> dict:
    names: dict = {"np": np, "where": np.where, "Fault": Fault, "DONE": DONE, "tensorops": tensorops}
    for module in (lanes, floats, access, exchange, synchronization, copies):
        names.update({name: value for name, value in vars(module).items() if not name.startswith("_")})
    names["ONE"] = np.uint32(1)
    return names


def translate(entry: Entry) -> Program:
    """Raises EmulatorError, naming instruction and line, for whatever is not modelled."""
    return _Translator(entry).program


def located(error: str, entry: Entry, instruction: Instruction) -> EmulatorError:
    return EmulatorError(
        error, kernel=entry.name, ptx_line=instruction.line, ptx_text=instruction.text, source=instruction.source
    )


class _Translator:
    def __init__(self, entry: Entry):
        self.entry = entry
        self.rows = []
        for instruction in entry.instructions:
            found = lookup(instruction.opcode)
            if found is None:
                raise located(f"instruction {instruction.opcode} is not modelled", entry, instruction)
            self.rows.append(found)
        if not entry.instructions:
            raise EmulatorError("the entry has no instructions", kernel=entry.name)
        self.spinning = {i for i, instruction in enumerate(entry.instructions) if self._spins(i, instruction)}
        self.steps = [self._step(i, instruction) for i, instruction in enumerate(entry.instructions)]
        self.flow = Flow(entry, self.steps)
        self.numbers = {name: i for i, name in enumerate(entry.registers)}
        self.layout: dict[str, tuple[str, int]] = {}
        self._lay_out()
        self._inlinable: dict[int, bool] = {}
        self._find_stops()
        self.program = self._build()

    # Instructions

    def _step(self, index: int, instruction: Instruction) -> Step:
        row, _ = self.rows[index]
        defines, uses = written_operands(instruction, row.writes)
        target = None
        if row.flow == "branch":
            (label,) = instruction.operands
            if not isinstance(label, Symbol) or label.name not in self.entry.labels:
                raise located(f"branch target {label} is not a label", self.entry, instruction)
            target = label.name

        def kind(kind_of: Callable[[object], str]) -> str:
            return row.kind(instruction, row.writes, lambda x: kind_of(x) if special_is_uniform(x) else "lanes")

        waits = row.flow == "wait" or index in self.spinning
        return Step(instruction, defines, uses, target, row.flow == "exit", waits, kind)

    def _spins(self, index: int, instruction: Instruction) -> bool:
        """Whether a test of an mbarrier does nothing but try again until it succeeds."""
        if not instruction.opcode.startswith(("mbarrier.try_wait", "mbarrier.test_wait")) or instruction.predicate is not None:
            return False
        following = self.entry.instructions[index + 1 : index + 2]
        if not following or not following[0].opcode.startswith("bra") or following[0].predicate is None:
            return False
        guard = following[0].predicate
        if guard.register != instruction.operands[0]:
            return False
        return self._goes_to(index + 1 if guard.negated else index + 2, guard.negated) == index

    def _goes_to(self, index: int, taken: bool) -> int:
        """Where a chain of unconditional branches ends; `taken`: the first one is known to be taken."""
        for _ in range(8):
            if index >= len(self.entry.instructions):
                return index
            instruction = self.entry.instructions[index]
            if not instruction.opcode.startswith("bra") or (instruction.predicate is not None and not taken):
                return index
            index, taken = self.entry.labels.get(instruction.operands[0].name, index), False
        return index

    def _lay_out(self) -> None:
        for name, offset in self.entry.param_offsets().items():
            if name:
                self.layout[name] = ("param", offset)
        self.static_shared = self.local_bytes = 0
        dynamic = []
        for variable in self.entry.variables.values():
            if variable.space == "shared" and variable.size == 0:
                dynamic.append(variable)
            elif variable.space == "shared":
                offset = -(-self.static_shared // variable.align) * variable.align
                self.layout[variable.name] = ("shared", offset)
                self.static_shared = offset + variable.size
            elif variable.space == "local":
                offset = -(-self.local_bytes // variable.align) * variable.align
                self.layout[variable.name] = ("local", offset)
                self.local_bytes = offset + variable.size
        align = max((variable.align for variable in dynamic), default=16)
        self.dynamic_offset = -(-self.static_shared // align) * align
        for variable in dynamic:
            self.layout[variable.name] = ("shared", self.dynamic_offset)

    # Control flow

    def _find_stops(self) -> None:
        """Where lanes that have parted meet: segments end there. A branch around such a place can't be made part of a segment."""
        self.stops: set[int] = set()
        while True:
            self._inlinable.clear()
            stops = {
                block.join
                for block in self.flow.blocks.values()
                if block.start in self.flow.divergent and not self.inlinable(block)
            }
            if stops <= self.stops:
                return
            self.stops |= stops

    def inlinable(self, block: Block) -> bool:
        known = self._inlinable.get(block.start)
        if known is None:
            self._inlinable[block.start] = False  # a loop back to this block
            last = self.steps[block.end - 1]
            known = (
                last.target is not None
                and last.instruction.predicate is not None
                and block.join != EXIT
                and sum(max(self._side(successor, block.join), 0) for successor in block.successors) <= _INLINE_LIMIT
                and all(self._side(successor, block.join) >= 0 for successor in block.successors)
            )
            self._inlinable[block.start] = known
        return known

    def _side(self, start: int, join: int) -> int:
        """Instructions from `start` to `join` if they can be nested in an `if` statement, else -1."""
        count, current, seen = 0, start, set()
        while current != join:
            if current == EXIT or current in seen or current in self.stops:
                return -1
            seen.add(current)
            block = self.flow.blocks[current]
            steps = self.steps[block.start : block.end]
            if any(step.blocks or step.ends for step in steps):
                return -1
            count += len(steps)
            if len(set(block.successors)) == 1:
                current = block.successors[0]
            elif self.inlinable(block):
                count += sum(self._side(successor, block.join) for successor in block.successors)
                current = block.join
            else:
                return -1
        return count

    # Emission

    def _build(self) -> Program:
        count = len(self.steps)
        pending, texts, line_map, seen = [0], [], [], {0}
        while pending:
            start = pending.pop()
            segment = _Segment(self, start)
            for text, pc in segment.lines():
                texts.append(text)
                line_map.append(pc)
            for exit_ in sorted(segment.exits - seen):
                seen.add(exit_)
                pending.append(exit_)
        source = "\n".join(texts) + "\n"
        filename = f"<ptx {next(_numbers)} {self.entry.name}>"
        namespace = _namespace()
        exec(compile(source, filename, "exec"), namespace)
        segments = [namespace.get(f"s{i}") for i in range(count)]
        registers = [self._initial(name, register.width) for name, register in self.entry.registers.items()]
        inter_cta = any(_communicates(instruction) for instruction in self.entry.instructions)
        return Program(
            self.entry, segments, registers, self.static_shared, self.dynamic_offset, self.local_bytes, inter_cta, filename, source, line_map
        )  # fmt: skip

    def _initial(self, name: str, width: int) -> object:
        kind = self.flow.kinds[name]
        if width == 1:
            return {"uniform": False, "bits": 0, "lanes": lanes.lanes(0)}[kind]
        value = POISON & (1 << width) - 1
        return value if kind == "uniform" else lanes.row_of(value, width)


def _communicates(instruction: Instruction) -> bool:
    """Atomics on global memory, and loads from it that wait for other CTAs' stores."""
    parts = instruction.opcode.split(".")
    local = any(part.startswith("shared") for part in parts)
    if parts[0] in ("atom", "red"):
        return not local
    return parts[0] == "ld" and not local and bool({"volatile", "acquire", "relaxed", "mmio"} & set(parts))


class _Segment:
    """The function of one segment."""

    def __init__(self, translator: _Translator, start: int):
        self.translator, self.flow, self.steps = translator, translator.flow, translator.steps
        self.start = start
        self.exits: set[int] = set()
        self.emitted = 0
        self.code = Code(self.flow, translator.numbers, translator.layout)
        self._chain(start, None)

    def lines(self) -> list[tuple[str, int]]:
        head = [(f"def s{self.start}(g):", self.start)]
        loads = sorted(self.translator.numbers[name] for name in self.code.preload)
        head.append(("    m = g.bits; S = g.registers", self.start))
        if loads:
            head.append(("    " + "; ".join(f"r{number} = S[{number}]" for number in loads), self.start))
        return head + self.code.lines

    def _chain(self, start: int, stop: int | None) -> None:
        """Emit blocks from `start` until `stop` (of an inlined part), or until the segment ends."""
        current, joined = start, False
        while current != stop:
            top = stop is None
            if current == EXIT:
                raise located("control flow falls off the end of the entry", self.translator.entry, self.steps[-1].instruction)
            if top and current != self.start and self._is_boundary(current, joined):
                self._leave(current)
                return
            if top and current == self.start and self.emitted:
                self._leave(current)
                return
            block = self.flow.blocks[current]
            self.code.pc = block.start
            self.code.line(f"g.issued += {block.end - block.start}")
            self.emitted += block.end - block.start
            for index in range(block.start, block.end):
                step = self.steps[index]
                self.code.pc = index
                if step.target is None and not step.ends:
                    self._instruction(index, step)
            following = self._terminator(block)
            if following is None:
                return
            current, joined = following

    def _is_boundary(self, start: int, joined: bool) -> bool:
        block = self.flow.blocks[start]
        if self.steps[start].blocks or start in self.translator.stops or self.emitted > _SEGMENT_LIMIT:
            return True
        if any(predecessor >= start for predecessor in block.predecessors):
            return True
        return not joined and len(block.predecessors) > 1

    def _terminator(self, block: Block) -> tuple[int, bool] | None:
        """Emit the block's last instruction if it is a branch or an exit. Returns where to go on, and whether paths join there."""
        last, index = self.steps[block.end - 1], block.end - 1
        guard = last.instruction.predicate
        if last.ends:
            return self._exit(block, guard)
        if last.target is None:
            return self.flow.start_of(block.end), False
        target, following = self.flow.target(last), self.flow.start_of(block.end)
        target = self.flow.start_of(target)
        if guard is None or target == following:
            return target, False
        if self.translator.inlinable(block):
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

    def _exit(self, block: Block, guard) -> tuple[int, bool] | None:
        if guard is None:
            self.code.line("return g.leave(m)")
            return None
        bits = f"(FULL if {self.code.name(guard.register)} else 0)" if self.flow.kinds[guard.register.name] == "uniform" else None
        if bits is not None and guard.negated:
            bits = f"({bits} ^ FULL)"
        bits = bits or self._guard_bits(guard)
        following = self.flow.start_of(block.end)
        self._save(self._live(following))
        self.exits.add(following)
        self.code.line(f"return g.leave_some(m & {bits}, {following})")
        return None

    def _guard_bits(self, guard) -> str:
        bits = self.code.predicate_bits(guard.register)
        return f"({bits} ^ FULL)" if guard.negated else bits

    def _live(self, start: int) -> set[str]:
        return self.flow.blocks[start].live_in if start != EXIT else set()

    def _save(self, live: set[str]) -> None:
        stored = sorted(self.translator.numbers[name] for name in self.code.defined & live)
        if stored:
            self.code.line("; ".join(f"S[{number}] = r{number}" for number in stored))

    def _leave(self, target: int) -> None:
        if target == EXIT:
            raise located("control flow falls off the end of the entry", self.translator.entry, self.steps[-1].instruction)
        self._save(self._live(target))
        self.exits.add(target)
        self.code.line(f"return {target}")

    def _branch_inline(self, block: Block, guard, target: int, following: int) -> None:
        code, flow = self.code, self.flow
        live = self._live(block.join)
        for side in (target, following):
            for start in flow.region(side, block.join):
                for step in self.steps[start : flow.blocks[start].end]:
                    for register in step.defines:
                        if register.name in live:
                            code.name(register)
        code.pc = block.end - 1
        if flow.kinds[guard.register.name] == "uniform":
            condition = code.name(guard.register)
            taken, other = (f"not {condition}", condition) if guard.negated else (condition, f"not {condition}")
            headers = [(following, f"if {other}:", code.mask), (target, f"if {taken}:", code.mask)]
        else:
            bits = self._guard_bits(guard)
            if following != block.join and target != block.join:
                first = code.new_mask(f"~{bits}")
                second = code.new_mask(bits)
            else:
                first = second = code.new_mask(bits if following == block.join else f"({bits} ^ FULL)")
            headers = [(following, f"if {first}:", first), (target, f"if {second}:", second)]
        if flow.kinds[guard.register.name] == "uniform" and block.join not in (following, target):
            condition_copy = code.temporary()
            code.line(f"{condition_copy} = {taken}")
            headers = [(following, f"if not {condition_copy}:", code.mask), (target, f"if {condition_copy}:", code.mask)]
        before = set(code.defined)
        after = set(before)
        for start, header, mask in headers:
            if start == block.join:
                continue
            code.defined = set(before)
            with code.indented(header, mask):
                self._chain(start, block.join)
            after |= code.defined
        code.defined = after

    def _instruction(self, index: int, step: Step) -> None:
        code, instruction = self.code, step.instruction
        row, match = self.translator.rows[index]
        code.kind = step.kind(self.flow.kind_of)
        code.writes, code.waits = row.writes, step.blocks
        guard = instruction.predicate
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
            raise located(error.reason, self.translator.entry, instruction) from None
        except (ValueError, KeyError, AttributeError) as error:
            raise located(f"operands not understood: {error}", self.translator.entry, instruction) from error

