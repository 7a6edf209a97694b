"""Rows of the opcode table: integer arithmetic, packed 16-bit arithmetic, bit fields, logic, shifts, predicates.

PTX ISA, "Integer Arithmetic Instructions", "Logic and Shift Instructions", "prmt".
"""

from __future__ import annotations

import re

from emulator.arithmetic.integers import PERMUTE_MODES
from emulator.compiler.code import Code
from emulator.compiler.opcodes.rows import Emit, Row, called, computed, row, widest_source
from emulator.ptx.ir import SINK, Immediate, Instruction, Pair
from emulator.ptx.types import type_width

INTEGERS = "u16 s16 u32 s32 u64 s64"
BITS = "b16 b32 b64"


def by_lane(
    pattern: str, types: str, function: str, sources: str = "abc", result: str | None = None, ending: str = ""
) -> Row:
    """A rare instruction, computed lane by lane. function: an expression of integers, as `rows.computed` takes it."""
    names = [letter for letter in "abcde" if f"{{{letter}}}" in function]
    body = function
    for letter in names:
        body = body.replace(f"{{{letter}}}", letter)
    width = result[1:] if result and result[1:].isdigit() else "{n}"
    sources_text = ", ".join(f"{{{letter}}}" for letter in names)
    lanes = f"integers.per_lane(lambda {', '.join(names)}: {body}, {width}, {sources_text})"
    return computed(pattern, types, function, lanes, sources, result or "unsigned", ending)


ARITHMETIC = [
    computed("add", INTEGERS, "{a} + {b}", "{a} + {b}", "qq", "unsigned"),
    computed("sub", INTEGERS, "{a} - {b}", "{a} - {b}", "qq", "unsigned"),
    by_lane(r"add\.sat", "s32", "integers.clamped({a} + {b}, {n})"),
    by_lane(r"sub\.sat", "s32", "integers.clamped({a} - {b}, {n})"),
    computed(r"mul\.lo", INTEGERS, "{a} * {b}", "{a} * {b}", "qq", "unsigned"),
    computed(r"mad\.lo", INTEGERS, "{a} * {b} + {c}", "{a} * {b} + {c}", "qqq", "unsigned"),
    computed(r"mul\.hi", INTEGERS, "{a} * {b} >> {n}", "integers.multiply_high({a}, {b}, {n}, {signed})"),
    computed(
        r"mad\.hi",
        INTEGERS,
        "({a} * {b} >> {n}) + {c}",
        "integers.multiply_high({a}, {b}, {n}, {signed}).view(UINTS[{n}]) + {c}",
        "abq",
        "unsigned",
    ),
    by_lane(r"mad\.hi\.sat", "s32", "integers.clamped(({a} * {b} >> {n}) + {c}, {n})"),
    computed(r"mul\.wide", "u16 u32", "{a} * {b}", "np.multiply({a}, {b}, dtype=UINTS[2 * {n}])", result="wide"),
    computed(r"mul\.wide", "s16 s32", "{a} * {b}", "np.multiply({a}, {b}, dtype=INTS[2 * {n}])", result="wide"),
    computed(
        r"mad\.wide", "u16 u32", "{a} * {b} + {c}", "np.multiply({a}, {b}, dtype=UINTS[2 * {n}]) + {c}", "abw", "wide"
    ),
    computed(
        r"mad\.wide", "s16 s32", "{a} * {b} + {c}", "np.multiply({a}, {b}, dtype=INTS[2 * {n}]) + {c}", "abw", "wide"
    ),
    by_lane(r"mul24\.lo", "u32 s32", "integers.product24({a}, {b}, {signed})", "qq"),
    by_lane(r"mul24\.hi", "u32 s32", "integers.product24({a}, {b}, {signed}) >> 16", "qq"),
    by_lane(r"mad24\.lo", "u32 s32", "integers.product24({a}, {b}, {signed}) + {c}", "qqq"),
    by_lane(r"mad24\.hi", "u32 s32", "(integers.product24({a}, {b}, {signed}) >> 16) + {c}", "qqq"),
    by_lane(r"mad24\.hi\.sat", "s32", "integers.clamped((integers.product24({a}, {b}, True) >> 16) + {c}, 32)"),
    computed("div", INTEGERS, "integers.divide_scalar({a}, {b})", "integers.divide({a}, {b}, {n}, {signed})"),
    computed("rem", INTEGERS, "integers.remainder_scalar({a}, {b})", "integers.remainder({a}, {b}, {n}, {signed})"),
    computed("min", INTEGERS, "min({a}, {b})", "np.minimum({a}, {b})"),
    computed("max", INTEGERS, "max({a}, {b})", "np.maximum({a}, {b})"),
    computed(r"min\.relu", "s32", "max(min({a}, {b}), 0)", "np.maximum(np.minimum({a}, {b}), 0)"),
    computed(r"max\.relu", "s32", "max({a}, {b}, 0)", "np.maximum(np.maximum({a}, {b}), 0)"),
    computed("neg", "s16 s32 s64", "-{a}", "-{a}", "q", "unsigned"),
    computed("abs", "s16 s32 s64", "abs({a})", "np.abs({a})"),
    computed("sad", INTEGERS, "{c} + abs({a} - {b})", "{c} + (np.maximum({a}, {b}) - np.minimum({a}, {b}))"),
    by_lane(r"dp4a\.u32", "u32 s32", "integers.dot_bytes({a}, {b}, {c}, False, {signed})", "qqq"),
    by_lane(r"dp4a\.s32", "u32 s32", "integers.dot_bytes({a}, {b}, {c}, True, {signed})", "qqq"),
    *(
        by_lane(
            rf"dp2a\.{half}\.{kind}32",
            "u32 s32",
            f"integers.dot_halves({{a}}, {{b}}, {{c}}, {kind == 's'}, {{signed}}, {half == 'hi'})",
            "qqq",
        )
        for half in ("lo", "hi")
        for kind in "us"
    ),
]

