"""Rows of the opcode table: integer arithmetic, packed 16-bit arithmetic, bit fields, logic, shifts, predicates.

PTX ISA, "Integer Arithmetic Instructions", "Logic and Shift Instructions", "prmt".
"""

from __future__ import annotations

import re

from nogpu.arithmetic.integers import PERMUTE_MODES
from nogpu.compiler.code import Code
from nogpu.compiler.opcodes.rows import Emit, Row, called, computed, row, widest_source
from nogpu.compiler.rowcode.assembler import Assembler
from nogpu.ptx.ir import SINK, Immediate, Instruction, Pair
from nogpu.ptx.types import type_width

INTEGERS = "u16 s16 u32 s32 u64 s64"
BITS = "b16 b32 b64"


def by_lane(
    pattern: str,
    types: str,
    function: str,
    sources: str = "abc",
    result: str | None = None,
    ending: str = "",
    kernel: str | None = None,
    constant: int = 0,
) -> Row:
    """A rare instruction, its Python text lane by lane. function: an expression of integers, as `rows.computed` takes
    it, and the other parameters too.
    """
    names = [letter for letter in "abcde" if f"{{{letter}}}" in function]
    body = function
    for letter in names:
        body = body.replace(f"{{{letter}}}", letter)
    width = result[1:] if result and result[1:].isdigit() else "{n}"
    sources_text = ", ".join(f"{{{letter}}}" for letter in names)
    lanes = f"integers.per_lane(lambda {', '.join(names)}: {body}, {width}, {sources_text})"
    return computed(pattern, types, function, lanes, sources, result or "unsigned", ending, kernel, constant)


ARITHMETIC = [
    computed("add", INTEGERS, "{a} + {b}", "{a} + {b}", "qq", "unsigned", kernel="add_{w}"),
    computed("sub", INTEGERS, "{a} - {b}", "{a} - {b}", "qq", "unsigned", kernel="sub_{w}"),
    by_lane(r"add\.sat", "s32", "integers.clamped({a} + {b}, {n})", kernel="addsat_s32"),
    by_lane(r"sub\.sat", "s32", "integers.clamped({a} - {b}, {n})", kernel="subsat_s32"),
    computed(r"mul\.lo", INTEGERS, "{a} * {b}", "{a} * {b}", "qq", "unsigned", kernel="mul_{w}"),
    computed(r"mad\.lo", INTEGERS, "{a} * {b} + {c}", "{a} * {b} + {c}", "qqq", "unsigned", kernel="mad_{w}"),
    computed(
        r"mul\.hi", INTEGERS, "{a} * {b} >> {n}", "integers.multiply_high({a}, {b}, {n}, {signed})", kernel="mulhi_{t}"
    ),
    computed(
        r"mad\.hi",
        INTEGERS,
        "({a} * {b} >> {n}) + {c}",
        "integers.multiply_high({a}, {b}, {n}, {signed}).view(UINTS[{n}]) + {c}",
        "abq",
        "unsigned",
        kernel="madhi_{t}",
    ),
    by_lane(r"mad\.hi\.sat", "s32", "integers.clamped(({a} * {b} >> {n}) + {c}, {n})", kernel="madhisat_s32"),
    computed(
        r"mul\.wide",
        "u16 u32",
        "{a} * {b}",
        "np.multiply({a}, {b}, dtype=UINTS[2 * {n}])",
        result="wide",
        kernel="mulwide_{t}",
    ),
    computed(
        r"mul\.wide",
        "s16 s32",
        "{a} * {b}",
        "np.multiply({a}, {b}, dtype=INTS[2 * {n}])",
        result="wide",
        kernel="mulwide_{t}",
    ),
    computed(
        r"mad\.wide",
        "u16 u32",
        "{a} * {b} + {c}",
        "np.multiply({a}, {b}, dtype=UINTS[2 * {n}]) + {c}",
        "abw",
        "wide",
        kernel="madwide_{t}",
    ),
    computed(
        r"mad\.wide",
        "s16 s32",
        "{a} * {b} + {c}",
        "np.multiply({a}, {b}, dtype=INTS[2 * {n}]) + {c}",
        "abw",
        "wide",
        kernel="madwide_{t}",
    ),
    by_lane(r"mul24\.lo", "u32 s32", "integers.product24({a}, {b}, {signed})", "qq", kernel="mul24lo_{t}"),
    by_lane(r"mul24\.hi", "u32 s32", "integers.product24({a}, {b}, {signed}) >> 16", "qq", kernel="mul24hi_{t}"),
    by_lane(r"mad24\.lo", "u32 s32", "integers.product24({a}, {b}, {signed}) + {c}", "qqq", kernel="mad24lo_{t}"),
    by_lane(
        r"mad24\.hi", "u32 s32", "(integers.product24({a}, {b}, {signed}) >> 16) + {c}", "qqq", kernel="mad24hi_{t}"
    ),
    by_lane(
        r"mad24\.hi\.sat",
        "s32",
        "integers.clamped((integers.product24({a}, {b}, True) >> 16) + {c}, 32)",
        kernel="mad24hisat_s32",
    ),
    computed(
        "div",
        INTEGERS,
        "integers.divide_scalar({a}, {b})",
        "integers.divide({a}, {b}, {n}, {signed})",
        kernel="div_{t}",
    ),
    computed(
        "rem",
        INTEGERS,
        "integers.remainder_scalar({a}, {b})",
        "integers.remainder({a}, {b}, {n}, {signed})",
        kernel="rem_{t}",
    ),
    computed("min", INTEGERS, "min({a}, {b})", "np.minimum({a}, {b})", kernel="min_{t}"),
    computed("max", INTEGERS, "max({a}, {b})", "np.maximum({a}, {b})", kernel="max_{t}"),
    computed(r"min\.relu", "s32", "max(min({a}, {b}), 0)", "np.maximum(np.minimum({a}, {b}), 0)", kernel="minrelu_{t}"),
    computed(r"max\.relu", "s32", "max({a}, {b}, 0)", "np.maximum(np.maximum({a}, {b}), 0)", kernel="maxrelu_{t}"),
    computed("neg", "s16 s32 s64", "-{a}", "-{a}", "q", "unsigned", kernel="neg_{w}"),
    computed("abs", "s16 s32 s64", "abs({a})", "np.abs({a})", kernel="abs_{w}"),
    computed(
        "sad", INTEGERS, "{c} + abs({a} - {b})", "{c} + (np.maximum({a}, {b}) - np.minimum({a}, {b}))", kernel="sad_{t}"
    ),
    by_lane(
        r"dp4a\.u32", "u32 s32", "integers.dot_bytes({a}, {b}, {c}, False, {signed})", "qqq", kernel="dp4a_u32_{t}"
    ),
    by_lane(r"dp4a\.s32", "u32 s32", "integers.dot_bytes({a}, {b}, {c}, True, {signed})", "qqq", kernel="dp4a_s32_{t}"),
    *(
        by_lane(
            rf"dp2a\.{half}\.{kind}32",
            "u32 s32",
            f"integers.dot_halves({{a}}, {{b}}, {{c}}, {kind == 's'}, {{signed}}, {half == 'hi'})",
            "qqq",
            kernel=f"dp2a{half}_{kind}32_{{t}}",
        )
        for half in ("lo", "hi")
        for kind in "us"
    ),
]

