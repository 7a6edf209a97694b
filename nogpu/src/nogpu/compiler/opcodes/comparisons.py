"""Rows of the opcode table: setp, set, selp, slct, testp.

PTX ISA, "Comparison and Selection Instructions", "Half Precision Comparison Instructions", "testp".
"""

from __future__ import annotations

import re
from typing import NamedTuple

from nogpu import headers
from nogpu.compiler.opcodes.integers import BITS, INTEGERS
from nogpu.compiler.opcodes.rows import Row, by_lane, row
from nogpu.compiler.rowcode.assembler import Assembler, Source
from nogpu.ptx.ir import Instruction, Pair
from nogpu.ptx.types import type_width

_ONE = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}
"""Type -> the bits of 1.0."""
# Comparison of floats -> (kernel, true if its sources are exchanged, true if its result is inverted).
_FLOAT_KERNELS = {
    "eq": ("eq", False, False),
    "ne": ("ltgt", False, False),
    "lt": ("lt", False, False),
    "le": ("le", False, False),
    "gt": ("lt", True, False),
    "ge": ("le", True, False),
    "equ": ("ltgt", False, True),
    "neu": ("eq", False, True),
    "ltu": ("le", True, True),
    "leu": ("lt", True, True),
    "gtu": ("le", False, True),
    "geu": ("lt", False, True),
    "num": ("num", False, False),
    "nan": ("num", False, True),
}
_UNSIGNED_KERNELS = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_INVERTED, _FLUSHED = headers.constants("native/compare.c", "INVERTED", "FLUSHED")


class _Test(NamedTuple):
    """A comparison as a kernel."""

    kernel: str
    sources: list[Source]
    x: int
    row: bool  # true for a result that is a row in any case

    def result(self, code: Assembler) -> Source:
        return code.intermediate(self.kernel, 1, self.sources, self.x, self.row)


def _float_test(operator: str, type_name: str, sources: list[Source], flush: bool) -> _Test:
    """The comparison of two sources of f16, bf16, f32 or f64."""
    kernel, exchanged, inverted = _FLOAT_KERNELS[operator]
    x = _INVERTED * inverted + _FLUSHED * flush
    return _Test(f"{kernel}_{type_name}", sources[::-1] if exchanged else sources, x, True)


def _tests(code: Assembler, a: object, b: object, match: re.Match) -> list[_Test]:
    """The comparison of two operands; for pairs, the two comparisons of their halves, the lower ones first."""
    type_name, operator = match.group("type"), match.group("op")
    sources = [code.source(operand, type_name) for operand in (a, b)]
    flush = match.groupdict().get("ftz") is not None
    if type_name.endswith("x2"):
        halves = [[code.intermediate("part_32_16", 16, [x], shift) for x in sources] for shift in (0, 16)]
        return [_float_test(operator, type_name[:-2], half, flush) for half in halves]
    if "f" in type_name:
        return [_float_test(operator, type_name, sources, flush)]
    name = _UNSIGNED_KERNELS.get(operator, operator)
    sign = "" if name in ("eq", "ne") else "s" if type_name[0] == "s" else "u"
    return [_Test(f"{name}_{sign}{type_width(type_name)}", sources, 0, False)]


def _combined(code: Assembler, holds: list[Source], combined: list, match: re.Match) -> list[Source]:
    """The results of comparisons, combined with the third source if there is one."""
    if (match.group("combine") is None) != (not combined):
        raise code.fail("a combining operation and a third source go together")
    if not combined:
        return holds
    third = code.source(combined[0], "pred")
    return [code.intermediate(f"{match.group('combine')}_pred", 1, [x, third]) for x in holds]


