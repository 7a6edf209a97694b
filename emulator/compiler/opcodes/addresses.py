"""Rows of the opcode table: conversion of addresses, cache hints (PTX ISA, "Data Movement and Conversion")."""

from __future__ import annotations

import re

from emulator.compiler.code import Code
from emulator.compiler.opcodes.rows import Row, called, ignored, row
from emulator.ops.memory import LOCAL_TAG, SHARED_TAG, TAG_SHIFT
from emulator.ptx.ir import Address, Instruction, Register

_SHARED_BITS = SHARED_TAG << TAG_SHIFT
_LOCAL_BITS = LOCAL_TAG << TAG_SHIFT
_PRIORITIES = r"L2::evict_(?:last|normal|first|unchanged)(?:\.L2::evict_(?:first|unchanged))?"


def _convert_address(code: Code, instruction: Instruction, match: re.Match) -> None:
    """cvta: shared and local addresses get or lose their tag; global and parameter addresses stay as they are."""
    destination, source = instruction.operands
    space, to_space = match.group("space"), match.group("to") is not None
    if match.group("type") == "u32":
        raise code.fail("32-bit generic addresses are not modelled")
    if isinstance(source, Register):
        code.fits(source, "u64")
    if isinstance(source, Address):
        text = code.address(source, 64)
    else:
        text = code.value(source, 64)
    tag = {"shared": _SHARED_BITS, "local": _LOCAL_BITS}.get(space.partition("::")[0], 0)
    if tag and to_space:
        text = f"{text} & {(1 << 32) - 1}"
    elif tag:
        text = f"{text} | u64({tag})" if code.kind == "lanes" else f"{text} | {tag}"
    code.assign(destination, text, code.kind)


def _map_address(code: Code, instruction: Instruction, match: re.Match) -> None:
    """mapa: the same offset in the CTA of another rank."""
    destination, source, rank = instruction.operands
    address = code.address(source) if isinstance(source, Address) else code.value(source, 32)
    if code.kind != "uniform":
        width = destination.width
        address, rank_text = f"row_of({address}, {width})", f"row_of({code.value(rank)}, 32).astype(u{width})"
        code.assign(destination, f"{address} & u{width}({_rank_mask(match)}) | {rank_text} << u{width}(24)", "lanes")
    else:
        code.assign(destination, f"{address} & {_rank_mask(match)} | {code.value(rank)} << 24", "uniform")


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


ROWS: list[Row] = [
    row(
        r"cvta(?P<to>\.to)?\.(?P<space>global|shared::cta|shared::cluster|shared|local|param|const)\.(?P<type>u32|u64)",
        _convert_address,
        takes="{type} .",
    ),
    row(r"mapa(?:\.(?P<space>shared::cluster))?\.(?P<type>u32|u64)", _map_address, takes="{type} . u32"),
    row(
        r"isspacep\.(?P<space>global|shared::cta|shared::cluster|shared|local|param)(?:::entry)?",
        _is_space,
        takes="p u64",
    ),
    called(r"getctarank(?:\.shared::cluster)?\.(?P<type>u32|u64)", "{1:v} >> 24 & 0xff", takes="u32 {type}"),
    ignored(r"prefetch(?:\.global|\.local)?\.(?:L1|L2(?:::evict_(?:last|normal))?)", "[]"),
    ignored(r"prefetchu\.L1", "[]"),
    called(
        r"applypriority(?:\.global)?\.L2::evict_normal",
        "memory.check_line({m}, {0:x}, {1:i}, 'applypriority')",
        writes=0,
        takes="[] #",
    ),
    called(r"discard(?:\.global)?\.L2", "memory.discard_line(g, {m}, {0:x}, {1:i}, {issuer})", writes=0, takes="[] #"),
    called(rf"createpolicy\.fractional\.{_PRIORITIES}\.b64", "0", takes="b64 f32?"),
    called(rf"createpolicy\.range(?:\.global)?\.{_PRIORITIES}\.b64", "0", takes="b64 [] u32 u32"),
    called(r"createpolicy\.cvt\.L2\.b64", "0", takes="b64 b64"),
]
