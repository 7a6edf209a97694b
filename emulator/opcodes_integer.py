"""Rows of the opcode table: integer arithmetic, logic, shifts, bit fields, comparisons, selection.

PTX ISA, "Integer Arithmetic Instructions", "Logic and Shift Instructions", "Comparison and Selection Instructions".
"""

from __future__ import annotations

import re

from emulator.code import Code
from emulator.instructions import SINK, Immediate, Instruction, Pair
from emulator.operands import type_width
from emulator.rows import Row, always_lanes, called, computed, row, same_as_sources, widest_source

INTEGERS = "u16 s16 u32 s32 u64 s64"
BITS = "b16 b32 b64"

ARITHMETIC = [
    computed("add", INTEGERS, "{a} + {b}", "{a} + {b}", "qq", "unsigned"),
    computed("sub", INTEGERS, "{a} - {b}", "{a} - {b}", "qq", "unsigned"),
    computed(r"mul\.lo", INTEGERS, "{a} * {b}", "{a} * {b}", "qq", "unsigned"),
    computed(r"mad\.lo", INTEGERS, "{a} * {b} + {c}", "{a} * {b} + {c}", "qqq", "unsigned"),
    computed(r"mul\.hi", INTEGERS, "{a} * {b} >> {n}", "multiply_high({a}, {b}, {n}, {signed})"),
    computed(r"mad\.hi", "u32 s32", "({a} * {b} >> {n}) + {c}", "multiply_high({a}, {b}, {n}, {signed}) + {c}"),
    computed(r"mul\.wide", "u16 u32", "{a} * {b}", "np.multiply({a}, {b}, dtype=UINTS[2 * {n}])", result="wide"),
    computed(r"mul\.wide", "s16 s32", "{a} * {b}", "np.multiply({a}, {b}, dtype=INTS[2 * {n}])", result="wide"),
    computed(r"mad\.wide", "u16 u32", "{a} * {b} + {c}", "np.multiply({a}, {b}, dtype=UINTS[2 * {n}]) + {c}", "abw", "wide"),
    computed(r"mad\.wide", "s16 s32", "{a} * {b} + {c}", "np.multiply({a}, {b}, dtype=INTS[2 * {n}]) + {c}", "abw", "wide"),
    computed("div", INTEGERS, "divide_scalar({a}, {b})", "divide({a}, {b}, {n}, {signed})"),
    computed("rem", INTEGERS, "remainder_scalar({a}, {b})", "remainder({a}, {b}, {n}, {signed})"),
    computed("min", INTEGERS, "min({a}, {b})", "np.minimum({a}, {b})"),
    computed("max", INTEGERS, "max({a}, {b})", "np.maximum({a}, {b})"),
    computed("neg", "s16 s32 s64", "-{a}", "-{a}", "q", "unsigned"),
    computed("abs", "s16 s32 s64", "abs({a})", "np.abs({a})"),
    computed("sad", "u32 s32", "{c} + abs({a} - {b})", "{c} + (np.maximum({a}, {b}) - np.minimum({a}, {b}))"),
    computed("popc", "b32 b64", "{a}.bit_count()", "bit_count({a})", result="u32"),
    computed("clz", "b32 b64", "{n} - {a}.bit_length()", "leading_zeros({a}, {n})", result="u32"),
    computed("brev", "b32 b64", "reverse_bits({a}, {n})", "per_lane(lambda x: reverse_bits(x, {n}), {n}, {a})"),
    computed(
        "bfind", "u32 s32 u64 s64", "find_leading({a}, {n}, {signed}, False)",
        "per_lane(lambda x: find_leading(x, {n}, {signed}, False), 32, {a})", result="u32",
    ),
    computed(
        r"bfind\.shiftamt", "u32 s32 u64 s64", "find_leading({a}, {n}, {signed}, True)",
        "per_lane(lambda x: find_leading(x, {n}, {signed}, True), 32, {a})", result="u32",
    ),
    computed(
        "bfe", "u32 s32 u64 s64", "extract_field({a}, {b}, {c}, {n}, {signed})",
        "per_lane(lambda x, y, z: extract_field(x, y, z, {n}, {signed}), {n}, {a}, {b}, {c})", "quu",
    ),
    computed(
        "bfi", "b32 b64", "insert_field({a}, {b}, {c}, {d}, {n})",
        "per_lane(lambda x, y, z, w: insert_field(x, y, z, w, {n}), {n}, {a}, {b}, {c}, {d})", "abuu",
    ),
    computed("prmt", "b32", "permute_bytes({a}, {b}, {c})", "permute_bytes_row(row_of({a}, 32), row_of({b}, 32), {c})"),
    computed(
        r"shf\.l\.wrap", "b32", "funnel_shift({a}, {b}, {c}, True, False)",
        "per_lane(lambda x, y, z: funnel_shift(x, y, z, True, False), 32, {a}, {b}, {c})",
    ),
    computed(
        r"shf\.l\.clamp", "b32", "funnel_shift({a}, {b}, {c}, True, True)",
        "per_lane(lambda x, y, z: funnel_shift(x, y, z, True, True), 32, {a}, {b}, {c})",
    ),
    computed(
        r"shf\.r\.wrap", "b32", "funnel_shift({a}, {b}, {c}, False, False)",
        "per_lane(lambda x, y, z: funnel_shift(x, y, z, False, False), 32, {a}, {b}, {c})",
    ),
    computed(
        r"shf\.r\.clamp", "b32", "funnel_shift({a}, {b}, {c}, False, True)",
        "per_lane(lambda x, y, z: funnel_shift(x, y, z, False, True), 32, {a}, {b}, {c})",
    ),
]  # fmt: skip

