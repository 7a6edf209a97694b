"""Rows of the opcode table: integer arithmetic, packed 16-bit arithmetic, bit fields, logic, shifts, predicates.

PTX ISA, "Integer Arithmetic Instructions", "Logic and Shift Instructions", "prmt", "SIMD Video Instructions".
"""

from __future__ import annotations

import re

from nogpu import headers
from nogpu.compiler.opcodes.rows import Row, always_lanes, computed, row, widest_source
from nogpu.compiler.rowcode.assembler import Assembler
from nogpu.ptx.ir import Instruction, Pair

_VIDEO = headers.enumerators("native/products.c", "Video")
_HALVES, _SIGNED, _SIGNED_A, _SIGNED_B, _SAT, _SUMS = headers.constants(
    "native/products.c", *(f"VIDEO_{name}" for name in ("HALVES", "SIGNED", "SIGNED_A", "SIGNED_B", "SAT", "SUMS"))
)
INTEGERS = "u16 s16 u32 s32 u64 s64"
BITS = "b16 b32 b64"
PERMUTE_MODES = {
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543),
    "b4e": (0x5670, 0x6701, 0x7012, 0x0123),
    "rc8": (0x0000, 0x1111, 0x2222, 0x3333),
    "ecl": (0x3210, 0x3211, 0x3222, 0x3333),
    "ecr": (0x0000, 0x1110, 0x2210, 0x3210),
    "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}
"""Mode of prmt -> the equivalent selector without a mode, by the third source's two low bits (PTX ISA, "prmt")."""

ARITHMETIC = [
    computed("add", INTEGERS, "add_{w}", "qq"),
    computed("sub", INTEGERS, "sub_{w}", "qq"),
    computed(r"add\.sat", "s32", "addsat_s32"),
    computed(r"sub\.sat", "s32", "subsat_s32"),
    computed(r"mul\.lo", INTEGERS, "mul_{w}", "qq"),
    computed(r"mad\.lo", INTEGERS, "mad_{w}", "qqq"),
    computed(r"mul\.hi", INTEGERS, "mulhi_{t}"),
    computed(r"mad\.hi", INTEGERS, "madhi_{t}", "ttq"),
    computed(r"mad\.hi\.sat", "s32", "madhisat_s32", "ttt"),
    computed(r"mul\.wide", "u16 u32 s16 s32", "mulwide_{t}", result="wide"),
    computed(r"mad\.wide", "u16 u32 s16 s32", "madwide_{t}", "ttw", "wide"),
    *(computed(rf"mul24\.{half}", "u32 s32", f"mul24{half}_{{t}}", "qq") for half in ("lo", "hi")),
    *(computed(rf"mad24\.{half}", "u32 s32", f"mad24{half}_{{t}}", "qqq") for half in ("lo", "hi")),
    computed(r"mad24\.hi\.sat", "s32", "mad24hisat_s32", "ttt"),
    *(computed(name, INTEGERS, name + "_{t}") for name in ("div", "rem", "min", "max")),
    *(computed(rf"{name}\.relu", "s32", name + "relu_{t}") for name in ("min", "max")),
    computed("neg", "s16 s32 s64", "neg_{w}", "q"),
    computed("abs", "s16 s32 s64", "abs_{w}", "t"),
    computed("sad", INTEGERS, "sad_{t}", "ttt"),
    *(computed(rf"dp4a\.{a}32", "u32 s32", f"dp4a_{a}32_{{t}}", "qqq") for a in "us"),
    *(
        computed(rf"dp2a\.{half}\.{a}32", "u32 s32", f"dp2a{half}_{a}32_{{t}}", "qqq")
        for half in ("lo", "hi")
        for a in "us"
    ),
]


