"""Rows of the opcode table: cluster launch control and the 128-bit registers that it uses (PTX ISA,
"clusterlaunchcontrol.try_cancel", "clusterlaunchcontrol.query_cancel", "mov").

A 128-bit register is a pair of 64-bit values, each an integer or a row. Its lanes are not merged: a program that reads
one after parts of a warp have written it is refused.
"""

from __future__ import annotations

import re

from emulator.compiler.code import Code
from emulator.compiler.opcodes.rows import KindOf, Row, always_lanes, called, row
from emulator.compiler.signatures import shown
from emulator.ptx.ir import Instruction, Register, Vector


def _bits(instruction: Instruction, writes: int, kind_of: KindOf) -> str:
    return "bits"


def _pack(code: Code, instruction: Instruction, match: re.Match) -> None:
    """d, {a, b} or {a, b}, d or d, d"""
    destination, source = instruction.operands
    for operand in (destination, source):
        if isinstance(operand, Vector) and len(operand.items) != 2:
            raise code.fail(f"{shown(operand)} for 128 bits: two of 64 bits are expected")
        code.fits(operand, "b64*" if isinstance(operand, Vector) else "%b128")
    if isinstance(destination, Vector) and isinstance(source, Register):
        code.assign_parts(destination, f"launch_control.wide_rows({code.value(source, 128)})", "lanes")
        return
    if not isinstance(destination, Register) or code.flow.kinds[destination.name] != "uniform":
        raise code.fail("a 128-bit register that parts of a warp have written apart is not modelled")
    if isinstance(source, Vector):
        low, high = (code.value(item, 64) for item in source.items)
        code.assign(destination, f"({low}, {high})", "uniform")
    else:
        code.assign(destination, code.value(source, 128), "uniform")


def _pack_kind(instruction: Instruction, writes: int, kind_of: KindOf) -> str:
    return "lanes" if isinstance(instruction.operands[0], Vector) else "uniform"


def _first_cta(code: Code, instruction: Instruction, match: re.Match) -> None:
    destination, response = instruction.operands
    found = f"launch_control.first_cta({code.value(response, 128)})"
    if match.group("axis"):
        code.assign(destination, f"{found}[{'xyz'.index(match.group('axis'))}]", "lanes")
    else:
        code.assign_parts(destination, found, "lanes")


_QUERY = r"clusterlaunchcontrol\.query_cancel"

ROWS: list[Row] = [
    row(r"mov\.b128", _pack, 2, kind=_pack_kind),
    called(
        r"clusterlaunchcontrol\.try_cancel\.async(?:\.shared::cta)?\.mbarrier::complete_tx::bytes"
        r"(?P<everywhere>\.multicast::cluster::all)?\.b128",
        "launch_control.try_cancel(g, {m}, {0:x}, {1:x}, {everywhere:b}, {issuer})",
        writes=0,
        takes="[] []",
    ),
    row(
        rf"{_QUERY}\.is_canceled\.pred\.b128",
        lambda code, instruction, match: code.assign(
            instruction.operands[0],
            f"launch_control.canceled({code.mask}, {code.value(instruction.operands[1], 128)})",
            "bits",
        ),
        kind=_bits,
        takes="p %b128",
    ),
    row(
        rf"{_QUERY}\.get_first_ctaid(?:::(?P<axis>[xyz])\.b32|\.v4\.b32)\.b128",
        _first_cta,
        kind=always_lanes,
        takes="b32* %b128",
    ),
]
