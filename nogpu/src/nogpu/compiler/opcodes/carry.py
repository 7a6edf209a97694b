"""Rows of the opcode table: integer arithmetic with the carry flag (PTX ISA, "Extended-Precision Integer Arithmetic
Instructions").
"""

from __future__ import annotations

import re

from nogpu.compiler.opcodes.rows import Row, row
from nogpu.compiler.rowcode.assembler import Assembler
from nogpu.ptx.ir import Instruction, Pair
from nogpu.ptx.types import type_width

_OPERANDS = {"add": 3, "sub": 3, "mad.lo": 4, "mad.hi": 4}
_PRODUCTS = {"mad.lo": "mul_{w}", "mad.hi": "mulhi_{t}"}


def _carrying(operation: str, reads: bool, writes: bool) -> Row:
    def kernels(code: Assembler, instruction: Instruction, match: re.Match) -> None:
        destination, *operands = instruction.operands
        type_name = match.group("type")
        width, sign = type_width(type_name), type_name[0] if operation == "mad.hi" else ""
        flag = code.source(operands.pop(), "pred") if reads else code.constant(0)
        sources = [code.source(operand, type_name) for operand in operands]
        if operation in _PRODUCTS:
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
    return row(pattern, kernels=kernels, carry=carry, takes=" ".join(["{type}"] * _OPERANDS[operation]))


ROWS: list[Row] = [
    _carrying(operation, reads, writes)
    for operation in _OPERANDS
    for reads, writes in ((False, True), (True, False), (True, True))
]
