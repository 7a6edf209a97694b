"""Rows of the opcode table: setp, set, selp, slct, testp.

PTX ISA, "Comparison and Selection Instructions", "Half Precision Comparison Instructions", "testp".
"""

from __future__ import annotations

import re

from nogpu.compiler.code import Code
from nogpu.compiler.opcodes import comparison_kernels as kernels
from nogpu.compiler.opcodes.float_operands import numbers
from nogpu.compiler.opcodes.integers import BITS, INTEGERS
from nogpu.compiler.opcodes.rows import Row, always_lanes, computed, row, same_as_sources
from nogpu.ptx.ir import SINK, Instruction, Pair
from nogpu.ptx.types import type_width

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


def _set(code: Code, instruction: Instruction, match: re.Match) -> None:
    """set.CmpOp{.BoolOp}{.ftz}.dtype.stype d, a, b{, {!}c}: all bits, or 1.0, where the comparison holds; of pairs in
    each half.
    """
    destination, a, b, *combined = instruction.operands
    type_name, result = match.group("type"), match.group("result")
    pairs = type_name.endswith("x2")
    holds, ending = _compared(code, a, b, match), _combining(code, combined, match, pairs)
    width = 16 if pairs else type_width(result)
    one = kernels.ONE.get(result.removesuffix("x2"), (1 << width) - 1)
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
        kernels=kernels.setp,
    ),
    row(
        rf"setp\.(?P<op>{_FLOAT_COMPARED}){_COMBINE}{_FTZ}\.(?P<type>f16|f16x2|f32)",
        _setp,
        kind=always_lanes,
        takes=_SETP,
        kernels=kernels.setp,
    ),
    row(
        rf"setp\.(?P<op>{_FLOAT_COMPARED}){_COMBINE}\.(?P<type>bf16|bf16x2|f64)",
        _setp,
        kind=always_lanes,
        takes=_SETP,
        kernels=kernels.setp,
    ),
    row(
        rf"set\.(?P<op>{_INTEGER_COMPARED}){_COMBINE}\.(?P<result>u32|s32|f32|f16|bf16)\.(?P<type>{_INTEGER_TYPES})",
        _set,
        kind=always_lanes,
        takes=_SET,
        kernels=kernels.set_,
    ),
    *(
        row(
            rf"set\.(?P<op>{_FLOAT_COMPARED}){_COMBINE}{ftz}\.(?P<result>{results})\.(?P<type>{types})",
            _set,
            kind=always_lanes,
            takes=_SET,
            kernels=kernels.set_,
        )
        for results, types, ftz in _FLOAT_SETS
    ),
    row(
        rf"selp\.(?P<type>{_INTEGER_TYPES}|f32|f64)",
        _selp,
        kind=same_as_sources,
        takes="{type} {type} {type} p",
        kernels=kernels.selp,
    ),
    computed(
        "slct",
        f"{BITS} {INTEGERS} f32 f64",
        "{a} if {c} >= 0 else {b}",
        "where({c} >= 0, row_of({a}, {n}), row_of({b}, {n}))",
        "qqi",
        "unsigned",
        ending=r"\.s32",
        kernels=kernels.slct,
    ),
    row(
        rf"slct(?P<ftz>\.ftz)?\.(?P<type>{_INTEGER_TYPES}|f32|f64)\.f32",
        _select_by_sign,
        kind=always_lanes,
        takes="{type} {type} {type} f32",
        kernels=kernels.slct,
    ),
    row(
        rf"testp\.(?P<op>{'|'.join(_PROPERTIES)})\.(?P<type>f32|f64)",
        _test_property,
        kind=always_lanes,
        takes="p {type}",
        kernels=kernels.test_property,
    ),
]
