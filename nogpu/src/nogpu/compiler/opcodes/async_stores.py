"""Rows of the opcode table: st.async, red.async, st.bulk, and multimem, which is refused (PTX ISA, "st.async",
"red.async", "st.bulk", "multimem").
"""

from __future__ import annotations

import re

from nogpu.compiler.code import Code
from nogpu.compiler.opcodes.rows import Row, called, refused
from nogpu.ptx.ir import Instruction, items_of
from nogpu.ptx.types import type_width

_TYPES = "b32|u32|s32|f32|b64|u64|s64|f64"
_REDUCTIONS = {
    **dict.fromkeys(("inc", "dec"), ("u32",)),
    **dict.fromkeys(("min", "max"), ("u32", "s32")),
    **dict.fromkeys(("and", "or", "xor"), ("b32",)),
    "add": ("u32", "s32", "u64", "s64"),
}
_COUNTED = r"(?:\.shared::cluster)?\.mbarrier::complete_tx::bytes"


def _check_store(code: Code, instruction: Instruction, match: re.Match) -> None:
    width, count = type_width(match.group("type")), int(match.group("count") or 1)
    given = len(items_of(instruction.operands[1]))
    if given != count or width * count > 128:
        raise code.fail(
            f"st.async of {given} elements of {width} bits: .v{count} needs {count}, and the limit is 128 bits"
        )


def _check_reduction(code: Code, instruction: Instruction, match: re.Match) -> None:
    operation, type_name = match.group("op"), match.group("type")
    if type_name not in _REDUCTIONS[operation]:
        raise code.fail(
            f"red.async.{operation}.{type_name} does not exist: .{operation} takes {', '.join(_REDUCTIONS[operation])} "
            "(PTX ISA, red.async)"
        )


def _check_zeros(code: Code, instruction: Instruction, match: re.Match) -> None:
    if instruction.operands[2].value != 0:
        raise code.fail("st.bulk writes zeros only: initval must be 0 (PTX ISA, st.bulk)")


ROWS: list[Row] = [
    called(
        rf"st\.async(?:\.weak)?{_COUNTED}(?:\.v(?P<count>2|4))?\.(?P<type>{_TYPES})",
        "async_stores.store(g, {m}, {0:x}, {1:s}, {2:x}, {issuer})",
        check=_check_store,
        takes="[] {type}* []",
    ),
    called(
        rf"red\.async\.relaxed\.cluster{_COUNTED}\.(?P<op>{'|'.join(_REDUCTIONS)})\.(?P<type>[bsu](?:32|64))",
        "async_stores.reduce(g, {m}, ({op}, {type}), {0:x}, {1:t}, {2:x}, {issuer})",
        check=_check_reduction,
        takes="[] {type} []",
    ),
    called(
        r"st\.bulk(?:\.weak)?(?:\.shared::cta)?",
        "async_stores.clear(g, {m}, {0:x}, {1:q}, {issuer})",
        check=_check_zeros,
        takes="[] u64 #",
    ),
    refused(
        r"(?:st|red)\.async\.(?:mmio\.)?release\..+", "asynchronous stores to global memory are for devices' registers"
    ),
    refused(r"multimem\..+", "a multimem address stands for the memory of several devices, and there is one"),
]
