"""Rows of the opcode table: integer arithmetic with the carry flag (PTX ISA, "Extended-Precision Integer Arithmetic
Instructions").
"""

from __future__ import annotations

import re

from nogpu.compiler.code import Code
from nogpu.compiler.opcodes.rows import Row, row
from nogpu.compiler.rowcode.assembler import Assembler
from nogpu.ptx.ir import SINK, Instruction, Pair
from nogpu.ptx.types import type_width

# Operation -> functions of `arithmetic.carry` for unsigned and for signed types, number of operands.
_FUNCTIONS = {
    "add": ("carry.add", "carry.add", 3),
    "sub": ("carry.subtract", "carry.subtract", 3),
    "mad.lo": ("carry.multiply_low", "carry.multiply_low", 4),
    "mad.hi": ("carry.multiply_high", "carry.multiply_high_signed", 4),
}

_PRODUCTS = {"mad.lo": "mul_{w}", "mad.hi": "mulhi_{t}"}


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

    def kernels(code: Assembler, instruction: Instruction, match: re.Match) -> None:
        destination, *operands = instruction.operands
        type_name = match.group("type")
        width, sign = type_width(type_name), type_name[0] if operation == "mad.hi" else ""
        flag = code.source(operands.pop(), "pred") if reads else code.constant(0)
        sources = [code.source(operand, type_name) for operand in operands]
        if count == 4:
            product = _PRODUCTS[operation].format(t=f"{sign}{width}", w=width)
            sources = [code.intermediate(product, width, sources[:2]), sources[2]]
        kernel = f"{'subc' if operation == 'sub' else 'addc'}_{width}"
        if not isinstance(destination, Pair):
            code.operation(kernel, destination, [*sources, flag])
            return
        carried = code.intermediate(f"{kernel}_flag", 1, [*sources, flag])
        code.operation(kernel, destination.first, [*sources, flag])
        code.operation("mov_pred", destination.second, [carried])

    name, _, half = operation.partition(".")
    pattern = name + "c" * reads + (rf"\.{half}" if half else "") + r"\.cc" * writes + r"\.(?P<type>[us](?:32|64))"
    carry = frozenset({"in"} if reads else ()) | frozenset({"out"} if writes else ())
    return row(pattern, emit, kernels=kernels, carry=carry, takes=" ".join(["{type}"] * count))


ROWS: list[Row] = [
    _carrying(operation, reads, writes)
    for operation in _FUNCTIONS
    for reads, writes in ((False, True), (True, False), (True, True))
]
