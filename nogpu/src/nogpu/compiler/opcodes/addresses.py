"""Rows of the opcode table: conversion of addresses, cache hints (PTX ISA, "Data Movement and Conversion")."""

from __future__ import annotations

import re

from nogpu.compiler.opcodes.rows import Row, called, ignored, row
from nogpu.compiler.operands import SHARED_BASE
from nogpu.compiler.rowcode.assembler import Assembler, Source
from nogpu.ops.memory import LOCAL_TAG, SHARED_TAG, TAG_SHIFT
from nogpu.ptx.ir import Instruction
from nogpu.ptx.types import type_width

_SHARED_BITS = SHARED_TAG << TAG_SHIFT
_LOCAL_BITS = LOCAL_TAG << TAG_SHIFT
_HIGH_HALF = (1 << 64) - (1 << 32)
_TAGS = {"shared": _SHARED_BITS, "local": _LOCAL_BITS}
_OWN_SPACES = {"shared::cta": "shared", "shared::cluster": "shared", "const": "global"}  # as in `Assembler.place`
_PRIORITIES = r"L2::evict_(?:last|normal|first|unchanged)(?:\.L2::evict_(?:first|unchanged))?"


def _convert(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    """cvta: shared and local addresses get or lose their tag, global ones stay as they are.

    A parameter's address may be kept in 32 bits, the low half of its generic address; the high half is added here.
    """
    destination, source = instruction.operands
    space, to_space = match.group("space"), match.group("to") is not None
    if match.group("type") == "u32":
        raise code.fail("32-bit generic addresses are not modelled")
    if to_space:
        code.fits(source, "u64")
    value, tag = code.place(source, "b64", _OWN_SPACES.get(space, space)), _TAGS.get(space.partition("::")[0], 0)
    if space == "param" and not to_space:
        low = code.intermediate("and_64", 64, [value, code.constant((1 << 32) - 1)])
        high = code.intermediate("and_64", 64, [code.parameters, code.constant(_HIGH_HALF)])
        code.operation("or_64", destination, [low, high])
    elif not tag:
        code.operation("mov_64", destination, [value])
    elif to_space:
        code.operation("and_64", destination, [value, code.constant((1 << 32) - 1)])
    else:
        code.operation("or_64", destination, [value, code.constant(tag)])


def _map(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    """mapa: the address of the same offset in the CTA of another rank."""
    destination, source, rank = instruction.operands
    width = type_width(match.group("type"))
    ranks = code.source(rank, "u32")
    if width == 64:
        ranks = code.intermediate("cvt_u64_u32", 64, [ranks])
    offset = code.intermediate(
        f"and_{width}", width, [code.place(source, f"b{width}", "shared"), code.constant(_rank_mask(match))]
    )
    upper = code.intermediate(f"shl_{width}", width, [ranks, code.constant(24)])
    code.operation(f"or_{width}", destination, [offset, upper])


def _rank_mask(match: re.Match) -> int:
    return 0xFFFFFF if match.group("space") else (0xFF << TAG_SHIFT) | 0xFFFFFF


def _is_space(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    """isspacep: tests the tag. Shared addresses of another CTA are in shared::cluster only."""
    destination, source = instruction.operands
    value, space = code.source(source, "u64"), match.group("space")
    if space == "param":
        offset = code.intermediate("sub_64", 64, [value, code.parameters])
        code.operation("lt_u64", destination, [offset, code.parameter_bytes])
        return
    tags = {"shared::cluster": SHARED_TAG, "local": LOCAL_TAG, "global": 0}
    if space in tags:
        shift, wanted = code.constant(56), code.constant(tags[space])
    else:
        shift, base = code.constant(24), Source(code.slots[SHARED_BASE].offset, False)
        tagged = code.intermediate("or_64", 64, [base, code.constant(_SHARED_BITS)])
        wanted = code.intermediate("shr_u64", 64, [tagged, shift])
    code.operation("eq_64", destination, [code.intermediate("shr_u64", 64, [value, shift]), wanted])


def _rank(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    destination, source = instruction.operands
    width = type_width(match.group("type"))
    above = code.intermediate(f"shr_u{width}", width, [code.source(source, f"u{width}"), code.constant(24)])
    rank = code.intermediate(f"and_{width}", width, [above, code.constant(0xFF)])
    code.operation(f"cvt_u32_u{width}", destination, [rank])


def _policy(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    code.operation("mov_64", instruction.operands[0], [code.constant(0)])


ROWS: list[Row] = [
    row(
        r"cvta(?P<to>\.to)?\.(?P<space>global|shared::cta|shared::cluster|shared|local|param|const)\.(?P<type>u32|u64)",
        takes="{type} .",
        kernels=_convert,
    ),
    row(r"mapa(?:\.(?P<space>shared::cluster))?\.(?P<type>u32|u64)", takes="{type} . u32", kernels=_map),
    row(
        r"isspacep\.(?P<space>global|shared::cta|shared::cluster|shared|local|param)(?:::entry)?",
        takes="p u64",
        kernels=_is_space,
    ),
    row(r"getctarank(?:\.shared::cluster)?\.(?P<type>u32|u64)", takes="u32 {type}", kernels=_rank),
    ignored(r"prefetch(?:\.global|\.local)?\.(?:L1|L2(?:::evict_(?:last|normal))?)", "[]"),
    ignored(r"prefetchu\.L1", "[]"),
    called(
        r"applypriority(?:\.global)?\.L2::evict_normal",
        "memory.check_line({m}, {0:x}, {1:i}, 'applypriority')",
        takes="[] #",
    ),
    called(r"discard(?:\.global)?\.L2", "memory.discard_line(g, {m}, {0:x}, {1:i}, {issuer})", takes="[] #"),
    row(rf"createpolicy\.fractional\.{_PRIORITIES}\.b64", takes="b64 f32?", kernels=_policy),
    row(rf"createpolicy\.range(?:\.global)?\.{_PRIORITIES}\.b64", takes="b64 [] u32 u32", kernels=_policy),
    row(r"createpolicy\.cvt\.L2\.b64", takes="b64 b64", kernels=_policy),
]