_PAIRS = "(({}).view(u32))"
PACKED = [
    computed(
        "add", "u16x2 s16x2", None, _PAIRS.format("integers.halves({a}, u16) + integers.halves({b}, u16)"), "qq", "u32"
    ),
    *(
        computed(
            name,
            types,
            None,
            _PAIRS.format(f"{function}(integers.halves({{a}}, {dtype}), integers.halves({{b}}, {dtype}))"),
            "qq",
            "u32",
        )
        for name, function in (("min", "np.minimum"), ("max", "np.maximum"))
        for types, dtype in (("u16x2", "u16"), ("s16x2", "i16"))
    ),
    *(
        computed(
            rf"{name}\.relu",
            "s16x2",
            None,
            _PAIRS.format(f"np.maximum({function}(integers.halves({{a}}, i16), integers.halves({{b}}, i16)), i16(0))"),
            "qq",
            "u32",
        )
        for name, function in (("min", "np.minimum"), ("max", "np.maximum"))
    ),
]

BIT_FIELDS = [
    computed("popc", "b32 b64", "{a}.bit_count()", "integers.bit_count({a})", result="u32"),
    computed("clz", "b32 b64", "{n} - {a}.bit_length()", "integers.leading_zeros({a}, {n})", result="u32"),
    by_lane("brev", "b32 b64", "integers.reverse_bits({a}, {n})"),
    by_lane("bfind", "u32 s32 u64 s64", "integers.find_leading({a}, {n}, {signed}, False)", result="u32"),
    by_lane(r"bfind\.shiftamt", "u32 s32 u64 s64", "integers.find_leading({a}, {n}, {signed}, True)", result="u32"),
    by_lane("bfe", "u32 s32 u64 s64", "integers.extract_field({a}, {b}, {c}, {n}, {signed})", "quu"),
    by_lane("bfi", "b32 b64", "integers.insert_field({a}, {b}, {c}, {d}, {n})", "abuu"),
    by_lane("fns", "b32", "integers.find_nth_set({a}, {b}, {c})", "uui"),
    *(
        by_lane(rf"bmsk\.{mode}", "b32", f"integers.bit_mask({{a}}, {{b}}, {mode == 'clamp'})")
        for mode in ("clamp", "wrap")
    ),
    *(
        by_lane(
            rf"szext\.{mode}", "u32 s32", f"integers.extend_bits({{a}}, {{b}}, {{signed}}, {mode == 'clamp'})", "uu"
        )
        for mode in ("clamp", "wrap")
    ),
    computed(
        "prmt",
        "b32",
        "integers.permute_bytes({a}, {b}, {c})",
        "integers.permute_bytes_row(row_of({a}, 32), row_of({b}, 32), {c})",
    ),
    *(
        by_lane("prmt", "b32", f"integers.permute_mode({{a}}, {{b}}, {{c}}, {mode!r})", ending=rf"\.{mode}")
        for mode in PERMUTE_MODES
    ),
    *(
        by_lane(
            rf"shf\.{way}\.{mode}",
            "b32",
            f"integers.funnel_shift({{a}}, {{b}}, {{c}}, {way == 'l'}, {mode == 'clamp'})",
        )
        for way in "lr"
        for mode in ("wrap", "clamp")
    ),
]

