"""Rows of the opcode table: integer arithmetic with the carry flag (PTX ISA, "Extended-Precision Integer Arithmetic
Instructions").
"""

from __future__ import annotations

import re

from emulator.compiler.code import Code
from emulator.compiler.opcodes.rows import Row, row
from emulator.ptx.ir import SINK, Instruction, Pair
from emulator.ptx.types import type_width

# Operation -> functions of `arithmetic.carry` for unsigned and for signed types, number of operands.
_FUNCTIONS = {
    "add": ("carry.add", "carry.add", 3),
    "sub": ("carry.subtract", "carry.subtract", 3),
    "mad.lo": ("carry.multiply_low", "carry.multiply_low", 4),
    "mad.hi": ("carry.multiply_high", "carry.multiply_high_signed", 4),
}


def _carrying(operation: str, reads: bool, writes: bool) -> Row:
    unsigned, signed, count = _FUNCTIONS[operation]

    def emit(code: Code, instruction: Instruction, match: re.Match) -> None:
        destination, *sources = instruction.operands
        width, function = type_width(match.group("type")), signed if match.group("type")[0] == "s" else unsigned
        flag = sources.pop() if reads else None
        result = code.temporary()
        if code.kind == "uniform":
            texts = [code.value(source, width) for source in sources] + [f"int({code.boolean(flag)})" if reads else "0"]
            code.line(f"{result} = {function}({', '.join(texts)}, {width})")
        else:
            texts = [f"row_of({code.value(source, width)}, {width})" for source in sources]
            texts.append(code.predicate_row(flag) if reads else "lanes(0)")
            code.line(f"{result} = carry.by_lane({function}, {width}, {', '.join(texts)})")
        targets = (destination.first, destination.second) if isinstance(destination, Pair) else (destination,)
        for i, target in enumerate(targets):
            if target != SINK:
                code.assign(target, f"{result}[{i}]", code.kind)

    name, _, half = operation.partition(".")
    pattern = name + "c" * reads + (rf"\.{half}" if half else "") + r"\.cc" * writes + r"\.(?P<type>[us](?:32|64))"
    carry = frozenset({"in"} if reads else ()) | frozenset({"out"} if writes else ())
    return row(pattern, emit, carry=carry, takes=" ".join(["{type}"] * count))


ROWS: list[Row] = [
    _carrying(operation, reads, writes)
    for operation in _FUNCTIONS
    for reads, writes in ((False, True), (True, False), (True, True))
]
