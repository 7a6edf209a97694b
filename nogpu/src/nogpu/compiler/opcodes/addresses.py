"""Rows of the opcode table: conversion of addresses, cache hints (PTX ISA, "Data Movement and Conversion")."""

from __future__ import annotations

import re

from nogpu.compiler.code import Code
from nogpu.compiler.opcodes.rows import Row, called, ignored, row
from nogpu.compiler.rowcode.assembler import Assembler, Source, Unsupported
from nogpu.compiler.rowcode.registers import SHARED_BASE
from nogpu.ops.memory import LOCAL_TAG, SHARED_TAG, TAG_SHIFT
from nogpu.ptx.ir import Instruction
from nogpu.ptx.types import type_width

_SHARED_BITS = SHARED_TAG << TAG_SHIFT
_LOCAL_BITS = LOCAL_TAG << TAG_SHIFT
_HIGH_HALF = (1 << 64) - (1 << 32)
_TAGS = {"shared": _SHARED_BITS, "local": _LOCAL_BITS}
_OWN_SPACES = {"shared::cta": "shared", "shared::cluster": "shared", "const": "global"}  # as `Sources.place` has them
_PRIORITIES = r"L2::evict_(?:last|normal|first|unchanged)(?:\.L2::evict_(?:first|unchanged))?"


def _convert_address(code: Code, instruction: Instruction, match: re.Match) -> None:
    """cvta: shared and local addresses get or lose their tag, global ones stay as they are.

    A parameter's address may be kept in 32 bits, the low half of the generic one: it gets the high half.
    """
    destination, source = instruction.operands
    space, to_space = match.group("space"), match.group("to") is not None
    if match.group("type") == "u32":
        raise code.fail("32-bit generic addresses are not modelled")
    if to_space:
        code.fits(source, "u64")
    text = code.place(source, 64, _OWN_SPACES.get(space, space))
    tag = _TAGS.get(space.partition("::")[0], 0)
    if tag and to_space:
        text = f"{text} & {(1 << 32) - 1}"
    elif tag:
        text = f"{text} | u64({tag})" if code.kind == "lanes" else f"{text} | {tag}"
    elif space == "param" and not to_space:
        low, high = (1 << 32) - 1, f"(g.grid.param_address & {_HIGH_HALF})"
        text = f"{text} & u64({low}) | u64({high})" if code.kind == "lanes" else f"{text} & {low} | {high}"
    code.assign(destination, text, code.kind)