def _setp(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    """setp.CmpOp{.BoolOp}{.ftz}.type p{|q}, a, b{, {!}c}: q gets the complement, or the result of the upper halves."""
    destination, a, b, *combined = instruction.operands
    test, *upper = _tests(code, a, b, match)
    if not isinstance(destination, Pair) and not combined and match.group("combine") is None:
        code.operation(test.kernel, destination, test.sources, test.x)
        return
    targets, holds = [destination], [test.result(code)]
    if isinstance(destination, Pair):
        targets = [destination.first, destination.second]
        holds.append(upper[0].result(code) if upper else code.intermediate("not_pred", 1, holds))
    for target, value in zip(targets, _combined(code, holds, combined, match), strict=True):
        code.operation("mov_pred", target, [value])


def _set(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    """set.CmpOp{.BoolOp}{.ftz}.dtype.stype d, a, b{, {!}c}: all ones, or 1.0, where the comparison holds, else zero;
    pairs have a result in each half.
    """
    destination, a, b, *combined = instruction.operands
    pairs, result = match.group("type").endswith("x2"), match.group("result")
    width = 16 if pairs else type_width(result)
    holds = _combined(code, [test.result(code) for test in _tests(code, a, b, match)], combined, match)
    one = code.constant(_ONE.get(result.removesuffix("x2"), (1 << width) - 1))
    if not pairs:
        code.operation(f"selp_{width}", destination, [one, code.constant(0), *holds])
        return
    halves = [code.intermediate("selp_16", 16, [one, code.constant(0), x]) for x in holds]
    code.operation("join_32_16", destination, halves)


def _selp(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    destination, a, b, predicate = instruction.operands
    type_name = match.group("type")
    sources = [code.source(a, type_name), code.source(b, type_name), code.source(predicate, "pred")]
    code.operation(f"selp_{type_width(type_name)}", destination, sources)


def _slct(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    """slct.type.s32, and slct{.ftz}.type.f32 d, a, b, c: a where c >= 0, b where c is negative or NaN."""
    destination, a, b, c = instruction.operands
    type_name, zero = match.group("type"), code.constant(0)
    if instruction.opcode.endswith(".s32"):
        test = _Test("ge_s32", [code.source(c, "s32"), zero], 0, False)
    else:
        test = _float_test("ge", "f32", [code.source(c, "f32"), zero], match.group("ftz") is not None)
    sources = [code.source(a, type_name), code.source(b, type_name), test.result(code)]
    code.operation(f"selp_{type_width(type_name)}", destination, sources)


def _test_property(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    destination, a = instruction.operands
    type_name = match.group("type")
    code.operation(f"{match.group('op')}_{type_name}", destination, [code.source(a, type_name)])


_PROPERTIES = ("finite", "infinite", "number", "notanumber", "normal", "subnormal")
_INTEGER_COMPARED = "|".join(["eq", "ne", "lt", "le", "gt", "ge", *_UNSIGNED_KERNELS])
_FLOAT_COMPARED = "|".join(_FLOAT_KERNELS)
_INTEGER_TYPES = (INTEGERS + " " + BITS).replace(" ", "|")
_COMBINE = r"(?:\.(?P<combine>and|or|xor))?"
_FTZ = r"(?P<ftz>\.ftz)?"
_SETP, _SET = "p|p {type} {type} p?", "{result} {type} {type} p?"
_FLOAT_SETS = (  # results, sources, modifier
    ("u32|s32|f32", "f32", _FTZ),
    ("u32|s32|f32", "f64", ""),
    ("u16|s16|u32|s32|f16", "f16", _FTZ),
    ("u16|s16|u32|s32|bf16", "bf16", ""),
    ("f16", "f32", _FTZ),
    ("f16", "f64", ""),
    ("bf16", "f32|f64", ""),
    ("u32|s32|f16x2", "f16x2", _FTZ),
    ("u32|s32|bf16x2", "bf16x2", ""),
)

ROWS: list[Row] = [
    row(rf"setp\.(?P<op>{_INTEGER_COMPARED}){_COMBINE}\.(?P<type>{_INTEGER_TYPES})", takes=_SETP, kernels=_setp),
    by_lane(rf"setp\.(?P<op>{_FLOAT_COMPARED}){_COMBINE}{_FTZ}\.(?P<type>f16|f16x2|f32)", _setp, takes=_SETP),
    by_lane(rf"setp\.(?P<op>{_FLOAT_COMPARED}){_COMBINE}\.(?P<type>bf16|bf16x2|f64)", _setp, takes=_SETP),
    by_lane(
        rf"set\.(?P<op>{_INTEGER_COMPARED}){_COMBINE}\.(?P<result>u32|s32|f32|f16|bf16)\.(?P<type>{_INTEGER_TYPES})",
        _set,
        takes=_SET,
    ),
    *(
        by_lane(
            rf"set\.(?P<op>{_FLOAT_COMPARED}){_COMBINE}{ftz}\.(?P<result>{results})\.(?P<type>{types})",
            _set,
            takes=_SET,
        )
        for results, types, ftz in _FLOAT_SETS
    ),
    row(rf"selp\.(?P<type>{_INTEGER_TYPES}|f32|f64)", takes="{type} {type} {type} p", kernels=_selp),
    row(rf"slct\.(?P<type>{_INTEGER_TYPES}|f32|f64)\.s32", takes="{type} {type} {type} s32", kernels=_slct),
    by_lane(rf"slct(?P<ftz>\.ftz)?\.(?P<type>{_INTEGER_TYPES}|f32|f64)\.f32", _slct, takes="{type} {type} {type} f32"),
    by_lane(rf"testp\.(?P<op>{'|'.join(_PROPERTIES)})\.(?P<type>f32|f64)", _test_property, takes="p {type}"),
]
