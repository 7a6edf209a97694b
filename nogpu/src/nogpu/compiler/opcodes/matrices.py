"""Rows of the opcode table: matrices between shared memory and registers (PTX ISA, "ldmatrix", "stmatrix",
"movmatrix").
"""

from __future__ import annotations

import re
from typing import Any

from nogpu.compiler.code import Code
from nogpu.compiler.opcodes.rows import Row, always_lanes, called
from nogpu.compiler.rowcode.accesses import matrices
from nogpu.compiler.rowcode.assembler import Assembler
from nogpu.ptx.ir import Instruction, items_of


def _check(code: Code | Assembler, instruction: Instruction, match: re.Match) -> None:
    """Checks the number of registers; a 16x16 matrix has two."""
    registers = instruction.operands[0 if match.group("name") == "ldmatrix" else 1]
    count, expected = len(items_of(registers)), int(match.group("count")) * (1 + (match.group("shape") == "m16n16"))
    if count != expected:
        raise code.fail(f"{count} registers for .{match.group('shape')}.x{match.group('count')}, {expected} expected")


def _kernel(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    """Emits the kernel of 8x8 matrices of 16-bit elements."""
    _check(code, instruction, match)
    loads = match.group("name") == "ldmatrix"
    registers, address = instruction.operands if loads else instruction.operands[::-1]
    matrices(code, not loads, address, items_of(registers), match.group("trans") is not None)


def _load(form: str, function: str, operand: str, **options: Any) -> Row:
    """A row for ldmatrix. operand: the last argument but one of the function in `ops.matrices`."""
    template = f"matrices.{function}(g, {{m}}, {{1:x}}, {{count}}, {operand}, {{issuer}})"
    pattern = rf"(?P<name>ldmatrix)\.sync\.aligned\.{form}"
    return called(pattern, template, check=_check, parts=True, kind=always_lanes, takes="b32* []", **options)


def _store(form: str, function: str, operands: str, **options: Any) -> Row:
    """A row for stmatrix. operands: arguments of the function in `ops.matrices` behind the values."""
    template = f"matrices.{function}(g, {{m}}, {{0:x}}, {{1:s}}, {operands})"
    pattern = rf"(?P<name>stmatrix)\.sync\.aligned\.{form}"
    return called(pattern, template, check=_check, takes="[] b32*", **options)


_SHARED = r"(?:\.shared(?:::cta)?)?"
_PADDED = r"b8x16\.(?:b6x16_p32|b4x16_p64)"

_TRANS = r"(?P<trans>\.trans)?"

ROWS: list[Row] = [
    _load(rf"(?P<shape>m8n8)\.x(?P<count>1|2|4){_TRANS}{_SHARED}\.b16", "load_matrix", "{trans:b}", kernels=_kernel),
    _load(rf"(?P<shape>m8n16)\.x(?P<count>1|2|4){_SHARED}\.(?P<format>{_PADDED})", "load_bytes", "{format}"),
    _load(
        rf"(?P<shape>m16n16)\.x(?P<count>1|2)\.trans{_SHARED}\.(?P<format>b8|{_PADDED})",
        "load_bytes_transposed",
        "{format}",
    ),
    _store(
        rf"(?P<shape>m8n8)\.x(?P<count>1|2|4){_TRANS}{_SHARED}\.b16",
        "store_matrix",
        "{trans:b}, {issuer}",
        kernels=_kernel,
    ),
    _store(rf"(?P<shape>m16n8)\.x(?P<count>1|2|4)\.trans{_SHARED}\.b8", "store_bytes_transposed", "{issuer}"),
    called(
        r"movmatrix\.sync\.aligned\.m8n8\.trans\.b16",
        "matrices.move_matrix(g, {m}, {1:v})",
        kind=always_lanes,
        takes="b32 b32",
    ),
]
