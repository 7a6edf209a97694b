"""Rows of the opcode table: setp, set, selp, slct, testp.

PTX ISA, "Comparison and Selection Instructions", "Half Precision Comparison Instructions", "testp".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from emulator.compiler.code import Code
from emulator.compiler.opcodes.float_operands import numbers
from emulator.compiler.opcodes.integers import BITS, INTEGERS
from emulator.compiler.opcodes.rows import Row, always_lanes, computed, row, same_as_sources
from emulator.ptx.ir import SINK, Instruction, Pair
from emulator.ptx.types import type_width

if TYPE_CHECKING:
    from emulator.compiler.rowcode.assembler import Assembler, Source

_ORDERED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_UNSIGNED = {"lo": "<", "ls": "<=", "hi": ">", "hs": ">="}
_UNORDERED = {"equ": "==", "neu": "!=", "ltu": "<", "leu": "<=", "gtu": ">", "geu": ">="}
_COMBINED = {"and": "&", "or": "|", "xor": "^"}


def comparison(operator: str, a: str, b: str, is_float: bool) -> str:
    """The Python expression of a PTX comparison (PTX ISA, "Comparisons")."""
    if operator == "num":
        return f"~(np.isnan({a}) | np.isnan({b}))"
    if operator == "nan":
        return f"(np.isnan({a}) | np.isnan({b}))"
    if operator in _UNORDERED:
        return f"(({a} {_UNORDERED[operator]} {b}) | np.isnan({a}) | np.isnan({b}))"
    plain = f"({a} {(_ORDERED | _UNSIGNED)[operator]} {b})"
    return f"({plain} & ~(np.isnan({a}) | np.isnan({b})))" if is_float and operator == "ne" else plain


def _compared(code: Code, a: object, b: object, match: re.Match) -> str:
    """The comparison of two sources: of integers if the result is uniform, else of rows."""
    type_name, operator = match.group("type"), match.group("op")
    if "f" in type_name:
        flush = match.groupdict().get("ftz") is not None
        first, second = numbers(code, a, type_name, flush), numbers(code, b, type_name, flush)
        return comparison(operator, first, second, True)
    if code.kind == "uniform":
        return comparison(operator, code.integer(a, type_name), code.integer(b, type_name), False)
    first_row = code.is_uniform(a) and code.is_uniform(b)
    return comparison(operator, code.lanes(a, type_name, row=first_row), code.lanes(b, type_name), False)


def _combining(code: Code, combined: list, match: re.Match, pairs: bool = False) -> str:
    """The Boolean operation with the third source, as the end of an expression. pairs: for both halves of pairs."""
    if (match.group("combine") is None) != (not combined):
        raise code.fail("a combining operation and a third source go together")
    if not combined:
        return ""
    third = code.temporary()
    text = code.boolean(combined[0]) if code.kind == "uniform" else code.predicate_row(combined[0])
    code.line(f"{third} = np.repeat({text}, 2)" if pairs else f"{third} = {text}")
    return f" {_COMBINED[match.group('combine')]} {third}"


def _setp(code: Code, instruction: Instruction, match: re.Match) -> None:
    """setp.CmpOp{.BoolOp}{.ftz}.type p{|q}, a, b{, {!}c}: q gets the complement, or the result of the upper halves."""
    destination, a, b, *combined = instruction.operands
    result, ending = _compared(code, a, b, match), _combining(code, combined, match)
    if not isinstance(destination, Pair):
        part = "[0::2]" if match.group("type").endswith("x2") else ""
        code.assign(destination, result + part + ending, code.kind)
        return
    holds, first, second = code.temporary(), code.temporary(), code.temporary()
    code.line(f"{holds} = {result}")
    if match.group("type").endswith("x2"):
        texts = [f"{holds}[0::2]", f"{holds}[1::2]"]
    else:
        texts = [holds, f"(not {holds})" if code.kind == "uniform" else f"~{holds}"]
    for name, text in zip((first, second), texts, strict=True):
        code.line(f"{name} = {text}{ending}")
    for target, name in ((destination.first, first), (destination.second, second)):
        if target != SINK:
            code.assign(target, name, code.kind)


# Comparison of floats -> kernel, whether its sources are exchanged, whether its result is inverted.
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
_INVERTED, _FLUSHED = 1, 2  # native/compare.c


class _Test(NamedTuple):
    """A comparison as a kernel."""

    kernel: str
    sources: list[Source]
    x: int
    row: bool  # whether the result is a row in any case

    def result(self, code: Assembler) -> Source:
        return code.intermediate(self.kernel, 1, self.sources, self.x, self.row)


def _float_test(operator: str, type_name: str, sources: list[Source], flush: bool) -> _Test:
    """The comparison of two sources of f16, bf16, f32 or f64."""
    kernel, exchanged, inverted = _FLOAT_KERNELS[operator]
    x = _INVERTED * inverted + _FLUSHED * flush
    return _Test(f"{kernel}_{type_name}", sources[::-1] if exchanged else sources, x, True)


def _tests(code: Assembler, a: object, b: object, match: re.Match) -> list[_Test]:
    """The comparison of two operands; of pairs the two of their halves, the lower ones first."""
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
    """Predicates after the Boolean operation with the third source."""
    if not combined:
        return holds
    third = code.source(combined[0], "pred")
    return [code.intermediate(f"{match.group('combine')}_pred", 1, [x, third]) for x in holds]


def _setp_kernels(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    destination, a, b, *combined = instruction.operands
    test, *upper = _tests(code, a, b, match)
    if not isinstance(destination, Pair) and not combined:
        code.operation(test.kernel, destination, test.sources, test.x)
        return
    targets, holds = [destination], [test.result(code)]
    if isinstance(destination, Pair):
        targets = [destination.first, destination.second]
        holds.append(upper[0].result(code) if upper else code.intermediate("not_pred", 1, holds))
    for target, value in zip(targets, _combined(code, holds, combined, match), strict=True):
        code.operation("mov_pred", target, [value])


def _set_kernels(code: Assembler, instruction: Instruction, match: re.Match) -> None:
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


def _selp_kernels(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    destination, a, b, predicate = instruction.operands
    type_name = match.group("type")
    sources = [code.source(a, type_name), code.source(b, type_name), code.source(predicate, "pred")]
    code.operation(f"selp_{type_width(type_name)}", destination, sources)


def _slct_kernels(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    """slct.type.s32, and slct{.ftz}.type.f32."""
    destination, a, b, c = instruction.operands
    type_name, zero = match.group("type"), code.constant(0)
    if instruction.opcode.endswith(".s32"):
        test = _Test("ge_s32", [code.source(c, "s32"), zero], 0, False)
    else:
        test = _float_test("ge", "f32", [code.source(c, "f32"), zero], match.group("ftz") is not None)
    sources = [code.source(a, type_name), code.source(b, type_name), test.result(code)]
    code.operation(f"selp_{type_width(type_name)}", destination, sources)


def _property_kernels(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    destination, a = instruction.operands
    type_name = match.group("type")
    code.operation(f"{match.group('op')}_{type_name}", destination, [code.source(a, type_name)])


_ONE = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}


def _set(code: Code, instruction: Instruction, match: re.Match) -> None:
    """set.CmpOp{.BoolOp}{.ftz}.dtype.stype d, a, b{, {!}c}: all bits, or 1.0, where the comparison holds; of pairs in
    each half.
    """
    destination, a, b, *combined = instruction.operands
    type_name, result = match.group("type"), match.group("result")
    pairs = type_name.endswith("x2")
    holds, ending = _compared(code, a, b, match), _combining(code, combined, match, pairs)
    width = 16 if pairs else type_width(result)
    one = _ONE.get(result.removesuffix("x2"), (1 << width) - 1)
    text = f"np.where({holds}{ending}, u{width}({one}), u{width}(0))"
    code.assign(destination, f"{text}.view(u32)" if pairs else text, "lanes")


def _selp(code: Code, instruction: Instruction, match: re.Match) -> None:
    destination, a, b, predicate = instruction.operands
    type_name = match.group("type")
    width = type_width(type_name)
    first, second = (code.value(x, width, type_name) for x in (a, b))
    if code.kind == "uniform":
        code.assign(destination, f"{first} if {code.boolean(predicate)} else {second}", "uniform")
        return
    first, second = (f"u{width}({text})" if code.is_uniform(x) else text for x, text in ((a, first), (b, second)))
    code.assign(destination, f"where({code.predicate_row(predicate)}, {first}, {second})", "lanes")


def _select_by_sign(code: Code, instruction: Instruction, match: re.Match) -> None:
    """slct{.ftz}.dtype.f32 d, a, b, c: a where c >= 0, b where c is negative or NaN."""
    destination, a, b, c = instruction.operands
    width = type_width(match.group("type"))
    first, second = (f"row_of({code.value(x, width, match.group('type'))}, {width})" for x in (a, b))
    chosen = numbers(code, c, "f32", match.group("ftz") is not None)
    code.assign(destination, f"where({chosen} >= 0, {first}, {second})", "lanes")


# Property -> expression of a row of numbers {a} (PTX ISA, "testp").
_PROPERTIES = {
    "finite": "np.isfinite({a})",
    "infinite": "np.isinf({a})",
    "number": "~np.isnan({a})",
    "notanumber": "np.isnan({a})",
    "normal": "np.isfinite({a}) & (np.abs({a}) >= np.finfo({a}.dtype).tiny)",
    "subnormal": "({a} != 0) & (np.abs({a}) < np.finfo({a}.dtype).tiny)",
}


def _test_property(code: Code, instruction: Instruction, match: re.Match) -> None:
    destination, a = instruction.operands
    source = code.temporary()
    code.line(f"{source} = {numbers(code, a, match.group('type'))}")
    code.assign(destination, _PROPERTIES[match.group("op")].format(a=source), "lanes")


_INTEGER_COMPARED = "|".join([*_ORDERED, *_UNSIGNED])
_FLOAT_COMPARED = "|".join([*_ORDERED, *_UNORDERED, "num", "nan"])
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
    row(
        rf"setp\.(?P<op>{_INTEGER_COMPARED}){_COMBINE}\.(?P<type>{_INTEGER_TYPES})",
        _setp,
        takes=_SETP,
        kernels=_setp_kernels,
    ),
    row(
        rf"setp\.(?P<op>{_FLOAT_COMPARED}){_COMBINE}{_FTZ}\.(?P<type>f16|f16x2|f32)",
        _setp,
        kind=always_lanes,
        takes=_SETP,
        kernels=_setp_kernels,
    ),
    row(
        rf"setp\.(?P<op>{_FLOAT_COMPARED}){_COMBINE}\.(?P<type>bf16|bf16x2|f64)",
        _setp,
        kind=always_lanes,
        takes=_SETP,
        kernels=_setp_kernels,
    ),
    row(
        rf"set\.(?P<op>{_INTEGER_COMPARED}){_COMBINE}\.(?P<result>u32|s32|f32|f16|bf16)\.(?P<type>{_INTEGER_TYPES})",
        _set,
        kind=always_lanes,
        takes=_SET,
        kernels=_set_kernels,
    ),
    *(
        row(
            rf"set\.(?P<op>{_FLOAT_COMPARED}){_COMBINE}{ftz}\.(?P<result>{results})\.(?P<type>{types})",
            _set,
            kind=always_lanes,
            takes=_SET,
            kernels=_set_kernels,
        )
        for results, types, ftz in _FLOAT_SETS
    ),
    row(
        rf"selp\.(?P<type>{_INTEGER_TYPES}|f32|f64)",
        _selp,
        kind=same_as_sources,
        takes="{type} {type} {type} p",
        kernels=_selp_kernels,
    ),
    computed(
        "slct",
        f"{BITS} {INTEGERS} f32 f64",
        "{a} if {c} >= 0 else {b}",
        "where({c} >= 0, row_of({a}, {n}), row_of({b}, {n}))",
        "qqi",
        "unsigned",
        ending=r"\.s32",
        kernels=_slct_kernels,
    ),
    row(
        rf"slct(?P<ftz>\.ftz)?\.(?P<type>{_INTEGER_TYPES}|f32|f64)\.f32",
        _select_by_sign,
        kind=always_lanes,
        takes="{type} {type} {type} f32",
        kernels=_slct_kernels,
    ),
    row(
        rf"testp\.(?P<op>{'|'.join(_PROPERTIES)})\.(?P<type>f32|f64)",
        _test_property,
        kind=always_lanes,
        takes="p {type}",
        kernels=_property_kernels,
    ),
]
