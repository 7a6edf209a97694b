"""Rows of the opcode table: st.async, red.async, st.bulk, and multimem, which is refused (PTX ISA, "st.async",
"red.async", "st.bulk", "multimem").
"""

from __future__ import annotations

import re

from nogpu.compiler.code import Code
from nogpu.compiler.opcodes.rows import Row, refused, row
from nogpu.ptx.ir import Instruction, Vector
from nogpu.ptx.types import type_width

_TYPES = "b32|u32|s32|f32|b64|u64|s64|f64"
_REDUCTIONS = {
    **dict.fromkeys(("inc", "dec"), ("u32",)),
    **dict.fromkeys(("min", "max"), ("u32", "s32")),
    **dict.fromkeys(("and", "or", "xor"), ("b32",)),
    "add": ("u32", "s32", "u64", "s64"),
}
_COUNTED = r"(?:\.shared::cluster)?\.mbarrier::complete_tx::bytes"


def _places(code: Code, instruction: Instruction, type_name: str) -> tuple[str, object, str]:
    """[a], b, [mbar]"""
    address, value, barrier = instruction.operands
    code.fits(value, f"{type_name}*")
    return code.address(address), value, code.address(barrier)


def _store(code: Code, instruction: Instruction, match: re.Match) -> None:
    type_name = match.group("type")
    address, value, barrier = _places(code, instruction, type_name)
    width, count = type_width(type_name), int(match.group("count") or 1)
    items = value.items if isinstance(value, Vector) else (value,)
    if len(items) != count or width * count > 128:
        raise code.fail(
            f"st.async of {len(items)} elements of {width} bits: .v{count} needs {count}, and the limit is 128 bits"
        )
    values = f"stack([{', '.join(code.value(item, width, type_name) for item in items)}], {width})"
    code.line(f"async_stores.store(g, {code.mask}, {address}, {values}, {barrier}, (g, {code.pc}))")


def _reduce(code: Code, instruction: Instruction, match: re.Match) -> None:
    operation, type_name = match.group("op"), match.group("type")
    address, value, barrier = _places(code, instruction, type_name)
    if type_name not in _REDUCTIONS[operation]:
        raise code.fail(
            f"red.async.{operation}.{type_name} does not exist: .{operation} takes {', '.join(_REDUCTIONS[operation])} "
            "(PTX ISA, red.async)"
        )
    places = f"{address}, {code.value(value, type_width(type_name), type_name)}, {barrier}"
    code.line(f"async_stores.reduce(g, {code.mask}, {(operation, type_name)}, {places}, (g, {code.pc}))")


def _clear(code: Code, instruction: Instruction, match: re.Match) -> None:
    """[a], size, initval"""
    address, size, initial = instruction.operands
    if initial.value != 0:
        raise code.fail("st.bulk writes zeros only: initval must be 0 (PTX ISA, st.bulk)")
    code.line(f"async_stores.clear(g, {code.mask}, {code.address(address)}, {code.value(size, 64)}, (g, {code.pc}))")


ROWS: list[Row] = [
    row(
        rf"st\.async(?:\.weak)?{_COUNTED}(?:\.v(?P<count>2|4))?\.(?P<type>{_TYPES})", _store, writes=0, takes="[] . []"
    ),
    row(
        rf"red\.async\.relaxed\.cluster{_COUNTED}\.(?P<op>{'|'.join(_REDUCTIONS)})\.(?P<type>[bsu](?:32|64))",
        _reduce,
        writes=0,
        takes="[] {type} []",
    ),
    row(r"st\.bulk(?:\.weak)?(?:\.shared::cta)?", _clear, writes=0, takes="[] u64 #"),
    refused(
        r"(?:st|red)\.async\.(?:mmio\.)?release\..+", "asynchronous stores to global memory are for devices' registers"
    ),
    refused(r"multimem\..+", "a multimem address stands for the memory of several devices, and there is one"),
]
