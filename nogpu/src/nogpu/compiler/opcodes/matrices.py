"""Rows of the opcode table: matrices between shared memory and registers (PTX ISA, "ldmatrix", "stmatrix",
"movmatrix").
"""

from __future__ import annotations

import re

from nogpu.compiler.code import Code
from nogpu.compiler.opcodes.rows import Row, always_lanes, called, row
from nogpu.ptx.ir import Instruction, Vector

_BITS = {"b8": 8, "b8x16.b6x16_p32": 6, "b8x16.b4x16_p64": 4}  # per element in shared memory


def _items(code: Code, operand: object, count: int, match: re.Match) -> tuple:
    items = operand.items if isinstance(operand, Vector) else (operand,)
    if len(items) != count:
        raise code.fail(f"{len(items)} registers for .{match.group('shape')}.x{match.group('count')}, {count} expected")
    return items


def _load(code: Code, instruction: Instruction, match: re.Match) -> None:
    destination, address = instruction.operands
    count, transposed = int(match.group("count")), match.group("trans") is not None
    _items(code, destination, count, match)
    place = f"g, {code.mask}, {code.address(address)}, {count}"
    code.assign_parts(destination, f"matrices.load_matrix({place}, {transposed}, (g, {code.pc}))", "lanes")


def _load_bytes(code: Code, instruction: Instruction, match: re.Match) -> None:
    destination, address = instruction.operands
    count, square = int(match.group("count")), match.group("shape") == "m16n16"
    _items(code, destination, 2 * count if square else count, match)
    function = "matrices.load_bytes_transposed" if square else "matrices.load_bytes"
    place = f"g, {code.mask}, {code.address(address)}, {count}"
    code.assign_parts(destination, f"{function}({place}, {_BITS[match.group('type')]}, (g, {code.pc}))", "lanes")


def _store(code: Code, instruction: Instruction, match: re.Match) -> None:
    address, source = instruction.operands
    items = _items(code, source, int(match.group("count")), match)
    values = f"stack([{', '.join(code.value(item) for item in items)}], 32)"
    place = f"g, {code.mask}, {code.address(address)}, {values}"
    if match.group("shape") == "m16n8":
        code.line(f"matrices.store_bytes_transposed({place}, (g, {code.pc}))")
    else:
        code.line(f"matrices.store_matrix({place}, {match.group('trans') is not None}, (g, {code.pc}))")


_SHARED = r"(?:\.shared(?:::cta)?)?"
_PADDED = r"b8x16\.(?:b6x16_p32|b4x16_p64)"

ROWS: list[Row] = [
    row(
        rf"ldmatrix\.sync\.aligned\.(?P<shape>m8n8)\.x(?P<count>1|2|4)(?P<trans>\.trans)?{_SHARED}\.b16",
        _load,
        kind=always_lanes,
        takes="b32* []",
    ),
    row(
        rf"ldmatrix\.sync\.aligned\.(?P<shape>m8n16)\.x(?P<count>1|2|4){_SHARED}\.(?P<type>{_PADDED})",
        _load_bytes,
        kind=always_lanes,
        takes="b32* []",
    ),
    row(
        rf"ldmatrix\.sync\.aligned\.(?P<shape>m16n16)\.x(?P<count>1|2)\.trans{_SHARED}\.(?P<type>b8|{_PADDED})",
        _load_bytes,
        kind=always_lanes,
        takes="b32* []",
    ),
    row(
        rf"stmatrix\.sync\.aligned\.(?P<shape>m8n8)\.x(?P<count>1|2|4)(?P<trans>\.trans)?{_SHARED}\.b16",
        _store,
        writes=0,
        takes="[] b32*",
    ),
    row(
        rf"stmatrix\.sync\.aligned\.(?P<shape>m16n8)\.x(?P<count>1|2|4)\.trans{_SHARED}\.b8",
        _store,
        writes=0,
        takes="[] b32*",
    ),
    called(
        r"movmatrix\.sync\.aligned\.m8n8\.trans\.b16",
        "matrices.move_matrix(g, {m}, {1:v})",
        kind=always_lanes,
        takes="b32 b32",
    ),
]
