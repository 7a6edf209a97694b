"""Rows of the opcode table: mma.sync (PTX ISA, "Warp-level Matrix Instructions: mma"), and what is left of wmma where
`compiler.wmma` has expanded it.

Block scaling and .kind::f8f6f4, which other chips have, are not modelled, nor are forms that nobody compiles for this
chip: single-bit operands, m8n8k4 of f16.
"""

from __future__ import annotations

import re

from nogpu import headers
from nogpu.arithmetic.numerics import DECODED
from nogpu.compiler import wmma
from nogpu.compiler.opcodes.rows import Row, always_lanes, called, refused
from nogpu.compiler.rowcode.assembler import Assembler
from nogpu.ptx.ir import Address, Instruction, Register, items_of

# Type of A -> (types of B, types of D and C, shapes).
_BYTES, _NIBBLES, _FP8 = ("s8", "u8"), ("s4", "u4"), ("e4m3", "e5m2")
_FORMS: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "f16": (("f16",), ("f16", "f32"), ("m16n8k8", "m16n8k16")),
    "bf16": (("bf16",), ("f32",), ("m16n8k8", "m16n8k16")),
    "tf32": (("tf32",), ("f32",), ("m16n8k4", "m16n8k8")),
    "f64": (("f64",), ("f64",), ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16")),
    **dict.fromkeys(_FP8, (_FP8, ("f16", "f32"), ("m16n8k16", "m16n8k32"))),
    **dict.fromkeys(_BYTES, (_BYTES, ("s32",), ("m8n8k16", "m16n8k16", "m16n8k32"))),
    **dict.fromkeys(_NIBBLES, (_NIBBLES, ("s32",), ("m8n8k32", "m16n8k32", "m16n8k64"))),
}
_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f64": 64, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4, "u4": 4}
_KINDS = ("f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8", "s4", "u4")  # in the order of native/warp_mma.c
_RESULTS = ("f32", "f16", "s32")
_MMA, _DOUBLE_MMA = (headers.packer("native/warp_mma.c", name) for name in ("WarpMma", "DoubleMma"))
_MOST, _MOST_F64 = (4, 2, 4, 4), (8, 4, 4, 4)  # registers of A, B, C and D
(_ONE,) = headers.constants("native/engine.h", "ONE_VALUE")  # flag of a slot with one value for all lanes


def _parsed(code: Assembler, instruction: Instruction, match: re.Match) -> tuple[int, list[tuple[object, ...]]]:
    """(m, registers of D, A, B and C). Raises EmulatorError for any form that is not modelled."""
    m, k = int(match.group("m")), int(match.group("k"))
    result, of_a, of_b = match.group("d"), match.group("a"), match.group("b")
    second, results, shapes = _FORMS[of_a]
    if match.group("shape") not in shapes or of_b not in second or result not in results or result != match.group("c"):
        raise code.fail(f"{instruction.opcode}: no combination of shape and types that is modelled (PTX ISA, mma)")
    if match.group("sat") and of_a not in (*_BYTES, *_NIBBLES):
        raise code.fail(f"{instruction.opcode}: .satfinite is for integers (PTX ISA, mma)")
    unit = max(32, _BITS[of_a])  # bits of a register of A and B
    counts = [m * 8 // 64 if result == "f16" else m * 8 // 32, m * k * _BITS[of_a] // unit // 32]
    counts += [8 * k * _BITS[of_a] // unit // 32, counts[0]]
    widths = ["b64" if result == "f64" else "b32", f"b{unit}", f"b{unit}"]
    found = []
    for name, operand, count, width in zip("DABC", instruction.operands, counts, [*widths, widths[0]]):
        items = items_of(operand)
        if len(items) != count:
            raise code.fail(f"{instruction.opcode}: {name} is {len(items)} registers, {count} expected")
        for item in items:
            if result == "f32" and name == "C":
                code.fits(item, "f32")
            else:
                code.fits(item, width)
        found.append(items)
    return m, found


def _kernels(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    result, of_a, of_b = match.group("d"), match.group("a"), match.group("b")
    m, (destination, *sources) = _parsed(code, instruction, match)
    doubles = of_a == "f64"
    word, most = ("b64", _MOST_F64) if doubles else ("b32", _MOST)
    slots = []
    for items, limit, type_name in zip(sources, most, (word, word, result if result in ("f32", "f64") else word)):
        found = [code.source(item, type_name) for item in items]
        slots += [source.offset | (0 if source.row else _ONE) for source in found] + [0] * (limit - len(items))
    places = [code.slots[item.name].offset for item in destination if isinstance(item, Register)]
    slots += places + [0] * (most[3] - len(places))
    if doubles:
        code.emit_described("warp_mma_f64", _DOUBLE_MMA.pack(m, int(match.group("k")), *slots))
        return
    tables = [DECODED[name].ctypes.data if name in DECODED else 0 for name in (of_a, of_b)]
    description = _MMA.pack(
        _KINDS.index(of_a),
        _KINDS.index(of_b),
        _RESULTS.index(result),
        m,
        int(match.group("k")),
        match.group("sat") is not None,
        *tables,
        *slots,
    )
    code.emit_described("warp_mma", description)


def _same_in_all_lanes(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    """Checks that all lanes execute wmma, with one address and one stride."""
    code.emit("whole_warp")
    for operand in instruction.operands:
        register = operand.base if isinstance(operand, Address) else operand
        if code.is_row(register):
            assert isinstance(register, Register)
            code.emit(f"same_{register.width}", a=code.slots[register.name].offset)


ROWS: list[Row] = [
    called(
        wmma.ACCESS,
        "active_lanes.same_in_all_lanes(g, {m}, ({0:x}, {1:v}), 'wmma')",
        (1, 2),
        writes=0,
        kernels=_same_in_all_lanes,
    ),
    called(wmma.PRODUCT, "active_lanes.all_lanes(g, {m}, 'wmma')", 0, writes=0, kernels=_same_in_all_lanes),
    refused(r"wmma\..+", "single-bit wmma, or a shape and types that the PTX ISA does not have (PTX ISA, wmma)"),
    refused(r"wgmma\..+", "wgmma is of sm_90a only, sm_100a has tcgen05.mma (PTX ISA, wgmma)"),
    called(
        r"mma\.sync\.aligned\.(?P<shape>m(?P<m>8|16)n8k(?P<k>4|8|16|32|64))\.row\.col(?P<sat>\.satfinite)?"
        r"\.(?P<d>f16|f32|f64|s32)\.(?P<a>{0})\.(?P<b>{0})\.(?P<c>f16|f32|f64|s32)".format("|".join(_FORMS)),
        "active_lanes.all_lanes(g, {m}, 'mma.sync')",
        4,
        kind=always_lanes,
        kernels=_kernels,
    ),
]