_SHIFTS = {
    "shl": ("{a} << min({b}, {n})", "{a} << {b}", "shift_left({a}, {b}, {n})"),
    "shr": ("{a} >> min({b}, {n})", "{a} >> {b}", "shift_right({a}, {b}, {n}, {signed})"),
}


def _shift(code: Code, instruction: Instruction, match: re.Match) -> None:
    """Counts are clamped at the width. The lanes' expression is simpler for an immediate count below it."""
    count = instruction.operands[2]
    scalar, simple, lanes = _SHIFTS[match.group("op")]
    immediate = isinstance(count, Immediate) and 0 <= count.value < type_width(match.group("type"))
    code.compute(instruction, match.group("type"), scalar, simple if immediate else lanes, "au", None)


LOGIC = [
    computed("and", BITS, "{a} & {b}", "{a} & {b}"),
    computed("or", BITS, "{a} | {b}", "{a} | {b}"),
    computed("xor", BITS, "{a} ^ {b}", "{a} ^ {b}"),
    computed("not", BITS, "~{a}", "~{a}"),
    computed("cnot", BITS, "int({a} == 0)", "({a} == 0).astype(UINTS[{n}])"),
    row(r"(?P<op>shl|shr)\.(?P<type>[bus](?:16|32|64))", _shift),
    called(r"lop3\.b32", "logic3({1:v}, {2:v}, {3:v}, {4:i})"),
]


def _predicate_logic(symbol: str):
    scalar = {"&": "{a} and {b}", "|": "{a} or {b}", "^": "{a} is not {b}", "~": "not {a}", "=": "{a}"}[symbol]
    wide = {"~": "{a} ^ FULL", "=": "{a}"}.get(symbol, f"{{a}} {symbol} {{b}}")
    rows = {"~": "~{a}", "=": "{a}"}.get(symbol, f"{{a}} {symbol} {{b}}")

    def emit(code: Code, instruction: Instruction, match: re.Match) -> None:
        template, form = {
            "uniform": (scalar, code.boolean),
            "bits": (wide, code.predicate_bits),
            "lanes": (rows, code.predicate_row),
        }[code.kind]
        sources = dict(zip("ab", (form(operand) for operand in instruction.operands[1:]), strict=False))
        code.assign(instruction.operands[0], template.format(**sources), code.kind)

    return emit


PREDICATES = [
    row(r"and\.pred", _predicate_logic("&"), kind=widest_source),
    row(r"or\.pred", _predicate_logic("|"), kind=widest_source),
    row(r"xor\.pred", _predicate_logic("^"), kind=widest_source),
    row(r"not\.pred", _predicate_logic("~"), kind=widest_source),
    row(r"mov\.pred", _predicate_logic("="), kind=widest_source),
]

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