def _convert_kernels(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    destination, source = instruction.operands
    value, tag = code.place(source, "b64"), _TAGS.get(match.group("space").partition("::")[0], 0)
    if match.group("space") == "param" and match.group("to") is None:
        low = code.intermediate("and_64", 64, [value, code.constant((1 << 32) - 1)])
        high = code.intermediate("and_64", 64, [code.parameters, code.constant(_HIGH_HALF)])
        code.operation("or_64", destination, [low, high])
    elif not tag:
        code.operation("mov_64", destination, [value])
    elif match.group("to") is not None:
        code.operation("and_64", destination, [value, code.constant((1 << 32) - 1)])
    else:
        code.operation("or_64", destination, [value, code.constant(tag)])


def _map_address(code: Code, instruction: Instruction, match: re.Match) -> None:
    """mapa: the same offset in the CTA of another rank."""
    destination, source, rank = instruction.operands
    width = destination.width
    address, ones = code.place(source, width, "shared"), (1 << width) - 1
    if code.kind != "uniform":
        address, rank_text = f"row_of({address}, {width})", f"row_of({code.value(rank)}, 32).astype(u{width})"
        code.assign(
            destination, f"{address} & u{width}({_rank_mask(match) & ones}) | {rank_text} << u{width}(24)", "lanes"
        )
    else:
        code.assign(destination, f"({address} & {_rank_mask(match)} | {code.value(rank)} << 24) & {ones}", "uniform")


def _map_kernels(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    destination, source, rank = instruction.operands
    width = type_width(match.group("type"))
    ranks = code.source(rank, "u32")
    if width == 64:
        ranks = code.intermediate("cvt_u64_u32", 64, [ranks])
    offset = code.intermediate(
        f"and_{width}", width, [code.place(source, f"b{width}"), code.constant(_rank_mask(match))]
    )
    upper = code.intermediate(f"shl_{width}", width, [ranks, code.constant(24)])
    code.operation(f"or_{width}", destination, [offset, upper])


def _rank_mask(match: re.Match) -> int:
    return 0xFFFFFF if match.group("space") else (0xFF << TAG_SHIFT) | 0xFFFFFF


def _is_space(code: Code, instruction: Instruction, match: re.Match) -> None:
    """isspacep: tests the tag. Shared addresses of another CTA are in shared::cluster only."""
    destination, source = instruction.operands
    space, text = match.group("space"), code.value(source, 64)
    if code.kind == "lanes":
        text = f"row_of({text}, 64)"
    tests = {
        "shared::cluster": f"({text} >> 56 == {SHARED_TAG})",
        "local": f"({text} >> 56 == {LOCAL_TAG})",
        "global": f"({text} >> 56 == 0)",
        "param": f"({text} - g.grid.param_address & {(1 << 64) - 1} < len(g.grid.parameters))",
    }
    own = f"({text} >> 24 == g.cta.shared_base + {_SHARED_BITS} >> 24)"
    code.assign(destination, tests.get(space, own), code.kind)


def _space_kernels(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    destination, source = instruction.operands
    value, space = code.source(source, "u64"), match.group("space")
    if space == "param":
        raise Unsupported
    tags = {"shared::cluster": SHARED_TAG, "local": LOCAL_TAG, "global": 0}
    if space in tags:
        shift, wanted = code.constant(56), code.constant(tags[space])
    else:
        shift, base = code.constant(24), Source(code.slots[SHARED_BASE].offset, False)
        tagged = code.intermediate("or_64", 64, [base, code.constant(_SHARED_BITS)])
        wanted = code.intermediate("shr_u64", 64, [tagged, shift])
    code.operation("eq_64", destination, [code.intermediate("shr_u64", 64, [value, shift]), wanted])


def _rank_kernels(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    destination, source = instruction.operands
    width = type_width(match.group("type"))
    above = code.intermediate(f"shr_u{width}", width, [code.source(source, f"u{width}"), code.constant(24)])
    rank = code.intermediate(f"and_{width}", width, [above, code.constant(0xFF)])
    code.operation(f"cvt_u32_u{width}", destination, [rank])


def _policy_kernels(code: Assembler, instruction: Instruction, match: re.Match) -> None:
    code.operation("mov_64", instruction.operands[0], [code.constant(0)])


ROWS: list[Row] = [
    row(
        r"cvta(?P<to>\.to)?\.(?P<space>global|shared::cta|shared::cluster|shared|local|param|const)\.(?P<type>u32|u64)",
        _convert_address,
        kernels=_convert_kernels,
        takes="{type} .",
    ),
    row(
        r"mapa(?:\.(?P<space>shared::cluster))?\.(?P<type>u32|u64)",
        _map_address,
        kernels=_map_kernels,
        takes="{type} . u32",
    ),
    row(
        r"isspacep\.(?P<space>global|shared::cta|shared::cluster|shared|local|param)(?:::entry)?",
        _is_space,
        kernels=_space_kernels,
        takes="p u64",
    ),
    called(
        r"getctarank(?:\.shared::cluster)?\.(?P<type>u32|u64)",
        "{1:v} >> 24 & 0xff",
        takes="u32 {type}",
        kernels=_rank_kernels,
    ),
    ignored(r"prefetch(?:\.global|\.local)?\.(?:L1|L2(?:::evict_(?:last|normal))?)", "[]"),
    ignored(r"prefetchu\.L1", "[]"),
    called(
        r"applypriority(?:\.global)?\.L2::evict_normal",
        "memory.check_line({m}, {0:x}, {1:i}, 'applypriority')",
        writes=0,
        takes="[] #",
    ),
    called(r"discard(?:\.global)?\.L2", "memory.discard_line(g, {m}, {0:x}, {1:i}, {issuer})", writes=0, takes="[] #"),
    called(rf"createpolicy\.fractional\.{_PRIORITIES}\.b64", "0", takes="b64 f32?", kernels=_policy_kernels),
    called(
        rf"createpolicy\.range(?:\.global)?\.{_PRIORITIES}\.b64", "0", takes="b64 [] u32 u32", kernels=_policy_kernels
    ),
    called(r"createpolicy\.cvt\.L2\.b64", "0", takes="b64 b64", kernels=_policy_kernels),
]
