"""Rules for arithmetic and wide accesses."""

from __future__ import annotations

import re

from nogpu.hopper.context import Context
from nogpu.hopper.statements import Block, Statement, split


def packed_f32(statement: Statement, context: Context) -> str:
    """Lower add, sub, mul and fma of two floats in a 64-bit register."""
    block, target = Block(), statement.operands[0]
    halves = []
    for source in statement.operands[1:]:
        low, high = block.register(), block.register()
        block.add(f"mov.b64 {{{low}, {high}}}, {source};")
        halves.append((low, high))
    results = block.register(), block.register()
    opcode = statement.opcode.replace(".f32x2", ".f32")
    for half in range(2):
        block.add(f"{opcode} {results[half]}, {', '.join(source[half] for source in halves)};")
    block.add(f"mov.b64 {target}, {{{results[0]}, {results[1]}}};")
    return block.text(statement)


def three_inputs(statement: Statement, context: Context) -> str | None:
    """Lower min and max of three floats to two instructions; those of two floats stay."""
    if len(statement.operands) != 4:
        return None
    block, (target, *sources) = Block(), statement.operands
    first = block.register()
    block.add(f"{statement.opcode} {first}, {sources[0]}, {sources[1]};")
    block.add(f"{statement.opcode} {target}, {first}, {sources[2]};")
    return block.text(statement)


def wide_access(statement: Statement, context: Context) -> str:
    """Lower 256-bit loads and stores to two of 128 bits."""
    opcode = re.sub(r"\.L2::evict_\w+|\.L1::evict_\w+|\.L1::no_allocate|\.L2::\d+B", "", statement.opcode)
    opcode = re.sub(r"\.v([48])\.", lambda form: f".v{int(form[1]) // 2}.", opcode)
    operands = list(statement.operands)
    loads = opcode.startswith("ld")
    at, values = (1, 0) if loads else (0, 1)
    registers = split(operands[values].strip("{}"))
    base, _, offset = operands[at].strip()[1:-1].partition("+")
    block = Block()
    start = block.register("b64")
    # The first half may overwrite the address register.
    block.add(f"mov.b64 {start}, {base.strip()};")
    middle = len(registers) // 2
    for half, part in enumerate((registers[:middle], registers[middle:])):
        operands[values] = f"{{{', '.join(part)}}}"
        operands[at] = f"[{start}+{int(offset or '0', 0) + 16 * half}]"
        block.add(f"{opcode} {', '.join(operands)};")
    return block.text(statement)
