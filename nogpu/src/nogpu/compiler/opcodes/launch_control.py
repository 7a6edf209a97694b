"""Rows of the opcode table: cluster launch control (PTX ISA, "clusterlaunchcontrol.try_cancel",
"clusterlaunchcontrol.query_cancel"). A response, 128 bits in PTX, is two registers in braces (`compiler.wide`).
"""

from __future__ import annotations

import re

from nogpu.compiler.code import Code
from nogpu.compiler.opcodes.rows import Row, always_bits, always_lanes, called, row
from nogpu.compiler.signatures import shown
from nogpu.ptx.ir import Instruction, Vector


def _response(code: Code, operand: object) -> str:
    if not isinstance(operand, Vector):
        raise code.fail(f"a 128-bit register is expected, not {shown(operand)}")
    return f"({', '.join(code.value(item, 64) for item in operand.items)})"


def _first_cta(code: Code, instruction: Instruction, match: re.Match) -> None:
    destination, response = instruction.operands
    found = f"launch_control.first_cta({_response(code, response)})"
    if match.group("axis"):
        code.assign(destination, f"{found}[{'xyz'.index(match.group('axis'))}]", "lanes")
    else:
        code.assign_parts(destination, found, "lanes")


_QUERY = r"clusterlaunchcontrol\.query_cancel"

ROWS: list[Row] = [
    called(
        r"clusterlaunchcontrol\.try_cancel\.async(?:\.shared::cta)?\.mbarrier::complete_tx::bytes"
        r"(?P<everywhere>\.multicast::cluster::all)?\.b128",
        "launch_control.try_cancel(g, {m}, {0:x}, {1:x}, {everywhere:b}, {issuer})",
        takes="[] []",
    ),
    row(
        rf"{_QUERY}\.is_canceled\.pred\.b128",
        lambda code, instruction, match: code.assign(
            instruction.operands[0],
            f"launch_control.canceled({code.mask}, {_response(code, instruction.operands[1])})",
            "bits",
        ),
        kind=always_bits,
        takes="p b64*",
    ),
    row(
        rf"{_QUERY}\.get_first_ctaid(?:::(?P<axis>[xyz])\.b32|\.v4\.b32)\.b128",
        _first_cta,
        kind=always_lanes,
        takes="b32* b64*",
    ),
]
