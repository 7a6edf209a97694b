"""Rows of the opcode table: cp.async and its groups (PTX ISA, "Non-bulk copy")."""

from __future__ import annotations

import re

from emulator.compiler.code import Code
from emulator.compiler.opcodes.rows import Row, called, row
from emulator.ptx.ir import Address, Immediate, Instruction, Negated, Register

_SIZES = {"ca": (4, 8, 16), "cg": (16,)}


def _copy(code: Code, instruction: Instruction, match: re.Match) -> None:
    """[dst], [src], cp-size{, src-size or ignore-src}{, cache policy}"""
    destination, source, size, *options = instruction.operands
    sizes, hinted = _SIZES[match.group("level")], ".L2::cache_hint" in instruction.opcode
    if not isinstance(size, Immediate) or size.value not in sizes:
        shown = size.value if isinstance(size, Immediate) else "in a register"
        raise code.fail(f"cp.async.{match.group('level')} with cp-size {shown}: must be {' or '.join(map(str, sizes))}")
    if len(options) not in (hinted, hinted + 1):
        raise code.fail(f"cp.async with {len(options)} operands after cp-size, {int(hinted)} or {hinted + 1} expected")
    if not isinstance(destination, Address) or not isinstance(source, Address):
        raise code.fail("cp.async copies from an address to an address")
    source_size = ignored = "None"
    if len(options) > hinted:
        option = options[0]
        if isinstance(option, Negated) or (isinstance(option, Register) and option.width == 1):
            ignored = code.predicate_row(option)
        else:
            source_size = code.value(option)
    places = f"{code.address(destination)}, {code.address(source)}, {size.value}, {source_size}, {ignored}"
    code.line(f"cp_async.copy(g, {code.mask}, {places}, (g, {code.pc}))")


def _wait(code: Code, instruction: Instruction, match: re.Match) -> None:
    (newest,) = instruction.operands
    if not isinstance(newest, Immediate) or newest.value < 0:
        raise code.fail("cp.async.wait_group takes a constant number of groups")
    code.line(f"cp_async.wait_groups(g, {code.mask}, {newest.value})")


ROWS: list[Row] = [
    row(
        r"cp\.async\.(?P<level>ca|cg)\.shared(?:::cta)?\.global(?:\.L2::cache_hint)?(?:\.L2::(?:64|128|256)B)?(?:\.L2::cache_hint)?",
        _copy,
        (3, 4, 5),
        writes=0,
    ),
    called(r"cp\.async\.commit_group", "cp_async.commit_group(g, {m})", writes=0),
    row(r"cp\.async\.wait_group", _wait, 1, writes=0),
    called(r"cp\.async\.wait_all", "cp_async.wait_copies(g, {m})", writes=0),
    called(
        r"cp\.async\.mbarrier\.arrive(?P<noinc>\.noinc)?(?:\.shared(?:::cta)?)?\.b64",
        "cp_async.arrive(g, {m}, {noinc:b}, {0:x}, {issuer})",
        writes=0,
    ),
]