def _video(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    """Emits a SIMD video instruction on the elements in their order."""
    found = match.groupdict()
    form = _VIDEO.index(f"VIDEO_{found['name'].upper()}") | (found["parts"] == "2") * _HALVES
    form |= (found.get("result") == "s") * _SIGNED | (found["a"] == "s") * _SIGNED_A | (found["b"] == "s") * _SIGNED_B
    form |= (found["ending"] == ".sat") * _SAT | (found["ending"] == ".add") * _SUMS
    destination, *operands = instruction.operands
    code.operation("video_32", destination, [code.source(operand, "b32") for operand in operands], form)


PACKED = [
    row(
        r"v(?P<name>add|sub|avrg|absdiff|min|max)(?P<parts>[24])\.(?P<result>[us])32\.(?P<a>[us])32\.(?P<b>[us])32"
        r"(?P<ending>\.sat|\.add)?",
        takes="b32 b32 b32 b32",
        kernels=_video,
    ),
    row(
        r"vset(?P<parts>[24])\.(?P<a>[us])32\.(?P<b>[us])32\.(?P<name>eq|ne|lt|le|gt|ge)(?P<ending>\.add)?",
        takes="b32 b32 b32 b32",
        kernels=_video,
    ),
    computed("add", "u16x2 s16x2", "add_u16x2", "qq", kind=always_lanes),
    *(computed(name, "u16x2 s16x2", name + "_{f}", "qq", kind=always_lanes) for name in ("min", "max")),
    *(computed(rf"{name}\.relu", "s16x2", name + "relu_{f}", "qq", kind=always_lanes) for name in ("min", "max")),
]

BIT_FIELDS = [
    *(computed(name, "b32 b64", name + "_{w}", "t", "u32") for name in ("popc", "clz")),
    computed("brev", "b32 b64", "brev_{w}", "t"),
    computed("bfind", "u32 s32 u64 s64", "bfind_{t}", "t", "u32"),
    computed(r"bfind\.shiftamt", "u32 s32 u64 s64", "bfindshift_{t}", "t", "u32"),
    computed("bfe", "u32 s32 u64 s64", "bfe_{t}", "quu"),
    computed("bfi", "b32 b64", "bfi_{w}", "ttuu"),
    computed("fns", "b32", "fns_32", "uui"),
    *(computed(rf"bmsk\.{mode}", "b32", f"bmsk_{mode}") for mode in ("clamp", "wrap")),
    *(computed(rf"szext\.{mode}", "u32 s32", f"szext_{mode}_{{t}}", "uu") for mode in ("clamp", "wrap")),
    computed("prmt", "b32", "prmt_32", "ttt"),
    *(
        computed(
            "prmt",
            "b32",
            "prmt_mode",
            "ttt",
            ending=rf"\.{mode}",
            constant=sum(selector << 16 * i for i, selector in enumerate(selectors)),
        )
        for mode, selectors in PERMUTE_MODES.items()
    ),
    *(
        computed(rf"shf\.{way}\.{mode}", "b32", f"shf_{way}_{mode}", "ttt")
        for way in "lr"
        for mode in ("wrap", "clamp")
    ),
]


def _logic(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    """Emits lop3, with or without a Boolean operation."""
    destination, *operands = instruction.operands
    sources = [code.source(operand, "b32") for operand in operands[:3]]
    table = operands[3].value & 0xFF
    if "combine" not in match.groupdict():
        code.operation("lop3_32", destination, sources, table)
        return
    if not isinstance(destination, Pair):
        raise code.fail("lop3 with a Boolean operation needs two destinations, d|p")
    result = code.intermediate("lop3_32", 32, sources, table)
    holds = code.intermediate("ne_32", 1, [result, code.constant(0)])
    combined = code.source(operands[4], "pred")
    code.operation("mov_32", destination.first, [result])
    code.operation(f"{match.group('combine')}_pred", destination.second, [holds, combined])


LOGIC = [
    *(computed(name, BITS, name + "_{w}") for name in ("and", "or", "xor")),
    *(computed(name, BITS, name + "_{w}", "t") for name in ("not", "cnot")),
    computed("shl", f"{BITS} {INTEGERS}", "shl_{w}", "tu"),
    computed("shr", f"{BITS} {INTEGERS}", "shr_{t}", "tu"),
    row(r"lop3\.b32", takes="b32 b32 b32 b32 #", kernels=_logic),
    row(r"lop3\.(?P<combine>and|or)\.b32", takes="b32|p b32 b32 b32 # p", kernels=_logic),
]


def _predicates(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    destination, *operands = instruction.operands
    code.operation(f"{match.group('name')}_pred", destination, [code.source(operand, "pred") for operand in operands])


PREDICATES = [
    row(r"(?P<name>and|or|xor)\.pred", kind=widest_source, takes="p p p", kernels=_predicates),
    row(r"(?P<name>not|mov)\.pred", kind=widest_source, takes="p p", kernels=_predicates),
]

ROWS: list[Row] = [*ARITHMETIC, *PACKED, *BIT_FIELDS, *LOGIC, *PREDICATES]
