"""Entry -> Program: segments of straight-line PTX become Python functions.

A segment starts where a program can be entered or resumed (the start, branch targets, instructions that may wait) and
runs to the next such place; short forward branches are made part of it as `if` statements. A segment's function takes
the group of lanes that runs it and returns the index of the next instruction, ~index if the group has to wait at that
instruction, or DONE if the group has parted or ended. Registers live in a list between segments and in local
variables within one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from emulator.arithmetic import lanes
from emulator.compiler import carry
from emulator.compiler.flow import Flow, Step, written_operands
from emulator.compiler.linking import link
from emulator.compiler.namespace import namespace
from emulator.compiler.nesting import Nesting
from emulator.compiler.opcodes.table import lookup
from emulator.compiler.operands import misplaced_destination, special_is_uniform
from emulator.compiler.segments import Segment
from emulator.compiler.tmem_uses import first_uses
from emulator.errors import EmulatorError
from emulator.hardware.program import Program
from emulator.hardware.variables import module_memory
from emulator.ptx.ir import Entry, Instruction, Symbol, located

POISON = 0xFFFFFFFFFFFFFFFF  # what registers hold before they are written

_numbers = itertools.count(1)


def translate(entry: Entry) -> Program:
    """Raises EmulatorError, naming instruction and line, for whatever is not modelled."""
    return Translator(entry).program


class Translator:
    def __init__(self, entry: Entry):
        self.entry = entry = link(entry)
        self.rows = []
        for instruction in entry.instructions:
            found = lookup(instruction.opcode)
            if found is None:
                raise located(f"instruction {instruction.opcode} is not modelled", entry, instruction)
            refusal = found[0].refusal(instruction) or misplaced_destination(instruction, found[0].writes)
            if refusal is not None:
                raise located(refusal, entry, instruction)
            self.rows.append(found)
        if not entry.instructions:
            raise EmulatorError("the entry has no instructions", kernel=entry.name)
        self.entry = entry = carry.with_carry_flag(entry, [row for row, _ in self.rows])
        self.spinning = {i for i, instruction in enumerate(entry.instructions) if self._spins(i, instruction)}
        self.steps = [self._step(i, instruction) for i, instruction in enumerate(entry.instructions)]
        self.flow = Flow(entry, self.steps)
        self.numbers = {name: i for i, name in enumerate(entry.registers)}
        self.layout: dict[str, tuple[str, int]] = {}
        self._lay_out()
        self.nesting = Nesting(self.flow)
        self.first_uses = first_uses(self.flow)
        self.program = self._build()

    def _step(self, index: int, instruction: Instruction) -> Step:
        row, _ = self.rows[index]
        defines, uses = written_operands(instruction, row.writes)
        target = None
        if row.flow == "branch":
            label = instruction.operands[0] if len(instruction.operands) == 1 else None
            if not isinstance(label, Symbol) or label.name not in self.entry.labels:
                raise located(f"branch target {label} is not a label", self.entry, instruction)
            target = label.name

        def kind(kind_of: Callable[[object], str]) -> str:
            return row.kind(instruction, row.writes, lambda x: kind_of(x) if special_is_uniform(x) else "lanes")

        waits = row.flow == "wait" or index in self.spinning
        ends = row.flow == "exit"
        if target is not None and self._is_exit(self._goes_to(self.entry.labels[target], False)):
            target, ends = None, True
        return Step(instruction, defines, uses, target, ends, waits, kind)

    def _is_exit(self, index: int) -> bool:
        """Whether threads that come here exit, so that a branch to this place is one, too: nobody waits for them."""
        instructions = self.entry.instructions
        return (
            index < len(instructions) and self.rows[index][0].flow == "exit" and instructions[index].predicate is None
        )

    def _spins(self, index: int, instruction: Instruction) -> bool:
        """Whether a test of an mbarrier does nothing but try again until it succeeds."""
        if (
            not instruction.opcode.startswith(("mbarrier.try_wait", "mbarrier.test_wait"))
            or instruction.predicate is not None
        ):
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
            elif variable.space in ("local", "param"):
                offset = -(-self.local_bytes // variable.align) * variable.align
                self.layout[variable.name] = ("local", offset)
                self.local_bytes = offset + variable.size
            elif not variable.extern:
                self.layout[variable.name] = ("global", module_memory(self.entry.scope).addresses[variable.name])
        align = max((variable.align for variable in dynamic), default=16)
        self.dynamic_offset = -(-self.static_shared // align) * align
        for variable in dynamic:
            self.layout[variable.name] = ("shared", self.dynamic_offset)

    def _build(self) -> Program:
        count = len(self.steps)
        pending, texts, line_map, seen = [0], [], [], {0}
        while pending:
            start = pending.pop()
            segment = Segment(self, start)
            for text, pc in segment.lines():
                texts.append(text)
                line_map.append(pc)
            for exit_ in sorted(segment.exits - seen):
                seen.add(exit_)
                pending.append(exit_)
        source = "\n".join(texts) + "\n"
        filename = f"<ptx {next(_numbers)} {self.entry.name}>"
        names = namespace()
        exec(compile(source, filename, "exec"), names)
        segments = [names.get(f"s{i}") for i in range(count)]
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
    if parts[:2] == ["cp", "reduce"]:
        return "global" in parts
    return parts[0] == "ld" and not local and bool({"volatile", "acquire", "relaxed", "mmio"} & set(parts))