_SHIFTS = {
    "shl": ("{a} << min({b}, {n})", "{a} << {b}", "integers.shift_left({a}, {b}, {n})"),
    "shr": ("{a} >> min({b}, {n})", "{a} >> {b}", "integers.shift_right({a}, {b}, {n}, {signed})"),
}


def _shift(code: Code, instruction: Instruction, match: re.Match) -> None:
    """shl and shr: counts are clamped to the width. An immediate count below it has a simpler expression of rows."""
    count = instruction.operands[2]
    scalar, simple, lanes = _SHIFTS[match.group("op")]
    immediate = isinstance(count, Immediate) and 0 <= count.value < type_width(match.group("type"))
    code.compute(instruction, match.group("type"), scalar, simple if immediate else lanes, "au", None)


def _logic_with_predicate(code: Code, instruction: Instruction, match: re.Match) -> None:
    """lop3.BoolOp.b32 d|p, a, b, c, immLut, {!}q: p = (d != 0) BoolOp q."""
    destination, a, b, c, table, combined = instruction.operands
    if not isinstance(destination, Pair):
        raise code.fail("lop3 with a Boolean operation needs two destinations, d|p")
    uniform, result = code.kind == "uniform", code.temporary()
    code.line(f"{result} = integers.logic3({code.value(a)}, {code.value(b)}, {code.value(c)}, {code.single(table)})")
    if not uniform:
        code.line(f"{result} = row_of({result}, 32)")
    predicate = code.boolean(combined) if uniform else code.predicate_row(combined)
    operator = {"and": "&", "or": "|"}[match.group("combine")]
    holds = code.temporary()
    code.line(f"{holds} = ({result} != 0) {operator} {predicate}")
    for target, text in ((destination.first, result), (destination.second, holds)):
        if target != SINK:
            code.assign(target, text, code.kind)


LOGIC = [
    computed("and", BITS, "{a} & {b}", "{a} & {b}"),
    computed("or", BITS, "{a} | {b}", "{a} | {b}"),
    computed("xor", BITS, "{a} ^ {b}", "{a} ^ {b}"),
    computed("not", BITS, "~{a}", "~{a}"),
    computed("cnot", BITS, "int({a} == 0)", "({a} == 0).astype(UINTS[{n}])"),
    row(r"(?P<op>shl|shr)\.(?P<type>[bus](?:16|32|64))", _shift, 3),
    called(r"lop3\.b32", "integers.logic3({1:v}, {2:v}, {3:v}, {4:i})", takes="b32 b32 b32 b32 #"),
    row(r"lop3\.(?P<combine>and|or)\.b32", _logic_with_predicate, takes="b32|p b32 b32 b32 # p"),
]


def _predicate_logic(symbol: str) -> Emit:
    """The emitter of an operation on predicates: &, |, ^, ~ or = (a copy)."""
    scalar = {"&": "{a} and {b}", "|": "{a} or {b}", "^": "{a} is not {b}", "~": "not {a}", "=": "{a}"}[symbol]
    wide = {"~": "{a} ^ FULL", "=": "{a}"}.get(symbol, f"{{a}} {symbol} {{b}}")
    rows = {"~": "~{a}", "=": "{a}"}.get(symbol, f"{{a}} {symbol} {{b}}")

    def emit(code: Code, instruction: Instruction, match: re.Match) -> None:
        template, form = {
            "uniform": (scalar, code.boolean),
            "bits": (wide, code.predicate_bits),
            "lanes": (rows, code.predicate_row),
        }[code.kind]
        sources = {key: form(operand) for key, operand in zip("ab", instruction.operands[1:], strict=False)}
        code.assign(instruction.operands[0], template.format(**sources), code.kind)

    return emit


PREDICATES = [
    row(r"and\.pred", _predicate_logic("&"), kind=widest_source, takes="p p p"),
    row(r"or\.pred", _predicate_logic("|"), kind=widest_source, takes="p p p"),
    row(r"xor\.pred", _predicate_logic("^"), kind=widest_source, takes="p p p"),
    row(r"not\.pred", _predicate_logic("~"), kind=widest_source, takes="p p"),
    row(r"mov\.pred", _predicate_logic("="), kind=widest_source, takes="p p"),
]

ROWS: list[Row] = [*ARITHMETIC, *PACKED, *BIT_FIELDS, *LOGIC, *PREDICATES]