_PAIRS = "(({}).view(u32))"
PACKED = [
    computed(
        "add",
        "u16x2 s16x2",
        None,
        _PAIRS.format("integers.halves({a}, u16) + integers.halves({b}, u16)"),
        "qq",
        "u32",
        kernel="add_u16x2",
    ),
    *(
        computed(
            name,
            types,
            None,
            _PAIRS.format(f"{function}(integers.halves({{a}}, {dtype}), integers.halves({{b}}, {dtype}))"),
            "qq",
            "u32",
            kernel=name + "_{f}",
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
            kernel=name + "relu_{f}",
        )
        for name, function in (("min", "np.minimum"), ("max", "np.maximum"))
    ),
]

BIT_FIELDS = [
    computed("popc", "b32 b64", "({a}).bit_count()", "integers.bit_count({a})", result="u32", kernel="popc_{w}"),
    computed(
        "clz", "b32 b64", "{n} - ({a}).bit_length()", "integers.leading_zeros({a}, {n})", result="u32", kernel="clz_{w}"
    ),
    by_lane("brev", "b32 b64", "integers.reverse_bits({a}, {n})", kernel="brev_{w}"),
    by_lane(
        "bfind", "u32 s32 u64 s64", "integers.find_leading({a}, {n}, {signed}, False)", result="u32", kernel="bfind_{t}"
    ),
    by_lane(
        r"bfind\.shiftamt",
        "u32 s32 u64 s64",
        "integers.find_leading({a}, {n}, {signed}, True)",
        result="u32",
        kernel="bfindshift_{t}",
    ),
    by_lane("bfe", "u32 s32 u64 s64", "integers.extract_field({a}, {b}, {c}, {n}, {signed})", "quu", kernel="bfe_{t}"),
    by_lane("bfi", "b32 b64", "integers.insert_field({a}, {b}, {c}, {d}, {n})", "abuu", kernel="bfi_{w}"),
    by_lane("fns", "b32", "integers.find_nth_set({a}, {b}, {c})", "uui", kernel="fns_32"),
    *(
        by_lane(rf"bmsk\.{mode}", "b32", f"integers.bit_mask({{a}}, {{b}}, {mode == 'clamp'})", kernel=f"bmsk_{mode}")
        for mode in ("clamp", "wrap")
    ),
    *(
        by_lane(
            rf"szext\.{mode}",
            "u32 s32",
            f"integers.extend_bits({{a}}, {{b}}, {{signed}}, {mode == 'clamp'})",
            "uu",
            kernel=f"szext_{mode}_{{t}}",
        )
        for mode in ("clamp", "wrap")
    ),
    computed(
        "prmt",
        "b32",
        "integers.permute_bytes({a}, {b}, {c})",
        "integers.permute_bytes_row(row_of({a}, 32), row_of({b}, 32), {c})",
        kernel="prmt_32",
    ),
    *(
        by_lane(
            "prmt",
            "b32",
            f"integers.permute_mode({{a}}, {{b}}, {{c}}, {mode!r})",
            ending=rf"\.{mode}",
            kernel="prmt_mode",
            constant=sum(selector << 16 * i for i, selector in enumerate(selectors)),
        )
        for mode, selectors in PERMUTE_MODES.items()
    ),
    *(
        by_lane(
            rf"shf\.{way}\.{mode}",
            "b32",
            f"integers.funnel_shift({{a}}, {{b}}, {{c}}, {way == 'l'}, {mode == 'clamp'})",
            kernel=f"shf_{way}_{mode}",
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


def _shift_kernels(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    code.compute(instruction, match.group("type"), {"shl": "shl_{w}", "shr": "shr_{t}"}[match.group("op")], "au")


def _logic_kernels(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    """lop3, with or without a Boolean operation."""
    destination, *operands = instruction.operands
    sources = [code.source(operand, "b32") for operand in operands[:3]]
    table = operands[3].value & 0xFF
    if not isinstance(destination, Pair):
        code.operation("lop3_32", destination, sources, table)
        return
    result = code.intermediate("lop3_32", 32, sources, table)
    holds = code.intermediate("ne_32", 1, [result, code.constant(0)])
    combined = code.source(operands[4], "pred")
    code.operation("mov_32", destination.first, [result])
    code.operation(f"{match.group('combine')}_pred", destination.second, [holds, combined])


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
    computed("and", BITS, "{a} & {b}", "{a} & {b}", kernel="and_{w}"),
    computed("or", BITS, "{a} | {b}", "{a} | {b}", kernel="or_{w}"),
    computed("xor", BITS, "{a} ^ {b}", "{a} ^ {b}", kernel="xor_{w}"),
    computed("not", BITS, "~{a}", "~{a}", kernel="not_{w}"),
    computed("cnot", BITS, "int({a} == 0)", "({a} == 0).astype(UINTS[{n}])", kernel="cnot_{w}"),
    row(r"(?P<op>shl|shr)\.(?P<type>[bus](?:16|32|64))", _shift, 3, kernels=_shift_kernels),
    called(
        r"lop3\.b32", "integers.logic3({1:v}, {2:v}, {3:v}, {4:i})", takes="b32 b32 b32 b32 #", kernels=_logic_kernels
    ),
    row(
        r"lop3\.(?P<combine>and|or)\.b32", _logic_with_predicate, takes="b32|p b32 b32 b32 # p", kernels=_logic_kernels
    ),
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


def _predicate_row(name: str, symbol: str, takes: str) -> Row:
    def kernels(code: Assembler, instruction: Instruction, match: re.Match) -> None:
        destination, *operands = instruction.operands
        code.operation(f"{name}_pred", destination, [code.source(operand, "pred") for operand in operands])

    return row(rf"{name}\.pred", _predicate_logic(symbol), kind=widest_source, takes=takes, kernels=kernels)


PREDICATES = [
    _predicate_row("and", "&", "p p p"),
    _predicate_row("or", "|", "p p p"),
    _predicate_row("xor", "^", "p p p"),
    _predicate_row("not", "~", "p p"),
    _predicate_row("mov", "=", "p p"),
]

ROWS: list[Row] = [*ARITHMETIC, *PACKED, *BIT_FIELDS, *LOGIC, *PREDICATES]