def _setp(code: Code, instruction: Instruction, match: re.Match) -> None:
    """setp.CmpOp{.BoolOp}{.ftz}.type p{|q}, a, b{, {!}c}."""
    destination, a, b, *combined = instruction.operands
    type_name, operator, combine = match.group("type"), match.group("op"), match.group("combine")
    if (combine is None) != (not combined):
        raise code.fail("a combining operation and a third source go together")
    is_float = "f" in type_name
    if code.kind == "uniform":
        left, right, source = code.integer(a, type_name), code.integer(b, type_name), code.boolean
    else:
        first_row = code.is_uniform(a) and code.is_uniform(b)
        left, right, source = code.lanes(a, type_name, row=first_row), code.lanes(b, type_name), code.predicate_row
    results = [comparison(operator, left, right, is_float)]
    targets = [destination]
    if isinstance(destination, Pair):
        results.append(f"(not {results[0]})" if code.kind == "uniform" else f"~{results[0]}")
        targets = [destination.first, destination.second]
    if combined:
        third = code.temporary()
        code.line(f"{third} = {source(combined[0])}")
        results = [f"{result} {_COMBINED[combine]} {third}" for result in results]
    if len(targets) == 1:
        code.assign(targets[0], results[0], code.kind)
        return
    values = [code.temporary() for _ in results]
    for value, result in zip(values, results, strict=True):
        code.line(f"{value} = {result}")
    for target, value in zip(targets, values, strict=True):
        if target != SINK:
            code.assign(target, value, code.kind)


def _set(code: Code, instruction: Instruction, match: re.Match) -> None:
    """set.CmpOp.dtype.stype d, a, b: all bits or 1.0 where the comparison holds."""
    destination, a, b = instruction.operands
    type_name, result = match.group("type"), match.group("result")
    left, right = code.lanes(a, type_name, row=True), code.lanes(b, type_name)
    holds = comparison(match.group("op"), left, right, "f" in type_name)
    width = type_width(result)
    one = 0x3F800000 if result == "f32" else (1 << width) - 1
    code.assign(destination, f"np.where({holds}, u{width}({one}), u{width}(0))", "lanes")


def _selp(code: Code, instruction: Instruction, match: re.Match) -> None:
    destination, a, b, predicate = instruction.operands
    width = type_width(match.group("type"))
    if code.kind == "uniform":
        code.assign(
            destination, f"{code.value(a, width)} if {code.boolean(predicate)} else {code.value(b, width)}", "uniform"
        )
        return
    first, second = (
        f"u{width}({code.value(x, width)})" if code.is_uniform(x) else code.value(x, width) for x in (a, b)
    )
    code.assign(destination, f"where({code.predicate_row(predicate)}, {first}, {second})", "lanes")


_COMPARED = "eq ne lt le gt ge lo ls hi hs".replace(" ", "|")
_FLOAT_COMPARED = "eq ne lt le gt ge equ neu ltu leu gtu geu num nan".replace(" ", "|")
_INTEGER_TYPES = (INTEGERS + " " + BITS).replace(" ", "|")

SELECTION = [
    row(rf"setp\.(?P<op>{_COMPARED})(?:\.(?P<combine>and|or|xor))?\.(?P<type>{_INTEGER_TYPES})", _setp),
    row(
        rf"setp\.(?P<op>{_FLOAT_COMPARED})(?:\.(?P<combine>and|or|xor))?(?:\.ftz)?\.(?P<type>f16|f32|f64)",
        _setp,
        kind=always_lanes,
    ),
    row(rf"set\.(?P<op>{_COMPARED})\.(?P<result>u32|s32|f32)\.(?P<type>{_INTEGER_TYPES})", _set, kind=always_lanes),
    row(rf"set\.(?P<op>{_FLOAT_COMPARED})(?:\.ftz)?\.(?P<result>u32|s32|f32)\.(?P<type>f32|f64)", _set, kind=always_lanes),
    row(rf"selp\.(?P<type>{_INTEGER_TYPES}|f16|f32|f64)", _selp, kind=same_as_sources),
    computed(
        "slct", "b32 u32 s32 b64 u64 s64", "{a} if {c} >= 0 else {b}", "where({c} >= 0, row_of({a}, {n}), row_of({b}, {n}))", "qqi",
        ending=r"\.s32",
    ),
]  # fmt: skip

ROWS: list[Row] = [*ARITHMETIC, *LOGIC, *PREDICATES, *SELECTION]
