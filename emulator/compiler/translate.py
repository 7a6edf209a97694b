"""Entry -> Program: the segments of the entry, compiled.

A segment starts where a program can be entered or resumed (the start, branch targets, instructions that may wait) and
runs to the next such place; short forward branches are made part of it as `if` statements. A segment's function takes
the active group that runs it and returns the index of the next instruction, ~index if the group has to wait at that
instruction, or DONE if the group has parted or ended. Registers are in a list between segments and in local variables
within one.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from emulator.arithmetic import lanes
from emulator.compiler.namespace import namespace
from emulator.compiler.plan import Plan, plan
from emulator.compiler.segments import Segment
from emulator.hardware.program import Program
from emulator.ptx.ir import Entry, Instruction

if TYPE_CHECKING:
    from collections.abc import Callable

    from emulator.hardware.warp import ActiveGroup

POISON = 0xFFFFFFFFFFFFFFFF  # what registers hold before they are written

_file_numbers = itertools.count(1)


def translate(entry: Entry) -> Program:
    """Raises EmulatorError, with instruction and line, for whatever is not modelled."""
    planned = plan(entry)
    source, line_map = _text(planned)
    filename = f"<ptx {next(_file_numbers)} {planned.entry.name}>"
    return Program(
        entry=planned.entry,
        segments=_compiled(source, filename, len(planned.rows)),
        registers=[_initial(planned, name, register.width) for name, register in planned.entry.registers.items()],
        static_shared=planned.layout.static_shared,
        dynamic_shared_offset=planned.layout.dynamic_offset,
        local_bytes=planned.layout.local_bytes,
        inter_cta=any(_communicates(instruction) for instruction in planned.entry.instructions),
        filename=filename,
        source=source,
        line_map=line_map,
    )


def _text(planned: Plan) -> tuple[str, list[int]]:
    """(functions of all segments that the entry reaches, index of the instruction for each line)."""
    pending, lines, seen = [0], [], {0}
    while pending:
        segment = Segment(planned, pending.pop())
        lines += segment.lines()
        for exit_ in sorted(segment.exits - seen):
            seen.add(exit_)
            pending.append(exit_)
    return "\n".join(text for text, _ in lines) + "\n", [pc for _, pc in lines]


def _compiled(source: str, filename: str, count: int) -> list[Callable[[ActiveGroup], int] | None]:
    """Segments by the index of their first instruction, None for instructions that start none."""
    names: dict[str, Any] = namespace()
    exec(compile(source, filename, "exec"), names)
    return [names.get(f"s{index}") for index in range(count)]


def _initial(planned: Plan, name: str, width: int) -> object:
    """The value of a register before it is written."""
    kind = planned.flow.kinds[name]
    if width == 1:
        return {"uniform": False, "bits": 0, "lanes": lanes.lanes(0)}[kind]
    value = POISON & (1 << width) - 1
    return value if kind == "uniform" else lanes.row_of(value, width)


def _communicates(instruction: Instruction) -> bool:
    """Whether an instruction lets CTAs communicate: an atomic on global memory, a load that may await other stores."""
    parts = instruction.opcode.split(".")
    local = any(part.startswith("shared") for part in parts)
    if parts[0] in ("atom", "red"):
        return not local
    if parts[:2] == ["cp", "reduce"]:
        return "global" in parts
    return parts[0] == "ld" and not local and bool({"volatile", "acquire", "relaxed", "mmio"} & set(parts))
